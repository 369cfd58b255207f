/* mcp.h - the Model Context Protocol, server side: envelopes, versions, tools, resources, streams.
 *
 * This module uses no socket and no store.  A transport passes in one message at a time with its
 * caller, and gets one reply later.  Other modules register the tools and provide the resources.
 *
 *      transport (http/mcp_route.c) --mcp_handle()--> envelope --> initialize, tools/list, ...
 *           ^                                             |------> tools/call, resources/read --.
 *           |                                             '------> subscriptions/listen          |
 *           |                                                            |              (http/op.h)
 *           +--- mcp_reply_cb <-- reply <-- mcp_answer() | mcp_fail() <--|------------------------'
 *           |                                                            v
 *           '--- struct mcp_sink <-- notification <-- listener <-- mcp_changed() <-- the relay
 *
 * Protocol versions come in two eras, and each request says which one it belongs to:
 *
 *      older   2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25: initialize opens a session.
 *              resources/subscribe belongs to the session, and the notifications leave on the
 *              stream that the client opened by GET.
 *      newer   2026-07-28: every request carries its version and the client's capabilities in
 *              `_meta`.  There is no session.  subscriptions/listen is a request whose answer is a
 *              stream of notifications.
 *
 * A failed tool is answered by a result with `isError` since 2025-11-25.  Before, it is a JSON-RPC
 * error, so that a client that checks only `error` never takes a failure for a result; wrong
 * arguments then have the code -32602.  Both have the class and fields of the contract
 * (core/fault.h).
 *
 * Session ids are signed, bound to an API key, and need no server state, so they stay valid across
 * a restart.  Deleted ids are remembered in memory, up to a bound, until the process exits.
 * Subscriptions are memory only.
 */
#pragma once
#include "base/json.h"
#include "core/caller.h"
#include "core/fault.h"

struct ledger;
struct mcp;
struct mcp_call;
struct mcp_listener;

#define MCP_BATCH_MAX 32
#define MCP_NEWEST_WITH_SESSIONS "2025-11-25"
#define MCP_STATELESS "2026-07-28"
#define MCP_URIS_MAX 64         /* subscribed resources of one listener */
#define MCP_URI_BYTES_MAX 8192  /* of them together */
#define MCP_NOTIFY_MS 100       /* between two notifications of one instance's changes */
#define MCP_KEEP_ALIVE_MS 15000 /* between two comments on a stream without notifications */
#define MCP_SESSION_IDLE_MS (10 * 60 * 1000) /* subscriptions of a session without a stream */

/* The rate limit of the caller; false: refuse the request.  Called for every request of a batch but
 * the first; the transport has checked the first. */
typedef bool mcp_may_cb(void *ctx, const struct caller *who);

/* ---- tools ---- */

struct mcp_tool { /* the texts are borrowed, except input_schema */
    const char *name, *title;
    const char *description;  /* for the model that chooses */
    const char *input_schema; /* a JSON Schema of an object, as text; copied */
    bool reads_only;          /* changes nothing */
    bool for_instance;        /* only for keys that act for an instance */
    const void *data;         /* private to the module that registers the tool */
    /* Must answer @c exactly once, now or later.  @args is an object, borrowed for this call. */
    void (*call)(void *ctx, const struct mcp_tool *t, struct mcp_call *c, struct json args);
};

/* The caller; owned by the call, valid until the call is answered. */
const struct caller *mcp_call_who(const struct mcp_call *c);
/* The W3C trace of the call (`_meta.traceparent`); absent: none. */
struct str mcp_call_trace(const struct mcp_call *c);
/* Attaches the tool's own state to the call.  If mcp_free() drops the call before its answer, @drop
 * cancels the tool's work and frees @mine. */
void mcp_call_keep(struct mcp_call *c, void *mine, void (*drop)(void *mine));
/* Answers with one JSON value, as text: the result of a tool, the text of a resource, or the array
 * of resources.  The call ends here. */
void mcp_answer(struct mcp_call *c, struct str json);
/* FAULT_NOT_FOUND of a resource is the protocol's "resource not found". */
void mcp_fail(struct mcp_call *c, const struct fault *fault);
/* Of a list of resources: the cursor of the next page.  Called before mcp_answer(). */
void mcp_call_next(struct mcp_call *c, struct str cursor);

/* ---- resources ---- */

/* Resources exist for callers that act for an instance; the others have none.  @list and @read must
 * answer @c exactly once, now or later. */
