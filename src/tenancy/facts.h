/* facts.h - the registry of gateways, secrets and routes, for authentication and routing.
 *
 *      start    store --facts_open()--> tables in memory
 *      event    relay --facts_route_key(), facts_gate()--> memory only, never the store
 *      change   facts_gateway_add() ... --> store --on disk--> memory --> observers ("facts")
 *
 * The relay, the HTTP routes and the host call it.  struct facts owns the records in memory and
 * borrows the store.  Secrets are sealed in the store; revoking a gateway wipes them from memory.
 * This module chooses the routes that apply to an event.  It never decides who receives the event:
 * core/gate.h does that.
 */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/map.h"
#include "core/accept.h"
#include "core/gate.h"
#include "core/token.h"

struct facts;

#define GATEWAY_SECRETS 4

/* A gateway's record.  While it is being built or changed, each text is its own allocation.  Once
 * the gateway is in the facts its texts are constant: they are in @words, or borrowed from the
 * instance where the instance has the same text. */
struct gateway {
    struct list link;    /* all gateways, by age */
    struct list by_inst; /* the instance's gateways that are not revoked, by age */
    char *id, *tenant;
    char *instance;       /* defaults to id */
    char *wake_url;       /* NULL: none */
    char *platform, *bot; /* the pair it named last; NULL: anything routed to it */
    char *also;           /* its other pairs: identity_nth(); NULL: none */
    char *bots;           /* the pairs an operator added it for: gateway_has_bot(); NULL: none */
    char *display_name;   /* as the gateway gave it; NULL: none */
    char *words;          /* owned; NULL: the gateway is not in the facts */
    struct gateway_secret {
        char *text;             /* owned, wiped */
        int64_t until_ms : 62;  /* expiry, wall clock; 0: valid while it is the newest */
        bool used : 1;          /* a gateway authenticated with it */
        bool waits : 1;         /* stays valid past until_ms until a newer secret is used */
    } secrets[GATEWAY_SECRETS]; /* newest first */
    int64_t created_ms, rotated_ms, revoked_ms; /* wall clock; revoked_ms != 0: a tombstone */
    uint8_t n_secrets;
    bool shares_id; /* @id is borrowed from the instance; else owned */
    bool newer;     /* of the newer generation, as its frames show: relay/session/session.c */
    bool drops;     /* an older Hermes, which drops what comes while it starts: the same */
    bool ackless;   /* never acks, so its deliveries are settled on write; the relay sets it */
};

/* Who made a route.  An operator's route lets its instance send and, when open, delivers events.  A
 * route that a gateway claimed while provisioning only keeps other tenants from claiming the key.
 */
enum route_origin { ROUTE_OPERATOR, ROUTE_PROVISION };

struct route {            /* gives a place (platform, key) to a tenant or one of its instances */
    struct list link;     /* in order of creation */
    char *platform, *key; /* in bytes */
    char *tenant;         /* in bytes */
    char *instance;       /* in bytes; NULL: every instance of the tenant */
    int64_t created_ms;   /* wall clock */
    enum route_origin origin;
    bool open;               /* the operator admits every author there */
    struct gate_place place; /* in bucket->gate.places while the route has a live target */
    struct list by_key;      /* the bucket's routes of this origin */
    struct list by_target;   /* the routes of the instance, or else the tenant, it names */
    struct bucket *bucket;   /* borrowed; NULL: not in the facts */
    struct str id;           /* the four names, NUL-terminated each; in bytes */
    char bytes[];
};

struct auth_settings { /* `auth:` in the configuration */
    bool require_expiry;
};
extern const struct config_section auth_config;

struct facts_env { /* borrowed */
    struct clock *clock;
    struct store *store;
    struct observers *observers;
    struct rand *rand;
    const struct seal *seal;
    bool require_expiry;   /* refuse tokens with exp 0 */
    struct ledger *ledger; /* limits.gateways; NULL: no limit */
    struct audit *audit;   /* the log of changes: audit.h; NULL: none */
};
/* Loads everything, and blocks meanwhile.  @ret_why has 256 bytes. */
enum bh_err facts_open(const struct facts_env *env, struct facts **ret_f,
                       char *ret_why) BH_MUST_USE;
/* facts_open() in two steps.  facts_begin() starts a thread that loads; the thread uses only the
 * store and the seal of @env.  facts_finish() waits for that thread.  The facts may be used once
 * facts_finish() returned BH_OK.  After an error, or between the two, only call facts_free(). */
