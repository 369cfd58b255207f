/* enroll.c - design.  (enroll.h has the contract.)
 *
 * One change writes everything in one transaction: the gateway, its routes, the tenant's first
 * delivery key, and the record of a redeemed enrollment token.  That record is inserted, never
 * replaced, so of two callers that redeem one token at once, one fails. */
#include "tenancy/enroll.h"
#include <assert.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/rand.h"
#include "tenancy/change.h"

#define PREFIX "bh1."

static const char *const kind_words[] = {
    [TOKEN_ENROLL] = "enroll", [TOKEN_PROVISION] = "provision"};

/* ---- tokens ---- */

void local_token_mint(struct facts *f, const struct local_token *t, struct buf *out)
{
    BUF_LOCAL claims = BUF_INIT, nonce = BUF_INIT;
    struct jw w = jw_begin(&claims);
    uint8_t raw[16], mac[SHA256_BYTES];

    rand_bytes(f->env.rand, raw, sizeof raw);
    hex_add(&nonce, raw, sizeof raw);
    jw_obj(&w);
    jw_kstr(&w, "kind", str_of(kind_words[t->kind]));
    jw_kstr(&w, "tenant", t->tenant);
    jw_kstr_opt(&w, "instance", t->instance);
    jw_kstr_opt(&w, "wakeUrl", t->wake_url);
    jw_kstr(&w, "nonce", buf_str(&nonce));
    jw_ki64(&w, "exp", t->exp_ms);
    jw_end_obj(&w);
    seal_mac(f->env.seal, STR("local token"), buf_str(&claims), mac);
    buf_add_z(out, PREFIX);
    base64url_add(out, claims.p, claims.n);
    buf_add_c(out, '.');
    base64url_add(out, mac, sizeof mac);
}

/* Decodes the claims into @claims.  False: the signature is not ours. */
static bool open_token(const struct facts *f, struct str text, struct buf *claims)
{
    BUF_LOCAL shown = BUF_INIT;
    struct str body, rest = text;
    uint8_t mac[SHA256_BYTES];

    if (!str_starts(text, STR(PREFIX)) || text.n > 8192)
        return false;
    rest = str_skip(rest, sizeof PREFIX - 1);
    if (!str_split(&rest, '.', &body) || rest.p == NULL || !base64url_decode(body, claims) ||
        !base64url_decode(rest, &shown) || shown.n != sizeof mac)
        return false;
    seal_mac(f->env.seal, STR("local token"), buf_str(claims), mac);
    return ct_equal(mac, shown.p, sizeof mac);
}

bool local_token_read(const struct facts *f, struct str text, enum local_token_kind kind,
                      struct json_parser *parser, struct local_token *ret, const char **ret_why)
{
    BUF_LOCAL claims = BUF_INIT;
    struct json doc;
    bool ok = open_token(f, text, &claims) && json_parse(parser, buf_str(&claims), &doc);

    *ret_why = "it was not made here";
    if (!ok)
        return false;
    *ret = (struct local_token){.kind = kind,
                                .tenant = json_str(doc, "tenant"),
                                .instance = json_str(doc, "instance"),
                                .wake_url = json_str(doc, "wakeUrl"),
                                .nonce = json_str(doc, "nonce"),
                                .exp_ms = json_i64(doc, "exp", 0)};
    if (!str_eq(json_str(doc, "kind"), str_of(kind_words[kind])) || str_is_empty(ret->tenant)) {
        *ret_why = "it is for something else";
        return false;
    }
    if (ret->exp_ms <= clock_wall_ms(f->env.clock)) {
        *ret_why = "it has expired";
        return false;
    }
    return true;
}

/* ---- delivery keys ---- */

struct delivery_key {
    char *tenant, *secret; /* owned */
};
static const struct record_field delivery_key_fields[] = {
    RECORD_FIELD(struct delivery_key, tenant, "tenant", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct delivery_key, secret, "secret", RECORD_NEEDED | RECORD_SEALED),
};
const struct record_form delivery_key_form =
    RECORD_FORM("delivery_key", struct delivery_key, delivery_key_fields);

static bool on_delivery_key(void *ctx, struct str key, void *thing)
{
    struct facts *f = ctx;
    struct delivery_key *k = xmalloc(sizeof *k);

    *k = *(struct delivery_key *)thing;
    map_put(&f->delivery_keys, str_of(k->tenant), k);
    return true;
}

/* ---- redeemed enrollment tokens ----
 *
 * The transaction that redeems a token also writes a record under its nonce.  Once the token has
 * expired the record is not needed: it is deleted at start or within an hour.  So the number of
 * records stays near the number of valid tokens. */

#define USED_SWEEP_MS 3600000
#define SWEEP_ITEMS 256 /* deleted in one transaction */

