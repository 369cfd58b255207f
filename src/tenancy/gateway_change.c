/* gateway_change.c - adding, rotating, revoking gateways; adding and removing routes. */
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "bus/bus.h"
#include "tenancy/change.h"
#include "tenancy/secrets.h"

static void submit(struct change *c)
{
    change_submit(c, c->id != NULL ? c->id : c->gateway != NULL ? c->gateway->id : NULL);
}

static void put_gateway(struct facts *f, struct change *c, enum store_kv_verb verb)
{
    struct change_item *item = change_put(c, verb, NS_GATEWAY);

    buf_add_z(&item->key, c->gateway->id);
    gateway_write(f, c->gateway, &item->value);
}

static void put_route(struct facts *f, struct change *c, enum store_kv_verb verb)
{
    const struct route *r = c->route;
    struct change_item *item = change_put(c, verb, NS_ROUTE);

    route_write_key(&item->key, str_of(r->platform), str_of(r->key), str_of(r->tenant),
                    str_of(r->instance));
    if (verb == KV_PUT)
        route_write(r, &item->value);
}

/* The operator's word about a key ends what others have claimed of it. */
static void put_operators_route(struct facts *f, struct change *c)
{
    struct route *r = c->route;
    const struct route *known = facts_find_like(f, r);

    r->created_ms = known != NULL ? known->created_ms : clock_wall_ms(f->env.clock);
    put_route(f, c, KV_PUT);
    for (const struct route *it = NULL; (it = facts_foreign_claim(f, r, it)) != NULL;)
        route_write_key(&change_put(c, KV_DELETE, NS_ROUTE)->key, str_of(it->platform),
                        str_of(it->key), str_of(it->tenant), str_of(it->instance));
}

static void apply_operators_route(struct facts *f, struct change *c)
{
    struct route *known = facts_find_like(f, c->route), *claim;

    while ((claim = facts_foreign_claim(f, c->route, NULL)) != NULL)
        facts_unlink_route(f, claim);
    if (known != NULL) {
        facts_set_route(f, known, ROUTE_OPERATOR, c->route->open);
        return;
    }
    facts_link_route(f, c->route);
    c->route = NULL;
}

/* ---- gateways ---- */

struct gateway *gateway_copy(const struct gateway *g)
{
    struct gateway *n = xcalloc(1, sizeof *n);

    *n = *g;
    list_init(&n->link);
    list_init(&n->by_inst);
    n->id = xstrdup(g->id);
    n->tenant = xstrdup(g->tenant);
    n->instance = xstrdup(g->instance);
    n->wake_url = xstrdup(g->wake_url);
    n->platform = xstrdup(g->platform);
    n->bot = xstrdup(g->bot);
    n->also = xstrdup(g->also);
    n->display_name = xstrdup(g->display_name);
    n->words = NULL;
    n->shares_id = false;
    for (size_t i = 0; i < g->n_secrets; i++)
        n->secrets[i].text = xstrdup(g->secrets[i].text);
    return n;
}

char *gateway_new_secret(struct facts *f, struct buf *ret_secret)
{
    uint8_t raw[32];
    struct buf hex = BUF_INIT;

    rand_bytes(f->env.rand, raw, sizeof raw);
    hex_add(&hex, raw, sizeof raw);
    secret_wipe(raw, sizeof raw);
    buf_add_str(ret_secret, buf_str(&hex));
    char *z = str_dup(buf_str(&hex));
    buf_wipe(&hex);
    return z;
}

