/* chat_records.c - design.  (chat_records.h has the contract.)
 *
 * A record without a day was written while no retention was set, and gets today's date.
 *
 * The next holder of an instance's name may write a record under the key of a chat that is over;
 * the removal leaves that record alone.  After a crash the next start deletes records that name a
 * mailbox of an earlier life. */
#include "relay/out/chat_records.h"
#include <inttypes.h>
#include <stdlib.h>
#include "base/buf.h"
#include "relay/heart.h"
#include "relay/in/commands.h"
#include "relay/out/guard.h"
#include "relay/out/spoken.h"
#include "relay/sleep/instance.h"
#include "store/sweep.h"

#define DAY_MS (24 * INT64_C(3600000))
enum { KEY_DIGITS = 16, DELETE_AT_ONCE = 512, JOIN_AT_ONCE = 32 };

struct chat_put {
    uint32_t number;
    struct known_chat *chat; /* borrowed */
    struct store_put *put;   /* borrowed */
};

static timer_cb on_end_some;

void chat_records_init(struct chats *t)
{
    t->records = record_reader_new(NULL);
    timer_init(&t->end_some, on_end_some);
}

void chat_records_done(struct chats *t)
{
    void *p;

    for (size_t pos = 0; map_next(&t->puts, &pos, &p);)
        free(p);
    map_done(&t->puts);
    timer_stop(t->relay->env.clock, &t->end_some);
    record_reader_free(t->records);
    free(t->days);
}

/* ---- the day of the last event ---- */

static uint16_t chats_today(const struct relay *r)
{
    return (uint16_t)(clock_wall_ms(r->env.clock) / DAY_MS);
}

static uint16_t chat_day(const struct known_chat *c)
{
    const struct chats *t = c->inst->relay->chats;
    uint32_t number = chats_number(c);

    return number < t->n_days ? t->days[number] : 0;
}

static void chat_set_day(const struct known_chat *c, uint16_t day)
{
    struct chats *t = c->inst->relay->chats;
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

bool chat_is_aged(const struct known_chat *c)
{
    return chat_day(c) != chats_today(c->inst->relay);
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
    if (c->inst->relay->chats->retention_ms > 0)
        r.day = chats_today(c->inst->relay);
    record_write(&chat_form, NULL, &r, NULL, out);
    buf_done(&keys);
    buf_done(&basis);
}

static struct chat_put *chat_put_of(const struct known_chat *c)
{
    uint32_t number = chats_number(c);

    return c->writing ? map_get(&c->inst->relay->chats->puts, str_make(&number, sizeof number))
                      : NULL;
}

static void chat_put_over(struct chat_put *p)
{
    p->chat->writing = false;
    map_del(&p->chat->inst->relay->chats->puts, str_make(&p->number, sizeof p->number));
    free(p);
}

static void on_stored(void *ctx, enum bh_err err)
{
    struct chat_put *p = ctx;

    if (err != BH_OK)
        p->chat->stored = false; /* the chat's next event writes the record again */
    chat_put_over(p);
}

void chat_store(struct known_chat *c)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct chat_put *p = chat_put_of(c);

    if (p != NULL) {
        store_put_cancel(&p->put); /* the new record supersedes the pending one */
    } else {
        p = xcalloc(1, sizeof *p);
        *p = (struct chat_put){.number = chats_number(c), .chat = c};
        map_put(&c->inst->relay->chats->puts, str_make(&p->number, sizeof p->number), p);
    }
    chat_record_key(c, &key);
    write_record(c, &value);
    c->stored = c->writing = true;
    chat_set_day(c, c->inst->relay->chats->retention_ms > 0 ? chats_today(c->inst->relay) : 0);
    struct store_kv item = {KV_PUT, chat_form.ns, buf_str(&key), buf_str(&value)};
    p->put = store_put(c->inst->relay->env.store, &item, 1, false, on_stored, p);
    buf_done(&key);
    buf_done(&value);
}

/* ---- forgetting ---- */

/* From memory; the key of the record to be deleted is appended to @ret_key. */
static void forget(struct known_chat *c, struct buf *ret_key)
{
    struct chats *t = c->inst->relay->chats;
    struct chat_put *p = chat_put_of(c);
    bool over = chat_is_over(c);
    char id[CHAT_ID_CHARS];

    if (c->counted)
        participants_leave(c->inst->relay, chat_participants(c));
    chats_leave_old(c);
    chat_list_remove(&t->table, over ? &t->ending : &c->inst->chats, CHAT_BY_INSTANCE, c);
    if (over)
        t->n_ending--;
    else
        c->inst->n_chats--;
    for (size_t k = 0; k < c->n_keys; k++)
        interrupt_forget(c->inst->relay, c, chat_keys(c)[k]);
    if (p != NULL) {
        store_put_cancel(&p->put);
        chat_put_over(p);
    }
    /* The next holder of the name may have the same chat. */
    if (!over || chats_find(c->inst, chat_platform(c), chat_id(c, id)) == NULL)
        chat_record_key(c, ret_key);
    chat_set_day(c, 0);
    chat_remove(&t->table, c);
}

