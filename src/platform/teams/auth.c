/* auth.c - verifies Teams' webhooks, and fetches the bot's own token.  (teams_priv.h has the
 * calls.)
 *
 *      POST --a JWT of a known issuer?--no--> false: all such requests get the same answer
 *             |-- its key is not there --> held --keys fetched--> verified again: taken, or 401
 *             '-- signed, for this bot and this serviceUrl --> teams_take()
 *
 * Two issuers sign webhooks: the Bot Framework, and the Entra tenant of the bot.  Their keys are
 * fetched at the start, again every hour, and when a token names a key that is not there.  Few
 * requests can be held meanwhile; they are copied, because the door has not seen a proof.
 *
 * The bot's token comes by the client credentials flow, with the app's password or with an
 * assertion that the certificate's key signs.  It goes to hosts of Teams only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/jwt.h"
#include "edge/form.h"
#include "edge/jwks.h"
#include "net/http_server.h"
#include "platform/teams/teams_priv.h"

#define LOGIN_HOST "https://login.microsoftonline.com"
#define METADATA_HOST "https://login.botframework.com"
#define SCOPE "https://api.botframework.com/.default"
#define CHANNEL STR("msteams")
#define FORM_TYPE "Content-Type: application/x-www-form-urlencoded"

enum {
    SKEW_S = 300, /* as the Bot Framework allows */
    FRESH_MS = 3600000,
    AGAIN_MS = 10000,
    KEY_BURST = 3,
    MAX_HELD = 64,
    MAX_HELD_BYTES = 8 << 20,
    MAX_BEARER = 8192,
    ASSERTION_S = 600,
    PEM_BYTES = 65536,
};

/* ---- webhooks ---- */

struct teams_held { /* a request whose key is being fetched */
    struct list link;
    enum teams_issuer by;
    struct http_id http;
    struct buf bearer, body; /* owned; the bearer is secret */
};

enum proof {
    PROOF_GOOD,
    PROOF_MALFORMED, /* the token is good, and the body is no activity */
    PROOF_NONE,
    PROOF_LATER,   /* the keys are being fetched */
    PROOF_UNKNOWN, /* the keys cannot be fetched */
};

static struct str bearer_of(struct str header)
{
    struct str scheme;

    if (!str_split(&header, ' ', &scheme) || !str_eq_ci(scheme, STR("Bearer")))
        return STR_NULL;
    header = str_trim(header);
    return header.n <= MAX_BEARER ? header : STR_NULL;
}

/* A cheap check, before the signature is verified: three parts of base64url. */
bool teams_plausible(const struct http_req *req, int64_t wall_ms)
{
    struct str bearer = bearer_of(http_header(req, "Authorization"));
    size_t dots = 0;

    for (size_t i = 0; i < bearer.n; i++)
        dots += bearer.p[i] == '.';
    return str_eq(http_method(req), STR("POST")) && dots == 2 && str_has_only(bearer, "-_.");
}

/* @last: the keys were fetched for this request already. */
static enum proof verify(struct teams *t, const struct jwt *token, enum teams_issuer by, bool last)
{
    struct jwks *keys = by == TEAMS_ISSUER_TENANT ? t->tenant : t->connector;
    enum jwt_verdict v =
        jwt_verify(token, jwks_keys(keys), clock_wall_ms(t->base.env->clock) / 1000);

    if (v == JWT_UNKNOWN_KEY && !last && jwks_refresh(keys, true))
        return PROOF_LATER;
    if (v == JWT_UNKNOWN_KEY && !jwks_is_fetched(keys))
        return PROOF_UNKNOWN;
    if (v != JWT_OK) {
        log_debug(&t->base.log, "webhook refused: %s", jwt_verdict_text(v));
        return PROOF_NONE;
    }
    if (by == TEAMS_ISSUER_CONNECTOR && !jwt_key_endorses(jwks_keys(keys), token->kid, CHANNEL)) {
        log_debug(&t->base.log, "webhook refused: its key does not sign for Teams");
        return PROOF_NONE;
    }
    return PROOF_GOOD;
}

static enum proof prove(struct teams *t, struct str bearer, struct str body, bool last,
                        enum teams_issuer *ret_by, struct json *ret_activity)
{
    struct teams_self self = {.app = t->app, .tenant = str_of(t->cfg->entra_tenant)};
    enum proof proof = PROOF_NONE;
    struct jwt token;

