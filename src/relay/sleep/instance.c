/* instance.c - design.  (instance.h has the contract.)
 *
 * Mailbox numbers are handed out in order of appearance and never used again, so a row always
 * belongs to the instance, and the life, it was written for.  A row whose number neither a
 * record nor "retired" knows cannot happen as long as records are written first; if a database
 * was tampered with, such rows are left alone. */
#include "relay/sleep/instance.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "relay/mailbox/delivery.h"
#include "relay/mailbox/fetch.h"
#include "relay/heart.h"
#include "relay/sleep/life.h"
#include "relay/mailbox/retry.h"
#include "relay/session/session.h"
#include "relay/turn.h"
#include "store/store.h"

#define NS "instance"
#define FIELD_ASLEEP "flipped" /* as it has always been called on disk */
#define FIELD_ASLEEP_SINCE "flipped_ms"
enum { NAME_MAX_BYTES = 256, MAX_BOX = 1 << 24 };

struct instances {
    struct list by_age;
    struct list changed;      /* whose state may have changed in this turn */
    struct map by_name;       /* instance_key() -> instance */
    struct instance **by_box; /* owned array; NULL where no instance has the number */
    size_t n_boxes;
    uint32_t next_box; /* from 1 */
    uint32_t writing;  /* those whose record is under way */
};

struct instances *instances_new(void)
{
    struct instances *t = xcalloc(1, sizeof *t);

    list_init(&t->by_age);
    list_init(&t->changed);
    t->next_box = 1;
    return t;
}

void instances_free(struct instances *t)
{
    if (t == NULL)
        return;
    list_each (&t->by_age, it, nxt) {
        struct instance *i = list_entry(it, struct instance, link);
        wake_done(i);
        mailbox_done(&i->mb);
        sent_ids_done(&i->sent);
        free(i->unread);
        free(i);
    }
    map_done(&t->by_name);
    free(t->by_box);
    free(t);
}

struct list *instances_by_age(struct relay *r)
{
    return &r->instances->by_age;
}

struct instance *instance_after(const struct relay *r, uint32_t box)
{
    const struct instances *t = r->instances;

    for (size_t i = (size_t)box + 1; i < t->n_boxes; i++)
        if (t->by_box[i] != NULL)
            return t->by_box[i];
    return NULL;
}

bool instance_any_writing(const struct relay *r)
{
    return r->instances->writing != 0;
}

static uint32_t max_box(const struct relay *r)
{
    return r->env.store->shared ? STORE_MAX_BOX : MAX_BOX;
}

/* ---- finding and making ---- */

static struct instance *find_key(struct relay *r, struct str key)
{
    return map_get(&r->instances->by_name, key);
}

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
    char bytes[2 * NAME_MAX_BYTES + 1];
    struct str key;

    return join_names(bytes, tenant, name, &key) ? find_key(r, key) : NULL;
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
    list_init(&i->pump_link);
    list_init(&i->hungry_link);
    list_init(&i->retry_link);
    list_init(&i->change_link);
    list_init(&i->active_link);
    list_init(&i->arriving);
    mailbox_init(&i->mb);
    wake_init(&i->wake);
    set_box(r->instances, i, box);
    list_append(&r->instances->by_age, &i->link);
    map_put(&r->instances->by_name, instance_key(i), i);
    return i;
}

struct instance *instance_get(struct relay *r, struct str tenant, struct str name)
{
    char bytes[2 * NAME_MAX_BYTES + 1];
    struct str key;

    if (!join_names(bytes, tenant, name, &key))
        return NULL;
    struct instance *i = find_key(r, key);
    if (i != NULL || r->instances->next_box > max_box(r))
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
    i->relay->instances->writing--;
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
    if (i->relay->draining)
        turn_want(i->relay);
}

static void write_record(const struct instance *i, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_ki64(&w, "box", i->box);
    jw_kbool(&w, FIELD_ASLEEP, i->sleep.asleep);
    jw_ki64(&w, FIELD_ASLEEP_SINCE, i->sleep.since_ms);
    jw_kbool(&w, "seen", i->seen);
    if (i->life != 0)
        jw_ki64(&w, "life", i->life);
    jw_ki64(&w, "poked_ms", i->wake.last_wall_ms);
    jw_ki64(&w, "in_vain", i->wake.in_vain);
    if (i->forgot_chats)
        jw_kbool(&w, "forgot_chats", true);
    jw_end_obj(&w);
}

void instance_record_retry(struct instance *i)
{
    struct buf value = BUF_INIT;
    char retired[9] = "";

    if (i->record_writing != 0 || i->record_want == i->record_done)
        return;
    i->record_writing = i->record_want;
    i->relay->instances->writing++;
    write_record(i, &value);
    snprintf(retired, sizeof retired, "%08" PRIx32, i->retiring_box);
    const struct store_kv items[] = {
        {.verb = KV_PUT, .ns = NS, .key = instance_key(i), .value = buf_str(&value)},
        {.verb = KV_PUT, .ns = LIFE_RETIRED, .key = str_of(retired), .value = STR("{}")},
    };
    store_put(i->relay->env.store, items, i->retiring_box != 0 ? 2 : 1, true, on_recorded, i);
    buf_done(&value);
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

void instance_reserve_box(struct relay *r, uint32_t box)
{
    if (box >= r->instances->next_box && box <= MAX_BOX)
        r->instances->next_box = box + 1;
}

static void new_box(struct instance *i)
{
    struct instances *t = i->relay->instances;

    if (t->next_box > max_box(i->relay)) {
        log_error(NULL, "no mailbox number is left: tenant=%.*s instance=%.*s keeps its own",
                  STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)));
        return;
    }
    if (instance_is_recorded(i)) /* else no row was ever written with it */
        i->retiring_box = i->box;
    t->by_box[i->box] = NULL;
    set_box(t, i, t->next_box);
}

