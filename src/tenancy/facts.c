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
#include <pthread.h>
#include <signal.h>
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

enum { LOOK_AHEAD = 8 };

struct aged { /* sorted without a look at the thing itself, as a rule */
    int64_t created_ms;
    void *thing; /* struct gateway or route */
};

struct all_aged {
    struct aged *at; /* owned */
    size_t n, cap;
};

struct loading {
    struct facts *f;
    struct json_parser *parser;
    struct all_aged routes, gateways;
    size_t n_keys;            /* of the routes: records come by platform and key */
    const struct route *last; /* borrowed; the route before */
    const char *ns;           /* of the first damaged record */
    char damaged[160];
};

/* At twice the size when there is no room: loading stays linear. */
static void add(struct all_aged *all, int64_t created_ms, void *thing)
{
    if (all->n == all->cap) {
        all->cap = all->cap != 0 ? all->cap * 2 : 64;
        all->at = xrealloc(all->at, all->cap * sizeof all->at[0]);
    }
    all->at[all->n++] = (struct aged){created_ms, thing};
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
    add(&l->gateways, g->created_ms, g);
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
    if (l->last == NULL || strcmp(l->last->key, r->key) != 0 ||
        strcmp(l->last->platform, r->platform) != 0)
        l->n_keys++;
    l->last = r;
    add(&l->routes, r->created_ms, r);
}

static int by_age_gateway(const void *a, const void *b)
{
    const struct aged *x = a, *y = b;

    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return strcmp(((const struct gateway *)x->thing)->id, ((const struct gateway *)y->thing)->id);
}

static int by_age_route(const void *a, const void *b)
{
    const struct aged *x = a, *y = b;

    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return str_cmp(((const struct route *)x->thing)->id, ((const struct route *)y->thing)->id);
}

static void adopt(struct loading *l)
{
    const struct all_aged *routes = &l->routes;

    if (l->gateways.n > 0)
        qsort(l->gateways.at, l->gateways.n, sizeof l->gateways.at[0], by_age_gateway);
    if (routes->n > 0)
        qsort(routes->at, routes->n, sizeof routes->at[0], by_age_route);
    facts_expect(l->f, l->gateways.n, routes->n, l->n_keys);
    for (size_t i = 0; i < l->gateways.n; i++)
        facts_link_gateway(l->f, l->gateways.at[i].thing);
    for (size_t i = 0; i < routes->n; i++) {
        if (i + LOOK_AHEAD < routes->n)
            facts_prefetch_route(l->f, routes->at[i + LOOK_AHEAD].thing);
        facts_link_route(l->f, routes->at[i].thing);
    }
    free(l->gateways.at);
    free(l->routes.at);
}

/* Nothing but store and seal is used here: it may be another thread. */
static enum bh_err read_all(struct facts *f, char *ret_why)
{
    struct store *st = f->env.store;
    struct loading l = {.f = f, .parser = json_parser_new()};
    enum bh_err err = st->ops->load_records(st, NS_GATEWAY, on_gateway_record, &l);

    if (err == BH_OK)
        err = st->ops->load_records(st, NS_ROUTE, on_route_record, &l);
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
    json_parser_free(l.parser);
    return err;
}

static struct facts *facts_new(const struct facts_env *env)
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
    return f;
}

/* What is left once all is read. */
static enum bh_err settle(struct facts *f, char *ret_why)
{
    enum bh_err err = enroll_load(f, ret_why);

    if (err == BH_OK)
        routes_settle(f);
    return err;
}

enum bh_err facts_open(const struct facts_env *env, struct facts **ret_f, char *ret_why)
{
    struct facts *f = facts_new(env);
    enum bh_err err = read_all(f, ret_why);

    if (err == BH_OK)
        err = settle(f, ret_why);
    if (err != BH_OK) {
        facts_free(f);
        return err;
    }
    *ret_f = f;
    return BH_OK;
}

/* ---- on a thread of its own ---- */

struct facts_reading {
    pthread_t thread;
    bool started; /* else there was no thread to be had, and it is read already */
    enum bh_err err;
    char why[256];
};

static void *read_main(void *arg)
{
    struct facts *f = arg;

    f->reading->err = read_all(f, f->reading->why);
    return NULL;
}

struct facts *facts_begin(const struct facts_env *env)
{
    struct facts *f = facts_new(env);
    struct facts_reading *r = f->reading = xcalloc(1, sizeof *r);
    sigset_t all, before;

    sigfillset(&all); /* signals belong to the loop thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r->started = pthread_create(&r->thread, NULL, read_main, f) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!r->started)
        read_main(f);
    return f;
}

static enum bh_err join(struct facts *f, char *ret_why)
{
    struct facts_reading *r = f->reading;
    enum bh_err err;

    if (r->started)
        pthread_join(r->thread, NULL);
    if ((err = r->err) != BH_OK)
        memcpy(ret_why, r->why, sizeof r->why);
    free(r);
    f->reading = NULL;
    return err;
}

enum bh_err facts_finish(struct facts *f, char *ret_why)
{
    enum bh_err err = join(f, ret_why);

    return err == BH_OK ? settle(f, ret_why) : err;
}

void facts_set_require_expiry(struct facts *f, bool yes)
{
    f->env.require_expiry = yes;
}

void facts_free(struct facts *f)
{
    char why[256];

    if (f == NULL)
        return;
    if (f->reading != NULL)
        (void)join(f, why);
    facts_drop_changes(f);
    links_free(f);
    enroll_free(f);
    grants_free(f);
    route_table_free(f);
    gateway_table_free(f);
    free(f);
}
