/* keys.h - bearer keys for programs: made, shown once, listed, checked and revoked.
 *
 *      provision  a gateway's caller identity where no identity provider is set (enroll.h)
 *      agent      a program at /v1 and /mcp
 *      hook       a capability URL: knowing the URL is the permission
 *      dashboard  signs a person in at /dashboard
 *
 * One table holds all keys, in memory and in the store.  All but provision tokens look like
 * "bhk_<id>_<secret>".  The id finds the record.  The record holds only an HMAC of the key under
 * the master key, so a stolen database contains no usable key.  A provision token is signed and
 * carries its own claims (local_token_mint()); the table only records that it exists or is revoked.
 *
 *      keys_make(k, &spec, &made, on_made, ctx);            // made.text: show it once
 *      const struct key *who = keys_check(k, KEY_AGENT, bearer);   // NULL: not valid
 *
 * The HTTP routes call it.  A request never gets more rights than its key has, whatever its body
 * says.
 */
#pragma once
#include "base/bucket.h"
#include "base/buf.h"
#include "base/list.h"

struct keys;

#define KEY_ID_CHARS 16
#define KEY_TEXT_MAX 128 /* bytes of the longest key */

enum key_kind { KEY_PROVISION, KEY_AGENT, KEY_HOOK, KEY_DASHBOARD };
const char *key_kind_word(enum key_kind kind); /* "provision" */

struct key {          /* owned by the table; the texts are NUL-terminated and never change */
    struct list link; /* by age */
    enum key_kind kind;
    bool attest;        /* may name authors other than itself */
    bool read_only;     /* dashboard: may change nothing */
    char *id;           /* KEY_ID_CHARS hex digits: in lists, in logs, for revoking */
    char *tenant;       /* dashboard: "" is the operator */
    char *identity;     /* the author of everything the key writes in its tenant */
    char *agent;        /* the only agent the key may use; NULL: any of the tenant */
    char *instance;     /* the instance it reads and sends as (chat_*); NULL: none */
    char *ns;           /* the only namespace of the stores it may use; NULL: any */
    char *secret;       /* hooks: signs the bodies; NULL: none; wiped */
    int64_t made_ms;    /* wall clock; 0: not known */
    int64_t until_ms;   /* expiry; 0: never */
    int64_t used_ms;    /* last use; 0: never */
    int64_t revoked_ms; /* only provision tokens keep a tombstone, until they expire */
};

struct keys_env { /* borrowed */
    struct clock *clock;
    struct store *store;
    struct rand *rand;
    const struct seal *seal;
};
/* Loads everything, and blocks meanwhile.  @ret_why has 256 bytes. */
enum bh_err keys_open(const struct keys_env *env, struct keys **ret_k, char *ret_why) BH_MUST_USE;
/* NULL is fine.  The store must be closed or idle; callbacks of pending changes do not run. */
void keys_free(struct keys *k);

struct key_spec {       /* absent members: no restriction */
    enum key_kind kind; /* not KEY_PROVISION */
    struct str tenant, identity, agent, instance, ns;
    bool attest, read_only;
    bool with_secret; /* also make a secret that signs bodies */
    int64_t ttl_ms;   /* 0: never expires */
};
struct key_made { /* filled before keys_make() returns; then key_made_done() */
    struct buf id, text, secret;
};
void key_made_done(struct key_made *m);

/* Runs later, exactly once; @why is a sentence when @err is not BH_OK. */
typedef void keys_done_cb(void *ctx, enum bh_err err, const char *why);

/* @ret_made is filled before the call returns and is valid once @done gets BH_OK.  The identity
 * defaults to the agent, else the instance, else the tenant. */
void keys_make(struct keys *k, const struct key_spec *spec, struct key_made *ret_made,
               keys_done_cb *done, void *ctx);
/* BH_NOT_FOUND: the key does not exist or is revoked already. */
void keys_revoke(struct keys *k, struct str id, keys_done_cb *done, void *ctx);

/* The key of a bearer; NULL unless it is of @kind and neither revoked nor expired.  Updates
 * used_ms.  The pointer is valid until this turn of the loop ends. */
const struct key *keys_check(struct keys *k, enum key_kind kind, struct str text);
/* The key with this id, revoked or not; NULL: unknown. */
const struct key *keys_find(const struct keys *k, struct str id);
/* True while the key with this id is neither revoked nor expired: for long calls that it began. */
bool keys_is_good(const struct keys *k, struct str id);
/* All keys by age; the list links struct key by its first member. */
size_t keys_all(const struct keys *k, const struct list **ret_head);

/* Takes one request from the rate limits of the key and of its tenant.  False: over a limit.  The
 * burst is twice the rate; a rate of 0 means no limit. */
bool keys_may_act(struct keys *k, const struct key *key, uint32_t key_per_s, uint32_t tenant_per_s);

/* Takes one request from the tenant's rate limit, for a caller that has no key. */
bool keys_tenant_may_act(struct keys *k, struct str tenant, uint32_t per_s);
/* Takes one request from the tenant's rate limit for gateways that ask for their secret.  The burst
 * is twenty times the rate, because a whole fleet may start at once. */
bool keys_may_join(struct keys *k, struct str tenant, uint32_t per_s);
/* Takes one call from the limit of a tenant's dashboards, whose calls may look at much. */
#define KEYS_LOOKS_S 50
#define KEYS_LOOKS_ONCE 500
bool keys_may_look(struct keys *k, struct str tenant);

/* ---- provision tokens: signed by enroll.c, recorded here ---- */
struct local_token;
/* Records a token that was minted.  @done gets BH_OK once the record is on disk. */
void keys_note_minted(struct keys *k, const struct local_token *t, keys_done_cb *done, void *ctx);
/* The caller has checked the token's signature and expiry.  False: the token was revoked.  Adds a
 * token that is unknown because the database was restored from an older backup. */
bool keys_admit(struct keys *k, const struct local_token *t);
extern const struct record_form *const keys_records[]; /* ends with NULL */

/* A tenant's keys, as store/erasure.h runs it; ctx is the table. */
extern const struct eraser keys_eraser;
