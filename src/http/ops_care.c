/* ops_care.c - what operators look after: dead letters, and the flow of messages over time.
 *
 * Dead letters are deliveries that were parked after too many attempts.  Entries of the outbox are
 * in admin_change.c. */
#include "http/ops_care.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "host/host.h"
#include "http/admin.h"
#include "net/loop.h"
#include "platform/sender.h"
#include "relay/latency.h"
#include "relay/relay.h"

enum { PAGE_ROWS = 500, PAGE_LOOKS = 4000, IDS_MAX = 512 };

/* ---- dead letters ---- */

static void write_parked(struct jw *w, const struct parked_view *v)
{
    char id[24];

    snprintf(id, sizeof id, "%" PRIu64, v->id);
    jw_obj(w);
    jw_kstr(w, "tenant", v->tenant);
    jw_kstr(w, "instance", v->instance);
    jw_kstr(w, "delivery", str_of(id));
    jw_ki64(w, "at", v->at_ms);
    jw_ki64(w, "attempts", v->attempts);
    jw_ki64(w, "bytes", (int64_t)v->bytes);
    jw_end_obj(w);
}

static void list_dead(struct op_call *c)
{
    struct str tenant = op_text(c, "tenant"), instance = op_text(c, "instance");
    char after[48], next[48];
    uint32_t box = 0;
    uint64_t id = 0;
    size_t looks = PAGE_LOOKS, rows = 0;
    struct parked_view v;
    struct jw w = op_begin(c);

    snprintf(after, sizeof after, "%.*s", STR_FMT(op_text(c, "after")));
    sscanf(after, "%" SCNu32 ".%" SCNu64, &box, &id);
    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(c->f->loop)));
    jw_karr(&w, "parked");
    while (rows < PAGE_ROWS && relay_next_parked(c->f->relay, &box, &id, &looks, &v))
        if ((tenant.n == 0 || str_eq(tenant, v.tenant)) &&
            (instance.n == 0 || str_eq(instance, v.instance))) {
            write_parked(&w, &v);
            rows++;
        }
    jw_end_arr(&w);
    if (box != 0) {
        snprintf(next, sizeof next, "%" PRIu32 ".%" PRIu64, box, id);
        jw_kstr(&w, "next", str_of(next));
    }
    jw_end_obj(&w);
    op_end(c);
}

static bool read_ids(struct op_call *c, uint64_t ids[IDS_MAX], size_t *ret_n)
{
    const struct op_value *given = op_value(c, "deliveries");

    for (size_t i = 0; i < given->n_texts; i++)
        if (!str_to_u64(given->texts[i], &ids[i]) || ids[i] == 0) {
            op_error(c, 400, "malformed", "\"%.*s\" is no number of a delivery.",
                     STR_FMT(given->texts[i]));
            return false;
        }
    *ret_n = given->n_texts;
    return true;
}

static void changed(struct op_call *c, uint64_t n, bool drop)
{
    buf_printf(&c->note, "dead letters %s: instance=%s deliveries=%" PRIu64,
               drop ? "dropped" : "redriven", c->instance != NULL ? c->instance : "*", n);
    buf_printf(&c->out, "{\"ok\":true,\"deliveries\":%" PRIu64 "}", n);
    op_done(c, BH_OK, NULL);
}

struct care_walk { /* the dead letters of many instances, a step in each turn; op_keep() */
    struct op_call *c;
    struct timer timer;
    struct parked_walk walk;
    char *tenant; /* owned; of @walk */
};

static void changing_drop(void *mine)
{
    struct care_walk *x = mine;

    timer_stop(loop_clock(x->c->f->loop), &x->timer);
    free(x->tenant);
    free(x);
}

static void on_change(struct timer *t)
{
    struct care_walk *x = container_of(t, struct care_walk, timer);

    if (relay_parked_step(x->c->f->relay, &x->walk))
        timer_set(loop_clock(x->c->f->loop), t, 0);
    else
        changed(x->c, x->walk.done, x->walk.drop);
}

