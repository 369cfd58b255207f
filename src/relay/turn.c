/* turn.c - design.  (turn.h has the contract.)
 *
 * The order: results and deliveries first, so that what came in this turn goes out in it; then the
 * acks, as one write; then the answers to platforms, whose callbacks may start the next round. */
#include "relay/turn.h"
#include <stdlib.h>
#include "relay/in/accept.h"
#include "relay/mailbox/acks.h"
#include "relay/drain.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/session/pump.h"
#include "relay/out/requests.h"

struct turn {
    struct relay *relay; /* borrowed */
    struct timer end;    /* armed while something waits for the end of this turn */
};

static void on_end(struct timer *t)
{
    struct relay *r = container_of(t, struct turn, end)->relay;

    requests_answer_all(r);
    pump_all(r);
    acks_submit(r);
    accept_answer_all(r);
    instance_tell_changes(r);
    drain_go_on(r);
}

struct turn *turn_new(struct relay *r)
{
    struct turn *t = xcalloc(1, sizeof *t);

    t->relay = r;
    timer_init(&t->end, on_end);
    return t;
}

void turn_free(struct turn *t)
{
    if (t == NULL)
        return;
    timer_stop(t->relay->env.clock, &t->end);
    free(t);
}

void turn_want(struct relay *r)
{
    if (!timer_is_set(&r->turn->end))
        timer_set(r->env.clock, &r->turn->end, 0);
}
