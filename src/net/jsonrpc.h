/* jsonrpc.h - JSON-RPC 2.0 with one peer, one message per line, requests in both directions.
 *
 * The module does no I/O: lines that arrive go into jsonrpc_line(), lines to send come out of
 * ops->write().  Agents (agent/acp.c), programs of platforms (platform/child.h) and the channel of
 * Claude Code (agent/channel.h) are such peers.
 *
 *      ours:   jsonrpc_call() --line--> peer --result or error--> @done, once
 *                    '-- jsonrpc_forget(): @done never runs, a late answer is ignored
 *      theirs: jsonrpc_line() --> ops->request(ticket) --> jsonrpc_answer() or jsonrpc_refuse()
 *
 * Every byte of the peer is hostile.  A line that is no JSON object goes to ops->noise() and is not
 * answered, because programs print stray text on stdout.  Batches are refused.  The number of open
 * requests is bounded in both directions. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/json.h"

struct jsonrpc;

enum {
    JSONRPC_MAX_CALLS = 4096, /* ours that are open */
    JSONRPC_MAX_ASKED = 256,  /* the peer's that are open; more are refused */
    JSONRPC_MAX_ID = 256,     /* bytes of a peer's id, as JSON */
};

enum jsonrpc_code { /* error codes of the specification; -32800: of ACP */
                    JSONRPC_INVALID_REQUEST = -32600,
                    JSONRPC_NO_METHOD = -32601,
                    JSONRPC_INVALID_PARAMS = -32602,
                    JSONRPC_INTERNAL = -32603,
                    JSONRPC_BUSY = -32000,
                    JSONRPC_CANCELLED = -32800,
};

struct jsonrpc_result { /* borrowed for the callback */
    bool ok;
    struct json value;  /* the result; else the member "data" of the error */
    int64_t code;       /* of an error */
    struct str message; /* of an error */
};

/* Handlers borrow their arguments for the call.  They may call every function here except
 * jsonrpc_line() and jsonrpc_free(). */
struct jsonrpc_ops {
    void (*write)(void *ctx, struct str line); /* newline included */
    /* A request of the peer, to be answered once with its @ticket, now or later.  @params is
     * absent, an object or an array. */
    void (*request)(void *ctx, uint64_t ticket, struct str method, struct json params);
    void (*notified)(void *ctx, struct str method, struct json params);
    void (*noise)(void *ctx, struct str line, const char *why); /* an unusable line */
    /* An answer to a call that is not open: it was forgotten, or an earlier process made it.  NULL:
     * such an answer is noise. */
    void (*stray)(void *ctx, uint64_t number, const struct jsonrpc_result *r);
};

typedef void jsonrpc_done_cb(void *ctx, const struct jsonrpc_result *r);

struct jsonrpc *jsonrpc_new(const struct jsonrpc_ops *ops, void *ctx);
void jsonrpc_free(struct jsonrpc *r); /* open calls are forgotten; NULL is fine */

/* One line of the peer, without its newline. */
void jsonrpc_line(struct jsonrpc *r, struct str line);

/* Sends a request; @params is a JSON object or array, or absent.  Returns the call's number, or 0:
 * JSONRPC_MAX_CALLS are open, nothing was sent. */
uint64_t jsonrpc_call(struct jsonrpc *r, const char *method, struct str params,
                      jsonrpc_done_cb *done, void *ctx) BH_MUST_USE;
/* The same under a number that the caller chose, so that ops->stray() recognizes its answer after a
 * restart.  Numbers of jsonrpc_call() start at 1; @number is far above them.  False: as 0 above, or
 * a call with this number is open. */
bool jsonrpc_call_as(struct jsonrpc *r, uint64_t number, const char *method, struct str params,
                     jsonrpc_done_cb *done, void *ctx) BH_MUST_USE;
void jsonrpc_forget(struct jsonrpc *r, uint64_t *call); /* sets 0; an old number does nothing */
void jsonrpc_notify(struct jsonrpc *r, const char *method, struct str params);

/* Answer the peer's request @ticket; an answered or unknown ticket does nothing.  @result is one
 * JSON value. */
void jsonrpc_answer(struct jsonrpc *r, uint64_t ticket, struct str result);
void jsonrpc_refuse(struct jsonrpc *r, uint64_t ticket, enum jsonrpc_code code, const char *why);
/* The ticket of the peer's open request with this @id, for a cancellation; 0: none. */
uint64_t jsonrpc_ticket(const struct jsonrpc *r, struct json id);
