/* local.c - the bus of a single process: a queue that a timer of zero milliseconds empties.
 *
 * What callbacks publish waits for the next turn, so that two listeners that answer each other do
 * not hold up everybody else. */
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
    struct timer turn;       /* armed while something is queued */
    bool delivering, closed; /* closed while delivering: freed when that ends */
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

static void on_turn(struct timer *t)
{
    struct bus_local *b = container_of(t, struct bus_local, turn);
    struct message *m = b->first;

    b->first = NULL;
    b->end = &b->first;
    b->delivering = true;
    while (m != NULL) {
        struct message *next = m->next;
        deliver_one(b, m);
        free(m);
        m = next;
    }
    b->delivering = false;
    if (b->closed)
        local_free(b);
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
    if (!timer_is_set(&b->turn))
        timer_set(b->clock, &b->turn, 0);
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

static bool local_is_deaf(const struct bus *base)
{
    (void)base;
    return false; /* there are no others */
}

static void local_on_lost(struct bus *base, bus_lost_cb *cb, void *ctx)
{
    (void)base, (void)cb, (void)ctx; /* nothing is ever lost on the way to ourselves */
}

static void local_close(struct bus *base)
{
    struct bus_local *b = local_of(base);
    timer_stop(b->clock, &b->turn);
    b->closed = true;
    if (!b->delivering)
        local_free(b);
}

static const struct bus_ops local_ops = {
    .name = "local",
    .publish = local_publish,
    .subscribe = local_subscribe,
    .is_deaf = local_is_deaf,
    .on_lost = local_on_lost,
    .close = local_close,
};

struct bus *bus_local_new(struct clock *clock)
{
    struct bus_local *b = xcalloc(1, sizeof *b);
    *b = (struct bus_local){.base.ops = &local_ops, .clock = clock};
    b->end = &b->first;
    timer_init(&b->turn, on_turn);
    return &b->base;
}
