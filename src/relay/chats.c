/* chats.c - design.  (chats.h has the contract.)
 *
 * A table keyed by (mailbox number, chat id); chats that share an id on several platforms hang
 * behind each other, because a gateway may name a chat without its platform.
 *
 * Which platform lets its chats go is asked when one of them has become the oldest: at the start
 * the platforms are not open yet. */
#include "relay/chats.h"
#include <inttypes.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "relay/ground.h"
#include "relay/heart.h"
#include "relay/instance.h"
#include "relay/interrupt.h"
#include "store/store.h"

enum { ID_MAX_BYTES = 1024, TRIM_STEPS = 4, KEY_DIGITS = 16, DELETE_AT_ONCE = 256 };

struct chats {
    struct map by_key; /* number of the mailbox and id -> the first known_chat; owned */
    struct list old;   /* those that may be forgotten, least recently heard from first */
    size_t n_old;
};

struct chats *chats_new(void)
{
    struct chats *t = xcalloc(1, sizeof *t);

    list_init(&t->old);
    return t;
}

static struct chats *chats_of(const struct instance *i)
{
    return i->relay->chats;
}

static struct str chat_key(const struct known_chat *c)
{
    return str_make(c->bytes, sizeof(uint32_t) + c->id.n);
}

static struct known_chat *first(const struct instance *i, struct str chat_id)
{
    char key[sizeof(uint32_t) + ID_MAX_BYTES];

    if (chat_id.n == 0 || chat_id.n > ID_MAX_BYTES)
        return NULL;
    memcpy(key, &i->box, sizeof i->box);
    memcpy(key + sizeof i->box, chat_id.p, chat_id.n);
    return map_get(&chats_of(i)->by_key, str_make(key, sizeof i->box + chat_id.n));
}

struct known_chat *chats_find(const struct instance *i, struct str chat_id)
{
    return first(i, chat_id);
}

struct known_chat *chats_find_on(const struct instance *i, struct str platform, struct str chat_id)
{
    struct known_chat *c = first(i, chat_id);

    while (c != NULL && !str_eq(c->platform, platform))
        c = c->next;
    return c;
}

/* Puts @c in front of the others with its id. */
static void lead(struct known_chat *c, struct known_chat *head)
{
    if (c == head)
        return;
    for (struct known_chat *prev = head; prev != NULL; prev = prev->next)
        if (prev->next == c)
            prev->next = c->next;
    c->next = head;
    map_put(&chats_of(c->inst)->by_key, chat_key(c), c);
}

static struct known_chat *make(struct instance *i, struct str platform, struct str chat_id)
{
    struct known_chat *c = xmalloc(sizeof *c + sizeof i->box + chat_id.n + platform.n);

    *c = (struct known_chat){.inst = i};
    memcpy(c->bytes, &i->box, sizeof i->box);
    memcpy(c->bytes + sizeof i->box, chat_id.p, chat_id.n);
    memcpy(c->bytes + sizeof i->box + chat_id.n, platform.n != 0 ? platform.p : "", platform.n);
    c->id = str_make(c->bytes + sizeof i->box, chat_id.n);
    c->platform = str_make(c->bytes + sizeof i->box + chat_id.n, platform.n);
    list_init(&c->age);
    list_init(&c->by_inst);
    list_append(&chats_of(i)->old, &c->age);
    chats_of(i)->n_old++;
    list_append(&i->chats, &c->by_inst);
    i->n_chats++;
    lead(c, first(i, chat_id));
    return c;
}

/* ---- the record ---- */

static void record_key(const struct known_chat *c, struct buf *out)
{
    buf_add_str(out, instance_key(c->inst));
    buf_add_c(out, '\x1f');
    buf_add_str(out, c->platform);
    buf_add_c(out, '\x1f');
    buf_add_str(out, c->id);
}

static void write_record(const struct known_chat *c, struct buf *out)
{
    struct jw w = jw_begin(out);
    struct buf keys = BUF_INIT;

    for (size_t k = 0; k < c->n_keys; k++)
        buf_printf(&keys, "%016" PRIx64, c->keys[k]);
    jw_obj(&w);
    jw_kstr(&w, "bot", str_of(c->bot));
    if (*c->scope != '\0')
        jw_kstr(&w, "scope", str_of(c->scope));
    jw_ki64(&w, "box", c->inst->box);
    if (keys.n != 0)
        jw_kstr(&w, "keys", buf_str(&keys));
    ground_write(&w, c->ground);
    jw_end_obj(&w);
    buf_done(&keys);
}

