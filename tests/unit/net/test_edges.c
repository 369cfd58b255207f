/* Promises of net/edges.h: a server with two threads for its connections, clients at them. */
#include "net/signed_hook.h"

#include "base/limits.h"
#include "net/edges.h"
#include "net/http_server.h"
#include "net/trunk.h"
#include "net/ws.h"
#include "net/ws_codec.h"

enum { EDGES = 2, BIG = 2 << 20, CLIENTS = 24, ALLOWED = 30 };

#define ID "b00000000000000000000000001"

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct ledger *ledger;
    struct http_signer *signer;
    struct ws *ws;
    struct http_id stream;
    struct buf lines;
    int acked, ws_closed, stream_closed, calls, said;
    uint64_t body_n;
    char *big; /* owned */
};

static void on_line(void *ctx, struct str bytes, bool end)
{
    struct fixture *f = ctx;

    buf_add_str(&f->lines, bytes);
    f->said++;
}

static void on_ack(void *ctx, struct str id)
{
    struct fixture *f = ctx;

    assert_true(str_eq(id, STR(ID)));
    f->acked++;
}

static void on_ws_closed(void *ctx, int code)
{
    struct fixture *f = ctx;

    f->ws_closed = code;
    f->ws = NULL;
}

static const struct ws_handlers ws_handlers = {.max_message = 1 << 20,
                                               .max_queued = 8 << 20,
                                               .on_data = on_line,
                                               .on_ack = on_ack,
                                               .on_closed = on_ws_closed};

static void on_stream_closed(void *ctx, struct http_id id)
{
    ++((struct fixture *)ctx)->stream_closed;
}

static void on_piece(void *ctx, struct http_id id, struct str bytes)
{
    struct fixture *f = ctx;

    f->body_n += bytes.n;
    if (f->body_n % 7 == 0) { /* now and then it cannot keep up */
        http_body_pause(f->server, id);
        http_body_resume(f->server, id);
    }
}

static void on_end(void *ctx, struct http_id id)
{
    struct fixture *f = ctx;
    char said[64];

    snprintf(said, sizeof said, "taken=%llu.", (unsigned long long)f->body_n);
    http_answer(f->server, id, &(struct http_answer){.status = 200, .body = str_of(said)});
}

static void on_gone(void *ctx, struct http_id id)
{
}

static void on_head(void *ctx, struct http_req *r)
{
    static const struct http_sink sink = {16 << 20, on_piece, on_end, on_gone};

    if (str_eq(http_path(r), STR("/sink")))
        http_take_body(r, &sink, ctx);
}

static void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;
    struct http_id id = http_req_id(r);
    BUF_LOCAL said = BUF_INIT;

    f->calls++;
    if (str_eq(http_path(r), STR("/gateway"))) {
        f->ws = ws_accept(f->server, r, &ws_handlers, f);
    } else if (str_eq(http_path(r), STR("/stream"))) {
        f->stream = id;
        http_stream_begin(f->server, id, &(struct http_answer){.status = 200}, 1 << 20,
                          on_stream_closed, f);
    } else if (str_eq(http_path(r), STR("/big"))) {
        http_answer(f->server, id,
                    &(struct http_answer){.status = 200, .body = str_make(f->big, BIG)});
    } else {
        buf_printf(&said, "peer=%.*s body=%zu %s.", STR_FMT(http_peer(r)), http_body(r).n,
                   hook_seals[http_seal_of(r, f->signer)]);
        http_answer(f->server, id, &(struct http_answer){.status = 200, .body = buf_str(&said)});
    }
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256] = "";

    f->loop = loop_new();
    f->server = http_server_new(f->loop, NULL, handler, f);
    struct limit_settings limits = limit_defaults;
    limits.of[LIMIT_CONNECTIONS].each = ALLOWED;
    f->ledger = ledger_new(&limits);
    http_server_count(f->server, f->ledger);
    http_server_on_head(f->server, on_head);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    assert_int_equal(http_server_start_edges(f->server, EDGES, why), BH_OK);
    assert_int_equal(http_server_edges(f->server), EDGES);
    f->big = xmalloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        f->big[i] = (char)('a' + i % 23);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_signer_free(f->signer);
    http_server_free(f->server);
    assert_null(f->ws);
    assert_int_equal(ledger_parties(f->ledger), 0);
    ledger_free(f->ledger);
    loop_free(f->loop);
    buf_done(&f->lines);
    free(f->big);
    free(f);
    return 0;
}

static struct raw come(struct fixture *f)
{
    return raw_connect(f->loop, http_server_port(f->server));
}