void instance_begin_life(struct instance *i, uint32_t life)
{
    new_box(i);
    wake_done(i);
    wake_init(&i->wake);
    sleep_load(i, false, 0);
    i->life = life;
    i->seen = i->forgot_chats = false;
    i->newest_row = 0;
    i->park_mark = 0;
    i->box_version = i->record_want + 1;
    instance_record(i);
    instance_touch(i);
}

/* ---- state ---- */

bool instance_is_live(const struct instance *i)
{
    return !i->sleep.asleep && i->receiver != NULL && i->receiver->state == SESSION_RECEIVING;
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
    list_move(&i->change_link, &i->relay->instances->changed);
    turn_want(i->relay);
}

void instance_tell_changes(struct relay *r)
{
    struct outside *outside = r->env.outside;
    struct list *changed = &r->instances->changed;

    while (!list_is_empty(changed)) {
        struct instance *i = list_first(changed, struct instance, change_link);
        enum relay_state state = instance_state(i);
        list_remove(&i->change_link);
        if (state == i->shown_state)
            continue;
        i->shown_state = (uint8_t)state;
        if (outside->changed != NULL)
            outside->changed(outside, instance_tenant(i), instance_id(i), relay_state_name(state));
    }
}

/* ---- loading ---- */

static void on_record(void *ctx, struct str key, struct str value)
{
    struct relay *r = ctx;
    struct json doc;
    int64_t box, life, since_ms = 0, poked_ms = 0, in_vain = 0;
    ptrdiff_t at = str_find(key, '\x1f');

    if (at <= 0 || key.n > 2 * NAME_MAX_BYTES + 1 || !json_parse(r->json, value, &doc) ||
        !json_as_i64(json_get(doc, "box"), &box) || box <= 0 || box > MAX_BOX) {
        log_error(NULL, "unreadable record of an instance: key=%.*s", STR_FMT(key));
        return;
    }
    struct instance *i = make(r, key, (size_t)at, (uint32_t)box);
    json_as_i64(json_get(doc, FIELD_ASLEEP_SINCE), &since_ms);
    sleep_load(i, json_as_bool(json_get(doc, FIELD_ASLEEP), false), since_ms);
    i->seen = json_as_bool(json_get(doc, "seen"), false);
    i->forgot_chats = json_as_bool(json_get(doc, "forgot_chats"), false);
    i->life = json_as_i64(json_get(doc, "life"), &life) && life > 0 ? (uint32_t)life : 0;
    json_as_i64(json_get(doc, "poked_ms"), &poked_ms);
    json_as_i64(json_get(doc, "in_vain"), &in_vain);
    wake_load(i, poked_ms, in_vain);
    i->record_want = i->record_done = 1;
    i->shown_state = (uint8_t)instance_state(i);
}

struct loading {
    struct relay *relay;
    uint64_t strangers;
};

struct slot *instance_push_row(struct instance *i, const struct store_row *row)
{
    size_t bytes = row->frame_bytes <= SLOT_MAX_BYTES ? row->frame_bytes : SLOT_MAX_BYTES;
    struct slot *slot = mailbox_push(&i->mb, row->id, bytes, (uint32_t)(row->at_ms / 1000));

    if (row->id > i->newest_row)
        i->newest_row = row->id;
    slot->flags |= SLOT_DURABLE;
    if (row->row_kind == STORE_ROW_PASSTHROUGH)
        slot->flags |= SLOT_PASSTHROUGH;
    if ((row->flags & STORE_ROW_QUIET) != 0)
        mailbox_quiet(&i->mb, slot);
    if ((row->flags & STORE_ROW_HAS_MEDIA) != 0)
        slot->flags |= SLOT_MEDIA;
    slot->attempts = (row->attempts < SLOT_MAX_ATTEMPTS ? row->attempts : SLOT_MAX_ATTEMPTS) & 63u;
    if (row->parked.p != NULL)
        mailbox_park(&i->mb, slot, true);
    return slot;
}

static void on_row(void *ctx, const struct store_row *row)
{
    struct loading *l = ctx;
    const struct instances *t = l->relay->instances;
    struct instance *i = row->box < t->n_boxes ? t->by_box[row->box] : NULL;

    if (i != NULL)
        instance_push_row(i, row);
    else if (!life_take_row(l->relay, row->box, row->id))
        l->strangers++;
}

enum bh_err instances_load(struct relay *r)
{
    struct loading l = {.relay = r};
    struct store *st = r->env.store;
    enum bh_err err = st->ops->load_records(st, NS, on_record, r);

    if (err == BH_OK)
        err = life_load(r);
    if (err == BH_OK)
        err = st->ops->load_rows(st, on_row, &l);
    if (err == BH_OK)
        life_loaded(r);
    if (l.strangers != 0)
        log_error(NULL, "rows of no known mailbox are left alone: rows=%llu",
                  (unsigned long long)l.strangers);
    list_each (&r->instances->by_age, it, nxt)
        mailbox_sort(&list_entry(it, struct instance, link)->mb);
    return err;
}
