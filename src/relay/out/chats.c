/* chats.c - design.  (chats.h has the contract.)
 *
 * The table uses linear hashing: each new chat adds one bucket by splitting an old one.  So no
 * insertion takes long, and no chat stores its hash.  Buckets and pool never shrink. */
#include "relay/out/chats.h"
#include <stdlib.h>
#include "base/hash.h"
#include "base/mem.h"
#include "base/uncleared.h"
#include "relay/heart.h"
#include "relay/in/commands.h"
#include "relay/out/chat_records.h"
#include "relay/out/guard.h"
#include "relay/out/spoken.h"
#include "relay/sleep/instance.h"

enum {
    FIRST_BUCKETS = 16,
    INDEX_AT_ONCE = 32,
    PLACE_HEAD = 2 * sizeof(uint16_t),
    NAME_MAX_BYTES = 1024,
    TRIM_STEPS = 4,
};
_Static_assert(sizeof(struct known_chat) == 64, "a million of them is 64 MB");

static struct known_chat *at(const struct chat_table *t, uint32_t number)
{
    return pool_at(&t->pool, number);
}

/* An action or event looks its chat up several times in a row: the last hash is kept. */
struct chat_hash {
    uint64_t hash;
    size_t n;                                          /* of @key; 0: nothing is kept */
    char key[sizeof(struct instance *) + CHAT_ID_MAX]; /* what was hashed */
};

void chat_table_init(struct chat_table *t)
{
    *t = (struct chat_table){.pool = POOL_INIT(sizeof(struct known_chat)), .names = NAMES_INIT};
    t->n_buckets = t->cap = FIRST_BUCKETS;
    t->buckets = xcalloc(t->cap, sizeof t->buckets[0]);
    t->last = xcalloc(1, sizeof *t->last);
}

/* ---- ids ---- */

struct id_of { /* a chat's id as it is stored */
    int64_t number;
    struct str text; /* n 0: it is a number */
};

/* A canonical decimal number (no leading zero, no plus, nothing else) is kept as a number. */
static struct id_of read_id(struct str id)
{
    bool minus = id.n > 1 && id.p[0] == '-';
    char first = id.n > minus ? id.p[minus] : '\0';
    int64_t number;

    if (((first >= '1' && first <= '9') || (first == '0' && id.n == 1)) && str_to_i64(id, &number))
        return (struct id_of){.number = number};
    return (struct id_of){.text = id};
}

struct str chat_id(const struct known_chat *c, char scratch[CHAT_ID_CHARS])
{
    uint64_t left = c->id.number < 0 ? 0 - (uint64_t)c->id.number : (uint64_t)c->id.number;
    size_t at = CHAT_ID_CHARS;

