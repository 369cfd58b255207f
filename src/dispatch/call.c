/* call.c - what all calls share, and the calls wake and status.  (call.h has the contract.)
 *
 *      wake      `when` in the future    a schedule on disk (schedule.h)        woken: false
 *                on the relay            mail that wakes the gateway            woken: it is live
 *                substrate can wake      wakes now, with the context            woken: true
 *                   agent is away        the context goes into the mailbox      woken: false
 *                   failure              DeliveryFailedError
 *                substrate cannot wake   the context goes into the mailbox      woken: false
 *
 *      status    on the relay            active: it has not answered yet; idle: connected;
 *                                        asleep: it said so; unknown: away, or never connected
 *                others                  idle when the substrate can reach it now, else unknown
 *
 * A substrate that cannot wake is not an error of dispatch_wake(): `woken` and a warning tell the
 * caller. */
#include "dispatch/call.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "dispatch/courier.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/schedule.h"
#include "dispatch/sessions.h"
#include "dispatch/substrate.h"
#include "relay/in/inside.h"

void *call_new(struct dispatch *d, size_t size, void (*free_fn)(struct dispatch_call *c),
               dispatch_cb *done, void *ctx)
{
    struct dispatch_call *c = xcalloc(1, size);

    *c = (struct dispatch_call){.d = d, .done = done, .ctx = ctx, .free = free_fn};
    list_append(&d->calls, &c->link);
    return c;
}

static void drop(struct dispatch_call *c)
{
    list_remove(&c->link);
    if (c->free != NULL)
        c->free(c);
    if (c->claim.n > 0)
        map_del(&c->d->claims, buf_str(&c->claim));
    if (c->accepting)
        relay_accept_cancel(c->d->env.relay, c->accept);
    receipt_cancel(&c->look);
    store_put_cancel(&c->put);
    job_cancel(&c->job);
    free(c->tenant);
    free(c->agent);
    free(c->session);
    free(c->took);
    buf_done(&c->warnings);
    buf_done(&c->key);
    buf_done(&c->claim);
    fault_done(&c->fault);
    buf_done(&c->json);
    free(c);
}

void call_end(struct dispatch_call *c)
{
    if (c->done != NULL) {
        struct dispatch_answer a = {.fault = c->fault, .json = buf_str(&c->json)};
        c->done(c->ctx, &a);
    }
    if (c->fault.cls != FAULT_NONE)
        c->d->n.failed++;
    drop(c);
}

void calls_on_timer(struct timer *t)
{
    struct dispatch *d = container_of(t, struct dispatch, endings);

    while (!list_is_empty(&d->ending))
        call_end(list_first(&d->ending, struct dispatch_call, link));
}

void call_end_later(struct dispatch_call *c)
{
    list_move(&c->link, &c->d->ending);
    if (!timer_is_set(&c->d->endings))
        timer_set(c->d->env.clock, &c->d->endings, 0);
}

void calls_free(struct dispatch *d)
{
    list_each (&d->calls, it, nxt)
        drop(list_entry(it, struct dispatch_call, link));
    list_each (&d->ending, at, after)
        drop(list_entry(at, struct dispatch_call, link));
}

void call_run(struct dispatch_call *c, struct recipient *a, const struct errand *e, errand_cb *done)
{
    c->job_of = a;
    c->job = errand_run(a, e, done, c);
}

void calls_agent_gone(struct dispatch *d, const struct recipient *a)
{
    if (d->env.relay == NULL)
        return; /* a runner has no calls */
    list_each (&d->calls, it, nxt) {
        struct dispatch_call *c = list_entry(it, struct dispatch_call, link);
        if (c->job == NULL || c->job_of != a)
            continue;
        job_cancel(&c->job);
        fault_set(&c->fault, FAULT_BUSY, "The agent was changed meanwhile; ask again.");
        call_end_later(c);
    }
}

void dispatch_cancel(struct dispatch_call **call)
{
    if (*call != NULL)
        (*call)->done = NULL;
    *call = NULL;
}

/* ---- the agent ---- */

struct recipient *call_agent(struct dispatch_call *c, const struct dispatch_who *who,
                             struct str address, struct str *ret_session)
{
    struct recipient *a = agents_resolve(c->d->agents, who->caller.tenant, address, ret_session);

