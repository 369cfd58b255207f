/* mcp.h - the Model Context Protocol, server side: envelopes, versions, sessions, tools.
 *
 * It knows no socket and no store.  A door hands in one message at a time and who sent it, and gets
 * one reply later; what can be done is a table of tools that others register.
 *
 *      door (http/mcp_route.c) --mcp_handle()--> envelope --> initialize, ping, tools/list
 *                                                       '---> tools/call --> tool (http/op.h)
 *                                                                             |
 *      door <--mcp_reply_cb-- reply <-- mcp_answer() | mcp_fail() <-----------'
 *
 * Protocol versions 2024-11-05, 2025-03-26 and 2025-06-18; batches are taken whatever the version.
 * A failed tool is a JSON-RPC error whose data names the class and fields of the contract
 * (core/fault.h): clients that look only at `error` must not take a failure for a result.
 *
 * A session id is signed, says which key it was made for and needs no memory here: it is good after
 * a restart, until somebody deletes it (that is remembered while the process lives, bounded).
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "core/caller.h"
#include "core/fault.h"

struct clock;
struct mcp;
struct mcp_call;
struct mcp_exchange;
struct rand;

#define MCP_BATCH_MAX 32
#define MCP_LATEST "2025-06-18"

/* May the caller do one thing more now?  Asked for every request of a batch but its first, which
 * the door that handed the batch in has asked for. */
typedef bool mcp_may_cb(void *ctx, const struct caller *who);

/* ---- tools ---- */

struct mcp_tool { /* the texts are borrowed, but for input_schema */
    const char *name, *title;
    const char *description;  /* for the model that chooses */
    const char *input_schema; /* a JSON Schema of an object, as text; copied */
    bool reads_only;          /* changes nothing */
    bool for_instance;        /* only for keys that act for an instance */
    const void *data;         /* the owner's */
    /* Answer @c once, now or later.  @args is an object, borrowed for this call. */
    void (*call)(void *ctx, const struct mcp_tool *t, struct mcp_call *c, struct json args);
};

/* Inside a tool and later: who asks.  Owned by the call. */
const struct caller *mcp_call_who(const struct mcp_call *c);
/* What the tool keeps with the call until it has answered; @drop frees it (and cancels what is
 * under way) when nobody waits for the answer any more. */
void mcp_call_keep(struct mcp_call *c, void *mine, void (*drop)(void *mine));
/* The result: one JSON value, as text.  The call is over. */
void mcp_answer(struct mcp_call *c, struct str json);
void mcp_fail(struct mcp_call *c, const struct fault *fault);
/* The same with words of our own. */
void mcp_refuse(struct mcp_call *c, enum fault_class cls, const char *fmt, ...) BH_PRINTF(3, 4);

/* ---- the server ---- */

struct mcp_env { /* borrowed */
    struct clock *clock;
    struct rand *rand;
    uint8_t session_key[32];  /* signs session ids; copied */
    const char *version;      /* of this program */
    const char *instructions; /* for the model, told at initialize */
    mcp_may_cb *may;          /* NULL: as often as they like */
    void *may_ctx;
};
struct mcp *mcp_new(const struct mcp_env *env);
/* Exchanges under way are dropped: their tools' @drop runs, their done() does not.  NULL is
 * fine. */
void mcp_free(struct mcp *m);
/* Start-up only.  @t is copied, its name unique. */
void mcp_add_tool(struct mcp *m, const struct mcp_tool *t, void *ctx);

enum mcp_reply_kind {
    MCP_REPLY,    /* @json is a response, or an array of them */
    MCP_ACCEPTED, /* notifications and responses only: there is nothing to say */
    MCP_BAD,      /* no JSON-RPC at all: @json is the error to say so */
};
struct mcp_reply { /* borrowed for the callback */
    enum mcp_reply_kind kind;
    struct str json;
    struct str session; /* a new session was opened: its id; absent: none */
};
typedef void mcp_reply_cb(void *ctx, const struct mcp_reply *r);
/* @done runs exactly once, later, never inside - unless mcp_cancel() comes first. */
struct mcp_exchange *mcp_handle(struct mcp *m, const struct caller *who, struct str message,
                                mcp_reply_cb *done, void *ctx) BH_MUST_USE;
void mcp_cancel(struct mcp_exchange **x); /* sets it to NULL; NULL is fine */

/* ---- what doors ask ---- */
bool mcp_version_ok(struct str version); /* one of those above */
/* Was this id made here, for this key, and not deleted? */
bool mcp_session_ok(const struct mcp *m, const struct caller *who, struct str id);
void mcp_session_end(struct mcp *m, struct str id);
