/* rate.c - design.  (rate.h has the contract.)
 *
 * An instance carries its own bucket; those of the tenants are made when first needed and stay. */
#include "relay/out/rate.h"
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/sleep/instance.h"

#define BURST 5 /* seconds' worth at once */

struct tenant_rate {
    struct bucket_level level;
    size_t name_n;
    char name[];
};

struct rates {
    struct map tenants; /* name -> struct tenant_rate; owned */
};

struct rates *rates_new(void)
{
    return xcalloc(1, sizeof(struct rates));
}

void rates_free(struct rates *t)
{
    void *level;

    if (t == NULL)
        return;
    for (size_t pos = 0; map_next(&t->tenants, &pos, &level);)
        free(level);
    map_done(&t->tenants);
    free(t);
}

static struct bucket_level *level_of(struct rates *rates, struct str tenant)
{
    struct tenant_rate *t = map_get(&rates->tenants, tenant);

    if (t == NULL) {
        t = xcalloc(1, sizeof *t + tenant.n);
        t->name_n = tenant.n;
        memcpy(t->name, tenant.p, tenant.n);
        map_put(&rates->tenants, str_make(t->name, t->name_n), t);
    }
    return &t->level;
}

bool rate_take(struct instance *i, uint32_t n)
{
    struct relay *r = i->relay;
    int64_t now_ms = clock_now_ms(r->env.clock);
    uint32_t mine = r->lim.instance_actions, ours = r->lim.tenant_actions;

    for (uint32_t k = 0; k < n; k++)
        if (!bucket_take(&i->actions, now_ms, mine, mine * BURST) ||
            !bucket_take(level_of(r->rates, instance_tenant(i)), now_ms, ours, ours * BURST))
            return false;
    return true;
}
