/* envelope.c - JSON-RPC 2.0.  (envelope.h has the contract.) */
#include "mcp/envelope.h"

static bool is_id(struct json v)
{
    int64_t i;
    uint64_t u;

    return json_type(v) == JSON_STRING || json_as_i64(v, &i) || json_as_u64(v, &u);
}

static struct rpc broken(struct rpc r, const char *why)
{
    r.kind = RPC_BROKEN;
    r.why = why;
    return r;
}

struct rpc rpc_read(struct json v)
{
    struct rpc r = {.kind = RPC_REQUEST};
    struct json id = json_get(v, "id"), method = json_get(v, "method"),
                params = json_get(v, "params");
    enum json_type t = json_type(params);

    if (!json_is_object(v))
        return broken(r, "a message is an object");
    if (is_id(id))
        r.id = id;
    if (!str_eq(json_str(v, "jsonrpc"), STR("2.0")))
        return broken(r, "jsonrpc must be \"2.0\"");
    if (json_type(method) == JSON_ABSENT && (json_type(json_get(v, "result")) != JSON_ABSENT ||
                                             json_type(json_get(v, "error")) != JSON_ABSENT)) {
        r.kind = RPC_RESPONSE;
        return r;
    }
    if (json_type(method) != JSON_STRING)
        return broken(r, "method must be a text");
    if (json_type(id) != JSON_ABSENT && !is_id(id))
        return broken(r, "id must be a text or a whole number");
    if (t != JSON_ABSENT && t != JSON_OBJECT)
        return broken(r, "params must be an object");
    r.method = json_as_str(method);
    if (t == JSON_OBJECT)
        r.params = params;
    if (json_type(id) == JSON_ABSENT)
        r.kind = RPC_NOTIFICATION;
    return r;
}

void rpc_reply_begin(struct jw *w, struct str id_json)
{
    jw_obj(w);
    jw_kstr(w, "jsonrpc", STR("2.0"));
    jw_key(w, "id");
    if (id_json.p != NULL)
        jw_raw(w, id_json);
    else
        jw_null(w);
}

void rpc_error(struct jw *w, struct str id_json, int code, struct str message, struct str data_json)
{
    rpc_reply_begin(w, id_json);
    jw_kobj(w, "error");
    jw_ki64(w, "code", code);
    jw_kstr(w, "message", message);
    if (data_json.p != NULL) {
        jw_kraw(w, "data", data_json);
    }
    jw_end_obj(w);
    jw_end_obj(w);
}
