/* dispatch.h - programs put payloads in front of agents, and ring them: the AgentConnector
 * contract.
 *
 *      deliver, wake --> the agent's mailbox in the relay: on disk --> receipt on disk --> answered
 *                                    |
 *              courier.h: a session inside the relay         a gateway's socket (substrate relay)
 *                                    |                              |
 *              substrate.h: file, pipe, exec, tmux, webhook         what it sends into that chat
 *                                                                   is a reply: replies.h
 *
 * Every agent has the relay's own mailbox: accepted means on disk, in order per agent, tried again,
 * parked with a reason after too many attempts, seen by `bellhop mailbox`, status and metrics.  The
 * instance of an agent that is not on the relay is called "agent:<id>".
 *
 * Agents come from `agents:` in the configuration.  One without a tenant exists in every tenant,
 * each with mailbox, receipts and replies of its own.
 *
 * Calls are answered later, from the loop, exactly once, unless cancelled first; what is passed in
 * is copied before the call returns.  Answers are ready JSON with the contract's field names:
 * optional fields are absent, never null.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "core/action.h"
#include "core/caller.h"
#include "core/fault.h"

struct config;
struct config_list;
struct config_section;
struct clock;
struct dispatch;
struct dispatch_call;
struct facts;
struct http_client;
struct ledger;
struct loop;
struct outlet;
struct rand;
struct relay;
struct store;

#define DISPATCH_CONTENT_MAX ((size_t)512 << 10) /* a longer content is FAULT_TOO_LARGE */
#define DISPATCH_ID_MAX 200                      /* bytes of a dispatch_id, session or key */

struct dispatch_settings { /* `dispatch:` in the configuration, owned by it */
    bool allow_private;    /* webhooks may reach private and loopback addresses */
    int64_t retry_ms;      /* the first pause after a failure; it doubles */
    int64_t retry_max_ms;  /* the longest pause */
    uint32_t replies;      /* kept per agent */
};
extern const struct config_section dispatch_config;
extern const struct config_list agents_config; /* `agents:` */

struct dispatch_env { /* borrowed for the life of the dispatch */
    struct loop *loop;
    struct clock *clock;
    struct store *store;
    struct rand *rand;
    struct facts *facts;
    struct relay *relay;
    struct http_client *http;
    struct spawner *spawner; /* NULL: no agent is a program */
    const struct dispatch_settings *settings;
    struct ledger *ledger;          /* limits.h; NULL: nothing is counted */
    const int64_t *retention_ms;    /* of replies; 0, NULL: no limit; may change */
    const bool *wake_allow_private; /* `wake.allow_private`: it counts for webhooks too */
    const char *node;               /* what this one is called; NULL: there are no others */
    struct http_server *server;     /* with @node: where the others' trunks come to */
};

/* Blocks: loads schedules.  The agents are those of @cfg, which is only read here and in
 * dispatch_reload().  @ret_why: 256 bytes. */
enum bh_err dispatch_open(const struct dispatch_env *env, const struct config *cfg,
                          struct dispatch **ret_d, char *ret_why) BH_MUST_USE;
/* Before the relay and the HTTP client go.  Children are killed; no callback runs any more, handles
 * are void.  NULL is fine. */
void dispatch_close(struct dispatch *d);
/* The configuration was read again: agents come, go and change.  Mail of one that went stays in its
 * mailbox. */
void dispatch_reload(struct dispatch *d, const struct config *cfg);
/* Two agents of one tenant with one id, a capability nobody knows...  False: @ret_why tells. */
bool dispatch_check(const struct config *cfg, char *ret_why);

/* What the agents of @cfg that are on @node (NULL: there is no other) need of the machine:
 * directories and files that are written to. */
typedef void dispatch_path_cb(void *ctx, const char *path, bool is_directory);
void dispatch_each_path(const struct config *cfg, const char *node, dispatch_path_cb *cb,
                        void *ctx);
/* The helper that runs their programs: before the first thread and before anything is given up.
 * *@ret_s is NULL where there are none.  @ret_why: 256 bytes. */