    if (a != NULL && (who->caller.agent.p == NULL || str_eq(who->caller.agent, str_of(a->id)))) {
        if (ret_session->n <= DISPATCH_ID_MAX && str_find(*ret_session, '\0') < 0)
            return a;
        fault_set(&c->fault, FAULT_INVALID,
                  "A session's name has at most 200 bytes, and none of them is NUL.");
        return NULL;
    }
    call_fail_unknown(c, address);
    return NULL;
}

bool call_may_answer(const struct dispatch_who *who, const struct recipient *a)
{
    const struct caller *c = &who->caller;

    if (c->agent.p != NULL)
        return str_eq(c->agent, str_of(a->id));
    return c->instance.p == NULL || str_eq(c->instance, str_of(a->instance));
}

void call_begin(struct dispatch_call *c, const struct recipient *a, struct str session,
                const char *word, struct str key)
{
    c->tenant = xstrdup(a->tenant);
    c->agent = xstrdup(a->id);
    c->session = session.p != NULL ? str_dup(session) : NULL;
    c->word = word;
    buf_add_str(&c->key, key);
    c->at_ms = clock_wall_ms(c->d->env.clock);
}

struct receipt_name call_receipt(const struct dispatch_call *c)
{
    return (struct receipt_name){.tenant = str_of(c->tenant),
                                 .agent = str_of(c->agent),
                                 .word = str_of(c->word),
                                 .id = buf_str(&c->key)};
}

bool call_claim(struct dispatch_call *c)
{
    struct receipt_name name = call_receipt(c);

    receipt_name_add(&c->claim, &name);
    if (map_get(&c->d->claims, buf_str(&c->claim)) == NULL) {
        map_put(&c->d->claims, buf_str(&c->claim), c);
        return true;
    }
    buf_reset(&c->claim);
    fault_set(&c->fault, FAULT_BUSY, "The same is under way; ask again in a moment.");
    return false;
}

static void on_call_found(void *ctx, struct str json, const struct delivered_facts *facts)
{
    struct dispatch_call *c = ctx;

    c->look = NULL;
    if (json.p == NULL) {
        c->go(c);
        return;
    }
    c->d->n.repeated++;
    if (c->again != NULL)
        receipt_add_warning(c->d->json, json, str_of(c->again), false, &c->json);
    else
        buf_add_str(&c->json, json);
    call_end(c);
}

void call_once(struct dispatch_call *c, void (*go)(struct dispatch_call *c), const char *warning)
{
    struct receipt_name name = call_receipt(c);

    c->go = go;
    c->again = warning;
    if (c->key.n == 0)
        go(c);
    else if (call_claim(c))
        c->look = receipt_find(c->d, &name, 0, on_call_found, c);
    else
        call_end_later(c);
}

static void on_call_kept(void *ctx, enum bh_err err)
{
    struct dispatch_call *c = ctx;

    c->put = NULL;
    if (err != BH_OK && c->must_keep)
        call_fail_store(c, BH_UNAVAILABLE);
    call_end(c);
}

void call_keep(struct dispatch_call *c, bool must)
{
    struct receipt_name name = call_receipt(c);

    c->must_keep = must;
    if (c->key.n == 0)
        call_end_later(c);
    else
        c->put = receipt_write(c->d, &name, c->at_ms, buf_str(&c->json), KV_PUT, on_call_kept, c);
}

bool call_has_room(struct dispatch_call *c, struct str tenant)
{
    if (receipts_have_room(c->d->receipts, tenant))
        return true;
    fault_set(&c->fault, FAULT_BUSY,
              "There is no room for more receipts (limits.receipt_bytes): the oldest go within "
              "the hour.");
    return false;
}

/* ---- failures ---- */

static void fields(struct fault *f, struct str agent_id, const char *cause, unsigned http_status)
{
    fault_field(f, "agent_id", agent_id);
    fault_field(f, "cause_kind", str_of(cause));
    if (http_status != 0)
        fault_field_i64(f, "http_status", http_status);
    else
        fault_field(f, "http_status", STR_NULL);
}

