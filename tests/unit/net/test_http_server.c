/* Promises of net/http_server.h. */
#include "net/net_test.h"

#include <sys/stat.h>
#include <sys/un.h>

#include "net/http_server.h"

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

static void on_stream_closed(void *ctx, struct http_id id)
{
    struct fixture *f = ctx;
    assert_int_equal(id.index, f->stream.index);
    f->stream_closed++;
}

static void answer_text(struct fixture *f, struct http_id id, struct str text)
{
    http_answer(f->server, id,
                &(struct http_answer){.status = 200, .content_type = "text/plain", .body = text});
}

static void describe(struct http_req *r, struct buf *out)
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

static void handler(void *ctx, struct http_req *r)
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

static struct fixture *open_server(const struct http_limits *limits)
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

static void close_server(struct fixture *f)
{
    http_server_free(f->server);
    loop_free(f->loop);
    free(f);
}

static int setup(void **state)
{
    *state = open_server(NULL);
    return 0;
}

static int setup_strict(void **state)
{
    *state = open_server(
        &(struct http_limits){.head_bytes = 1024, .body_bytes = 2048, .connections = 3});
    return 0;
}

static int setup_hasty(void **state)
{
    *state =
        open_server(&(struct http_limits){.head_ms = 300, .body_ms = 300, .keep_alive_ms = 300});
    return 0;
}

static int teardown(void **state)
{
    close_server(*state);
    return 0;
}

/* One request on a connection of its own; the whole answer, which must be followed by a close when
 * @closes. */
static void check_one(struct fixture *f, const char *request, const char *want, bool closes)
{
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, request);
    if (!raw_wait(&r, want))
        fail_msg("got: %s\nwanted: %s", buf_z(&r.got), want);
    if (closes)
        assert_true(raw_wait_eof(&r));
    raw_close(&r);
}

