/* facts.c - design.  (facts.h has the contract.)  Long because the lists and the tables over them
 * change together.
 *
 * Everything is in memory twice: as lists in order of age, which own the records, and as tables for
 * the questions of the hot path.  Where a route key leads is worked out when a change may have
 * moved it, so an event costs one lookup.
 *
 *      by_id:     gateway id        -> gateway
 *      instances: tenant, instance  -> its gateways          (wake URL, is it revoked)
 *      buckets:   platform, key     -> routes -> places      (where an event goes: gate.routes)
 */
#include "tenancy/facts.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/store.h"
#include "tenancy/facts_priv.h"
#include "tenancy/route.h"

struct str pair_key(char scratch[PAIR_MAX], struct str a, struct str b)
{
    if (a.n + b.n + 1 > PAIR_MAX)
        return STR_NULL; /* found nowhere */
    memcpy(scratch, a.p != NULL ? a.p : "", a.n);
    scratch[a.n] = '\x1f';
    memcpy(scratch + a.n + 1, b.p != NULL ? b.p : "", b.n);
    return str_make(scratch, a.n + 1 + b.n);
}

/* ---- instances ---- */

struct instance_facts *facts_find_instance(const struct facts *f, struct str tenant,
                                           struct str name)
{
    char scratch[PAIR_MAX];
    struct str key = pair_key(scratch, tenant, name);

    return key.p != NULL ? map_get(&f->instances, key) : NULL;
}

struct instance_facts *facts_make_instance(struct facts *f, struct str tenant, struct str name)
{
    struct instance_facts *in = facts_find_instance(f, tenant, name);
    char scratch[PAIR_MAX];

    if (in != NULL)
        return in;
    in = xcalloc(1, sizeof *in);
    in->key = pair_key(scratch, tenant, name);
    in->key.p = str_dup(in->key);
    in->gate.tenant = str_make(in->key.p, tenant.n);
    in->gate.instance = str_skip(in->key, tenant.n + 1);
    in->gate.default_require_address = map_get(&f->tenants, tenant) != NULL;
    list_init(&in->bindings);
    list_init(&in->scopes);
    list_init(&in->codes);
    map_put(&f->instances, in->key, in);
    return in;
}

/* An instance whose every gateway was revoked gets nothing; one that has no gateway yet does,
 * because a route may be made before the gateway is. */
static void note_gone(struct instance_facts *in)
{
    in->gate.gone = in->n > 0;
    for (size_t i = 0; i < in->n; i++)
        if (in->gateways[i]->revoked_ms == 0)
            in->gate.gone = false;
}

static void instance_add(struct facts *f, const struct gateway *g)
{
    struct instance_facts *in = facts_make_instance(f, str_of(g->tenant), str_of(g->instance));

    in->gateways = xrealloc(in->gateways, (in->n + 1) * sizeof *in->gateways);
    in->gateways[in->n++] = g;
    note_gone(in);
}

static void instance_drop(struct facts *f, const struct gateway *g)
{
    struct instance_facts *in = facts_find_instance(f, str_of(g->tenant), str_of(g->instance));

    for (size_t i = 0; in != NULL && i < in->n; i++)
        if (in->gateways[i] == g) {
            memmove(&in->gateways[i], &in->gateways[i + 1], (in->n - i - 1) * sizeof *in->gateways);
            in->n--;
        }
    if (in != NULL)
        note_gone(in);
}

const struct gateway *facts_newest_gateway(const struct facts *f, struct str tenant,
                                           struct str instance)
{
    const struct instance_facts *in = facts_find_instance(f, tenant, instance);
    const struct gateway *best = NULL;

    for (size_t i = 0; in != NULL && i < in->n; i++) {
        const struct gateway *g = in->gateways[i];
        if (g->revoked_ms == 0 && (best == NULL || g->created_ms >= best->created_ms))
            best = g;
    }
    return best;
}

const char *facts_wake_url(const struct facts *f, struct str tenant, struct str instance)
{
    const struct instance_facts *in = facts_find_instance(f, tenant, instance);
    const struct gateway *best = NULL;

    for (size_t i = 0; in != NULL && i < in->n; i++) {
        const struct gateway *g = in->gateways[i];
        if (g->wake_url != NULL && g->revoked_ms == 0 &&
            (best == NULL || g->created_ms >= best->created_ms))
            best = g;
    }
    return best != NULL ? best->wake_url : NULL;
}

/* ---- gateways ---- */

void gateway_wipe_secrets(struct gateway *g)
{
    for (size_t i = 0; i < g->n_secrets; i++) {
        secret_wipe(g->secrets[i].text, strlen(g->secrets[i].text));
        free(g->secrets[i].text);
        g->secrets[i].text = NULL;
    }
    g->n_secrets = 0;
}

