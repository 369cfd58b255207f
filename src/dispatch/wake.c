/* wake.c - wake(): ring an agent, or leave it what it should know.
 *
 *      when in the future        a schedule on disk: schedule.h            woken: false
 *      on the relay              mail that rings; live: it is on its way   woken: live
 *      a bell of its own         rung at once, after that the context      woken: true
 *         nobody there           the context goes into the mailbox         woken: false
 *         trouble                DeliveryFailedError
 *      no bell                   the context goes into the mailbox         woken: false
 *
 * Only trouble is an error; what a substrate cannot do is told by woken and a warning. */
#include "dispatch/wake.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/post.h"
#include "dispatch/receipt.h"
#include "dispatch/schedule.h"
#include "dispatch/substrate.h"

#define KEY_MAX 190 /* of an Idempotency-Key: it becomes part of an id */
#define RING "[wake] Somebody asks you to look at what waits for you."

struct waking {
    struct dispatch_call call;
    struct accept_id accept;
    bool accepting, woken;
    struct receipt_read *look;
    struct store_put *put;
    struct errand_job *job;
    char *tenant, *agent, *session, *context, *key; /* owned; NULL: none */
    int64_t at_ms, known_ms, due_ms;
    char warning[256];
};

static void waking_free(struct dispatch_call *c)
{
    struct waking *w = container_of(c, struct waking, call);

    if (w->accepting)
        relay_accept_cancel(c->d->env.relay, w->accept);
    receipt_cancel(&w->look);
    store_put_cancel(&w->put);
    job_cancel(&w->job);
    free(w->tenant);
    free(w->agent);
    free(w->session);
    free(w->context);
    free(w->key);
}

static struct receipt_name name_of(const struct waking *w)
{
    return (struct receipt_name){.tenant = str_of(w->tenant),
                                 .agent = str_of(w->agent),
                                 .word = STR("wake"),
                                 .id = str_of(w->key)};
}

/* ---- the receipt ---- */

static void write_receipt(struct waking *w)
{
    struct jw j = jw_begin(&w->call.json);

    jw_obj(&j);
    jw_ki64(&j, "woken_at", w->at_ms);
    jw_kbool(&j, "woken", w->woken);
    jw_kstr_opt(&j, "session_id", str_of(w->session));
    if (*w->warning != '\0') {
        jw_key(&j, "warnings");
        jw_arr(&j);
        jw_str(&j, str_of(w->warning));
        jw_end_arr(&j);
    }
    jw_end_obj(&j);
}

static void on_written(void *ctx, enum bh_err err)
{
    struct waking *w = ctx;

    w->put = NULL;
    if (err != BH_OK)
        call_fail_store(&w->call, BH_UNAVAILABLE);
    call_end(&w->call);
}

/* From a callback, when all is done. */
static void finish(struct waking *w)
{
    struct receipt_name name = name_of(w);

    write_receipt(w);
    w->call.d->n.woken += w->woken;
    if (w->key == NULL)
        call_end(&w->call);
    else
        w->put = receipt_write(w->call.d, &name, w->at_ms, buf_str(&w->call.json), on_written, w);
}

static void warn(struct waking *w, const char *what)
{
    snprintf(w->warning, sizeof w->warning, "%s", what);
}

/* ---- into the mailbox ---- */

static void on_accepted(void *ctx, enum bh_err err)
{
    struct waking *w = ctx;
    struct recipient *a;
    const char *waits;

    w->accepting = false;
    if (err != BH_OK) {
        call_fail_store(&w->call, err);
        call_end(&w->call);
        return;
    }
    a = agents_find(w->call.d->agents, str_of(w->tenant), str_of(w->agent));
    if (a != NULL && a->cfg->ops == &substrate_relay) {
        waits = post_waits(a);
        w->woken = waits == NULL;
        if (waits != NULL)
            warn(w, waits);
    }
    finish(w);
}