    if (jwt_read(bearer, &token)) {
        enum teams_issuer by = *ret_by = teams_issuer_of(token.claims, &self);
        if (by != TEAMS_ISSUER_NONE)
            proof = verify(t, &token, by, last);
        if (proof == PROOF_GOOD &&
            (!json_parse(t->base.parser, body, ret_activity) || !json_is_object(*ret_activity)))
            proof = PROOF_MALFORMED;
        if (proof == PROOF_GOOD) {
            struct str url = json_str(*ret_activity, "serviceUrl");
            const char *wrong = teams_claims_wrong(token.claims, by, &self, url);
            if (wrong == NULL && !teams_is_own_url(url, str_of(t->cfg->base.api_base)))
                wrong = "the activity's serviceUrl is not a host of Teams";
            if (wrong != NULL) {
                log_debug(&t->base.log, "webhook refused: %s", wrong);
                proof = PROOF_NONE;
            }
        }
    }
    jwt_done(&token);
    return proof;
}

static void held_free(struct teams *t, struct teams_held *h)
{
    list_remove(&h->link);
    t->n_held--;
    t->held_bytes -= h->body.n;
    buf_wipe(&h->bearer);
    buf_done(&h->body);
    free(h);
}

static bool hold(struct teams *t, struct http_id http, enum teams_issuer by, struct str bearer,
                 struct str body)
{
    if (t->n_held >= MAX_HELD || t->held_bytes + body.n > MAX_HELD_BYTES)
        return false;
    struct teams_held *h = xcalloc(1, sizeof *h);
    h->http = http;
    h->by = by;
    buf_add_str(&h->bearer, bearer);
    buf_add_str(&h->body, body);
    list_append(&t->held, &h->link);
    t->n_held++;
    t->held_bytes += body.n;
    return true;
}

/* @proof is not PROOF_LATER.  False: refused, and not answered. */
static bool settle(struct teams *t, struct http_id http, enum proof proof, struct json activity)
{
    switch (proof) {
    case PROOF_GOOD:
        teams_take(t, http, activity);
        return true;
    case PROOF_MALFORMED:
        t->base.n.malformed++;
        await_refuse(&t->base, http, BH_MALFORMED);
        return true;
    case PROOF_UNKNOWN:
        await_refuse(&t->base, http, BH_UNAVAILABLE);
        return true;
    default:
        t->base.n.refused++;
        return false;
    }
}

/* The keys of @by were fetched, or could not be. */
static void on_keys(struct teams *t, struct jwks *keys, enum teams_issuer by)
{
    if (!jwks_is_fetched(keys))
        timer_set(t->base.env->clock, &t->refresh, AGAIN_MS);
    list_each (&t->held, it, nxt) {
        struct teams_held *h = list_entry(it, struct teams_held, link);
        struct json activity = {0};
        if (h->by != by)
            continue;
        enum proof proof =
            prove(t, buf_str(&h->bearer), buf_str(&h->body), true, &h->by, &activity);
        if (!settle(t, h->http, proof, activity))
            webhook_is_unsigned(t->base.env->server, h->http);
        held_free(t, h);
    }
}

static void on_connector_keys(void *ctx)
{
    struct teams *t = ctx;

    on_keys(t, t->connector, TEAMS_ISSUER_CONNECTOR);
}

static void on_tenant_keys(void *ctx)
{
    struct teams *t = ctx;

    on_keys(t, t->tenant, TEAMS_ISSUER_TENANT);
}

bool teams_http(struct platform *p, struct http_req *req)
{
    struct teams *t = teams_of(p);
    struct str bearer = bearer_of(http_header(req, "Authorization"));
    struct http_id http = http_req_id(req);
    enum teams_issuer by = TEAMS_ISSUER_NONE;
    struct json activity = {0};

    if (!teams_plausible(req, 0)) {
        t->base.n.refused++;
        return false;
    }
    enum proof proof = prove(t, bearer, http_body(req), false, &by, &activity);
    if (proof == PROOF_LATER && hold(t, http, by, bearer, http_body(req))) {
        t->base.unproven = true;
        return true;
    }
    if (proof == PROOF_LATER || proof == PROOF_UNKNOWN) {
        t->base.unproven = true;
        proof = PROOF_UNKNOWN;
    }
    return settle(t, http, proof, activity);
}

/* ---- the bot's own token ---- */

static bool write_assertion(const struct teams *t, struct str audience, struct buf *out)
{
    int64_t now_s = clock_wall_ms(t->base.env->clock) / 1000;
    BUF_LOCAL head = BUF_INIT, claims = BUF_INIT, signature = BUF_INIT, print = BUF_INIT;
    struct jw w = jw_begin(&head);
    uint8_t id[16];

    base64url_add(&print, t->thumbprint, sizeof t->thumbprint);
    jw_obj(&w);
    jw_kstr(&w, "alg", STR("PS256"));
    jw_kstr(&w, "typ", STR("JWT"));
    jw_kstr(&w, "x5t#S256", buf_str(&print));
    jw_end_obj(&w);
    rand_bytes(t->base.env->rand, id, sizeof id);
    w = jw_begin(&claims);
    jw_obj(&w);
    jw_kstr(&w, "aud", audience);
    jw_kstr(&w, "iss", t->app);
    jw_kstr(&w, "sub", t->app);
    jw_key(&w, "jti");
    jw_hex(&w, id, sizeof id);
    jw_ki64(&w, "nbf", now_s - 60);
    jw_ki64(&w, "exp", now_s + ASSERTION_S);
    jw_end_obj(&w);
    base64url_add(out, head.p, head.n);
    buf_add_c(out, '.');
    base64url_add(out, claims.p, claims.n);
    if (!rsa_pss_sha256_sign(t->key, buf_str(out), &signature))
        return false;
    buf_add_c(out, '.');
    base64url_add(out, signature.p, signature.n);
    return true;
}

