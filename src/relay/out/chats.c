/* chats.c - design.  (chats.h has the contract.)
 *
 * chat_table.h holds the chats; chats.c decides when a chat is added, written, and forgotten.
 *
 * Retention: the record of a chat names the day of its last event, and two bytes in memory repeat
 * that day.  A chat in use costs one write a day; without a retention it costs none.  A record
 * without a day was written while no retention was set, and gets today's date.
 *
 * Another holder of an instance's name starts without chats.  The chats of the earlier holder wait
 * in a queue until they are removed:
 *
 *      chats_end() --> ENDING --a step: 512 from memory--> their records deleted --> the next step
 *
 * The new holder may write a record under the same key meanwhile; the step leaves that record
 * alone.  After a crash the next start deletes records that name a mailbox of an earlier life. */
#include "relay/out/chats.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/map.h"
#include "base/mem.h"
#include "relay/heart.h"
#include "relay/in/interrupt.h"
#include "relay/out/byline.h"
#include "relay/out/guard.h"
#include "relay/out/spoken.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "store/sweep.h"

#define DAY_MS (24 * INT64_C(3600000))
enum { TRIM_STEPS = 4, KEY_DIGITS = 16, DELETE_AT_ONCE = 512 };
static_assert(sizeof(struct known_chat) == 64, "a million of them is 64 MB");

struct chats {
    struct chat_table table;
    struct chat_row old; /* chats that may be forgotten, oldest last event first */
    size_t n_old;
    struct map puts; /* number of the chat -> struct chat_put, owned: pending writes */
    struct buf basis;
    struct record_reader *records; /* owned */
    struct chat_row ending;        /* chats that are over and wait for their removal */
    size_t n_ending;
    struct timer end_some;
    struct store_put *ended; /* borrowed; the pending delete of a step; NULL: none */
    struct relay *relay;     /* borrowed; NULL: chats_end() was never called */
    int64_t retention_ms;    /* 0: no retention, and no day is written */
    uint16_t *days;          /* owned; by number: the day on disk; 0: not known; NULL: none yet */
    size_t n_days;
};

struct chat_put {
    uint32_t number;
    struct known_chat *chat; /* borrowed */
    struct store_put *put;   /* borrowed */
};

static inline struct chats *chats_of(const struct instance *i)
{
    return i->relay->chats;
}

static timer_cb on_end_some;

struct chats *chats_new(void)
{
    struct chats *t = xcalloc(1, sizeof *t);

    chat_table_init(&t->table);
    t->records = record_reader_new(NULL);
    timer_init(&t->end_some, on_end_some);
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

static void chat_enter_old(struct known_chat *c)
{
    struct chats *t = chats_of(c->inst);

    chat_row_append(&t->table, &t->old, CHAT_BY_AGE, c);
    c->aging = true;
    t->n_old++;
}

static void chat_leave_old(struct known_chat *c)
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

    chat_set_address(&t->table, c, platform, STR(""), STR(""));
    enter(i, c);
    return c;
}

static uint64_t chat_participants(const struct known_chat *c)
{
    char id[CHAT_ID_CHARS];

    return participants_key(c->inst->relay, chat_platform(c), chat_bot(c), chat_id(c, id));
}

/* True when it was another one before.  The instance counts once: byline.h. */
static bool set_address(struct known_chat *c, struct str platform, struct str bot, struct str scope)
{
    struct relay *r = c->inst->relay;
    bool same = c->counted && str_eq(chat_bot(c), bot);
    char id[CHAT_ID_CHARS];

    if (c->counted && !same)
        participants_leave(r, chat_participants(c));
    bool moved = chat_set_address(&r->chats->table, c, platform, bot, scope);
    if (same)
        return moved;
    participants_join(r, chat_participants(c));
    c->counted = true;
    spoken_heard(r, spoken_chat(c->inst, chat_platform(c), chat_bot(c), chat_id(c, id)));
    return moved;
}

/* ---- the day a chat was last heard from ---- */

static uint16_t chats_today(const struct relay *r)
{
    return (uint16_t)(clock_wall_ms(r->env.clock) / DAY_MS);
}

static uint16_t chat_day(const struct known_chat *c)
{
    const struct chats *t = chats_of(c->inst);
    uint32_t number = chats_number(c);

    return number < t->n_days ? t->days[number] : 0;
}