    if (c->id_n != 0)
        return str_make(c->id.text, c->id_n);
    do {
        scratch[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left != 0);
    if (c->id.number < 0)
        scratch[--at] = '-';
    return str_make(scratch + at, CHAT_ID_CHARS - at);
}

bool chat_is_over(const struct known_chat *c)
{
    return c->era != c->inst->chat_era;
}

/* ---- buckets ---- */

static uint32_t *bucket_of(const struct chat_table *t, const struct instance *i,
                           const struct id_of *id)
{
    struct str tail = id->text.n != 0 ? id->text : str_make(&id->number, sizeof id->number);
    struct chat_hash *last = t->last;

    if (last->n != sizeof i + tail.n || memcmp(last->key, &i, sizeof i) != 0 ||
        memcmp(last->key + sizeof i, tail.p, tail.n) != 0) {
        last->n = sizeof i + tail.n;
        memcpy(last->key, &i, sizeof i);
        memcpy(last->key + sizeof i, tail.p, tail.n);
        last->hash = hash64_brief(hash_process_key(), str_make(last->key, last->n));
    }
    uint64_t hash = last->hash;
    uint32_t half = UINT32_C(1) << (31 - __builtin_clz(t->n_buckets));
    uint32_t b = (uint32_t)hash & (2 * half - 1);
    return &t->buckets[b < t->n_buckets ? b : b & (half - 1)];
}

static uint32_t *bucket_of_chat(const struct chat_table *t, const struct known_chat *c)
{
    struct id_of id = {.number = c->id.number};

    if (c->id_n != 0)
        id = (struct id_of){.text = str_make(c->id.text, c->id_n)};
    return bucket_of(t, c->inst, &id);
}

/* Splits a bucket.  Chats with the same id stay together, in their order. */
static void grow(struct chat_table *t)
{
    uint32_t half = UINT32_C(1) << (31 - __builtin_clz(t->n_buckets));
    uint32_t *ends[2] = {&t->buckets[t->n_buckets - half], NULL};
    uint32_t n = *ends[0];

    if (t->n_buckets == t->cap) {
        t->cap *= 2;
        t->buckets = xrealloc(t->buckets, t->cap * sizeof t->buckets[0]);
        ends[0] = &t->buckets[t->n_buckets - half];
    }
    ends[1] = &t->buckets[t->n_buckets++];
    *ends[0] = *ends[1] = 0;
    for (const uint32_t *old = ends[0]; n != 0;) {
        struct known_chat *c = at(t, n);
        int to = bucket_of_chat(t, c) != old;
        *ends[to] = n;
        ends[to] = &c->bucket_next;
        n = c->bucket_next;
        c->bucket_next = 0;
    }
}

static void unlink_from(struct chat_table *t, uint32_t *bucket, struct known_chat *c)
{
    uint32_t number = pool_number(&t->pool, c), *p = bucket;

    while (*p != number)
        p = &at(t, *p)->bucket_next;
    *p = c->bucket_next;
}

static void link_at(struct chat_table *t, uint32_t *bucket, struct known_chat *c)
{
    c->bucket_next = *bucket;
    *bucket = pool_number(&t->pool, c);
}

struct known_chat *chat_add_unindexed(struct chat_table *t, struct instance *i, struct str id)
{
    struct id_of kept = read_id(id);
    struct known_chat *c = pool_take(&t->pool);

    c->inst = i;
    c->era = i->chat_era & (CHAT_ERAS - 1);
    c->id_n = kept.text.n & (2 * CHAT_ID_MAX - 1);
    if (kept.text.n == 0) {
        c->id.number = kept.number;
    } else {
        c->id.text = xmalloc(kept.text.n);
        memcpy(c->id.text, kept.text.p, kept.text.n);
    }
    return c;
}

struct known_chat *chat_add(struct chat_table *t, struct instance *i, struct str id)
{
    if (t->pool.live >= t->n_buckets && t->n_buckets < UINT32_MAX / 4)
        grow(t);
    struct known_chat *c = chat_add_unindexed(t, i, id);
    link_at(t, bucket_of_chat(t, c), c);
    return c;
}

/* All buckets at once, and a few chats at a time: their buckets come from memory together. */
void chat_index(struct chat_table *t, const struct chat_list *all, enum chat_order kind)
{
    struct known_chat *c = at(t, all->first), *some[INDEX_AT_ONCE];
    uint32_t *buckets[INDEX_AT_ONCE];

    while (t->cap < t->pool.live && t->cap < UINT32_MAX / 4)
        t->cap *= 2;
    t->n_buckets = t->pool.live > FIRST_BUCKETS ? t->pool.live : FIRST_BUCKETS;
    if (t->n_buckets > t->cap)
        t->n_buckets = t->cap;
    free(t->buckets);
    t->buckets = xcalloc(t->cap, sizeof t->buckets[0]);
    while (c != NULL) {
        size_t n = 0;
        for (; n < INDEX_AT_ONCE && c != NULL; c = at(t, c->in[kind].next), n++) {
            some[n] = c;
            buckets[n] = bucket_of_chat(t, c);
            __builtin_prefetch(buckets[n], 1);
        }
        for (size_t k = 0; k < n; k++)
            link_at(t, buckets[k], some[k]);
    }
}

static void drop_parts(struct chat_table *t, struct known_chat *c)
{
    names_drop(&t->names, c->address);
    names_drop(&t->names, c->basis);
    if (c->id_n != 0)
        free(c->id.text);
    if (c->n_keys > 1)
        free(c->keys.many);
}

void chat_remove(struct chat_table *t, struct known_chat *c)
{
    unlink_from(t, bucket_of_chat(t, c), c);
    drop_parts(t, c);
    pool_give(&t->pool, c);
}

void chat_table_done(struct chat_table *t)
{
    for (uint32_t b = 0; b < t->n_buckets; b++)
        for (uint32_t n = t->buckets[b]; n != 0; n = at(t, n)->bucket_next)
            drop_parts(t, at(t, n));
    names_done(&t->names);
    pool_done(&t->pool);
    free(t->buckets);
    free(t->last);
}

void chat_lead(struct chat_table *t, struct known_chat *c)
{
    uint32_t *bucket = bucket_of_chat(t, c), number = pool_number(&t->pool, c);

    if (*bucket == number)
        return;
    unlink_from(t, bucket, c);
    link_at(t, bucket, c);
}

/* ---- address and basis ---- */

/* Two lengths, then platform, bot and guild. */
struct str chat_address(const struct known_chat *c, int part)
{
    struct str all = name_text(c->address);
    uint16_t n[2];