struct used {
    struct list link; /* in f->used */
    int64_t until_ms; /* wall clock */
    char nonce[];
};

struct used_record { /* texts are borrowed */
    struct str nonce;
    int64_t at_ms, until_ms;
};
static const struct record_field used_fields[] = {
    RECORD_FIELD(struct used_record, nonce, "nonce", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct used_record, at_ms, "at", 0),
    RECORD_FIELD(struct used_record, until_ms, "until", RECORD_NEEDED),
};
const struct record_form enrolled_form = RECORD_FORM("enrolled", struct used_record, used_fields);

static void used_add(struct facts *f, struct str nonce, int64_t until_ms)
{
    struct used *u = xcalloc(1, sizeof *u + nonce.n + 1);

    memcpy(u->nonce, nonce.p, nonce.n);
    u->until_ms = until_ms;
    list_append(&f->used, &u->link);
    if (!timer_is_set(&f->sweep))
        timer_set(f->env.clock, &f->sweep, USED_SWEEP_MS);
}

static void on_sweep(struct timer *t)
{
    struct facts *f = container_of(t, struct facts, sweep);
    struct store_kv items[SWEEP_ITEMS];
    struct used *gone[SWEEP_ITEMS];
    int64_t now_ms = clock_wall_ms(f->env.clock);
    size_t n = 0;

    list_each (&f->used, it, next) {
        struct used *u = list_entry(it, struct used, link);
        if (u->until_ms > now_ms || n == SWEEP_ITEMS)
            continue;
        items[n] =
            (struct store_kv){.verb = KV_DELETE, .ns = enrolled_form.ns, .key = str_of(u->nonce)};
        gone[n++] = u;
    }
    if (n > 0)
        store_put(f->env.store, items, n, false, NULL, NULL);
    for (size_t i = 0; i < n; i++) {
        list_remove(&gone[i]->link);
        free(gone[i]);
    }
    if (!list_is_empty(&f->used))
        timer_set(f->env.clock, &f->sweep, n == SWEEP_ITEMS ? 1000 : USED_SWEEP_MS);
}

static bool on_used(void *ctx, struct str key, void *thing)
{
    const struct used_record *r = thing;

    used_add(ctx, r->nonce, r->until_ms);
    return true;
}

/* ---- start and end ---- */

enum bh_err enroll_load(struct facts *f, char *ret_why)
{
    struct record_reader *reader = record_reader_new(f->env.seal);
    enum bh_err err = record_load(f->env.store, &delivery_key_form, reader, STR_NULL,
                                  on_delivery_key, f, ret_why);

    timer_init(&f->sweep, on_sweep);
    list_init(&f->used);
    if (err == BH_OK)
        err = record_load(f->env.store, &enrolled_form, reader, STR_NULL, on_used, f, ret_why);
    if (err == BH_OK && !list_is_empty(&f->used))
        timer_set(f->env.clock, &f->sweep, 0);
    record_reader_free(reader);
    return err;
}

void enroll_free(struct facts *f)
{
    void *v;

    if (f->used.next == NULL)
        return; /* loading failed before */
    timer_stop(f->env.clock, &f->sweep);
    list_each (&f->used, it, next)
        free(list_entry(it, struct used, link));
    for (size_t i = 0; map_next(&f->delivery_keys, &i, &v);) {
        record_done(&delivery_key_form, v);
        free(v);
    }
    map_done(&f->delivery_keys);
}

/* ---- the change ---- */

struct enroll_asked {
    struct provision_result *r; /* borrowed */
    struct arena arena;
    struct provision_spec spec; /* in the arena; "relay" is no platform */
    bool enroll;                /* an enrollment token is redeemed; else a provision */
    struct str nonce;           /* of the token; in the arena */
    int64_t nonce_until_ms;
    struct route **routes; /* owned until apply() links them */
    size_t n_routes;
    bool new_key; /* the tenant had no delivery key */
};

static void asked_free(void *thing)
{
    struct enroll_asked *a = thing;

    for (size_t i = 0; i < a->n_routes; i++)
        free(a->routes[i]);
    free(a->routes);
    arena_done(&a->arena);
    free(a);
}

void provision_result_done(struct provision_result *r)
{
    buf_wipe(&r->secret);
    buf_wipe(&r->delivery_key);
    buf_done(&r->route_keys);
}

static void take(char **field, struct str said)
{
    if (str_is_empty(said))
        return;
    free(*field);
    *field = str_dup(said);
}