static void chat_set_day(const struct known_chat *c, uint16_t day)
{
    struct chats *t = chats_of(c->inst);
    uint32_t number = chats_number(c);

    if (day == 0 && number >= t->n_days)
        return;
    if (number >= t->n_days) {
        size_t n = ((size_t)number + 1) * 2;
        t->days = xrealloc(t->days, n * sizeof t->days[0]);
        memset(t->days + t->n_days, 0, (n - t->n_days) * sizeof t->days[0]);
        t->n_days = n;
    }
    t->days[number] = day;
}

/* ---- the record ---- */

static void chat_record_key(const struct known_chat *c, struct buf *out)
{
    char id[CHAT_ID_CHARS];

    buf_add_str(out, instance_key(c->inst));
    buf_add_c(out, '\x1f');
    buf_add_str(out, chat_platform(c));
    buf_add_c(out, '\x1f');
    buf_add_str(out, chat_id(c, id));
}

static const struct record_field fields[] = {
    RECORD_FIELD(struct chat_record, tenant, "tenant", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct chat_record, instance, "instance", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct chat_record, platform, "platform", RECORD_KEY),
    RECORD_FIELD(struct chat_record, id, "id", RECORD_KEY | RECORD_NEEDED, .max = CHAT_ID_MAX),
    RECORD_FIELD(struct chat_record, bot, "bot", 0),
    RECORD_FIELD(struct chat_record, scope, "scope", 0),
    RECORD_FIELD(struct chat_record, box, "box", RECORD_NEEDED),
    RECORD_FIELD(struct chat_record, keys, "keys", 0),
    RECORD_FIELD(struct chat_record, basis, "basis", 0),
    RECORD_FIELD(struct chat_record, day, "day", 0),
};
const struct record_form chat_form = RECORD_FORM("chat", struct chat_record, fields, .lossy = true);

bool chats_read(struct relay *r, struct str key, struct str value, struct chat_record *ret)
{
    return record_read(r->chats->records, &chat_form, key, value, ret);
}

static struct str if_any(struct str s)
{
    return s.n != 0 ? s : STR_NULL;
}

static void write_record(const struct known_chat *c, struct buf *out)
{
    struct buf keys = BUF_INIT, basis = BUF_INIT;

    for (size_t k = 0; k < c->n_keys; k++)
        buf_printf(&keys, "%016" PRIx64, chat_keys(c)[k]);
    basis_write(&basis, name_text(c->basis));
    struct chat_record r = {.bot = chat_bot(c),
                            .scope = if_any(chat_scope(c)),
                            .box = c->inst->box,
                            .keys = if_any(buf_str(&keys)),
                            .basis.text = buf_str(&basis)};
    if (chats_of(c->inst)->retention_ms > 0)
        r.day = chats_today(c->inst->relay);
    record_write(&chat_form, NULL, &r, NULL, out);
    buf_done(&keys);
    buf_done(&basis);
}

static struct chat_put *chat_put_of(const struct known_chat *c)
{
    uint32_t number = chats_number(c);

    return c->writing ? map_get(&chats_of(c->inst)->puts, str_make(&number, sizeof number)) : NULL;
}

static void chat_put_over(struct chat_put *p)
{
    p->chat->writing = false;
    map_del(&chats_of(p->chat->inst)->puts, str_make(&p->number, sizeof p->number));
    free(p);
}

static void on_stored(void *ctx, enum bh_err err)
{
    struct chat_put *p = ctx;

    if (err != BH_OK)
        p->chat->stored = false; /* the chat's next event writes the record again */
    chat_put_over(p);
}

static void chat_store(struct known_chat *c)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct chat_put *p = chat_put_of(c);

    if (p != NULL) {
        store_put_cancel(&p->put); /* the new record supersedes the pending one */
    } else {
        p = xcalloc(1, sizeof *p);
        *p = (struct chat_put){.number = chats_number(c), .chat = c};
        map_put(&chats_of(c->inst)->puts, str_make(&p->number, sizeof p->number), p);
    }
    chat_record_key(c, &key);
    write_record(c, &value);
    c->stored = c->writing = true;
    chat_set_day(c, chats_of(c->inst)->retention_ms > 0 ? chats_today(c->inst->relay) : 0);
    struct store_kv item = {KV_PUT, chat_form.ns, buf_str(&key), buf_str(&value)};
    p->put = store_put(c->inst->relay->env.store, &item, 1, false, on_stored, p);
    buf_done(&key);
    buf_done(&value);
}

/* ---- forgetting ---- */

struct deletes { /* records to be deleted together */
    struct buf keys[DELETE_AT_ONCE];
    size_t n;
};