bool gateway_wake_url_ok(struct str url)
{
    if (!str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        return false;
    for (size_t i = 0; i < url.n; i++)
        if ((unsigned char)url.p[i] <= ' ' || url.p[i] == 0x7f)
            return false;
    return url.n <= 2048;
}

void gateway_apply(struct facts *f, struct change *c)
{
    struct gateway *known = map_get(&f->by_id, str_of(c->gateway->id));
    char *id = xstrdup(c->gateway->id);

    if (known != NULL)
        facts_relink_gateway(f, known, c->gateway);
    else
        facts_link_gateway(f, c->gateway);
    c->gateway = NULL;
    if (c->route != NULL)
        apply_operators_route(f, c);
    change_announce(f, "gateway", id);
    free(id);
}

static bool prepare_add(struct facts *f, struct change *c)
{
    const struct gateway *known = facts_gateway(f, str_of(c->gateway->id));

    if (known != NULL && known->revoked_ms == 0)
        return change_fail(c, BH_CONFLICT,
                           "there is a gateway \"%s\" already; choose another --id, or "
                           "give it a new secret with: bellhop gateway rotate %s",
                           known->id, known->id);
    c->gateway->created_ms = clock_wall_ms(f->env.clock);
    put_gateway(f, c, known != NULL ? KV_PUT : KV_INSERT);
    if (c->route != NULL)
        put_operators_route(f, c);
    return true;
}

static char *dup_opt(struct str s)
{
    return str_is_empty(s) ? NULL : str_dup(s);
}

static bool spec_ok(struct change *c, const struct gateway_spec *s)
{
    if (change_name_bad(c, "id", s->id, false) || change_name_bad(c, "tenant", s->tenant, true) ||
        change_name_bad(c, "instance", s->instance, false) ||
        change_name_bad(c, "platform", s->platform, false) ||
        change_name_bad(c, "bot", s->bot, false))
        return false;
    if (!str_is_empty(s->wake_url) && !gateway_wake_url_ok(s->wake_url))
        return change_fail(c, BH_MALFORMED, "the wake URL must start with http:// or https://");
    return true;
}

static void random_id(struct facts *f, struct buf *out)
{
    static const char letters[] = "abcdefghjkmnpqrstuvwxyz23456789"; /* no look-alikes */

    buf_add_z(out, "gw-");
    for (int i = 0; i < 10; i++)
        buf_add_c(out, letters[rand_below(f->env.rand, sizeof letters - 1)]);
}

void facts_gateway_add(struct facts *f, const struct gateway_spec *spec, struct buf *ret_id,
                       struct buf *ret_secret, facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_add, gateway_apply, done, ctx);

    if (spec_ok(c, spec)) {
        struct gateway *g = c->gateway = xcalloc(1, sizeof *g);
        list_init(&g->link);
        list_init(&g->by_inst);
        if (str_is_empty(spec->id))
            random_id(f, ret_id);
        else
            buf_add_str(ret_id, spec->id);
        g->id = str_dup(buf_str(ret_id));
        g->tenant = str_dup(spec->tenant);
        g->instance = str_is_empty(spec->instance) ? xstrdup(g->id) : str_dup(spec->instance);
        g->wake_url = dup_opt(spec->wake_url);
        g->platform = dup_opt(spec->platform);
        g->bot = dup_opt(spec->bot);
        g->secrets[0].text = gateway_new_secret(f, ret_secret);
        g->n_secrets = 1;
        if (spec->open && g->platform != NULL && g->bot != NULL) {
            c->route = route_new(spec->platform, spec->bot, spec->tenant, str_of(g->instance));
            c->route->open = true;
        }
    }
    submit(c);
}

/* The gateway a change is about, as a copy to be changed; NULL and a reason when there is none. */
static struct gateway *copy_for(struct facts *f, struct change *c, bool tombstone_too)
{
    const struct gateway *known = facts_gateway(f, str_of(c->id));

    if (known == NULL)
        change_fail(c, BH_NOT_FOUND, "there is no gateway \"%s\"", c->id);
    else if (known->revoked_ms != 0 && !tombstone_too)
        change_fail(c, BH_REFUSED, "the gateway \"%s\" was revoked", c->id);
    else
        c->gateway = gateway_copy(known);
    return c->gateway;
}

static bool prepare_rotate(struct facts *f, struct change *c)
{
    struct gateway *g = copy_for(f, c, false);

    if (g == NULL)
        return false;
    g->rotated_ms = clock_wall_ms(f->env.clock);
    secrets_push(g, c->secret, g->rotated_ms, c->keep_ms, false);
    c->secret = NULL;
    put_gateway(f, c, KV_PUT);
    return true;
}

void facts_gateway_rotate(struct facts *f, struct str id, int64_t keep_ms, struct buf *ret_secret,
                          facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_rotate, gateway_apply, done, ctx);

    c->id = str_dup(id);
    c->keep_ms = keep_ms;
    c->secret = gateway_new_secret(f, ret_secret);
    submit(c);
}

static bool prepare_revoke(struct facts *f, struct change *c)
{
    struct gateway *g = copy_for(f, c, true);

    if (g == NULL)
        return false;
    if (g->revoked_ms == 0)
        g->revoked_ms = clock_wall_ms(f->env.clock);
    gateway_wipe_secrets(g);
    put_gateway(f, c, KV_PUT);
    return true;
}

static void apply_revoke(struct facts *f, struct change *c)
{
    gateway_apply(f, c);
    bus_publish(f->env.bus, STR("revoked"), str_of(c->id));
}

void facts_gateway_revoke(struct facts *f, struct str id, facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_revoke, apply_revoke, done, ctx);

    c->id = str_dup(id);
    submit(c);
}

static bool prepare_set(struct facts *f, struct change *c)
{
    struct gateway *g = copy_for(f, c, false);

    if (g == NULL)
        return false;
    free(g->wake_url);
    g->wake_url = c->wake_url;
    c->wake_url = NULL;
    put_gateway(f, c, KV_PUT);
    return true;
}