/* Makes the gateway's next record; the secret goes to the result too. */
static struct gateway *next_record(struct facts *f, const struct change *c,
                                   const struct gateway *known)
{
    const struct enroll_asked *a = c->thing;
    int64_t now_ms = clock_wall_ms(f->env.clock), minted_ms;
    struct gateway_record fresh = {.id = str_of(c->id), .tenant = a->spec.tenant};
    struct gateway *g = known != NULL ? gateway_copy(known) : gateway_new(&fresh);

    take(&g->instance, a->spec.instance);
    take(&g->wake_url, a->spec.wake_url);
    if (a->spec.platform.n > 0)
        identity_take(g, a->spec.platform, a->spec.bot);
    take(&g->display_name, a->spec.display_name);
    g->newer |= a->spec.display_name.n > 0; /* only newer gateways send one */
    minted_ms = g->rotated_ms > g->created_ms ? g->rotated_ms : g->created_ms;
    if (g->created_ms == 0 || g->revoked_ms != 0) {
        g->created_ms = now_ms;
        g->revoked_ms = 0;
        minted_ms = 0;
    }
    if (a->enroll || g->n_secrets == 0 || now_ms - minted_ms >= PROVISION_SAME_MS) {
        if (g->n_secrets > 0)
            g->rotated_ms = now_ms;
        secrets_push(g, gateway_new_secret(f, &a->r->secret), now_ms, PROVISION_KEEP_MS,
                     !a->enroll);
    } else {
        buf_add_z(&a->r->secret, g->secrets[0].text);
    }
    return g;
}

/* True when another tenant has this key, or an operator gave the bot or "*" to another tenant. */
static bool is_taken(const struct facts *f, const struct route *r, struct str bot)
{
    struct str platform = str_of(r->platform), tenant = str_of(r->tenant);

    return facts_is_others(f, platform, str_of(r->key), tenant) ||
           gate_is_barred(&f->gate, platform, bot, tenant) ||
           (bot.n > 0 && facts_is_given(f, platform, bot, tenant)) ||
           facts_is_given(f, platform, STR("*"), tenant);
}

/* How many more keys the instance may claim: PROVISION_CLAIMS_MAX over all its calls. */
static size_t claims_left(const struct facts *f, const struct gateway *g)
{
    const struct instance_facts *i = facts_find_instance(f, str_of(g->tenant), str_of(g->instance));
    size_t n = 0;

    for (const struct list *it = i != NULL ? i->routes.next : NULL;
         it != NULL && it != &i->routes && n < PROVISION_CLAIMS_MAX; it = it->next)
        n += list_entry(it, const struct route, by_target)->origin == ROUTE_PROVISION;
    return PROVISION_CLAIMS_MAX - n;
}

static void put_routes(struct facts *f, struct change *c)
{
    struct enroll_asked *a = c->thing;
    struct jw w = jw_begin(&a->r->route_keys);
    size_t left = claims_left(f, c->gateway);

    jw_arr(&w);
    for (size_t i = 0; i < a->n_routes; i++) {
        struct route *asked = a->routes[i];
        struct str platform = str_of(asked->platform), key = str_of(asked->key);
        bool has = facts_find_route(f, platform, key, str_of(asked->tenant),
                                    str_of(c->gateway->instance)) != NULL;
        if (is_taken(f, asked, str_of(c->gateway->bot)) || (!has && left == 0)) {
            free(asked);
            a->routes[i--] = a->routes[--a->n_routes];
            continue;
        }
        struct route *r = a->routes[i] =
            route_new(platform, key, str_of(asked->tenant), str_of(c->gateway->instance));
        free(asked);
        jw_str(&w, str_of(r->key));
        if (has)
            continue; /* the instance has it already, by a claim or from an operator */
        left--;
        r->origin = ROUTE_PROVISION;
        r->created_ms = clock_wall_ms(f->env.clock);
        route_put(c, KV_PUT, r);
    }
    jw_end_arr(&w);
}

static void put_delivery_key(struct facts *f, struct change *c)
{
    struct enroll_asked *a = c->thing;
    const struct delivery_key *k = map_get(&f->delivery_keys, a->spec.tenant);

    if (k != NULL) {
        buf_add_z(&a->r->delivery_key, k->secret);
        return;
    }
    /* KV_PUT, not KV_INSERT: two first gateways of a tenant may come at once; the last key wins. */
    a->new_key = true;
    free(gateway_new_secret(f, &a->r->delivery_key));
    struct delivery_key made = {(char *)a->spec.tenant.p, (char *)buf_z(&a->r->delivery_key)};
    change_put(c, KV_PUT, &delivery_key_form, &made);
}

/* True when limits.gateways is reached.  Enrollment tokens are exempt: an operator minted them. */
static bool has_too_many(const struct facts *f, const struct enroll_asked *a)
{
    const struct tenant_facts *t = map_get(&f->tenants, a->spec.tenant);

    if (f->env.ledger == NULL || a->enroll)
        return false;
    struct limit_bounds most = ledger_bounds(f->env.ledger, LIMIT_GATEWAYS);
    return (most.each != 0 && t != NULL && t->n_gateways >= most.each) ||
           (most.all != 0 && f->n_gateways >= most.all);
}

