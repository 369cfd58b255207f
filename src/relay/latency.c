/* latency.c - (latency.h has the contract.) */
#include "relay/latency.h"
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/mailbox/mailbox.h"
#include "relay/sleep/instance.h"

#define HOUR_MS 3600000

const int64_t latency_bounds_ms[LATENCY_BOUNDS] = {1,   2,    5,    10,   25,    50,    100,   250,
                                                   500, 1000, 2500, 5000, 10000, 60000, 600000};

struct slow { /* the name is copied: instances end */
    uint64_t id;
    int64_t at_ms, took_ms;
    char name[260]; /* tenant \x1f instance, cut */
    uint16_t name_n, tenant_n;
};

struct latency {
    struct {
        uint32_t id, at_ms; /* the low halves */
    } recent[LATENCY_RECENT];
    struct latency_waits waits[2];           /* sent, acked */
    struct slow slowest[2][LATENCY_SLOWEST]; /* of this hour, of the hour before */
    size_t n_slowest[2];
    int64_t hour;
};

struct latency *latency_new(void)
{
    return xcalloc(1, sizeof(struct latency));
}

void latency_free(struct latency *l)
{
    free(l);
}

void latency_accepted(struct relay *r, uint64_t id)
{
    uint32_t low = (uint32_t)id;

    r->latency->recent[low % LATENCY_RECENT].id = low;
    r->latency->recent[low % LATENCY_RECENT].at_ms = (uint32_t)clock_wall_ms(r->env.clock);
}

static void note_slow(struct latency *l, const struct instance *i, uint64_t id, int64_t now_ms,
                      int64_t took_ms)
{
    if (now_ms / HOUR_MS != l->hour) {
        bool next = now_ms / HOUR_MS == l->hour + 1;
        memcpy(l->slowest[1], l->slowest[0], sizeof l->slowest[0]);
        l->n_slowest[1] = next ? l->n_slowest[0] : 0;
        l->n_slowest[0] = 0;
        l->hour = now_ms / HOUR_MS;
    }
    struct slow *all = l->slowest[0];
    size_t at = l->n_slowest[0];
    if (at == LATENCY_SLOWEST && took_ms <= all[at - 1].took_ms)
        return;
    at = at < LATENCY_SLOWEST ? l->n_slowest[0]++ : at - 1;
    for (; at > 0 && all[at - 1].took_ms < took_ms; at--)
        all[at] = all[at - 1];
    struct str name = instance_key(i);
    all[at] = (struct slow){.id = id,
                            .at_ms = now_ms - took_ms,
                            .took_ms = took_ms,
                            .name_n = (uint16_t)(name.n < 259 ? name.n : 259),
                            .tenant_n = (uint16_t)instance_tenant(i).n};
    memcpy(all[at].name, name.p, all[at].name_n);
}

void latency_note(struct instance *i, const struct slot *slot, int acked)
{
    struct latency *l = i->relay->latency;
    int64_t now_ms = clock_wall_ms(i->relay->env.clock), took_ms;
    uint32_t low = (uint32_t)slot->id;
    size_t at = 0;

    if (l->recent[low % LATENCY_RECENT].id == low)
        took_ms = (uint32_t)now_ms - l->recent[low % LATENCY_RECENT].at_ms;
    else
        took_ms = now_ms - (int64_t)slot->at_s * 1000;
    if (took_ms < 0 || took_ms > 366 * 24 * (int64_t)HOUR_MS)
        took_ms = 0; /* the clock was set */
    while (at < LATENCY_BOUNDS && took_ms > latency_bounds_ms[at])
        at++;
    l->waits[acked].n[at]++;
    l->waits[acked].total_ms += (uint64_t)took_ms;
    if (acked && took_ms > 0)
        note_slow(l, i, slot->id, now_ms, took_ms);
}

const struct latency_waits *relay_waits_of(const struct relay *r, bool acked)
{
    return &r->latency->waits[acked];
}

void relay_each_slowest(const struct relay *r, slowest_cb *cb, void *ctx)
{
    const struct latency *l = r->latency;

    for (int age = 0; age < 2; age++)
        for (size_t k = 0; k < l->n_slowest[age]; k++) {
            const struct slow *s = &l->slowest[age][k];
            size_t t = s->tenant_n < s->name_n ? s->tenant_n : s->name_n;
            struct str rest = str_skip(str_make(s->name, s->name_n), t + (t < s->name_n));
            cb(ctx, str_make(s->name, t), rest, s->id, s->at_ms, s->took_ms);
        }
}