void call_fail_unknown(struct dispatch_call *c, struct str agent_id)
{
    fault_set(&c->fault, FAULT_DELIVERY_UNKNOWN, "There is no agent '%.*s' here.",
              STR_FMT(agent_id));
    fields(&c->fault, agent_id, "client_validation", 0);
}

void call_fail_errand(struct dispatch_call *c, const struct errand_end *e)
{
    static const char *const causes[] = {
        [CAUSE_NETWORK] = "network",
        [CAUSE_TIMEOUT] = "timeout",
        [CAUSE_HTTP_STATUS] = "http_status",
        [CAUSE_MALFORMED] = "malformed_response",
        [CAUSE_VALIDATION] = "client_validation",
    };

    fault_set(&c->fault, e->cause == CAUSE_TIMEOUT ? FAULT_DELIVERY_TIMEOUT : FAULT_DELIVERY_FAILED,
              "%.*s", STR_FMT(e->text));
    fields(&c->fault, str_of(c->agent), causes[e->cause],
           e->cause == CAUSE_HTTP_STATUS ? e->http_status : 0);
}

void call_fail_store(struct dispatch_call *c, enum bh_err err)
{
    if (err == BH_BUSY)
        fault_set(&c->fault, FAULT_BUSY, "The agent's mailbox is full or the store is behind.");
    else if (err == BH_REFUSED)
        fault_set(&c->fault, FAULT_TOO_LARGE, "It is too long for this agent.");
    else
        fault_set(&c->fault, FAULT_UNAVAILABLE, "The store cannot keep it now; nothing was done.");
}

/* ---- into an agent's mailbox ---- */

void call_post(struct dispatch_call *c, struct recipient *a, const struct payload *p, bool may_wake,
               accepted_cb *done)
{
    struct payload_event e = {0};
    struct buf body = BUF_INIT;
    struct parcel parcel = {.tenant = str_of(a->tenant),
                            .instance = str_of(a->instance),
                            .ev = &e.ev,
                            .may_wake = may_wake};

    payload_event(p, a, &e);
    if (!agent_is_relayed(a->cfg)) {
        payload_write_body(&body, p, str_of(a->id));
        parcel.body = buf_str(&body);
    }
    c->accepting = true;
    c->accept = relay_deliver(c->d->env.relay, &parcel, &c->fate, done, c);
    payload_event_done(&e);
    buf_done(&body);
    if (a->courier != NULL)
        courier_look(a->courier);
}

const char *call_waits(struct recipient *a)
{
    const char *problem = a->courier != NULL ? courier_problem(a->courier) : NULL;
    enum relay_state s;

    if (a->courier != NULL)
        return problem == NULL ? errand_away(a) : problem;
    if (!agent_is_relayed(a->cfg))
        return "the agent has no substrate: it is kept in its mailbox";
    s = relay_state(a->d->env.relay, str_of(a->tenant), str_of(a->instance));
    switch (s) {
    case RELAY_LIVE:
        return NULL;
    case RELAY_ASLEEP:
        return "the agent sleeps: it waits in the mailbox";
    case RELAY_AWAY:
        return "the agent is away: it waits in the mailbox";
    case RELAY_NONE:
    case RELAY_NEVER:
        break;
    }
    return "the agent has never been here: it waits in the mailbox";
}

/* ---- sessions and warnings ---- */

bool call_session_ok(struct dispatch_call *c, const struct recipient *a, struct str session)
{
    if (str_is_empty(session) || a->cfg->ops != &substrate_tmux ||
        agent_session(a->cfg, session) != NULL)
        return true;
    fault_set(&c->fault, FAULT_DELIVERY_UNKNOWN, "The agent '%s' has no session '%.*s'.", a->id,
              STR_FMT(session));
    fields(&c->fault, str_of(a->id), "client_validation", 0);
    return false;
}

static void add_warnings(struct dispatch_call *c, struct str json)
{
    if (c->warnings.n > 0 && json.n > 0)
        buf_add_c(&c->warnings, ',');
    buf_add_str(&c->warnings, json);
}

void call_warn(struct dispatch_call *c, struct str what)
{
    struct buf json = BUF_INIT;
    struct jw j = jw_begin(&json);

    jw_str(&j, what);
    add_warnings(c, buf_str(&json));
    buf_done(&json);
}

