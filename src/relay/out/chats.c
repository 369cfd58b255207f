/* chats.c - design.  (chats.h has the contract.)
 *
 * chat_table.h keeps them; here is when they come and are written, in chats_end.c when they go. */
#include "relay/out/chats.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "relay/out/chats_priv.h"
#include "relay/out/company.h"
#include "relay/out/ground.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/in/interrupt.h"
#include "relay/out/spoken.h"
#include "store/store.h"

enum { TRIM_STEPS = 4, KEY_DIGITS = 16 };
static_assert(sizeof(struct known_chat) == 64, "a million of them is 64 MB");

struct chats *chats_new(void)
{
    struct chats *t = xcalloc(1, sizeof *t);

    chat_table_init(&t->table);
    timer_init(&t->end_some, chats_on_end_some);
    return t;
}

struct known_chat *chats_find(const struct instance *i, struct str chat_id)
{
    return chat_first(&chats_of(i)->table, i, chat_id);
}

struct known_chat *chats_find_on(const struct instance *i, struct str platform, struct str chat_id)
{
    struct known_chat *c = chats_find(i, chat_id);

    while (c != NULL && !str_eq(chat_platform(c), platform))
        c = chat_next(&chats_of(i)->table, c);
    return c;
}

uint32_t chats_number(const struct known_chat *c)
{
    return pool_number(&chats_of(c->inst)->table.pool, c);
}

struct known_chat *chats_at(const struct relay *r, uint32_t number)
{
    return pool_at(&r->chats->table.pool, number);
}

struct known_chat *chats_next_of(const struct instance *i, const struct known_chat *c)
{
    return chats_at(i->relay, c != NULL ? c->in[CHAT_BY_INSTANCE].next : i->chats.first);
}

void chat_enter_old(struct known_chat *c)
{
    struct chats *t = chats_of(c->inst);

    chat_row_append(&t->table, &t->old, CHAT_BY_AGE, c);
    c->aging = true;
    t->n_old++;
}

void chat_leave_old(struct known_chat *c)
{
    struct chats *t = chats_of(c->inst);

    if (!c->aging)
        return;
    chat_row_remove(&t->table, &t->old, CHAT_BY_AGE, c);
    c->aging = false;
    t->n_old--;
}

static void enter(struct instance *i, struct known_chat *c)
{
    chat_enter_old(c);
    chat_row_append(&chats_of(i)->table, &i->chats, CHAT_BY_INSTANCE, c);
    i->n_chats++;
}

static struct known_chat *make(struct instance *i, struct str platform, struct str chat_id)
{
    struct chats *t = chats_of(i);
    struct known_chat *c = chat_add(&t->table, i, chat_id);

    chat_set_place(&t->table, c, platform, STR(""), STR(""));
    enter(i, c);
    return c;
}

uint64_t chat_company(const struct known_chat *c)
{
    char id[CHAT_ID_CHARS];

    return company_place(c->inst->relay, chat_platform(c), chat_bot(c), chat_id(c, id));
}

/* True when it was another one before.  The instance counts in one place: company.h. */
static bool set_place(struct known_chat *c, struct str platform, struct str bot, struct str scope)
{
    struct relay *r = c->inst->relay;
    bool same = c->counted && str_eq(chat_bot(c), bot);
    char id[CHAT_ID_CHARS];

    if (c->counted && !same)
        company_leave(r, chat_company(c));
    bool moved = chat_set_place(&r->chats->table, c, platform, bot, scope);
    if (same)
        return moved;
    company_join(r, chat_company(c));
    c->counted = true;
    spoken_heard(r, spoken_place(c->inst, chat_platform(c), chat_bot(c), chat_id(c, id)));
    return moved;
}

/* ---- the record ---- */

void chat_record_key(const struct known_chat *c, struct buf *out)
{
    char id[CHAT_ID_CHARS];

    buf_add_str(out, instance_key(c->inst));
    buf_add_c(out, '\x1f');
    buf_add_str(out, chat_platform(c));
    buf_add_c(out, '\x1f');
    buf_add_str(out, chat_id(c, id));
}

