/* mcp.c - design.  (mcp.h has the contract.)
 *
 * One POST body or one input line is one exchange: its messages, the unanswered calls, and the
 * replies so far.  The answer to the last call completes the exchange.  The reply is delivered at
 * the end of the turn at the earliest, because a tool may answer inside its own call.
 *
 *      mcp_handle -> OPEN (open = calls + 1 while reading) -- open == 0 --> TOLD, freed
 */
#include "mcp/mcp.h"
#include <assert.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rand.h"

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
#define SESSIONS_ENDED_MAX 4096 /* remembered deleted ids; beyond this the oldest are dropped */
enum { RANDOM_BYTES = 16, MAC_BYTES = 17, ID_CHARS = 44 };

struct ended {        /* a deleted session id */
    struct list link; /* oldest first */
    size_t n;
    char id[];
};

static const char *const versions[] = {"2024-11-05", "2025-03-26", MCP_LATEST};

struct registered {
    struct mcp_tool tool;
    char *schema; /* owned */
    void *ctx;
};

struct mcp {
    struct mcp_env env;
    struct map ended; /* id -> struct ended, owned */
    struct list ended_by_age;
    struct registered *tools; /* owned, in order of registration */
    size_t n_tools;
    struct list exchanges; /* owned */
    struct json_parser *parser;
};

struct mcp_exchange {
    struct list link; /* mcp->exchanges */
    struct mcp *m;    /* borrowed */
    struct caller who;
    char *texts;        /* owned; backs the strings of @who */
    struct list calls;  /* owned */
    size_t open;        /* unanswered calls, plus one while the messages are being read */
    struct buf replies; /* separated by commas */
    struct buf session; /* a new one */
    enum mcp_reply_kind kind;
    bool batch;
    uint8_t n_requests;
    struct timer tell;
    mcp_reply_cb *done;
    void *ctx;
};