void call_told(struct dispatch_call *c, const struct errand_end *e)
{
    if (!str_is_empty(e->session)) {
        free(c->took);
        c->took = str_dup(e->session);
    }
    add_warnings(c, e->warnings);
}

void call_write_warnings(const struct dispatch_call *c, struct jw *j)
{
    struct buf all = BUF_INIT;

    if (c->warnings.n == 0)
        return;
    buf_add_c(&all, '[');
    buf_add_str(&all, buf_str(&c->warnings));
    buf_add_c(&all, ']');
    jw_kraw(j, "warnings", buf_str(&all));
    buf_done(&all);
}

void call_write_session(struct dispatch_call *c, const struct recipient *a, struct jw *j)
{
    struct str session = str_of(c->session);

    if (c->took == NULL && !str_is_empty(session) && a != NULL &&
        (agent_is_relayed(a->cfg) || agent_session(a->cfg, session) != NULL ||
         session_is_known(c->d, str_of(a->tenant), str_of(a->id), session)))
        c->took = str_dup(session);
    if (c->took == NULL && !str_is_empty(session))
        call_warn(c, STR("whether the agent has this session is not known: session_id was only "
                         "passed on"));
    jw_kstr_opt(j, "session_id", str_of(c->took));
    call_write_warnings(c, j);
}

/* ---- status() ---- */

#define TURN_MS (2 * 60 * 1000) /* the longest turn of an agent; later it counts as idle */

static void write_status(struct dispatch_call *c, const char *status, struct str detail)
{
    struct jw j = jw_begin(&c->json);

    jw_obj(&j);
    jw_kstr(&j, "status", str_of(status));
    jw_kstr_opt(&j, "detail", detail);
    jw_end_obj(&j);
}

static const char *relay_word(const struct recipient *a)
{
    struct instance_view v;
    int64_t now = clock_wall_ms(a->d->env.clock);

    switch (relay_state(a->d->env.relay, str_of(a->tenant), str_of(a->instance))) {
    case RELAY_LIVE:
        break;
    case RELAY_ASLEEP:
        return "asleep";
    case RELAY_AWAY:
    case RELAY_NEVER:
    case RELAY_NONE:
        return "unknown";
    }
    if (!relay_instance(a->d->env.relay, str_of(a->tenant), str_of(a->instance), &v))
        return "idle";
    return v.unacked > 0 ||
                   (v.last_inbound_ms > v.last_outbound_ms && now - v.last_inbound_ms < TURN_MS)
               ? "active"
               : "idle";
}

static void on_looked(void *ctx, const struct errand_end *e)
{
    struct dispatch_call *c = ctx;

    c->job = NULL;
    if (e->result == ERRAND_DONE)
        write_status(c, "idle", STR_NULL);
    else
        write_status(c, "unknown", e->text);
    call_end(c);
}

struct dispatch_call *dispatch_status(struct dispatch *d, const struct dispatch_who *who,
                                      struct str address, dispatch_cb *done, void *ctx)
{
    struct dispatch_call *c = call_new(d, sizeof *c, NULL, done, ctx);
    struct str session;
    struct recipient *a = call_agent(c, who, address, &session);
    struct errand e = {.kind = ERRAND_LOOK, .session = session};

    if (a != NULL && a->cfg->ops->run != NULL) {
        call_run(c, a, &e, on_looked);
        return c;
    }
    if (a != NULL)
        write_status(c, agent_is_relayed(a->cfg) ? relay_word(a) : "unknown",
                     str_of(call_waits(a)));
    call_end_later(c);
    return c;
}

/* ---- wake() ---- */

#define RING "[wake] Somebody asks you to look at what waits for you."

struct waking {
    struct dispatch_call call;
    bool woken;
    char *context;                    /* owned; NULL: none */
    char trace[CALLER_TRACE_MAX + 1]; /* "": none.  A wake for later has none */
    int64_t due_ms;
};

static void waking_free(struct dispatch_call *c)
{
    free(container_of(c, struct waking, call)->context);
}

