/* policies.c - what an instance wants: whom it listens to (principals) and what is relevant to it
 * (policies).
 *
 * A declaration replaces the one before it as a whole, on disk and in memory, so a gateway that
 * declares at every boot heals whatever was there. */
#include <stdlib.h>
#include "base/mem.h"
#include "tenancy/grants_priv.h"

static const char *const principal_words[] = {
    [GATE_OWNER_ONLY] = "owner-only",
    [GATE_ALLOW_LIST] = "allow-list",
    [GATE_ANY] = "any",
};

const char *grant_principal_word(enum gate_principal mode)
{
    return principal_words[mode];
}

bool grant_principal_parse(struct str word, enum gate_principal *ret_mode)
{
    for (size_t i = 0; i < ARRAY_LEN(principal_words); i++)
        if (str_eq(word, str_of(principal_words[i]))) {
            *ret_mode = (enum gate_principal)i;
            return true;
        }
    return false;
}

/* ---- sets of ids: the map's values are its keys ---- */

void grant_set_add(struct map *set, struct str id)
{
    if (map_get(set, id) != NULL)
        return;
    char *copy = str_dup(id);
    map_put(set, str_make(copy, id.n), copy);
}

static void set_done(struct map *set)
{
    void *v;

    for (size_t i = 0; map_next(set, &i, &v);)
        free(v);
    map_done(set);
}

/* In the order they were given, so that a record reads like what was declared. */
static void put_ids(struct jw *w, const char *key, const struct str *ids, size_t n)
{
    jw_key(w, key);
    jw_arr(w);
    for (size_t i = 0; i < n; i++)
        jw_str(w, ids[i]);
    jw_end_arr(w);
}

static bool ids_bad(struct change *c, const char *what, const struct str *ids, size_t n)
{
    if (n > GRANT_LIST_MAX) {
        change_fail(c, BH_MALFORMED, "%s may hold %d ids at most", what, GRANT_LIST_MAX);
        return true;
    }
    for (size_t i = 0; i < n; i++)
        if (grant_id_bad(c, what, ids[i]))
            return true;
    return false;
}

/* ---- principals ---- */

struct principal *principal_new(struct str platform, enum gate_principal mode)
{
    struct principal *p = xcalloc(1, sizeof *p + platform.n + 1);

    p->a.mode = mode;
    memcpy(p->platform, platform.p, platform.n);
    return p;
}

static void principal_free(void *thing)
{
    struct principal *p = thing;

    if (p != NULL)
        set_done(&p->a.allow);
    free(p);
}

void principal_attach(struct instance_facts *in, struct principal *p)
{
    principal_free(map_put(&in->gate.principals, str_of(p->platform), p));
}

bool grant_prepare_ready(struct facts *f, struct change *c)
{
    (void)f;
    return c->err == BH_OK; /* the items were written when it was asked for */
}

static void apply_principal(struct facts *f, struct change *c)
{
    principal_attach(c->to, c->thing);
    c->thing = NULL;
    change_announce(f, "grant", NULL);
}

void grant_principal(struct facts *f, struct grant_who who, struct str platform,
                     enum gate_principal mode, const struct str *allow, size_t n_allow,
                     facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, grant_prepare_ready, apply_principal, done, ctx);

    if (str_is_empty(platform))
        platform = STR("*");
    if (!change_name_bad(c, "platform", platform, true) &&
        !ids_bad(c, "the allow list", allow, n_allow) && grant_target(f, c, who) != NULL) {
        struct principal *p = c->thing = principal_new(platform, mode);
        struct change_item *item = change_put(c, KV_PUT, NS_PRINCIPAL);
        struct jw w = jw_begin(&item->value);
        c->thing_free = principal_free;
        for (size_t i = 0; i < n_allow; i++)
            grant_set_add(&p->a.allow, allow[i]);
        grant_join(&item->key, c->to->key, platform, STR_NULL);
        jw_obj(&w);
        grant_put_who(&w, c->to);
        jw_kstr(&w, "platform", platform);
        jw_kstr(&w, "mode", str_of(grant_principal_word(mode)));
        put_ids(&w, "allow", allow, n_allow);
        jw_end_obj(&w);
    }
    grant_submit(c, c->to);
}

