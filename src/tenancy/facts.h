/* facts.h - who is who: gateways with their secrets, and routes.  In memory, backed by the store.
 *
 * Loaded at start; the hot path reads only memory.  A change is applied to memory when its write is
 * on disk, then told to the observers ("facts").  Secrets are sealed in the store and wiped from
 * memory when a gateway goes.
 */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/map.h"
#include "core/accept.h"
#include "core/gate.h"
#include "core/token.h"

struct bucket;
struct observers;
struct clock;
struct config_section;
struct event;
struct facts;
struct ledger;
struct rand;
struct seal;
struct store;

#define GATEWAY_SECRETS 4

/* Its texts are owned one by one while it is being made or changed.  In the facts they never change
 * and lie side by side in @words, but for those that its instance has as well. */
struct gateway {
    struct list link;    /* all gateways, by age */
    struct list by_inst; /* those of its instance that are not revoked, by age */
    char *id, *tenant;
    char *instance;       /* defaults to id */
    char *wake_url;       /* NULL: none */
    char *platform, *bot; /* what it was added for; NULL: anything routed to it */
    char *also;           /* what else it is for: identity_nth(); NULL: nothing */
    char *display_name;   /* what it calls itself; NULL: nothing */
    char *words;          /* owned; NULL: it is not in the facts */
    struct gateway_secret {
        char *text;             /* owned, wiped */
        int64_t until_ms : 62;  /* wall clock; 0: as long as it is the newest */
        bool used : 1;          /* somebody came with it */
        bool waits : 1;         /* good past until_ms too, while nobody used a newer one */
    } secrets[GATEWAY_SECRETS]; /* newest first */
    int64_t created_ms, rotated_ms, revoked_ms; /* wall clock; revoked_ms != 0: a tombstone */
    uint8_t n_secrets;
    bool shares_id; /* with its instance; else @id is owned */
    bool newer;     /* generation of the gateway, as its frames show: relay/session/frames.c */
    bool ackless;   /* proven never to ack: settled on write (relay keeps this current) */
};

/* Whose word a route is.  Only an operator's leads anywhere and lets an instance speak; what a
 * gateway said of itself while provisioning keeps a key from being claimed by others, and that is
 * all. */
enum route_origin { ROUTE_OPERATOR, ROUTE_PROVISION };

struct route {            /* a place belongs to a tenant */
    struct list link;     /* in order of creation */
    char *platform, *key; /* in bytes */
    char *tenant;         /* in bytes */
    char *instance;       /* in bytes; NULL: every instance of the tenant */
    int64_t created_ms;   /* wall clock */
    enum route_origin origin;
    bool open;               /* everybody is heard there, by an operator's explicit word */
    struct gate_place place; /* in the table of its key while it leads anywhere */
    struct list by_key;      /* of its bucket: all with the same platform and key */
    struct list by_target;   /* of the instance, or else of the tenant, that it names */
    struct bucket *bucket;   /* borrowed; NULL: not in the facts */
    struct str id;           /* the four names, each with its zero; in bytes */
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
};
/* Blocks: loads everything.  @ret_why has 256 bytes. */
enum bh_err facts_open(const struct facts_env *env, struct facts **ret_f,
                       char *ret_why) BH_MUST_USE;
/* The same in two steps: a thread of its own begins to read, and uses nothing of @env but store and
 * seal; the second waits for it.  Until that was BH_OK nobody may ask these facts anything, and if
 * it is anything else they are for facts_free(), which may also be called between the two. */
struct facts *facts_begin(const struct facts_env *env);
enum bh_err facts_finish(struct facts *f, char *ret_why) BH_MUST_USE;
/* The store must be closed or idle: a change under way is forgotten, its done() does not run. */
void facts_free(struct facts *f);
void facts_set_require_expiry(struct facts *f, bool yes); /* reload */