/* Of all instances, or of those of a tenant. */
static void change_all(struct op_call *c, struct str tenant, bool drop)
{
    struct care_walk *x = xcalloc(1, sizeof *x);

    x->c = c;
    x->tenant = str_dup(tenant);
    x->walk = (struct parked_walk){.tenant = str_of(x->tenant), .drop = drop};
    timer_init(&x->timer, on_change);
    op_keep(c, x, changing_drop);
    timer_set(loop_clock(c->f->loop), &x->timer, 0);
}

static void change_dead(struct op_call *c, bool drop)
{
    struct str tenant = op_text(c, "tenant"), instance = op_text(c, "instance");
    uint64_t ids[IDS_MAX];
    size_t n_ids = 0;

    if (instance.n == 0 && !op_flag(c, "all")) {
        op_error(c, 400, "malformed",
                 "Which? Name an instance, with deliveries of it or without; or say all.");
        return;
    }
    if (!read_ids(c, ids, &n_ids))
        return;
    if (instance.n == 0)
        change_all(c, tenant, drop);
    else if (admin_name_instance(c, tenant, instance))
        changed(c,
                relay_parked_change(c->f->relay, str_of(c->tenant), str_of(c->instance), ids, n_ids,
                                    drop),
                drop);
}

static void redrive_dead(struct op_call *c)
{
    change_dead(c, false);
}

static void drop_dead(struct op_call *c)
{
    change_dead(c, true);
}

/* ---- flow ---- */

enum { FLOW_STEP_MS = 10000, FLOW_STEPS = 360 };

struct flow_now { /* counters since the start */
    uint64_t in, gated, delivered, acked, out, out_failed;
};
struct flow_step { /* of FLOW_STEP_MS */
    int64_t at_ms;
    uint32_t in, gated, delivered, acked, out, out_failed;
    int32_t p50_ms, p99_ms; /* of acks; -1: none came */
};
struct flow {
    struct front *f; /* borrowed */
    struct timer timer;
    struct flow_now last;
    struct latency_waits acks; /* at the last step */
    struct flow_step steps[FLOW_STEPS];
    size_t n; /* in all; the newest is at (n - 1) modulo FLOW_STEPS */
};

static struct flow_now count(struct front *f)
{
    const struct relay_counters *n = relay_counters(f->relay);
    struct flow_now now = {.in = n->accepted + n->gated + n->unrouted + n->duplicates,
                           .gated = n->gated + n->unrouted,
                           .delivered = n->delivered,
                           .acked = n->acked,
                           .out = n->actions,
                           .out_failed = n->actions_refused};
    return now;
}

/* The smallest bound that @percent of the counts are within; -1: there are none.  Above the last
 * bound: that bound. */
static int64_t quantile(const struct latency_waits *now, const struct latency_waits *then,
                        unsigned percent)
{
    uint64_t n[LATENCY_BOUNDS + 1], all = 0, sum = 0;

    for (size_t i = 0; i <= LATENCY_BOUNDS; i++)
        all += n[i] = now->n[i] - (then != NULL ? then->n[i] : 0);
    for (size_t i = 0; i <= LATENCY_BOUNDS && all > 0; i++) {
        sum += n[i];
        if (sum * 100 >= all * percent)
            return latency_bounds_ms[i < LATENCY_BOUNDS ? i : LATENCY_BOUNDS - 1];
    }
    return -1;
}

static void on_step(struct timer *t)
{
    struct flow *fl = container_of(t, struct flow, timer);
    struct flow_now now = count(fl->f);
    const struct latency_waits *acks = relay_waits_of(fl->f->relay, true);

    fl->steps[fl->n++ % FLOW_STEPS] =
        (struct flow_step){.at_ms = clock_wall_ms(loop_clock(fl->f->loop)),
                           .in = (uint32_t)(now.in - fl->last.in),
                           .gated = (uint32_t)(now.gated - fl->last.gated),
                           .delivered = (uint32_t)(now.delivered - fl->last.delivered),
                           .acked = (uint32_t)(now.acked - fl->last.acked),
                           .out = (uint32_t)(now.out - fl->last.out),
                           .out_failed = (uint32_t)(now.out_failed - fl->last.out_failed),
                           .p50_ms = (int32_t)quantile(acks, &fl->acks, 50),
                           .p99_ms = (int32_t)quantile(acks, &fl->acks, 99)};
    fl->last = now;
    fl->acks = *acks;
    timer_set(loop_clock(fl->f->loop), t, FLOW_STEP_MS);
}

