/* mcp.h - the Model Context Protocol, server side: envelopes, versions, sessions, tools.
 *
 * This module uses no socket and no store.  A transport passes in one message at a time with its
 * caller, and gets one reply later.  Other modules register the tools.
 *
 *      transport (http/mcp_route.c) --mcp_handle()--> envelope --> initialize, ping, tools/list
 *                                                            '---> tools/call --> tool (http/op.h)
 *                                                                                    |
 *      transport <--mcp_reply_cb-- reply <-- mcp_answer() | mcp_fail() <-------------'
 *
 * Protocol versions: 2024-11-05, 2025-03-26 and 2025-06-18.  Batches are accepted in all of them.
 * A failed tool is answered by a JSON-RPC error, with the class and fields of the contract
 * (core/fault.h) in `data`.  So a client that checks only `error` never takes a failure for a
 * result.  Wrong arguments have the code -32602, whatever their class.
 *
 * Session ids are signed, bound to an API key, and need no server state, so they stay valid across
 * a restart.  Deleted ids are remembered in memory, up to a bound, until the process exits.
 */
#pragma once
#include "base/json.h"
#include "core/caller.h"
#include "core/fault.h"

struct mcp_call;

#define MCP_BATCH_MAX 32
#define MCP_LATEST "2025-06-18"

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
/* Attaches the tool's own state to the call.  If mcp_free() drops the call before its answer, @drop
 * cancels the tool's work and frees @mine. */
void mcp_call_keep(struct mcp_call *c, void *mine, void (*drop)(void *mine));
/* Answers with one JSON value, as text.  The call ends here. */
void mcp_answer(struct mcp_call *c, struct str json);
void mcp_fail(struct mcp_call *c, const struct fault *fault);

/* ---- the server ---- */

struct mcp_env { /* borrowed */
    struct clock *clock;
    struct rand *rand;
    uint8_t session_key[32];  /* signs session ids; copied */
    const char *version;      /* of this program */
    const char *instructions; /* for the model, sent at initialize */
    mcp_may_cb *may;          /* NULL: no rate limit */
    void *may_ctx;
};
struct mcp *mcp_new(const struct mcp_env *env);
/* Drops exchanges in flight: @drop of their tools runs, their mcp_reply_cb does not.  NULL is
 * fine. */
void mcp_free(struct mcp *m);
/* Start-up only.  @t is copied, its name unique. */
void mcp_add_tool(struct mcp *m, const struct mcp_tool *t, void *ctx);

enum mcp_reply_kind {
    MCP_REPLY,    /* @json is a response, or an array of them */
    MCP_ACCEPTED, /* notifications and responses only: no response is due */
    MCP_BAD,      /* not JSON-RPC: @json is the error response */
};
struct mcp_reply { /* borrowed for the callback */
    enum mcp_reply_kind kind;
    struct str json;
    struct str session; /* the id of a newly opened session; absent: none */
};
typedef void mcp_reply_cb(void *ctx, const struct mcp_reply *r);
/* @done runs exactly once, never inside this call, unless mcp_free() comes first. */
void mcp_handle(struct mcp *m, const struct caller *who, struct str message, mcp_reply_cb *done,
                void *ctx);

/* ---- for transports ---- */
bool mcp_version_ok(struct str version); /* a protocol version listed above */
/* True: this server issued the id for the caller's key, and it was not deleted. */
bool mcp_session_ok(const struct mcp *m, const struct caller *who, struct str id);
void mcp_session_end(struct mcp *m, struct str id);