struct spawner;
enum bh_err dispatch_spawner(const struct config *cfg, const char *node, struct spawner **ret_s,
                             char *ret_why) BH_MUST_USE;
/* Some agent of @cfg names this node. */
bool dispatch_names_node(const struct config *cfg, const char *node);

/* ---- the contract ---- */

struct dispatch_who { /* from the key; borrowed for the call */
    struct caller caller;
    struct str agent; /* the one agent the key is for: others do not exist; absent: any */
    bool any_name;    /* a body may call the agent as it likes: the caller has names of its own */
};
struct dispatch_answer { /* valid during the callback only */
    struct fault fault;  /* cls FAULT_NONE: it worked */
    struct str json;
};
typedef void dispatch_cb(void *ctx, const struct dispatch_answer *a);
/* The callback will not run; what was begun goes on.  Sets *@call to NULL; NULL is fine. */
void dispatch_cancel(struct dispatch_call **call);

/* Whose agent an address means where one tenant only has it; absent: that is not so. */
struct str dispatch_tenant_of(const struct dispatch *d, struct str address);
/* [AgentDescriptor], at once. */
void dispatch_list(const struct dispatch *d, const struct dispatch_who *who, struct jw *w);

/* @address is an agent's id, or agent@session, split at the first "@" when no agent is called like
 * the whole.  @body: {kind, content | prompt, meta: {dispatch_id, ...}, session_id?}, or the same
 * under "payload" -> DeliveryReceipt. */
struct dispatch_call *dispatch_deliver(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct json body, dispatch_cb *done,
                                       void *ctx) BH_MUST_USE;
/* @opts: {context?, when?, session_id?}, or the same under "opts", or absent -> WakeReceipt.  @key
 * makes it one wake however often it is asked for; absent: each is one of its own. */
struct dispatch_call *dispatch_wake(struct dispatch *d, const struct dispatch_who *who,
                                    struct str address, struct json opts, struct str key,
                                    dispatch_cb *done, void *ctx) BH_MUST_USE;
/* @body as for deliver, with meta.correlation_id, and timeout_ms beside it -> Response. */
struct dispatch_call *dispatch_request(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct json body, struct str key,
                                       dispatch_cb *done, void *ctx) BH_MUST_USE;
/* {"status": "active" | "idle" | "asleep" | "unknown", "detail"?: a sentence}. */
struct dispatch_call *dispatch_status(struct dispatch *d, const struct dispatch_who *who,
                                      struct str address, dispatch_cb *done, void *ctx) BH_MUST_USE;
/* {"replies": [...], "next": cursor}, oldest first, behind @after (absent: from the oldest
 * kept). */
struct dispatch_call *dispatch_replies(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct str after, size_t limit,
                                       dispatch_cb *done, void *ctx) BH_MUST_USE;

/* ---- the relay's chats that are on no platform: what an agent sends there is a reply ---- */
extern const struct outlet dispatch_outlet; /* platform "relay" */
/* Answers with relay_result(). */
void dispatch_act(struct dispatch *d, struct action_id id, const struct action_from *from,
                  const struct action *a);

/* ---- looking ---- */
struct dispatch_agent_view { /* borrowed for the call */
    struct str tenant;       /* absent: every tenant, and nobody has spoken to it */
    struct str id, name, substrate, target;
    const char *state;        /* of its instance in the relay */
    const char *problem;      /* why its mail waits; NULL: it does not */
    uint64_t waiting, parked; /* in its mailbox */
};
typedef void dispatch_agent_cb(void *ctx, const struct dispatch_agent_view *v);
/* As in the configuration; one without a tenant once per tenant that spoke to it, or once. */
void dispatch_each(const struct dispatch *d, dispatch_agent_cb *cb, void *ctx);

struct dispatch_counters {
    uint64_t delivered, repeated, woken, requested, timed_out, replied, failed;
};
const struct dispatch_counters *dispatch_counters(const struct dispatch *d);

struct record_form;
extern const struct record_form *const dispatch_records[]; /* ends with NULL */

/* A tenant's replies and wakes for later, as store/erasure.h runs it. */
extern const struct eraser dispatch_eraser;
