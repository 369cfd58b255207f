/* route.c - the choice among routes.  (route.h has the order.) */
#include "tenancy/route.h"
#include "base/mem.h"
#include "tenancy/facts.h"

struct str route_choose(const struct event *ev, route_leads_fn *leads, void *ctx)
{
    const struct str keys[] = {ev->route_key, ev->former_key, ev->bot};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (!str_is_empty(keys[i]) && leads(ctx, ev->platform, keys[i]))
            return keys[i];
    return ev->route_key;
}

bool facts_owns_place(const struct facts *f, const struct event *ev, struct str tenant,
                      struct str instance)
{
    struct str key = facts_route_key(f, ev);

    if (!facts_has_route(f, ev->platform, key))
        key = STR("*");
    return facts_owns(f, ev->platform, key, tenant, instance);
}