static bool prepare(struct facts *f, struct change *c)
{
    const struct enroll_asked *a = c->thing;
    const struct gateway *known = facts_gateway(f, str_of(c->id));

    if (known != NULL && !str_eq(str_of(known->tenant), a->spec.tenant))
        return change_fail(c, BH_REFUSED, "this gateway id cannot be used; choose another");
    if (known != NULL && known->revoked_ms != 0 && !a->enroll)
        return change_fail(c, BH_REFUSED, "this gateway was revoked");
    if (known == NULL && has_too_many(f, a))
        return change_fail(c, BH_BUSY, "there are too many gateways (limits.gateways)");
    c->gateway = next_record(f, c, known);
    gateway_put(c, known != NULL ? KV_PUT : KV_INSERT, c->gateway);
    if (a->enroll) {
        struct used_record r = {a->nonce, clock_wall_ms(f->env.clock), a->nonce_until_ms};
        change_put(c, KV_INSERT, &enrolled_form, &r);
        c->conflict = "the enrollment token was used before";
    }
    put_routes(f, c);
    put_delivery_key(f, c);
    return true;
}

static void apply(struct facts *f, struct change *c)
{
    struct enroll_asked *a = c->thing;

    gateway_apply(f, c);
    if (a->enroll)
        used_add(f, a->nonce, a->nonce_until_ms);
    for (size_t i = 0; i < a->n_routes; i++) {
        struct route *r = a->routes[i];
        if (facts_find_like(f, r) == NULL)
            facts_link_route(f, r);
        else
            free(r);
    }
    a->n_routes = 0;
    if (a->new_key && map_get(&f->delivery_keys, a->spec.tenant) == NULL) {
        struct delivery_key made = {str_dup(a->spec.tenant), str_dup(buf_str(&a->r->delivery_key))};
        on_delivery_key(f, STR_NULL, &made);
    }
}

static bool spec_bad(struct change *c, const struct provision_spec *s)
{
    if (change_name_bad(c, "gatewayId", s->gateway, true) ||
        change_name_bad(c, "tenant", s->tenant, true) ||
        change_name_bad(c, "instanceId", s->instance, false) ||
        change_name_bad(c, "platform", s->platform, false) ||
        change_name_bad(c, "botId", s->bot, false))
        return true;
    if (!str_is_empty(s->wake_url) && !gateway_wake_url_ok(s->wake_url))
        return !change_fail(c, BH_MALFORMED, "the wake URL must start with http:// or https://");
    if (s->n_route_keys > PROVISION_ROUTES_MAX)
        return !change_fail(c, BH_MALFORMED, "at most %d route keys", PROVISION_ROUTES_MAX);
    for (size_t i = 0; i < s->n_route_keys; i++)
        if (change_name_bad(c, "a route key", s->route_keys[i], true))
            return true;
    return false;
}

static bool is_display_name(struct str name)
{
    if (name.n == 0 || name.n > DISPLAY_NAME_MAX)
        return false;
    for (; name.n > 0; name = str_skip(name, utf8_seq_bytes(name)))
        if (utf8_seq_bytes(name) == 0 || (unsigned char)name.p[0] < ' ' || name.p[0] == 0x7f)
            return false;
    return true;
}

void facts_provision(struct facts *f, const struct provision_spec *s, const struct local_token *t,
                     struct provision_result *r, facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare, apply, done, ctx);

    if (!spec_bad(c, s)) {
        struct enroll_asked *a = c->thing = xcalloc(1, sizeof *a);
        c->thing_free = asked_free;
        c->id = str_dup(s->gateway);
        bool any = str_is_empty(s->platform) || str_eq(s->platform, STR("relay"));
        a->r = r;
        a->enroll = t != NULL;
        a->spec = (struct provision_spec){.tenant = arena_str(&a->arena, s->tenant),
                                          .instance = arena_str(&a->arena, s->instance),
                                          .wake_url = arena_str(&a->arena, s->wake_url)};
        if (!any) {
            a->spec.platform = arena_str(&a->arena, s->platform);
            a->spec.bot = arena_str(&a->arena, s->bot);
        }
        if (is_display_name(s->display_name))
            a->spec.display_name = arena_str(&a->arena, s->display_name);
        if (t != NULL) {
            a->nonce = arena_str(&a->arena, t->nonce);
            a->nonce_until_ms = t->exp_ms;
        }
        a->routes = xcalloc(s->n_route_keys + 1, sizeof(struct route *));
        for (size_t i = 0; !any && i < s->n_route_keys; i++)
            if (!str_eq(s->route_keys[i], STR("*"))) /* only an operator may route "*" */
                a->routes[a->n_routes++] =
                    route_new(s->platform, s->route_keys[i], s->tenant, STR_NULL);
    }
    change_submit(c, c->id);
}