static void gateway_clear(struct gateway *g)
{
    gateway_wipe_secrets(g);
    free(g->tenant);
    free(g->instance);
    free(g->wake_url);
    free(g->platform);
    free(g->bot);
}

void gateway_free(struct gateway *g)
{
    if (g == NULL)
        return;
    gateway_clear(g);
    free(g->id);
    free(g);
}

static void rebuild_tenant(struct facts *f, const char *tenant);

void facts_link_gateway(struct facts *f, struct gateway *g)
{
    list_append(&f->gateways, &g->link);
    f->n_gateways++;
    map_put(&f->by_id, str_of(g->id), g);
    instance_add(f, g);
    rebuild_tenant(f, g->tenant);
}

void facts_relink_gateway(struct facts *f, struct gateway *g, struct gateway *with)
{
    struct list link = g->link;
    char *id = g->id;

    instance_drop(f, g);
    gateway_clear(g);
    free(with->id);
    *g = *with;
    g->link = link;
    g->id = id;
    free(with);
    instance_add(f, g);
    rebuild_tenant(f, g->tenant);
}

const struct gateway *facts_gateway(const struct facts *f, struct str id)
{
    return map_get(&f->by_id, id);
}

size_t facts_gateways(const struct facts *f, struct list **ret_head)
{
    *ret_head = (struct list *)&f->gateways;
    return f->n_gateways;
}

static bool is_blank_or_control(struct str seq)
{
    static const char *const refused[] = {"\xc2\xa0", "\xe3\x80\x80", "\xef\xbb\xbf", NULL};

    if (seq.n == 1)
        return (unsigned char)*seq.p <= ' ' || *seq.p == 0x7f;
    if (seq.n == 2 && (unsigned char)seq.p[0] == 0xc2 && (unsigned char)seq.p[1] < 0xa0)
        return true;                                     /* C1 controls */
    if (seq.n == 3 && memcmp(seq.p, "\xe2\x80", 2) == 0) /* wide blanks, marks of direction */
        return (unsigned char)seq.p[2] <= 0x8f || (unsigned char)seq.p[2] >= 0xa8;
    for (size_t i = 0; refused[i] != NULL; i++)
        if (str_eq(seq, str_of(refused[i])))
            return true;
    return false;
}

bool facts_name_ok(struct str name)
{
    if (name.n == 0 || name.n > 128)
        return false;
    while (name.n > 0) {
        size_t n = utf8_seq_bytes(name);
        if (n == 0 || is_blank_or_control(str_make(name.p, n)))
            return false;
        name = str_skip(name, n);
    }
    return true;
}

/* ---- routes ---- */

static struct bucket *find_bucket(const struct facts *f, struct str platform, struct str key)
{
    char scratch[PAIR_MAX];
    struct str k = pair_key(scratch, platform, key);

    return k.p != NULL ? map_get(&f->buckets, k) : NULL;
}

/* ---- where an event goes ---- */

static void add_place(struct bucket *b, struct instance_facts *in)
{
    for (size_t i = 0; i < b->n_places; i++)
        if (b->places[i].to == &in->gate)
            return;
    b->places = xrealloc(b->places, (b->n_places + 1) * sizeof *b->places);
    b->places[b->n_places++] = (struct gate_place){.to = &in->gate};
}

static void add_tenant_places(struct facts *f, struct bucket *b, const char *tenant)
{
    list_each (&f->gateways, it, nxt) {
        const struct gateway *g = list_entry(it, struct gateway, link);
        if (g->revoked_ms == 0 && strcmp(g->tenant, tenant) == 0)
            add_place(b, facts_make_instance(f, str_of(g->tenant), str_of(g->instance)));
    }
}

static void rebuild(struct facts *f, struct bucket *b)
{
    b->n_places = 0;
    for (size_t i = 0; i < b->n_routes; i++) {
        const struct route *r = b->routes[i];
        if (r->instance != NULL)
            add_place(b, facts_make_instance(f, str_of(r->tenant), str_of(r->instance)));
        else
            add_tenant_places(f, b, r->tenant);
    }
    for (size_t i = 0; i + 1 < b->n_places; i++)
        b->places[i].next = &b->places[i + 1];
    if (b->n_places > 0)
        map_put(&f->gate.routes, b->key, b->places);
    else
        map_del(&f->gate.routes, b->key);
}

