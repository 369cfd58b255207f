/* Promises of net/ws_client.h. */
#include "net/net_test.h"

#include "net/http_server.h"
#include "net/ws.h"
#include "net/ws_client.h"
#include "net/ws_codec.h"

enum free_when { NEVER, IN_OPEN, IN_MESSAGE, IN_CLOSED };

struct fixture {
    struct loop *loop;
    struct http_server *server;
    char url[96];
    struct ws *peer;
    struct ws_client *client;
    int opened, closed, messages, code;
    enum free_when free_when;
    struct buf got, why, seen; /* owned; the last message, the reason, the request's headers */
    struct buf collected;      /* owned; the server's side */
};

/* ---- the server's side: an echo ---- */

static void peer_data(void *ctx, struct str bytes, bool end)
{
    struct fixture *f = ctx;

    buf_add_str(&f->collected, bytes);
    if (!end)
        return;
    ws_send(f->peer, buf_str(&f->collected));
    buf_reset(&f->collected);
}

static void peer_closed(void *ctx, int code)
{
    struct fixture *f = ctx;
    f->peer = NULL;
}

static const struct ws_handlers peer_handlers = {.max_message = 4 << 20,
                                                 .max_queued = 8 << 20,
                                                 .on_data = peer_data,
                                                 .on_closed = peer_closed};

static void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;

    if (str_eq(http_path(r), STR("/silent")))
        return;
    buf_printf(&f->seen, "%.*s x=[%.*s]", STR_FMT(http_path(r)), STR_FMT(http_header(r, "x-test")));
    if (!str_eq(http_path(r), STR("/ws"))) {
        http_answer(f->server, http_req_id(r), &(struct http_answer){.status = 403});
        return;
    }
    f->peer = ws_accept(f->server, r, &peer_handlers, f);
}

/* ---- the client's side ---- */

static void drop(struct fixture *f)
{
    ws_client_free(f->client);
    f->client = NULL;
}

static void on_open(void *ctx)
{
    struct fixture *f = ctx;
    f->opened++;
    if (f->free_when == IN_OPEN)
        drop(f);
}

static void on_message(void *ctx, struct str message, bool text)
{
    struct fixture *f = ctx;

    f->messages++;
    buf_reset(&f->got);
    buf_add_str(&f->got, message);
    if (f->free_when == IN_MESSAGE)
        drop(f);
}

static void on_closed(void *ctx, int code, const char *why)
{
    struct fixture *f = ctx;

    f->closed++;
    f->code = code;
    buf_reset(&f->why);
    buf_add_z(&f->why, why);
    if (f->free_when == IN_CLOSED)
        drop(f);
    f->client = NULL;
}

static const struct ws_client_handlers handlers = {on_open, on_message, on_closed};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256];

    f->loop = loop_new();
    f->server = http_server_new(f->loop, NULL, handler, f);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    ws_client_free(f->client);
    http_server_free(f->server);
    loop_free(f->loop);
    buf_done(&f->got);
    buf_done(&f->why);
    buf_done(&f->seen);
    buf_done(&f->collected);
    free(f);
    return 0;
}

static void open_client(struct fixture *f, const char *path, size_t max_message)
{
    static const char *const headers[] = {"X-Test: yes", NULL};

    snprintf(f->url, sizeof f->url, "ws://127.0.0.1:%d%s", http_server_port(f->server), path);
    f->client = ws_client_open(f->loop,
                               &(struct ws_client_options){.url = f->url,
                                                           .headers = headers,
                                                           .connect_timeout_ms = 2000,
                                                           .max_message = max_message},
                               &handlers, f);
    assert_int_equal(f->opened + f->closed, 0); /* never inside the call */
}

static void open_ready(struct fixture *f)
{
    open_client(f, "/ws?v=10&encoding=json", 0);
    assert_true(loop_until(f->loop, &f->opened));
}

