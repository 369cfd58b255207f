/* vault.h - capabilities of platforms that gateways may use but never see.
 *
 * An entry is a value (a Discord interaction's token) bound to a tenant, to the session keys its
 * gateway may name, to a kind ("discord.interaction_token") and to the place it belongs to.  Values
 * lie sealed in memory and in the store, and are opened only at the moment of use.  Entries survive
 * a restart, expire, and are deleted when a gateway of their tenant is revoked.
 *
 *      vault_bind(v, &spec)                     the edge: a token came
 *      vault_take(v, tenant, key, kind, &ref)   follow_up: names a session, gets a number
 *      vault_take_place(...)                    the next plain send to that place
 *        vault_open_value(v, ref, &plain)       the one moment the value is open: buf_wipe() it
 *        vault_used(v, ref) | vault_give_back(v, ref)
 *
 * An entry that was never used and is not being used is fresh.  Absent, expired and foreign entries
 * all answer false, and a caller cannot tell them apart.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"

struct observers;
struct clock;
struct seal;
struct record_form;
struct store;
struct vault;

#define VAULT_REFUSED "capability not available" /* the one text for absent, expired, foreign */

/* What the vault asks about tenants.  NULL: no gateway is ever revoked. */
struct vault_tenants {
    struct str (*of_gateway)(void *ctx, struct str id); /* absent: there is no such gateway */
    bool (*has_gateway)(void *ctx, struct str tenant);  /* one that is not revoked */
    void *ctx;
};

struct vault_env { /* borrowed for the life of the vault */
    struct clock *clock;
    struct store *store;
    const struct seal *seal;
    struct observers *observers; /* tells of revocations; NULL: nobody does */
    const struct vault_tenants *tenants;
};

/* Blocks: reads the entries of an earlier process, and drops those that have expired or whose
 * gateways were revoked. */
enum bh_err vault_open(const struct vault_env *env, struct vault **ret_v,
                       char *ret_why) BH_MUST_USE;
/* The observers and the store are closed before, the clock after.  NULL is fine. */
void vault_free(struct vault *v);

#define VAULT_KEYS 2 /* session keys of one entry */

struct vault_spec { /* everything is copied */
    struct str tenant;
    struct str instance;                 /* may use it by place */
    struct str session_keys[VAULT_KEYS]; /* absent ones are left out */
    struct str kind;
    struct str id;    /* the platform's own: binding the same again only adds the instance */
    struct str place; /* the chat, with whatever makes it unique */
    struct str user;  /* the person it is for; absent: unknown */
    struct str value; /* the secret */
    int64_t life_ms;
    bool used; /* the first response was sent already: only follow-ups remain */
};
void vault_bind(struct vault *v, const struct vault_spec *spec);

struct vault_ref { /* an entry by number: harmless when it has gone */
    uint64_t number;
};
/* The oldest fresh entry of this session, else the newest used one.  @ret_first tells which: a
 * fresh one is the caller's until vault_used() or vault_give_back(). */
bool vault_take(struct vault *v, struct str tenant, struct str session_key, struct str kind,
                struct vault_ref *ret_ref, bool *ret_first);
/* The oldest fresh entry of this place that @instance may use; one of @user (may be absent) goes
 * first.  It is the caller's until vault_used() or vault_give_back(). */
bool vault_take_place(struct vault *v, struct str tenant, struct str instance, struct str kind,
                      struct str place, struct str user, struct vault_ref *ret_ref);
/* False: gone or expired meanwhile. */
bool vault_open_value(struct vault *v, struct vault_ref ref, struct buf *ret_plain) BH_MUST_USE;
void vault_used(struct vault *v, struct vault_ref ref);      /* on disk soon */
void vault_give_back(struct vault *v, struct vault_ref ref); /* it was not used after all */

/* Delete all entries of a tenant; returns how many. */
size_t vault_wipe(struct vault *v, struct str tenant);
size_t vault_count(const struct vault *v);
extern const struct record_form *const vault_records[]; /* ends with NULL */
