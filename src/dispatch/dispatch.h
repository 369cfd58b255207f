/* dispatch.h - lets programs deliver payloads to agents and wake them: the AgentConnector contract.
 *
 *      deliver, wake --> the agent's mailbox in the relay: on disk --> receipt on disk --> answered
 *                                    |
 *              courier.h: a session inside the relay         a gateway's socket (substrate relay)
 *                                    |                              |
 *              substrate.h: file, pipe, exec, tmux, webhook         what it sends into that chat
 *                                                                   is a reply: replies.h
 *
 * Every agent has a mailbox in the relay.  An accepted payload is on disk, is delivered in order,
 * is retried, and is parked with a reason after too many attempts.  `bellhop mailbox`, status and
 * metrics show it.  The instance of an agent that is not on the relay is named "agent:<id>".
 *
 * Agents are the entries of `agents:` in the configuration, those that an operator added
 * (stored.h), and the instances of gateways that no entry names.  An agent without a tenant exists
 * in every tenant, with a separate mailbox, receipts and replies in each.
 *
 * http/ops_agents.c calls it, for HTTP and MCP; cli/server.c opens it.  It owns the
 * agents, calls, receipts, replies and schedules; the relay owns the mail.
 *
 * A call copies its arguments before it returns.  Its callback runs later, from the loop, exactly
 * once, unless the call is cancelled first.  Answers are JSON with the contract's field names:
 * optional fields are absent, never null.
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "core/action.h"
#include "core/caller.h"
#include "core/fault.h"

struct config;
struct dispatch;
struct dispatch_call;

#define DISPATCH_CONTENT_MAX ((size_t)512 << 10) /* bytes; longer content is FAULT_TOO_LARGE */
#define DISPATCH_ID_MAX 200                      /* bytes of a dispatch_id, session or key */
#define DISPATCH_WAKE_KEY_MAX 190                /* of a wake's key, part of a dispatch_id */

struct dispatch_settings {   /* `dispatch:` in the configuration, owned by it */
    bool allow_private;      /* webhooks may reach private and loopback addresses */
    int64_t answer_quiet_ms; /* of a turn whose end is not marked */
    int64_t retry_ms;        /* the first backoff after a failure; it doubles */
    int64_t retry_max_ms;    /* the longest backoff */
    uint32_t replies;        /* kept per agent */
    char *added;             /* "all", "remote": what added agents may use */
    char *caller_header;     /* names the caller of a dispatch; NULL: none does */
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
    struct spawner *spawner; /* runs programs; NULL: no agent needs one */
    const struct dispatch_settings *settings;
    struct ledger *ledger;          /* limits.h; NULL: nothing is counted */
    const int64_t *retention_ms;    /* of replies; 0, NULL: no limit; may change */
    const bool *wake_allow_private; /* `wake.allow_private`: applies to webhooks too */
    const char *node;               /* name of this node; NULL: there is only one */
    struct http_server *server;     /* with @node: accepts the trunks of the other nodes */
    char *const *base_url;   /* where agents reach /v1, set before the first call; NULL: nowhere */
    char *const *local_url;  /* where gateways on this machine reach /relay; the same */
    const char *state_dir;   /* for hosted agents */
    const struct seal *seal; /* of the secrets of added agents */
};

/* Takes the agents of @cfg, which is read only here and in dispatch_reload().  Blocks while it
 * counts the scheduled wakes.  @ret_why has 256 bytes. */
enum bh_err dispatch_open(const struct dispatch_env *env, const struct config *cfg,
                          struct dispatch **ret_d, char *ret_why) BH_MUST_USE;
/* Call it before freeing the relay and the HTTP client.  Kills the programs it runs.  No callback
 * runs afterwards, and handles of calls are invalid.  NULL is fine. */
void dispatch_close(struct dispatch *d);
/* Takes the agents of a reloaded configuration.  Mail of a removed agent stays in its mailbox. */
void dispatch_reload(struct dispatch *d, const struct config *cfg);
/* Checks `agents:` as a whole, for example for two agents of one tenant with the same id.  False:
 * @ret_why has the reason. */
bool dispatch_check(const struct config *cfg, char *ret_why);

/* Calls @cb for each directory and file that agents on @node write to.  @node NULL: all agents. */
typedef void dispatch_path_cb(void *ctx, const char *path, bool is_directory);
void dispatch_each_path(const struct config *cfg, const char *node, dispatch_path_cb *cb,
                        void *ctx);
