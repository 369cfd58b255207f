/* mcp_route.c - /mcp: the protocol's streamable HTTP over mcp/mcp.h, and the operations as tools.
 *
 *      POST    one message (or batch): the reply is an event stream if the client accepts one,
 *              else JSON; 202 when there is no reply
 *      DELETE  ends a session
 *      GET     405: this server sends no messages of its own
 *
 * An event stream has exactly one event, because every reply is complete when it is sent.  Pages of
 * other sites are refused by their Origin, as a defence against DNS rebinding. */
#include "base/arena.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "http/v1.h"
#include "mcp/mcp.h"
#include "skills/skills.h"

/* ---- origins ---- */

/* The "host:port" of an origin or a URL; STR_NULL: none. */
static struct str authority_of(struct str url)
{
    ptrdiff_t colon = str_find(url, ':');
    struct str rest = colon > 0 ? str_skip(url, (size_t)colon) : STR_NULL, authority;

    if (!str_starts(rest, STR("://")))
        return STR_NULL;
    rest = str_skip(rest, 3);
    return str_split(&rest, '/', &authority) ? authority : STR_NULL;
}

/* Pages of this server and of this machine are allowed, and programs, which send no Origin. */
static bool origin_ok(struct front *f, struct http_req *req)
{
    struct str origin = http_header(req, "Origin"), authority = authority_of(origin);

    if (origin.p == NULL)
        return true;
    if (str_is_empty(authority))
        return false; /* "null", or no URL */
    struct str host = authority;
    for (size_t i = authority.n; i > 0 && authority.p[i - 1] != ']'; i--)
        if (authority.p[i - 1] == ':') {
            host.n = i - 1;
            break;
        }
    return str_eq_ci(host, STR("localhost")) || str_eq(host, STR("127.0.0.1")) ||
           str_eq(host, STR("[::1]")) ||
           (f->public_url != NULL && str_eq_ci(authority, authority_of(str_of(f->public_url))));
}

/* ---- POST ---- */

static void on_reply(void *ctx, const struct mcp_reply *r)
{
    struct op_call *c = ctx;
    struct buf body = BUF_INIT, headers = BUF_INIT;
    struct http_answer a = {.status = r->kind == MCP_ACCEPTED ? 202
                                      : r->kind == MCP_BAD    ? 400
                                                              : 200};

    if (r->session.p != NULL)
        buf_printf(&headers, "Mcp-Session-Id: %.*s\r\n", STR_FMT(r->session));
    if (c->stream && r->kind == MCP_REPLY) {
        buf_printf(&body, "event: message\ndata: %.*s\n\n", STR_FMT(r->json)); /* one line */
        a.content_type = "text/event-stream";
        buf_add_z(&headers, "Cache-Control: no-store\r\n");
    } else if (r->json.p != NULL) {
        buf_add_str(&body, r->json);
    }
    a.body = buf_str(&body);
    a.headers = headers.n > 0 ? buf_z(&headers) : NULL;
    http_answer(c->f->server, c->id, &a);
    buf_done(&body);
    buf_done(&headers);
    op_call_free(c);
}

static bool session_ok(struct front *f, struct http_req *req, const struct caller *who)
{
    struct str version = http_header(req, "MCP-Protocol-Version");
    struct str session = http_header(req, "Mcp-Session-Id");

    if (version.p != NULL && !mcp_version_ok(version)) {
        http_answer_error(f->server, http_req_id(req), 400, "unsupported_version",
                          "MCP-Protocol-Version names a version that is not spoken here.");
        return false;
    }
    if (session.p != NULL && !mcp_session_ok(f->mcp, who, session)) {
        http_answer_error(f->server, http_req_id(req), 404, "unknown_session",
                          "There is no such session; initialize a new one.");
        return false;
    }
    return true;
}

static void post(struct front *f, struct http_req *req, const struct caller *who)
{
    struct str accept = http_header(req, "Accept");
    bool stream = str_contains(accept, STR("text/event-stream"));

    if (!stream && accept.p != NULL && !str_contains(accept, STR("application/json")) &&
        !str_contains(accept, STR("*/*")) && !str_contains(accept, STR("application/*"))) {
        http_answer_error(f->server, http_req_id(req), 406, "not_acceptable",
                          "Replies are application/json or text/event-stream; accept one of them.");
        return;
    }
    struct op_call *c = op_call_new(f, NULL);
    c->id = http_req_id(req);
    c->work = f->v1_work;
    f->v1_work = (struct v1_work){0};
    c->stream = stream; /* if the client disconnects, its calls still run */
    mcp_handle(f->mcp, who, http_body(req), on_reply, c);
}

