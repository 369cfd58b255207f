/* status.c - how an agent is: pure information, nothing waits for it.
 *
 *      relay    active: it was sent something and has not answered yet; idle: connected;
 *               asleep: it said so; unknown: away, or never here
 *      others   idle when the substrate says that it could be reached now, else unknown */
#include "base/jw.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/courier.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/post.h"
#include "dispatch/substrate.h"

#define TURN_MS (2 * 60 * 1000) /* no turn is taken for longer than this */

struct looking {
    struct dispatch_call call;
    struct errand_job *job;
};

static void looking_free(struct dispatch_call *c)
{
    job_cancel(&container_of(c, struct looking, call)->job);
}

static void write_status(struct looking *w, const char *status, struct str detail)
{
    struct jw j = jw_begin(&w->call.json);

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
    struct looking *w = ctx;

    w->job = NULL;
    if (e->result == ERRAND_DONE)
        write_status(w, "idle", STR_NULL);
    else
        write_status(w, "unknown", e->text);
    call_end(&w->call);
}

struct dispatch_call *dispatch_status(struct dispatch *d, const struct dispatch_who *who,
                                      struct str address, dispatch_cb *done, void *ctx)
{
    struct looking *w = call_new(d, sizeof *w, looking_free, done, ctx);
    struct str session;
    struct recipient *a = call_agent(&w->call, who, address, &session);
    struct errand e = {.kind = ERRAND_LOOK, .session = session};

    if (a != NULL && a->cfg->ops->run != NULL) {
        w->job = errand_run(a, &e, on_looked, w);
        return &w->call;
    }
    if (a != NULL)
        write_status(w, a->cfg->ops == &substrate_relay ? relay_word(a) : "unknown",
                     str_of(post_waits(a)));
    call_end_later(&w->call);
    return &w->call;
}