struct flow *flow_new(struct front *f)
{
    struct flow *fl = xcalloc(1, sizeof *fl);

    fl->f = f;
    fl->last = count(f);
    timer_init(&fl->timer, on_step);
    timer_set(loop_clock(f->loop), &fl->timer, FLOW_STEP_MS);
    return fl;
}

void flow_free(struct flow *fl)
{
    if (fl != NULL)
        timer_stop(loop_clock(fl->f->loop), &fl->timer);
    free(fl);
}

static void write_quantiles(struct jw *w, const char *key, const struct latency_waits *waits)
{
    static const struct {
        const char *name;
        unsigned percent;
    } of[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}};

    jw_kobj(w, key);
    for (size_t i = 0; i < ARRAY_LEN(of); i++) {
        int64_t ms = quantile(waits, NULL, of[i].percent);
        jw_key(w, of[i].name);
        if (ms < 0)
            jw_null(w);
        else
            jw_i64(w, ms);
    }
    jw_end_obj(w);
}

static void write_step(struct jw *w, const struct flow_step *s)
{
    jw_obj(w);
    jw_ki64(w, "at", s->at_ms);
    jw_ki64(w, "in", s->in);
    jw_ki64(w, "gated", s->gated);
    jw_ki64(w, "delivered", s->delivered);
    jw_ki64(w, "acked", s->acked);
    jw_ki64(w, "out", s->out);
    jw_ki64(w, "outFailed", s->out_failed);
    if (s->p50_ms >= 0) {
        jw_ki64(w, "p50", s->p50_ms);
        jw_ki64(w, "p99", s->p99_ms);
    }
    jw_end_obj(w);
}

static void write_outbox(struct op_call *c, struct jw *w)
{
    struct sender_stats all = {0}, s;

    for (size_t i = 0; i < host_n_platforms(c->f->host); i++) {
        const struct platform *p = host_nth_platform(c->f->host, i);
        if (p->sender == NULL)
            continue;
        sender_stats(p->sender, &s);
        all.waiting += s.waiting;
        all.running += s.running;
        all.kept_unknown += s.kept_unknown;
        all.done += s.done;
        all.refused += s.refused;
    }
    jw_kobj(w, "outbox");
    jw_ki64(w, "waiting", (int64_t)all.waiting);
    jw_ki64(w, "trying", (int64_t)all.running);
    jw_ki64(w, "unknown", (int64_t)all.kept_unknown);
    jw_ki64(w, "done", (int64_t)all.done);
    jw_ki64(w, "refused", (int64_t)all.refused);
    jw_end_obj(w);
}

