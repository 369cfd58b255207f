/* context.c - see context.h. */
#include "relay/in/context.h"
#include "relay/heart.h"
#include "relay/in/judge.h"
#include "relay/relay.h"

static bool may_have(struct relay *r, const struct gate_verdict *v, const struct event *ev)
{
    return v != NULL && v->to->newer && judge_looks_back(r, v, ev);
}

const struct event *context_shown(struct relay *r, const struct gate_verdict *v,
                                  const struct event *ev, struct context_room *room)
{
    if (ev->n_context == 0 && !ev->context_error)
        return ev;
    bool may = may_have(r, v, ev);
    room->ev = *ev;
    room->ev.context = room->said;
    room->ev.n_context = 0;
    room->ev.context_error &= may;
    for (size_t i = 0; may && i < ev->n_context; i++) {
        const struct event_said *s = &ev->context[i];
        /* Whatever an owner says is delivered: their words are known. */
        if (v->reason != GATE_YES_OWNER || !str_eq(s->user_id, ev->user_id))
            room->said[room->ev.n_context++] = *s;
    }
    return &room->ev;
}

bool relay_wants_context(struct relay *r, const struct event *ev)
{
    struct gate_verdict verdicts[GATE_CANDIDATES];
    size_t n = judge_ask(r, ev, verdicts);

    for (size_t i = 0; i < n; i++)
        if (gate_is_yes(verdicts[i].reason) && may_have(r, &verdicts[i], ev))
            return true;
    return false;
}
