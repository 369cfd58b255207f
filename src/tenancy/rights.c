/* rights.c - why an instance may use a bot.  (rights.h has the contract.)
 *
 * Nothing is cached: each question reads the records in memory, so a right ends with its record.
 * Every lookup is one or two probes of a table. */
#include "tenancy/rights.h"
#include <stdlib.h>
#include "base/mem.h"
#include "core/event.h"
#include "tenancy/facts_priv.h"

/* ---- bots that belong to a tenant ---- */

struct own_bot {
    struct gate_bot gate; /* first: gate.bots points here */
    struct str key;       /* platform \x1f bot; in bytes */
    char bytes[];
};

void rights_bot_belongs(struct facts *f, struct str platform, struct str bot, struct str tenant)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, bot, STR_NULL);
    struct own_bot *old = key.p != NULL ? map_get(&f->gate.bots, key) : NULL;

    if (old != NULL) {
        map_del(&f->gate.bots, old->key);
        free(old);
    }
    if (key.p == NULL || str_is_empty(tenant))
        return;
    struct own_bot *b = xcalloc(1, sizeof *b + key.n + tenant.n);
    memcpy(b->bytes, key.p, key.n);
    memcpy(b->bytes + key.n, tenant.p, tenant.n);
    b->key = str_make(b->bytes, key.n);
    b->gate.tenant = str_make(b->bytes + key.n, tenant.n);
    map_put(&f->gate.bots, b->key, b);
}

void rights_free(struct facts *f)
{
    map_done_all(&f->gate.bots);
}

bool rights_may_use(const struct facts *f, const struct right_at *at)
{
    return !gate_is_barred(&f->gate, at->platform, at->bot, at->who.tenant);
}

struct str rights_tenant_of(const struct facts *f, struct str platform, struct str bot)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, bot, STR_NULL);
    const struct gate_bot *b = key.p != NULL ? map_get(&f->gate.bots, key) : NULL;

    return b != NULL ? b->tenant : STR_NULL;
}

/* ---- rights ---- */

/* The instance while it may use the bot; NULL: it has no gateway, or the bot is not for it. */
static const struct gate_instance *user_of(const struct facts *f, const struct right_at *at)
{
    const struct instance_facts *me = facts_find_instance(f, at->who.tenant, at->who.instance);

    return me != NULL && !me->gate.gone &&
                   !gate_is_barred(&f->gate, at->platform, at->bot, at->who.tenant)
               ? &me->gate
               : NULL;
}

/* The key of the operator's route that applies to a place of this bot. */
static struct str route_at(const struct facts *f, const struct right_at *at, struct str key,
                           struct str former)
{
    struct event place = {.platform = at->platform,
                          .bot = at->bot,
                          .route_key = key,
                          .former_key = former};
    struct str chosen = facts_route_key(f, &place);

    return chosen.p != NULL ? chosen : STR("*");
}

bool right_by_person(const struct facts *f, const struct right_at *at, struct str user)
{
    bool proven = user.n > 0 && !user_id_unproven(at->platform, user);
    const struct gate_instance *me = proven ? user_of(f, at) : NULL;
    const struct gate_link *l = me != NULL ? grant_link_of(f, me, at->platform, user) : NULL;

    return l != NULL && gate_counts_on(l, at->bot);
}

bool right_by_scope(const struct facts *f, const struct right_at *at, struct str guild,
                    struct str channel)
{
    const struct gate_instance *me = user_of(f, at);

    return me != NULL && grant_holds(f, me, (struct grant_place){at->platform, guild, channel});
}

bool right_by_route(const struct facts *f, const struct right_at *at, struct str key,
                    struct str former)
{
    return user_of(f, at) != NULL && facts_owns(f, at->platform, route_at(f, at, key, former),
                                                at->who.tenant, at->who.instance);
}

bool right_by_open(const struct facts *f, const struct right_at *at, struct str key,
                   struct str former)
{
    const struct gate_instance *me = user_of(f, at);
    char room[GATE_KEY_MAX];
    struct str chosen = gate_key(room, at->platform, route_at(f, at, key, former), STR_NULL);

    const struct gate_routes *r =
        me != NULL && chosen.p != NULL ? map_get(&f->gate.routes, chosen) : NULL;
    for (const struct list *it = r != NULL ? r->places.next : NULL; r != NULL && it != &r->places;
         it = it->next) {
        const struct gate_place *p = list_entry(it, const struct gate_place, link);
        if (p->open && (p->to != NULL ? p->to == me : str_eq(p->all->name, me->tenant)))
            return true;
    }
    return false;
}

bool right_by_key(const struct facts *f, const struct right_at *at, struct str key)
{
    return user_of(f, at) != NULL &&
           facts_owns(f, at->platform, key, at->who.tenant, at->who.instance);
}

bool right_by_bot(const struct facts *f, const struct right_at *at)
{
    const struct gateway *g = facts_newest_gateway(f, at->who.tenant, at->who.instance);

    return (g != NULL && rights_may_use(f, at) && gateway_has_bot(g, at->platform, at->bot)) ||
           right_by_key(f, at, at->bot) ||
           str_eq(rights_tenant_of(f, at->platform, at->bot), at->who.tenant);
}

bool right_to_menu(const struct facts *f, const struct gateway *g, struct str platform,
                   struct str bot)
{
    struct right_at at = {{str_of(g->tenant), str_of(g->instance)}, platform, bot};

    if (g->bots != NULL)
        return rights_may_use(f, &at) && gateway_has_bot(g, platform, bot);
    return identity_has(g, platform, bot) && right_by_bot(f, &at);
}
