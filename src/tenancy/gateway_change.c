/* gateway_change.c - adds, rotates and revokes gateways, adds and removes routes, ends instances.
 * (facts.h and grants.h have the contracts.) */
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/observers.h"
#include "tenancy/grants_priv.h"

static void submit(struct change *c)
{
    change_submit(c, c->id != NULL ? c->id : c->gateway != NULL ? c->gateway->id : NULL);
}

void gateway_put(struct change *c, enum store_kv_verb verb, const struct gateway *g)
{
    struct gateway_record r;

    gateway_view(g, &r);
    change_put(c, verb, &gateway_form, &r);
}

void route_put(struct change *c, enum store_kv_verb verb, const struct route *r)
{
    struct route_record rec = route_view(r);

    change_put(c, verb, &route_form, &rec);
}

/* Writes an operator's route and deletes the claims of other tenants to its key. */
static void put_operators_route(struct facts *f, struct change *c, struct route *r)
{
    const struct route *known = facts_find_like(f, r);

    r->created_ms = known != NULL ? known->created_ms : clock_wall_ms(f->env.clock);
    route_put(c, KV_PUT, r);
    for (const struct route *it = NULL; (it = facts_foreign_claim(f, r, it)) != NULL;)
        route_put(c, KV_DELETE, it);
}

/* The facts own @r afterwards, or it is freed. */
static void apply_operators_route(struct facts *f, struct route *r)
{
    struct route *known = facts_find_like(f, r), *claim;

    while ((claim = facts_foreign_claim(f, r, NULL)) != NULL)
        facts_unlink_route(f, claim);
    if (known == NULL) {
        facts_link_route(f, r);
        return;
    }
    facts_set_route(f, known, ROUTE_OPERATOR, r->open);
    free(r);
}

/* ---- gateways ---- */

char *gateway_new_secret(struct facts *f, struct buf *ret_secret)
{
    uint8_t raw[32];
    BUF_SECRET hex = BUF_INIT;

    rand_bytes(f->env.rand, raw, sizeof raw);
    hex_add(&hex, raw, sizeof raw);
    secret_wipe(raw, sizeof raw);
    buf_add_str(ret_secret, buf_str(&hex));
    return str_dup(buf_str(&hex));
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
    for (size_t i = 0; i < c->n_routes; i++)
        apply_operators_route(f, c->routes[i]);
    c->n_routes = 0;
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
    gateway_put(c, known != NULL ? KV_PUT : KV_INSERT, c->gateway);
    for (size_t i = 0; i < c->n_routes; i++)
        put_operators_route(f, c, c->routes[i]);
    return true;
}

/* An operator may give a bot only to the tenant that it belongs to. */
static bool is_foreign(struct change *c, struct str platform, struct str bot, struct str tenant)
{
    if (!gate_is_barred(&c->facts->gate, platform, bot, tenant))
        return false;
    return !change_fail(c, BH_REFUSED, "the %.*s bot \"%.*s\" belongs to another tenant",
                        STR_FMT(platform), STR_FMT(bot));
}

static bool spec_ok(struct change *c, const struct gateway_spec *s)
{
    if (change_name_bad(c, "id", s->id, false) || change_name_bad(c, "tenant", s->tenant, true) ||
        change_name_bad(c, "instance", s->instance, false))
        return false;
    for (size_t i = 0; i < s->n_bots; i++)
        if (change_name_bad(c, "platform", s->bots[i].platform, true) ||
            change_name_bad(c, "bot", s->bots[i].bot, true) ||
            is_foreign(c, s->bots[i].platform, s->bots[i].bot, s->tenant))
            return false;
    if (s->n_bots > IDENTITIES_MAX)
        return change_fail(c, BH_MALFORMED, "a gateway is added for %d bots at most",
                           IDENTITIES_MAX);
    if (!str_is_empty(s->wake_url) && !gateway_wake_url_ok(s->wake_url))
        return change_fail(c, BH_MALFORMED, "the wake URL must start with http:// or https://");
    return true;
}

/* The bots of @spec are its identities too, the first one first. */
static struct gateway *new_record(const struct gateway_spec *spec, struct str id)
{
    struct gateway_record r = {.id = id,
                               .tenant = spec->tenant,
                               .instance = spec->instance,
                               .wake_url = spec->wake_url,
                               .n_bots = spec->n_bots};

    for (size_t i = 0; i < spec->n_bots; i++) {
        r.bots[i] = (struct gateway_pair){spec->bots[i].platform, spec->bots[i].bot};
        if (i > 0)
            r.also[r.n_also++] = r.bots[i];
    }
    if (spec->n_bots > 0) {
        r.platform = spec->bots[0].platform;
        r.bot = spec->bots[0].bot;
    }
    return gateway_new(&r);
}

/* Adds @r to the routes of the change, and returns it. */
static struct route *change_route(struct change *c, struct route *r)
{
    c->routes = xrealloc(c->routes, (c->n_routes + 1) * sizeof(struct route *));
    return c->routes[c->n_routes++] = r;
}

