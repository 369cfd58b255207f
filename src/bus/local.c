/* local.c - the bus of a single process: a queue that is emptied when the turn ends.
 *
 * A deferred call cannot be called off, so closing while one is on its way leaves the memory to
 * it. */
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "bus/bus.h"

struct message { /* one allocation: this, then topic and text */
    struct message *next;
    struct str topic, text;
};

struct subscription {
    const char *topic; /* borrowed */
    bus_cb *cb;
    void *ctx;
};

struct bus_local {
    struct bus base;
    struct clock *clock;          /* borrowed */
    struct message *first, **end; /* owned: published, not delivered */
    struct subscription *subs;    /* owned */
    size_t n_subs, cap_subs;
    bool deferred; /* deliver() is on its way or running */
    bool closed;
};

static struct bus_local *local_of(struct bus *b)
{
    return container_of(b, struct bus_local, base);
}

static void local_free(struct bus_local *b)
{
    while (b->first != NULL) {
        struct message *m = b->first;
        b->first = m->next;
        free(m);
    }
    free(b->subs);
    free(b);
}

static void deliver_one(struct bus_local *b, const struct message *m)
{
    size_t n = b->n_subs; /* a callback may subscribe: it hears the next message */
    for (size_t i = 0; i < n && !b->closed; i++) {
        struct subscription s = b->subs[i];
        if (str_eq(str_of(s.topic), m->topic))
            s.cb(s.ctx, m->topic, m->text);
    }
}

/* Only what is queued now: what callbacks publish is for the next round, so that two listeners that
 * answer each other do not hold up the turn. */
static void deliver(void *ctx)
{
    struct bus_local *b = ctx;
    struct message *m = b->first;

    b->first = NULL;
    b->end = &b->first;
    while (m != NULL) {
        struct message *next = m->next;
        deliver_one(b, m);
        free(m);
        m = next;
    }
    b->deferred = false;
    if (b->closed) {
        local_free(b);
    } else if (b->first != NULL) {
        b->deferred = true;
        clock_defer(b->clock, deliver, b);
    }
}

static void local_publish(struct bus *base, struct str topic, struct str text)
{
    struct bus_local *b = local_of(base);
    struct message *m = xmalloc(sizeof *m + topic.n + text.n + 1);
    char *bytes = (char *)(m + 1);

    if (topic.n > 0)
        memcpy(bytes, topic.p, topic.n);
    if (text.n > 0)
        memcpy(bytes + topic.n, text.p, text.n);
    *m = (struct message){.topic = {bytes, topic.n}, .text = {bytes + topic.n, text.n}};
    *b->end = m;
    b->end = &m->next;
    if (!b->deferred)
        clock_defer(b->clock, deliver, b);
    b->deferred = true;
}

static void local_subscribe(struct bus *base, const char *topic, bus_cb *cb, void *ctx)
{
    struct bus_local *b = local_of(base);
    if (b->n_subs == b->cap_subs) {
        b->cap_subs = b->cap_subs == 0 ? 8 : b->cap_subs * 2;
        b->subs = xrealloc(b->subs, b->cap_subs * sizeof *b->subs);
    }
    b->subs[b->n_subs++] = (struct subscription){topic, cb, ctx};
}

static void local_close(struct bus *base)
{
    struct bus_local *b = local_of(base);
    b->closed = true;
    if (!b->deferred)
        local_free(b);
}

static const struct bus_ops local_ops = {
    .name = "local",
    .publish = local_publish,
    .subscribe = local_subscribe,
    .close = local_close,
};

struct bus *bus_local_new(struct clock *clock)
{
    struct bus_local *b = xcalloc(1, sizeof *b);
    *b = (struct bus_local){.base.ops = &local_ops, .clock = clock};
    b->end = &b->first;
    return &b->base;
}