static void mail(struct waking *w, struct recipient *a, const char *text)
{
    struct buf id = BUF_INIT;
    struct payload p = {.text = str_of(text),
                        .skill = STR("wake"),
                        .session = str_of(w->session),
                        .sent_at = w->at_ms,
                        .wake = true};

    buf_add_z(&id, PAYLOAD_WAKE_ID);
    if (w->key != NULL)
        buf_add_z(&id, w->key);
    else
        buf_printf(&id, "%016llx", (unsigned long long)dispatch_number(w->call.d));
    p.dispatch_id = buf_str(&id);
    w->accepting = true;
    w->accept = post_payload(a, &p, true, &w->known_ms, on_accepted, w);
    buf_done(&id);
}

/* ---- a bell of its own ---- */

static void on_rung(void *ctx, const struct errand_end *e)
{
    struct waking *w = ctx;
    struct recipient *a;

    w->job = NULL;
    if (e->result == ERRAND_DONE) {
        w->woken = true;
        finish(w);
        return;
    }
    if (e->result != ERRAND_AWAY) {
        call_fail_errand(&w->call, str_of(w->agent), e);
        call_end(&w->call);
        return;
    }
    snprintf(w->warning, sizeof w->warning, "%.*s", (int)(e->text.n < 200 ? e->text.n : 200),
             e->text.p);
    a = agents_find(w->call.d->agents, str_of(w->tenant), str_of(w->agent));
    if (a != NULL && w->context != NULL)
        mail(w, a, w->context);
    else
        finish(w);
}

static void ring(struct waking *w, struct recipient *a)
{
    bool types = a->cfg->ops == &substrate_tmux;
    struct errand e = {.kind = ERRAND_WAKE,
                       .session = str_of(w->session),
                       .text = str_of(w->context)};

    if (types && w->context == NULL)
        e.text = STR(RING);
    w->job = errand_run(a, &e, on_rung, w);
}

/* ---- which of them ---- */

/* False: there is nothing to wait for, and the receipt can be written. */
static bool go(struct waking *w, struct recipient *a)
{
    if (a->cfg->ops == &substrate_relay) {
        mail(w, a, w->context != NULL ? w->context : RING);
    } else if (agent_rings(a->cfg)) {
        ring(w, a);
    } else if (w->context != NULL) {
        warn(w, "this agent has no bell: the context was delivered to its mailbox");
        mail(w, a, w->context);
    } else {
        warn(w, "this agent has no bell, and there was nothing to deliver");
        return false;
    }
    return true;
}

static void go_later(struct waking *w)
{
    struct recipient *a = agents_find(w->call.d->agents, str_of(w->tenant), str_of(w->agent));

    if (a == NULL) {
        call_fail_unknown(&w->call, str_of(w->agent));
        call_end(&w->call);
    } else if (!go(w, a)) {
        finish(w);
    }
}

/* ---- later ---- */

static void on_scheduled(void *ctx, enum bh_err err)
{
    struct waking *w = ctx;

    struct scheduled s = {.tenant = str_of(w->tenant), .context = str_of(w->context)};

    w->put = NULL;
    if (err != BH_OK) {
        schedule_not_kept(w->call.d, &s);
        call_fail_store(&w->call, BH_UNAVAILABLE);
        call_end(&w->call);
        return;
    }
    finish(w);
}

/* False: the fault is set. */
static bool plan(struct waking *w, int64_t due_ms)
{
    struct scheduled s = {.tenant = str_of(w->tenant),
                          .agent = str_of(w->agent),
                          .session = str_of(w->session),
                          .context = str_of(w->context)};
    char when[40];

    if (!schedule_has_room(w->call.d, &s)) {
        fault_set(&w->call.fault, FAULT_BUSY,
                  "There is no room for more wakes for later (limits.wake_bytes).");
        return false;
    }
    schedule_format(due_ms, when, sizeof when);
    snprintf(w->warning, sizeof w->warning, "scheduled for %s (%lld)", when, (long long)due_ms);
    w->put = schedule_add(w->call.d, due_ms, &s, on_scheduled, w);
    return true;
}

/* ---- known or new ---- */

static void on_found(void *ctx, struct str json)
{
    struct waking *w = ctx;

    w->look = NULL;
    if (json.p == NULL && w->due_ms > w->at_ms) {
        if (!plan(w, w->due_ms))
            call_end(&w->call);
        return;
    }
    if (json.p == NULL) {
        go_later(w);
        return;
    }
    w->call.d->n.repeated++;
    receipt_add_warning(w->call.d->json, json,
                        STR("this Idempotency-Key was used before: the first receipt is repeated"),
                        &w->call.json);
    call_end(&w->call);
}

