/* drain.c - design.  (drain.h has the contract and the picture.)
 *
 * Peers that are about to ack, or whose request is about to be answered, are worth a moment: an ack
 * still in the socket when we close it is a message delivered twice. */
#include "relay/drain.h"
#include <assert.h>
#include <stdlib.h>
#include "relay/in/accept.h"
#include "relay/mailbox/acks.h"
#include "relay/sleep/activity.h"
#include "relay/mailbox/delivery.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/mailbox/retry.h"
#include "relay/session/session.h"
#include "relay/turn.h"

#define FAREWELL_MS 500 /* how long acks and results that are under way are waited for */

struct drain {
    struct relay *relay; /* borrowed */
    struct timer farewell;
    bool said;      /* the sockets have been closed */
    defer_cb *done; /* told when all is on disk; NULL: nobody drains, or it is over */
    void *ctx;
};

static bool is_worth_waiting_for(const struct session *s)
{
    return (s->state == SESSION_RECEIVING && flight_count(s->flight) > 0) ||
           !list_is_empty(&s->requests);
}

static void say_farewell(struct drain *d)
{
    struct list *sessions = sessions_by_age(d->relay);

    if (d->said)
        return;
    list_each (sessions, it, nxt)
        if (timer_is_set(&d->farewell) &&
            is_worth_waiting_for(list_entry(it, struct session, by_age)))
            return;
    d->said = true;
    timer_stop(d->relay->env.clock, &d->farewell);
    list_each (sessions, at, after)
        session_close(list_entry(at, struct session, by_age), CLOSE_RESTARTING);
}

static bool is_all_on_disk(struct relay *r)
{
    return !delivery_any_volatile(r) && !acks_pending(r) && !instance_any_writing(r) &&
           !activity_any_writing(r) && !accept_any_answer(r);
}

void drain_go_on(struct relay *r)
{
    struct drain *d = r->drain;

    if (d->done == NULL)
        return;
    say_farewell(d);
    if (!d->said)
        return;
    activity_write(r);
    if (!is_all_on_disk(r))
        return;
    defer_cb *done = d->done;
    d->done = NULL;
    done(d->ctx);
}

static void on_farewell(struct timer *t)
{
    struct drain *d = container_of(t, struct drain, farewell);

    say_farewell(d); /* the timer has gone off: nobody is waited for any more */
    turn_want(d->relay);
}

struct drain *drain_new(struct relay *r)
{
    struct drain *d = xcalloc(1, sizeof *d);

    d->relay = r;
    timer_init(&d->farewell, on_farewell);
    return d;
}

void drain_free(struct drain *d)
{
    if (d == NULL)
        return;
    timer_stop(d->relay->env.clock, &d->farewell);
    free(d);
}

void relay_drain(struct relay *r, defer_cb *done, void *ctx)
{
    struct drain *d = r->drain;

    assert(done != NULL && d->done == NULL);
    r->draining = true;
    d->done = done;
    d->ctx = ctx;
    timer_set(r->env.clock, &d->farewell, FAREWELL_MS);
    retry_now(r); /* what the store refused before gets its last chance now */
    turn_want(r);
}

void relay_stop(struct relay *r)
{
    r->draining = true;
    timer_stop(r->env.clock, &r->drain->farewell);
    say_farewell(r->drain);
}
