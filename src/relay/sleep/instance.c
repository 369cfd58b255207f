/* instance.c - design.  (instance.h has the contract.)
 *
 * Mailbox numbers are assigned in ascending order and never reused, so a row always belongs to the
 * instance, and the life, it was written for.  Records are written before rows, so every row's
 * number is in an instance's record or in "retired".  Other rows, as in a database that was
 * tampered with, are left alone. */
#include "relay/sleep/instance.h"
#include <inttypes.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/observers.h"
#include "base/uncleared.h"
#include "relay/heart.h"
#include "relay/in/allowance.h"
#include "relay/in/staged.h"
#include "relay/mailbox/mailbox.h"
#include "relay/out/chat_records.h"
#include "relay/out/spoken.h"
#include "relay/out/requests.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "store/store.h"
#include "tenancy/grants.h"

enum { NAME_MAX_BYTES = 256, MAX_BOX = STAGED_BOX - 1 };

struct instances {
    struct list by_age;
    struct fifo changed;      /* instances whose state may have changed in this turn */
    struct map by_name;       /* instance_key() -> instance */
    struct instance **by_box; /* owned array; NULL where no instance has the number */
    size_t n_boxes;
    uint32_t next_box;        /* from 1 */
    struct relay *relay;      /* borrowed */
    struct timer active;      /* armed while @news is not empty */
    struct fifo news;         /* instances with unwritten times of activity */
    struct list retired;      /* struct retired, owned; at start only */
    struct map retired_boxes; /* box -> struct retired */
    uint64_t strangers;       /* rows of no known mailbox, found at start */
};

static timer_cb on_activity_due;

struct instances *instances_new(struct relay *r)
{
    struct instances *t = xcalloc(1, sizeof *t);

    t->relay = r;
    timer_init(&t->active, on_activity_due);
    list_init(&t->retired);
    list_init(&t->by_age);
    t->next_box = 1;
    return t;
}

struct retired { /* a retired mailbox number */
    struct list link;
    uint32_t box;
    uint64_t rows; /* rows found with this number */
};

static void forget_retired(struct instances *t)
{
    list_each (&t->retired, it, nxt) {
        list_remove(it);
        free(list_entry(it, struct retired, link));
    }
    map_done(&t->retired_boxes);
}

void instances_free(struct instances *t)
{
    if (t == NULL)
        return;
    timer_stop(t->relay->env.clock, &t->active);
    forget_retired(t);
    list_each (&t->by_age, it, nxt) {
        struct instance *i = list_entry(it, struct instance, link);
        wake_done(i);
        mailbox_done(&i->mb);
        sent_ids_done(&i->sent);
        free(i->unread);
        free(i);
    }
    fifo_done(&t->changed);
    fifo_done(&t->news);
    map_done(&t->by_name);
    free(t->by_box);
    free(t);
}

struct list *instances_by_age(struct relay *r)
{
    return &r->instances->by_age;
}

size_t instances_count(const struct relay *r)
{
    return map_count(&r->instances->by_name);
}

struct instance *instance_at(const struct relay *r, uint32_t box)
{
    return box < r->instances->n_boxes ? r->instances->by_box[box] : NULL;
}

struct instance *instance_after(const struct relay *r, uint32_t box)
{
    const struct instances *t = r->instances;

    for (size_t i = (size_t)box + 1; i < t->n_boxes; i++)
        if (t->by_box[i] != NULL)
            return t->by_box[i];
    return NULL;
}

/* ---- finding and making ---- */

static bool join_names(char ret[2 * NAME_MAX_BYTES + 1], struct str tenant, struct str name,
                       struct str *ret_key)
{
    if (tenant.n == 0 || name.n == 0 || tenant.n > NAME_MAX_BYTES || name.n > NAME_MAX_BYTES ||
        str_find(tenant, '\x1f') >= 0)
        return false;
    memcpy(ret, tenant.p, tenant.n);
    ret[tenant.n] = '\x1f';
    memcpy(ret + tenant.n + 1, name.p, name.n);
    *ret_key = str_make(ret, tenant.n + 1 + name.n);
    return true;
}

struct instance *instance_find(struct relay *r, struct str tenant, struct str name)
{
    BH_UNCLEARED char bytes[2 * NAME_MAX_BYTES + 1];
    struct str key;

