/* keys.h - bearers for programs: made once, shown once, listed, revoked.
 *
 *      provision  a gateway's caller identity where no identity provider is set (enroll.h)
 *      agent      a program at /v1 and /mcp
 *      hook       a capability URL: whoever has the URL may use it
 *
 * One table holds all of them, in memory and in the store.  Agent keys and hooks look like
 * "bhk_<id>_<secret>": the id finds the record, the secret is compared with its fingerprint under
 * the master key, so that a stolen database opens nothing.  A provision token is signed and carries
 * its claims itself (local_token_mint); here is only that it exists and may be revoked.
 *
 *      keys_make(k, &spec, &made, on_made, ctx);            // made.text: show it once
 *      const struct key *who = keys_check(k, KEY_AGENT, bearer);   // NULL: a stranger
 *
 * A key says who somebody is; nothing a request says can widen it.
 */
#pragma once
#include "base/bucket.h"
#include "base/buf.h"
#include "base/list.h"

struct clock;
struct keys;
struct rand;
struct seal;
struct store;

#define KEY_ID_CHARS 16
#define KEY_TEXT_MAX 128 /* no key is longer */

enum key_kind { KEY_PROVISION, KEY_AGENT, KEY_HOOK };
const char *key_kind_word(enum key_kind kind); /* "provision" */

struct key {          /* owned by the table; the texts are NUL-terminated and never change */
    struct list link; /* by age */
    enum key_kind kind;
    bool attest;    /* may name authors other than itself */
    const char *id; /* KEY_ID_CHARS hex digits: in lists, in logs, for revoking */
    const char *tenant;
    const char *identity; /* who its owner is in that tenant: the author of what it writes */
    const char *agent;    /* the one agent it is for; NULL: any of the tenant */
    const char *instance; /* the instance it reads and speaks for (chat_*); NULL: none */
    const char *ns;       /* the one namespace of the stores it is for; NULL: any */
    const char *secret;   /* hooks: what bodies are signed with; NULL: none; wiped */
    int64_t made_ms;      /* wall clock; 0: not known */
    int64_t until_ms;     /* 0: for ever */
    int64_t used_ms;      /* 0: never */
    int64_t revoked_ms;   /* only provision tokens leave a tombstone, until they expire */
};

struct keys_env { /* borrowed */
    struct clock *clock;
    struct store *store;
    struct rand *rand;
    const struct seal *seal;
};
/* Blocks: loads everything.  @ret_why has 256 bytes. */
enum bh_err keys_open(const struct keys_env *env, struct keys **ret_k, char *ret_why) BH_MUST_USE;
/* NULL is fine.  The store must be closed or idle; what is under way is forgotten. */
void keys_free(struct keys *k);

struct key_spec {       /* absent members: not bound */
    enum key_kind kind; /* KEY_AGENT or KEY_HOOK */
    struct str tenant, identity, agent, instance, ns;
    bool attest;
    bool with_secret; /* a secret to sign bodies with, too */
    int64_t ttl_ms;   /* 0: for ever */
};
struct key_made { /* the caller keeps it alive until done(), then key_made_done() */
    struct buf id, text, secret;
};
void key_made_done(struct key_made *m);

/* Runs later, exactly once; @why is a sentence when @err is not BH_OK. */
typedef void keys_done_cb(void *ctx, enum bh_err err, const char *why);

/* @ret_made is filled before the call returns and means something when @done says BH_OK.  Without
 * an identity the key is known by its agent, else its instance, else its tenant. */
void keys_make(struct keys *k, const struct key_spec *spec, struct key_made *ret_made,
               keys_done_cb *done, void *ctx);
/* BH_NOT_FOUND: there is no such key, or it is revoked already. */
void keys_revoke(struct keys *k, struct str id, keys_done_cb *done, void *ctx);

/* The key behind a bearer, if it is one of @kind that is neither revoked nor expired; NULL: not.
 * This is a use of it.  The pointer is good until this turn ends. */
const struct key *keys_check(struct keys *k, enum key_kind kind, struct str text);
/* By its id, whatever its state; NULL: unknown. */
const struct key *keys_find(const struct keys *k, struct str id);
/* All of them, by age: links are struct key's first member. */
size_t keys_all(const struct keys *k, const struct list **ret_head);

/* May this key do one more thing now: at most so many per second of its own and of its whole
 * tenant, and twice as many at once.  0: no limit. */
bool keys_may_act(struct keys *k, const struct key *key, uint32_t key_per_s, uint32_t tenant_per_s);

/* May one more gateway of this tenant ask for its secret now?  Twenty times as many at once: a
 * fleet that starts does. */
bool keys_may_join(struct keys *k, const char *tenant, uint32_t per_s);

/* ---- provision tokens: signed elsewhere, remembered here ---- */
struct local_token;
/* A token was minted; it can be listed from now on.  @done as above, BH_OK when it is on disk. */
void keys_note_minted(struct keys *k, const struct local_token *t, keys_done_cb *done, void *ctx);
/* A token whose signature and time are good is shown: false when it was revoked.  One that was
 * unknown, because the database is older than the token, enters the table now. */
bool keys_admit(struct keys *k, const struct local_token *t);
struct record_form;
extern const struct record_form *const keys_records[]; /* ends with NULL */

/* A tenant's keys, as store/erasure.h runs it; ctx is the table. */
extern const struct eraser keys_eraser;
