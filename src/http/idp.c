/* idp.c - verifying bearers with the identity provider.  (idp.h has the contract.) */
#include "http/idp.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/config.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "core/jwt.h"
#include "edge/jwks.h"
#include "net/http_client.h"
#include "tenancy/enroll.h"
#include "tenancy/keys.h"

/* ---- `identity:` in the configuration ---- */

#define AT(member) offsetof(struct identity_settings, member)

static const struct config_key identity_keys[] = {
    {"identity.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "local", "local|jwt|introspect",
     .what = "Who vouches for callers that enroll or provision: `local` is the operator (`bellhop "
             "token provision`), `jwt` a signed token, `introspect` an account endpoint."},
    {"identity.jwks_url", CFG_TEXT, CFG_RESTART, AT(jwks_url),
     .what = "The URL of the public keys that sign tokens; RS256 only."},
    {"identity.public_key", CFG_TEXT, CFG_RESTART, AT(public_key),
     .what = "A PEM file with one public key, instead of `identity.jwks_url`."},
    {"identity.issuer", CFG_TEXT, CFG_RESTART, AT(issuer),
     .what = "The required `iss` of a signed token."},
    {"identity.audience", CFG_TEXT, CFG_RESTART, AT(audience),
     .what = "The required `aud` of a signed token."},
    {"identity.tenant_claim", CFG_TEXT, CFG_RESTART, AT(tenant_claim), "tenant",
     .what = "The claim that names the tenant; `org.id` is the member `id` of the claim `org`."},
    {"identity.url", CFG_TEXT, CFG_RESTART, AT(url),
     .what = "The account endpoint, which is called with the caller's own bearer."},
    {"identity.tenant_field", CFG_TEXT, CFG_RESTART, AT(tenant_field), "tenant",
     .what = "The member of its answer that names the tenant."},
    {0},
};

static bool check_settings(void *settings, char *ret_why)
{
    const struct identity_settings *s = settings;
    bool jwt = strcmp(s->kind, "jwt") == 0;
    const char *mistake = NULL;

    if (strcmp(s->kind, "introspect") == 0 && s->url == NULL)
        mistake = "identity.kind introspect needs identity.url, the account endpoint";
    else if (jwt && s->public_key == NULL && s->jwks_url == NULL)
        mistake = "identity.kind jwt needs identity.jwks_url or identity.public_key";
    else if (jwt && (s->issuer == NULL || s->audience == NULL))
        mistake = "identity.kind jwt needs identity.issuer and identity.audience";
    if (mistake != NULL)
        snprintf(ret_why, 256, "%s", mistake);
    return mistake == NULL;
}

const struct config_section identity_config = {.keys = identity_keys,
                                               .size = sizeof(struct identity_settings),
                                               .check = check_settings};

/* ---- bearers ---- */

enum {
    JWKS_FRESH_MS = 600000, /* keys older than this are fetched again */
    JWKS_AGAIN_MS = 10000,  /* but no more often than this */
    BELIEVED_MS = 60000,    /* how long an answer of the account server is cached */
    BELIEVED_MAX = 4096,
    FETCH_MS = 8000,      /* callers give up after 15 s */
    QUESTIONS_MAX = 1024, /* that wait for another server */
};

struct question {
    struct list link; /* idp->questions */
    struct idp *i;    /* borrowed */
    enum idp_purpose purpose;
    char *bearer; /* owned, wiped */
    idp_done_cb *done;
    void *ctx;
    struct http_call *call; /* introspect: the request in flight */
    bool waits;             /* for the JWKS, or the account server */
};

struct believed {     /* a cached answer of the account server */
    struct list link; /* oldest first */
    int64_t until_ms; /* monotonic */
    uint8_t hash[SHA256_BYTES];
    char tenant[];
};

struct idp {
    struct idp_env env;
    struct jwks *jwks;     /* owned; NULL: the only key is in a file */
    struct jwt_keys *keys; /* owned, but borrowed of @jwks; NULL: no JWT is accepted */
    struct list questions;
    size_t n_waiting;    /* of the questions, those with @waits set */
    struct timer answer; /* answers new questions, outside the call that asked */
    struct map believed; /* hash -> struct believed, owned */
    struct list believed_by_age;
    bool agents; /* idp_admit_agents() */
};

