/* envelope.h - JSON-RPC 2.0 as MCP uses it: parses one message, writes one reply.  No state. */
#pragma once
#include "base/jw.h"

enum { /* JSON-RPC error codes */
       RPC_PARSE = -32700,
       RPC_INVALID = -32600,
       RPC_NO_METHOD = -32601,
       RPC_BAD_PARAMS = -32602,
       RPC_INTERNAL = -32603,
};

enum rpc_kind {
    RPC_REQUEST,
    RPC_NOTIFICATION, /* no id: the sender expects no reply */
    RPC_RESPONSE,     /* ignored: this server sends no requests */
    RPC_BROKEN,       /* malformed, see @why; @id is set if it is usable */
};
struct rpc {
    enum rpc_kind kind;
    struct json id; /* a text or a whole number; absent otherwise */
    struct str method;
    struct json params; /* an object, or absent */
    const char *why;
};
/* Classifies one message; @v may be any JSON value. */
struct rpc rpc_read(struct json v);

/* Writes {"jsonrpc":"2.0","id":...; the caller writes "result" and ends the object. */
void rpc_reply_begin(struct jw *w, struct str id_json); /* absent id: null */
void rpc_error(struct jw *w, struct str id_json, int code, struct str message,
               struct str data_json); /* absent data: none */
