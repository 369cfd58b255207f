/* Promises of net/ws.h. */
#include "net/net_test.h"

#include "net/http_server.h"
#include "net/ws.h"
#include "net/ws_codec.h"

static const char upgrade[] = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                              "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct ws *ws; /* the one accepted last; NULL once closed */
    int closed, closed_code, pongs, drained, refused, messages;
    uint32_t pong;
    bool echo;
    bool send_in_closed;
    struct buf data; /* owned; what on_data got since the last message end */
};

static void on_data(void *ctx, struct str bytes, bool end)
{
    struct fixture *f = ctx;

    assert_int_equal(f->closed, 0);
    buf_add_str(&f->data, bytes);
    if (!end)
        return;
    f->messages++;
    if (f->echo) {
        struct buf *out = ws_send_begin(f->ws);
        buf_add_str(out, buf_str(&f->data));
        ws_send_end(f->ws);
    }
    buf_reset(&f->data);
}

static void on_pong(void *ctx, uint32_t number)
{
    struct fixture *f = ctx;
    f->pongs++;
    f->pong = number;
}

static void on_closed(void *ctx, int code)
{
    struct fixture *f = ctx;

    f->closed++;
    f->closed_code = code;
    assert_true(ws_is_closing(f->ws));
    ws_send(f->ws, STR("into the void")); /* harmless, all of them */
    buf_add_z(ws_send_begin(f->ws), "nobody hears it");
    ws_send_end(f->ws);
    ws_ping(f->ws, 1);
    ws_close(f->ws, 1000, NULL);
    f->ws = NULL;
}

static void on_drained(void *ctx)
{
    struct fixture *f = ctx;
    f->drained++;
}

static const struct ws_handlers handlers = {.max_message = 100000,
                                            .max_queued = 400000,
                                            .on_data = on_data,
                                            .on_pong = on_pong,
                                            .on_closed = on_closed,
                                            .on_drained = on_drained};

static void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;

    if (!str_eq(http_path(r), STR("/ws"))) {
        http_answer(f->server, http_req_id(r), &(struct http_answer){.status = 404});
        return;
    }
    f->ws = ws_accept(f->server, r, &handlers, f);
    f->refused += f->ws == NULL;
    if (f->ws != NULL)
        ws_send(f->ws, STR("welcome"));
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256];

    f->loop = loop_new();
    f->server = http_server_new(f->loop, NULL, handler, f);
    f->echo = true;
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_server_free(f->server);
    assert_null(f->ws); /* its owner was told */
    loop_free(f->loop);
    buf_done(&f->data);
    free(f);
    return 0;
}

static struct raw open_ws(struct fixture *f)
{
    struct raw r = raw_connect(f->loop, http_server_port(f->server));

    raw_send_z(&r, upgrade);
    assert_true(raw_wait(&r, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                             "\x81\x07welcome"));
    raw_forget(&r);
    return r;
}

static void send_frame(struct raw *r, enum ws_op op, bool fin, struct str payload)
{
    static const uint8_t mask[4] = {9, 8, 7, 6};
    struct buf out = BUF_INIT;

    ws_frame_head(&out, op, fin, payload.n, mask);
    size_t at = out.n;
    buf_add_str(&out, payload);
    ws_mask(out.p + at, payload.n, mask, 0);
    raw_send(r, buf_str(&out));
    buf_done(&out);
}

static void messages_of_every_size_are_echoed(void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 127, 1000, 65535, 65536, 100000};
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        size_t n = sizes[i], head_n = n < 126 ? 2 : n < 65536 ? 4 : 10;
        char *payload = xmalloc(n + 1);
        struct buf want = BUF_INIT;
        for (size_t k = 0; k < n; k++)
            payload[k] = (char)('a' + k % 23);
        raw_forget(&r);
        send_frame(&r, WS_TEXT, true, str_make(payload, n));
        assert_true(raw_wait_bytes(&r, head_n + n));
        ws_frame_head(&want, WS_TEXT, true, n, NULL);
        buf_add(&want, payload, n);
        assert_int_equal(r.got.n, want.n);
        assert_memory_equal(r.got.p, want.p, want.n);
        buf_done(&want);
        free(payload);
    }
    raw_close(&r);
}

static void frames_right_behind_the_upgrade_are_not_lost(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, http_server_port(f->server));
    struct buf all = BUF_INIT;

    buf_add_z(&all, upgrade);
    buf_add(&all, "\x81\x85\0\0\0\0early", 11);
    raw_send(&r, buf_str(&all));
    assert_true(raw_wait(&r, "\x81\x05"
                             "early"));
    buf_done(&all);
    raw_close(&r);
}