    return join_names(bytes, tenant, name, &key) ? map_get(&r->instances->by_name, key) : NULL;
}

static void set_box(struct instances *t, struct instance *i, uint32_t box)
{
    if (box >= t->n_boxes) {
        size_t n = (size_t)box + 1 > t->n_boxes * 2 ? (size_t)box + 1 : t->n_boxes * 2;
        t->by_box = xrealloc(t->by_box, n * sizeof(struct instance *));
        memset(t->by_box + t->n_boxes, 0, (n - t->n_boxes) * sizeof(struct instance *));
        t->n_boxes = n;
    }
    t->by_box[box] = i;
    i->box = box;
    if (box >= t->next_box)
        t->next_box = box + 1;
}

static struct instance *make(struct relay *r, struct str key, size_t tenant_n, uint32_t box)
{
    struct instance *i = xcalloc(1, sizeof *i + key.n);

    i->relay = r;
    memcpy(i->name, key.p, key.n);
    i->tenant_n = (uint16_t)tenant_n;
    i->name_n = (uint16_t)key.n;
    i->shown_state = RELAY_NEVER;
    i->box_version = 1;
    list_init(&i->link);
    list_init(&i->sessions);
    list_init(&i->orphans);
    list_init(&i->hungry_link);
    list_init(&i->revisions);
    list_init(&i->spoken);
    mailbox_init(&i->mb);
    set_box(r->instances, i, box);
    list_append(&r->instances->by_age, &i->link);
    map_put(&r->instances->by_name, instance_key(i), i);
    return i;
}

struct instance *instance_get(struct relay *r, struct str tenant, struct str name)
{
    BH_UNCLEARED char bytes[2 * NAME_MAX_BYTES + 1];
    struct str key;

    if (!join_names(bytes, tenant, name, &key))
        return NULL;
    struct instance *i = map_get(&r->instances->by_name, key);
    if (i != NULL || r->instances->next_box > MAX_BOX)
        return i;
    i = make(r, key, tenant.n, r->instances->next_box);
    i->life = life_now(r, tenant, name);
    instance_record(i);
    return i;
}

/* ---- the record ---- */

static void on_recorded(void *ctx, enum bh_err err)
{
    struct instance *i = ctx;
    bool was_recorded = instance_is_recorded(i);
    uint32_t version = i->record_writing;

    i->record_writing = 0;
    if (err == BH_OK)
        i->record_done = version;
    if (instance_is_recorded(i))
        i->retiring_box = 0;
    if (!was_recorded && (err != BH_OK || instance_is_recorded(i)))
        delivery_record_done(i, err);
    if (err != BH_OK)
        retry_want(i);
    else if (i->record_want != i->record_done)
        instance_record_retry(i);
    sleep_check(i);
    drain_release(i->relay);
}

struct instance_record {
    struct str tenant, instance;
    uint32_t box, life;
    bool asleep, seen, forgot_chats;
    int64_t asleep_since_ms, poked_ms, in_vain;
};
static const struct record_field instance_fields[] = {
    RECORD_FIELD(struct instance_record, tenant, "tenant", RECORD_KEY | RECORD_NEEDED,
                 .max = NAME_MAX_BYTES),
    RECORD_FIELD(struct instance_record, instance, "instance", RECORD_KEY | RECORD_NEEDED,
                 .max = NAME_MAX_BYTES),
    RECORD_FIELD(struct instance_record, box, "box", RECORD_NEEDED, .max = MAX_BOX),
    RECORD_FIELD(struct instance_record, asleep, "asleep", 0),
    RECORD_FIELD(struct instance_record, asleep_since_ms, "asleepSince", 0),
    RECORD_FIELD(struct instance_record, seen, "seen", 0),
    RECORD_FIELD(struct instance_record, life, "life", 0),
    RECORD_FIELD(struct instance_record, poked_ms, "poked", 0),
    RECORD_FIELD(struct instance_record, in_vain, "inVain", 0),
    RECORD_FIELD(struct instance_record, forgot_chats, "forgotChats", 0),
};
static const struct record_form instance_form =
    RECORD_FORM("instance", struct instance_record, instance_fields, .lossy = true);

