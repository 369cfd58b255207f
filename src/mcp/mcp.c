/* mcp.c - design.  (mcp.h has the contract.)
 *
 * One POST body or one input line is one exchange: its messages, the unanswered calls, and the
 * replies so far.  The answer to the last call completes the exchange.  The reply is delivered at
 * the end of the turn at the earliest, because a tool may answer inside its own call.
 *
 *      mcp_handle -> OPEN (open = calls + 1 while reading) -- open == 0 --> TOLD, freed
 *
 * A request belongs to the newer era if its header or its `_meta` says so, or if only the newer era
 * has its method.  The older one is the default: its clients may send no header at all. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "mcp/mcp_priv.h"

enum { /* error codes of JSON-RPC, and of the protocol */
       RPC_PARSE = -32700,
       RPC_INVALID = -32600,
       RPC_NO_METHOD = -32601,
       RPC_BAD_PARAMS = -32602,
       RPC_INTERNAL = -32603,
       RPC_NO_RESOURCE = -32002, /* older era */
       RPC_HEADER_MISMATCH = -32020,
       RPC_VERSION = -32022,
};
enum { LIST_TTL_MS = 300000 }; /* tools and templates change with the program only */

enum rpc_kind {
    RPC_REQUEST,
    RPC_NOTIFICATION, /* no id: the sender expects no reply */
    RPC_RESPONSE,     /* ignored: this server sends no requests */
    RPC_BROKEN,       /* malformed, see @why; @id is set if it is usable */
};
struct rpc {
    enum rpc_kind kind;
    bool stateless; /* a request of the newer era */
    struct json id; /* a text or a whole number; absent otherwise */
    struct str method;
    struct json params; /* an object, or absent */
    const char *why;
};

/* Newest first, as they are told. */
static const char *const versions[] = {MCP_STATELESS, MCP_NEWEST_WITH_SESSIONS, "2025-06-18",
                                       "2025-03-26", "2024-11-05"};

struct mcp_exchange {
    struct list link; /* mcp->exchanges */
    struct mcp *m;    /* borrowed */
    struct caller who;
    char *texts;                     /* owned; backs the strings of @who */
    const struct mcp_request *asked; /* while the messages are read */
    struct list calls;               /* owned */
    size_t open;        /* unanswered calls, plus one while the messages are being read */
    struct buf replies; /* separated by commas */
    struct buf session; /* a new one */
    struct mcp_listener *listener; /* MCP_LISTENING */
    enum mcp_reply_kind kind;
    bool batch, stateless;
    bool tool_errors; /* a failed tool has a result: since 2025-11-25 */
    uint8_t n_requests;
    struct timer tell;
    mcp_reply_cb *done;
    void *ctx;
};

enum call_kind { CALL_TOOL, CALL_READ, CALL_LIST };
struct mcp_call {
    struct list link;       /* exchange->calls */
    struct mcp_exchange *x; /* borrowed */
    enum call_kind kind;
    bool stateless;
    struct buf id;                    /* JSON */
    char trace[CALLER_TRACE_MAX + 1]; /* _meta.traceparent; "": none, or it is not valid */
    struct buf uri;                   /* CALL_READ: of the resource; CALL_LIST: the next cursor */
    void *mine;
    void (*drop)(void *mine);
};

/* ---- JSON-RPC 2.0 ---- */

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

/* Classifies one message; @v may be any JSON value. */
static struct rpc rpc_read(struct json v)
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

/* Writes {"jsonrpc":"2.0","id":...; the caller writes "result" and ends the object. */
static void rpc_reply_begin(struct jw *w, struct str id_json)
{
    jw_obj(w);
    jw_kstr(w, "jsonrpc", STR("2.0"));
    jw_key(w, "id");
    if (id_json.p != NULL)
        jw_raw(w, id_json);
    else
        jw_null(w);
}