/* The pointer stays valid for the life of @f: gateways change in place and a revoked one stays as a
 * tombstone. */
const struct gateway *facts_gateway(const struct facts *f, struct str id);
size_t facts_gateways(const struct facts *f, struct list **ret_head);
/* Is it the oldest of its instance that is not revoked?  Each live instance has one such. */
bool facts_is_first(const struct facts *f, const struct gateway *g);
/* The instances of a tenant that have a gateway that is not revoked, @room at most; how many there
 * are in @ret_names, which lives as long as @f. */
size_t facts_instances_of(const struct facts *f, struct str tenant, struct str *ret_names,
                          size_t room);
/* How many tenants have, or had, a gateway; @ret_any is one of them. */
size_t facts_tenants(const struct facts *f, struct str *ret_any);
/* Has the tenant a gateway that is not revoked? */
bool facts_tenant_is_live(const struct facts *f, struct str tenant);
/* Has the instance, or had it, a gateway, or leads a route to it? */
bool facts_knows(const struct facts *f, struct str tenant, struct str instance);
/* How many tenants have an instance of this name (with a gateway that is not revoked, or, when
 * @gone_too, one that facts_knows()), counted up to two; @ret_tenant is one of them. */
size_t facts_tenants_with(const struct facts *f, struct str instance, bool gone_too,
                          struct str *ret_tenant);
/* Is an id, tenant or instance name acceptable: 1..128 bytes of printable UTF-8, no white space,
 * none of the control characters. */
bool facts_name_ok(struct str name);

/* ---- what a gateway is for ----
 *
 * The (platform, bot) pairs it was added or provisioned for.  A gateway that serves several
 * platforms provisions once for each, under one id.  The identity "relay" without a bot means the
 * pair that the gateway named last; the other pairs are kept, one per platform. */
#define IDENTITIES_MAX 16 /* of one gateway; the pair named longest ago goes first */
struct jw;
/* The @n-th pair, the one named last first.  False: it has no more. */
bool identity_nth(const struct gateway *g, size_t n, struct str *ret_platform, struct str *ret_bot);
bool identity_has(const struct gateway *g, struct str platform, struct str bot);
void identity_write(struct jw *w, const struct gateway *g); /* an array of objects */

enum auth_verdict {
    AUTH_OK,
    AUTH_UNAUTHORIZED, /* no credential, wrong signature for a known gateway, revoked: 101, then
                          close 4401 */
    AUTH_RETRY,        /* unknown gateway, or well signed but expired: HTTP 401 */
};
/* @header is the Authorization header.  On AUTH_OK @ret_gw is set. */
enum auth_verdict facts_authenticate(struct facts *f, struct str header,
                                     const struct gateway **ret_gw, const char **ret_why);

/* Changes of one gateway are made one after the other, in the order they were asked for.  @done
 * (may be NULL) runs later, exactly once; @why is a sentence when @err is not BH_OK. */
typedef void facts_done_cb(void *ctx, enum bh_err err, const char *why);

struct gateway_spec { /* absent members take their defaults */
    struct str id, tenant, instance, wake_url, platform, bot;
    bool open; /* everybody who writes to the bot reaches it: an open route (platform, bot) */
};
/* Adds a gateway and, when it is said to be open, the route that makes it so.  @ret_id and
 * @ret_secret (64 hex digits: show it once) are filled before the call returns and mean something
 * when @done says BH_OK.  BH_CONFLICT: the id exists; a revoked id may be added again. */
void facts_gateway_add(struct facts *f, const struct gateway_spec *spec, struct buf *ret_id,
                       struct buf *ret_secret, facts_done_cb *done, void *ctx);
/* A new secret; the old ones stay valid for @keep_ms. */
void facts_gateway_rotate(struct facts *f, struct str id, int64_t keep_ms, struct buf *ret_secret,
                          facts_done_cb *done, void *ctx);
