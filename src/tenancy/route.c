/* route.c - the choice among routes.  (route.h has the order.) */
#include "tenancy/route.h"
#include "base/mem.h"

struct str route_choose(const struct event *ev, route_leads_fn *leads, void *ctx)
{
    const struct str keys[] = {ev->route_key, ev->former_key, ev->bot};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (!str_is_empty(keys[i]) && leads(ctx, ev->platform, keys[i]))
            return keys[i];
    return ev->route_key;
}