static void messages_go_and_come(void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, 3000000};
    struct fixture *f = *state;

    open_ready(f);
    assert_string_equal(buf_z(&f->seen), "/ws x=[yes]");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char *text = xmalloc(sizes[i] + 1);
        for (size_t k = 0; k < sizes[i]; k++)
            text[k] = (char)('a' + k % 25);
        f->messages = 0;
        ws_client_send(f->client, str_make(text, sizes[i]));
        assert_true(loop_until(f->loop, &f->messages));
        assert_int_equal(f->got.n, sizes[i]);
        if (sizes[i] > 0)
            assert_memory_equal(f->got.p, text, sizes[i]);
        free(text);
    }
}

static void our_close_is_reported_when_the_peer_agreed(void **state)
{
    struct fixture *f = *state;

    open_ready(f);
    ws_client_close(f->client, 4000);
    ws_client_close(f->client, 4001);
    ws_client_send(f->client, STR("dropped"));
    assert_int_equal(f->closed, 0);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 4000);
    assert_null(f->client);
}

static void the_peers_close_is_reported_with_code_and_reason(void **state)
{
    struct fixture *f = *state;

    open_ready(f);
    ws_close(f->peer, 4014, "intents");
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 4014);
    assert_string_equal(buf_z(&f->why), "closed by the peer: intents");
    loop_turns(f->loop, 5);
    assert_null(f->peer); /* our echo reached it */
}

static void a_peer_that_vanishes_is_1006(void **state)
{
    struct fixture *f = *state;

    open_ready(f);
    http_server_free(f->server);
    f->server = NULL;
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 1006);
}

static void a_server_that_refuses_is_quoted(void **state)
{
    struct fixture *f = *state;

    open_client(f, "/forbidden", 0);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 0);
    assert_int_equal(f->opened, 0);
    assert_string_equal(buf_z(&f->why), "the server answered \"HTTP/1.1 403 Forbidden\"");
}

static void a_server_that_is_silent_is_given_up(void **state)
{
    struct fixture *f = *state;

    open_client(f, "/silent", 0);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 0);
    assert_string_equal(buf_z(&f->why), "the server took too long");
}

static void what_is_not_reachable_never_opens(void **state)
{
    static const char *const urls[] = {"ws://127.0.0.1:1/", "ws://name.invalid/",
                                       "http://127.0.0.1/", "ws://",
                                       "ws://a b/",         "ws://x/\r\nEvil: 1"};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        f->closed = 0;
        f->client =
            ws_client_open(f->loop, &(struct ws_client_options){.url = urls[i]}, &handlers, f);
        assert_true(loop_until(f->loop, &f->closed));
        assert_int_equal(f->code, 0);
        assert_true(f->why.n > 0);
    }
    assert_int_equal(f->opened, 0);
}

static void a_long_message_is_refused_with_1009(void **state)
{
    struct fixture *f = *state;

    open_client(f, "/ws", 1000);
    assert_true(loop_until(f->loop, &f->opened));
    char *big = xcalloc(1, 1001);
    ws_send(f->peer, str_make(big, 1001));
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 1009);
    free(big);
}

static void it_may_be_freed_inside_any_handler(void **state)
{
    struct fixture *f = *state;

    f->free_when = IN_OPEN;
    open_client(f, "/ws", 0);
    assert_true(loop_until(f->loop, &f->opened));
    assert_null(f->client);

    f->free_when = IN_MESSAGE;
    f->opened = 0;
    open_ready(f);
    for (int i = 0; i < 10; i++)
        ws_send(f->peer, STR("many at once"));
    assert_true(loop_until(f->loop, &f->messages));
    loop_turns(f->loop, 5);
    assert_int_equal(f->messages, 1);
    assert_int_equal(f->closed, 0);

    f->free_when = IN_CLOSED;
    f->opened = 0;
    open_ready(f);
    ws_client_close(f->client, 1000);
    assert_true(loop_until(f->loop, &f->closed));
    loop_turns(f->loop, 5);
    assert_int_equal(f->closed, 1);
}

static void freed_before_it_is_open_nothing_runs(void **state)
{
    struct fixture *f = *state;

    open_client(f, "/ws", 0);
    drop(f);
    open_client(f, "/ws", 0);
    loop_turn(f->loop, 1);
    drop(f);
    open_client(f, "/silent", 0);
    loop_turns(f->loop, 10);
    ws_client_close(f->client, 1000); /* on_closed follows even so */
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 0);
    assert_int_equal(f->opened, 0);
}

