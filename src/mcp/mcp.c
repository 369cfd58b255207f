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
#include "base/jw.h"
#include "base/list.h"
#include "base/mem.h"
#include "mcp/envelope.h"
#include "mcp/session.h"

static const char *const versions[] = {"2024-11-05", "2025-03-26", MCP_LATEST};

struct registered {
    struct mcp_tool tool;
    char *schema; /* owned */
    void *ctx;
};

struct mcp {
    struct mcp_env env;
    struct mcp_sessions sessions;
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

void mcp_cancel(struct mcp_exchange **x)
{
    if (*x != NULL)
        exchange_free(*x);
    *x = NULL;
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

static struct str copy(char **at, struct str s)
{
    char *here = *at;

    if (s.p == NULL)
        return STR_NULL;
    memcpy(here, s.p, s.n);
    *at += s.n;
    return str_make(here, s.n);
}

static struct mcp_exchange *exchange_new(struct mcp *m, const struct caller *who,
                                         mcp_reply_cb *done, void *ctx)
{
    struct mcp_exchange *x = xcalloc(1, sizeof *x);

    *x = (struct mcp_exchange){.m = m, .who = *who, .open = 1, .done = done, .ctx = ctx};
    struct str *texts[] = {&x->who.tenant, &x->who.ns,    &x->who.identity,
                           &x->who.key_id, &x->who.agent, &x->who.instance};
    size_t n = 1;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        n += texts[i]->n;
    char *at = x->texts = xmalloc(n);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        *texts[i] = copy(&at, *texts[i]);
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
    rpc_error(&w, buf_str(&c->id), fault->cls == FAULT_INVALID ? RPC_BAD_PARAMS : RPC_INTERNAL,
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
    sessions_open(&m->sessions, m->env.rand, x->who.key_id, &x->session);
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

static void write_tool(struct jw *w, const struct mcp_tool *t)
{
    jw_obj(w);
    jw_kstr(w, "name", str_of(t->name));
    jw_kstr_opt(w, "title", str_of(t->title));
    jw_kstr(w, "description", str_of(t->description));
    jw_kraw(w, "inputSchema", str_of(t->input_schema));
    jw_kobj(w, "annotations");
    jw_kbool(w, "readOnlyHint", t->reads_only);
    jw_kbool(w, "openWorldHint", false);
    jw_end_obj(w);
    jw_end_obj(w);
}

static void do_tools_list(struct mcp_exchange *x, const struct rpc *rpc)
{
    struct jw w = reply_begin(x, rpc->id);

    jw_karr(&w, "tools");
    for (size_t i = 0; i < x->m->n_tools; i++)
        if (is_for(&x->m->tools[i].tool, &x->who))
            write_tool(&w, &x->m->tools[i].tool);
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

static bool may_go_on(struct mcp_exchange *x)
{
    const struct mcp_env *env = &x->m->env;

    return x->n_requests++ == 0 || env->may == NULL || env->may(env->may_ctx, &x->who);
}

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
    if (!may_go_on(x)) {
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

struct mcp_exchange *mcp_handle(struct mcp *m, const struct caller *who, struct str message,
                                mcp_reply_cb *done, void *ctx)
{
    struct mcp_exchange *x = exchange_new(m, who, done, ctx);

    read_message(x, message);
    settle(x);
    return x;
}

/* ---- the server ---- */

bool mcp_version_ok(struct str version)
{
    for (size_t i = 0; i < ARRAY_LEN(versions); i++)
        if (str_eq(version, str_of(versions[i])))
            return true;
    return false;
}

bool mcp_session_ok(const struct mcp *m, const struct caller *who, struct str id)
{
    return sessions_ok(&m->sessions, who->key_id, id);
}

void mcp_session_end(struct mcp *m, struct str id)
{
    sessions_end(&m->sessions, id);
}

struct mcp *mcp_new(const struct mcp_env *env)
{
    struct mcp *m = xcalloc(1, sizeof *m);

    m->env = *env;
    sessions_init(&m->sessions, env->session_key);
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
    sessions_done(&m->sessions);
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