static void write_record(const struct known_chat *c, struct buf *out)
{
    struct jw w = jw_begin(out);
    struct buf keys = BUF_INIT;

    for (size_t k = 0; k < c->n_keys; k++)
        buf_printf(&keys, "%016" PRIx64, chat_keys(c)[k]);
    jw_obj(&w);
    jw_kstr(&w, "bot", chat_bot(c));
    if (chat_scope(c).n != 0)
        jw_kstr(&w, "scope", chat_scope(c));
    jw_ki64(&w, "box", c->inst->box);
    if (keys.n != 0)
        jw_kstr(&w, "keys", buf_str(&keys));
    ground_write(&w, name_text(c->ground));
    if (chats_of(c->inst)->retention_ms > 0)
        jw_ki64(&w, "day", chats_today(c->inst->relay));
    jw_end_obj(&w);
    buf_done(&keys);
}

struct chat_put *chat_put_of(const struct known_chat *c)
{
    uint32_t number = chats_number(c);

    return c->writing ? map_get(&chats_of(c->inst)->puts, str_make(&number, sizeof number)) : NULL;
}

void chat_put_over(struct chat_put *p)
{
    p->chat->writing = false;
    map_del(&chats_of(p->chat->inst)->puts, str_make(&p->number, sizeof p->number));
    free(p);
}

static void on_stored(void *ctx, enum bh_err err)
{
    struct chat_put *p = ctx;

    if (err != BH_OK)
        p->chat->stored = false; /* the next event from there writes it again */
    chat_put_over(p);
}

void chat_store(struct known_chat *c)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct chat_put *p = chat_put_of(c);

    if (p != NULL) {
        store_put_cancel(&p->put); /* this one has all that one had */
    } else {
        p = xcalloc(1, sizeof *p);
        *p = (struct chat_put){.number = chats_number(c), .chat = c};
        map_put(&chats_of(c->inst)->puts, str_make(&p->number, sizeof p->number), p);
    }
    chat_record_key(c, &key);
    write_record(c, &value);
    c->stored = c->writing = true;
    chat_set_day(c, chats_of(c->inst)->retention_ms > 0 ? chats_today(c->inst->relay) : 0);
    struct store_kv item = {KV_PUT, CHATS_NS, buf_str(&key), buf_str(&value)};
    p->put = store_put(c->inst->relay->env.store, &item, 1, false, on_stored, p);
    buf_done(&key);
    buf_done(&value);
}

/* ---- noting ---- */

static void add_key(struct known_chat *c, uint64_t key)
{
    if (c->n_keys == CHAT_KEYS) {
        uint64_t oldest = chat_keys(c)[0];
        interrupt_forget(c->inst->relay, c, oldest);
        chat_remove_key(c, oldest);
    }
    chat_add_key(c, key);
}

void chats_drop_key(struct known_chat *c, uint64_t key)
{
    if (chat_remove_key(c, key))
        chat_store(c);
}

/* It was heard from last. */
static void to_the_end(struct known_chat *c)
{
    struct chats *t = chats_of(c->inst);

    chat_lead(&t->table, c);
    if (c->aging) {
        chat_leave_old(c);
        chat_enter_old(c);
    }
    chat_row_remove(&t->table, &c->inst->chats, CHAT_BY_INSTANCE, c);
    chat_row_append(&t->table, &c->inst->chats, CHAT_BY_INSTANCE, c);
}

/* True when its record is another one now. */
static bool learn(struct known_chat *c, const struct event *ev, uint64_t key, bool owner)
{
    struct chats *t = chats_of(c->inst);
    bool moved = ground_of(ev, owner, chat_bot(c), name_text(c->ground), &t->ground);

    if (moved)
        chat_set_ground(&t->table, c, buf_str(&t->ground));
    moved |= set_place(c, ev->platform, ev->bot, ev->scope_id);
    if (!chat_has_key(c, key)) {
        add_key(c, key);
        moved = true;
    }
    return moved;
}