void facts_gateway_add(struct facts *f, const struct gateway_spec *spec, struct buf *ret_id,
                       struct buf *ret_secret, facts_done_cb *done, void *ctx)
{
    static const char letters[] = "abcdefghjkmnpqrstuvwxyz23456789"; /* no look-alikes */
    struct change *c = change_new(f, prepare_add, gateway_apply, done, ctx);

    if (spec_ok(c, spec)) {
        buf_add_str(ret_id, str_is_empty(spec->id) ? STR("gw-") : spec->id);
        for (int i = 0; i < 10 && str_is_empty(spec->id); i++)
            buf_add_c(ret_id, letters[rand_below(f->env.rand, sizeof letters - 1)]);
        c->gateway = new_record(spec, buf_str(ret_id));
        c->gateway->secrets[0].text = gateway_new_secret(f, ret_secret);
        c->gateway->n_secrets = 1;
        for (size_t i = 0; i < spec->n_bots; i++)
            if (spec->bots[i].open)
                change_route(c, route_new(spec->bots[i].platform, spec->bots[i].bot, spec->tenant,
                                          str_of(c->gateway->instance)))
                    ->open = true;
    }
    submit(c);
}

/* Sets c->gateway to a copy of the gateway c->id.  NULL: there is none, and the change fails. */
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

/* Writes the copy, with what prepare() changed in it. */
static bool put_copy(struct change *c)
{
    gateway_put(c, KV_PUT, c->gateway);
    return true;
}

static bool prepare_rotate(struct facts *f, struct change *c)
{
    struct gateway *g = copy_for(f, c, false);

    if (g == NULL)
        return false;
    g->rotated_ms = clock_wall_ms(f->env.clock);
    secrets_push(g, c->secret, g->rotated_ms, c->keep_ms, false);
    c->secret = NULL;
    return put_copy(c);
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
    return put_copy(c);
}

static void apply_revoke(struct facts *f, struct change *c)
{
    gateway_apply(f, c);
    observers_tell(f->env.observers, "revoked", str_of(c->id));
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
    return put_copy(c);
}

void facts_gateway_set(struct facts *f, struct str id, struct str wake_url, facts_done_cb *done,
                       void *ctx)
{
    struct change *c = change_new(f, prepare_set, gateway_apply, done, ctx);

    c->id = str_dup(id);
    c->wake_url = str_dup_opt(wake_url);
    if (!str_is_empty(wake_url) && !gateway_wake_url_ok(wake_url))
        change_fail(c, BH_MALFORMED, "the wake URL must start with http:// or https://");
    submit(c);
}

static bool prepare_note(struct facts *f, struct change *c)
{
    return copy_for(f, c, false) != NULL && put_copy(c);
}

static void apply_note(struct facts *f, struct change *c)
{
    /* memory was changed before the write */
}

void gateway_note(struct facts *f, struct str id)
{
    struct change *c = change_new(f, prepare_note, apply_note, NULL, NULL);

    c->id = str_dup(id);
    submit(c);
}

