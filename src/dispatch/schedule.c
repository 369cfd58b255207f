/* schedule.c - design.  (schedule.h has the contract.)
 *
 *      WAITING --due--> READING --records--> FIRING: some at once --all answered--> READING
 *         ^------------- nothing is due: until the next one, or a minute -------------'
 *
 * The wall clock may be set while we wait, so the longest sleep is a minute.  Each wake goes with
 * its record's key as an Idempotency-Key: one that was done just before a crash is not done again.
 */
#include "dispatch/schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/records.h"
#include "dispatch/wake.h"

#define NS "wakeup"
#define AT_ONCE 32
#define LONGEST_MS 60000
#define RETRY_MS 1000 /* after a failure; it doubles */
#define TRIES 8
#define DUE_CHARS 16

struct firing { /* one wake under way */
    struct list link;
    struct schedule *s;
    struct dispatch_call *call;
    struct buf key, value;
    int64_t tries;
};

struct schedule {
    struct dispatch *d; /* borrowed */
    struct timer timer;
    struct record_scan *scan; /* READING */
    struct list firing;
};

static void look(struct schedule *s);

void schedule_format(int64_t ms, char *out, size_t size)
{
    time_t t = (time_t)(ms / 1000);
    struct tm tm;

    gmtime_r(&t, &tm);
    snprintf(out, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900, tm.tm_mon + 1,
             tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(ms % 1000));
}

/* ---- how many bytes of them ---- */

#define RECORD_BYTES 256 /* of each, beside what it brings along */

static void count(struct dispatch *d, struct str tenant, size_t more, size_t less)
{
    struct party *p = ledger_party(d->env.ledger, PER_TENANT, tenant);
    uint64_t held = p != NULL ? ledger_held(d->env.ledger, p, LIMIT_WAKE_BYTES) + more : 0;

    ledger_note(d->env.ledger, LIMIT_WAKE_BYTES, tenant, held > less ? held - less : 0);
    party_drop(p);
}

static size_t bytes_of(struct json doc)
{
    return RECORD_BYTES + json_str(doc, "context").n;
}

static void on_counted(void *ctx, struct str key, struct str value)
{
    struct dispatch *d = ctx;
    struct json doc;

    (void)key;
    if (json_parse(d->json, value, &doc))
        count(d, json_str(doc, "tenant"), bytes_of(doc), 0);
}

/* The record is on its way from the disk. */
static void count_off(struct dispatch *d, struct str value)
{
    struct json doc;

    if (json_parse(d->json, value, &doc))
        count(d, json_str(doc, "tenant"), 0, bytes_of(doc));
}

bool schedule_has_room(struct dispatch *d, const struct scheduled *s)
{
    struct ledger *l = d->env.ledger;
    struct party *p = ledger_party(l, PER_TENANT, s->tenant);
    size_t bytes = RECORD_BYTES + s->context.n;
    bool ok = ledger_take(l, p, LIMIT_WAKE_BYTES, bytes) == LIMIT_TAKEN;

    if (ok)
        ledger_give(l, p, LIMIT_WAKE_BYTES, bytes);
    party_drop(p);
    return ok;
}

void schedule_not_kept(struct dispatch *d, const struct scheduled *s)
{
    count(d, s->tenant, 0, RECORD_BYTES + s->context.n);
}

/* ---- adding ---- */

static void write_key(struct dispatch *d, int64_t due_ms, struct buf *out)
{
    buf_printf(out, "%016llx%016llx", (unsigned long long)due_ms,
               (unsigned long long)dispatch_number(d));
}

static void arm(struct schedule *s, int64_t due_ms)
{
    int64_t wait_ms = due_ms - clock_wall_ms(s->d->env.clock);
    int64_t now_ms = clock_now_ms(s->d->env.clock);

    if (wait_ms > LONGEST_MS)
        wait_ms = LONGEST_MS;
    if (wait_ms < 0)
        wait_ms = 0;
    if (!timer_is_set(&s->timer) || s->timer.due_ms > now_ms + wait_ms)
        timer_set(s->d->env.clock, &s->timer, wait_ms);
}

struct store_put *schedule_add(struct dispatch *d, int64_t due_ms, const struct scheduled *what,
                               store_put_cb *done, void *ctx)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct jw w = jw_begin(&value);

    write_key(d, due_ms, &key);
    jw_obj(&w);
    jw_kstr(&w, "id", buf_str(&key));
    jw_kstr(&w, "tenant", what->tenant);
    jw_kstr(&w, "agent", what->agent);
    jw_kstr_opt(&w, "session", what->session);
    jw_kstr_opt(&w, "context", what->context);
    jw_end_obj(&w);
    struct store_kv item = {.verb = KV_PUT,
                            .ns = NS,
                            .key = buf_str(&key),
                            .value = buf_str(&value)};
    struct store_put *put = store_put(d->env.store, &item, 1, true, done, ctx);
    buf_done(&key);
    buf_done(&value);
    count(d, what->tenant, RECORD_BYTES + what->context.n, 0);
    arm(d->schedule, due_ms);
    return put;
}

/* ---- firing ---- */