static void many_clients_are_answered_in_their_order(void **state)
{
    struct fixture *f = *state;
    struct raw r[CLIENTS];

    for (int i = 0; i < CLIENTS; i++)
        r[i] = come(f);
    for (int k = 1; k <= 3; k++)
        for (int i = 0; i < CLIENTS; i++) {
            BUF_LOCAL two = BUF_INIT; /* requests in one piece */
            buf_printf(&two,
                       "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%.*s"
                       "GET /x HTTP/1.1\r\nHost: x\r\n\r\n",
                       k, k, "abc");
            raw_send(&r[i], buf_str(&two));
        }
    for (int i = 0; i < CLIENTS; i++) {
        const char *at;
        assert_true(raw_wait(&r[i], "body=3 unchecked."));
        raw_send_z(&r[i], "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_true(raw_wait_eof(&r[i]));
        at = buf_z(&r[i].got);
        for (int k = 1; k <= 6; k++) {
            char want[32];
            snprintf(want, sizeof want, "peer=127.0.0.1 body=%d", k % 2 != 0 ? (k + 1) / 2 : 0);
            at = strstr(at, "peer=");
            assert_non_null(at);
            assert_memory_equal(at, want, strlen(want));
            at++;
        }
        raw_close(&r[i]);
    }
}

static void long_bodies_pass_in_both_directions(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);
    BUF_LOCAL head = BUF_INIT;

    buf_printf(&head, "POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", BIG);
    raw_send(&r, buf_str(&head));
    raw_send(&r, str_make(f->big, BIG));
    assert_true(raw_wait(&r, "taken=2097152."));
    raw_forget(&r);
    raw_send_z(&r, "POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
    assert_true(raw_wait(&r, "taken=2097154."));
    raw_forget(&r);
    raw_send_z(&r, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "\r\n\r\n"));
    size_t at = 0;
    while (memcmp(r.got.p + at, "\r\n\r\n", 4) != 0)
        at++;
    assert_true(raw_wait_bytes(&r, at + 4 + BIG));
    assert_memory_equal(r.got.p + at + 4, f->big, BIG);
    raw_close(&r);
}

static void what_is_malformed_never_reaches_the_heart(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);

    raw_send_z(&r, "GET /x HTTP/1.1\r\nHost : x\r\n\r\n");
    assert_true(raw_wait(&r, "400 Bad Request"));
    raw_close(&r);
    assert_int_equal(f->calls, 0);
}

static void send_text(struct raw *r, struct str payload)
{
    static const uint8_t mask[4] = {9, 8, 7, 6};
    BUF_LOCAL out = BUF_INIT;

    ws_frame_head(&out, WS_TEXT, true, payload.n, mask);
    size_t at = out.n;
    buf_add_str(&out, payload);
    ws_mask(out.p + at, payload.n, mask, 0);
    raw_send(r, buf_str(&out));
}

static struct raw come_as_gateway(struct fixture *f)
{
    struct raw r = come(f);

    raw_send_z(&r, "GET /gateway HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                   "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    assert_true(raw_wait(&r, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"));
    raw_forget(&r);
    return r;
}

static void acks_are_recognised_and_the_rest_is_passed_on(void **state)
{
    struct fixture *f = *state;
    struct raw r = come_as_gateway(f);

    send_text(&r, STR("{\"type\":\"inbound_ack\",\"bufferId\":\"" ID "\"}\nother\n"));
    assert_true(loop_until(f->loop, &f->said));
    assert_int_equal(f->acked, 1);
    assert_true(str_eq(buf_str(&f->lines), STR("other\n")));
    assert_false(ws_is_remote(f->ws)); /* it ends with this process */
    ws_send(f->ws, STR("hello\n"));
    assert_true(raw_wait(&r, "\x81\x06hello\n"));
    ws_close(f->ws, 1012, "");
    assert_true(raw_wait(&r, "\x03\xf4"));
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->ws_closed));
    assert_int_equal(f->ws_closed, 1012);
}

static void a_stream_ends_when_its_client_has_gone(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);

    raw_send_z(&r, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "\r\n\r\n"));
    assert_true(http_stream_write(f->server, f->stream, STR("first news")));
    assert_true(raw_wait(&r, "first news"));
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->stream_closed));
}

static void signatures_are_verified_by_the_edges(void **state)
{
    struct fixture *f = *state;
    uint8_t raw[HTTP_SIGNER_BYTES], sig[64];
    struct raw r = come(f);

    hook_key(raw, sig);
    f->signer = http_signer_new(f->server, STR("/hook"), raw);
    raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "body=0 unchecked.")); /* the edge knows the key before this answer */
    raw_forget(&r);
    hook_send(&r, "/hook", sig);
    assert_true(raw_wait(&r, "body=5 signed."));
    hook_send(&r, "/other", sig);
    assert_true(raw_wait(&r, "body=5 unchecked.")); /* nobody is known to sign there */
    sig[3] ^= 1;
    hook_send(&r, "/hook", sig);
    assert_true(raw_wait(&r, "body=5 forged."));
    struct http_signer *second = http_signer_new(f->server, STR("/hook"), sig); /* some key */
    raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "body=0 unchecked."));
    raw_forget(&r);
    sig[3] ^= 1;
    hook_send(&r, "/hook", sig);
    assert_true(raw_wait(&r, "body=5 signed.")); /* by one of two */
    raw_forget(&r);
    http_signer_free(second);
    http_signer_free(f->signer);
    f->signer = NULL;
    hook_send(&r, "/hook", sig);
    assert_true(raw_wait(&r, "body=5 unchecked."));
    raw_close(&r);
}