/* Its secrets are wiped, a tombstone stays; its id is told to the observers as "revoked" so that
 * sockets close.  Revoking twice is fine. */
void facts_gateway_revoke(struct facts *f, struct str id, facts_done_cb *done, void *ctx);
/* Change the wake URL; an empty one removes it. */
void facts_gateway_set(struct facts *f, struct str id, struct str wake_url, facts_done_cb *done,
                       void *ctx);
void facts_gateway_set_ackless(struct facts *f, struct str id, bool ackless); /* fire and forget */
/* It has shown to be of the newer generation: remembered on its record.  Fire and forget. */
void facts_gateway_is_newer(struct facts *f, struct str id);

struct route_spec { /* an absent instance: every instance of the tenant */
    struct str platform, key, tenant, instance;
    bool open;
};
/* An operator's route; one that is there already takes what is said now.  What other tenants have
 * claimed of this key is theirs no more.  BH_MALFORMED: "*" that is not open, or an open route that
 * does not say which of several instances it means. */
void facts_route_add(struct facts *f, const struct route_spec *spec, facts_done_cb *done,
                     void *ctx);
void facts_route_remove(struct facts *f, const struct route_spec *spec, facts_done_cb *done,
                        void *ctx);
size_t facts_routes(const struct facts *f, struct list **ret_head);
/* The route with these names; NULL: there is none.  An empty @instance: to the whole tenant. */
struct route *facts_find_route(const struct facts *f, struct str platform, struct str key,
                               struct str tenant, struct str instance);

/* The routes that lead to one instance: those that name it, and those to its whole tenant. */
typedef void route_cb(void *ctx, const struct route *r);
void facts_each_route_to(const struct facts *f, struct str tenant, struct str instance,
                         route_cb *cb, void *ctx);
/* The instances that everybody reaches by this key, each once, at most GATE_CANDIDATES: calls @cb
 * for every (tenant, instance).  A key without a route of its own has those of "*".  Who receives
 * an event is for the gate to say. */
void facts_each_target(const struct facts *f, struct str platform, struct str route_key,
                       target_cb *cb, void *ctx);
/* Does an operator's route of this very key lead anywhere? */
bool facts_has_route(const struct facts *f, struct str platform, struct str key);
/* The key whose routes apply to @ev: the most specific one that leads anywhere, of
 *
 *      its own key (guild, chat, person) > its key before it was renamed > the bot > "*"
 *
 * Adapters say which keys an event has; only route_choose() chooses.  The event's own key when no
 * route applies, or only those of "*". */
struct str facts_route_key(const struct facts *f, const struct event *ev);
typedef bool route_leads_fn(void *ctx, struct str platform, struct str key);
struct str route_choose(const struct event *ev, route_leads_fn *leads, void *ctx);
/* Everything the gate looks at; current for the life of @f. */
const struct gate_facts *facts_gate(const struct facts *f);
/* The forms of all records of facts.h, grants.h and enroll.h; ends with NULL. */
struct record_form;
extern const struct record_form *const facts_records[];
/* True when an operator's route names this very key for the instance: it owns that chat. */
bool facts_owns(const struct facts *f, struct str platform, struct str key, struct str tenant,
                struct str instance);
/* Does the place @ev would come from belong to the instance, by an operator's route that applies to
 * it?  Only platform, bot, route_key and former_key are looked at. */
bool facts_owns_place(const struct facts *f, const struct event *ev, struct str tenant,
                      struct str instance);
/* The newest gateway of an instance that was not revoked; NULL: none. */
const struct gateway *facts_newest_gateway(const struct facts *f, struct str tenant,
                                           struct str instance);
/* The wake URL of an instance (of its newest gateway that has one); NULL: none. */
const char *facts_wake_url(const struct facts *f, struct str tenant, struct str instance);

/* A tenant's instances and a person's links, as store/erasure.h runs them; ctx is the facts. */
extern const struct eraser facts_eraser;