static void a_connection_serves_many_requests(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    for (int i = 0; i < 20; i++) {
        raw_forget(&r);
        raw_send_z(&r, "POST /a/b?q=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
        assert_true(raw_wait(&r, "POST /a/b q=[1] peer=127.0.0.1 body=[hello]"));
        assert_true(raw_has(&r, "HTTP/1.1 200 OK\r\nDate: "));
        assert_true(raw_has(&r, "GMT\r\nContent-Type: text/plain\r\nContent-Length: 43\r\n\r\n"));
    }
    assert_int_equal(http_server_connections(f->server), 1);
    raw_close(&r);
    loop_turns(f->loop, 5);
    assert_int_equal(http_server_connections(f->server), 0);
}

static void a_request_may_arrive_byte_by_byte(void **state)
{
    static const char request[] = "POST /slow?q=%41+b%zz HTTP/1.1\r\nHost: x\r\nX-Test:  v  \r\n"
                                  "Cookie: a=b; sid=\"s1\"; c\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "3;ext=1\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    for (size_t i = 0; i + 1 < sizeof request; i++) {
        assert_int_equal(f->calls, 0);
        raw_send(&r, str_make(request + i, 1));
        loop_turns(f->loop, 2);
    }
    assert_true(raw_wait(&r, "POST /slow q=[A b%zz] sid=[s1] x=[v] peer=127.0.0.1 "
                             "body=[abc0123456789]"));
    raw_close(&r);
}

static void requests_split_anywhere_give_the_same_answer(void **state)
{
    static const char two[] = "POST /one HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                              "chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
                              "POST /two HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nxyz";
    struct fixture *f = *state;

    for (size_t cut = 1; cut + 1 < sizeof two; cut++) {
        struct raw r = raw_connect(f->loop, f->port);
        raw_send(&r, str_make(two, cut));
        loop_turns(f->loop, 2);
        raw_send(&r, str_make(two + cut, sizeof two - 1 - cut));
        assert_true(raw_wait(&r, "POST /one peer=127.0.0.1 body=[abc]"));
        assert_true(raw_wait(&r, "POST /two peer=127.0.0.1 body=[xyz]"));
        raw_close(&r);
    }
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    const char *at;
    char want[48];

    for (int i = 0; i < 50; i++) {
        snprintf(want, sizeof want, "GET /p%02d HTTP/1.1\r\nHost: x\r\n\r\n", i);
        raw_send_z(&r, want);
    }
    assert_true(raw_wait(&r, "GET /p49 "));
    at = buf_z(&r.got);
    for (int i = 0; i < 50; i++) {
        snprintf(want, sizeof want, "GET /p%02d ", i);
        at = strstr(at, want);
        assert_non_null(at);
    }
    raw_close(&r);
}

static void a_pipelined_request_waits_for_the_answer_before_it(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(
        &r, "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\nGET /la");
    loop_turns(f->loop, 5);
    raw_send_z(&r, "st HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    assert_int_equal(f->calls, 1);
    answer_text(f, f->ids[0], STR("first"));
    assert_int_equal(f->calls, 1); /* never inside the call */
    assert_true(raw_wait(&r, "GET /last"));
    assert_true(strstr(buf_z(&r.got), "first") < strstr(buf_z(&r.got), "GET /next"));
    raw_close(&r);
}

static void a_flood_of_pipelined_requests_is_read_only_as_fast_as_it_is_fetched(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct buf flood = BUF_INIT;
    int wanted = 40000;

    for (int i = 0; i < wanted; i++)
        buf_add_str(&flood, STR("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n"));
    for (size_t at = 0, quiet = 0; at < flood.n && quiet < 50;) {
        ssize_t n = send(r.fd, flood.p + at, flood.n - at, MSG_NOSIGNAL);
        quiet = n > 0 ? 0 : quiet + 1;
        at += n > 0 ? (size_t)n : 0;
        loop_turn(f->loop, 1);
    }
    loop_turns(f->loop, 20);
    assert_true(f->calls < wanted); /* nobody reads: the rest waits in the kernel */
    raw_close(&r);
    buf_done(&flood);
}

static void requests_that_waited_for_a_slow_reader_are_answered_when_it_reads(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    int wanted = 300;
    int64_t until;

    for (int i = 0; i < wanted; i++) {
        (void)!send(r.fd, "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n", 31, MSG_NOSIGNAL);
        loop_turn(f->loop, 0);
    }
    loop_turns(f->loop, 20);
    assert_true(f->calls < wanted);
    until = test_now_ms() + 5000;
    while (f->calls < wanted && test_now_ms() < until) {
        raw_poll(&r);
        buf_reset(&r.got);
        loop_turn(f->loop, 1);
    }
    assert_int_equal(f->calls, wanted);
    raw_close(&r);
}

static void head_gets_the_length_and_no_body(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "HEAD /x HTTP/1.1\r\nHost: x\r\n\r\nGET /y HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "GET /y"));
    assert_true(raw_has(&r, "Content-Length: 30\r\n\r\nHTTP/1.1 200"));
    raw_close(&r);
}

static void status_204_has_neither_body_nor_length(void **state)
{
    check_one(*state, "GET /empty HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
              "GMT\r\nConnection: close\r\n\r\n", true);
}

static void expect_100_continue_is_answered_before_the_body(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r,
               "PUT /big HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_true(raw_wait(&r, "HTTP/1.1 100 Continue\r\n\r\n"));
    assert_int_equal(f->calls, 0);
    raw_send_z(&r, "body");
    assert_true(raw_wait(&r, "PUT /big peer=127.0.0.1 body=[body]"));
    raw_close(&r);
}

static void http_1_0_closes_unless_it_asks(void **state)
{
    check_one(*state, "GET /old HTTP/1.0\r\n\r\n", "Connection: close\r\n\r\nGET /old", true);
    check_one(*state, "GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
              "Connection: keep-alive\r\n\r\nGET /old", false);
}

static void a_handler_may_close(void **state)
{
    check_one(*state, "GET /close HTTP/1.1\r\nHost: x\r\n\r\n", "Connection: close\r\n\r\n", true);
    check_one(*state, "GET /error HTTP/1.1\r\nHost: x\r\n\r\n",
              "\r\n\r\n{\"error\":\"not \\\"you\\\"\",\"code\":\"no_entry\"}", false);
}

static void an_absolute_url_gives_its_path(void **state)
{
    check_one(*state, "GET http://Example.org/a?q=b HTTP/1.1\r\nHost: example.org\r\n\r\n",
              "GET /a q=[b] ", false);
}

static void requests_that_smuggle_are_refused(void **state)
{
    static const struct {
        const char *what, *request, *want;
    } table[] = {
        {"length and encoding",
         "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: "
         "chunked\r\n\r\n0\r\n\r\n",
         "400 "},
        {"encoding and length",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: "
         "3\r\n\r\n0\r\n\r\n",
         "400 "},
        {"two lengths",
         "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
         "400 "},
        {"a list of lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc",
         "400 "},
        {"a negative length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400 "},
        {"a length with a plus", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
         "400 "},
        {"two encodings",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
         "chunked\r\n\r\n",
         "400 "},
        {"an encoding before there were any",
         "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 "},
        {"an unknown encoding",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "501 "},
        {"an encoding spelt oddly",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n", "501 "},
        {"a space before the colon", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
         "400 "},
        {"a folded line", "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n", "400 "},
        {"a folded empty line", "GET / HTTP/1.1\r\nHost: x\r\nX-A:\r\n\tc\r\n\r\n", "400 "},
        {"a bare line feed", "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\nX-B: c\r\n\r\n", "400 "},
        {"a head ended by line feeds", "GET / HTTP/1.1\n\n", "400 "},
        {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400 "},
        {"a vertical tab for a space",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\vchunked\r\n\r\n0\r\n\r\n", "400 "},
        {"a form feed after a value", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\f\r\n\r\na",
         "400 "},
        {"a bare carriage return", "GET / HTTP/1.1\r\nHost: x\r\nX-A: b\rX-B: c\r\n\r\n", "400 "},
        {"two spaces before the target", "GET  /a HTTP/1.1\r\nHost: x\r\n\r\n", "400 "},
        {"a tab in the target", "GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n", "400 "},
        {"a bad chunk size",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "400 "},
        {"an endless chunk size",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
         "400 "},
        {"a chunk longer than it says",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
         "400 "},
        {"a chunk size ended by a line feed",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
         "400 "},
        {"a huge chunk",
         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\na",
         "413 "},
        {"an unknown method", "BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n", "501 "},
        {"a tunnel", "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", "501 "},
        {"another protocol", "\x16\x03\x01\x02\x00\x01", "400 "},
        {"another version", "GET / HTTP/3.7\r\nHost: x\r\n\r\n", "505 "},
        {"an unknown expectation",
         "POST / HTTP/1.1\r\nHost: x\r\nExpect: a-tip\r\nContent-Length: 1\r\n\r\n", "400 "},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char want[32];
        print_message("  %s\n", table[i].what);
        snprintf(want, sizeof want, "HTTP/1.1 %s", table[i].want);
        check_one(f, table[i].request, want, true);
    }
    assert_int_equal(f->calls, 0);
}

static void a_nul_in_a_header_is_refused(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send(&r, STR("GET / HTTP/1.1\r\nHost: x\r\nX-A: b\0c\r\n\r\n"));
    assert_true(raw_wait(&r, "HTTP/1.1 400 "));
    raw_close(&r);
}

static void long_heads_and_bodies_are_refused(void **state)
{
    struct fixture *f = *state;
    struct buf req = BUF_INIT;

    buf_add_z(&req, "GET / HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 100; i++)
        buf_add_z(&req, "X-Long: 0123456789\r\n");
    check_one(f, buf_z(&req), "HTTP/1.1 431 ", true); /* not even ended */
    buf_add_z(&req, "\r\n");
    check_one(f, buf_z(&req), "HTTP/1.1 431 ", true);
    buf_reset(&req);
    check_one(f, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2049\r\n\r\n", "HTTP/1.1 413 ",
              true);
    buf_add_z(&req, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        buf_add_z(&req, "400\r\n");
        memset(buf_room(&req, 1024), 'x', 1024);
        req.n += 1024;
        buf_add_z(&req, "\r\n");
    }
    check_one(f, buf_z(&req), "HTTP/1.1 413 ", true);
    assert_int_equal(f->calls, 0);
    buf_done(&req);
}

static void too_many_header_fields_are_refused(void **state)
{
    struct fixture *f = *state;
    struct buf req = BUF_INIT;

    buf_add_z(&req, "GET / HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 101; i++)
        buf_add_z(&req, "X:\r\n");
    buf_add_z(&req, "\r\n");
    check_one(f, buf_z(&req), "HTTP/1.1 431 ", true);
    buf_done(&req);
}

static void a_large_upload_refused_midway_still_gets_its_answer(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    char *junk = xcalloc(1, 1 << 20);

    raw_send_z(&r, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n");
    raw_send(&r, str_make(junk, 1 << 20));
    assert_true(raw_wait(&r, "HTTP/1.1 413 "));
    raw_close(&r);
    free(junk);
}

static void a_large_body_arrives_whole(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    char *body = xmalloc(1 << 20);

    memset(body, 'b', 1 << 20);
    raw_send_z(&r, "POST /large HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n");
    raw_send(&r, str_make(body, 1 << 20));
    assert_true(raw_wait(&r, "POST /large"));
    assert_int_equal(f->body_n, 1 << 20);
    raw_close(&r);
    free(body);
}

static void slow_requests_are_cut_off(void **state)
{
    struct fixture *f = *state;
    struct raw silent = raw_connect(f->loop, f->port);
    struct raw head = raw_connect(f->loop, f->port);
    struct raw body = raw_connect(f->loop, f->port);

    raw_send_z(&head, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    raw_send_z(&body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    for (int i = 0; i < 80 && !head.eof; i++) { /* drops do not help */
        raw_send_z(&head, "x");
        raw_send_z(&body, i < 5 ? "x" : "");
        loop_turn(f->loop, 10);
        raw_poll(&head);
        raw_poll(&body);
    }
    assert_true(raw_wait(&head, "HTTP/1.1 408 "));
    assert_true(raw_wait(&body, "HTTP/1.1 408 "));
    assert_true(raw_wait_eof(&silent));
    assert_int_equal(silent.got.n, 0);
    assert_int_equal(f->calls, 0);
    raw_close(&silent);
    raw_close(&head);
    raw_close(&body);
}

static void an_idle_connection_is_closed_silently(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "GET / "));
    raw_forget(&r);
    assert_true(raw_wait_eof(&r));
    assert_int_equal(r.got.n, 0);
    raw_close(&r);
}

static void connections_past_the_limit_get_503(void **state)
{
    struct fixture *f = *state;
    struct raw r[4];

    for (int i = 0; i < 4; i++)
        r[i] = raw_connect(f->loop, f->port);
    assert_true(raw_wait(&r[3], "HTTP/1.1 503 "));
    assert_true(raw_has(&r[3], "Content-Length: 52\r\n"));
    assert_true(raw_wait_eof(&r[3]));
    for (int i = 0; i < 4; i++)
        raw_close(&r[i]);
}

static void an_answer_after_the_client_has_gone_is_harmless(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct raw next;

    raw_send_z(&r, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    assert_int_equal(f->n_ids, 1);
    raw_close(&r);
    loop_turns(f->loop, 5);
    answer_text(f, f->ids[0], STR("too late"));
    loop_turns(f->loop, 5);
    assert_int_equal(http_server_connections(f->server), 0);

    next = raw_connect(f->loop, f->port); /* takes the same slot */
    raw_send_z(&next, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    answer_text(f, f->ids[0], STR("for the other one"));
    answer_text(f, f->ids[1], STR("for this one"));
    answer_text(f, f->ids[1], STR("again"));
    assert_true(raw_wait(&next, "for this one"));
    loop_turns(f->loop, 3);
    raw_poll(&next);
    assert_false(raw_has(&next, "other"));
    assert_false(raw_has(&next, "again"));
    raw_close(&next);
}

static void a_client_that_closes_its_half_still_gets_the_answer(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(r.fd, SHUT_WR);
    loop_turns(f->loop, 5);
    answer_text(f, f->ids[0], STR("here you are"));
    assert_true(raw_wait(&r, "here you are"));
    assert_true(raw_wait_eof(&r));
    raw_close(&r);
}

static void a_stream_goes_on_until_it_is_ended(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "Transfer-Encoding: chunked\r\n\r\n"));
    assert_true(http_stream_write(f->server, f->stream, STR("data: one\n\n")));
    assert_true(http_stream_write(f->server, f->stream, STR("data: seventeen..\n\n")));
    assert_true(raw_wait(&r, "\r\n\r\nb\r\ndata: one\n\n\r\n13\r\ndata: seventeen..\n\n\r\n"));
    http_stream_end(f->server, f->stream);
    assert_false(http_stream_write(f->server, f->stream, STR("x")));
    assert_true(raw_wait(&r, "\r\n0\r\n\r\n"));
    raw_send_z(&r, "GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "GET /again"));
    assert_int_equal(f->stream_closed, 0);
    raw_close(&r);
}

static void a_stream_tells_when_its_client_has_gone(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET /stream HTTP/1.0\r\n\r\n");
    assert_true(raw_wait(&r, "Connection: close\r\n\r\n"));
    http_stream_write(f->server, f->stream, STR("plain"));
    assert_true(raw_wait(&r, "\r\n\r\nplain"));
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->stream_closed));
    assert_false(http_stream_write(f->server, f->stream, STR("x")));
    loop_turns(f->loop, 3);
    assert_int_equal(f->stream_closed, 1);
}

static void a_stream_nobody_reads_is_cut(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    char *block = xcalloc(1, 65536);
    int writes = 0;

    raw_send_z(&r, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "\r\n\r\n"));
    while (writes < 1000 && http_stream_write(f->server, f->stream, str_make(block, 65536)))
        writes++;
    assert_true(writes > 2 && writes < 1000);
    assert_int_equal(f->stream_closed, 0); /* not inside the call */
    assert_true(loop_until(f->loop, &f->stream_closed));
    raw_close(&r);
    free(block);
}

static void a_stream_ended_after_it_was_cut_is_told_nothing(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    char *block = xcalloc(1, 65536);

    raw_send_z(&r, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "\r\n\r\n"));
    while (http_stream_write(f->server, f->stream, str_make(block, 65536)))
        ;
    http_stream_end(f->server, f->stream); /* its owner may free itself now */
    loop_turns(f->loop, 5);
    assert_int_equal(f->stream_closed, 0);
    raw_close(&r);
    free(block);
}

static void a_stream_begun_too_late_is_told_so(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    f->stream = f->ids[0];
    answer_text(f, f->ids[0], STR("done"));
    http_stream_begin(f->server, f->ids[0], &(struct http_answer){.status = 200}, 100,
                      on_stream_closed, f);
    assert_int_equal(f->stream_closed, 0);
    assert_true(loop_until(f->loop, &f->stream_closed));
    raw_close(&r);
}

static void drain_finishes_what_is_being_answered(void **state)
{
    struct fixture *f = *state;
    struct raw idle = raw_connect(f->loop, f->port), busy = raw_connect(f->loop, f->port);

    raw_send_z(&busy, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    assert_int_equal(http_server_connections(f->server), 2);
    http_server_drain(f->server);
    assert_true(raw_wait_eof(&idle));
    answer_text(f, f->ids[0], STR("last words"));
    assert_true(raw_wait(&busy, "Connection: close\r\n\r\nlast words"));
    assert_true(raw_wait_eof(&busy));
    loop_turns(f->loop, 3);
    assert_int_equal(http_server_connections(f->server), 0);
    raw_close(&idle);
    raw_close(&busy);
}

static void a_taken_port_is_explained(void **state)
{
    struct fixture *f = *state;
    char where[64], why[256] = "", want[64];

    snprintf(where, sizeof where, "127.0.0.1:%d", f->port);
    snprintf(want, sizeof want, "port %d is in use: ", f->port);
    assert_int_equal(http_server_listen(f->server, str_of(where), NULL, 0, why), BH_BUSY);
    assert_memory_equal(why, want, strlen(want));
    static const char *const bad[] = {
        "",      "7077",        ":7077",      "127.0.0.1:", "127.0.0.1:99999",
        "unix:", "127.0.0.1:x", "192.0.2.1:1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        why[0] = '\0';
        assert_int_equal(http_server_listen(f->server, str_of(bad[i]), NULL, 0, why), BH_REFUSED);
        assert_true(strlen(why) > 10);
    }
}

static struct raw unix_connect(struct fixture *f, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct raw r = {.loop = f->loop, .fd = socket(AF_UNIX, SOCK_STREAM, 0)};

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(connect(r.fd, (struct sockaddr *)&a, sizeof a), 0);
    fcntl(r.fd, F_SETFL, O_NONBLOCK);
    return r;
}

static void a_unix_socket_replaces_a_stale_file_only(void **state)
{
    struct fixture *f = *state, *other = open_server(NULL);
    char dir[] = "/tmp/bellhop-net-XXXXXX", path[64], where[80], why[256] = "";
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    struct raw r;
    int stale = socket(AF_UNIX, SOCK_STREAM, 0), plain;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/sock", dir);
    snprintf(where, sizeof where, "unix:%s", path);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(bind(stale, (struct sockaddr *)&a, sizeof a), 0);
    close(stale);
    assert_int_equal(http_server_listen(f->server, str_of(where), NULL, 0600, why), BH_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    r = unix_connect(f, path);
    raw_send_z(&r, "GET /u HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "GET /u peer=unix"));
    raw_close(&r);
    assert_int_equal(http_server_listen(other->server, str_of(where), NULL, 0600, why), BH_REFUSED);
    http_server_drain(f->server);
    assert_int_not_equal(stat(path, &st), 0);
    plain = open(path, O_CREAT | O_WRONLY, 0600);
    close(plain);
    assert_int_equal(http_server_listen(other->server, str_of(where), NULL, 0600, why), BH_REFUSED);
    assert_int_equal(stat(path, &st), 0);
    unlink(path);
    rmdir(dir);
    close_server(other);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define T_STRICT(name) cmocka_unit_test_setup_teardown(name, setup_strict, teardown)
#define T_HASTY(name) cmocka_unit_test_setup_teardown(name, setup_hasty, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_connection_serves_many_requests),
        T(a_request_may_arrive_byte_by_byte),
        T(requests_split_anywhere_give_the_same_answer),
        T(pipelined_requests_are_answered_in_order),
        T(a_pipelined_request_waits_for_the_answer_before_it),
        T(a_flood_of_pipelined_requests_is_read_only_as_fast_as_it_is_fetched),
        T(requests_that_waited_for_a_slow_reader_are_answered_when_it_reads),
        T(head_gets_the_length_and_no_body),
        T(status_204_has_neither_body_nor_length),
        T(expect_100_continue_is_answered_before_the_body),
        T(http_1_0_closes_unless_it_asks),
        T(a_handler_may_close),
        T(an_absolute_url_gives_its_path),
        T(requests_that_smuggle_are_refused),
        T(a_nul_in_a_header_is_refused),
        T_STRICT(long_heads_and_bodies_are_refused),
        T(too_many_header_fields_are_refused),
        T(a_large_upload_refused_midway_still_gets_its_answer),
        T(a_large_body_arrives_whole),
        T_HASTY(slow_requests_are_cut_off),
        T_HASTY(an_idle_connection_is_closed_silently),
        T_STRICT(connections_past_the_limit_get_503),
        T(an_answer_after_the_client_has_gone_is_harmless),
        T(a_client_that_closes_its_half_still_gets_the_answer),
        T(a_stream_goes_on_until_it_is_ended),
        T(a_stream_tells_when_its_client_has_gone),
        T(a_stream_nobody_reads_is_cut),
        T(a_stream_ended_after_it_was_cut_is_told_nothing),
        T(a_stream_begun_too_late_is_told_so),
        T(drain_finishes_what_is_being_answered),
        T(a_taken_port_is_explained),
        T(a_unix_socket_replaces_a_stale_file_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