struct mcp_call {
    struct list link;       /* exchange->calls */
    struct mcp_exchange *x; /* borrowed */
    struct buf id;          /* JSON */
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

/* ---- sessions ----
 *
 *      id = base64url(16 random bytes, 17 bytes of HMAC(session key, random, key id))
 *
 * The length is 33 bytes, a multiple of 3, so base64url has no spare bits and each id has exactly
 * one spelling. */

static void forget(struct mcp *m, struct ended *e)
{
    map_del(&m->ended, str_make(e->id, e->n));
    list_remove(&e->link);
    free(e);
}

static void sign(const struct mcp *m, const void *random, struct str key_id,
                 uint8_t ret_mac[SHA256_BYTES])
{
    struct buf text = BUF_INIT;

    buf_add(&text, random, RANDOM_BYTES);
    buf_add_str(&text, key_id);
    hmac_sha256(str_make(m->env.session_key, sizeof m->env.session_key), buf_str(&text), ret_mac);
    buf_done(&text);
}

bool mcp_session_ok(const struct mcp *m, const struct caller *who, struct str id)
{
    struct buf raw = BUF_INIT;
    uint8_t mac[SHA256_BYTES];
    bool ok = false;

    if (id.n == ID_CHARS && base64url_decode(id, &raw) && raw.n == RANDOM_BYTES + MAC_BYTES) {
        sign(m, raw.p, who->key_id, mac);
        ok = ct_equal(mac, raw.p + RANDOM_BYTES, MAC_BYTES) && map_get(&m->ended, id) == NULL;
    }
    buf_done(&raw);
    return ok;
}

void mcp_session_end(struct mcp *m, struct str id)
{
    if (map_get(&m->ended, id) != NULL)
        return;
    struct ended *e = xcalloc(1, sizeof *e + id.n);
    e->n = id.n;
    memcpy(e->id, id.p, id.n);
    map_put(&m->ended, str_make(e->id, e->n), e);
    list_append(&m->ended_by_age, &e->link);
    if (map_count(&m->ended) > SESSIONS_ENDED_MAX)
        forget(m, list_first(&m->ended_by_age, struct ended, link));
}

/* ---- exchanges ---- */

static void call_free(struct mcp_call *c)
{
    list_remove(&c->link);
    buf_done(&c->id);
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

static void on_tell(struct timer *t)
{
    struct mcp_exchange *x = container_of(t, struct mcp_exchange, tell);
    struct buf json = BUF_INIT;
    struct mcp_reply r = {.kind = x->kind};

    if (x->kind == MCP_REPLY && x->replies.n == 0)
        r.kind = MCP_ACCEPTED;
    if (r.kind != MCP_ACCEPTED) {
        buf_add_z(&json, x->batch ? "[" : "");
        buf_add_str(&json, buf_str(&x->replies));
        buf_add_z(&json, x->batch ? "]" : "");
        r.json = buf_str(&json);
    }
    if (x->session.n > 0)
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

static struct mcp_exchange *exchange_new(struct mcp *m, const struct caller *who,
                                         mcp_reply_cb *done, void *ctx)
{
    struct mcp_exchange *x = xcalloc(1, sizeof *x);

    *x = (struct mcp_exchange){.m = m, .who = *who, .open = 1, .done = done, .ctx = ctx};
    struct str *texts[] = {&x->who.tenant, &x->who.ns,       &x->who.identity, &x->who.key_id,
                           &x->who.agent,  &x->who.instance, &x->who.for_agent};
    size_t n = 1;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        n += texts[i]->n;
    char *at = x->texts = xmalloc(n);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (texts[i]->p != NULL) {
            memcpy(at, texts[i]->p, texts[i]->n);
            texts[i]->p = at;
            at += texts[i]->n;
        }
    list_init(&x->calls);
    timer_init(&x->tell, on_tell);
    list_append(&m->exchanges, &x->link);
    return x;
}

/* ---- answers of tools ---- */

const struct caller *mcp_call_who(const struct mcp_call *c)
{
    return &c->x->who;
}

void mcp_call_keep(struct mcp_call *c, void *mine, void (*drop)(void *mine))
{
    c->mine = mine;
    c->drop = drop;
}

static void call_over(struct mcp_call *c)
{
    struct mcp_exchange *x = c->x;

    call_free(c);
    settle(x);
}

void mcp_answer(struct mcp_call *c, struct str json)
{
    struct jw w = next_reply(c->x);

    rpc_reply_begin(&w, buf_str(&c->id));
    jw_kobj(&w, "result");
    jw_karr(&w, "content");
    jw_obj(&w);
    jw_kstr(&w, "type", STR("text"));
    jw_kstr(&w, "text", json);
    jw_end_obj(&w);
    jw_end_arr(&w);
    jw_kbool(&w, "isError", false);
    jw_end_obj(&w);
    jw_end_obj(&w);
    call_over(c);
}

void mcp_fail(struct mcp_call *c, const struct fault *fault)
{
    struct buf data = BUF_INIT;
    struct jw dw = jw_begin(&data), w = next_reply(c->x);

    fault_json(fault, &dw);
    rpc_error(&w, buf_str(&c->id),
              fault_http_status(fault->cls) == 400 ? RPC_BAD_PARAMS : RPC_INTERNAL,
              buf_str(&fault->message), buf_str(&data));
    buf_done(&data);
    call_over(c);
}

/* ---- methods ---- */

static void reply_error(struct mcp_exchange *x, struct json id, int code, const char *why)
{
    struct buf text = BUF_INIT;
    struct jw iw = jw_begin(&text), w;

    if (json_type(id) != JSON_ABSENT)
        jw_value(&iw, id);
    w = next_reply(x);
    rpc_error(&w, json_type(id) != JSON_ABSENT ? buf_str(&text) : STR_NULL, code, str_of(why),
              STR_NULL);
    buf_done(&text);
}

/* Begins a reply; the caller writes the result, then calls reply_end(). */
static struct jw reply_begin(struct mcp_exchange *x, struct json id)
{
    struct buf text = BUF_INIT;
    struct jw iw = jw_begin(&text), w;

    jw_value(&iw, id);
    w = next_reply(x);
    rpc_reply_begin(&w, buf_str(&text));
    jw_kobj(&w, "result");
    buf_done(&text);
    return w;
}

static void reply_end(struct jw *w)
{
    jw_end_obj(w);
    jw_end_obj(w);
}

static void do_initialize(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct mcp *m = x->m;
    uint8_t raw[RANDOM_BYTES + SHA256_BYTES];
    struct str asked = json_str(rpc->params, "protocolVersion");
    struct jw w = reply_begin(x, rpc->id);

    jw_kstr(&w, "protocolVersion", mcp_version_ok(asked) ? asked : STR(MCP_LATEST));
    jw_kraw(&w, "capabilities", STR("{\"tools\":{\"listChanged\":false}}"));
    jw_kobj(&w, "serverInfo");
    jw_kstr(&w, "name", STR("bellhop"));
    jw_kstr(&w, "version", str_of(m->env.version));
    jw_end_obj(&w);
    jw_kstr_opt(&w, "instructions", str_of(m->env.instructions));
    reply_end(&w);
    buf_reset(&x->session);
    rand_bytes(m->env.rand, raw, RANDOM_BYTES);
    sign(m, raw, x->who.key_id, raw + RANDOM_BYTES);
    base64url_add(&x->session, raw, RANDOM_BYTES + MAC_BYTES);
}

static void do_ping(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct jw w = reply_begin(x, rpc->id);

    reply_end(&w);
}

static bool is_for(const struct mcp_tool *t, const struct caller *who)
{
    return !t->for_instance || who->instance.p != NULL;
}

static void do_tools_list(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct jw w = reply_begin(x, rpc->id);

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
    reply_end(&w);
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

    if (str_is_empty(name)) {
        reply_error(x, rpc->id, RPC_BAD_PARAMS, "name must be the name of a tool");
    } else if (r == NULL) {
        reply_error(x, rpc->id, RPC_NO_METHOD, "unknown tool; tools/list has those there are");
    } else if (!is_for(&r->tool, &x->who)) {
        reply_error(
            x, rpc->id, RPC_NO_METHOD,
            "this key speaks for no instance; make one with bellhop token agent --instance");
    } else if (t != JSON_ABSENT && t != JSON_NULL && t != JSON_OBJECT) {
        reply_error(x, rpc->id, RPC_BAD_PARAMS, "arguments must be an object");
    } else {
        struct mcp_call *c = xcalloc(1, sizeof *c);
        struct jw iw = jw_begin(&c->id);
        c->x = x;
        jw_value(&iw, rpc->id);
        list_append(&x->calls, &c->link);
        x->open++;
        r->tool.call(r->ctx, &r->tool, c, args);
    }
}

static const struct {
    const char *name;
    void (*reply)(struct mcp_exchange *x, const struct rpc *rpc);
} methods[] = {
    {"initialize", do_initialize},
    {"ping", do_ping},
    {"tools/list", do_tools_list},
    {"tools/call", do_tools_call},
};

static void handle_one(struct mcp_exchange *x, struct json message)
{
    struct rpc rpc = rpc_read(message);

    if (rpc.kind == RPC_BROKEN) {
        if (!x->batch)
            x->kind = MCP_BAD;
        reply_error(x, rpc.id, RPC_INVALID, rpc.why);
    }
    if (rpc.kind != RPC_REQUEST)
        return; /* a notification gets no reply */
    const struct mcp_env *env = &x->m->env;
    if (x->n_requests++ > 0 && env->may != NULL && !env->may(env->may_ctx, &x->who)) {
        reply_error(x, rpc.id, RPC_INTERNAL,
                    "too many requests of this key or its tenant; try again in a second");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (str_eq(rpc.method, str_of(methods[i].name))) {
            methods[i].reply(x, &rpc);
            return;
        }
    reply_error(x, rpc.id, RPC_NO_METHOD, "there is no such method here");
}

static void read_message(struct mcp_exchange *x, struct str message)
{
    struct json doc;
    const struct json nobody = {0};

    if (!json_parse(x->m->parser, message, &doc)) {
        x->kind = MCP_BAD;
        reply_error(x, nobody, RPC_PARSE, "this is not JSON");
    } else if (json_type(doc) != JSON_ARRAY) {
        handle_one(x, doc);
    } else if (json_count(doc) == 0 || json_count(doc) > MCP_BATCH_MAX) {
        x->kind = MCP_BAD;
        reply_error(x, nobody, RPC_INVALID, "a batch has 1 to 32 messages");
    } else {
        x->batch = true;
        for (struct json_iter it = {0}; json_next(doc, &it);)
            handle_one(x, it.value);
    }
}

void mcp_handle(struct mcp *m, const struct caller *who, struct str message, mcp_reply_cb *done,
                void *ctx)
{
    struct mcp_exchange *x = exchange_new(m, who, done, ctx);

    read_message(x, message);
    settle(x);
}

/* ---- the server ---- */

bool mcp_version_ok(struct str version)
{
    for (size_t i = 0; i < ARRAY_LEN(versions); i++)
        if (str_eq(version, str_of(versions[i])))
            return true;
    return false;
}

struct mcp *mcp_new(const struct mcp_env *env)
{
    struct mcp *m = xcalloc(1, sizeof *m);

    m->env = *env;
    list_init(&m->ended_by_age);
    list_init(&m->exchanges);
    m->parser = json_parser_new();
    return m;
}

void mcp_free(struct mcp *m)
{
    if (m == NULL)
        return;
    list_each (&m->exchanges, it, nxt)
        exchange_free(list_entry(it, struct mcp_exchange, link));
    list_each (&m->ended_by_age, it, nxt)
        forget(m, list_entry(it, struct ended, link));
    map_done(&m->ended);
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
