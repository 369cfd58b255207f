/* retry.c - design.  (retry.h has the contract.)
 *
 * One timer for all, and a list of those who have something: a store that is down costs one walk of
 * the troubled a second. */
#include "relay/mailbox/retry.h"
#include <stdlib.h>
#include "relay/mailbox/acks.h"
#include "relay/mailbox/delivery.h"
#include "relay/mailbox/gap.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/session/pump.h"

struct retry {
    struct relay *relay;  /* borrowed */
    struct timer timer;   /* armed while somebody waits */
    struct list troubled; /* instances, by retry_link */
};

void retry_now(struct relay *r)
{
    struct retry *t = r->retry;

    timer_stop(r->env.clock, &t->timer);
    acks_retry(r);
    gap_erase_retry(r);
    while (!list_is_empty(&t->troubled)) {
        struct instance *i = list_first(&t->troubled, struct instance, retry_link);
        list_remove(&i->retry_link);
        instance_record_retry(i);
        delivery_retry(i);
        gap_retry(i);
        pump_want(i);
    }
}

static void on_due(struct timer *t)
{
    retry_now(container_of(t, struct retry, timer)->relay);
}

struct retry *retry_new(struct relay *r)
{
    struct retry *t = xcalloc(1, sizeof *t);

    t->relay = r;
    timer_init(&t->timer, on_due);
    list_init(&t->troubled);
    return t;
}

void retry_free(struct retry *t)
{
    if (t == NULL)
        return;
    timer_stop(t->relay->env.clock, &t->timer);
    free(t);
}

void retry_want_acks(struct relay *r)
{
    if (!timer_is_set(&r->retry->timer))
        timer_set(r->env.clock, &r->retry->timer, RETRY_MS);
}

void retry_want(struct instance *i)
{
    list_move(&i->retry_link, &i->relay->retry->troubled);
    retry_want_acks(i->relay);
}
