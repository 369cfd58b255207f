/* deprovision.c - the end of an instance.
 *
 *      its gateways are revoked, each in its own line of changes -> what it was granted is deleted
 *
 * In that order: a crash in between leaves grants that lead to nobody, never a credential that
 * outlived them. */
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "tenancy/grants_priv.h"

struct ending { /* a deprovision under way */
    struct facts *f;
    char *tenant, *instance; /* owned */
    size_t pending;          /* gateways still being revoked, and one for ourselves */
    enum bh_err err;
    char why[200];
    facts_done_cb *done;
    void *ctx;
};

static bool prepare_end(struct facts *f, struct change *c)
{
    struct instance *in = c->to;
    void *v;

    list_each (&in->bindings, it, nxt)
        binding_forget(f, c, list_entry(it, struct binding, link));
    list_each (&in->scopes, it, nxt)
        buf_add_str(&change_put(c, KV_DELETE, NS_SCOPE)->key,
                    list_entry(it, struct scope, link)->key);
    for (size_t i = 0; map_next(&in->gate.principals, &i, &v);)
        grant_join(&change_put(c, KV_DELETE, NS_PRINCIPAL)->key, in->key,
                   str_of(((struct principal *)v)->platform), STR_NULL);
    for (size_t i = 0; map_next(&in->gate.policies, &i, &v);)
        grant_join(&change_put(c, KV_DELETE, NS_POLICY)->key, in->key,
                   str_of(((struct policy *)v)->platform), STR_NULL);
    return true;
}

static void apply_end(struct facts *f, struct change *c)
{
    list_each (&c->to->bindings, it, nxt)
        binding_drop(f, list_entry(it, struct binding, link));
    list_each (&c->to->scopes, it, nxt)
        scope_drop(f, list_entry(it, struct scope, link));
    wishes_drop(c->to);
    change_announce(f, "grant", NULL);
}

static void on_ended(void *ctx, enum bh_err err, const char *why)
{
    struct ending *e = ctx;

    if (e->done != NULL)
        e->done(e->ctx, err, why);
    free(e->tenant);
    free(e->instance);
    free(e);
}

static void on_revoked(void *ctx, enum bh_err err, const char *why)
{
    struct ending *e = ctx;

    if (err != BH_OK && e->err == BH_OK) {
        e->err = err;
        snprintf(e->why, sizeof e->why, "%s", why);
    }
    if (--e->pending > 0)
        return;
    struct change *c = change_new(e->f, prepare_end, apply_end, on_ended, e);
    c->to = facts_find_instance(e->f, str_of(e->tenant), str_of(e->instance));
    if (e->err != BH_OK)
        change_fail(c, e->err, "%s", e->why);
    grant_submit(c, c->to);
}

void grant_deprovision(struct facts *f, struct grant_who who, facts_done_cb *done, void *ctx)
{
    const struct instance *in = facts_find_instance(f, who.tenant, who.instance);

    if (!grant_is_alive(in)) {
        struct change *c = change_new(f, grant_prepare_ready, NULL, done, ctx);
        grant_target(f, c, who);
        grant_submit(c, NULL);
        return;
    }
    struct ending *e = xcalloc(1, sizeof *e);
    *e = (struct ending){.f = f, .done = done, .ctx = ctx, .pending = in->n};
    e->tenant = str_dup(who.tenant);
    e->instance = str_dup(who.instance);
    for (size_t i = 0; i < in->n; i++)
        facts_gateway_revoke(f, str_of(in->gateways[i]->id), on_revoked, e);
}