static void question_free(struct question *q)
{
    q->i->n_waiting -= q->waits;
    http_cancel(&q->call);
    list_remove(&q->link);
    secret_wipe(q->bearer, strlen(q->bearer));
    free(q->bearer);
    free(q);
}

/* Calls back and frees the question. */
static void answer(struct question *q, enum bh_err err, const struct idp_claims *claims,
                   const char *why)
{
    list_remove(&q->link); /* first: the callback may ask a new question */
    q->done(q->ctx, err, claims, why);
    question_free(q);
}

/* Counts a question that waits for another server.  False: too many wait, and @q was answered.  The
 * bound is needed because anybody can ask, and each question holds memory and perhaps a request. */
static bool wait_for_answer(struct question *q)
{
    if (q->i->n_waiting >= QUESTIONS_MAX) {
        answer(q, BH_UNAVAILABLE, NULL, "too many are asking");
        return false;
    }
    q->waits = true;
    q->i->n_waiting++;
    return true;
}

/* ---- signed tokens ---- */

/* The claim at @path; a dot leads into an object: "org.id". */
static struct str claim_at(struct json claims, const char *path)
{
    struct str rest = str_of(path), part;
    char name[128];

    while (str_split(&rest, '.', &part)) {
        if (part.n >= sizeof name)
            return STR_NULL;
        snprintf(name, sizeof name, "%.*s", STR_FMT(part));
        claims = json_get(claims, name);
    }
    return json_as_str(claims);
}

#define AUDIENCE "agent:" /* then the instance */

static struct str instance_of(struct json claims)
{
    struct json aud = json_get(claims, "aud");
    struct str found = STR_NULL;

    if (json_type(aud) == JSON_STRING && str_starts(json_as_str(aud), STR(AUDIENCE)))
        found = json_as_str(aud);
    for (struct json_iter it = {0}; json_type(aud) == JSON_ARRAY && json_next(aud, &it);)
        if (str_starts(json_as_str(it.value), STR(AUDIENCE))) {
            if (found.p != NULL)
                return STR_NULL; /* a token for two instances is accepted for neither */
            found = json_as_str(it.value);
        }
    return found.p != NULL ? str_skip(found, sizeof AUDIENCE - 1) : found;
}

/* Checks the claims of a token whose signature is good.  NULL: @ret is filled; else the reason. */
static const char *read_claims(const struct question *q, struct json claims, struct idp_claims *ret)
{
    const struct identity_settings *c = q->i->env.cfg;

    if (c->issuer != NULL && !str_eq(json_str(claims, "iss"), str_of(c->issuer)))
        return "the token has another issuer (iss) than identity.issuer";
    ret->tenant = claim_at(claims, c->tenant_claim);
    if (q->purpose == IDP_INSTANCE) {
        ret->instance = instance_of(claims);
        return str_is_empty(ret->instance) ? "the token's audience (aud) names no agent, or several"
                                           : NULL;
    }
    if (c->audience == NULL || !jwt_has_audience(claims, str_of(c->audience)))
        return "the token has another audience (aud) than identity.audience";
    return str_is_empty(ret->tenant) ? "the token lacks the claim of identity.tenant_claim" : NULL;
}

/* @last: the JWKS was fetched for this question already. */
static void answer_jwt(struct question *q, bool last)
{
    struct idp *i = q->i;
    struct idp_claims claims = {0};
    struct jwt t;
    const char *why = "the bearer is not a JWT";

    if (!last && i->jwks != NULL && jwks_refresh(i->jwks, false)) {
        wait_for_answer(q);
        return;
    }
    if (jwt_read(str_of(q->bearer), &t)) {
        enum jwt_verdict v = jwt_verify(&t, i->keys, clock_wall_ms(i->env.clock) / 1000);
        if (v == JWT_UNKNOWN_KEY && !last && i->jwks != NULL && jwks_refresh(i->jwks, true)) {
            jwt_done(&t);
            wait_for_answer(q);
            return;
        }
        if (v == JWT_UNKNOWN_KEY && jwt_keys_count(i->keys) == 0 && i->jwks != NULL) {
            jwt_done(&t);
            answer(q, BH_UNAVAILABLE, NULL, "the keys of the identity provider cannot be fetched");
            return;
        }
        why = v == JWT_OK ? read_claims(q, t.claims, &claims) : jwt_verdict_text(v);
    }
    answer(q, why == NULL ? BH_OK : BH_REFUSED, why == NULL ? &claims : NULL, why);
    jwt_done(&t);
}