static void rpc_error(struct jw *w, struct str id_json, int code, struct str message,
                      struct str data_json)
{
    rpc_reply_begin(w, id_json);
    jw_kobj(w, "error");
    jw_ki64(w, "code", code);
    jw_kstr(w, "message", message);
    if (data_json.p != NULL)
        jw_kraw(w, "data", data_json);
    jw_end_obj(w);
    jw_end_obj(w);
}

/* ---- exchanges ---- */

static void call_free(struct mcp_call *c)
{
    list_remove(&c->link);
    buf_done(&c->id);
    buf_done(&c->uri);
    free(c);
}

static void exchange_free(struct mcp_exchange *x)
{
    list_each (&x->calls, it, nxt) {
        struct mcp_call *c = list_entry(it, struct mcp_call, link);
        if (c->drop != NULL)
            c->drop(c->mine);
        call_free(c);
    }
    timer_stop(x->m->env.clock, &x->tell);
    list_remove(&x->link);
    buf_done(&x->replies);
    buf_done(&x->session);
    free(x->texts);
    free(x);
}

bool mcp_key_is_good(const struct mcp *m, const struct caller *who)
{
    const struct mcp_env *env = &m->env;

    return who->key_id.p == NULL || env->resources == NULL ||
           env->resources->key_is_good(env->resources_ctx, who->key_id);
}

static void on_tell(struct timer *t)
{
    struct mcp_exchange *x = container_of(t, struct mcp_exchange, tell);
    struct buf json = BUF_INIT;
    struct mcp_reply r = {.kind = x->kind, .stateless = x->stateless, .listener = x->listener};

    if (x->kind == MCP_REPLY && x->replies.n == 0)
        r.kind = MCP_ACCEPTED;
    if (!mcp_key_is_good(x->m, &x->who)) /* its listener has ended, or does so soon */
        r = (struct mcp_reply){.kind = MCP_REVOKED};
    if (r.kind != MCP_ACCEPTED && r.kind != MCP_REVOKED) {
        buf_add_z(&json, x->batch ? "[" : "");
        buf_add_str(&json, buf_str(&x->replies));
        buf_add_z(&json, x->batch ? "]" : "");
        r.json = buf_str(&json);
    }
    if (x->session.n > 0 && r.kind != MCP_REVOKED)
        r.session = buf_str(&x->session);
    x->done(x->ctx, &r);
    buf_done(&json);
    exchange_free(x);
}

/* Counts @open down; at zero the exchange is complete. */
static void settle(struct mcp_exchange *x)
{
    assert(x->open > 0);
    if (--x->open == 0)
        timer_set(x->m->env.clock, &x->tell, 0);
}

static struct jw next_reply(struct mcp_exchange *x)
{
    if (x->replies.n > 0)
        buf_add_c(&x->replies, ',');
    return jw_begin(&x->replies);
}

char *mcp_hold_caller(struct caller *who)
{
    struct str *texts[] = {&who->tenant, &who->ns,       &who->identity, &who->key_id,
                           &who->agent,  &who->instance, &who->for_agent};
    size_t n = 1;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        n += texts[i]->n;
    char *block = xmalloc(n), *at = block;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        *texts[i] = str_pack(&at, *texts[i]);
    return block;
}

static struct mcp_exchange *exchange_new(struct mcp *m, const struct mcp_request *r,
                                         mcp_reply_cb *done, void *ctx)
{
    struct mcp_exchange *x = xcalloc(1, sizeof *x);

    *x = (struct mcp_exchange){
        .m = m, .who = *r->who, .asked = r, .open = 1, .done = done, .ctx = ctx};
    x->texts = mcp_hold_caller(&x->who);
    x->tool_errors = str_cmp(r->version, STR("2025-11-25")) >= 0;
    list_init(&x->calls);
    timer_init(&x->tell, on_tell);
    list_append(&m->exchanges, &x->link);
    return x;
}

/* ---- replies ---- */

