/* observers.c - a queue of notifications that a timer of zero milliseconds empties.
 *
 * Notifications sent by callbacks wait for the next turn, so two listeners that answer each other
 * cannot block the loop. */
#include "base/observers.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

struct observers_news {
    struct observers_news *next;
    const char *topic; /* borrowed */
    size_t n;
    char about[];
};

struct observer {
    const char *topic; /* borrowed */
    observer_cb *cb;
    void *ctx;
};

struct observers {
    struct clock *clock;                 /* borrowed */
    struct observers_news *first, **end; /* owned; told, not heard yet */
    struct observer *all;                /* owned */
    size_t n, cap;
    struct timer turn;     /* armed while something is queued */
    bool telling, freeing; /* freed while telling: the memory goes when that ends */
};

static void on_turn(struct timer *t);

struct observers *observers_new(struct clock *clock)
{
    struct observers *o = xcalloc(1, sizeof *o);

    o->clock = clock;
    o->end = &o->first;
    timer_init(&o->turn, on_turn);
    return o;
}

void observers_free(struct observers *o)
{
    if (o == NULL)
        return;
    timer_stop(o->clock, &o->turn);
    o->freeing = true;
    if (o->telling)
        return;
    for (struct observers_news *m; (m = o->first) != NULL;) {
        o->first = m->next;
        free(m);
    }
    free(o->all);
    free(o);
}

void observers_add(struct observers *o, const char *topic, observer_cb *cb, void *ctx)
{
    o->all = xgrow(o->all, o->n, &o->cap, sizeof *o->all);
    o->all[o->n++] = (struct observer){topic, cb, ctx};
}

void observers_tell(struct observers *o, const char *topic, struct str about)
{
    struct observers_news *m = xmalloc(sizeof *m + about.n);

    *m = (struct observers_news){.topic = topic, .n = about.n};
    if (about.n > 0)
        memcpy(m->about, about.p, about.n);
    *o->end = m;
    o->end = &m->next;
    if (!timer_is_set(&o->turn))
        timer_set(o->clock, &o->turn, 0);
}

static void on_turn(struct timer *t)
{
    struct observers *o = container_of(t, struct observers, turn);
    struct observers_news *m = o->first;

    o->first = NULL;
    o->end = &o->first;
    o->telling = true;
    for (struct observers_news *next; m != NULL; m = next) {
        size_t n = o->n; /* a listener that a callback adds hears the next news */
        next = m->next;
        for (size_t i = 0; i < n && !o->freeing; i++)
            if (strcmp(o->all[i].topic, m->topic) == 0)
                o->all[i].cb(o->all[i].ctx, str_make(m->about, m->n));
        free(m);
    }
    o->telling = false;
    if (o->freeing)
        observers_free(o);
}