struct mcp_resources {
    const char *templates;                                          /* a JSON array */
    void (*list)(void *ctx, struct mcp_call *c, struct str cursor); /* absent: the first page */
    void (*read)(void *ctx, struct mcp_call *c, struct str uri);
    /* True when the resource exists for the caller, so that its changes may be told. */
    bool (*exists)(void *ctx, const struct caller *who, struct str uri);
    /* True while @read would answer: else nobody is told of changes. */
    bool (*readable)(void *ctx, struct str tenant, struct str instance);
    /* True while the key is good; else its listeners end. */
    bool (*key_is_good)(void *ctx, struct str key_id);
    /* The first listener came, or the last one went: mcp_changed() is wanted, or not. */
    void (*watch)(void *ctx, bool wanted);
};

/* True when somebody listens to the instance. */
bool mcp_is_watched(const struct mcp *m, struct str tenant, struct str instance);
/* The resource @uri of the instance changed; absent: any of them may have.  The listeners are told
 * within MCP_NOTIFY_MS, many changes of one resource once. */
void mcp_changed(struct mcp *m, struct str tenant, struct str instance, struct str uri);
void mcp_list_changed(struct mcp *m, struct str tenant, struct str instance);

/* ---- the server ---- */

struct mcp_env { /* borrowed */
    struct clock *clock;
    struct rand *rand;
    struct ledger *ledger;    /* bounds the listeners of a key; NULL: no bound */
    uint8_t session_key[32];  /* signs session ids; copied */
    const char *version;      /* of this program */
    const char *instructions; /* for the model */
    mcp_may_cb *may;          /* NULL: no rate limit */
    void *may_ctx;
    const struct mcp_resources *resources;
    void *resources_ctx;
};
struct mcp *mcp_new(const struct mcp_env *env);
/* Drops exchanges in flight: @drop of their tools runs, their mcp_reply_cb does not.  No listener
 * may have a sink any more: mcp_end_streams().  NULL is fine. */
void mcp_free(struct mcp *m);
/* Start-up only.  @t is copied, its name unique. */
void mcp_add_tool(struct mcp *m, const struct mcp_tool *t, void *ctx);

enum mcp_reply_kind {
    MCP_REPLY,     /* @json is a response, or an array of them */
    MCP_ACCEPTED,  /* notifications and responses only: no response is due */
    MCP_BAD,       /* malformed: @json is the error response */
    MCP_NO_METHOD, /* newer era: @json is the error response */
    MCP_LISTENING, /* @json is the first message of the stream of @listener */
    MCP_REVOKED,   /* the caller's key has ended since: nothing may be told */
};
struct mcp_reply { /* borrowed for the callback */
    enum mcp_reply_kind kind;
    bool stateless; /* a request of the newer era */
    struct str json;
    struct str session;            /* the id of a newly opened session; absent: none */
    struct mcp_listener *listener; /* MCP_LISTENING: the callback attaches a sink or closes it */
};
typedef void mcp_reply_cb(void *ctx, const struct mcp_reply *r);

struct mcp_request { /* borrowed for the call; the headers are absent where the client sent none */
    const struct caller *who;
    struct str message;
    struct str version, method, name; /* MCP-Protocol-Version, Mcp-Method, Mcp-Name */
    struct str session;               /* Mcp-Session-Id, which mcp_session_ok() has checked */
    bool takes_stream;                /* the client accepts an event stream */
};
/* @done runs exactly once, never inside this call, unless mcp_free() comes first. */
void mcp_handle(struct mcp *m, const struct mcp_request *r, mcp_reply_cb *done, void *ctx);

/* ---- streams ---- */

/* A stream to a client, which the transport embeds in its own struct. */
struct mcp_sink {
    void (*send)(struct mcp_sink *s, struct str json); /* one message; empty: a keep-alive */
    /* No message will follow: closes the stream.  The listener has forgotten the sink. */
    void (*end)(struct mcp_sink *s);
};
void mcp_listener_attach(struct mcp_listener *l, struct mcp_sink *s);
/* The client closed the stream of @s, or never opened it (@s NULL).  A request's listener ends; a
 * session keeps its subscriptions for MCP_SESSION_IDLE_MS. */
void mcp_listener_gone(struct mcp_listener *l, struct mcp_sink *s);
/* The client opens the stream of a session, by GET: the transport attaches a sink at once, and an
 * earlier stream of the session ends.  NULL: the caller has too many listeners. */
struct mcp_listener *mcp_session_listener(struct mcp *m, const struct caller *who,
                                          struct str session);
/* Ends the listeners of keys that are not good any more. */
void mcp_check_keys(struct mcp *m);
/* Ends all streams, in the way the protocol has for it.  Called when the server goes down. */
void mcp_end_streams(struct mcp *m); /* NULL is fine */
size_t mcp_listeners(const struct mcp *m);

/* ---- sessions of the older era ---- */
bool mcp_version_has_sessions(struct str version);
/* True: this server issued the id for the caller's key, and it was not deleted. */
bool mcp_session_ok(const struct mcp *m, const struct caller *who, struct str id);
void mcp_session_end(struct mcp *m, struct str id);