void mcp_write_meta(const struct mcp *m, struct jw *w, struct str subscription)
{
    jw_kobj(w, "_meta");
    if (subscription.p != NULL)
        jw_kraw(w, META "subscriptionId", subscription);
    jw_kobj(w, META "serverInfo");
    jw_kstr(w, "name", STR("bellhop"));
    jw_kstr(w, "version", str_of(m->env.version));
    jw_end_obj(w);
    jw_end_obj(w);
}

static void reply_error(struct mcp_exchange *x, struct json id, int code, const char *why,
                        struct str data)
{
    struct buf text = BUF_INIT;
    struct jw iw = jw_begin(&text), w;

    if (json_type(id) != JSON_ABSENT)
        jw_value(&iw, id);
    w = next_reply(x);
    rpc_error(&w, json_type(id) != JSON_ABSENT ? buf_str(&text) : STR_NULL, code, str_of(why),
              data);
    buf_done(&text);
}

/* Begins a result; the caller writes its members, then calls reply_end(). */
static struct jw reply_begin(struct mcp_exchange *x, struct str id_json, bool stateless)
{
    struct jw w = next_reply(x);

    rpc_reply_begin(&w, id_json);
    jw_kobj(&w, "result");
    if (stateless)
        jw_kstr(&w, "resultType", STR("complete"));
    return w;
}

enum { NOT_CACHED = -1 };

/* @ttl_ms: how long the client may keep the result, for itself; NOT_CACHED: the method has no such
 * hint. */
static void reply_end(const struct mcp_exchange *x, struct jw *w, bool stateless, int ttl_ms)
{
    if (stateless && ttl_ms != NOT_CACHED) {
        jw_ki64(w, "ttlMs", ttl_ms);
        jw_kstr(w, "cacheScope", STR("private"));
    }
    if (stateless)
        mcp_write_meta(x->m, w, STR_NULL);
    jw_end_obj(w);
    jw_end_obj(w);
}

static struct jw reply_to(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct buf id = BUF_INIT;
    struct jw iw = jw_begin(&id);

    jw_value(&iw, rpc->id);
    struct jw w = reply_begin(x, buf_str(&id), rpc->stateless);
    buf_done(&id);
    return w;
}

/* ---- answers of tools and resources ---- */

const struct caller *mcp_call_who(const struct mcp_call *c)
{
    return &c->x->who;
}

struct str mcp_call_trace(const struct mcp_call *c)
{
    return c->trace[0] != '\0' ? str_of(c->trace) : STR_NULL;
}

void mcp_call_keep(struct mcp_call *c, void *mine, void (*drop)(void *mine))
{
    c->mine = mine;
    c->drop = drop;
}

void mcp_call_next(struct mcp_call *c, struct str cursor)
{
    buf_reset(&c->uri);
    buf_add_str(&c->uri, cursor);
}

static void call_over(struct mcp_call *c)
{
    struct mcp_exchange *x = c->x;

    call_free(c);
    settle(x);
}

static void write_text(struct jw *w, struct str json, bool is_error)
{
    jw_karr(w, "content");
    jw_obj(w);
    jw_kstr(w, "type", STR("text"));
    jw_kstr(w, "text", json);
    jw_end_obj(w);
    jw_end_arr(w);
    jw_kbool(w, "isError", is_error);
}

void mcp_answer(struct mcp_call *c, struct str json)
{
    struct jw w = reply_begin(c->x, buf_str(&c->id), c->stateless);

    switch (c->kind) {
    case CALL_TOOL:
        write_text(&w, json, false);
        break;
    case CALL_READ:
        jw_karr(&w, "contents");
        jw_obj(&w);
        jw_kstr(&w, "uri", buf_str(&c->uri));
        jw_kstr(&w, "mimeType", STR("application/json"));
        jw_kstr(&w, "text", json);
        jw_end_obj(&w);
        jw_end_arr(&w);
        break;
    case CALL_LIST:
        jw_kraw(&w, "resources", json);
        if (c->uri.n > 0)
            jw_kstr(&w, "nextCursor", buf_str(&c->uri));
        break;
    }
    reply_end(c->x, &w, c->stateless, c->kind == CALL_TOOL ? NOT_CACHED : 0);
    call_over(c);
}

