/* Promises of net/http_server.h: requests and answers, and what is refused. */
#include "net/server_rig.h"

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

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define T_STRICT(name) cmocka_unit_test_setup_teardown(name, setup_strict, teardown)

UNIT(net_test_http_server)
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