/* ---- policies ---- */

struct policy *policy_new(struct str platform, bool require_address, bool allow_other_bots)
{
    struct policy *p = xcalloc(1, sizeof *p + platform.n + 1);

    p->p.require_address = require_address;
    p->p.allow_other_bots = allow_other_bots;
    memcpy(p->platform, platform.p, platform.n);
    return p;
}

static void policy_free(void *thing)
{
    struct policy *p = thing;

    if (p != NULL)
        set_done(&p->p.free_places);
    free(p);
}

void policy_attach(struct instance_facts *in, struct policy *p)
{
    policy_free(map_put(&in->gate.policies, str_of(p->platform), p));
}

static void apply_policy(struct facts *f, struct change *c)
{
    policy_attach(c->to, c->thing);
    c->thing = NULL;
    change_announce(f, "grant", NULL);
}

void grant_policy(struct facts *f, struct grant_who who, const struct grant_policy *asked,
                  facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, grant_prepare_ready, apply_policy, done, ctx);

    if (!change_name_bad(c, "platform", asked->platform, true) &&
        !ids_bad(c, "freeResponseScopes", asked->free_places, asked->n_free_places) &&
        grant_target(f, c, who) != NULL) {
        struct policy *p = c->thing =
            policy_new(asked->platform, asked->require_address, asked->allow_other_bots);
        struct change_item *item = change_put(c, KV_PUT, NS_POLICY);
        struct jw w = jw_begin(&item->value);
        c->thing_free = policy_free;
        for (size_t i = 0; i < asked->n_free_places; i++)
            grant_set_add(&p->p.free_places, asked->free_places[i]);
        grant_join(&item->key, c->to->key, asked->platform, STR_NULL);
        jw_obj(&w);
        grant_put_who(&w, c->to);
        jw_kstr(&w, "platform", asked->platform);
        jw_kbool(&w, "requireAddress", asked->require_address);
        jw_kbool(&w, "allowOtherBots", asked->allow_other_bots);
        put_ids(&w, "freeResponseScopes", asked->free_places, asked->n_free_places);
        jw_end_obj(&w);
    }
    grant_submit(c, c->to);
}

void tenant_set(struct facts *f, struct str name, bool require_address)
{
    struct tenant_facts *t = facts_make_tenant(f, name);

    list_remove(&t->strict);
    if (require_address)
        list_append(&f->strict, &t->strict);
    list_each (&t->instances, it, nxt)
        list_entry(it, struct instance_facts, link)->gate.default_require_address = require_address;
}

static void apply_tenant(struct facts *f, struct change *c)
{
    tenant_set(f, str_of(c->id), c->items[0].verb == KV_PUT);
    change_announce(f, "grant", NULL);
}

void grant_tenant_default(struct facts *f, struct str tenant, bool require_address,
                          facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, grant_prepare_ready, apply_tenant, done, ctx);

    if (!change_name_bad(c, "tenant", tenant, true)) {
        struct change_item *item = change_put(c, require_address ? KV_PUT : KV_DELETE, NS_TENANT);
        c->id = str_dup(tenant);
        buf_add_str(&item->key, tenant);
        buf_add_z(&item->value, "{\"requireAddress\":true}");
    }
    change_submit(c, NULL);
}

void policies_drop(struct instance_facts *in)
{
    void *v;

    for (size_t i = 0; map_next(&in->gate.principals, &i, &v);)
        principal_free(v);
    for (size_t i = 0; map_next(&in->gate.policies, &i, &v);)
        policy_free(v);
    map_done(&in->gate.principals);
    map_done(&in->gate.policies);
}