static struct recipient *waking_agent(const struct waking *w)
{
    return agents_find(w->call.d->agents, str_of(w->call.tenant), str_of(w->call.agent));
}

static void wake_finish(struct waking *w)
{
    struct jw j = jw_begin(&w->call.json);

    jw_obj(&j);
    jw_ki64(&j, "woken_at", w->call.at_ms);
    jw_kbool(&j, "woken", w->woken);
    call_write_session(&w->call, waking_agent(w), &j);
    jw_end_obj(&j);
    w->call.d->n.woken += w->woken;
    call_keep(&w->call, true);
}

/* ---- into the mailbox ---- */

static void on_wake_accepted(void *ctx, enum bh_err err)
{
    struct waking *w = ctx;
    struct recipient *a;
    const char *waits;

    w->call.accepting = false;
    if (err != BH_OK) {
        call_fail_store(&w->call, err);
        call_end(&w->call);
        return;
    }
    a = waking_agent(w);
    if (a != NULL && agent_is_relayed(a->cfg)) {
        waits = call_waits(a);
        w->woken = waits == NULL;
        if (waits != NULL)
            call_warn(&w->call, str_of(waits));
    }
    wake_finish(w);
}

static void mail(struct waking *w, struct recipient *a, const char *text)
{
    struct buf id = BUF_INIT;
    struct payload p = {.text = str_of(text),
                        .skill = STR("wake"),
                        .session = str_of(w->call.session),
                        .sent_at = w->call.at_ms,
                        .trace = w->trace[0] != '\0' ? str_of(w->trace) : STR_NULL,
                        .wake = true};

    buf_add_z(&id, PAYLOAD_WAKE_ID);
    if (w->call.key.n > 0)
        buf_add_str(&id, buf_str(&w->call.key));
    else
        buf_printf(&id, "%016llx", (unsigned long long)dispatch_number(w->call.d));
    p.dispatch_id = buf_str(&id);
    call_post(&w->call, a, &p, true, on_wake_accepted);
    buf_done(&id);
}

/* ---- a substrate that can wake ---- */

static void on_rung(void *ctx, const struct errand_end *e)
{
    struct waking *w = ctx;
    struct recipient *a = waking_agent(w);

    w->call.job = NULL;
    if (e->result == ERRAND_DONE) {
        w->woken = true;
        call_told(&w->call, e);
        wake_finish(w);
    } else if (e->result != ERRAND_AWAY) {
        call_fail_errand(&w->call, e);
        call_end(&w->call);
    } else {
        call_warn(&w->call, e->text);
        if (a != NULL && w->context != NULL)
            mail(w, a, w->context);
        else
            wake_finish(w);
    }
}

/* ---- later ---- */

static struct scheduled scheduled_of(const struct waking *w)
{
    return (struct scheduled){.tenant = str_of(w->call.tenant),
                              .agent = str_of(w->call.agent),
                              .session = str_of(w->call.session),
                              .context = str_of(w->context)};
}

static void on_scheduled(void *ctx, enum bh_err err)
{
    struct waking *w = ctx;
    struct scheduled s = scheduled_of(w);

    w->call.put = NULL;
    if (err != BH_OK) {
        schedule_not_kept(w->call.d, &s);
        call_fail_store(&w->call, BH_UNAVAILABLE);
        call_end(&w->call);
        return;
    }
    wake_finish(w);
}

static void plan(struct waking *w)
{
    struct scheduled s = scheduled_of(w);
    char when[40], warning[100];

    w->call.put = schedule_add(w->call.d, w->due_ms, &s, on_scheduled, w);
    if (w->call.put == NULL) {
        fault_set(&w->call.fault, FAULT_BUSY,
                  "There is no room for more wakes for later (limits.wake_bytes).");
        call_end_later(&w->call);
        return;
    }
    schedule_format(w->due_ms, when, sizeof when);
    snprintf(warning, sizeof warning, "scheduled for %s (%lld)", when, (long long)w->due_ms);
    call_warn(&w->call, str_of(warning));
}

/* ---- choosing the way ---- */