/* A gateway of this tenant came, went or moved: where routes to the whole tenant lead. */
static void rebuild_tenant(struct facts *f, const char *tenant)
{
    list_each (&f->routes, it, nxt) {
        const struct route *r = list_entry(it, struct route, link);
        if (r->instance == NULL && strcmp(r->tenant, tenant) == 0)
            rebuild(f, find_bucket(f, str_of(r->platform), str_of(r->key)));
    }
}

void route_free(struct route *r)
{
    if (r == NULL)
        return;
    free(r->platform);
    free(r->key);
    free(r->tenant);
    free(r->instance);
    free(r);
}

struct route *facts_find_route(const struct facts *f, struct str platform, struct str key,
                               struct str tenant, struct str instance)
{
    const struct bucket *b = find_bucket(f, platform, key);

    for (size_t i = 0; b != NULL && i < b->n_routes; i++)
        if (str_eq(str_of(b->routes[i]->tenant), tenant) &&
            str_eq(str_of(b->routes[i]->instance), instance))
            return b->routes[i];
    return NULL;
}

void facts_link_route(struct facts *f, struct route *r)
{
    struct bucket *b = find_bucket(f, str_of(r->platform), str_of(r->key));

    if (b == NULL) {
        char scratch[PAIR_MAX];
        b = xcalloc(1, sizeof *b);
        b->key = pair_key(scratch, str_of(r->platform), str_of(r->key));
        b->key.p = str_dup(b->key);
        map_put(&f->buckets, b->key, b);
    }
    b->routes = xrealloc(b->routes, (b->n_routes + 1) * sizeof(struct route *));
    b->routes[b->n_routes++] = r;
    list_append(&f->routes, &r->link);
    f->n_routes++;
    rebuild(f, b);
}

void facts_unlink_route(struct facts *f, struct route *r)
{
    struct bucket *b = find_bucket(f, str_of(r->platform), str_of(r->key));

    for (size_t i = 0; i < b->n_routes; i++)
        if (b->routes[i] == r) {
            memmove(&b->routes[i], &b->routes[i + 1],
                    (b->n_routes - i - 1) * sizeof(struct route *));
            b->n_routes--;
            break;
        }
    list_remove(&r->link);
    f->n_routes--;
    rebuild(f, b);
    route_free(r);
}

size_t facts_routes(const struct facts *f, struct list **ret_head)
{
    *ret_head = (struct list *)&f->routes;
    return f->n_routes;
}

/* ---- what the hot path asks ---- */

bool facts_tenant_is_live(const struct facts *f, struct str tenant)
{
    list_each (&f->gateways, it, nxt) {
        const struct gateway *g = list_entry(it, struct gateway, link);
        if (g->revoked_ms == 0 && str_eq(str_of(g->tenant), tenant))
            return true;
    }
    return false;
}

bool facts_has_route(const struct facts *f, struct str platform, struct str key)
{
    const struct bucket *b = find_bucket(f, platform, key);

    for (size_t i = 0; b != NULL && i < b->n_places; i++)
        if (!b->places[i].to->gone)
            return true;
    return false;
}

static bool leads(void *ctx, struct str platform, struct str key)
{
    return facts_has_route(ctx, platform, key);
}

struct str facts_route_key(const struct facts *f, const struct event *ev)
{
    return route_choose(ev, leads, (void *)(uintptr_t)f);
}

void facts_each_target(const struct facts *f, struct str platform, struct str route_key,
                       target_cb *cb, void *ctx)
{
    const struct bucket *b = find_bucket(f, platform, route_key);

    if (b == NULL || b->n_places == 0)
        b = find_bucket(f, platform, STR("*"));
    for (size_t i = 0; b != NULL && i < b->n_places; i++)
        if (!b->places[i].to->gone)
            cb(ctx, b->places[i].to->tenant, b->places[i].to->instance);
}

const struct gate_facts *facts_gate(const struct facts *f)
{
    return &f->gate;
}

bool facts_owns(const struct facts *f, struct str platform, struct str key, struct str tenant,
                struct str instance)
{
    const struct bucket *b = find_bucket(f, platform, key);

    for (size_t i = 0; b != NULL && i < b->n_routes; i++)
        if (str_eq(str_of(b->routes[i]->tenant), tenant) &&
            (b->routes[i]->instance == NULL || str_eq(str_of(b->routes[i]->instance), instance)))
            return true;
    return false;
}

/* ---- start and end ---- */

struct loading {
    struct facts *f;
    struct json_parser *parser;
    struct found_route {
        struct route *route;
        int64_t created_ms;
    } * routes;
    struct gateway **gateways;
    size_t n_routes, n_gateways;
    const char *ns; /* of the first damaged record */
    char damaged[160];
};