/* ---- a server by hand, for what ours never says ---- */

struct by_hand {
    int listener, peer;
    struct buf request; /* owned */
};

static void hand_open(struct fixture *f, struct by_hand *h)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    char bytes[4096];

    *h = (struct by_hand){.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .peer = -1};
    assert_int_equal(bind(h->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(h->listener, 4), 0);
    getsockname(h->listener, (struct sockaddr *)&a, &n);
    snprintf(f->url, sizeof f->url, "ws://127.0.0.1:%d", ntohs(a.sin_port));
    f->client = ws_client_open(f->loop, &(struct ws_client_options){.url = f->url}, &handlers, f);
    for (int i = 0; i < 1000 && !str_contains(buf_str(&h->request), STR("\r\n\r\n")); i++) {
        loop_turn(f->loop, 5);
        if (h->peer < 0)
            h->peer = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK);
        ssize_t k = h->peer >= 0 ? recv(h->peer, bytes, sizeof bytes, 0) : 0;
        if (k > 0)
            buf_add(&h->request, bytes, (size_t)k);
    }
    assert_true(str_starts(buf_str(&h->request), STR("GET / HTTP/1.1\r\nHost: 127.0.0.1:")));
}

static void hand_close(struct by_hand *h)
{
    close(h->peer);
    close(h->listener);
    buf_done(&h->request);
}

static void hand_answer(struct by_hand *h, struct buf *out)
{
    const char *key = strstr(buf_z(&h->request), "Sec-WebSocket-Key: ") + 19;
    char accept[29];

    ws_accept_key(str_make(key, 24), accept);
    buf_printf(out,
               "HTTP/1.1 101 Whatever\r\nupgrade: WebSocket\r\nConnection: upgrade\r\n"
               "SEC-WEBSOCKET-ACCEPT:%s\r\n\r\n",
               accept);
}

static void fragments_arrive_as_one_message_and_pings_are_answered(void **state)
{
    struct fixture *f = *state;
    struct by_hand h;
    struct buf out = BUF_INIT;
    char bytes[64];
    ssize_t n = -1;

    hand_open(f, &h);
    hand_answer(&h, &out);
    buf_add(&out, "\x01\x03one\x89\x02hi\x00\x03two\x80\x05three", 21);
    for (size_t i = 0; i < out.n; i++) { /* as slowly as can be */
        assert_int_equal(write(h.peer, out.p + i, 1), 1);
        loop_turn(f->loop, 2);
    }
    assert_true(loop_until(f->loop, &f->messages));
    assert_string_equal(buf_z(&f->got), "onetwothree");
    for (int i = 0; i < 100 && n < 0; i++) {
        loop_turn(f->loop, 2);
        n = recv(h.peer, bytes, sizeof bytes, 0);
    }
    assert_int_equal(n, 8);
    assert_memory_equal(bytes, "\x8a\x82", 2);
    ws_mask(bytes + 6, 2, (uint8_t *)bytes + 2, 0);
    assert_memory_equal(bytes + 6, "hi", 2);
    buf_done(&out);
    hand_close(&h);
}

static void frames_right_behind_the_answer_are_not_lost(void **state)
{
    struct fixture *f = *state;
    struct by_hand h;
    struct buf out = BUF_INIT;

    hand_open(f, &h);
    hand_answer(&h, &out);
    buf_add(&out, "\x81\x05hello\x88\x02\x03\xe8", 11);
    assert_int_equal(write(h.peer, out.p, out.n), out.n);
    assert_true(loop_until(f->loop, &f->closed));
    assert_string_equal(buf_z(&f->got), "hello");
    assert_int_equal(f->code, 1000);
    buf_done(&out);
    hand_close(&h);
}

static void a_wrong_accept_key_is_refused(void **state)
{
    struct fixture *f = *state;
    struct by_hand h;
    static const char answer[] = "HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                 "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n";

    hand_open(f, &h);
    assert_int_equal(write(h.peer, answer, sizeof answer - 1), sizeof answer - 1);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->opened, 0);
    assert_int_equal(f->code, 0);
    hand_close(&h);
}