static void wake_go(struct dispatch_call *c)
{
    struct waking *w = container_of(c, struct waking, call);
    struct recipient *a = waking_agent(w);

    if (w->due_ms > c->at_ms) {
        plan(w);
    } else if (a == NULL) {
        call_fail_unknown(c, str_of(c->agent));
        call_end_later(c);
    } else if (agent_is_relayed(a->cfg)) {
        mail(w, a, w->context != NULL ? w->context : RING);
    } else if (agent_rings(a->cfg)) {
        struct errand e = {.kind = ERRAND_WAKE,
                           .session = str_of(c->session),
                           .text = str_of(w->context),
                           .trace = str_of(w->trace)};
        if (a->cfg->ops == &substrate_tmux && w->context == NULL)
            e.text = STR(RING);
        call_run(c, a, &e, on_rung);
    } else if (w->context != NULL) {
        call_warn(c, STR("this agent has no bell: the context was delivered to its mailbox"));
        mail(w, a, w->context);
    } else {
        call_warn(c, STR("this agent has no bell, and there was nothing to deliver"));
        wake_finish(w);
    }
}

/* ---- the call ---- */

static bool wake_fail(struct waking *w, const char *why)
{
    fault_set(&w->call.fault, FAULT_INVALID, "%s", why);
    return false;
}

/* Reads the options; an empty *@session is replaced by theirs.  False: the fault is set. */
static bool read_opts(struct waking *w, struct json opts, struct str *session)
{
    struct json nested = json_get(opts, "opts"), o = json_is_object(nested) ? nested : opts;
    struct json context = json_get(o, "context"), when = json_get(o, "when");
    struct str named = json_str(o, "session_id");
    double due = 0;

    if (json_type(context) == JSON_STRING && !str_is_empty(json_as_str(context)))
        w->context = str_dup(json_as_str(context));
    if (w->context != NULL && strlen(w->context) != json_as_str(context).n)
        return wake_fail(w, "context must not contain a NUL.");
    if (json_as_str(context).n > DISPATCH_CONTENT_MAX) {
        fault_set(&w->call.fault, FAULT_TOO_LARGE, "context is limited to 512 KiB.");
        return false;
    }
    if (json_type(context) != JSON_STRING && json_type(context) > JSON_NULL)
        return wake_fail(w, "context must be a string.");
    if (json_type(when) == JSON_NUMBER
            ? !json_as_f64(when, &due) || due > 4e12
            : json_type(when) > JSON_NULL && !str_eq(json_as_str(when), STR("immediate")))
        return wake_fail(w, "when must be \"immediate\" or a time in unix milliseconds.");
    if (named.n > DISPATCH_ID_MAX || str_find(named, '\0') >= 0)
        return wake_fail(w, "session_id has at most 200 bytes, and none of them is NUL.");
    if (!str_is_empty(named))
        *session = named;
    w->due_ms = (int64_t)due;
    return true;
}

static void wake_begin(struct waking *w, struct recipient *a, struct str session, struct str key)
{
    call_begin(&w->call, a, session, "wake", key);
    call_once(&w->call, wake_go,
              "this Idempotency-Key was used before: the first receipt is repeated");
}

struct dispatch_call *wake_agent(struct dispatch *d, struct recipient *a, struct str session,
                                 struct str context, struct str key, dispatch_cb *done, void *ctx)
{
    struct waking *w = call_new(d, sizeof *w, waking_free, done, ctx);

    w->context = context.p != NULL ? str_dup(context) : NULL;
    wake_begin(w, a, session, key);
    return &w->call;
}

struct dispatch_call *dispatch_wake(struct dispatch *d, const struct dispatch_who *who,
                                    struct str address, struct json opts, struct str key,
                                    dispatch_cb *done, void *ctx)
{
    struct waking *w = call_new(d, sizeof *w, waking_free, done, ctx);
    struct str session;
    struct recipient *a = call_agent(&w->call, who, address, &session);

    if (a != NULL && read_opts(w, opts, &session) && call_session_ok(&w->call, a, session) &&
        (key.n == 0 || call_has_room(&w->call, str_of(a->tenant)))) {
        snprintf(w->trace, sizeof w->trace, "%.*s", STR_FMT(who->caller.trace));
        wake_begin(w, a, session, key);
    } else {
        call_end_later(&w->call);
    }
    return &w->call;
}
