/* server_rig.h - an HTTP server on a free port, and a handler that does what the path says. */
#pragma once
#include "net/net_test.h"

#include <sys/stat.h>
#include <sys/un.h>

#include "net/http_server.h"

#define RIG_UNUSED __attribute__((unused))

struct fixture {
    struct loop *loop;
    struct http_server *server;
    int port;
    int calls;             /* of the handler */
    struct http_id ids[8]; /* of the requests to /later */
    int n_ids;
    struct http_id stream;
    int stream_closed;
    size_t body_n; /* of the last request */
};

static RIG_UNUSED void on_stream_closed(void *ctx, struct http_id id)
{
    struct fixture *f = ctx;
    assert_int_equal(id.index, f->stream.index);
    f->stream_closed++;
}

static RIG_UNUSED void answer_text(struct fixture *f, struct http_id id, struct str text)
{
    http_answer(f->server, id,
                &(struct http_answer){.status = 200, .content_type = "text/plain", .body = text});
}

static RIG_UNUSED void describe(struct http_req *r, struct buf *out)
{
    struct buf q = BUF_INIT;
    struct str cookie = STR_NULL;

    buf_printf(out, "%.*s %.*s", STR_FMT(http_method(r)), STR_FMT(http_path(r)));
    if (http_query(r, "q", &q))
        buf_printf(out, " q=[%.*s]", STR_FMT(buf_str(&q)));
    if (http_cookie(r, "sid", &cookie))
        buf_printf(out, " sid=[%.*s]", STR_FMT(cookie));
    if (http_header(r, "X-Test").p != NULL)
        buf_printf(out, " x=[%.*s]", STR_FMT(http_header(r, "x-test")));
    buf_printf(out, " peer=%.*s body=[%.*s]", STR_FMT(http_peer(r)),
               http_body(r).n < 100 ? (int)http_body(r).n : 100, http_body(r).p);
    buf_done(&q);
}

static RIG_UNUSED void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;
    struct http_id id = http_req_id(r);
    struct buf out = BUF_INIT;

    f->calls++;
    f->body_n = http_body(r).n;
    if (str_eq(http_path(r), STR("/later"))) {
        f->ids[f->n_ids++ % 8] = id;
    } else if (str_eq(http_path(r), STR("/close"))) {
        http_answer(f->server, id, &(struct http_answer){.status = 200, .close = true});
    } else if (str_eq(http_path(r), STR("/huge"))) {
        static char huge[64 * 1024];
        answer_text(f, id, str_make(huge, sizeof huge));
    } else if (str_eq(http_path(r), STR("/empty"))) {
        http_answer(f->server, id, &(struct http_answer){.status = 204});
    } else if (str_eq(http_path(r), STR("/error"))) {
        http_answer_error(f->server, id, 403, "no_entry", "not \"%s\"", "you");
    } else if (str_eq(http_path(r), STR("/stream"))) {
        f->stream = id;
        http_stream_begin(f->server, id,
                          &(struct http_answer){.status = 200, .content_type = "text/event-stream"},
                          256 * 1024, on_stream_closed, f);
    } else {
        describe(r, &out);
        answer_text(f, id, buf_str(&out));
    }
    buf_done(&out);
}

static RIG_UNUSED struct fixture *open_server(const struct http_limits *limits)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256] = "";

    f->loop = loop_new();
    f->server = http_server_new(f->loop, limits, handler, f);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    f->port = http_server_port(f->server);
    assert_true(f->port > 0);
    return f;
}

static RIG_UNUSED void close_server(struct fixture *f)
{
    http_server_free(f->server);
    loop_free(f->loop);
    free(f);
}

static RIG_UNUSED int setup(void **state)
{
    *state = open_server(NULL);
    return 0;
}

static RIG_UNUSED int setup_strict(void **state)
{
    *state = open_server(
        &(struct http_limits){.head_bytes = 1024, .body_bytes = 2048, .connections = 3});
    return 0;
}

static RIG_UNUSED int setup_hasty(void **state)
{
    *state =
        open_server(&(struct http_limits){.head_ms = 300, .body_ms = 300, .keep_alive_ms = 300});
    return 0;
}

static RIG_UNUSED int teardown(void **state)
{
    close_server(*state);
    return 0;
}

/* One request on a connection of its own; the whole answer, which must be followed by a close when
 * @closes. */
static RIG_UNUSED void check_one(struct fixture *f, const char *request, const char *want,
                                 bool closes)
{
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, request);
    if (!raw_wait(&r, want))
        fail_msg("got: %s\nwanted: %s", buf_z(&r.got), want);
    if (closes)
        assert_true(raw_wait_eof(&r));
    raw_close(&r);
}