static void on_stored(void *ctx, enum bh_err err)
{
    struct known_chat *c = ctx;

    c->put = NULL;
    if (err != BH_OK)
        c->stored = false; /* the next event from there writes it again */
}

static void store_chat(struct known_chat *c)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    record_key(c, &key);
    write_record(c, &value);
    c->stored = true;
    store_put_cancel(&c->put); /* this one has all that one had */
    struct store_kv item = {KV_PUT, CHATS_NS, buf_str(&key), buf_str(&value)};
    c->put = store_put(c->inst->relay->env.store, &item, 1, false, on_stored, c);
    buf_done(&key);
    buf_done(&value);
}

/* ---- forgetting ---- */

struct deletes { /* records to be deleted together */
    struct buf keys[DELETE_AT_ONCE];
    size_t n;
};

static void delete_now(struct relay *r, struct deletes *d)
{
    struct store_kv items[DELETE_AT_ONCE];

    for (size_t k = 0; k < d->n; k++)
        items[k] = (struct store_kv){KV_DELETE, CHATS_NS, buf_str(&d->keys[k]), STR_NULL};
    if (d->n != 0)
        store_put(r->env.store, items, d->n, false, NULL, NULL);
    for (size_t k = 0; k < d->n; k++)
        buf_done(&d->keys[k]);
    d->n = 0;
}

static void free_chat(struct known_chat *c)
{
    free(c->bot);
    free(c->scope);
    free(c->ground);
    free(c->keys);
    free(c);
}

static void leave_old(struct known_chat *c)
{
    if (!list_is_linked(&c->age))
        return;
    list_remove(&c->age);
    chats_of(c->inst)->n_old--;
}

/* From memory; its record is left to the caller in @d. */
static void forget(struct known_chat *c, struct deletes *d)
{
    struct map *by_key = &chats_of(c->inst)->by_key;
    struct known_chat *head = first(c->inst, c->id);

    leave_old(c);
    list_remove(&c->by_inst);
    c->inst->n_chats--;
    for (size_t k = 0; k < c->n_keys; k++)
        interrupt_forget(c->inst->relay, c, c->keys[k]);
    if (head != c) {
        while (head->next != c)
            head = head->next;
        head->next = c->next;
    } else if (c->next != NULL) {
        map_put(by_key, chat_key(c->next), c->next);
    } else {
        map_del(by_key, chat_key(c));
    }
    store_put_cancel(&c->put);
    d->keys[d->n] = BUF_INIT;
    record_key(c, &d->keys[d->n++]);
    free_chat(c);
}

/* One that is too many. */
static void forget_one(struct known_chat *c)
{
    struct instance *i = c->inst;
    struct deletes d;

    d.n = 0;
    forget(c, &d);
    delete_now(i->relay, &d);
    if (!i->forgot_chats) {
        i->forgot_chats = true;
        instance_record(i);
    }
}

void chats_trim(struct relay *r, size_t steps)
{
    struct outside *outside = r->env.outside;
    struct chats *t = r->chats;

    while (t->n_old > r->lim.max_chats && steps-- > 0) {
        struct known_chat *c = list_first(&t->old, struct known_chat, age);
        const struct outlet *at = outside->find(outside, c->platform, str_of(c->bot));
        if (at != NULL && !at->secret_chats)
            leave_old(c);
        else if (at == NULL)
            list_move(&c->age, &t->old);
        else
            forget_one(c);
    }
}

void relay_forget_chat(struct relay *r, struct str tenant, struct str instance, struct str platform,
                       struct str chat_id)
{
    struct instance *i = instance_find(r, tenant, instance);
    struct known_chat *c = i != NULL ? chats_find_on(i, platform, chat_id) : NULL;

    if (c != NULL)
        forget_one(c);
}

void chats_end(struct instance *i)
{
    struct deletes d;

    d.n = 0;
    while (!list_is_empty(&i->chats)) {
        forget(list_first(&i->chats, struct known_chat, by_inst), &d);
        if (d.n == DELETE_AT_ONCE || list_is_empty(&i->chats))
            delete_now(i->relay, &d);
    }
}

/* ---- its session keys ---- */

static bool has_key(const struct known_chat *c, uint64_t key)
{
    for (size_t k = 0; k < c->n_keys; k++)
        if (c->keys[k] == key)
            return true;
    return false;
}

static void remove_key(struct known_chat *c, size_t at)
{
    c->n_keys--;
    memmove(&c->keys[at], &c->keys[at + 1], (c->n_keys - at) * sizeof c->keys[0]);
}