static void note_damage(struct loading *l, const char *ns, struct str key)
{
    if (l->ns == NULL)
        snprintf(l->damaged, sizeof l->damaged, "%.*s", STR_FMT(key));
    l->ns = ns;
}

static void on_gateway_record(void *ctx, struct str key, struct str value)
{
    struct loading *l = ctx;
    struct json doc;
    struct gateway *g = json_parse(l->parser, value, &doc) ? gateway_read(l->f, key, doc) : NULL;

    if (g == NULL) {
        note_damage(l, NS_GATEWAY, key);
        return;
    }
    l->gateways = xrealloc(l->gateways, (l->n_gateways + 1) * sizeof(struct gateway *));
    l->gateways[l->n_gateways++] = g;
}

static void on_route_record(void *ctx, struct str key, struct str value)
{
    struct loading *l = ctx;
    struct json doc;
    int64_t created_ms = 0;
    struct route *r = json_parse(l->parser, value, &doc) ? route_read(doc, &created_ms) : NULL;

    if (r == NULL) {
        note_damage(l, NS_ROUTE, key);
        return;
    }
    l->routes = xrealloc(l->routes, (l->n_routes + 1) * sizeof *l->routes);
    l->routes[l->n_routes++] = (struct found_route){r, created_ms};
}

static int by_age_gateway(const void *a, const void *b)
{
    const struct gateway *x = *(struct gateway *const *)a, *y = *(struct gateway *const *)b;

    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

static int by_age_route(const void *a, const void *b)
{
    const struct found_route *x = a, *y = b;

    return (x->created_ms > y->created_ms) - (x->created_ms < y->created_ms);
}

static void adopt(struct loading *l)
{
    if (l->n_gateways > 0)
        qsort(l->gateways, l->n_gateways, sizeof(struct gateway *), by_age_gateway);
    if (l->n_routes > 0)
        qsort(l->routes, l->n_routes, sizeof *l->routes, by_age_route);
    for (size_t i = 0; i < l->n_gateways; i++)
        facts_link_gateway(l->f, l->gateways[i]);
    for (size_t i = 0; i < l->n_routes; i++)
        facts_link_route(l->f, l->routes[i].route);
    free(l->gateways);
    free(l->routes);
}

enum bh_err facts_open(const struct facts_env *env, struct facts **ret_f, char *ret_why)
{
    struct facts *f = xcalloc(1, sizeof *f);
    f->env = *env;
    list_init(&f->gateways);
    list_init(&f->routes);
    list_init(&f->changes);
    list_init(&f->tries_by_age);
    timer_init(&f->start, facts_start_changes);

    struct loading l = {.f = f, .parser = json_parser_new()};
    enum bh_err err = env->store->ops->load_records(env->store, NS_GATEWAY, on_gateway_record, &l);
    if (err == BH_OK)
        err = env->store->ops->load_records(env->store, NS_ROUTE, on_route_record, &l);
    adopt(&l);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "gateways and routes cannot be read from the store");
    } else if (l.ns != NULL) {
        /* Going on without it would lock a gateway out for a reason nobody sees. */
        snprintf(ret_why, 256,
                 "the %s record \"%s\" does not open: damaged, or sealed under another "
                 "master key",
                 l.ns, l.damaged);
        err = BH_REFUSED;
    }
    if (err == BH_OK)
        err = grants_load(f, l.parser, ret_why);
    if (err == BH_OK)
        err = links_load(f, l.parser, ret_why);
    if (err == BH_OK)
        err = enroll_load(f, ret_why);
    json_parser_free(l.parser);
    if (err != BH_OK) {
        facts_free(f);
        return err;
    }
    *ret_f = f;
    return BH_OK;
}

void facts_set_require_expiry(struct facts *f, bool yes)
{
    f->env.require_expiry = yes;
}

void facts_free(struct facts *f)
{
    void *v;

    if (f == NULL)
        return;
    facts_drop_changes(f);
    links_free(f);
    enroll_free(f);
    grants_free(f);
    list_each (&f->gateways, it, nxt)
        gateway_free(list_entry(it, struct gateway, link));
    list_each (&f->routes, it, nxt)
        route_free(list_entry(it, struct route, link));
    for (size_t i = 0; map_next(&f->instances, &i, &v);) {
        struct instance_facts *in = v;
        free((char *)in->key.p);
        free(in->gateways);
        free(in);
    }
    for (size_t i = 0; map_next(&f->buckets, &i, &v);) {
        struct bucket *b = v;
        free((char *)b->key.p);
        free(b->routes);
        free(b->places);
        free(b);
    }
    map_done(&f->by_id);
    map_done(&f->instances);
    map_done(&f->buckets);
    map_done(&f->gate.routes);
    free(f);
}