static void fragments_and_pings_between_them_are_understood(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    send_frame(&r, WS_TEXT, false, STR("half "));
    send_frame(&r, WS_PING, true, STR("hey"));
    assert_true(raw_wait(&r, "\x8a\x03hey"));
    send_frame(&r, WS_CONT, true, STR("and half"));
    assert_true(raw_wait(&r, "\x81\x0dhalf and half"));
    raw_close(&r);
}

static void many_frames_of_one_turn_all_arrive(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    for (int i = 0; i < 1000; i++)
        ws_send(f->ws, STR("tick"));
    assert_int_equal(ws_queued(f->ws), 6000);
    assert_true(raw_wait_bytes(&r, 6000));
    assert_int_equal(ws_queued(f->ws), 0);
    raw_close(&r);
}

static void our_ping_comes_back_with_its_number(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    ws_ping(f->ws, 4711);
    assert_true(raw_wait_bytes(&r, 10));
    assert_memory_equal(r.got.p, "\x89\x08", 2);
    send_frame(&r, WS_PONG, true, STR("a foreign one"));
    send_frame(&r, WS_PONG, true, STR("8 bytes!"));
    send_frame(&r, WS_PONG, true, STR(""));
    loop_turns(f->loop, 5);
    assert_int_equal(f->pongs, 0);
    send_frame(&r, WS_PONG, true, str_make(r.got.p + 2, 8));
    assert_true(loop_until(f->loop, &f->pongs));
    assert_int_equal(f->pong, 4711);
    raw_close(&r);
}

static void a_close_by_the_peer_is_echoed_and_reported(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    send_frame(&r, WS_CLOSE, true,
               STR("\x0f\xa1"
                   "bye"));
    assert_true(raw_wait(&r, "\x88\x02\x0f\xa1"));
    assert_true(raw_wait_eof(&r));
    assert_int_equal(f->closed, 1);
    assert_int_equal(f->closed_code, 4001);
    raw_close(&r);
}

static void the_last_words_of_a_peer_that_died_are_read(void **state)
{
    struct fixture *f = *state;
    static const struct linger reset = {.l_onoff = 1};
    static char long_text[450000]; /* so long that it is sent before the loop looks for input */
    struct raw r = open_ws(f);

    memset(long_text, 'x', sizeof long_text);
    f->echo = false;
    assert_int_equal(send(r.fd, "\x81\x83\0\0\0\0ack", 9, MSG_NOSIGNAL), 9);
    setsockopt(r.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    raw_close(&r);
    ws_send(f->ws, str_make(long_text, sizeof long_text));
    assert_int_equal(ws_queued(f->ws), 0);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->messages, 1);
    assert_int_equal(http_server_connections(f->server), 0);
}

static void our_close_waits_for_the_answer(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    ws_send(f->ws, STR("last"));
    ws_close(f->ws, 4003, "go away");
    ws_close(f->ws, 4004, "again");
    ws_send(f->ws, STR("not sent"));
    assert_true(ws_is_closing(f->ws));
    assert_int_equal(f->closed, 0);
    assert_true(raw_wait(&r, "\x81\x04last\x88\x09\x0f\xa3go away"));
    send_frame(&r, WS_TEXT, true, STR("dropped"));
    loop_turns(f->loop, 5);
    assert_int_equal(f->messages, 0);
    assert_int_equal(f->closed, 0);
    send_frame(&r, WS_CLOSE, true, STR("\x0f\xa3"));
    assert_true(raw_wait_eof(&r));
    assert_int_equal(f->closed_code, 4003);
    assert_false(raw_has(&r, "not sent"));
    assert_int_equal(http_server_connections(f->server), 0);
    raw_close(&r);
}

static void a_long_reason_is_cut_between_characters(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);
    char reason[200];

    for (size_t i = 0; i + 3 < sizeof reason; i += 3)
        memcpy(reason + i, "\xe2\x82\xac", 4); /* the euro sign */
    ws_close(f->ws, 4000, reason);
    assert_true(raw_wait_bytes(&r, 4 + 123));
    assert_memory_equal(r.got.p, "\x88\x7d\x0f\xa0", 4);
    assert_true(utf8_valid(str_make(r.got.p + 4, 123)));
    raw_forget(&r);
    raw_close(&r);
}