    if (all.n < PLACE_HEAD)
        return STR("");
    memcpy(n, all.p, sizeof n);
    size_t from = PLACE_HEAD + (part > 0 ? n[0] : 0u) + (part > 1 ? n[1] : 0u);
    return str_make(all.p + from, part < 2 ? n[part] : all.n - from);
}

bool chat_set_address(struct chat_table *t, struct known_chat *c, struct str platform,
                      struct str bot, struct str scope)
{
    BH_UNCLEARED char text[PLACE_HEAD + 3 * NAME_MAX_BYTES];
    struct str parts[] = {platform, bot, scope};
    size_t n = PLACE_HEAD;

    if (c->address != NULL && str_eq(chat_platform(c), platform) && str_eq(chat_bot(c), bot) &&
        str_eq(chat_scope(c), scope))
        return false;
    for (int k = 0; k < 3; k++) {
        uint16_t bytes = (uint16_t)(parts[k].n < NAME_MAX_BYTES ? parts[k].n : NAME_MAX_BYTES);
        if (k < 2)
            memcpy(text + (size_t)k * sizeof bytes, &bytes, sizeof bytes);
        if (bytes != 0)
            memcpy(text + n, parts[k].p, bytes);
        n += bytes;
    }
    struct name *before = c->address;
    c->address = names_take(&t->names, str_make(text, n));
    names_drop(&t->names, before);
    return c->address != before;
}

void chat_set_basis(struct chat_table *t, struct known_chat *c, struct str basis)
{
    struct name *before = c->basis;

    c->basis = names_take(&t->names, basis);
    names_drop(&t->names, before);
}

/* ---- session keys ---- */

const uint64_t *chat_keys(const struct known_chat *c)
{
    return c->n_keys > 1 ? c->keys.many : &c->keys.one;
}

bool chat_has_key(const struct known_chat *c, uint64_t key)
{
    const uint64_t *keys = chat_keys(c);

    for (size_t k = 0; k < c->n_keys; k++)
        if (keys[k] == key)
            return true;
    return false;
}

void chat_add_key(struct known_chat *c, uint64_t key)
{
    if (c->n_keys == CHAT_KEYS) {
        uint64_t oldest = chat_keys(c)[0];
        interrupt_forget(c->inst->relay, c, oldest);
        chat_remove_key(c, oldest);
    }
    if (c->n_keys == 0) {
        c->keys.one = key;
    } else {
        uint64_t *many =
            xrealloc(c->n_keys > 1 ? c->keys.many : NULL, (c->n_keys + 1u) * sizeof many[0]);
        if (c->n_keys == 1)
            many[0] = c->keys.one;
        many[c->n_keys] = key;
        c->keys.many = many;
    }
    c->n_keys++;
}

bool chat_remove_key(struct known_chat *c, uint64_t key)
{
    uint64_t *keys = c->n_keys > 1 ? c->keys.many : &c->keys.one;
    size_t k = 0;

    while (k < c->n_keys && keys[k] != key)
        k++;
    if (k == c->n_keys)
        return false;
    c->n_keys--;
    memmove(&keys[k], &keys[k + 1], (c->n_keys - k) * sizeof keys[0]);
    if (c->n_keys == 1) {
        uint64_t left = keys[0];
        free(keys);
        c->keys.one = left;
    }
    return true;
}

/* ---- queues ---- */

void chat_list_append(struct chat_table *t, struct chat_list *l, enum chat_order kind,
                      struct known_chat *c)
{
    uint32_t number = pool_number(&t->pool, c);

