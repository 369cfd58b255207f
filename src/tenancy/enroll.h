/* enroll.h - how a gateway gets its credential without an operator typing it.
 *
 *      enroll     once, by hand: a single-use token an operator minted, shown by a caller whose
 *                 tenant is the token's
 *      provision  at every start, by a caller whose tenant an identity provider vouches for: the
 *                 same secret again within PROVISION_SAME_MS of the last mint, later a new one; the
 *                 old ones stay valid for an hour, because the process before may still be there,
 *                 and until the new one was used
 *
 * The route keys a gateway asserts say whose places they are, as long as nobody else has them, and
 * nothing more: they deliver nothing and let it speak nowhere (facts.h).
 *
 * Tokens are signed with the master key and say what they are for; nothing of them is stored but
 * that an enrollment token was used, until it has expired.
 */
#pragma once
#include "base/buf.h"
#include "tenancy/facts.h"

#define PROVISION_SAME_MS 900000  /* 15 minutes */
#define PROVISION_KEEP_MS 3600000 /* how long the secret before stays valid */
#define PROVISION_ROUTES_MAX 256  /* keys of one call ... */
#define PROVISION_CLAIMS_MAX 1024 /* ... and of an instance, however often it calls */
#define DISPLAY_NAME_MAX 256      /* bytes; the client says 64 characters at most */

struct json_parser;

enum local_token_kind { TOKEN_ENROLL, TOKEN_PROVISION };

struct local_token { /* strs absent when the token does not say */
    enum local_token_kind kind;
    struct str tenant, instance, wake_url, nonce;
    int64_t exp_ms; /* wall */
};
/* Appends a token; @t's nonce is made up here. */
void local_token_mint(struct facts *f, const struct local_token *t, struct buf *out);
/* Check signature, kind and expiry; @ret's strs are borrowed from @parser.  False: @ret_why tells.
 */
bool local_token_read(const struct facts *f, struct str text, enum local_token_kind kind,
                      struct json_parser *parser, struct local_token *ret, const char **ret_why);

struct provision_spec { /* absent members keep what the record says */
    struct str tenant;  /* from the caller's identity, never from a body */
    struct str gateway, instance, wake_url, platform, bot;
    struct str display_name; /* one that is too long or unprintable counts as not said */
    const struct str *route_keys;
    size_t n_route_keys;
};
struct provision_result { /* filled when done() says BH_OK; the caller keeps it alive until then */
    struct buf secret, delivery_key;
    struct buf route_keys; /* a JSON array: those that lead to this tenant now */
};
void provision_result_done(struct provision_result *r);

/* BH_REFUSED: the id belongs to another tenant or was revoked.  Route keys that another tenant has,
 * or that lie under a bot or a "*" an operator gave to another tenant, and "*", are left out. */
void facts_provision(struct facts *f, const struct provision_spec *spec, struct provision_result *r,
                     facts_done_cb *done, void *ctx);
/* The same with an enrollment token, which is used up; always a new secret.  BH_CONFLICT: it was
 * used before. */
void facts_enroll(struct facts *f, const struct provision_spec *spec, const struct local_token *t,
                  struct provision_result *r, facts_done_cb *done, void *ctx);