struct facts *facts_begin(const struct facts_env *env);
enum bh_err facts_finish(struct facts *f, char *ret_why) BH_MUST_USE;
/* The store must be closed or idle.  Pending changes are dropped; their done() does not run. */
void facts_free(struct facts *f);
struct audit *facts_audit(const struct facts *f);         /* NULL: none */
void facts_set_require_expiry(struct facts *f, bool yes); /* reload */

/* NULL: unknown id.  The pointer stays valid for the life of @f: gateways change in place, and a
 * revoked gateway stays as a tombstone. */
const struct gateway *facts_gateway(const struct facts *f, struct str id);
size_t facts_gateways(const struct facts *f, struct list **ret_head);
/* True for the oldest gateway of its instance that is not revoked.  Each live instance has one. */
bool facts_is_first(const struct facts *f, const struct gateway *g);
size_t facts_live_instances(const struct facts *f); /* with a gateway that is not revoked */
/* Lists up to @room instances of a tenant that have a gateway that is not revoked.  Returns how
 * many it wrote to @ret_names; the names live as long as @f. */
size_t facts_instances_of(const struct facts *f, struct str tenant, struct str *ret_names,
                          size_t room);
/* How many tenants have or had a gateway; @ret_any is one of them. */
size_t facts_tenants(const struct facts *f, struct str *ret_any);
/* True when the tenant has a gateway that is not revoked. */
bool facts_tenant_is_live(const struct facts *f, struct str tenant);
/* True when the instance has or had a gateway, or a route names it. */
bool facts_knows(const struct facts *f, struct str tenant, struct str instance);
/* Counts, up to two, the tenants that have a live instance of this name; @ret_tenant is one of
 * them.  With @gone_too every instance counts for which facts_knows() is true. */
size_t facts_tenants_with(const struct facts *f, struct str instance, bool gone_too,
                          struct str *ret_tenant);
/* True for a valid id, tenant or instance name: 1..128 bytes of UTF-8 without white space and
 * control characters. */
bool facts_name_ok(struct str name);

/* ---- the identities of a gateway ----
 *
 * These are the (platform, bot) pairs it was added or provisioned for.  A gateway that serves
 * several platforms provisions once for each, under one id.  The identity "relay" without a bot
 * means the pair that the gateway named last.  The other pairs are kept, one per platform.
 *
 * An identity names the bot that a frame speaks of; it gives no right to use that bot.  The bots
 * that an operator added the gateway for are kept apart, and provisioning never changes them:
 * rights.h asks for these. */
#define IDENTITIES_MAX 16 /* pairs of one gateway; the pair named longest ago is dropped first */
struct gateway_pair {
    struct str platform, bot;
};
struct jw;
/* The @n-th pair, most recently named first.  False: there are no more. */
bool identity_nth(const struct gateway *g, size_t n, struct str *ret_platform, struct str *ret_bot);
bool identity_has(const struct gateway *g, struct str platform, struct str bot);
/* True when an operator added the gateway for this bot. */
bool gateway_has_bot(const struct gateway *g, struct str platform, struct str bot);
/* Writes "identities" and "bots", each an array of objects. */
void identity_write(struct jw *w, const struct gateway *g);

enum auth_verdict {
    AUTH_OK,
    AUTH_UNAUTHORIZED, /* no valid token, wrong signature for a known gateway, revoked: 101, then
                          close 4401 */
    AUTH_RETRY,        /* unknown gateway, expired, or an expiry is required: HTTP 401 */
};
/* Checks the Authorization header of a gateway.  On AUTH_OK @ret_gw is set. */
enum auth_verdict facts_authenticate(struct facts *f, struct str header,
                                     const struct gateway **ret_gw, const char **ret_why);

/* How a change ended.  Changes of one gateway run one after the other, in the order of the calls.
 * The callback (may be NULL) runs later, exactly once.  @why is a sentence unless @err is BH_OK. */
typedef void facts_done_cb(void *ctx, enum bh_err err, const char *why);

struct gateway_spec { /* absent members take their defaults */
    struct str id, tenant, instance, wake_url;
    const struct gateway_for { /* a bot it is added for */
        struct str platform, bot;
        bool open; /* also adds an open route (platform, bot) */
    } * bots;
    size_t n_bots; /* IDENTITIES_MAX at most */
};
/* Adds a gateway, and its open routes when @spec asks for them.  @ret_id and @ret_secret (64 hex
 * digits: show it once) are filled before the call returns and are valid once @done gets BH_OK.
 * BH_CONFLICT: the id exists.  BH_REFUSED: a bot belongs to another tenant.  A revoked id may be
 * added again. */
