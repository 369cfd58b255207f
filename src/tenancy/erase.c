/* erase.c - what tenancy keeps of a tenant or a person goes: instances with their gateways and
 * grants, keys, links.  (facts.h and keys.h have the contract, store/erasure.h the engine.)
 *
 * Routes and allow lists are an operator's decisions: they are counted and stay. */
#include "store/erasure.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"
#include "tenancy/keys.h"

/* ---- instances of a tenant ---- */

static void end_next(struct erasure *e);

static void on_ended(void *ctx, enum bh_err err, const char *why)
{
    if (err != BH_OK)
        erasure_fail(ctx, "An instance could not be ended: ask again.");
    else
        end_next(ctx);
}

static void end_next(struct erasure *e)
{
    const struct erase_subject *s = erasure_subject(e);
    struct facts *f = erasure_ctx(e);
    struct str name;

    if (s->dry || facts_instances_of(f, s->tenant, &name, 1) == 0)
        erasure_next(e);
    else
        grant_deprovision(f, (struct grant_who){s->tenant, name}, on_ended, e);
}

static void end_instances(void *ctx, struct erasure *e)
{
    struct str tenant = erasure_subject(e)->tenant;
    struct list *all;
    uint64_t instances = 0, routes = 0;

    facts_gateways(ctx, &all);
    for (struct list *it = all->next; it != all; it = it->next) {
        const struct gateway *g = list_entry(it, const struct gateway, link);
        instances += str_eq(str_of(g->tenant), tenant) && facts_is_first(ctx, g);
    }
    facts_routes(ctx, &all);
    for (struct list *it = all->next; it != all; it = it->next)
        routes += str_eq(str_of(list_entry(it, const struct route, link)->tenant), tenant);
    erasure_count(e, "instances", instances);
    erasure_count(e, "routes", routes);
    end_next(e);
}

/* ---- links of a person ---- */

/* The key is platform, user, tenant, instance. */
static bool unlink_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);
    struct str platform = erase_part(&key), user = erase_part(&key), tenant = erase_part(&key);

    if (!str_eq(platform, s->platform) || !str_eq(user, s->user))
        return false;
    if (!s->dry)
        grant_unlink(ctx, (struct grant_who){tenant, key},
                     &(struct grant_person){.platform = s->platform, .user = s->user}, NULL, NULL);
    return true;
}

static bool allows_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    for (struct json_iter it = {0}; json_next(json_get(doc, "allow"), &it);)
        if (str_eq(json_as_str(it.value), erasure_subject(e)->user))
            return true;
    return false;
}

static const struct erase_records grants_of_person[] = {
    {"binding", "links", unlink_person, .keep = true},
    {"principal", "allowLists", allows_person, .keep = true},
    {0},
};

const struct eraser facts_eraser = {.of_person = grants_of_person, .tenant = end_instances};

/* ---- keys of a tenant ---- */

static void revoke_next(struct erasure *e);

static void on_revoked(void *ctx, enum bh_err err, const char *why)
{
    if (err != BH_OK && err != BH_NOT_FOUND)
        erasure_fail(ctx, "A key could not be revoked: ask again.");
    else
        revoke_next(ctx);
}

static void revoke_next(struct erasure *e)
{
    struct str id;

    if (!erasure_subject(e)->dry && erasure_take(e, &id))
        keys_revoke(erasure_ctx(e), id, on_revoked, e);
    else
        erasure_next(e);
}

static void revoke_keys(void *ctx, struct erasure *e)
{
    const struct list *keys;
    uint64_t n = 0;

    keys_all(ctx, &keys);
    for (const struct list *it = keys->next; it != keys; it = it->next) {
        const struct key *k = list_entry(it, const struct key, link);
        if (!str_eq(str_of(k->tenant), erasure_subject(e)->tenant) || k->revoked_ms != 0)
            continue;
        erasure_put(e, str_of(k->id));
        n++;
    }
    erasure_count(e, "keys", n);
    revoke_next(e);
}

const struct eraser keys_eraser = {.tenant = revoke_keys};