static void add_key(struct known_chat *c, uint64_t key)
{
    if (c->n_keys == CHAT_KEYS) {
        interrupt_forget(c->inst->relay, c, c->keys[0]);
        remove_key(c, 0);
    }
    c->keys = xrealloc(c->keys, (c->n_keys + 1u) * sizeof c->keys[0]);
    c->keys[c->n_keys++] = key;
}

void chats_drop_key(struct known_chat *c, uint64_t key)
{
    for (size_t k = 0; k < c->n_keys; k++) {
        if (c->keys[k] != key)
            continue;
        remove_key(c, k);
        store_chat(c);
        return;
    }
}

/* ---- noting ---- */

/* True when it was something else before. */
static bool set(char **field, struct str now)
{
    if (*field != NULL && str_eq(str_of(*field), now))
        return false;
    free(*field);
    *field = str_dup(now);
    return true;
}

struct known_chat *chats_note(struct instance *i, const struct event *ev, uint64_t key, bool owner)
{
    struct str platform = ev->platform, chat_id = ev->chat_id;

    if (chat_id.n == 0 || chat_id.n > ID_MAX_BYTES)
        return NULL;
    chats_trim(i->relay, TRIM_STEPS);
    struct known_chat *head = first(i, chat_id), *c = head;
    while (c != NULL && !str_eq(c->platform, platform))
        c = c->next;
    if (c == NULL)
        c = make(i, platform, chat_id);
    else
        lead(c, head);
    if (list_is_linked(&c->age))
        list_move(&c->age, &chats_of(i)->old);
    list_move(&c->by_inst, &i->chats);
    char *ground = ground_of(ev, owner, c->bot, c->ground);
    if (ground != NULL) {
        free(c->ground);
        c->ground = ground;
    }
    bool moved = ground != NULL;
    moved |= set(&c->bot, ev->bot);
    moved |= set(&c->scope, ev->scope_id);
    if (!has_key(c, key)) {
        add_key(c, key);
        moved = true;
    }
    if (moved || !c->stored)
        store_chat(c);
    for (int k = 0; k < TRIM_STEPS && i->n_chats > i->relay->lim.max_instance_chats; k++)
        forget_one(list_first(&i->chats, struct known_chat, by_inst));
    return c;
}

/* ---- loading ---- */

/* Records of older databases name no mailbox: they are of the first life. */
bool chats_record_counts(const struct instance *i, struct json doc)
{
    int64_t box;

    return json_as_i64(json_get(doc, "box"), &box) ? box == i->box : i->life == 0;
}

static void load_keys(struct known_chat *c, struct str hex)
{
    for (; hex.n >= KEY_DIGITS && c->n_keys < CHAT_KEYS; hex = str_skip(hex, KEY_DIGITS)) {
        uint64_t key = 0;
        for (size_t k = 0; k < KEY_DIGITS; k++) {
            int digit = hex_value(hex.p[k]);
            if (digit < 0)
                return;
            key = key << 4 | (unsigned)digit;
        }
        if (key != 0 && !has_key(c, key))
            add_key(c, key);
    }
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct relay *r = ctx;
    struct str tenant, name, platform, rest = key;
    struct json doc;

    if (!str_split(&rest, '\x1f', &tenant) || !str_split(&rest, '\x1f', &name) ||
        !str_split(&rest, '\x1f', &platform) || rest.n == 0 || rest.n > ID_MAX_BYTES)
        return;
    struct instance *i = instance_find(r, tenant, name);
    if (i == NULL || chats_find_on(i, platform, rest) != NULL)
        return;
    bool ok = json_parse(r->json, value, &doc);
    if (ok && !chats_record_counts(i, doc)) {
        struct store_kv item = {.verb = KV_DELETE, .ns = CHATS_NS, .key = key};
        store_put(r->env.store, &item, 1, false, NULL, NULL);
        return;
    }
    struct known_chat *c = make(i, platform, rest);
    c->bot = str_dup(ok ? json_str(doc, "bot") : STR(""));
    c->scope = str_dup(ok ? json_str(doc, "scope") : STR(""));
    c->ground = ok ? ground_read(doc) : NULL;
    load_keys(c, ok ? json_str(doc, "keys") : STR(""));
    c->stored = true;
}

enum bh_err chats_load(struct relay *r)
{
    return r->env.store->ops->load_records(r->env.store, CHATS_NS, on_record, r);
}

static void free_chats(struct known_chat *c)
{
    while (c != NULL) {
        struct known_chat *next = c->next;
        free_chat(c);
        c = next;
    }
}

void chats_free(struct chats *t)
{
    void *first_of;

    if (t == NULL)
        return;
    for (size_t pos = 0; map_next(&t->by_key, &pos, &first_of);)
        free_chats(first_of);
    map_done(&t->by_key);
    free(t);
}