static struct store_put *delete_now(struct relay *r, struct deletes *d, store_put_cb *done)
{
    struct store_kv items[DELETE_AT_ONCE];
    struct store_put *put = NULL;

    for (size_t k = 0; k < d->n; k++)
        items[k] = (struct store_kv){KV_DELETE, chat_form.ns, buf_str(&d->keys[k]), STR_NULL};
    if (d->n != 0)
        put = store_put(r->env.store, items, d->n, false, done, done != NULL ? r->chats : NULL);
    for (size_t k = 0; k < d->n; k++)
        buf_done(&d->keys[k]);
    d->n = 0;
    return put;
}

static void leave_instance(struct known_chat *c)
{
    struct chats *t = chats_of(c->inst);
    bool over = chat_is_over(c);

    chat_row_remove(&t->table, over ? &t->ending : &c->inst->chats, CHAT_BY_INSTANCE, c);
    if (over)
        t->n_ending--;
    else
        c->inst->n_chats--;
}

/* @c is over: does the next holder of the name have the same chat? */
static bool has_heir(const struct known_chat *c)
{
    char id[CHAT_ID_CHARS];

    return chat_is_over(c) && chats_find_on(c->inst, chat_platform(c), chat_id(c, id)) != NULL;
}

/* From memory; its record is left to the caller in @d. */
static void forget(struct known_chat *c, struct deletes *d)
{
    struct chats *t = chats_of(c->inst);
    struct chat_put *p = chat_put_of(c);

    if (c->counted)
        participants_leave(c->inst->relay, chat_participants(c));
    chat_leave_old(c);
    leave_instance(c);
    for (size_t k = 0; k < c->n_keys; k++)
        interrupt_forget(c->inst->relay, c, chat_keys(c)[k]);
    if (p != NULL) {
        store_put_cancel(&p->put);
        chat_put_over(p);
    }
    if (!has_heir(c)) {
        d->keys[d->n] = BUF_INIT;
        chat_record_key(c, &d->keys[d->n++]);
    }
    chat_set_day(c, 0);
    chat_remove(&t->table, c);
}

static void chat_forget_one(struct known_chat *c)
{
    struct instance *i = c->inst;
    bool over = chat_is_over(c);
    struct deletes d;

    d.n = 0;
    forget(c, &d);
    delete_now(i->relay, &d, NULL);
    if (!over && !i->forgot_chats) {
        i->forgot_chats = true;
        instance_record(i);
    }
}

void chats_trim(struct relay *r, size_t steps)
{
    struct outside *outside = r->env.outside;
    struct chats *t = r->chats;

    while (t->n_old > r->lim.max_chats && steps-- > 0) {
        struct known_chat *c = chats_at(r, t->old.first);
        const struct outlet *at = outside->find(outside, chat_platform(c), chat_bot(c));
        if (at != NULL && at->secret_chats) {
            chat_forget_one(c);
            continue;
        }
        chat_leave_old(c);
        if (at == NULL)
            chat_enter_old(c);
    }
}

void relay_forget_chat(struct relay *r, struct str tenant, struct str instance, struct str platform,
                       struct str chat_id)
{
    struct instance *i = instance_find(r, tenant, instance);
    struct known_chat *c = i != NULL ? chats_find_on(i, platform, chat_id) : NULL;

    if (c != NULL)
        chat_forget_one(c);
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
    bool moved = basis_of(ev, owner, chat_bot(c), name_text(c->basis), &t->basis);

    if (moved)
        chat_set_basis(&t->table, c, buf_str(&t->basis));
    moved |= set_address(c, ev->platform, ev->bot, ev->scope_id);
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
 * are there, and join the participants a few at a time. */
enum { JOIN_AT_ONCE = 32 };
struct loading {
    struct relay *relay;
    struct instance *last; /* of the record before */
    uint64_t joining[JOIN_AT_ONCE];
    size_t n_joining;
};

static void join_participants(struct loading *l)
{
    for (size_t k = 0; k < l->n_joining; k++)
        participants_join(l->relay, l->joining[k]);
    l->n_joining = 0;
}

static void load_address(struct loading *l, struct known_chat *c, const struct chat_record *rec)
{
    uint64_t key = participants_key(l->relay, rec->platform, rec->bot, rec->id);

    chat_set_address(&l->relay->chats->table, c, rec->platform, rec->bot, rec->scope);
    participants_prefetch(l->relay, key);
    l->joining[l->n_joining++] = key;
    if (l->n_joining == JOIN_AT_ONCE)
        join_participants(l);
    c->counted = true;
}

static struct instance *instance_of(struct loading *l, struct str tenant, struct str name)
{
    if (l->last == NULL || !str_eq(instance_id(l->last), name) ||
        !str_eq(instance_tenant(l->last), tenant))
        l->last = instance_find(l->relay, tenant, name);
    return l->last;
}

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct loading *l = ctx;
    const struct chat_record *rec = thing;
    struct chats *t = l->relay->chats;
    struct instance *i = instance_of(l, rec->tenant, rec->instance);

