/* facts.c - design.  (facts.h has the contract.)
 *
 * Every record is in a list by age, which owns it, and in the tables that the hot path reads.
 * Records embed their list links, so a change touches only its own records, and an event costs one
 * lookup.
 *
 *      gateways.c   id -> gateway; tenant, instance -> its gateways (wake URL, is it revoked)
 *      routes.c     platform, key -> routes -> places (where an event goes: gate.routes)
 *      facts.c      loads and frees all of it, and authenticates gateways
 *
 * A gateway that gets "unauthorized" after it once connected gives up for good.  So
 * AUTH_UNAUTHORIZED is only for a missing, wrong or revoked credential.  All other cases are
 * AUTH_RETRY. */
#include "tenancy/facts.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/mem.h"
#include "store/store.h"
#include "tenancy/audit.h"
#include "tenancy/change.h"
#include "tenancy/pairing.h"

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

struct aged { /* sorts by @created_ms, then by @name */
    int64_t created_ms;
    struct str name;
    void *thing; /* struct gateway or route */
};

struct all_aged {
    struct aged *at; /* owned */
    size_t n, cap;
};

struct facts_loading {
    struct facts *f;
    struct all_aged routes, gateways;
    size_t n_keys;            /* different keys of routes; records are sorted by platform and key */
    const struct route *last; /* borrowed; the previous route */
};

static void add(struct all_aged *all, int64_t created_ms, struct str name, void *thing)
{
    all->at = xgrow(all->at, all->n, &all->cap, sizeof all->at[0]);
    all->at[all->n++] = (struct aged){created_ms, name, thing};
}

static bool on_gateway(void *ctx, struct str key, void *thing)
{
    struct facts_loading *l = ctx;
    const struct gateway_record *r = thing;

    for (size_t i = 0; i < r->n_also; i++)
        if (!facts_name_ok(r->also[i].platform) ||
            (r->also[i].bot.n > 0 && !facts_name_ok(r->also[i].bot)))
            return false;
    struct gateway *g = gateway_new(r);
    add(&l->gateways, r->created_ms, str_of(g->id), g);
    return true;
}

static bool on_route(void *ctx, struct str key, void *thing)
{
    struct facts_loading *l = ctx;
    struct route *r = route_of_record(thing);

    if (l->last == NULL || strcmp(l->last->key, r->key) != 0 ||
        strcmp(l->last->platform, r->platform) != 0)
        l->n_keys++;
    l->last = r;
    add(&l->routes, r->created_ms, r->id, r);
    return true;
}

static int by_age(const void *a, const void *b)
{
    const struct aged *x = a, *y = b;

    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return str_cmp(x->name, y->name);
}

