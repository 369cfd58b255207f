/* mcp_route.c - /mcp: the protocol's streamable HTTP over mcp/mcp.h, and the operations as tools
 * and resources.
 *
 *      POST    one message (or batch): the reply is JSON, or an event stream with one event; 202
 *              when there is no reply.  subscriptions/listen: a stream that stays open
 *      GET     the stream of a session (older versions): notifications only
 *      DELETE  ends a session
 *
 * Requests of the newer versions get JSON whenever the client accepts it.  Pages of other sites are
 * refused by their Origin, as a defence against DNS rebinding. */
#include <stdlib.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "http/v1.h"
#include "mcp/mcp.h"
#include "net/loop.h"
#include "relay/relay.h"
#include "skills/skills.h"
#include "tenancy/keys.h"

#define MAX_QUEUED (64u * 1024) /* a stream this far behind is closed; the client listens again */
#define STREAM_HEADERS "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"

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

/* ---- streams ---- */

struct mcp_stream {
    struct mcp_sink sink;
    struct front *f;               /* borrowed */
    struct mcp_listener *listener; /* borrowed; NULL: the client was gone at once */
    struct http_id id;
};

static void stream_send(struct mcp_sink *sink, struct str json)
{
    struct mcp_stream *st = container_of(sink, struct mcp_stream, sink);
    struct buf out = BUF_INIT;

    if (json.p == NULL)
        buf_add_z(&out, ": still here\n\n");
    else
        buf_printf(&out, "event: message\ndata: %.*s\n\n", STR_FMT(json)); /* one line */
    http_stream_write(st->f->server, st->id, buf_str(&out)); /* if it is gone, on_closed() runs */
    buf_done(&out);
}

static void stream_end(struct mcp_sink *sink)
{
    struct mcp_stream *st = container_of(sink, struct mcp_stream, sink);

    http_stream_end(st->f->server, st->id);
    free(st);
}

static void on_closed(void *ctx, struct http_id id)
{
    struct mcp_stream *st = ctx;

    if (st->listener != NULL)
        mcp_listener_gone(st->listener, &st->sink);
    free(st);
}

/* Begins the stream of a listener with @first, the bytes of its first event. */
static void stream_begin(struct front *f, struct http_id id, struct mcp_listener *l,
                         struct str first)
{
    struct mcp_stream *st = xcalloc(1, sizeof *st);

    *st = (struct mcp_stream){{stream_send, stream_end}, f, l, id};
    http_stream_begin(f->server, id,
                      &(struct http_answer){.status = 200,
                                            .content_type = "text/event-stream",
                                            .headers = STREAM_HEADERS},
                      MAX_QUEUED, on_closed, st);
    if (http_stream_write(f->server, id, first)) {
        mcp_listener_attach(l, &st->sink);
    } else {
        st->listener = NULL; /* on_closed() runs when the turn ends */
        mcp_listener_gone(l, NULL);
    }
}

/* ---- POST ---- */

static void on_reply(void *ctx, const struct mcp_reply *r)
{
    static const int statuses[] = {
        [MCP_REPLY] = 200,     [MCP_ACCEPTED] = 202,  [MCP_BAD] = 400,
        [MCP_NO_METHOD] = 404, [MCP_LISTENING] = 200, [MCP_REVOKED] = 401};
    struct op_call *c = ctx;
    struct buf body = BUF_INIT, headers = BUF_INIT;
    struct http_answer a = {.status = statuses[r->kind]};
    bool stream = a.status == 200 && (r->stateless ? !c->takes_json : c->stream);

    if (r->kind == MCP_REVOKED)
        buf_add_z(&body, "{\"error\":\"The key of this message was revoked, or has expired.\","
                         "\"code\":\"unauthorized\"}");
    if (r->session.p != NULL)
        buf_printf(&headers, "Mcp-Session-Id: %.*s\r\n", STR_FMT(r->session));
    if (stream || r->kind == MCP_LISTENING) {
        buf_printf(&body, "event: message\ndata: %.*s\n\n", STR_FMT(r->json)); /* one line */
        a.content_type = "text/event-stream";
        buf_add_z(&headers, STREAM_HEADERS);
    } else if (r->json.p != NULL) {
        buf_add_str(&body, r->json);
    }
    a.body = buf_str(&body);
    a.headers = headers.n > 0 ? buf_z(&headers) : NULL;
    if (r->kind == MCP_LISTENING)
        stream_begin(c->f, c->id, r->listener, a.body);
    else
        http_answer(c->f->server, c->id, &a);
    buf_done(&body);
    buf_done(&headers);
    op_call_free(c);
}