    if (i == NULL)
        return true;
    if (rec->box != i->box) {
        record_delete(l->relay->env.store, &chat_form, key);
        return true;
    }
    struct known_chat *c = chat_add_unindexed(&t->table, i, rec->id);
    load_address(l, c, rec);
    if (basis_read(rec->basis.value, &t->basis))
        chat_set_basis(&t->table, c, buf_str(&t->basis));
    load_keys(c, rec->keys);
    enter(i, c);
    c->stored = true;
    return true;
}

enum bh_err chats_load(struct relay *r)
{
    struct loading l = {.relay = r};
    char why[256];
    enum bh_err err =
        record_load(r->env.store, &chat_form, r->chats->records, STR_NULL, on_record, &l, why);

    join_participants(&l);
    chat_index(&r->chats->table, &r->chats->old, CHAT_BY_AGE);
    return err;
}

/* ---- retention ---- */

void chats_retain(struct relay *r, int64_t retention_ms)
{
    r->chats->retention_ms = retention_ms;
}

static struct known_chat *chat_of(struct relay *r, struct str key)
{
    struct str tenant, name, platform;

    if (!str_split(&key, '\x1f', &tenant) || !str_split(&key, '\x1f', &name) ||
        !str_split(&key, '\x1f', &platform) || key.p == NULL)
        return NULL;
    struct instance *i = instance_find(r, tenant, name);
    return i != NULL ? chats_find_on(i, platform, key) : NULL;
}

static bool goes(void *ctx, struct str key, struct str value)
{
    struct relay *r = ctx;
    int64_t keep_days = (r->chats->retention_ms + DAY_MS - 1) / DAY_MS;
    struct known_chat *c = chat_of(r, key);
    struct chat_record rec;

    if (r->chats->retention_ms <= 0 || c == NULL || !chats_read(r, key, value, &rec))
        return false; /* no such chat in this life, or a damaged record */
    if (rec.day == 0) {
        if (chat_day(c) == 0)
            chat_store(c);
        return false;
    }
    if (chat_day(c) != 0 && chat_day(c) != rec.day)
        return false; /* rewritten meanwhile */
    if (chats_today(r) - rec.day > keep_days)
        chat_forget_one(c); /* with its record */
    return false;
}

const struct sweep_ops chats_age_ops = {.goes = goes};

/* ---- the end of an instance's chats ---- */

static void on_records_gone(void *ctx, enum bh_err err)
{
    struct chats *t = ctx;

    (void)err; /* what stayed names a mailbox that is no more */
    t->ended = NULL;
    timer_set(t->relay->env.clock, &t->end_some, 0);
}

static struct store_put *end_some(struct chats *t, store_put_cb *done)
{
    struct deletes d;

    d.n = 0;
    for (int k = 0; k < DELETE_AT_ONCE && t->n_ending != 0; k++)
        forget(chats_at(t->relay, t->ending.first), &d);
    return delete_now(t->relay, &d, done);
}

static void on_end_some(struct timer *timer)
{
    struct chats *t = container_of(timer, struct chats, end_some);

    t->ended = end_some(t, on_records_gone);
    if (t->ended == NULL && t->n_ending != 0)
        timer_set(t->relay->env.clock, timer, 0);
}

void chats_end(struct instance *i)
{
    struct chats *t = chats_of(i);

    if (i->n_chats == 0)
        return;
    t->relay = i->relay;
    i->chat_era = (i->chat_era + 1u) & (CHAT_ERAS - 1);
    while (i->chat_era == 0 && t->n_ending != 0) /* the eras begin anew: none of the last round */
        end_some(t, NULL);
    chat_row_join(&t->table, &t->ending, CHAT_BY_INSTANCE, &i->chats);
    t->n_ending += i->n_chats;
    i->n_chats = 0;
    if (t->ended == NULL && !timer_is_set(&t->end_some))
        timer_set(i->relay->env.clock, &t->end_some, 0);
}

size_t chats_ending(const struct relay *r)
{
    return r->chats->n_ending;
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
    buf_done(&t->basis);
    record_reader_free(t->records);
    free(t);
}
