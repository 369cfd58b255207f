/* idp.h - verifies a caller's bearer with the identity provider that the operator configured.
 *
 *      local       the bearer was minted by `bellhop token provision`
 *      jwt         the bearer is a JSON Web Token: RS256, by a public key or a JWKS that is fetched
 *                  when needed; issuer, audience, expiry and tenant claim are checked
 *      introspect  an account endpoint is asked with the caller's own bearer; its answer names the
 *                  tenant and is believed for a minute
 *
 * Besides, whatever the kind: a JSON Web Token with the audience "agent:<instance>" speaks for that
 * instance on the management plane and at /relay, when keys are configured.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct clock;
struct config_section;
struct facts;
struct http_client;
struct idp;
struct keys;

struct identity_settings {    /* `identity:` in the configuration, owned by it */
    char *kind;               /* "local", "jwt" or "introspect" */
    char *jwks_url;           /* jwt: where its keys are fetched, or */
    char *public_key;         /* jwt: the one key, in a file or as text */
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
void idp_free(struct idp *i); /* NULL is fine; no done() runs any more */

enum idp_purpose {
    IDP_CALLER, /* whose tenant is it */
    IDP_AGENT,  /* a token for one instance */
};
struct idp_claims {      /* borrowed for the callback */
    struct str tenant;   /* absent for an agent's token that does not say */
    struct str instance; /* IDP_AGENT: from its audience */
};
/* BH_REFUSED: not believed.  BH_UNAVAILABLE: whoever could tell does not answer. */
typedef void idp_done_cb(void *ctx, enum bh_err err, const struct idp_claims *claims,
                         const char *why);
/* Is somebody elsewhere asked about callers? */
bool idp_asks_others(const struct idp *i);
/* @done runs later, exactly once. */
void idp_ask(struct idp *i, enum idp_purpose purpose, struct str bearer, idp_done_cb *done,
             void *ctx);