    c->in[kind].prev = l->last;
    c->in[kind].next = 0;
    if (l->last != 0)
        at(t, l->last)->in[kind].next = number;
    else
        l->first = number;
    l->last = number;
}

void chat_list_remove(struct chat_table *t, struct chat_list *l, enum chat_order kind,
                      struct known_chat *c)
{
    uint32_t prev = c->in[kind].prev, next = c->in[kind].next;

    if (prev != 0)
        at(t, prev)->in[kind].next = next;
    else
        l->first = next;
    if (next != 0)
        at(t, next)->in[kind].prev = prev;
    else
        l->last = prev;
}

void chat_list_join(struct chat_table *t, struct chat_list *to, enum chat_order kind,
                    struct chat_list *from)
{
    if (from->first == 0)
        return;
    if (to->last != 0) {
        at(t, to->last)->in[kind].next = from->first;
        at(t, from->first)->in[kind].prev = to->last;
    } else {
        to->first = from->first;
    }
    to->last = from->last;
    *from = (struct chat_list){0};
}

/* ---- all chats ---- */

struct chats *chats_new(struct relay *r)
{
    struct chats *t = xcalloc(1, sizeof *t);

    t->relay = r;
    chat_table_init(&t->table);
    chat_records_init(t);
    return t;
}

void chats_free(struct chats *t)
{
    if (t == NULL)
        return;
    chat_records_done(t);
    chat_table_done(&t->table);
    buf_done(&t->basis);
    free(t);
}

struct known_chat *chats_find(const struct instance *i, struct str platform, struct str chat_id)
{
    const struct chat_table *t = &i->relay->chats->table;

