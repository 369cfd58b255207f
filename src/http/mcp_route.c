/* mcp_route.c - /mcp: the protocol's streamable HTTP, over mcp/mcp.h.
 *
 *      POST    one message (or batch): its reply, as an event stream whenever that is accepted,
 *              else as JSON; 202 when there is nothing to say
 *      DELETE  ends a session
 *      GET     405: this server starts no conversation
 *
 * An event stream is one event and then over: every reply is known whole when it is sent.  A page
 * of another site may not use it (Origin), so that a name that points here by surprise opens
 * nothing. */
#include "http/v1.h"
#include "mcp/mcp.h"
#include "tenancy/keys.h"

/* ---- who may ---- */

static bool is_loopback(struct str host)
{
    return str_eq_ci(host, STR("localhost")) || str_eq(host, STR("127.0.0.1")) ||
           str_eq(host, STR("[::1]"));
}

/* "host:port" of an origin or a URL; STR_NULL: it has none. */
static struct str authority_of(struct str url)
{
    ptrdiff_t colon = str_find(url, ':');
    struct str rest = colon > 0 ? str_skip(url, (size_t)colon) : STR_NULL, authority;

    if (!str_starts(rest, STR("://")))
        return STR_NULL;
    rest = str_skip(rest, 3);
    return str_split(&rest, '/', &authority) ? authority : STR_NULL;
}

static struct str without_port(struct str authority)
{
    for (size_t i = authority.n; i > 0 && authority.p[i - 1] != ']'; i--)
        if (authority.p[i - 1] == ':')
            return str_make(authority.p, i - 1);
    return authority;
}

/* Pages of this server and of this machine may; programs send no Origin. */
static bool origin_ok(struct front *f, struct http_req *req)
{
    struct str origin = http_header(req, "Origin"), authority = authority_of(origin);

    if (origin.p == NULL)
        return true;
    if (str_is_empty(authority))
        return false; /* "null" and other inventions */
    return is_loopback(without_port(authority)) ||
           (f->public_url != NULL && str_eq_ci(authority, authority_of(str_of(f->public_url))));
}

static struct mcp_who who_of(const struct v1_who *w)
{
    return (struct mcp_who){.caller = w->caller,
                            .key_id = str_of(w->key != NULL ? w->key->id : NULL),
                            .agent = str_of(w->key != NULL ? w->key->agent : NULL),
                            .instance = str_of(w->key != NULL ? w->key->instance : NULL)};
}

bool v1_may_again(void *front, const struct mcp_who *who)
{
    struct front *f = front;
    const struct key *k = who->key_id.p != NULL ? keys_find(f->keys, who->key_id) : NULL;

    return k == NULL || keys_may_act(f->keys, k, f->v1->key_requests, f->v1->tenant_requests);
}

/* ---- POST ---- */

static void write_event(struct buf *out, struct str json)
{
    buf_add_z(out, "event: message\ndata: ");
    buf_add_str(out, json); /* our JSON is one line */
    buf_add_z(out, "\n\n");
}

static void on_reply(void *ctx, const struct mcp_reply *r)
{
    struct v1_call *c = ctx;
    struct buf body = BUF_INIT, headers = BUF_INIT;
    struct http_answer a = {.status = r->kind == MCP_ACCEPTED ? 202
                                      : r->kind == MCP_BAD    ? 400
                                                              : 200};

    if (r->session.p != NULL)
        buf_printf(&headers, "Mcp-Session-Id: %.*s\r\n", STR_FMT(r->session));
    if (c->stream && r->kind == MCP_REPLY) {
        write_event(&body, r->json);
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
    v1_call_free(c);
}

static bool session_ok(struct front *f, struct http_req *req, const struct mcp_who *who)
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

static void post(struct front *f, struct http_req *req, const struct mcp_who *who)
{
    struct str accept = http_header(req, "Accept");
    bool stream = str_contains(accept, STR("text/event-stream"));

    if (!stream && accept.p != NULL && !str_contains(accept, STR("application/json")) &&
        !str_contains(accept, STR("*/*")) && !str_contains(accept, STR("application/*"))) {
        http_answer_error(f->server, http_req_id(req), 406, "not_acceptable",
                          "Replies are application/json or text/event-stream; accept one of them.");
        return;
    }
    struct v1_call *c = v1_call_new(f, http_req_id(req));
    c->stream = stream; /* a client that goes is told nothing, and what it asked for is done */
    struct mcp_exchange *x = mcp_handle(f->mcp, who, http_body(req), on_reply, c);
    (void)x;
}

static void handle(struct front *f, struct http_req *req)
{
    struct v1_who admitted;
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
    if (!v1_admit(f, req, &admitted))
        return;
    struct mcp_who who = who_of(&admitted);
    if (!session_ok(f, req, &who))
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