static void fail_tool(struct mcp_call *c, struct str data)
{
    struct jw w = reply_begin(c->x, buf_str(&c->id), c->stateless);

    write_text(&w, data, true);
    reply_end(c->x, &w, c->stateless, NOT_CACHED);
}

void mcp_fail(struct mcp_call *c, const struct fault *fault)
{
    struct buf data = BUF_INIT;
    struct jw dw = jw_begin(&data);
    struct str message = buf_str(&fault->message);
    int code = fault_http_status(fault->cls) == 400 ? RPC_BAD_PARAMS : RPC_INTERNAL;

    if (c->kind == CALL_READ && fault->cls == FAULT_NOT_FOUND) {
        code = c->stateless ? RPC_BAD_PARAMS : RPC_NO_RESOURCE;
        message = STR("Resource not found");
        jw_obj(&dw);
        jw_kstr(&dw, "uri", buf_str(&c->uri));
        jw_end_obj(&dw);
    } else {
        fault_json(fault, &dw);
    }
    if (c->kind == CALL_TOOL && c->x->tool_errors) {
        fail_tool(c, buf_str(&data));
    } else {
        struct jw w = next_reply(c->x);
        rpc_error(&w, buf_str(&c->id), code, message, buf_str(&data));
    }
    buf_done(&data);
    call_over(c);
}

/* ---- methods of both eras ---- */

static struct mcp_call *call_new(struct mcp_exchange *x, const struct rpc *rpc, enum call_kind kind)
{
    struct mcp_call *c = xcalloc(1, sizeof *c);
    struct jw iw = jw_begin(&c->id);

    c->x = x;
    c->kind = kind;
    c->stateless = rpc->stateless;
    jw_value(&iw, rpc->id);
    struct str trace = json_str(json_get(rpc->params, "_meta"), "traceparent");
    if (caller_trace_valid(trace))
        snprintf(c->trace, sizeof c->trace, "%.*s", STR_FMT(trace));
    list_append(&x->calls, &c->link);
    x->open++;
    return c;
}

static bool is_for(const struct mcp_tool *t, const struct caller *who)
{
    return !t->for_instance || who->instance.p != NULL;
}

