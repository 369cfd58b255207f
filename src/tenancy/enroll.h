/* enroll.h - gives a gateway its secret over HTTP, so that no operator has to copy it.
 *
 *      enroll     once: the caller redeems a single-use token that an operator minted for its
 *                 tenant, and always gets a new secret
 *      provision  at every start: an identity provider or a provision token vouches for the
 *                 caller's tenant; within PROVISION_SAME_MS of the last secret the caller gets the
 *                 same one again, later a new one
 *
 * After a new secret the old ones stay valid for PROVISION_KEEP_MS, because the gateway's previous
 * process may still run.  After a provision they also stay valid until the new secret is used.
 *
 * A gateway may claim route keys that no other tenant has.  A claim only keeps other tenants from
 * claiming the key; it delivers nothing and permits no sends (facts.h).
 *
 * The master key signs the tokens, and a token carries its own claims.  The store keeps only the
 * nonces of redeemed enrollment tokens, until they expire; keys.h lists provision tokens.
 * http/enroll_route.c calls this module.
 */
#pragma once
#include "base/buf.h"
#include "tenancy/facts.h"

#define PROVISION_SAME_MS 900000  /* 15 minutes */
#define PROVISION_KEEP_MS 3600000 /* how long the previous secret stays valid */
#define PROVISION_ROUTES_MAX 256  /* route keys of one call ... */
#define PROVISION_CLAIMS_MAX 1024 /* ... and of one instance over all calls */
#define DISPLAY_NAME_MAX 256      /* bytes; the client sends 64 characters at most */

enum local_token_kind { TOKEN_ENROLL, TOKEN_PROVISION };

struct local_token { /* absent strs are not in the token */
    enum local_token_kind kind;
    struct str tenant, instance, wake_url, nonce;
    int64_t exp_ms; /* wall */
};
/* Appends a signed token with a random nonce; the nonce in @t is ignored. */
void local_token_mint(struct facts *f, const struct local_token *t, struct buf *out);
/* Checks signature, kind and expiry.  The strs of @ret are borrowed from @parser.  False: @ret_why
 * has the reason. */
bool local_token_read(const struct facts *f, struct str text, enum local_token_kind kind,
                      struct json_parser *parser, struct local_token *ret, const char **ret_why);

struct provision_spec { /* absent members leave the record's fields as they are */
    struct str tenant;  /* from the caller's identity, never from a body */
    struct str gateway, instance, wake_url, platform, bot;
    struct str display_name; /* ignored when too long or unprintable */
    const struct str *route_keys;
    size_t n_route_keys;
};
struct provision_result { /* filled when done() gets BH_OK; must live until then */
    struct buf secret, delivery_key;
    struct buf route_keys; /* a JSON array: the requested keys that the instance has now */
};
void provision_result_done(struct provision_result *r);

/* BH_REFUSED: the id belongs to another tenant or was revoked.  BH_BUSY: over limits.gateways.
 * Leaves out the route key "*" and keys that another tenant has.  Leaves out all keys while an
 * operator gave the gateway's bot or "*" to another tenant.
 *
 * @t: redeems this enrollment token and always makes a new secret.  A revoked id of the same tenant
 * becomes valid again; limits.gateways does not count.  BH_CONFLICT: the token was used before.
 * NULL: a provision. */
void facts_provision(struct facts *f, const struct provision_spec *spec,
                     const struct local_token *t, struct provision_result *r, facts_done_cb *done,
                     void *ctx);