void chat_forget(struct known_chat *c)
{
    struct instance *i = c->inst;
    bool over = chat_is_over(c);
    struct buf key = BUF_INIT;

    forget(c, &key);
    if (key.n > 0)
        record_delete(i->relay->env.store, &chat_form, buf_str(&key));
    buf_done(&key);
    if (!over && !i->forgot_chats) {
        i->forgot_chats = true;
        instance_record(i);
    }
}

void relay_forget_chat(struct relay *r, struct str tenant, struct str instance, struct str platform,
                       struct str chat_id)
{
    struct instance *i = instance_find(r, tenant, instance);
    struct known_chat *c = i != NULL ? chats_find(i, platform, chat_id) : NULL;

    if (c != NULL)
        chat_forget(c);
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
            chat_add_key(c, key);
    }
}

/* There may be a million, and nobody asks for one yet: they are put where they are found when all
 * are there, and join the participants a few at a time. */
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

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct loading *l = ctx;
    const struct chat_record *rec = thing;
    struct chats *t = l->relay->chats;

    if (l->last == NULL || !str_eq(instance_id(l->last), rec->instance) ||
        !str_eq(instance_tenant(l->last), rec->tenant))
        l->last = instance_find(l->relay, rec->tenant, rec->instance);
    struct instance *i = l->last;
    if (i == NULL)
        return true;
    if (rec->box != i->box) {
        record_delete(l->relay->env.store, &chat_form, key);
        return true;
    }
    struct known_chat *c = chat_add_unindexed(&t->table, i, rec->id);
    uint64_t of_chat = participants_key(l->relay, rec->platform, rec->bot, rec->id);
    chat_set_address(&t->table, c, rec->platform, rec->bot, rec->scope);
    participants_prefetch(l->relay, of_chat);
    l->joining[l->n_joining++] = of_chat;
    if (l->n_joining == JOIN_AT_ONCE)
        join_participants(l);
    c->counted = true;
    if (basis_read(rec->basis.value, &t->basis))
        chat_set_basis(&t->table, c, buf_str(&t->basis));
    load_keys(c, rec->keys);
    chats_enter(c);
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

static bool goes(void *ctx, struct str key, struct str value)
{
    struct relay *r = ctx;
    int64_t keep_days = (r->chats->retention_ms + DAY_MS - 1) / DAY_MS;
    struct chat_record rec;

    if (r->chats->retention_ms <= 0 || !chats_read(r, key, value, &rec))
        return false;
    struct instance *i = instance_find(r, rec.tenant, rec.instance);
    struct known_chat *c = i != NULL ? chats_find(i, rec.platform, rec.id) : NULL;
    if (c == NULL)
        return false; /* no such chat in this life */
    if (rec.day == 0) {
        if (chat_day(c) == 0)
            chat_store(c);
        return false;
    }
    if (chat_day(c) != 0 && chat_day(c) != rec.day)
        return false; /* rewritten meanwhile */
    if (chats_today(r) - rec.day > keep_days)
        chat_forget(c); /* with its record */
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
    struct store_kv items[DELETE_AT_ONCE];
    struct buf keys[DELETE_AT_ONCE];
    struct store_put *put = NULL;
    size_t n = 0;

    for (int k = 0; k < DELETE_AT_ONCE && t->n_ending != 0; k++) {
        keys[n] = BUF_INIT;
        forget(chats_at(t->relay, t->ending.first), &keys[n]);
        if (keys[n].n > 0) {
            items[n] = (struct store_kv){KV_DELETE, chat_form.ns, buf_str(&keys[n]), STR_NULL};
            n++;
        }
    }
    if (n != 0)
        put = store_put(t->relay->env.store, items, n, false, done, done != NULL ? t : NULL);
    for (size_t k = 0; k < n; k++)
        buf_done(&keys[k]);
    return put;
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
    struct chats *t = i->relay->chats;

    if (i->n_chats == 0)
        return;
    i->chat_era = (i->chat_era + 1u) & (CHAT_ERAS - 1);
    while (i->chat_era == 0 && t->n_ending != 0) /* the eras begin anew: none of the last round */
        end_some(t, NULL);
    chat_list_join(&t->table, &t->ending, CHAT_BY_INSTANCE, &i->chats);
    t->n_ending += i->n_chats;
    i->n_chats = 0;
    if (t->ended == NULL && !timer_is_set(&t->end_some))
        timer_set(i->relay->env.clock, &t->end_some, 0);
}