struct
    retired_record { /* a mailbox of an instance that ended; written with the next one's record */
    uint32_t box;
};
static const struct record_field retired_fields[] = {
    RECORD_FIELD(struct retired_record, box, "box", RECORD_KEY | RECORD_NEEDED),
};
static const struct record_form retired_form =
    RECORD_FORM("retired", struct retired_record, retired_fields, .lossy = true);

void instance_record_retry(struct instance *i)
{
    struct buf value = BUF_INIT, old_key = BUF_INIT, old_value = BUF_INIT;
    const struct wake *wake = wake_of(i);
    struct instance_record r = {.box = i->box,
                                .life = i->life,
                                .asleep = i->sleep.asleep,
                                .seen = i->seen,
                                .forgot_chats = i->forgot_chats,
                                .asleep_since_ms = i->sleep.since_ms,
                                .poked_ms = wake->last_wall_ms,
                                .in_vain = wake->in_vain};
    struct retired_record old = {i->retiring_box};

    if (i->record_writing != 0 || i->record_want == i->record_done)
        return;
    i->record_writing = i->record_want;
    drain_hold(i->relay);
    record_write(&instance_form, NULL, &r, NULL, &value);
    record_write(&retired_form, NULL, &old, &old_key, &old_value);
    const struct store_kv items[] = {
        {KV_PUT, instance_form.ns, instance_key(i), buf_str(&value)},
        {KV_PUT, retired_form.ns, buf_str(&old_key), buf_str(&old_value)},
    };
    store_put(i->relay->env.store, items, i->retiring_box != 0 ? 2 : 1, true, on_recorded, i);
    buf_done(&value);
    buf_done(&old_key);
    buf_done(&old_value);
}

void instance_record(struct instance *i)
{
    i->record_want++;
    instance_record_retry(i);
}

void instance_seen(struct instance *i)
{
    if (i->seen)
        return;
    i->seen = true;
    instance_record(i);
}

static void new_box(struct instance *i)
{
    struct instances *t = i->relay->instances;

    if (t->next_box > MAX_BOX) {
        log_error(NULL, "no mailbox number is left: tenant=%.*s instance=%.*s keeps its own",
                  STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)));
        return;
    }
    if (instance_is_recorded(i)) /* else no row has this number */
        i->retiring_box = i->box;
    t->by_box[i->box] = NULL;
    set_box(t, i, t->next_box);
}

/* Resets @i for a new holder of the name, with a new mailbox number. */
static void instance_begin_life(struct instance *i, uint32_t life)
{
    new_box(i);
    wake_done(i);
    sleep_load(i, false, 0);
    i->life = life;
    i->seen = i->forgot_chats = false;
    i->park_mark = 0;
    i->box_version = i->record_want + 1;
    instance_record(i);
    instance_touch(i);
}

/* ---- state ---- */

bool instance_is_live(const struct instance *i)
{
    return i->receiver != NULL && i->receiver->state == SESSION_RECEIVING;
}

enum relay_state instance_state(const struct instance *i)
{
    if (i->sleep.asleep)
        return RELAY_ASLEEP;
    if (instance_is_live(i))
        return RELAY_LIVE;
    return i->seen ? RELAY_AWAY : RELAY_NEVER;
}

void instance_touch(struct instance *i)
{
    if (!i->is_touched)
        fifo_push(&i->relay->instances->changed, i);
    i->is_touched = true;
    turn_want(i->relay, TURN_STATES);
}

void instance_tell_changes(struct relay *r)
{
    struct outside *outside = r->env.outside;
    struct instance *i;

    while ((i = fifo_pop(&r->instances->changed)) != NULL) {
        enum relay_state state = instance_state(i);
        i->is_touched = false;
        if (state == i->shown_state)
            continue;
        i->shown_state = (uint8_t)state;
        if (outside->changed != NULL)
            outside->changed(outside, instance_tenant(i), instance_id(i), relay_state_name(state));
    }
}

/* ---- activity ----
 *
 * Instances with new times are in a list; the first one arms the timer.  A failed write is not
 * retried, because the next message writes again. */

enum { AT_ONCE = 256 }; /* records in one write */