static void adopt(struct facts_loading *l)
{
    const struct all_aged *routes = &l->routes;

    if (l->gateways.n > 0)
        qsort(l->gateways.at, l->gateways.n, sizeof l->gateways.at[0], by_age);
    if (routes->n > 0)
        qsort(routes->at, routes->n, sizeof routes->at[0], by_age);
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

/* May run on its own thread, so it uses only the store and the seal of f->env.  A damaged record
 * stops the start: skipping it would lock a gateway out without a visible reason. */
static enum bh_err read_all(struct facts *f, char *ret_why)
{
    struct store *st = f->env.store;
    struct record_reader *reader = record_reader_new(f->env.seal);
    struct facts_loading l = {.f = f};
    enum bh_err err = record_load(st, &gateway_form, reader, STR_NULL, on_gateway, &l, ret_why);

    if (err == BH_OK)
        err = record_load(st, &route_form, reader, STR_NULL, on_route, &l, ret_why);
    adopt(&l);
    if (err == BH_OK)
        err = grants_load(f, reader, ret_why);
    if (err == BH_OK)
        err = links_load(f, reader, ret_why);
    record_reader_free(reader);
    return err;
}

const struct record_form *const facts_records[] = {
    &gateway_form,  &route_form,     &binding_form,    &dm_default_form,
    &scope_form,    &principal_form, &policy_form,     &allowance_form,
    &tenant_form,   &life_form,      &link_code_form,  &delivery_key_form,
    &enrolled_form, &audit_form,     &audit_head_form, &pairing_form,
    NULL,
};

/* ---- loading on a thread ---- */

struct facts_reading {
    pthread_t thread;
    bool started; /* false: no thread could start, and loading has ended already */
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
    struct facts *f = xcalloc(1, sizeof *f);
    struct facts_reading *r = f->reading = xcalloc(1, sizeof *r);
    sigset_t all, before;

    f->env = *env;
    list_init(&f->gateways);
    list_init(&f->routes);
    list_init(&f->strict);
    list_init(&f->changes);
    list_init(&f->ready);
    list_init(&f->tries_by_age);
    timer_init(&f->start, facts_start_changes);
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

    return err == BH_OK ? enroll_load(f, ret_why) : err;
}

enum bh_err facts_open(const struct facts_env *env, struct facts **ret_f, char *ret_why)
{
    struct facts *f = facts_begin(env);
    enum bh_err err = facts_finish(f, ret_why);

    if (err != BH_OK)
        facts_free(f);
    else
        *ret_f = f;
    return err;
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
    rights_free(f);
    enroll_free(f);
    grants_free(f);
    route_table_free(f);
    gateway_table_free(f);
    free(f);
}

/* ---- authentication ---- */

static const struct config_key keys[] = {
    {"auth.require_expiry", CFG_BOOL, CFG_RELOAD, offsetof(struct auth_settings, require_expiry),
     "false", .what = "Refuse gateway tokens that never expire."},
    {0},
};
const struct config_section auth_config = {.keys = keys, .size = sizeof(struct auth_settings)};

/* Verifies @t with the gateway's live secrets and records which one was used. */
static enum token_verdict verify(struct facts *f, const struct gateway *g, const struct token *t)
{
    int64_t now_ms = clock_wall_ms(f->env.clock);
    enum token_verdict v = TOKEN_BAD;

    for (size_t i = 0; i < g->n_secrets && v == TOKEN_BAD; i++) {
        struct str secret = str_of(g->secrets[i].text);
        if (!secret_is_live(g, i, now_ms))
            continue;
        v = token_verify(t, &secret, 1, now_ms / 1000, TOKEN_SKEW_S);
        if (v == TOKEN_OK && secret_was_used(map_get(&f->by_id, t->payload), i))
            gateway_note(f, t->payload);
    }
    return v;
}

static enum auth_verdict judge(struct facts *f, const struct token *t,
                               const struct gateway **ret_gw, const char **ret_why)
{
    const struct gateway *g = facts_gateway(f, t->payload);

    if (g == NULL) {
        *ret_why = "unknown gateway";
        return AUTH_RETRY;
    }
    if (g->revoked_ms != 0) {
        *ret_why = "revoked";
        return AUTH_UNAUTHORIZED;
    }
    switch (verify(f, g, t)) {
    case TOKEN_BAD:
        *ret_why = "wrong signature";
        return AUTH_UNAUTHORIZED;
    case TOKEN_EXPIRED:
        *ret_why = "token expired";
        return AUTH_RETRY;
    case TOKEN_OK:
        break;
    }
    if (t->exp == 0 && f->env.require_expiry) {
        *ret_why = "token never expires, and auth.require_expiry is on";
        return AUTH_RETRY;
    }
    *ret_gw = g;
    return AUTH_OK;
}

enum auth_verdict facts_authenticate(struct facts *f, struct str header,
                                     const struct gateway **ret_gw, const char **ret_why)
{
    BUF_SECRET scratch = BUF_INIT;
    struct token t;
    struct str text = token_of_header(header);
    enum auth_verdict v = AUTH_UNAUTHORIZED;

    *ret_why = "no credential";
    if (!str_is_empty(text)) {
        *ret_why = "not a token";
        if (token_read(text, &scratch, &t))
            v = judge(f, &t, ret_gw, ret_why);
    }
    return v;
}

struct audit *facts_audit(const struct facts *f)
{
    return f->env.audit;
}