static void answer_with_jwks(struct question *q)
{
    answer_jwt(q, true);
}

/* Calls @answer_it for the questions that wait for the JWKS, or for the new ones. */
static void each_question(struct idp *i, bool waiting, void (*answer_it)(struct question *q))
{
    struct list taken; /* a copy: callbacks may ask new questions */

    list_init(&taken);
    list_each (&i->questions, it, nxt) {
        struct question *q = list_entry(it, struct question, link);
        if (q->waits == waiting && q->call == NULL)
            list_move(&q->link, &taken);
    }
    while (!list_is_empty(&taken)) {
        struct question *q = list_first(&taken, struct question, link);
        list_move(&q->link, &i->questions);
        answer_it(q);
    }
}

static void on_jwks(void *ctx)
{
    each_question(ctx, true, answer_with_jwks);
}

/* ---- introspection ---- */

static void forget(struct idp *i, struct believed *b)
{
    map_del(&i->believed, str_make(b->hash, sizeof b->hash));
    list_remove(&b->link);
    free(b);
}

static void on_account(void *ctx, const struct http_result *r)
{
    struct question *q = ctx;
    struct idp *i = q->i;
    struct json_parser *parser = json_parser_new();
    struct json doc;

    q->call = NULL;
    if (r->err != BH_OK || r->status >= 500) {
        answer(q, BH_UNAVAILABLE, NULL, "the account server does not answer");
    } else if (r->status != 200 || !json_parse(parser, r->body, &doc)) {
        answer(q, BH_REFUSED, NULL, "the account server does not know the caller");
    } else {
        struct str tenant = claim_at(doc, i->env.cfg->tenant_field);
        if (facts_name_ok(tenant)) {
            struct believed *b = xcalloc(1, sizeof *b + tenant.n + 1), *old;
            if (map_count(&i->believed) >= BELIEVED_MAX)
                forget(i, list_first(&i->believed_by_age, struct believed, link));
            b->until_ms = clock_now_ms(i->env.clock) + BELIEVED_MS;
            sha256(str_of(q->bearer), b->hash);
            memcpy(b->tenant, tenant.p, tenant.n);
            if ((old = map_get(&i->believed, str_make(b->hash, sizeof b->hash))) != NULL)
                forget(i, old);
            map_put(&i->believed, str_make(b->hash, sizeof b->hash), b);
            list_append(&i->believed_by_age, &b->link);
            answer(q, BH_OK, &(struct idp_claims){.tenant = tenant}, NULL);
        } else {
            answer(q, BH_REFUSED, NULL, "the account server names no tenant");
        }
    }
    json_parser_free(parser);
}

static void answer_introspect(struct question *q)
{
    struct idp *i = q->i;
    uint8_t hash[SHA256_BYTES];
    struct buf header = BUF_INIT;

    sha256(str_of(q->bearer), hash);
    struct believed *b = map_get(&i->believed, str_make(hash, sizeof hash));
    if (b != NULL && b->until_ms > clock_now_ms(i->env.clock)) {
        answer(q, BH_OK, &(struct idp_claims){.tenant = str_of(b->tenant)}, NULL);
        return;
    }
    if (!wait_for_answer(q))
        return;
    buf_printf(&header, "Authorization: Bearer %s", q->bearer);
    const char *const headers[] = {buf_z(&header), "Accept: application/json", NULL};
    q->call = http_fetch(i->env.http,
                         &(struct http_fetch){.url = i->env.cfg->url,
                                              .headers = headers,
                                              .timeout_ms = FETCH_MS,
                                              .max_body = 1 << 18},
                         on_account, q);
    buf_wipe(&header);
}

/* ---- questions ---- */