void facts_gateway_set_ackless(struct facts *f, struct str id, bool ackless)
{
    struct gateway *known = map_get(&f->by_id, id);

    if (known == NULL)
        return;
    known->ackless = ackless;
    gateway_note(f, id);
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

void facts_gateway_drops(struct facts *f, struct str id)
{
    struct gateway *known = map_get(&f->by_id, id);

    if (known == NULL || known->drops)
        return;
    known->drops = true;
    gateway_note(f, id);
}

/* ---- routes ---- */

static bool prepare_route_add(struct facts *f, struct change *c)
{
    struct route *r = c->routes[0];
    struct str some[2];

    if (is_foreign(c, str_of(r->platform), str_of(r->key), str_of(r->tenant)))
        return false;
    if (!r->open && strcmp(r->key, "*") == 0)
        return change_fail(c, BH_MALFORMED,
                           "\"*\" is everything there is, and can only be opened to everybody: "
                           "--open");
    if (r->open && r->instance == NULL &&
        facts_instances_of(f, str_of(r->tenant), some, ARRAY_LEN(some)) > 1)
        return change_fail(c, BH_MALFORMED,
                           "the tenant \"%s\" has several instances: say which one everybody "
                           "reaches with --instance",
                           r->tenant);
    put_operators_route(f, c, r);
    return true;
}

static void apply_route_add(struct facts *f, struct change *c)
{
    apply_operators_route(f, c->routes[0]);
    c->n_routes = 0;
    change_announce(f, "route", NULL);
}

static bool prepare_route_remove(struct facts *f, struct change *c)
{
    if (facts_find_like(f, c->routes[0]) == NULL)
        return change_fail(c, BH_NOT_FOUND, "there is no such route; see: bellhop route list");
    route_put(c, KV_DELETE, c->routes[0]);
    return true;
}

static void apply_route_remove(struct facts *f, struct change *c)
{
    struct route *r = facts_find_like(f, c->routes[0]);

    if (r != NULL)
        facts_unlink_route(f, r);
    change_announce(f, "route", NULL);
}

static void submit_route(struct change *c, const struct route_spec *s)
{
    if (!change_name_bad(c, "platform", s->platform, true) &&
        !change_name_bad(c, "key", s->key, true) &&
        !change_name_bad(c, "tenant", s->tenant, true) &&
        !change_name_bad(c, "instance", s->instance, false))
        change_route(c, route_new(s->platform, s->key, s->tenant, s->instance))->open = s->open;
    submit(c);
}

void facts_route_add(struct facts *f, const struct route_spec *spec, facts_done_cb *done, void *ctx)
{
    submit_route(change_new(f, prepare_route_add, apply_route_add, done, ctx), spec);
}

void facts_route_remove(struct facts *f, const struct route_spec *spec, facts_done_cb *done,
                        void *ctx)
{
    submit_route(change_new(f, prepare_route_remove, apply_route_remove, done, ctx), spec);
}

/* ---- the end of an instance ----
 *
 * One transaction revokes its gateways, deletes its grants and increments its life.
 *
 * The life (record "life") counts how often an instance of this name ended.  In the relay, mail and
 * chats belong to one life of a name.  The next instance of the name has another life.  So it never
 * gets the mailbox of the old one, even when a crash follows the transaction. */

struct life_record {
    struct str tenant, instance;
    uint32_t life;
    int64_t since_ms;
};
static const struct record_field life_fields[] = {
    NAME_FIELD(struct life_record, tenant, RECORD_KEY),
    NAME_FIELD(struct life_record, instance, RECORD_KEY),
    RECORD_FIELD(struct life_record, life, "life", RECORD_NEEDED),
    RECORD_FIELD(struct life_record, since_ms, "since", 0),
};
const struct record_form life_form = RECORD_FORM("life", struct life_record, life_fields);

bool grant_life_load(void *ctx, struct str key, void *thing)
{
    const struct life_record *r = thing;

    facts_make_instance(ctx, r->tenant, r->instance)->gate.life = r->life;
    return true;
}

struct ending {                /* the revoked records of the instance's gateways */
    struct gateway **gateways; /* owned until apply() */
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

/* The end waits for pending changes of its gateways, which would overwrite the revoked records. */
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

static void put_grants_away(struct facts *f, struct change *c)
{
    struct instance_facts *in = c->to;
    void *v;

    codes_forget(c);
    list_each (&in->gate.people, it, nxt)
        binding_forget(f, c, binding_of(it));
    list_each (&in->scopes, it, nxt)
        scope_put(c, KV_DELETE, in, list_entry(it, struct scope, link));
    struct rule_record r = {.tenant = in->gate.tenant, .instance = in->gate.instance};
    for (size_t i = 0; map_next(&in->gate.principals, &i, &v);) {
        r.platform = str_of(((struct rule *)v)->platform);
        change_put(c, KV_DELETE, &principal_form, &r);
    }
    for (size_t i = 0; map_next(&in->gate.policies, &i, &v);) {
        r.platform = str_of(((struct rule *)v)->platform);
        change_put(c, KV_DELETE, &policy_form, &r);
    }
    if (in->gate.allowance != NULL) {
        struct allowance_record a = {in->gate.tenant, in->gate.instance};
        change_put(c, KV_DELETE, &allowance_form, &a);
    }
}

static bool prepare_end(struct facts *f, struct change *c)
{
    struct instance_facts *in = c->to;
    struct ending *e = c->thing;

    if (!grant_is_alive(in))
        return true; /* another change ended the instance meanwhile */
    e->gateways = xcalloc(in->n_gateways, sizeof(struct gateway *));
    list_each (&in->gateways, it, nxt) {
        struct gateway *g = gateway_copy(list_entry(it, struct gateway, by_inst));
        g->revoked_ms = clock_wall_ms(f->env.clock);
        gateway_wipe_secrets(g);
        gateway_put(c, KV_PUT, g);
        change_hold(c, g->id);
        e->gateways[e->n++] = g;
    }
    put_grants_away(f, c);
    struct life_record r = {in->gate.tenant, in->gate.instance, in->gate.life + 1,
                            clock_wall_ms(f->env.clock)};
    change_put(c, KV_PUT, &life_form, &r);
    return true;
}

static void apply_end(struct facts *f, struct change *c)
{
    struct instance_facts *in = c->to;
    struct ending *e = c->thing;

    for (size_t i = 0; i < e->n; i++) {
        struct gateway *known = map_get(&f->by_id, str_of(e->gateways[i]->id));
        facts_relink_gateway(f, known, e->gateways[i]);
        change_announce(f, "gateway", known->id);
        observers_tell(f->env.observers, "revoked", str_of(known->id));
    }
    e->n = 0;
    codes_drop(f, in);
    list_each (&in->gate.people, it, nxt)
        binding_drop(f, binding_of(it));
    list_each (&in->scopes, it, nxt)
        scope_drop(f, list_entry(it, struct scope, link));
    policies_drop(in);
    in->gate.life++;
    change_announce(f, "grant", NULL);
    observers_tell(f->env.observers, "ended", in->key);
}

void grant_deprovision(struct facts *f, struct grant_who who, facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_end, apply_end, done, ctx);

    c->thing = xcalloc(1, sizeof(struct ending));
    c->thing_free = ending_free;
    c->waits_for = busy_gateway;
    grant_submit(c, grant_target(f, c, who));
}