static void do_tools_list(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct jw w = reply_to(x, rpc);

    jw_karr(&w, "tools");
    for (size_t i = 0; i < x->m->n_tools; i++) {
        const struct mcp_tool *t = &x->m->tools[i].tool;
        if (!is_for(t, &x->who))
            continue;
        jw_obj(&w);
        jw_kstr(&w, "name", str_of(t->name));
        jw_kstr_opt(&w, "title", str_of(t->title));
        jw_kstr(&w, "description", str_of(t->description));
        jw_kraw(&w, "inputSchema", str_of(t->input_schema));
        jw_kobj(&w, "annotations");
        jw_kbool(&w, "readOnlyHint", t->reads_only);
        jw_kbool(&w, "openWorldHint", false);
        jw_end_obj(&w);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    reply_end(x, &w, rpc->stateless, LIST_TTL_MS);
}

static const struct registered *find_tool(const struct mcp *m, struct str name)
{
    for (size_t i = 0; i < m->n_tools; i++)
        if (str_eq(str_of(m->tools[i].tool.name), name))
            return &m->tools[i];
    return NULL;
}

static void do_tools_call(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct str name = json_str(rpc->params, "name");
    struct json args = json_get(rpc->params, "arguments");
    const struct registered *r = find_tool(x->m, name);
    enum json_type t = json_type(args);
    int unknown = x->tool_errors ? RPC_BAD_PARAMS : RPC_NO_METHOD;

    if (str_is_empty(name)) {
        reply_error(x, rpc->id, RPC_BAD_PARAMS, "name must be the name of a tool", STR_NULL);
    } else if (r == NULL) {
        reply_error(x, rpc->id, unknown, "unknown tool; tools/list has those there are", STR_NULL);
    } else if (!is_for(&r->tool, &x->who)) {
        reply_error(x, rpc->id, unknown,
                    "this key speaks for no instance; make one with bellhop token agent --instance",
                    STR_NULL);
    } else if (t != JSON_ABSENT && t != JSON_NULL && t != JSON_OBJECT) {
        reply_error(x, rpc->id, RPC_BAD_PARAMS, "arguments must be an object", STR_NULL);
    } else {
        struct mcp_call *c = call_new(x, rpc, CALL_TOOL);
        r->tool.call(r->ctx, &r->tool, c, args);
    }
}

/* NULL: the caller has none. */
static const struct mcp_resources *resources_of(const struct mcp_exchange *x)
{
    return x->who.instance.p != NULL ? x->m->env.resources : NULL;
}

static void do_resources_list(struct mcp_exchange *x, const struct rpc *rpc)
{
    const struct mcp_resources *from = resources_of(x);
    struct mcp_call *c = call_new(x, rpc, CALL_LIST);

    if (from != NULL)
        from->list(x->m->env.resources_ctx, c, json_str(rpc->params, "cursor"));
    else
        mcp_answer(c, STR("[]"));
}

static void do_templates_list(struct mcp_exchange *x, const struct rpc *rpc)
{
    const struct mcp_resources *from = resources_of(x);
    struct jw w = reply_to(x, rpc);

    jw_kraw(&w, "resourceTemplates", from != NULL ? str_of(from->templates) : STR("[]"));
    reply_end(x, &w, rpc->stateless, LIST_TTL_MS);
}

static void do_resources_read(struct mcp_exchange *x, const struct rpc *rpc)
{
    const struct mcp_resources *from = resources_of(x);
    struct str uri = json_str(rpc->params, "uri");

    if (str_is_empty(uri)) {
        reply_error(x, rpc->id, RPC_BAD_PARAMS, "uri must be the URI of a resource", STR_NULL);
        return;
    }
    struct mcp_call *c = call_new(x, rpc, CALL_READ);
    buf_add_str(&c->uri, uri);
    if (from != NULL) {
        from->read(x->m->env.resources_ctx, c, uri);
    } else {
        struct fault none = {.cls = FAULT_NOT_FOUND};
        mcp_fail(c, &none);
    }
}

static void write_capabilities(struct jw *w)
{
    jw_kraw(w, "capabilities",
            STR("{\"tools\":{\"listChanged\":false},"
                "\"resources\":{\"subscribe\":true,\"listChanged\":true}}"));
}

/* ---- methods of the older era ---- */

bool mcp_version_has_sessions(struct str version)
{
    for (size_t i = 1; i < ARRAY_LEN(versions); i++)
        if (str_eq(version, str_of(versions[i])))
            return true;
    return false;
}

static void do_initialize(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct str asked = json_str(rpc->params, "protocolVersion");
    struct jw w = reply_to(x, rpc);

    jw_kstr(&w, "protocolVersion",
            mcp_version_has_sessions(asked) ? asked : STR(MCP_NEWEST_WITH_SESSIONS));
    write_capabilities(&w);
    jw_kobj(&w, "serverInfo");
    jw_kstr(&w, "name", STR("bellhop"));
    jw_kstr(&w, "version", str_of(x->m->env.version));
    jw_end_obj(&w);
    jw_kstr_opt(&w, "instructions", str_of(x->m->env.instructions));
    reply_end(x, &w, false, NOT_CACHED);
    buf_reset(&x->session);
    session_issue(x->m, &x->who, &x->session);
}

static void reply_empty(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct jw w = reply_to(x, rpc);

    reply_end(x, &w, false, NOT_CACHED);
}

static void do_subscribe(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct str uri = json_str(rpc->params, "uri"), session = x->asked->session;
    struct buf data = BUF_INIT;
    struct jw w = jw_begin(&data);
    enum subscribed how = SUBSCRIBED_NOTHING;

    if (str_is_empty(uri)) {
        reply_error(x, rpc->id, RPC_BAD_PARAMS, "uri must be the URI of a resource", STR_NULL);
        return;
    }
    if (session.p == NULL) {
        reply_error(x, rpc->id, RPC_INVALID,
                    "a subscription needs a session: send the Mcp-Session-Id of initialize",
                    STR_NULL);
        return;
    }
    if (resources_of(x) != NULL)
        how = session_subscribe(x->m, &x->who, session, uri);
    jw_obj(&w);
    jw_kstr(&w, "uri", uri);
    jw_end_obj(&w);
    if (how == SUBSCRIBED)
        reply_empty(x, rpc);
    else if (how == SUBSCRIBED_NOTHING)
        reply_error(x, rpc->id, RPC_NO_RESOURCE, "Resource not found", buf_str(&data));
    else
        reply_error(x, rpc->id, RPC_INTERNAL,
                    "too many subscriptions of this session, or sessions of this key",
                    buf_str(&data));
    buf_done(&data);
}

static void do_unsubscribe(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct str session = x->asked->session;

    if (session.p != NULL)
        session_unsubscribe(x->m, session, json_str(rpc->params, "uri"));
    reply_empty(x, rpc);
}

/* ---- methods of the newer era ---- */

static void write_versions(struct jw *w, const char *key)
{
    jw_karr(w, key);
    for (size_t i = 0; i < ARRAY_LEN(versions); i++)
        jw_str(w, str_of(versions[i]));
    jw_end_arr(w);
}

static void do_discover(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct jw w = reply_to(x, rpc);

    write_versions(&w, "supportedVersions");
    write_capabilities(&w);
    jw_kstr_opt(&w, "instructions", str_of(x->m->env.instructions));
    reply_end(x, &w, true, LIST_TTL_MS);
}

static void do_listen(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct json filter = json_get(rpc->params, "notifications");
    struct buf id = BUF_INIT;
    struct jw iw = jw_begin(&id);

    if (!json_is_object(filter)) {
        reply_error(x, rpc->id, RPC_BAD_PARAMS, "notifications must say what to listen to",
                    STR_NULL);
        return;
    }
    if (!x->asked->takes_stream) {
        reply_error(x, rpc->id, RPC_INVALID, "the answer is a stream: accept text/event-stream",
                    STR_NULL);
        x->kind = MCP_BAD;
        return;
    }
    jw_value(&iw, rpc->id);
    x->listener = listen_request(x->m, &x->who, buf_str(&id), filter, &x->replies);
    if (x->listener != NULL)
        x->kind = MCP_LISTENING;
    else
        reply_error(x, rpc->id, RPC_INTERNAL,
                    "too many streams of this key are open; close one, or try again later",
                    STR_NULL);
    buf_done(&id);
}

/* ---- which era ---- */

static void refuse_version(struct mcp_exchange *x, const struct rpc *rpc, struct str asked)
{
    struct buf data = BUF_INIT;
    struct jw w = jw_begin(&data);

    jw_obj(&w);
    write_versions(&w, "supported");
    jw_kstr(&w, "requested", asked);
    jw_end_obj(&w);
    reply_error(x, rpc->id, RPC_VERSION, "Unsupported protocol version", buf_str(&data));
    buf_done(&data);
}

/* The value of Mcp-Name, which may be written as =?base64?...?= */
static bool name_matches(struct str header, struct str body)
{
    struct buf plain = BUF_INIT;
    bool same = str_eq(header, body);

    if (str_starts(header, STR("=?base64?")) && str_ends(header, STR("?=")) && header.n >= 11)
        same = base64_decode(str_make(header.p + 9, header.n - 11), &plain) &&
               str_eq(buf_str(&plain), body);
    buf_done(&plain);
    return same;
}

/* Checks what every request of the newer era must carry.  False: the error is written. */
static bool is_complete(struct mcp_exchange *x, const struct rpc *rpc)
{
    const struct mcp_request *r = x->asked;
    struct json meta = json_get(rpc->params, "_meta");
    struct str version = json_str(meta, META "protocolVersion");
    bool by_uri = str_eq(rpc->method, STR("resources/read"));
    bool named =
        by_uri || str_eq(rpc->method, STR("tools/call")) || str_eq(rpc->method, STR("prompts/get"));
    struct str name = json_str(rpc->params, by_uri ? "uri" : "name");

    if (version.p == NULL || !json_is_object(json_get(meta, META "clientCapabilities")))
        reply_error(x, rpc->id, RPC_BAD_PARAMS,
                    "_meta must have " META "protocolVersion and " META "clientCapabilities",
                    STR_NULL);
    else if (r->version.p == NULL || !str_eq(r->version, version))
        reply_error(x, rpc->id, RPC_HEADER_MISMATCH,
                    "Header mismatch: MCP-Protocol-Version is not the version in _meta", STR_NULL);
    else if (!str_eq(version, STR(MCP_STATELESS)))
        refuse_version(x, rpc, version);
    else if (!str_eq(r->method, rpc->method))
        reply_error(x, rpc->id, RPC_HEADER_MISMATCH,
                    "Header mismatch: Mcp-Method is not the method of the request", STR_NULL);
    else if (named && name.p != NULL && !name_matches(r->name, name))
        reply_error(x, rpc->id, RPC_HEADER_MISMATCH,
                    by_uri ? "Header mismatch: Mcp-Name is not params.uri"
                           : "Header mismatch: Mcp-Name is not params.name",
                    STR_NULL);
    else
        return true;
    return false;
}

enum { OLDER = 1, NEWER = 2 };
static const struct {
    const char *name;
    int eras;
    void (*reply)(struct mcp_exchange *x, const struct rpc *rpc);
} methods[] = {
    {"initialize", OLDER, do_initialize},
    {"ping", OLDER, reply_empty},
    {"tools/list", OLDER | NEWER, do_tools_list},
    {"tools/call", OLDER | NEWER, do_tools_call},
    {"resources/list", OLDER | NEWER, do_resources_list},
    {"resources/templates/list", OLDER | NEWER, do_templates_list},
    {"resources/read", OLDER | NEWER, do_resources_read},
    {"resources/subscribe", OLDER, do_subscribe},
    {"resources/unsubscribe", OLDER, do_unsubscribe},
    {"server/discover", NEWER, do_discover},
    {"subscriptions/listen", NEWER, do_listen},
};

static void dispatch(struct mcp_exchange *x, struct rpc *rpc)
{
    struct str header = x->asked->version;
    bool has_meta =
        json_type(json_get(json_get(rpc->params, "_meta"), META "protocolVersion")) != JSON_ABSENT;
    enum mcp_reply_kind kind = x->kind;
    size_t at = 0;

    while (at < ARRAY_LEN(methods) && !str_eq(rpc->method, str_of(methods[at].name)))
        at++;
    bool known = at < ARRAY_LEN(methods);
    rpc->stateless = has_meta || str_eq(header, STR(MCP_STATELESS)) ||
                     (known && methods[at].eras == NEWER && header.p == NULL);
    x->stateless |= rpc->stateless;
    x->tool_errors |= rpc->stateless;
    if (rpc->stateless && !is_complete(x, rpc)) {
        x->kind = MCP_BAD;
    } else if (!rpc->stateless && header.p != NULL && !mcp_version_has_sessions(header)) {
        refuse_version(x, rpc, header);
        x->kind = MCP_BAD;
    } else if (known && (methods[at].eras & (rpc->stateless ? NEWER : OLDER)) != 0) {
        methods[at].reply(x, rpc);
    } else {
        reply_error(x, rpc->id, RPC_NO_METHOD, "there is no such method here", STR_NULL);
        if (rpc->stateless)
            x->kind = MCP_NO_METHOD;
    }
    if (x->batch)
        x->kind = kind; /* a batch is answered as a whole */
}

/* ---- messages ---- */

static void handle_one(struct mcp_exchange *x, struct json message)
{
    struct rpc rpc = rpc_read(message);

    if (rpc.kind == RPC_BROKEN) {
        if (!x->batch)
            x->kind = MCP_BAD;
        reply_error(x, rpc.id, RPC_INVALID, rpc.why, STR_NULL);
    }
    if (rpc.kind != RPC_REQUEST)
        return; /* a notification gets no reply */
    const struct mcp_env *env = &x->m->env;
    if (x->n_requests++ > 0 && env->may != NULL && !env->may(env->may_ctx, &x->who))
        reply_error(x, rpc.id, RPC_INTERNAL,
                    "too many requests of this key or its tenant; try again in a second", STR_NULL);
    else
        dispatch(x, &rpc);
}

static void read_message(struct mcp_exchange *x, struct str message)
{
    struct json doc;
    const struct json nobody = {0};

    if (!json_parse(x->m->parser, message, &doc)) {
        x->kind = MCP_BAD;
        reply_error(x, nobody, RPC_PARSE, "this is not JSON", STR_NULL);
    } else if (json_type(doc) != JSON_ARRAY) {
        handle_one(x, doc);
    } else if (str_eq(x->asked->version, STR(MCP_STATELESS))) {
        x->kind = MCP_BAD;
        reply_error(x, nobody, RPC_INVALID, "this version has no batches: send one message",
                    STR_NULL);
    } else if (json_count(doc) == 0 || json_count(doc) > MCP_BATCH_MAX) {
        x->kind = MCP_BAD;
        reply_error(x, nobody, RPC_INVALID, "a batch has 1 to 32 messages", STR_NULL);
    } else {
        x->batch = true;
        for (struct json_iter it = {0}; json_next(doc, &it);)
            handle_one(x, it.value);
    }
}

void mcp_handle(struct mcp *m, const struct mcp_request *r, mcp_reply_cb *done, void *ctx)
{
    struct mcp_exchange *x = exchange_new(m, r, done, ctx);

    read_message(x, r->message);
    x->asked = NULL;
    settle(x);
}

/* ---- the server ---- */

struct mcp *mcp_new(const struct mcp_env *env)
{
    struct mcp *m = xcalloc(1, sizeof *m);

    m->env = *env;
    list_init(&m->exchanges);
    listen_init(m);
    m->parser = json_parser_new();
    return m;
}

void mcp_free(struct mcp *m)
{
    if (m == NULL)
        return;
    list_each (&m->exchanges, it, nxt)
        exchange_free(list_entry(it, struct mcp_exchange, link));
    listen_done(m);
    secret_wipe(m->env.session_key, sizeof m->env.session_key);
    json_parser_free(m->parser);
    for (size_t i = 0; i < m->n_tools; i++)
        free(m->tools[i].schema);
    free(m->tools);
    free(m);
}

void mcp_add_tool(struct mcp *m, const struct mcp_tool *t, void *ctx)
{
    assert(find_tool(m, str_of(t->name)) == NULL);
    m->tools = xrealloc(m->tools, (m->n_tools + 1) * sizeof *m->tools);
    struct registered *r = &m->tools[m->n_tools++];
    *r = (struct registered){.tool = *t, .schema = xstrdup(t->input_schema), .ctx = ctx};
    r->tool.input_schema = r->schema;
}
