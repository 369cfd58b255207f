/* jwks.h - the public keys of somebody who signs JSON Web Tokens: fetched, cached, fetched again.
 *
 *      token --> jwt_verify(&t, jwks_keys(j), now) --> JWT_UNKNOWN_KEY
 *                  '-- jwks_refresh(j, true) --> true: wait for env.fetched(), then verify again
 *
 * http/idp.c and platform/teams call it.  The keys are fetched when they are needed and older than
 * @fresh_ms, or when a token names a key that is not there: the issuer may have rotated its keys.
 * Strangers can name any key, so a budget bounds the fetches: @burst at once, then one per
 * @again_ms.  A fetch that fails leaves the keys of the last one.
 */
#pragma once
#include "base/clock.h"
#include "base/str.h"

struct http_client;
struct jwks;
struct jwt_keys;

struct jwks_env { /* borrowed, for the life of the jwks */
    struct clock *clock;
    struct http_client *http;
    const char *url; /* copied; of a JWKS, or of OpenID metadata */
    bool metadata;   /* @url names the JWKS in "jwks_uri", which is on the same host */
    int64_t fresh_ms, again_ms;
    unsigned burst; /* 1 or more */
    /* A fetch has ended, well or not.  Never called inside a call into the jwks. */
    void (*fetched)(void *ctx);
    void *ctx;
};

struct jwks *jwks_new(const struct jwks_env *env);
void jwks_free(struct jwks *j); /* cancels the fetch.  NULL is fine. */
/* Borrowed until the next fetch ends. */
struct jwt_keys *jwks_keys(struct jwks *j);
/* Fetches the keys if they are old or, @missing, lack one that a token names.  True: a fetch is
 * under way that may bring what is missing. */
bool jwks_refresh(struct jwks *j, bool missing);
bool jwks_is_fetched(const struct jwks *j); /* at least once */