static void a_masked_frame_from_a_server_is_a_violation(void **state)
{
    struct fixture *f = *state;
    struct by_hand h;
    struct buf out = BUF_INIT;

    hand_open(f, &h);
    hand_answer(&h, &out);
    buf_add(&out, "\x81\x81\0\0\0\0x", 7);
    assert_int_equal(write(h.peer, out.p, out.n), out.n);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 1002);
    buf_done(&out);
    hand_close(&h);
}

static void a_text_that_is_not_utf8_is_1007_and_told_to_nobody(void **state)
{
    struct fixture *f = *state;
    struct by_hand h;
    struct buf out = BUF_INIT;

    hand_open(f, &h);
    hand_answer(&h, &out);
    buf_add(&out, "\x01\x02h\xc3\x80\x01\x28", 7);
    assert_int_equal(write(h.peer, out.p, out.n), out.n);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 1007);
    assert_int_equal(f->messages, 0);
    buf_done(&out);
    hand_close(&h);
}

static void an_answer_that_does_not_agree_to_upgrade_is_refused(void **state)
{
    static const char *const wrong[][2] = {{"Connection: upgrade", "Connection: upgrades"},
                                           {"Connection: upgrade", "Connectiod: upgrade"},
                                           {" 101 ", " 1010 "},
                                           {"upgrade: WebSocket", "upgrade: h2c"}};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct by_hand h;
        struct buf out = BUF_INIT, changed = BUF_INIT;
        hand_open(f, &h);
        hand_answer(&h, &out);
        char *at = strstr(buf_z(&out), wrong[i][0]);
        buf_printf(&changed, "%.*s%s%s", (int)(at - out.p), out.p, wrong[i][1],
                   at + strlen(wrong[i][0]));
        f->closed = 0;
        assert_int_equal(write(h.peer, changed.p, changed.n), changed.n);
        assert_true(loop_until(f->loop, &f->closed));
        assert_int_equal(f->opened, 0);
        assert_int_equal(f->code, 0);
        buf_done(&out);
        buf_done(&changed);
        hand_close(&h);
    }
}

static void an_endless_answer_is_given_up(void **state)
{
    struct fixture *f = *state;
    struct by_hand h;
    char junk[4096];

    memset(junk, 'j', sizeof junk);
    hand_open(f, &h);
    for (int i = 0; i < 8; i++) {
        (void)!send(h.peer, junk, sizeof junk, MSG_NOSIGNAL);
        loop_turn(f->loop, 2);
    }
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 0);
    hand_close(&h);
}

static void without_a_descriptor_it_closes_and_tells_why(void **state)
{
    struct fixture *f = *state;
    struct rlimit was;

    test_no_descriptors(&was);
    open_client(f, "/ws", 0);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    f->closed = 0;
    open_ready(f);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(net_test_ws_client)
{
    const struct CMUnitTest tests[] = {
        T(messages_go_and_come),
        T(our_close_is_reported_when_the_peer_agreed),
        T(the_peers_close_is_reported_with_code_and_reason),
        T(a_peer_that_vanishes_is_1006),
        T(a_server_that_refuses_is_quoted),
        T(a_server_that_is_silent_is_given_up),
        T(what_is_not_reachable_never_opens),
        T(a_long_message_is_refused_with_1009),
        T(it_may_be_freed_inside_any_handler),
        T(freed_before_it_is_open_nothing_runs),
        T(fragments_arrive_as_one_message_and_pings_are_answered),
        T(frames_right_behind_the_answer_are_not_lost),
        T(a_wrong_accept_key_is_refused),
        T(a_masked_frame_from_a_server_is_a_violation),
        T(a_text_that_is_not_utf8_is_1007_and_told_to_nobody),
        T(an_answer_that_does_not_agree_to_upgrade_is_refused),
        T(an_endless_answer_is_given_up),
        T(without_a_descriptor_it_closes_and_tells_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
