/* idp.h - verifies a caller's bearer with the identity provider that the operator configured.
 *
 *      local       the bearer was minted by `bellhop token provision`
 *      jwt         the bearer is a JSON Web Token: RS256, by a public key or a JWKS that is fetched
 *                  when needed; issuer, audience, expiry and tenant claim are checked
 *      introspect  the account endpoint gets the caller's own bearer; its answer names the tenant
 *                  and is cached for a minute
 *
 * With any kind, when JWT keys are configured: a JSON Web Token with the audience
 * "agent:<instance>" authenticates that instance on the management plane and at /relay.
 *
 * Called by enroll_route.c, manage.c and gateway_socket.c.  Owns the keys it fetched, the cache and
 * the questions in flight.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct idp;

struct identity_settings {    /* `identity:` in the configuration, owned by it */
    char *kind;               /* "local", "jwt" or "introspect" */
    char *jwks_url;           /* jwt: URL of the key set, or */
    char *public_key;         /* jwt: the only key, a file's path or the PEM text */
    char *issuer, *audience;  /* jwt */
    char *tenant_claim;       /* jwt */
    char *url, *tenant_field; /* introspect */
};
extern const struct config_section identity_config;

struct idp_env { /* borrowed */
    struct clock *clock;
    struct http_client *http;
    struct facts *facts;
    struct keys *keys;
    const struct identity_settings *cfg;
};
/* @ret_why has 256 bytes: what to fix in the configuration. */
enum bh_err idp_open(const struct idp_env *env, struct idp **ret_i, char *ret_why) BH_MUST_USE;
void idp_free(struct idp *i); /* NULL is fine; drops open questions without calling back */

enum idp_purpose {
    IDP_CALLER,   /* which tenant does the bearer belong to? */
    IDP_INSTANCE, /* which instance is the token for? */
};
struct idp_claims {      /* borrowed for the callback */
    struct str tenant;   /* absent when an instance's token names none */
    struct str instance; /* IDP_INSTANCE: from the token's audience; or that of an agent's key */
};
/* BH_REFUSED: the bearer is not valid.  BH_UNAVAILABLE: the identity provider does not answer. */
typedef void idp_done_cb(void *ctx, enum bh_err err, const struct idp_claims *claims,
                         const char *why);
/* For tests: with local identities, a key of `bellhop token agent` is a caller too, for its own
 * instance only. */
void idp_admit_agents(struct idp *i);
/* True when verifying a caller may need a request to another server. */
bool idp_asks_others(const struct idp *i);
/* Verifies @bearer, which is copied.  @done runs later, exactly once. */
void idp_ask(struct idp *i, enum idp_purpose purpose, struct str bearer, idp_done_cb *done,
             void *ctx);