static void names_change_at_all_edges(void **state)
{
    struct fixture *f = *state;

    http_server_answer_to(f->server, (const char *const[]){"here.example", NULL});
    for (int i = 0; i < 6; i++) {
        struct raw r = come(f);
        raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: there.example\r\n\r\n");
        assert_true(raw_wait(&r, "421 Misdirected"));
        raw_close(&r);
    }
    struct raw r = come(f);
    raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: here.example\r\n\r\n");
    assert_true(raw_wait(&r, "200 OK"));
    raw_close(&r);
}

/* Whichever edges its connections came to. */
static void an_address_has_so_many_connections_at_all_edges_together(void **state)
{
    struct fixture *f = *state;
    struct raw r[ALLOWED], more;

    for (int i = 0; i < ALLOWED; i++) {
        r[i] = come(f);
        raw_send_z(&r[i], "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(raw_wait(&r[i], "200 OK"));
    }
    assert_int_equal(ledger_held(f->ledger, NULL, LIMIT_CONNECTIONS), ALLOWED);
    for (int i = 0; i < 4; i++) {
        more = come(f);
        assert_true(raw_wait(&more, "503 Service Unavailable"));
        raw_close(&more);
    }
    assert_int_equal(ledger_refused(f->ledger, LIMIT_CONNECTIONS), 4);
    for (int i = 0; i < ALLOWED; i++)
        raw_close(&r[i]);
    for (int i = 0; i < 500 && ledger_held(f->ledger, NULL, LIMIT_CONNECTIONS) > 0; i++)
        loop_turn(f->loop, 2);
    more = come(f);
    raw_send_z(&more, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&more, "200 OK"));
    raw_close(&more);
}

static void unfinished_bodies_of_an_address_are_counted(void **state)
{
    struct fixture *f = *state;
    struct limit_settings s = limit_defaults;
    struct raw r[2];

    s.of[LIMIT_REQUEST_BYTES].each = 400 * 1024;
    ledger_set(f->ledger, &s);
    for (int i = 0; i < 2; i++) {
        r[i] = come(f);
        raw_send_z(&r[i], "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
        raw_send(&r[i], str_make(f->big, 250000));
    }
    for (int i = 0; i < 500 && ledger_refused(f->ledger, LIMIT_REQUEST_BYTES) == 0; i++)
        loop_turn(f->loop, 2);
    assert_int_equal(ledger_refused(f->ledger, LIMIT_REQUEST_BYTES), 1);
    assert_true(ledger_held(f->ledger, NULL, LIMIT_REQUEST_BYTES) <= 400 * 1024);
    for (int i = 0; i < 2; i++)
        raw_close(&r[i]);
}

static void wait_until_held(struct fixture *f, bool something)
{
    uint64_t held = 0;

    for (int i = 0; i < 500; i++) {
        held = ledger_held(f->ledger, NULL, LIMIT_REQUEST_BYTES);
        if (held >= 9000 && held < 40000 && something)
            return;
        if (held == 0 && !something)
            return;
        loop_turn(f->loop, 2);
    }
    fail_msg("%llu bytes are held", (unsigned long long)held);
}

static void unfinished_lines_are_counted_where_they_are_held(void **state)
{
    struct fixture *f = *state;
    struct raw r = come_as_gateway(f);

    send_text(&r, str_make(f->big, 9000));
    wait_until_held(f, true);
    assert_int_equal(f->said, 0);
    send_text(&r, STR("\n"));
    assert_true(loop_until(f->loop, &f->said));
    wait_until_held(f, false);
    send_text(&r, str_make(f->big, 9000));
    wait_until_held(f, true);
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->ws_closed));
    wait_until_held(f, false);
}

static void a_drain_ends_in_good_order(void **state)
{
    struct fixture *f = *state;
    struct raw idle = come(f), busy = come(f);

    raw_send_z(&idle, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&idle, "peer="));
    raw_send_z(&busy, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&busy, "\r\n\r\n"));
    http_server_drain(f->server);
    assert_true(raw_wait_eof(&idle));
    assert_true(http_stream_write(f->server, f->stream, STR("last news")));
    http_stream_end(f->server, f->stream);
    assert_true(raw_wait(&busy, "last news"));
    assert_true(raw_wait_eof(&busy));
    raw_close(&idle);
    raw_close(&busy);
    for (int i = 0; i < 500 && http_server_connections(f->server) > 0; i++)
        loop_turn(f->loop, 2);
    assert_int_equal(http_server_connections(f->server), 0);
}

UNIT(net_test_edges)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_clients_are_answered_in_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(long_bodies_pass_in_both_directions, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_malformed_never_reaches_the_heart, setup, teardown),
        cmocka_unit_test_setup_teardown(acks_are_recognised_and_the_rest_is_passed_on, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_stream_ends_when_its_client_has_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(signatures_are_verified_by_the_edges, setup, teardown),
        cmocka_unit_test_setup_teardown(names_change_at_all_edges, setup, teardown),
        cmocka_unit_test_setup_teardown(an_address_has_so_many_connections_at_all_edges_together,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(unfinished_bodies_of_an_address_are_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(unfinished_lines_are_counted_where_they_are_held, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_drain_ends_in_good_order, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
