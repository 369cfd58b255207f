/* threads.c - the two threads that run code of the application.
 *
 * They take one thing at a time off their list and let go of the lock while a handler runs, so a
 * handler may call anything.  Notices are a list of their own because an interrupt is about the
 * event whose handler is running: waiting behind it would defeat it. */
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"
#include "client.h"
#include "policy.h"

/* ---- events ---- */

/* False: the threads shall end. */
static bool wait_for_work(struct bhgw *gw)
{
    /* Leaving for good: what was not started stays with the connector. */
    while (!gw->quit && !gw->policy_due &&
           (list_is_empty(&gw->deliveries) || gw->want == GWC_WANT_CLOSED))
        pthread_cond_wait(&gw->events_wakeup, &gw->lock);
    return !gw->quit;
}

static struct gwc_delivery *take_delivery(struct bhgw *gw)
{
    struct gwc_delivery *d = list_first(&gw->deliveries, struct gwc_delivery, link);

    list_remove(&d->link);
    gw->n_deliveries--;
    gw->delivery_bytes -= d->bytes;
    return d;
}

static void declare_policy(struct bhgw *gw)
{
    gw->policy_due = false;
    gw->events_busy = true;
    pthread_mutex_unlock(&gw->lock);
    bool ok = gwc_policy_declare(gw);
    pthread_mutex_lock(&gw->lock);
    gw->policy_declared = ok;
    gw->events_busy = false;
    gwc_wake_locked(gw);
}

static enum bhgw_verdict run_event(struct bhgw *gw, const struct gwc_delivery *d, struct json doc,
                                   struct arena *a)
{
    struct bhgw_event ev;

    if (gw->opt.on_event == NULL || !gwc_event_read(doc, a, &ev))
        return BHGW_RELEASE;
    ev.delivery = d->number;
    ev.json = d->line;
    ev.json_bytes = d->bytes;
    return gw->opt.on_event(gw->opt.ctx, gw, &ev);
}

static enum bhgw_verdict run_passthrough(struct bhgw *gw, const struct gwc_delivery *d,
                                         struct json doc, struct arena *a)
{
    struct bhgw_passthrough fwd;

    if (!gwc_passthrough_read(doc, a, &fwd))
        return BHGW_RELEASE;
    if (gw->opt.on_passthrough == NULL)
        return BHGW_ACK;
    fwd.delivery = d->number;
    fwd.json = d->line;
    fwd.json_bytes = d->bytes;
    return gw->opt.on_passthrough(gw->opt.ctx, gw, &fwd);
}

static enum bhgw_verdict run(struct bhgw *gw, const struct gwc_delivery *d, struct json_parser *p,
                             struct arena *a)
{
    struct json doc;

    if (!json_parse(p, str_make(d->line, d->bytes), &doc))
        return BHGW_RELEASE; /* parsed before, so memory is short */
    return (d->passthrough ? run_passthrough : run_event)(gw, d, doc, a);
}

static void handle_delivery(struct bhgw *gw, struct json_parser *parser, struct arena *arena)
{
    struct gwc_delivery *d = take_delivery(gw);

    gw->events_busy = true;
    gw->stats.events++;
    pthread_mutex_unlock(&gw->lock);
    enum bhgw_verdict verdict = run(gw, d, parser, arena);
    arena_reset(arena);
    pthread_mutex_lock(&gw->lock);
    gw->events_busy = false;
    gw->drain_from_events = false;
    gwc_settle_locked(gw, d->number, verdict);
    if (gw->phase == GWC_DRAINING)
        gwc_wake_locked(gw); /* it may be waiting for us */
    free(d);
}

void *gwc_events_main(void *arg)
{
    struct bhgw *gw = arg;
    struct json_parser *parser = json_parser_new();
    struct arena arena = ARENA_INIT;

    pthread_mutex_lock(&gw->lock);
    while (wait_for_work(gw)) {
        if (gw->policy_due)
            declare_policy(gw);
        else
            handle_delivery(gw, parser, &arena);
    }
    pthread_mutex_unlock(&gw->lock);
    arena_done(&arena);
    json_parser_free(parser);
    return NULL;
}

/* ---- notices ---- */

void gwc_notice_free(struct gwc_notice *n)
{
    free(n->a);
    free(n->b);
    bhgw_descriptor_free(n->descriptor);
    if (n->request != NULL)
        gwc_request_free(n->request);
    free(n);
}

static bool is_wanted(const struct bhgw *gw, const struct gwc_notice *n)
{
    switch (n->kind) {
    case GWC_NOTICE_STATE:
        return gw->opt.on_state != NULL;
    case GWC_NOTICE_DESCRIPTOR:
        return gw->opt.on_descriptor != NULL;
    case GWC_NOTICE_INTERRUPT: /* counted, so always taken off the list by the thread */
    case GWC_NOTICE_DONE:
        break;
    }
    return true;
}

void gwc_notify_locked(struct bhgw *gw, struct gwc_notice *n)
{
    list_init(&n->link);
    if (!is_wanted(gw, n)) {
        gwc_notice_free(n);
        return;
    }
    list_append(&gw->notices, &n->link);
    pthread_cond_signal(&gw->notices_wakeup);
}

static void deliver(struct bhgw *gw, struct gwc_notice *n)
{
    void *ctx = gw->opt.ctx;

    switch (n->kind) {
    case GWC_NOTICE_STATE:
        gw->opt.on_state(ctx, gw, n->state, n->a);
        break;
    case GWC_NOTICE_INTERRUPT:
        if (gw->opt.on_interrupt != NULL)
            gw->opt.on_interrupt(ctx, gw, n->a, n->b);
        break;
    case GWC_NOTICE_DESCRIPTOR:
        gw->opt.on_descriptor(ctx, gw, n->descriptor);
        break;
    case GWC_NOTICE_DONE:
        n->request->done(n->request->done_ctx, gw, n->request->result);
        break;
    }
}

void *gwc_notices_main(void *arg)
{
    struct bhgw *gw = arg;

    pthread_mutex_lock(&gw->lock);
    for (;;) {
        while (list_is_empty(&gw->notices) && !gw->notices_quit)
            pthread_cond_wait(&gw->notices_wakeup, &gw->lock);
        if (list_is_empty(&gw->notices))
            break;
        struct gwc_notice *n = list_first(&gw->notices, struct gwc_notice, link);
        list_remove(&n->link);
        if (n->kind == GWC_NOTICE_INTERRUPT)
            gw->n_interrupts--;
        pthread_mutex_unlock(&gw->lock);
        deliver(gw, n);
        gwc_notice_free(n);
        pthread_mutex_lock(&gw->lock);
    }
    pthread_mutex_unlock(&gw->lock);
    return NULL;
}