static void consider(struct question *q)
{
    const char *kind = q->i->env.cfg->kind;

    if (q->purpose == IDP_INSTANCE || strcmp(kind, "jwt") == 0) {
        if (q->i->keys != NULL)
            answer_jwt(q, false);
        else
            answer(q, BH_REFUSED, NULL, "signed tokens are not accepted here");
    } else if (strcmp(kind, "introspect") == 0) {
        answer_introspect(q);
    } else { /* local */
        struct json_parser *parser = json_parser_new();
        const struct key *agent =
            q->i->agents ? keys_check(q->i->env.keys, KEY_AGENT, str_of(q->bearer)) : NULL;
        struct local_token t;
        const char *why;
        if (agent != NULL && agent->instance != NULL)
            answer(q, BH_OK, &(struct idp_claims){str_of(agent->tenant), str_of(agent->instance)},
                   NULL);
        else if (!local_token_read(q->i->env.facts, str_of(q->bearer), TOKEN_PROVISION, parser, &t,
                                   &why))
            answer(q, BH_REFUSED, NULL, why);
        else if (!keys_admit(q->i->env.keys, &t))
            answer(q, BH_REFUSED, NULL, "it was revoked");
        else
            answer(q, BH_OK, &(struct idp_claims){.tenant = t.tenant}, NULL);
        json_parser_free(parser);
    }
}

static void on_turn(struct timer *t)
{
    each_question(container_of(t, struct idp, answer), false, consider);
}

void idp_admit_agents(struct idp *i)
{
    i->agents = true;
}

bool idp_asks_others(const struct idp *i)
{
    return i->jwks != NULL || strcmp(i->env.cfg->kind, "introspect") == 0;
}

void idp_ask(struct idp *i, enum idp_purpose purpose, struct str bearer, idp_done_cb *done,
             void *ctx)
{
    struct question *q = xcalloc(1, sizeof *q);

    *q = (struct question){.i = i, .purpose = purpose, .done = done, .ctx = ctx};
    list_init(&q->link);
    bool plain = bearer.n > 0 && bearer.n <= JWT_MAX_BYTES;
    for (size_t k = 0; k < bearer.n && plain; k++)
        plain = bearer.p[k] > ' ' && bearer.p[k] < 0x7f;
    q->bearer = plain ? str_dup(bearer) : xstrdup("");
    list_append(&i->questions, &q->link);
    timer_set(i->env.clock, &i->answer, 0);
}

/* ---- life ---- */

static enum bh_err open_keys(struct idp *i, char *why)
{
    const struct identity_settings *c = i->env.cfg;
    struct buf pem = BUF_INIT;
    bool ok = true;

    if (c->public_key == NULL && c->jwks_url == NULL)
        return BH_OK;
    if (c->public_key == NULL) {
        i->jwks = jwks_new(&(struct jwks_env){.clock = i->env.clock,
                                              .http = i->env.http,
                                              .url = c->jwks_url,
                                              .fresh_ms = JWKS_FRESH_MS,
                                              .again_ms = JWKS_AGAIN_MS,
                                              .burst = 1,
                                              .fetched = on_jwks,
                                              .ctx = i});
        i->keys = jwks_keys(i->jwks);
        return BH_OK;
    }
    i->keys = jwt_keys_new();
    if (strncmp(c->public_key, "-----", 5) == 0)
        buf_add_z(&pem, c->public_key);
    else
        ok = file_read(c->public_key, 65536, &pem);
    if (!ok || !jwt_keys_add_pem(i->keys, buf_str(&pem))) {
        snprintf(why, 256,
                 "identity.public_key is no PEM file with an RSA public key of 2048 bits or more");
        ok = false;
    }
    buf_done(&pem);
    return ok ? BH_OK : BH_REFUSED;
}

enum bh_err idp_open(const struct idp_env *env, struct idp **ret_i, char *ret_why)
{
    struct idp *i = xcalloc(1, sizeof *i);

    *i = (struct idp){.env = *env};
    list_init(&i->questions);
    list_init(&i->believed_by_age);
    timer_init(&i->answer, on_turn);
    enum bh_err err = open_keys(i, ret_why);
    if (err != BH_OK) {
        idp_free(i);
        return err;
    }
    *ret_i = i;
    return BH_OK;
}

void idp_free(struct idp *i)
{
    if (i == NULL)
        return;
    timer_stop(i->env.clock, &i->answer);
    list_each (&i->questions, it, nxt)
        question_free(list_entry(it, struct question, link));
    list_each (&i->believed_by_age, it, nxt)
        forget(i, list_entry(it, struct believed, link));
    map_done(&i->believed);
    if (i->jwks == NULL)
        jwt_keys_free(i->keys);
    jwks_free(i->jwks);
    free(i);
}