void facts_gateway_set(struct facts *f, struct str id, struct str wake_url, facts_done_cb *done,
                       void *ctx)
{
    struct change *c = change_new(f, prepare_set, gateway_apply, done, ctx);

    c->id = str_dup(id);
    c->wake_url = dup_opt(wake_url);
    if (!str_is_empty(wake_url) && !gateway_wake_url_ok(wake_url))
        change_fail(c, BH_MALFORMED, "the wake URL must start with http:// or https://");
    submit(c);
}

static bool prepare_note(struct facts *f, struct change *c)
{
    if (copy_for(f, c, false) == NULL)
        return false;
    put_gateway(f, c, KV_PUT);
    return true;
}

static void apply_note(struct facts *f, struct change *c)
{
    (void)f; /* memory knew it before the disk did */
    (void)c;
}

void gateway_note(struct facts *f, struct str id)
{
    struct change *c = change_new(f, prepare_note, apply_note, NULL, NULL);

    c->id = str_dup(id);
    submit(c);
}

static bool prepare_ackless(struct facts *f, struct change *c)
{
    struct gateway *g = copy_for(f, c, false);

    if (g == NULL)
        return false;
    g->ackless = c->ackless;
    put_gateway(f, c, KV_PUT);
    return true;
}

static void apply_ackless(struct facts *f, struct change *c)
{
    struct gateway *known = map_get(&f->by_id, str_of(c->id));

    known->ackless = c->ackless;
}

void facts_gateway_set_ackless(struct facts *f, struct str id, bool ackless)
{
    struct gateway *known = map_get(&f->by_id, id);
    struct change *c = change_new(f, prepare_ackless, apply_ackless, NULL, NULL);

    if (known != NULL)
        known->ackless = ackless; /* how to settle is decided now; the record only remembers it */
    c->id = str_dup(id);
    c->ackless = ackless;
    submit(c);
}

void facts_gateway_is_newer(struct facts *f, struct str id)
{
    struct gateway *known = map_get(&f->by_id, id);

    if (known == NULL || known->newer)
        return;
    known->newer = true;
    facts_find_instance(f, str_of(known->tenant), str_of(known->instance))->gate.newer = true;
    gateway_note(f, id);
}

/* ---- routes ---- */

/* Has the tenant more than one instance that is alive? */
static bool has_several(const struct facts *f, const char *tenant)
{
    const struct tenant_facts *t = map_get(&f->tenants, str_of(tenant));

    return t != NULL && t->gate.live.next->next != &t->gate.live && !list_is_empty(&t->gate.live);
}

static bool prepare_route_add(struct facts *f, struct change *c)
{
    const struct route *r = c->route;

    if (!r->open && strcmp(r->key, "*") == 0)
        return change_fail(c, BH_MALFORMED,
                           "\"*\" is everything there is, and can only be opened to everybody: "
                           "--open");
    if (r->open && r->instance == NULL && has_several(f, r->tenant))
        return change_fail(c, BH_MALFORMED,
                           "the tenant \"%s\" has several instances: say which one everybody "
                           "reaches with --instance",
                           r->tenant);
    put_operators_route(f, c);
    return true;
}

static void apply_route_add(struct facts *f, struct change *c)
{
    apply_operators_route(f, c);
    change_announce(f, "route", NULL);
}

static bool prepare_route_remove(struct facts *f, struct change *c)
{
    if (facts_find_like(f, c->route) == NULL)
        return change_fail(c, BH_NOT_FOUND, "there is no such route; see: bellhop route list");
    put_route(f, c, KV_DELETE);
    return true;
}

static void apply_route_remove(struct facts *f, struct change *c)
{
    struct route *r = facts_find_like(f, c->route);

    if (r != NULL)
        facts_unlink_route(f, r);
    change_announce(f, "route", NULL);
}

static void route_change(struct change *c, const struct route_spec *s)
{
    if (!change_name_bad(c, "platform", s->platform, true) &&
        !change_name_bad(c, "key", s->key, true) &&
        !change_name_bad(c, "tenant", s->tenant, true) &&
        !change_name_bad(c, "instance", s->instance, false)) {
        c->route = route_new(s->platform, s->key, s->tenant, s->instance);
        c->route->open = s->open;
    }
    submit(c);
}

void facts_route_add(struct facts *f, const struct route_spec *spec, facts_done_cb *done, void *ctx)
{
    route_change(change_new(f, prepare_route_add, apply_route_add, done, ctx), spec);
}

void facts_route_remove(struct facts *f, const struct route_spec *spec, facts_done_cb *done,
                        void *ctx)
{
    route_change(change_new(f, prepare_route_remove, apply_route_remove, done, ctx), spec);
}
