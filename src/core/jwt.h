/* jwt.h - a JSON Web Token signed with RS256, read and checked.
 *
 * The algorithm is pinned: whatever the header says, nothing but RS256 is tried, so neither "none"
 * nor a shared secret made of the public key gets anywhere.  No I/O: the keys are handed in.
 *
 *      if (jwt_read(text, &parser, &t) && jwt_verify(&t, keys, now_s) == JWT_OK) use(t.claims);
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"

#define JWT_MAX_BYTES 16384
#define JWT_SKEW_S 60 /* between our clock and the issuer's */

struct jwt_keys; /* public keys, each with its id */

struct jwt_keys *jwt_keys_new(void);
void jwt_keys_free(struct jwt_keys *k); /* NULL is fine */
/* The keys of a JWKS document that can be used with RS256; returns how many, replacing what was
 * there.  Others in it are left out. */
size_t jwt_keys_set_jwks(struct jwt_keys *k, struct json jwks);
bool jwt_keys_add_pem(struct jwt_keys *k, struct str pem); /* a public key without an id */
size_t jwt_keys_count(const struct jwt_keys *k);

struct jwt {                                         /* read, not yet believed */
    struct buf bytes;                                /* owned: header, claims, signature, decoded */
    struct json_parser *head_parser, *claims_parser; /* owned */
    struct str signed_part;                          /* borrowed from the token */
    struct str signature;                            /* in bytes */
    struct str alg, kid;                             /* absent: not said */
    struct json claims;
};
/* False: not a token at all.  Call jwt_done() either way. */
bool jwt_read(struct str text, struct jwt *ret);
void jwt_done(struct jwt *t);

enum jwt_verdict {
    JWT_OK,
    JWT_BAD_ALG,     /* anything but RS256, or a header that demands what we do not do */
    JWT_UNKNOWN_KEY, /* no key of that id: the keys may have been rotated */
    JWT_BAD_SIGNATURE,
    JWT_EXPIRED, /* or without an expiry */
    JWT_EARLY,   /* not valid yet */
};
enum jwt_verdict jwt_verify(const struct jwt *t, const struct jwt_keys *k, int64_t now_s);
const char *jwt_verdict_text(enum jwt_verdict v);
/* Is @want the audience, or one of them? */
bool jwt_has_audience(struct json claims, struct str want);
