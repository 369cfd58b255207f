/* blame.c - design.  (blame.h has the contract.)
 *
 * Two windows per tenant, this one and the one before, which counts less the longer this one lasts:
 * a few bytes instead of a list of times.  Who was not refused for two windows is forgotten. */
#include "platform/blame.h"
#include <stdlib.h>
#include "base/mem.h"

struct blamed {
    struct list link;
    int64_t since_ms; /* when this window began */
    uint32_t now, before;
    char name[];
};

void blame_init(struct blame *b)
{
    *b = (struct blame){0};
    list_init(&b->by_age);
}

void blame_done(struct blame *b)
{
    list_each (&b->by_age, it, nxt)
        free(list_entry(it, struct blamed, link));
    map_done(&b->by_name);
}

static void forget_old(struct blame *b, int64_t now_ms)
{
    while (!list_is_empty(&b->by_age)) {
        struct blamed *t = list_first(&b->by_age, struct blamed, link);
        if (now_ms - t->since_ms < 2 * BLAME_MS)
            return;
        map_del(&b->by_name, str_of(t->name));
        list_remove(&t->link);
        free(t);
    }
}

void blame_note(struct blame *b, struct str tenant, int64_t now_ms)
{
    forget_old(b, now_ms);
    struct blamed *t = map_get(&b->by_name, tenant);
    if (t == NULL) {
        t = xcalloc(1, sizeof *t + tenant.n + 1);
        memcpy(t->name, tenant.n > 0 ? tenant.p : "", tenant.n);
        t->since_ms = now_ms;
        list_init(&t->link);
        list_append(&b->by_age, &t->link);
        map_put(&b->by_name, str_of(t->name), t);
    }
    if (now_ms - t->since_ms >= BLAME_MS) {
        t->before = t->now;
        t->now = 0;
        t->since_ms = now_ms;
        list_move(&t->link, &b->by_age);
    }
    t->now++;
}

bool blame_is_full(const struct blame *b, struct str tenant, int64_t now_ms)
{
    const struct blamed *t = map_get(&b->by_name, tenant);
    int64_t age_ms = t != NULL ? now_ms - t->since_ms : 0;

    if (t == NULL || age_ms >= 2 * BLAME_MS)
        return false;
    if (age_ms >= BLAME_MS) /* no refusal has begun a window since */
        return (int64_t)t->now * (2 * BLAME_MS - age_ms) >= (int64_t)BLAME_MAX * BLAME_MS;
    return (int64_t)t->now * BLAME_MS + (int64_t)t->before * (BLAME_MS - age_ms) >=
           (int64_t)BLAME_MAX * BLAME_MS;
}
