/* jwt.h - reads and verifies JSON Web Tokens that are signed with RS256.
 *
 *      if (jwt_read(text, &t) && jwt_verify(&t, keys, now_s) == JWT_OK) use(t.claims);
 *      jwt_done(&t);
 *
 * RS256 is the only algorithm, whatever the token's header says.  So neither "none" nor an HMAC
 * with the public key as its secret is accepted.  http/idp.c and platform/teams call it,
 * edge/jwks.h fetches the keys; this module does no I/O.
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"

#define JWT_MAX_BYTES 16384
#define JWT_SKEW_S 60 /* tolerated difference between our clock and the issuer's */

struct jwt_keys; /* public keys, each with its id */

struct jwt_keys *jwt_keys_new(void);
void jwt_keys_free(struct jwt_keys *k); /* NULL is fine */
/* Replaces all keys by the keys of a JWKS document that work with RS256.  Returns how many. */
size_t jwt_keys_set_jwks(struct jwt_keys *k, struct json jwks);
bool jwt_keys_add_pem(struct jwt_keys *k, struct str pem); /* a public key without an id */
size_t jwt_keys_count(const struct jwt_keys *k);
void jwt_keys_set_skew(struct jwt_keys *k, int64_t skew_s); /* instead of JWT_SKEW_S */
/* May the key @kid sign for @channel?  Yes if its JWKS lists the channel among the key's
 * "endorsements" or lists none. */
bool jwt_key_endorses(const struct jwt_keys *k, struct str kid, struct str channel);

struct jwt {                                         /* parsed, not verified */
    struct buf bytes;                                /* owned: header, claims, signature, decoded */
    struct json_parser *head_parser, *claims_parser; /* owned */
    struct str signed_part;                          /* borrowed from the token */
    struct str signature;                            /* in bytes */
    struct str alg, kid;                             /* absent: not in the header */
    struct json claims;
};
/* False: not a JWT.  Call jwt_done() either way. */
bool jwt_read(struct str text, struct jwt *ret);
void jwt_done(struct jwt *t);

enum jwt_verdict {
    JWT_OK,
    JWT_BAD_ALG,     /* not RS256, or the header requires an unsupported extension */
    JWT_UNKNOWN_KEY, /* no key with this id: the keys may have been rotated */
    JWT_BAD_SIGNATURE,
    JWT_NO_EXPIRY,
    JWT_EXPIRED,
    JWT_EARLY, /* not valid yet */
};
enum jwt_verdict jwt_verify(const struct jwt *t, const struct jwt_keys *k, int64_t now_s);
const char *jwt_verdict_text(enum jwt_verdict v);
/* True when @want is the audience or one of several. */
bool jwt_has_audience(struct json claims, struct str want);