/* ---- the call ---- */

static bool fail(struct waking *w, const char *why)
{
    fault_set(&w->call.fault, FAULT_INVALID, "%s", why);
    return false;
}

/* False: the fault is set. */
static bool read_opts(struct waking *w, struct json opts, struct str session, struct str key,
                      int64_t *ret_due_ms)
{
    struct json nested = json_get(opts, "opts"), o = json_is_object(nested) ? nested : opts;
    struct json context = json_get(o, "context"), when = json_get(o, "when");
    struct str named = json_str(o, "session_id");
    double due = 0;

    if (json_type(context) == JSON_STRING && !str_is_empty(json_as_str(context)))
        w->context = str_dup(json_as_str(context));
    if (w->context != NULL && strlen(w->context) != json_as_str(context).n)
        return fail(w, "context must not contain a NUL.");
    if (json_as_str(context).n > DISPATCH_CONTENT_MAX) {
        fault_set(&w->call.fault, FAULT_TOO_LARGE, "context is limited to 512 KiB.");
        return false;
    }
    if (json_type(context) != JSON_STRING && json_type(context) > JSON_NULL)
        return fail(w, "context must be a string.");
    if (json_type(when) == JSON_NUMBER
            ? !json_as_f64(when, &due) || due > 4e12
            : json_type(when) > JSON_NULL && !str_eq(json_as_str(when), STR("immediate")))
        return fail(w, "when must be \"immediate\" or a time in unix milliseconds.");
    if (named.n > DISPATCH_ID_MAX || str_find(named, '\0') >= 0 || key.n > KEY_MAX)
        return fail(w, "session_id has at most 200 bytes, none of them NUL, an Idempotency-Key at "
                       "most 190.");
    if (!str_is_empty(named))
        session = named;
    w->session = session.p != NULL ? str_dup(session) : NULL;
    w->key = !str_is_empty(key) ? str_dup(key) : NULL;
    *ret_due_ms = (int64_t)due;
    return true;
}

static void begin(struct waking *w, struct recipient *a, int64_t due_ms)
{
    struct receipt_name name;

    w->tenant = xstrdup(a->tenant);
    w->agent = xstrdup(a->id);
    name = name_of(w);
    if (w->key != NULL && !call_claim(&w->call, &name)) {
        call_end_later(&w->call);
    } else if (w->key != NULL) {
        w->look = receipt_find(w->call.d, &name, on_found, w);
        w->due_ms = due_ms;
    } else if (due_ms > w->at_ms) {
        if (!plan(w, due_ms))
            call_end_later(&w->call);
    } else if (!go(w, a)) {
        write_receipt(w);
        call_end_later(&w->call);
    }
}

struct dispatch_call *wake_agent(struct dispatch *d, struct recipient *a, struct str session,
                                 struct str context, struct str key, dispatch_cb *done, void *ctx)
{
    struct waking *w = call_new(d, sizeof *w, waking_free, done, ctx);

    w->at_ms = clock_wall_ms(d->env.clock);
    w->session = session.p != NULL ? str_dup(session) : NULL;
    w->context = context.p != NULL ? str_dup(context) : NULL;
    w->key = str_dup(key);
    begin(w, a, 0);
    return &w->call;
}

struct dispatch_call *dispatch_wake(struct dispatch *d, const struct dispatch_who *who,
                                    struct str address, struct json opts, struct str key,
                                    dispatch_cb *done, void *ctx)
{
    struct waking *w = call_new(d, sizeof *w, waking_free, done, ctx);
    struct str session;
    struct recipient *a = call_agent(&w->call, who, address, &session);
    int64_t due_ms;

    w->at_ms = clock_wall_ms(d->env.clock);
    if (a != NULL && read_opts(w, opts, session, key, &due_ms) &&
        (w->key == NULL || call_has_room(&w->call, str_of(a->tenant))))
        begin(w, a, due_ms);
    else
        call_end_later(&w->call);
    return &w->call;
}
