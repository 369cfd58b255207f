/* targets.c - who would receive an event, for those who prepare something for them. */
#include "relay/heart.h"
#include "relay/judge.h"

void relay_each_target(struct relay *r, const struct event *ev, target_cb *cb, void *ctx)
{
    struct gate_verdict verdicts[GATE_CANDIDATES];
    size_t n = judge_ask(r, ev, verdicts);

    for (size_t i = 0; i < n; i++)
        if (gate_is_yes(verdicts[i].reason))
            cb(ctx, verdicts[i].to->tenant, verdicts[i].to->instance);
}