/* Microsoft's login, or the configured address. */
static const char *base_of(const struct teams_settings *cfg, const char *host)
{
    return cfg->base.api_base != NULL ? cfg->base.api_base : host;
}

/* A bot of many tenants logs in to the Bot Framework's own. */
static bool write_login(const struct teams *t, struct bearer_ask *q, char *ret_why)
{
    const struct teams_settings *cfg = t->cfg;
    struct str base = str_of(base_of(cfg, LOGIN_HOST));
    BUF_SECRET assertion = BUF_INIT;

    while (str_ends(base, STR("/")))
        base.n--;
    buf_printf(&q->url, "%.*s/%s/oauth2/v2.0/token", STR_FMT(base),
               cfg->entra_tenant != NULL ? cfg->entra_tenant : "botframework.com");
    q->type = FORM_TYPE;
    form_add(&q->body, "grant_type", STR("client_credentials"));
    form_add(&q->body, "client_id", t->app);
    form_add(&q->body, "scope", STR(SCOPE));
    if (t->key == NULL) {
        form_add(&q->body, "client_secret", str_of(cfg->app_password));
        return true;
    }
    if (!write_assertion(t, buf_str(&q->url), &assertion)) {
        snprintf(ret_why, 160, "the key in `certificate` cannot sign");
        return false;
    }
    form_add(&q->body, "client_assertion_type",
             STR("urn:ietf:params:oauth:client-assertion-type:jwt-bearer"));
    form_add(&q->body, "client_assertion", buf_str(&assertion));
    return true;
}

static bool ask_login(struct platform *p, struct bearer_ask *q, char *ret_why)
{
    return write_login(teams_of(p), q, ret_why);
}

/* What to fix; Microsoft's own words may be long, and its code names the cause. */
static enum bh_err read_login(struct json doc, int status, struct str *ret_token,
                              int64_t *ret_life_ms, char *ret_why)
{
    struct str error = json_str(doc, "error"), words = json_str(doc, "error_description");
    struct str code = str_starts(words, STR("AADSTS")) ? words : STR_NULL;
    int64_t seconds = json_i64(doc, "expires_in", 0);

    *ret_token = json_str(doc, "access_token");
    if (status == 200 && ret_token->n > 0 && seconds > 0 && seconds < 864000 &&
        str_until_control(*ret_token) == ret_token->n) {
        *ret_life_ms = seconds * 1000;
        return BH_OK;
    }
    for (size_t i = 0; i < code.n; i++)
        if (code.p[i] == ':' || code.p[i] <= ' ')
            code.n = i;
    if (status == 200 || status == 429 || status >= 500 || error.n == 0)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "Microsoft gives no access token (HTTP %d)",
                          status);
    const char *check = str_eq(error, STR("unauthorized_client")) ||
                                str_eq(code, STR("AADSTS700016")) ||
                                str_eq(code, STR("AADSTS90002"))
                            ? "`bot` and `entra_tenant`"
                            : "`app_password` or `certificate`, which may have expired";
    return bh_err_why(BH_REFUSED, ret_why, "Microsoft refuses the app (%.*s %.*s): check %s",
                      error.n < 40 ? (int)error.n : 0, error.p, code.n < 20 ? (int)code.n : 0,
                      code.p != NULL ? code.p : "", check);
}

static enum bh_err read_token(struct platform *p, int status, struct str body,
                              struct str *ret_token, int64_t *ret_life_ms, char *ret_why)
{
    char why[256];
    struct json doc = {0};

    if (!json_parse(p->answers, body, &doc))
        doc = (struct json){0};
    enum bh_err err = read_login(doc, status, ret_token, ret_life_ms, why);
    if (err != BH_OK)
        snprintf(ret_why, 160, "%.159s", why);
    return err;
}

static const struct bearer_ops login_ops = {.ask = ask_login, .read = read_token};

const char *teams_auth_line(struct teams *t)
{
    struct str token = bearer_get(&t->login);

    if (token.p == NULL)
        return NULL;
    buf_reset(&t->auth);
    buf_add_z(&t->auth, "Authorization: Bearer ");
    buf_add_str(&t->auth, token);
    return buf_z(&t->auth);
}

