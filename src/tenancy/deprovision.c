/* deprovision.c - the end of an instance, in one transaction.
 *
 *      its gateways are revoked + what it was granted is deleted + its life is over: all or nothing
 *
 * The life (record "life", key tenant \x1f instance) counts how often a name was given up.  It is
 * what the relay goes by: mail and chats belong to one life of a name, and the next holder's are
 * another's.  It grows with the rest, so no crash can leave a name that is free and a mailbox that
 * still is the old one. */
#include <stdlib.h>
#include "base/mem.h"
#include "bus/bus.h"
#include "tenancy/grants_priv.h"

struct ending {                /* the gateways as they will be */
    struct gateway **gateways; /* owned, until they are applied */
    size_t n;
};

static void ending_free(void *thing)
{
    struct ending *e = thing;

    for (size_t i = 0; i < e->n; i++)
        gateway_free(e->gateways[i]);
    free(e->gateways);
    free(e);
}

/* A change of one of its gateways that is under way would write the old record over ours. */
static struct subject *busy_gateway(const struct facts *f, const struct change *c)
{
    struct subject *busy = NULL;

    list_each (&c->to->gateways, it, nxt) {
        busy = change_busy(f, list_entry(it, struct gateway, by_inst)->id);
        if (busy != NULL)
            break;
    }
    return busy;
}

static void put_revoked(struct facts *f, struct change *c, const struct gateway *known)
{
    struct ending *e = c->thing;
    struct gateway *g = gateway_copy(known);
    struct change_item *item = change_put(c, KV_PUT, NS_GATEWAY);

    g->revoked_ms = clock_wall_ms(f->env.clock);
    gateway_wipe_secrets(g);
    buf_add_z(&item->key, g->id);
    gateway_write(f, g, &item->value);
    change_hold(c, g->id);
    e->gateways[e->n++] = g;
}

static void put_grants_away(struct facts *f, struct change *c)
{
    struct instance_facts *in = c->to;
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
}

static void put_life(struct facts *f, struct change *c)
{
    struct change_item *item = change_put(c, KV_PUT, NS_LIFE);
    struct jw w = jw_begin(&item->value);

    buf_add_str(&item->key, c->to->key);
    jw_obj(&w);
    grant_put_who(&w, c->to);
    jw_ki64(&w, "life", (int64_t)c->to->gate.life + 1);
    jw_ki64(&w, "since", clock_wall_ms(f->env.clock));
    jw_end_obj(&w);
}

static bool prepare_end(struct facts *f, struct change *c)
{
    struct instance_facts *in = c->to;
    struct ending *e = c->thing;

    if (!grant_is_alive(in))
        return true; /* it was ended while this one waited: nothing is left to do */
    e->gateways = xcalloc(in->n_gateways, sizeof(struct gateway *));
    list_each (&in->gateways, it, nxt)
        put_revoked(f, c, list_entry(it, struct gateway, by_inst));
    put_grants_away(f, c);
    put_life(f, c);
    return true;
}

static void apply_revoked(struct facts *f, struct ending *e)
{
    for (size_t i = 0; i < e->n; i++) {
        struct gateway *known = map_get(&f->by_id, str_of(e->gateways[i]->id));
        facts_relink_gateway(f, known, e->gateways[i]);
        change_announce(f, "gateway", known->id);
        bus_publish(f->env.bus, STR("revoked"), str_of(known->id));
    }
    e->n = 0;
}

static void apply_end(struct facts *f, struct change *c)
{
    struct instance_facts *in = c->to;

    apply_revoked(f, c->thing);
    list_each (&in->bindings, it, nxt)
        binding_drop(f, list_entry(it, struct binding, link));
    list_each (&in->scopes, it, nxt)
        scope_drop(f, list_entry(it, struct scope, link));
    policies_drop(in);
    in->gate.life++;
    change_announce(f, "grant", NULL);
    bus_publish(f->env.bus, STR("ended"), in->key);
}

void grant_deprovision(struct facts *f, struct grant_who who, facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_end, apply_end, done, ctx);

    c->thing = xcalloc(1, sizeof(struct ending));
    c->thing_free = ending_free;
    c->waits_for = busy_gateway;
    grant_submit(c, grant_target(f, c, who));
}