void facts_gateway_add(struct facts *f, const struct gateway_spec *spec, struct buf *ret_id,
                       struct buf *ret_secret, facts_done_cb *done, void *ctx);
/* Makes a new secret; the old ones stay valid for @keep_ms at most. */
void facts_gateway_rotate(struct facts *f, struct str id, int64_t keep_ms, struct buf *ret_secret,
                          facts_done_cb *done, void *ctx);
/* Wipes the gateway's secrets and keeps its record as a tombstone.  The observers get its id as
 * "revoked", so that its sockets are closed.  Idempotent. */
void facts_gateway_revoke(struct facts *f, struct str id, facts_done_cb *done, void *ctx);
/* Changes the wake URL; an empty one removes it. */
void facts_gateway_set(struct facts *f, struct str id, struct str wake_url, facts_done_cb *done,
                       void *ctx);
void facts_gateway_set_ackless(struct facts *f, struct str id, bool ackless); /* fire and forget */
/* Records that the gateway is of the newer generation.  Fire and forget. */
void facts_gateway_is_newer(struct facts *f, struct str id);

/* Records that the gateway is an older Hermes.  Fire and forget. */
void facts_gateway_drops(struct facts *f, struct str id);

struct route_spec { /* an absent instance: every instance of the tenant */
    struct str platform, key, tenant, instance;
    bool open;
};
/* Adds an operator's route or overwrites an existing one.  Other tenants' claims to the key are
 * deleted.  BH_MALFORMED: the key "*" without open, or an open route without an instance while the
 * tenant has several. */
void facts_route_add(struct facts *f, const struct route_spec *spec, facts_done_cb *done,
                     void *ctx);
void facts_route_remove(struct facts *f, const struct route_spec *spec, facts_done_cb *done,
                        void *ctx);
size_t facts_routes(const struct facts *f, struct list **ret_head);
/* Has its instance, or an instance of its tenant, a gateway that is not revoked? */
bool facts_route_leads(const struct route *r);
/* The route with these names; NULL: there is none.  An empty @instance: to the whole tenant. */
struct route *facts_find_route(const struct facts *f, struct str platform, struct str key,
                               struct str tenant, struct str instance);

/* The routes that lead to one instance: those that name it, and those to its whole tenant. */
typedef void route_cb(void *ctx, const struct route *r);
void facts_each_route_to(const struct facts *f, struct str tenant, struct str instance,
                         route_cb *cb, void *ctx);
/* Calls @cb once for each instance that open routes of this key lead to, at most GATE_CANDIDATES.
 * A key without a route that leads anywhere has the routes of "*".  The gate decides who receives
 * an event; this list does not. */
void facts_each_target(const struct facts *f, struct str platform, struct str route_key,
                       target_cb *cb, void *ctx);
/* True when an operator's route of exactly this key leads to a live instance. */
bool facts_has_route(const struct facts *f, struct str platform, struct str key);
/* The key whose routes apply to @ev: the most specific one that leads anywhere, of
 *
 *      its own key (guild, chat, person) > its key before it was renamed > the bot > "*"
 *
 * Adapters fill in the keys of an event; only this function chooses among them.  Absent when no
 * route applies, or only routes of "*".  Reads only platform, bot, route_key and former_key. */
struct str facts_route_key(const struct facts *f, const struct event *ev);
/* The indexes that the gate reads; kept current for the life of @f. */
const struct gate_facts *facts_gate(const struct facts *f);
/* The forms of all records of facts.h, grants.h and enroll.h; ends with NULL. */
extern const struct record_form *const facts_records[];
/* True when an operator's route gives exactly this key to the instance or its whole tenant. */
bool facts_owns(const struct facts *f, struct str platform, struct str key, struct str tenant,
                struct str instance);
/* The newest gateway of an instance that is not revoked; NULL: none. */
const struct gateway *facts_newest_gateway(const struct facts *f, struct str tenant,
                                           struct str instance);
/* The wake URL of an instance (of its newest gateway that has one); NULL: none. */
const char *facts_wake_url(const struct facts *f, struct str tenant, struct str instance);

/* A tenant's instances and a person's links, as store/erasure.h runs them; ctx is the facts. */
extern const struct eraser facts_eraser;