static bool accepts(struct str accept, struct str type)
{
    return accept.p == NULL || str_contains(accept, type) || str_contains(accept, STR("*/*"));
}

static void post(struct front *f, struct http_req *req, const struct caller *who)
{
    struct str accept = http_header(req, "Accept");
    bool json =
        accepts(accept, STR("application/json")) || str_contains(accept, STR("application/*"));

    if (!json && !accepts(accept, STR("text/event-stream"))) {
        http_answer_error(f->server, http_req_id(req), 406, "not_acceptable",
                          "Replies are application/json or text/event-stream; accept one of them.");
        return;
    }
    struct op_call *c = op_call_new(f, NULL);
    c->id = http_req_id(req);
    c->work = f->v1_work;
    f->v1_work = (struct v1_work){0};
    c->stream = str_contains(accept, STR("text/event-stream"));
    c->takes_json = json; /* if the client disconnects, its calls still run */
    mcp_handle(f->mcp,
               &(struct mcp_request){.who = who,
                                     .message = http_body(req),
                                     .version = http_header(req, "MCP-Protocol-Version"),
                                     .method = http_header(req, "Mcp-Method"),
                                     .name = http_header(req, "Mcp-Name"),
                                     .session = http_header(req, "Mcp-Session-Id"),
                                     .takes_stream = accepts(accept, STR("text/event-stream"))},
               on_reply, c);
}

/* ---- GET, DELETE ---- */

static void get(struct front *f, struct http_req *req, const struct caller *who)
{
    struct str session = http_header(req, "Mcp-Session-Id");
    struct http_id id = http_req_id(req);

    if (who->instance.p == NULL) {
        http_answer(f->server, id,
                    &(struct http_answer){.status = 405,
                                          .headers = "Allow: POST, DELETE\r\n",
                                          .body =
                                              STR("{\"error\":\"This key acts for no instance, so "
                                                  "there is nothing to listen to.\",\"code\":"
                                                  "\"method_not_allowed\"}")});
    } else if (session.p == NULL) {
        http_answer_error(
            f->server, id, 400, "no_session",
            "The stream belongs to a session: send the Mcp-Session-Id of initialize.");
    } else if (!accepts(http_header(req, "Accept"), STR("text/event-stream"))) {
        http_answer_error(f->server, id, 406, "not_acceptable",
                          "The answer is a stream; accept text/event-stream.");
    } else {
        struct mcp_listener *l = mcp_session_listener(f->mcp, who, session);
        if (l == NULL)
            http_answer(f->server, id,
                        &(struct http_answer){.status = 429,
                                              .headers = "Retry-After: 5\r\n",
                                              .body = STR("{\"error\":\"Too many streams of this "
                                                          "key are open; close one.\",\"code\":"
                                                          "\"too_many_streams\"}")});
        else
            stream_begin(f, id, l, STR("retry: 2000\n\n"));
    }
}

static bool session_ok(struct front *f, struct http_req *req, const struct caller *who)
{
    struct str session = http_header(req, "Mcp-Session-Id");

    if (session.p == NULL || mcp_session_ok(f->mcp, who, session))
        return true;
    http_answer_error(f->server, http_req_id(req), 404, "unknown_session",
                      "There is no such session; initialize a new one.");
    return false;
}

