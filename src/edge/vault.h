/* vault.h - keeps platform credentials that gateways may use but never see.
 *
 *      vault_bind(v, &spec)                      a webhook brought a token
 *      vault_take(v, who, key, ...)              a follow_up names a session: returns a reference
 *      vault_take_place(v, who, place, ...)      a plain send to the token's chat: the same
 *        vault_chat_of(v, ref)                    the chat in which the caller needs a right
 *        vault_open_value(v, ref, &plain)        decrypts the token; buf_wipe() it after use
 *        vault_used(v, ref) | vault_give_back(v, ref)
 *
 * The Discord adapter calls it (platform/discord/interactions.c).  An entry is a value (the token
 * of an interaction) bound to a tenant, to the bot that it came through, to the session keys that
 * its gateway may name, to a kind ("discord.interaction_token") and to a place (a chat).
 *
 * An entry is no right to speak: the vault knows who received it, not whether the reason for it
 * still holds.  Whoever uses an entry asks host_may_act() (platform.h) for its chat each time.
 *
 * The vault owns the entries.  Their values are encrypted in memory and in the store.  Entries
 * survive a restart, expire, and are deleted when a gateway of their tenant is revoked.
 *
 * An entry is fresh until it is used, except while a caller has taken it.  A caller cannot tell
 * absent, expired and foreign entries apart: each lookup just returns false.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/handles.h"

struct vault;

#define VAULT_REFUSED "capability not available" /* the one text for absent, expired, foreign */

/* How the vault looks up tenants.  NULL: no gateway is ever revoked. */
struct vault_tenants {
    struct str (*of_gateway)(void *ctx, struct str id); /* absent: no such gateway */
    bool (*has_gateway)(void *ctx, struct str tenant);  /* has one that is not revoked */
    void *ctx;
};

struct vault_env { /* borrowed for the life of the vault */
    struct clock *clock;
    struct store *store;
    const struct seal *seal;
    struct observers *observers; /* reports revocations; NULL: nobody does */
    const struct vault_tenants *tenants;
};

/* Blocks: reads the entries of an earlier process, and drops those that have expired or whose
 * gateways were revoked. */
enum bh_err vault_open(const struct vault_env *env, struct vault **ret_v,
                       char *ret_why) BH_MUST_USE;
/* Call before freeing the clock, after the last report of an observer.  NULL is fine. */
void vault_free(struct vault *v);

#define VAULT_KEYS 4 /* session keys of one entry */

struct vault_spec { /* everything is copied */
    struct str tenant;
    struct str instance;                 /* may take the entry */
    struct str session_keys[VAULT_KEYS]; /* different ones; absent ones are left out */
    struct str kind;
    struct str bot;         /* only this bot may use the entry */
    struct str chat, scope; /* as in the event; what vault_chat_of() returns */
    struct str id;          /* the platform's; binding an id again only adds the instance */
    struct str place;       /* the chat; unique within the tenant and kind */
    struct str user;        /* the person who caused the entry; absent: unknown */
    struct str value;       /* the secret */
    int64_t ttl_ms;
    bool used; /* the first response has been sent: only follow-ups remain */
};
void vault_bind(struct vault *v, const struct vault_spec *spec);

struct vault_ref { /* an entry; may outlive it */
    struct handle id;
};
struct vault_user { /* who takes an entry, through which bot; borrowed for the call */
    struct str tenant, instance, bot, kind;
};
/* Takes the oldest fresh entry of a session that @who may use (@ret_first is true), else finds the
 * newest other one.  A fresh entry belongs to the caller until vault_used() or vault_give_back().
 */
bool vault_take(struct vault *v, const struct vault_user *who, struct str session_key,
                struct vault_ref *ret_ref, bool *ret_first);
/* Takes the oldest fresh entry of a place that @who may use, preferring entries of @user (may be
 * absent).  It belongs to the caller until vault_used() or vault_give_back(). */
bool vault_take_place(struct vault *v, const struct vault_user *who, struct str place,
                      struct str user, struct vault_ref *ret_ref);
/* The chat and the scope that an entry was bound with; borrowed until the entry goes.  False: it
 * was deleted. */
bool vault_chat_of(struct vault *v, struct vault_ref ref, struct str *ret_chat,
                   struct str *ret_scope);
/* Decrypts the value.  False: the entry was deleted or has expired. */
bool vault_open_value(struct vault *v, struct vault_ref ref, struct buf *ret_plain) BH_MUST_USE;
void vault_used(struct vault *v, struct vault_ref ref); /* writes the record, without waiting */
void vault_give_back(struct vault *v, struct vault_ref ref); /* fresh again, unless used before */

size_t vault_count(const struct vault *v);
extern const struct record_form *const vault_records[]; /* ends with NULL */
