/* route_before.c - routes of databases from before they had an origin.
 *
 * Such a route was open to everybody.  One that names an instance stays what its operator meant.
 * One that names none stays open only while every gateway of the tenant was added by an operator:
 * where gateways joined by themselves nobody chose who is reached, so it is closed, and the log
 * says so.  Each is written again with what it is now, so this happens once. */
#include "base/log.h"
#include "store/store.h"
#include "tenancy/facts_priv.h"

static void rewrite(struct facts *f, const struct route *r)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    route_write_key(&key, str_of(r->platform), str_of(r->key), str_of(r->tenant),
                    str_of(r->instance));
    route_write(r, &value);
    struct store_kv item = {KV_PUT, NS_ROUTE, buf_str(&key), buf_str(&value)};
    store_put(f->env.store, &item, 1, true, NULL, NULL);
    buf_done(&key);
    buf_done(&value);
}

void routes_settle(struct facts *f)
{
    list_each (&f->routes, it, nxt) {
        struct route *r = list_entry(it, struct route, link);
        if (r->origin != ROUTE_BEFORE)
            continue;
        bool open = r->instance != NULL || !enroll_any(f, str_of(r->tenant));
        facts_set_route(f, r, ROUTE_OPERATOR, open);
        rewrite(f, r);
        if (!open)
            log_warn(NULL,
                     "this route is closed now, only linked people are heard there: platform=%s "
                     "key=%s tenant=%s; to open it: bellhop route add --open",
                     r->platform, r->key, r->tenant);
    }
}