static void firing_free(struct firing *f)
{
    list_remove(&f->link);
    dispatch_cancel(&f->call);
    buf_done(&f->key);
    buf_done(&f->value);
    free(f);
}

/* The same wake, under the same id, at another time. */
static void put_off(struct firing *f)
{
    struct dispatch *d = f->s->d;
    int64_t due_ms = clock_wall_ms(d->env.clock) + (RETRY_MS << f->tries);
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct jw w = jw_begin(&value);
    struct json doc = {0};

    write_key(d, due_ms, &key);
    jw_obj(&w);
    if (json_parse(d->json, buf_str(&f->value), &doc))
        for (struct json_iter it = {0}; json_next(doc, &it);)
            if (!str_eq(it.key, STR("tries"))) {
                jw_key_str(&w, it.key);
                jw_value(&w, it.value);
            }
    jw_ki64(&w, "tries", f->tries + 1);
    jw_end_obj(&w);
    const struct store_kv items[] = {
        {.verb = KV_DELETE, .ns = NS, .key = buf_str(&f->key)},
        {.verb = KV_PUT, .ns = NS, .key = buf_str(&key), .value = buf_str(&value)},
    };
    store_put(d->env.store, items, 2, true, NULL, NULL);
    buf_done(&key);
    buf_done(&value);
}

static void done_with(struct firing *f)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = buf_str(&f->key)};

    count_off(f->s->d, buf_str(&f->value));
    store_put(f->s->d->env.store, &item, 1, true, NULL, NULL);
}

static void on_woken(void *ctx, const struct dispatch_answer *a)
{
    struct firing *f = ctx;
    struct schedule *s = f->s;

    f->call = NULL;
    if (a->fault.cls == FAULT_NONE) {
        done_with(f);
    } else if (a->fault.cls == FAULT_DELIVERY_UNKNOWN || f->tries >= TRIES) {
        log_warn(NULL, "a scheduled wake is given up: %.*s", STR_FMT(buf_str(&a->fault.message)));
        done_with(f);
    } else {
        put_off(f);
    }
    firing_free(f);
    if (list_is_empty(&s->firing))
        look(s);
}

/* False: nobody to wake. */
static bool fire(struct schedule *s, const struct store_record *r)
{
    struct dispatch *d = s->d;
    struct json doc;
    struct recipient *a;

    if (!json_parse(d->json, r->value, &doc))
        return false;
    a = agents_find(d->agents, json_str(doc, "tenant"), json_str(doc, "agent"));
    if (a == NULL)
        return false;
    struct firing *f = xcalloc(1, sizeof *f);
    f->s = s;
    list_append(&s->firing, &f->link);
    buf_add_str(&f->key, r->key);
    buf_add_str(&f->value, r->value);
    json_as_i64(json_get(doc, "tries"), &f->tries);
    f->call = wake_agent(d, a, json_str(doc, "session"), json_str(doc, "context"),
                         json_str(doc, "id"), on_woken, f);
    return true;
}

static int64_t due_of(struct str key)
{
    int64_t due = 0;

    for (size_t i = 0; i < key.n && i < DUE_CHARS; i++)
        due = due << 4 | (hex_value(key.p[i]) & 15);
    return due;
}

static void drop(struct schedule *s, const struct store_record *r)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = r->key};

    count_off(s->d, r->value);
    log_warn(NULL, "a scheduled wake is for an agent that is not there any more: dropped");
    store_put(s->d->env.store, &item, 1, true, NULL, NULL);
}

static void on_read(void *ctx, enum bh_err err, const struct store_scan *scan)
{
    struct schedule *s = ctx;
    int64_t now = clock_wall_ms(s->d->env.clock);

    s->scan = NULL;
    if (err != BH_OK) {
        arm(s, now + LONGEST_MS);
        return;
    }
    for (size_t i = 0; i < scan->n_records; i++) {
        const struct store_record *r = &scan->records[i];
        if (due_of(r->key) > now) {
            arm(s, due_of(r->key));
            return;
        }
        if (!fire(s, r))
            drop(s, r);
    }
    if (scan->n_records > 0 && list_is_empty(&s->firing))
        arm(s, now);
}

static void look(struct schedule *s)
{
    if (s->scan == NULL && list_is_empty(&s->firing))
        s->scan = records_scan(s->d->env.store, NS, STR(""), STR_NULL, AT_ONCE, false, on_read, s);
}

static void on_timer(struct timer *t)
{
    look(container_of(t, struct schedule, timer));
}

/* ---- life ---- */

struct schedule *schedule_new(struct dispatch *d)
{
    struct schedule *s = xcalloc(1, sizeof *s);

    s->d = d;
    (void)d->env.store->ops->load_records(d->env.store, NS, on_counted, d);
    list_init(&s->firing);
    timer_init(&s->timer, on_timer);
    timer_set(d->env.clock, &s->timer, 0);
    return s;
}

void schedule_free(struct schedule *s)
{
    if (s == NULL)
        return;
    timer_stop(s->d->env.clock, &s->timer);
    records_cancel(&s->scan);
    list_each (&s->firing, it, nxt)
        firing_free(list_entry(it, struct firing, link));
    free(s);
}