    if (chat_id.n == 0 || chat_id.n > CHAT_ID_MAX)
        return NULL;
    struct id_of id = read_id(chat_id);
    struct known_chat *c = at(t, *bucket_of(t, i, &id));
    for (; c != NULL; c = at(t, c->bucket_next))
        if (c->inst == i && c->era == i->chat_era && c->id_n == id.text.n &&
            (c->id_n == 0 ? c->id.number == id.number
                          : memcmp(c->id.text, id.text.p, c->id_n) == 0) &&
            (platform.p == NULL || str_eq(chat_platform(c), platform)))
            break;
    return c;
}

uint32_t chats_number(const struct known_chat *c)
{
    return pool_number(&c->inst->relay->chats->table.pool, c);
}

struct known_chat *chats_at(const struct relay *r, uint32_t number)
{
    return pool_at(&r->chats->table.pool, number);
}

struct known_chat *chats_next_of(const struct instance *i, const struct known_chat *c)
{
    return chats_at(i->relay, c != NULL ? c->in[CHAT_BY_INSTANCE].next : i->chats.first);
}

void chats_enter(struct known_chat *c)
{
    struct instance *i = c->inst;
    struct chats *t = i->relay->chats;

    chat_list_append(&t->table, &t->old, CHAT_BY_AGE, c);
    chat_list_append(&t->table, &i->chats, CHAT_BY_INSTANCE, c);
    c->aging = true;
    t->n_old++;
    i->n_chats++;
}

void chats_leave_old(struct known_chat *c)
{
    struct chats *t = c->inst->relay->chats;

    if (!c->aging)
        return;
    chat_list_remove(&t->table, &t->old, CHAT_BY_AGE, c);
    c->aging = false;
    t->n_old--;
}

void chats_trim(struct relay *r, size_t steps)
{
    struct outside *outside = r->env.outside;
    struct chats *t = r->chats;

    while (t->n_old > r->lim.max_chats && steps-- > 0) {
        struct known_chat *c = chats_at(r, t->old.first);
        const struct outlet *by = outside->find(outside, chat_platform(c), chat_bot(c));
        if (by != NULL && by->secret_chats) {
            chat_forget(c);
        } else if (by != NULL) {
            chats_leave_old(c);
        } else { /* its bot is not open now: asked again later */
            chat_list_remove(&t->table, &t->old, CHAT_BY_AGE, c);
            chat_list_append(&t->table, &t->old, CHAT_BY_AGE, c);
        }
    }
}

/* ---- noting ---- */

uint64_t chat_participants(const struct known_chat *c)
{
    char id[CHAT_ID_CHARS];

    return participants_key(c->inst->relay, chat_platform(c), chat_bot(c), chat_id(c, id));
}

/* True when it was another one before.  The instance counts once: spoken.h. */
static bool set_address(struct known_chat *c, struct str platform, struct str bot, struct str scope)
{
    struct relay *r = c->inst->relay;
    bool same = c->counted && str_eq(chat_bot(c), bot);
    char id[CHAT_ID_CHARS];

    if (c->counted && !same)
        participants_leave(r, chat_participants(c));
    bool changed = chat_set_address(&r->chats->table, c, platform, bot, scope);
    if (same)
        return changed;
    participants_join(r, chat_participants(c));
    c->counted = true;
    spoken_heard(r, spoken_chat(c->inst, chat_platform(c), chat_bot(c), chat_id(c, id)));
    return changed;
}

void chats_drop_key(struct known_chat *c, uint64_t key)
{
    if (chat_remove_key(c, key))
        chat_store(c);
}

struct known_chat *chats_note(struct instance *i, const struct event *ev, uint64_t key, bool owner)
{
    struct chats *t = i->relay->chats;

    if (ev->chat_id.n == 0 || ev->chat_id.n > CHAT_ID_MAX)
        return NULL;
    if (t->n_old > i->relay->lim.max_chats)
        chats_trim(i->relay, TRIM_STEPS);
    struct known_chat *c = chats_find(i, ev->platform, ev->chat_id);
    if (c == NULL) {
        c = chat_add(&t->table, i, ev->chat_id);
        chat_set_address(&t->table, c, ev->platform, STR(""), STR(""));
        chats_enter(c);
    } else { /* the newest of its id, of its instance and of all */
        chat_lead(&t->table, c);
        chat_list_remove(&t->table, &i->chats, CHAT_BY_INSTANCE, c);
        chat_list_append(&t->table, &i->chats, CHAT_BY_INSTANCE, c);
        if (c->aging) {
            chat_list_remove(&t->table, &t->old, CHAT_BY_AGE, c);
            chat_list_append(&t->table, &t->old, CHAT_BY_AGE, c);
        }
    }
    bool news = !c->stored || (t->retention_ms > 0 && chat_is_aged(c));
    if (basis_of(ev, owner, chat_bot(c), name_text(c->basis), &t->basis)) {
        chat_set_basis(&t->table, c, buf_str(&t->basis));
        news = true;
    }
    news |= set_address(c, ev->platform, ev->bot, ev->scope_id);
    if (!chat_has_key(c, key)) {
        chat_add_key(c, key);
        news = true;
    }
    if (news)
        chat_store(c);
    for (int k = 0; k < TRIM_STEPS && i->n_chats > i->relay->lim.max_instance_chats; k++)
        chat_forget(chats_next_of(i, NULL));
    return c;
}