static void a_peer_that_is_always_behind_is_served_on(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);
    char *block = xcalloc(1, 50000), bytes[50004];
    size_t read_n = 0;

    while (ws_queued(f->ws) < 200000) { /* fill the socket */
        ws_send(f->ws, str_make(block, 50000));
        loop_turn(f->loop, 0);
    }
    for (int i = 0; i < 20000 && read_n < (30u << 20); i++) {
        ssize_t n = recv(r.fd, bytes, sizeof bytes, 0);
        read_n += n > 0 ? (size_t)n : 0;
        if (ws_queued(f->ws) < 200000)
            ws_send(f->ws, str_make(block, 50000));
        loop_turn(f->loop, 0);
    }
    assert_true(read_n >= (30u << 20));
    assert_false(ws_is_closing(f->ws));
    raw_close(&r);
    free(block);
}

static void a_peer_that_ignores_our_close_is_cut(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);
    int64_t start = test_now_ms();

    ws_close(f->ws, 1001, NULL);
    assert_true(raw_wait_eof(&r));
    assert_in_range(test_now_ms() - start, 4500, 7900);
    assert_int_equal(f->closed_code, 1001);
    raw_close(&r);
}

static void a_peer_that_vanishes_is_1006(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    raw_close(&r);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->closed_code, 1006);
    assert_int_equal(f->closed, 1);
}

static void violations_close_with_their_code(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    raw_send(&r, STR("\x81\x05plain"));
    assert_true(raw_wait(&r, "\x88\x14\x03\xea"
                             "protocol violation"));
    assert_true(raw_wait_eof(&r));
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->closed_code, 1002);
}

static void a_message_over_the_limit_closes_with_1009(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);
    char *big = xcalloc(1, 100001);

    send_frame(&r, WS_BINARY, true, str_make(big, 100001));
    assert_true(raw_wait(&r, "\x88\x14\x03\xf1"));
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->closed_code, 1009);
    free(big);
}

static void a_peer_that_does_not_read_is_closed_with_1008(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);
    char *block = xcalloc(1, 50000);
    int sent = 0;

    while (!ws_is_closing(f->ws) && sent < 1000) {
        ws_send(f->ws, str_make(block, 50000));
        sent++;
    }
    assert_true(sent > 8 && sent < 1000);
    assert_int_equal(f->closed, 0);
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->closed_code, 1008);
    free(block);
}

static void a_queue_that_drains_is_reported(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);
    char *block = xcalloc(1, 50000);

    for (int i = 0; i < 1000 && ws_queued(f->ws) < 300000; i++) {
        ws_send(f->ws, str_make(block, 50000));
        if (i > 4)
            loop_turn(f->loop, 0);
    }
    assert_false(ws_is_closing(f->ws));
    assert_true(ws_queued(f->ws) >= 300000);
    f->drained = 0;
    for (int i = 0; i < 1000 && f->drained == 0; i++) {
        raw_poll(&r);
        loop_turn(f->loop, 1);
    }
    assert_int_equal(f->drained, 1);
    assert_true(ws_queued(f->ws) <= 200000);
    raw_close(&r);
    free(block);
}

static void incorrect_upgrades_get_400(void **state)
{
    static const char *const bad[] = {
        "GET /ws HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        "POST /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
        "Upgrade\r\nContent-Length: 0\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct raw r = raw_connect(f->loop, http_server_port(f->server));
        raw_send_z(&r, bad[i]);
        assert_true(raw_wait(&r, "HTTP/1.1 400 "));
        assert_true(raw_wait(&r, "\"code\":\"bad_upgrade\""));
        raw_close(&r);
    }
    assert_int_equal(f->refused, ARRAY_LEN(bad));
}

static void the_connection_survives_a_declined_upgrade(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, http_server_port(f->server));

    raw_send_z(&r,
               "GET /other HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
               "GET /other HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n");
    assert_true(raw_wait(&r, "Content-Length: 0\r\n\r\nHTTP/1.1 404 "));
    raw_close(&r);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(net_test_ws)
{
    const struct CMUnitTest tests[] = {
        T(messages_of_every_size_are_echoed),
        T(frames_right_behind_the_upgrade_are_not_lost),
        T(fragments_and_pings_between_them_are_understood),
        T(many_frames_of_one_turn_all_arrive),
        T(our_ping_comes_back_with_its_number),
        T(a_close_by_the_peer_is_echoed_and_reported),
        T(the_last_words_of_a_peer_that_died_are_read),
        T(our_close_waits_for_the_answer),
        T(a_long_reason_is_cut_between_characters),
        T(a_peer_that_is_always_behind_is_served_on),
        T(a_peer_that_ignores_our_close_is_cut),
        T(a_peer_that_vanishes_is_1006),
        T(violations_close_with_their_code),
        T(a_message_over_the_limit_closes_with_1009),
        T(a_peer_that_does_not_read_is_closed_with_1008),
        T(a_queue_that_drains_is_reported),
        T(incorrect_upgrades_get_400),
        T(the_connection_survives_a_declined_upgrade),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