struct known_chat *chats_note(struct instance *i, const struct event *ev, uint64_t key, bool owner)
{
    if (ev->chat_id.n == 0 || ev->chat_id.n > CHAT_ID_MAX)
        return NULL;
    chats_trim(i->relay, TRIM_STEPS);
    struct known_chat *c = chats_find_on(i, ev->platform, ev->chat_id);
    if (c == NULL)
        c = make(i, ev->platform, ev->chat_id);
    else
        to_the_end(c);
    bool aged = i->relay->chats->retention_ms > 0 && chat_day(c) != chats_today(i->relay);
    if (learn(c, ev, key, owner) || !c->stored || aged)
        chat_store(c);
    for (int k = 0; k < TRIM_STEPS && i->n_chats > i->relay->lim.max_instance_chats; k++)
        chat_forget_one(chats_next_of(i, NULL));
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
        if (key != 0 && !chat_has_key(c, key))
            add_key(c, key);
    }
}

/* There may be a million, and nobody asks for one yet: they are put where they are found when all
 * are there, and join their company a few at a time. */
enum { JOIN_AT_ONCE = 32 };
struct loading {
    struct relay *relay;
    struct instance *last; /* of the record before */
    uint64_t joining[JOIN_AT_ONCE];
    size_t n_joining;
};

static void join_company(struct loading *l)
{
    for (size_t k = 0; k < l->n_joining; k++)
        company_join(l->relay, l->joining[k]);
    l->n_joining = 0;
}

static void load_place(struct loading *l, struct known_chat *c, struct str platform, struct str id,
                       struct json doc)
{
    struct str bot = json_str(doc, "bot");
    uint64_t place = company_place(l->relay, platform, bot, id);

    chat_set_place(&l->relay->chats->table, c, platform, bot, json_str(doc, "scope"));
    company_prefetch(l->relay, place);
    l->joining[l->n_joining++] = place;
    if (l->n_joining == JOIN_AT_ONCE)
        join_company(l);
    c->counted = true;
}

static struct instance *instance_of(struct loading *l, struct str tenant, struct str name)
{
    if (l->last == NULL || !str_eq(instance_id(l->last), name) ||
        !str_eq(instance_tenant(l->last), tenant))
        l->last = instance_find(l->relay, tenant, name);
    return l->last;
}

static void load_chat(struct loading *l, struct instance *i, struct str platform, struct str id,
                      struct json doc, bool readable)
{
    struct chats *t = l->relay->chats;
    struct known_chat *c = chat_add_unindexed(&t->table, i, id);

    if (readable) {
        load_place(l, c, platform, id, doc);
        if (ground_read(doc, &t->ground))
            chat_set_ground(&t->table, c, buf_str(&t->ground));
        load_keys(c, json_str(doc, "keys"));
    } else {
        chat_set_place(&t->table, c, platform, STR(""), STR(""));
    }
    enter(i, c);
    c->stored = true;
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct loading *l = ctx;
    struct str tenant, name, platform, rest = key;
    struct json doc = {0};

    if (!str_split(&rest, '\x1f', &tenant) || !str_split(&rest, '\x1f', &name) ||
        !str_split(&rest, '\x1f', &platform) || rest.n == 0 || rest.n > CHAT_ID_MAX)
        return;
    struct instance *i = instance_of(l, tenant, name);
    if (i == NULL)
        return;
    bool readable = json_parse(l->relay->json, value, &doc);
    if (readable && !chats_record_counts(i, doc)) {
        struct store_kv item = {.verb = KV_DELETE, .ns = CHATS_NS, .key = key};
        store_put(l->relay->env.store, &item, 1, false, NULL, NULL);
    } else {
        load_chat(l, i, platform, rest, doc, readable);
    }
}

enum bh_err chats_load(struct relay *r)
{
    struct loading l = {.relay = r};
    enum bh_err err = r->env.store->ops->load_records(r->env.store, CHATS_NS, on_record, &l);

    join_company(&l);
    chat_index(&r->chats->table, &r->chats->old, CHAT_BY_AGE);
    return err;
}

void chats_free(struct chats *t)
{
    void *p;

    if (t == NULL)
        return;
    for (size_t pos = 0; map_next(&t->puts, &pos, &p);)
        free(p);
    map_done(&t->puts);
    if (t->relay != NULL)
        timer_stop(t->relay->env.clock, &t->end_some);
    chat_table_done(&t->table);
    free(t->days);
    buf_done(&t->ground);
    free(t);
}