/* Starts the helper process that runs the agents' programs, and the @n_more commands @more of
 * others.  Call it before the first thread starts and before privileges are dropped.  @ret_s gets
 * NULL when no agent on @node needs a program, none may be added that does, and @n_more is 0.
 * @ret_why has 256 bytes. */
enum bh_err dispatch_spawner(const struct config *cfg, const char *node, const char *state_dir,
                             const char *const *const *more, size_t n_more, struct spawner **ret_s,
                             char *ret_why) BH_MUST_USE;
/* Writes one delivery of an added agent whose directory the sandbox hides; the helper runs it as
 * `bellhop drop`, with the payload on standard input.  Returns the exit status. */
int dispatch_drop(int argc, char **argv);
/* The server goes down: hosted agents finish, and none is started. */
void dispatch_stop(struct dispatch *d);
/* True when an agent of @cfg names @node; NULL: any node. */
bool dispatch_names_node(const struct config *cfg, const char *node);

/* ---- the contract ---- */

struct dispatch_who {     /* the caller, from its key; borrowed for the call */
    struct caller caller; /* its agent: the only one the key may use; absent: any */
    bool any_name;        /* agent_id in a body is ignored: a webhook's sender has its own names */
};
struct dispatch_answer { /* valid during the callback only */
    struct fault fault;  /* cls FAULT_NONE: success */
    struct str json;
};
typedef void dispatch_cb(void *ctx, const struct dispatch_answer *a);
/* The callback will not run; the work goes on.  Sets *@call to NULL; NULL is fine. */
void dispatch_cancel(struct dispatch_call **call);

/* The tenant of the only entry of `agents:` that an address names.  Absent: no entry, several, or
 * one without a tenant. */
struct str dispatch_tenant_of(const struct dispatch *d, struct str address);
/* Does any entry of `agents:` have this address? */
bool dispatch_has_entry(const struct dispatch *d, struct str address);
/* The header whose value becomes caller.for_agent of keys that may; NULL: none. */
const char *dispatch_caller_header(const struct dispatch *d);
/* Writes [AgentDescriptor] before the call returns. */
void dispatch_list(const struct dispatch *d, const struct dispatch_who *who, struct jw *w);

/* Answers with a DeliveryReceipt.  @address is an agent's id, or agent@session, split at the first
 * "@" unless the whole address is an agent's id.  @body: {kind, content | prompt,
 * meta: {dispatch_id, ...}, session_id?}, or the same under "payload".  A repeated dispatch_id gets
 * the first receipt again. */
struct dispatch_call *dispatch_deliver(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct json body, dispatch_cb *done,
                                       void *ctx) BH_MUST_USE;
/* Answers with a WakeReceipt.  @opts: {context?, when?, session_id?}, or the same under "opts", or
 * absent.  @key is the Idempotency-Key; absent: every call is a new wake. */
struct dispatch_call *dispatch_wake(struct dispatch *d, const struct dispatch_who *who,
                                    struct str address, struct json opts, struct str key,
                                    dispatch_cb *done, void *ctx) BH_MUST_USE;
/* Answers with a Response.  @body is as for dispatch_deliver(), with meta.correlation_id, and with
 * timeout_ms beside the payload or in opts. */
struct dispatch_call *dispatch_request(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct json body, struct str key,
                                       dispatch_cb *done, void *ctx) BH_MUST_USE;
/* Answers {"delivery_id", "agent_id", "dispatch_id", "kind", "state", "queued_at", ...}: where a
 * delivery of the last day is, for the key that sent it and for the operator.  @agent and @kind may
 * be absent; then the newest delivery with this id counts. */
struct dispatch_call *dispatch_delivery(struct dispatch *d, const struct dispatch_who *who,
                                        struct str id, struct str agent, struct str kind,
                                        dispatch_cb *done, void *ctx) BH_MUST_USE;
/* Keeps a reply of an agent, and adds it to the answer of the request that waits for it.  Answers
 * {"cursor", "taken": whether a caller still waits}. */