static void on_written(void *ctx, enum bh_err err)
{
    drain_release(ctx);
}

struct active_record {
    struct str tenant, instance;
    int64_t in_ms, out_ms;
    uint32_t box;
};
static const struct record_field active_fields[] = {
    RECORD_FIELD(struct active_record, tenant, "tenant", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct active_record, instance, "instance", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct active_record, in_ms, "in", 0),
    RECORD_FIELD(struct active_record, out_ms, "out", 0),
    RECORD_FIELD(struct active_record, box, "box", RECORD_NEEDED),
};
static const struct record_form active_form =
    RECORD_FORM("active", struct active_record, active_fields, .lossy = true);

void activity_write(struct relay *r)
{
    struct instances *t = r->instances;
    struct store_kv items[AT_ONCE];
    struct buf values[AT_ONCE];

    timer_stop(r->env.clock, &t->active);
    while (!fifo_is_empty(&t->news)) {
        struct instance *i;
        size_t n = 0;
        while (n < AT_ONCE && (i = fifo_pop(&t->news)) != NULL) {
            struct active_record rec = {.in_ms = i->last_inbound_ms,
                                        .out_ms = i->last_outbound_ms,
                                        .box = i->box};
            if (!i->has_news)
                continue; /* its life ended meanwhile */
            i->has_news = false;
            values[n] = BUF_INIT;
            record_write(&active_form, NULL, &rec, NULL, &values[n]);
            items[n] =
                (struct store_kv){KV_PUT, active_form.ns, instance_key(i), buf_str(&values[n])};
            n++;
        }
        if (n == 0)
            break;
        drain_hold(r);
        store_put(r->env.store, items, n, false, on_written, r);
        for (size_t k = 0; k < n; k++)
            buf_done(&values[k]);
    }
}

static void on_activity_due(struct timer *timer)
{
    activity_write(container_of(timer, struct instances, active)->relay);
}

void activity_note(struct instance *i, int64_t *at_ms)
{
    struct instances *t = i->relay->instances;

    *at_ms = clock_wall_ms(i->relay->env.clock);
    if (i->has_news)
        return;
    i->has_news = true;
    fifo_push(&t->news, i);
    if (!timer_is_set(&t->active))
        timer_set(i->relay->env.clock, &t->active, ACTIVITY_MS);
}

static bool on_active(void *ctx, struct str key, void *thing)
{
    struct relay *r = ctx;
    const struct active_record *a = thing;
    struct instance *i = instance_find(r, a->tenant, a->instance);

    if (i != NULL && a->box == i->box) {
        i->last_inbound_ms = a->in_ms;
        i->last_outbound_ms = a->out_ms;
    } else if (i != NULL) {
        record_delete(r->env.store, &active_form, key); /* of an earlier holder of the name */
    }
    return true;
}

enum bh_err activity_load(struct relay *r)
{
    char why[256];

    return record_load(r->env.store, &active_form, NULL, STR_NULL, on_active, r, why);
}

/* ---- lives ----
 *
 * The relay always reads the current life from the facts.  So the result is the same when the
 * "ended" message is lost, repeated, or comes after the first event of the next holder. */

uint32_t life_now(const struct relay *r, struct str tenant, struct str name)
{
    const struct gate_instance *in = grant_instance(r->env.facts, (struct grant_who){tenant, name});

    return in != NULL ? in->life : 0;
}

/* ---- the end of a life ---- */

void life_follow(struct instance *i, uint32_t life)
{
    struct relay *r = i->relay;

    if (life <= i->life)
        return;
    log_info(NULL, "deprovisioned: tenant=%.*s instance=%.*s", STR_FMT(instance_tenant(i)),
             STR_FMT(instance_id(i)));
    list_each (&i->sessions, it, nxt)
        session_close(list_entry(it, struct session, by_inst), CLOSE_REVOKED);
    requests_forget(i);
    if (r->env.outside->gone != NULL)
        r->env.outside->gone(r->env.outside, instance_tenant(i), instance_id(i));
    relay_mailbox_purge(r, instance_tenant(i), instance_id(i));
    chats_end(i);
    if (i->last_inbound_ms != 0 || i->last_outbound_ms != 0)
        record_delete(r->env.store, &active_form, instance_key(i));
    i->last_inbound_ms = i->last_outbound_ms = 0;
    i->has_news = false;
    instance_begin_life(i, life);
}