static void handle(struct front *f, struct http_req *req)
{
    struct caller who = {0};
    struct str method = http_method(req), session = http_header(req, "Mcp-Session-Id");
    bool stateless = str_eq(http_header(req, "MCP-Protocol-Version"), STR(MCP_STATELESS));

    if (!origin_ok(f, req)) {
        http_answer_error(f->server, http_req_id(req), 403, "forbidden_origin",
                          "Pages of other sites may not speak to this server.");
        return;
    }
    bool is_post = str_eq(method, STR("POST")), is_get = str_eq(method, STR("GET"));
    if (!is_post && (stateless || (!is_get && !str_eq(method, STR("DELETE"))))) {
        http_answer(f->server, http_req_id(req),
                    &(struct http_answer){.status = 405,
                                          .headers = stateless ? "Allow: POST\r\n"
                                                               : "Allow: POST, GET, DELETE\r\n",
                                          .body = STR("{\"error\":\"Send messages with POST.\","
                                                      "\"code\":\"method_not_allowed\"}")});
        return;
    }
    if (!v1_admit(f, req, STR_NULL, &who) || (!stateless && !session_ok(f, req, &who)))
        return;
    if (is_post) {
        post(f, req, &who);
    } else if (is_get) {
        get(f, req, &who);
    } else {
        if (session.p != NULL)
            mcp_session_end(f->mcp, session);
        http_answer(f->server, http_req_id(req), &(struct http_answer){.status = 204});
    }
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

/* Runs an operation for a tool or a resource. */
static void run(struct front *f, const struct op *op, struct mcp_call *mcp,
                const struct op_args *args)
{
    struct op_call *c = op_call_new(f, op);

    c->mcp = mcp;
    c->caller = *mcp_call_who(mcp);
    c->caller.trace = mcp_call_trace(mcp);
    c->args = args;
    mcp_call_keep(mcp, c, on_dropped);
    op->run(c);
}

static void call_tool(void *front, const struct mcp_tool *tool, struct mcp_call *mcp,
                      struct json given)
{
    const struct op *op = tool->data;
    struct arena arena = ARENA_INIT;
    struct op_args args = {.arena = &arena};
    struct fault fault = {0};

    if (read_args(op, given, &args, &fault))
        run(front, op, mcp, &args);
    else
        mcp_fail(mcp, &fault);
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

/* ---- chats as resources ---- */

static void list_resources(void *front, struct mcp_call *mcp, struct str cursor)
{
    struct op_args args = {.values = {{.given = cursor.p != NULL, .text = cursor}}, .tool = true};

    run(front, &op_chat_resources, mcp, &args);
}

static void read_resource(void *front, struct mcp_call *mcp, struct str uri)
{
    struct op_args args = {.tool = true};
    struct buf platform = BUF_INIT, chat_id = BUF_INIT;

    if (str_eq(uri, STR(INBOX_URI))) {
        run(front, op_find("readChats"), mcp, &args);
    } else if (str_eq(uri, STR(CHATS_URI))) {
        run(front, op_find("listChats"), mcp, &args);
    } else if (chat_of_uri(uri, &platform, &chat_id)) {
        args.values[0] = (struct op_value){.given = true, .text = buf_str(&platform)};
        args.values[1] = (struct op_value){.given = true, .text = buf_str(&chat_id)};
        run(front, &op_chat_show, mcp, &args);
    } else {
        struct fault none = {.cls = FAULT_NOT_FOUND};
        mcp_fail(mcp, &none);
    }
    buf_done(&platform);
    buf_done(&chat_id);
}

static bool resource_exists(void *front, const struct caller *who, struct str uri)
{
    struct front *f = front;
    struct buf platform = BUF_INIT, chat_id = BUF_INIT;
    bool yes = str_eq(uri, STR(INBOX_URI)) || str_eq(uri, STR(CHATS_URI)) ||
               (chat_of_uri(uri, &platform, &chat_id) &&
                relay_has_chat(f->relay, who->tenant, who->instance, buf_str(&platform),
                               buf_str(&chat_id)));

    buf_done(&platform);
    buf_done(&chat_id);
    return yes;
}

static bool readable(void *front, struct str tenant, struct str instance)
{
    struct instance_view v;

    return chats_readable(front, tenant, instance, &v);
}

static bool key_is_good(void *front, struct str key_id)
{
    return keys_is_good(((struct front *)front)->keys, key_id);
}

static void on_mail(void *front, const struct mail_news *news)
{
    struct mcp *m = ((struct front *)front)->mcp;
    struct buf uri = BUF_INIT;

    if (!mcp_is_watched(m, news->tenant, news->instance))
        return;
    if (news->chat_id.p != NULL) {
        chat_uri(&uri, news->platform, news->chat_id);
        mcp_changed(m, news->tenant, news->instance, buf_str(&uri));
        mcp_changed(m, news->tenant, news->instance, STR(INBOX_URI));
        mcp_changed(m, news->tenant, news->instance, STR(CHATS_URI));
    } else {
        mcp_changed(m, news->tenant, news->instance, STR_NULL);
    }
    if (news->new_chat)
        mcp_list_changed(m, news->tenant, news->instance);
    buf_done(&uri);
}

static void watch(void *front, bool wanted)
{
    struct front *f = front;

    relay_watch_mail(f->relay, wanted ? on_mail : NULL, f);
}

const struct mcp_resources chat_resources = {
    .templates = "[{\"uriTemplate\":\"" CHATS_URI "/{platform}/{chat_id}\",\"name\":\"chat\","
                 "\"title\":\"One chat\",\"description\":\"The messages that wait in one chat\","
                 "\"mimeType\":\"application/json\"}]",
    .list = list_resources,
    .read = read_resource,
    .exists = resource_exists,
    .readable = readable,
    .key_is_good = key_is_good,
    .watch = watch,
};