struct dispatch_said {     /* copied */
    struct str capability; /* of a reply URL; absent: the caller has a key, and names ... */
    struct str correlation_id;
    struct str agent_id;    /* absent: the agent of the key, or of the request */
    struct str dispatch_id; /* of the delivery; absent: of the request */
    struct str content;
    bool final; /* the answer is complete */
};
struct dispatch_call *dispatch_reply(struct dispatch *d, const struct dispatch_who *who,
                                     const struct dispatch_said *said, struct str key,
                                     dispatch_cb *done, void *ctx) BH_MUST_USE;
/* The agent of a reply URL as a caller, borrowed until the loop goes on.  False: the URL is
 * unknown, or its request has its answer. */
bool dispatch_reply_who(struct dispatch *d, struct str capability, struct caller *ret);
/* Answers {"status": "active" | "idle" | "asleep" | "unknown", "detail"?: a sentence}. */
struct dispatch_call *dispatch_status(struct dispatch *d, const struct dispatch_who *who,
                                      struct str address, dispatch_cb *done, void *ctx) BH_MUST_USE;
/* Answers {"replies": [...], "next": cursor}, oldest first, after the cursor @after (absent: from
 * the oldest reply). */
struct dispatch_call *dispatch_replies(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct str after, size_t limit,
                                       dispatch_cb *done, void *ctx) BH_MUST_USE;

/* ---- sessions: sessions.h ---- */
/* Answers [{"session_id", "source", "target"?, "last_seen_at"?}]. */
struct dispatch_call *dispatch_sessions(struct dispatch *d, const struct dispatch_who *who,
                                        struct str address, dispatch_cb *done,
                                        void *ctx) BH_MUST_USE;
/* The agent says that its session @name is live, or (not @live) that it has ended. */
struct dispatch_call *dispatch_session_set(struct dispatch *d, const struct dispatch_who *who,
                                           struct str address, struct str name, bool live,
                                           dispatch_cb *done, void *ctx) BH_MUST_USE;

/* ---- agents that the operator adds: stored.h ---- */
/* Each answers when the change is on disk and in effect.  @entry is one of `agents:`, an object;
 * its tenant may be absent.  Answers with the entry, where secrets are only named. */
struct dispatch_call *dispatch_agent_add(struct dispatch *d, struct str tenant, struct json entry,
                                         dispatch_cb *done, void *ctx) BH_MUST_USE;
/* Replaces the keys that @change has; null removes one. */
struct dispatch_call *dispatch_agent_set(struct dispatch *d, struct str tenant, struct str id,
                                         struct json change, dispatch_cb *done,
                                         void *ctx) BH_MUST_USE;
/* Mail that waits stays in the mailbox. */
struct dispatch_call *dispatch_agent_remove(struct dispatch *d, struct str tenant, struct str id,
                                            dispatch_cb *done, void *ctx) BH_MUST_USE;
/* Writes {"source": "added" | "configured", "entry"}.  False: there is no such agent. */
bool dispatch_agent_show(struct dispatch *d, struct str tenant, struct str id, struct jw *w);

/* ---- chats of dispatches, on platform "relay": a message an agent sends there is a reply ---- */
extern const struct outlet dispatch_outlet; /* platform "relay" */
/* Performs an action of an agent in such a chat; answers with relay_result(). */
void dispatch_act(struct dispatch *d, struct action_id id, const struct action_from *from,
                  const struct action *a);

/* ---- for operators ---- */
struct dispatch_agent_view { /* borrowed for the call */
    struct str tenant;       /* absent: an agent of every tenant that was not used yet */
    struct str id, name, substrate, target;
    const char *source;       /* "configured", "added", "gateway" */
    const char *state;        /* of its instance in the relay */
    const char *problem;      /* why its mail is delayed; NULL: it is not */
    uint64_t waiting, parked; /* in its mailbox */
};
typedef void dispatch_agent_cb(void *ctx, const struct dispatch_agent_view *v);
/* Calls @cb for every agent.  An agent without a tenant is shown once per tenant that used it, or
 * once when none did. */
void dispatch_each(const struct dispatch *d, dispatch_agent_cb *cb, void *ctx);

struct dispatch_counters {
    uint64_t delivered, repeated, woken, requested, timed_out, replied, failed;
};
const struct dispatch_counters *dispatch_counters(const struct dispatch *d);

extern const struct record_form *const dispatch_records[]; /* ends with NULL */

/* A tenant's replies and wakes for later, as store/erasure.h runs it. */
extern const struct eraser dispatch_eraser;
