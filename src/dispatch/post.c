/* post.c - into an agent's mailbox.  (post.h has the contract.) */
#include "dispatch/post.h"
#include "dispatch/courier.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/substrate.h"
#include "relay/in/inside.h"

struct accept_id post_payload(struct recipient *a, const struct payload *p, bool may_wake,
                              int64_t *ret_known_ms, accepted_cb *done, void *ctx)
{
    struct payload_event e = {0};
    struct buf body = BUF_INIT;
    struct parcel parcel = {.tenant = str_of(a->tenant),
                            .instance = str_of(a->instance),
                            .ev = &e.ev,
                            .may_wake = may_wake};

    payload_event(p, a, &e);
    if (a->cfg->ops != &substrate_relay) {
        payload_write_body(&body, p, str_of(a->id));
        parcel.body = buf_str(&body);
    }
    struct accept_id id = relay_deliver(a->d->env.relay, &parcel, ret_known_ms, done, ctx);
    payload_event_done(&e);
    buf_done(&body);
    if (a->courier != NULL)
        courier_look(a->courier);
    return id;
}

const char *post_waits(struct recipient *a)
{
    const char *problem = a->courier != NULL ? courier_problem(a->courier) : NULL;
    enum relay_state s;

    if (a->courier != NULL)
        return problem == NULL ? errand_away(a) : problem;
    if (a->cfg->ops != &substrate_relay)
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