static void on_ended(void *ctx, struct str message)
{
    struct relay *r = ctx;
    struct str tenant, name = message;

    if (!str_split(&name, '\x1f', &tenant))
        return;
    struct instance *i = instance_find(r, tenant, name);
    if (i != NULL)
        life_follow(i, life_now(r, tenant, name));
}

void lives_listen(struct relay *r)
{
    observers_add(r->env.observers, "ended", on_ended, r);
}

/* ---- at start ---- */

static bool on_retired(void *ctx, struct str key, void *thing)
{
    struct instances *t = ((struct relay *)ctx)->instances;
    const struct retired_record *rec = thing;
    struct retired *old = xcalloc(1, sizeof *old);

    old->box = rec->box;
    list_append(&t->retired, &old->link);
    map_put(&t->retired_boxes, str_make(&old->box, sizeof old->box), old);
    if (old->box >= t->next_box && old->box <= MAX_BOX)
        t->next_box = old->box + 1; /* no number is assigned again */
    return true;
}

const struct record_form *const relay_records[] = {&instance_form, &retired_form, &active_form,
                                                   &chat_form,     &said_form,    &staged_form,
                                                   &turns_form,    NULL};

/* Deletes the rows of retired numbers, and the records of numbers without rows. */
static void lives_loaded(struct relay *r)
{
    struct instances *t = r->instances;
    uint64_t rows = 0;

    list_each (&t->retired, it, nxt) {
        const struct retired *old = list_entry(it, struct retired, link);
        struct retired_record rec = {old->box};
        rows += old->rows;
        if (old->rows == 0)
            record_delete_like(r->env.store, &retired_form, &rec);
    }
    if (rows != 0)
        log_info(NULL, "rows of deprovisioned instances are deleted: rows=%" PRIu64, rows);
    r->n.purged += rows;
    forget_retired(t);
}

void lives_follow(struct relay *r)
{
    list_each (instances_by_age(r), it, nxt) {
        struct instance *i = list_entry(it, struct instance, link);
        life_follow(i, life_now(r, instance_tenant(i), instance_id(i)));
    }
}

/* ---- loading ---- */

static bool on_instance(void *ctx, struct str key, void *thing)
{
    const struct instance_record *rec = thing;
    struct instance *i = make(ctx, key, rec->tenant.n, rec->box);

    sleep_load(i, rec->asleep, rec->asleep_since_ms);
    i->seen = rec->seen;
    i->forgot_chats = rec->forgot_chats;
    i->life = rec->life;
    wake_load(i, rec->poked_ms, rec->in_vain);
    i->record_want = i->record_done = 1;
    i->shown_state = (uint8_t)instance_state(i);
    return true;
}

static void on_row(void *ctx, const struct store_row *row)
{
    struct relay *r = ctx;
    struct instance *i = instance_at(r, row->box);
    struct retired *old =
        map_get(&r->instances->retired_boxes, str_make(&row->box, sizeof row->box));

    if (row->box == STAGED_BOX) {
        stage_load(r, row);
    } else if (i != NULL) {
        mailbox_push(&i->mb, row);
    } else if (old != NULL) {
        old->rows++;
        acks_add(r, row->id);
    } else {
        r->instances->strangers++;
    }
}

enum bh_err instances_load(struct relay *r)
{
    struct store *st = r->env.store;
    char why[256];
    enum bh_err err = record_load(st, &instance_form, NULL, STR_NULL, on_instance, r, why);

    if (err == BH_OK)
        err = record_load(st, &retired_form, NULL, STR_NULL, on_retired, r, why);
    if (err == BH_OK)
        err = st->ops->load_rows(st, on_row, r);
    if (err == BH_OK)
        lives_loaded(r);
    if (r->instances->strangers != 0)
        log_error(NULL, "rows of no known mailbox are left alone: rows=%llu",
                  (unsigned long long)r->instances->strangers);
    list_each (&r->instances->by_age, it, nxt)
        mailbox_sort(&list_entry(it, struct instance, link)->mb);
    return err;
}