/* ---- life ---- */

static struct jwks *keys_of(struct teams *t, const char *host, const char *path,
                            void (*fetched)(void *ctx))
{
    struct str base = str_of(base_of(t->cfg, host));
    BUF_LOCAL url = BUF_INIT;

    while (str_ends(base, STR("/")))
        base.n--;
    buf_printf(&url, "%.*s%s", STR_FMT(base), path);
    struct jwks *keys = jwks_new(&(struct jwks_env){.clock = t->base.env->clock,
                                                    .http = t->base.env->http,
                                                    .url = buf_z(&url),
                                                    .metadata = true,
                                                    .fresh_ms = FRESH_MS,
                                                    .again_ms = AGAIN_MS,
                                                    .burst = KEY_BURST,
                                                    .fetched = fetched,
                                                    .ctx = t});
    jwt_keys_set_skew(jwks_keys(keys), SKEW_S);
    return keys;
}

static void on_refresh(struct timer *timer)
{
    teams_auth_start(container_of(timer, struct teams, refresh));
}

void teams_auth_start(struct teams *t)
{
    timer_set(t->base.env->clock, &t->refresh, FRESH_MS);
    jwks_refresh(t->connector, false);
    if (t->tenant != NULL)
        jwks_refresh(t->tenant, false);
}

static enum bh_err read_certificate(struct teams *t, const char *path, char *ret_why)
{
    BUF_SECRET pem = BUF_INIT;

    if (!file_read(path, PEM_BYTES, &pem))
        return bh_err_why(BH_REFUSED, ret_why, "`certificate`: %.150s cannot be read", path);
    t->key = rsa_private(buf_str(&pem));
    if (t->key == NULL)
        return bh_err_why(BH_REFUSED, ret_why,
                          "`certificate`: %.100s has no private RSA key of 2048 bits or more, "
                          "without a passphrase, in PEM",
                          path);
    if (!certificate_thumbprint(buf_str(&pem), t->key, t->thumbprint))
        return bh_err_why(BH_REFUSED, ret_why,
                          "`certificate`: %.120s has no certificate of its private key", path);
    return BH_OK;
}

enum bh_err teams_auth_open(struct teams *t, char *ret_why)
{
    BUF_LOCAL path = BUF_INIT;

    timer_init(&t->refresh, on_refresh);
    list_init(&t->held);
    t->login = (struct bearer){.ops = &login_ops, .p = &t->base};
    t->connector =
        keys_of(t, METADATA_HOST, "/v1/.well-known/openidconfiguration", on_connector_keys);
    if (t->cfg->entra_tenant != NULL) {
        buf_printf(&path, "/%s/v2.0/.well-known/openid-configuration", t->cfg->entra_tenant);
        t->tenant = keys_of(t, LOGIN_HOST, buf_z(&path), on_tenant_keys);
    }
    return t->cfg->certificate != NULL ? read_certificate(t, t->cfg->certificate, ret_why) : BH_OK;
}

void teams_auth_close(struct teams *t)
{
    timer_stop(t->base.env->clock, &t->refresh);
    jwks_free(t->connector);
    jwks_free(t->tenant);
    while (!list_is_empty(&t->held))
        held_free(t, list_first(&t->held, struct teams_held, link));
    bearer_done(&t->login);
    rsa_key_free(t->key);
    buf_wipe(&t->auth);
}

enum bh_err teams_auth_check(const struct teams_settings *cfg, char *ret_why)
{
    struct rand rand = RAND_SYSTEM;
    struct clock *clock = clock_new();
    const struct host_env env = {.clock = clock, .rand = &rand};
    struct teams t = {.base.env = &env, .cfg = cfg, .app = platform_id_in(str_of(cfg->base.bot))};
    struct json_parser *parser = json_parser_new();
    struct bearer_ask q = {0};
    struct json doc = {0};
    struct str token;
    int64_t life_ms;
    int status = 0;
    enum bh_err err =
        cfg->certificate != NULL ? read_certificate(&t, cfg->certificate, ret_why) : BH_OK;

    if (err == BH_OK && !write_login(&t, &q, ret_why))
        err = BH_REFUSED;
    if (err == BH_OK) {
        const char *const headers[] = {q.type, NULL};
        err = platform_ask(&(struct http_fetch){.method = "POST",
                                                .url = buf_z(&q.url),
                                                .headers = headers,
                                                .body = buf_str(&q.body),
                                                .timeout_ms = TEAMS_DEADLINE_MS},
                           parser, &status, &doc, ret_why);
    }
    if (err == BH_OK)
        err = read_login(doc, status, &token, &life_ms, ret_why);
    buf_wipe(&q.url);
    buf_wipe(&q.body);
    rsa_key_free(t.key);
    clock_free(clock);
    json_parser_free(parser);
    return err;
}
