/* schedule.c - design.  (schedule.h has the contract.)
 *
 *      WAITING --due--> READING --records--> FIRING: some at once --all answered--> READING
 *         ^------------- nothing is due: until the next one, or a minute -------------'
 *
 * The wall clock may be changed meanwhile, so the timer runs for a minute at most.  Each wake uses
 * its record's first key as the Idempotency-Key, so a wake that fired just before a crash does not
 * fire again. */
#include "dispatch/schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/records.h"
#include "dispatch/call.h"

#define AT_ONCE 32
#define LONGEST_MS 60000
#define RETRY_MS 1000 /* first backoff; it doubles */
#define TRIES 8
#define DUE_CHARS 16

static const struct record_field wakeup_fields[] = {
    RECORD_FIELD(struct scheduled, key, "key", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct scheduled, id, "id", RECORD_NEEDED),
    RECORD_FIELD(struct scheduled, tenant, "tenant", RECORD_NEEDED),
    RECORD_FIELD(struct scheduled, agent, "agent", RECORD_NEEDED),
    RECORD_FIELD(struct scheduled, session, "session", 0),
    RECORD_FIELD(struct scheduled, context, "context", 0),
    RECORD_FIELD(struct scheduled, tries, "tries", 0, .max = 1000),
};
const struct record_form wakeup_form =
    RECORD_FORM("wakeup", struct scheduled, wakeup_fields, .lossy = true);

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

/* ---- counting bytes ---- */

#define RECORD_BYTES 256 /* counted for each record besides its context */

static void count(struct dispatch *d, struct str tenant, size_t more, size_t less)
{
    struct party *p = ledger_party(d->env.ledger, PER_TENANT, tenant);
    uint64_t held = p != NULL ? ledger_held(d->env.ledger, p, LIMIT_WAKE_BYTES) + more : 0;

    ledger_note(d->env.ledger, LIMIT_WAKE_BYTES, tenant, held > less ? held - less : 0);
    party_drop(p);
}

static bool on_counted(void *ctx, struct str key, void *thing)
{
    const struct scheduled *r = thing;

    count(ctx, r->tenant, RECORD_BYTES + r->context.n, 0);
    return true;
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
    if (!timer_is_set(&s->timer) || timer_due_ms(s->d->env.clock, &s->timer) > now_ms + wait_ms)
        timer_set(s->d->env.clock, &s->timer, wait_ms);
}

struct store_put *schedule_add(struct dispatch *d, int64_t due_ms, struct scheduled *what,
                               store_put_cb *done, void *ctx)
{
    struct ledger *l = d->env.ledger;
    struct party *p = ledger_party(l, PER_TENANT, what->tenant);
    size_t bytes = RECORD_BYTES + what->context.n;
    bool fits = ledger_take(l, p, LIMIT_WAKE_BYTES, bytes) == LIMIT_TAKEN;
    BUF_LOCAL key = BUF_INIT;

    if (fits)
        ledger_give(l, p, LIMIT_WAKE_BYTES, bytes); /* count() takes them for good */
    party_drop(p);
    if (!fits)
        return NULL;
    write_key(d, due_ms, &key);
    what->key = what->id = buf_str(&key);
    count(d, what->tenant, bytes, 0);
    arm(d->schedule, due_ms);
    return record_put(d->env.store, &wakeup_form, NULL, what, true, done, ctx);
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

/* Retries the wake later, under the same id. */
static void put_off(struct firing *f)
{
    struct dispatch *d = f->s->d;
    int64_t due_ms = clock_wall_ms(d->env.clock) + (RETRY_MS << f->tries);
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct scheduled r;

    if (!record_read(d->records, &wakeup_form, buf_str(&f->key), buf_str(&f->value), &r))
        return; /* cannot happen: fire() has read it */
    write_key(d, due_ms, &key);
    r.tries = f->tries + 1;
    record_write(&wakeup_form, NULL, &r, NULL, &value);
    const struct store_kv items[] = {
        {.verb = KV_DELETE, .ns = wakeup_form.ns, .key = buf_str(&f->key)},
        {.verb = KV_PUT, .ns = wakeup_form.ns, .key = buf_str(&key), .value = buf_str(&value)},
    };
    store_put(d->env.store, items, 2, true, NULL, NULL);
    buf_done(&key);
    buf_done(&value);
}

/* Deletes a record and gives its bytes back. */
static void done_with(struct dispatch *d, struct str key, struct str value)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = wakeup_form.ns, .key = key};
    struct scheduled r;

    if (record_read(d->records, &wakeup_form, key, value, &r))
        count(d, r.tenant, 0, RECORD_BYTES + r.context.n);
    store_put(d->env.store, &item, 1, true, NULL, NULL);
}

static void on_woken(void *ctx, const struct dispatch_answer *a)
{
    struct firing *f = ctx;
    struct schedule *s = f->s;

    f->call = NULL;
    bool given_up = a->fault.cls == FAULT_DELIVERY_UNKNOWN || f->tries >= TRIES;
    if (a->fault.cls != FAULT_NONE && given_up)
        log_warn(NULL, "dropped a scheduled wake: %.*s", STR_FMT(buf_str(&a->fault.message)));
    if (a->fault.cls == FAULT_NONE || given_up)
        done_with(s->d, buf_str(&f->key), buf_str(&f->value));
    else
        put_off(f);
    firing_free(f);
    if (list_is_empty(&s->firing))
        look(s);
}

/* False: the record is invalid or its agent is gone. */
static bool fire(struct schedule *s, const struct store_record *r)
{
    struct dispatch *d = s->d;
    struct scheduled w;
    struct recipient *a;

    if (!record_read(d->records, &wakeup_form, r->key, r->value, &w))
        return false;
    a = agents_find(d->agents, w.tenant, w.agent);
    if (a == NULL)
        return false;
    struct firing *f = xcalloc(1, sizeof *f);
    f->s = s;
    list_append(&s->firing, &f->link);
    buf_add_str(&f->key, r->key);
    buf_add_str(&f->value, r->value);
    f->tries = w.tries;
    f->call = wake_agent(d, a, w.session, w.context, w.id, on_woken, f);
    return true;
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
        int64_t due_ms = (int64_t)records_number(r->key, DUE_CHARS);
        if (due_ms > now) {
            arm(s, due_ms);
            return;
        }
        if (!fire(s, r)) {
            log_warn(NULL, "dropped a scheduled wake: its agent does not exist any more");
            done_with(s->d, r->key, r->value);
        }
    }
    if (scan->n_records > 0 && list_is_empty(&s->firing))
        arm(s, now);
}

static void look(struct schedule *s)
{
    if (s->scan == NULL && list_is_empty(&s->firing))
        s->scan = records_scan(s->d->env.store, wakeup_form.ns, STR(""), STR_NULL, AT_ONCE, false,
                               on_read, s);
}

static void on_timer(struct timer *t)
{
    look(container_of(t, struct schedule, timer));
}

/* ---- life ---- */

struct schedule *schedule_new(struct dispatch *d)
{
    struct schedule *s = xcalloc(1, sizeof *s);
    char why[256];

    s->d = d;
    if (record_load(d->env.store, &wakeup_form, d->records, STR_NULL, on_counted, d, why) != BH_OK)
        log_warn(NULL, "cannot count the scheduled wakes: %s", why);
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