static void show_flow(struct op_call *c)
{
    const struct flow *fl = c->f->flow;
    const struct relay_counters *n = relay_counters(c->f->relay);
    struct relay_tally t;
    struct jw w = op_begin(c);
    size_t kept = fl == NULL ? 0 : fl->n < FLOW_STEPS ? fl->n : FLOW_STEPS;

    relay_tally(c->f->relay, &t);
    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(c->f->loop)));
    jw_ki64(&w, "stepMs", FLOW_STEP_MS);
    jw_kobj(&w, "counters");
    jw_ki64(&w, "accepted", (int64_t)n->accepted);
    jw_ki64(&w, "duplicates", (int64_t)n->duplicates);
    jw_ki64(&w, "unrouted", (int64_t)n->unrouted);
    jw_ki64(&w, "gated", (int64_t)n->gated);
    jw_ki64(&w, "refused", (int64_t)(n->refused_busy + n->refused_store));
    jw_ki64(&w, "delivered", (int64_t)n->delivered);
    jw_ki64(&w, "acked", (int64_t)n->acked);
    jw_ki64(&w, "parked", (int64_t)n->parked);
    jw_ki64(&w, "actions", (int64_t)n->actions);
    jw_ki64(&w, "actionsRefused", (int64_t)n->actions_refused);
    jw_end_obj(&w);
    jw_kobj(&w, "instances");
    jw_ki64(&w, "live", (int64_t)t.in_state[RELAY_LIVE]);
    jw_ki64(&w, "away", (int64_t)t.in_state[RELAY_AWAY]);
    jw_ki64(&w, "asleep", (int64_t)t.in_state[RELAY_ASLEEP]);
    jw_ki64(&w, "never", (int64_t)t.in_state[RELAY_NEVER]);
    jw_end_obj(&w);
    jw_kobj(&w, "mailbox");
    jw_ki64(&w, "entries", (int64_t)t.entries);
    jw_ki64(&w, "bytes", (int64_t)t.bytes);
    jw_ki64(&w, "unacked", (int64_t)t.unacked);
    jw_ki64(&w, "parked", (int64_t)t.parked);
    admin_time(&w, "oldestAt", t.oldest_ms);
    jw_end_obj(&w);
    write_outbox(c, &w);
    jw_kobj(&w, "latency");
    write_quantiles(&w, "acceptToSent", relay_waits_of(c->f->relay, false));
    write_quantiles(&w, "acceptToAck", relay_waits_of(c->f->relay, true));
    jw_end_obj(&w);
    jw_karr(&w, "series");
    for (size_t i = kept; i-- > 0;)
        write_step(&w, &fl->steps[(fl->n - 1 - i) % FLOW_STEPS]);
    jw_end_arr(&w);
    jw_end_obj(&w);
    op_end(c);
}

/* ---- the table ---- */

#define DEAD_ARGS \
    (const struct op_arg[]) \
    { \
        INSTANCE_ARGS(IN_BODY), \
            {"deliveries", IN_BODY, OP_LIST, .max = IDS_MAX, .what = "Of it; else all of its."}, \
            {"all", IN_BODY, OP_BOOL, .what = "Those of every instance, or of the tenant's."}, \
        { \
            0 \
        } \
    }

const struct op ops_care[] = {
    {"flow", "GET", "/admin/flow", MAY_OPERATOR, show_flow,
     "Messages in, gated, delivered, acknowledged and out: in all, and over the last hour.",
     .answer = "object",
     .answer_what = "counters since the start; latency in ms; series, one entry per stepMs."},
    {"listDead", "GET", "/admin/dead", MAY_OPERATOR, list_dead,
     "Dead letters: deliveries that were set aside after too many attempts, in pages.",
     .tenant_view = true,
     .args = (const struct op_arg[]){INSTANCE_ARGS(IN_QUERY),
                                     {"after", IN_QUERY, OP_TEXT, .what = "next of the last page."},
                                     {0}},
     .answer = "{now: whole, parked: [object], next?: text}",
     .answer_what = "Why each was parked: `why` with its delivery."},
    {"redriveDead", "POST", "/admin/dead/redrive", MAY_OPERATOR, redrive_dead,
     "Deliver dead letters again.", .tenant_view = true, .args = DEAD_ARGS,
     .answer = "{ok: bool, deliveries: whole}", .answer_what = "How many they were.",
     .errors = "malformed (400), not_found (404), ambiguous (409)"},
    {"dropDead", "POST", "/admin/dead/drop", MAY_OPERATOR, drop_dead, "Delete dead letters.",
     .tenant_view = true, .args = DEAD_ARGS, .answer = "{ok: bool, deliveries: whole}",
     .answer_what = "How many they were.",
     .errors = "malformed (400), not_found (404), ambiguous (409)"},
    {0},
};
