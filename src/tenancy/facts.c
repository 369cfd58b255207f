/* facts.c - design.  (facts.h has the contract.)
 *
 * Everything is in memory twice: as lists in order of age, which own the records, and as tables for
 * the questions of the hot path.  Every record carries the links it hangs by, so a change touches
 * what it is about and nothing else, and an event costs one lookup.
 *
 *      gateway_table.c   id -> gateway; tenant, instance -> its gateways (wake URL, is it revoked)
 *      route_table.c     platform, key -> routes -> places (where an event goes: gate.routes)
 *      facts.c           loading and letting go of it all
 */
#include "tenancy/facts.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/store.h"
#include "tenancy/facts_priv.h"

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

const struct gate_facts *facts_gate(const struct facts *f)
{
    return &f->gate;
}

/* ---- start and end ---- */

struct loading {
    struct facts *f;
    struct json_parser *parser;
    struct route **routes;
    struct gateway **gateways;
    size_t n_routes, cap_routes, n_gateways, cap_gateways;
    const char *ns; /* of the first damaged record */
    char damaged[160];
};

/* Room for one more, at twice the size when there is none: loading stays linear. */
static void *with_room(void *all, size_t n, size_t *cap, size_t each)
{
    if (n < *cap)
        return all;
    *cap = *cap != 0 ? *cap * 2 : 64;
    return xrealloc(all, *cap * each);
}

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
    l->gateways = with_room(l->gateways, l->n_gateways, &l->cap_gateways, sizeof(struct gateway *));
    l->gateways[l->n_gateways++] = g;
}

static void on_route_record(void *ctx, struct str key, struct str value)
{
    struct loading *l = ctx;
    struct json doc;
    struct route *r = json_parse(l->parser, value, &doc) ? route_read(doc) : NULL;

    if (r == NULL) {
        note_damage(l, NS_ROUTE, key);
        return;
    }
    l->routes = with_room(l->routes, l->n_routes, &l->cap_routes, sizeof *l->routes);
    l->routes[l->n_routes++] = r;
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
    const struct route *x = *(struct route *const *)a, *y = *(struct route *const *)b;

    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return str_cmp(x->id, y->id);
}

static void adopt(struct loading *l)
{
    if (l->n_gateways > 0)
        qsort(l->gateways, l->n_gateways, sizeof(struct gateway *), by_age_gateway);
    if (l->n_routes > 0)
        qsort(l->routes, l->n_routes, sizeof(struct route *), by_age_route);
    for (size_t i = 0; i < l->n_gateways; i++)
        facts_link_gateway(l->f, l->gateways[i]);
    for (size_t i = 0; i < l->n_routes; i++)
        facts_link_route(l->f, l->routes[i]);
    free(l->gateways);
    free(l->routes);
}

enum bh_err facts_open(const struct facts_env *env, struct facts **ret_f, char *ret_why)
{
    struct facts *f = xcalloc(1, sizeof *f);
    f->env = *env;
    list_init(&f->gateways);
    list_init(&f->routes);
    list_init(&f->strict);
    list_init(&f->changes);
    list_init(&f->ready);
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
    if (err == BH_OK)
        routes_settle(f);
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
    if (f == NULL)
        return;
    facts_drop_changes(f);
    links_free(f);
    enroll_free(f);
    grants_free(f);
    route_table_free(f);
    gateway_table_free(f);
    free(f);
}