static void handle(struct front *f, struct http_req *req)
{
    struct caller who = {0};
    struct str method = http_method(req);

    if (!origin_ok(f, req)) {
        http_answer_error(f->server, http_req_id(req), 403, "forbidden_origin",
                          "Pages of other sites may not speak to this server.");
        return;
    }
    if (!str_eq(method, STR("POST")) && !str_eq(method, STR("DELETE"))) {
        http_answer(f->server, http_req_id(req),
                    &(struct http_answer){.status = 405,
                                          .headers = "Allow: POST, DELETE\r\n",
                                          .body = STR("{\"error\":\"Send messages with POST.\","
                                                      "\"code\":\"method_not_allowed\"}")});
        return;
    }
    if (!v1_admit(f, req, STR_NULL, &who) || !session_ok(f, req, &who))
        return;
    if (str_eq(method, STR("POST"))) {
        post(f, req, &who);
        return;
    }
    struct str session = http_header(req, "Mcp-Session-Id");
    if (session.p != NULL)
        mcp_session_end(f->mcp, session);
    http_answer(f->server, http_req_id(req), &(struct http_answer){.status = 204});
}

void front_mcp(struct front *f, struct http_req *req)
{
    handle(f, req);
    v1_give_work(f, &f->v1_work);
}

/* ---- operations as tools ---- */

/* The exchange of a tool call is dropped before its answer: by mcp_free(), at shutdown. */
static void on_dropped(void *mine)
{
    struct op_call *c = mine;

    skills_cancel(&c->skills);
    data_cancel(&c->data);
    dispatch_cancel(&c->dispatch);
    op_call_free(c);
}

void tool_answer(struct op_call *c, struct str json)
{
    struct buf out = BUF_INIT;

    if (c->op->tool_wraps == NULL) {
        mcp_answer(c->mcp, json);
        return;
    }
    buf_printf(&out, "{\"%s\":", c->op->tool_wraps);
    buf_add_str(&out, json);
    buf_add_c(&out, '}');
    mcp_answer(c->mcp, buf_str(&out));
    buf_done(&out);
}

static bool read_args(const struct op *op, struct json given, struct op_args *args, struct fault *f)
{
    struct json nest = op->filters != NULL ? json_get(given, op->filters) : (struct json){0};
    struct json from = json_is_object(nest) ? nest : given;

    args->tool = true;
    args->body = given;
    for (struct json_iter it = {0}; op->filters != NULL && json_next(from, &it);)
        if (!op_knows(op, it.key, args, f))
            return false;
    for (size_t i = 0; op->args != NULL && op->args[i].name != NULL; i++) {
        const char *name = op_tool_arg(&op->args[i]);
        struct json in = op->args[i].in == IN_QUERY ? from : given;
        if (name != NULL && !op_read_json(op, i, json_get(in, name), args, f))
            return false;
    }
    return op_args_complete(op, args, f);
}

static void call_tool(void *front, const struct mcp_tool *tool, struct mcp_call *mcp,
                      struct json given)
{
    const struct op *op = tool->data;
    struct arena arena = ARENA_INIT;
    struct op_args args = {.arena = &arena};
    struct fault fault = {0};

    if (!read_args(op, given, &args, &fault)) {
        mcp_fail(mcp, &fault);
    } else {
        struct op_call *c = op_call_new(front, op);
        c->mcp = mcp;
        c->caller = *mcp_call_who(mcp);
        c->args = &args;
        mcp_call_keep(mcp, c, on_dropped);
        op->run(c);
    }
    fault_done(&fault);
    arena_done(&arena);
}

void tools_add(struct mcp *m, struct front *f)
{
    struct buf schema = BUF_INIT;

    for (const struct op_family *family = op_families; family->name != NULL; family++)
        for (const struct op *op = family->ops; op->name != NULL; op++) {
            if (op->tool == NULL)
                continue;
            buf_reset(&schema);
            op_tool_schema(op, &schema);
            mcp_add_tool(m,
                         &(struct mcp_tool){.name = op->tool,
                                            .title = op->title,
                                            .description = op->tool_what,
                                            .input_schema = buf_z(&schema),
                                            .reads_only = op->reads_only,
                                            .for_instance = op->may == MAY_INSTANCE,
                                            .data = op,
                                            .call = call_tool},
                         f);
        }
    buf_done(&schema);
}
