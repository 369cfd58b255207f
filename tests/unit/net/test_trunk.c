/* Promises of net/trunk.h: two servers on one loop, a trunk between them, clients at the edge.  The
 * second half runs over a Redis server. */
#include "net/signed_hook.h"

#include "base/limits.h"
#include "net/http_server.h"
#include "net/redis_hop.h"
#include "net/redis_server.h"
#include "net/trunk_priv.h"
#include "net/ws.h"
#include "net/ws_codec.h"

enum { BIG = 3 << 20 };

struct fixture {
    struct loop *loop;
    struct http_server *heart, *edge;
    struct trunk *trunk; /* NULL once it is lost */
    struct http_signer *signer;
    struct ws *ws;
    int up, lost, ws_closed, gone, at_edge;
    char why[200];
    uint8_t key[TRUNK_KEY_BYTES];
    struct http_id stream;
    char *big; /* owned; BIG bytes */
    uint32_t asked;
    struct buf question, answer; /* what was heard last */
    int asks, unasked, told, failed;
    int presented, acked, parted, said; /* of a gateway's socket */
    struct buf past, lines;
    bool other_version, fails;       /* the trunk fails as soon as it is up */
    struct redis_hop *north, *south; /* NULL: over TCP */
    struct http_server *listens;     /* takes trunks over @north */
    struct ledger *ledger;           /* NULL: nothing is counted */
};

#define ID "b00000000000000000000000001"

static char admin_tag[] = "admin";

static void on_ws_data(void *ctx, struct str bytes, bool end)
{
    struct fixture *f = ctx;

    if (end)
        ws_send(f->ws, bytes);
}

static void on_ws_closed(void *ctx, int code)
{
    struct fixture *f = ctx;

    f->ws_closed = code;
    f->ws = NULL;
}

static const struct ws_handlers ws_handlers = {.max_message = 1 << 20,
                                               .max_queued = 8 << 20,
                                               .on_data = on_ws_data,
                                               .on_closed = on_ws_closed};

/* ---- a gateway's socket ---- */

static void on_line(void *ctx, struct str bytes, bool end)
{
    struct fixture *f = ctx;

    f->said++;
    buf_add_str(&f->lines, bytes);
}

static void on_ack(void *ctx, struct str id)
{
    struct fixture *f = ctx;

    assert_true(str_eq(id, STR(ID)));
    f->acked++;
}

static void on_parted(void *ctx)
{
    ++((struct fixture *)ctx)->parted;
}

static const struct ws_handlers gateway_handlers = {.max_message = 1 << 20,
                                                    .max_queued = 8 << 20,
                                                    .on_data = on_line,
                                                    .on_ack = on_ack,
                                                    .on_parted = on_parted,
                                                    .on_closed = on_ws_closed};

static void on_present(void *ctx, const struct ws_past *p)
{
    struct fixture *f = ctx;

    f->presented++;
    buf_reset(&f->past);
    buf_printf(&f->past, "%.*s %.*s %zu %.*s %zu %d", STR_FMT(p->name.gateway),
               STR_FMT(p->name.rank), p->n_rows, p->n_rows > 0 ? (int)p->rows[0].id.n : 0,
               p->n_rows > 0 ? p->rows[0].id.p : "", p->n_asked, p->acked);
    f->ws = ws_resume(p, &gateway_handlers, f);
}

static void on_stream_closed(void *ctx, struct http_id id)
{
    (void)id;
    ++((struct fixture *)ctx)->gone;
}

static void heart_handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;
    struct http_id id = http_req_id(r);
    struct buf said = BUF_INIT;

    if (str_eq(http_path(r), STR("/cluster/trunk")) && f->other_version) {
        http_answer(f->heart, id, &(struct http_answer){.status = 426});
    } else if (str_eq(http_path(r), STR("/gateway"))) {
        f->ws = ws_accept(f->heart, r, &gateway_handlers, f);
    } else if (str_eq(http_path(r), STR("/cluster/trunk"))) {
        trunk_accept(f->heart, r,
                     &(struct trunk_heart){.key = f->key,
                                           .name = "north/1",
                                           .admin_tag = admin_tag});
    } else if (str_eq(http_path(r), STR("/ws"))) {
        f->ws = ws_accept(f->heart, r, &ws_handlers, f);
    } else if (str_eq(http_path(r), STR("/stream"))) {
        f->stream = id;
        http_stream_begin(f->heart, id, &(struct http_answer){.status = 200}, 1 << 20,
                          on_stream_closed, f);
    } else if (str_eq(http_path(r), STR("/big"))) {
        http_answer(f->heart, id,
                    &(struct http_answer){.status = 200, .body = str_make(f->big, BIG)});
    } else {
        buf_printf(&said, "peer=%.*s admin=%d body=%zu. %s", STR_FMT(http_peer(r)),
                   http_listener_tag(r) == admin_tag, http_body(r).n,
                   hook_seals[http_seal_of(r, f->signer)]);
        http_answer(f->heart, id, &(struct http_answer){.status = 200, .body = buf_str(&said)});
    }
    buf_done(&said);
}

static void edge_handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;

    f->at_edge++;
    http_answer(f->edge, http_req_id(r), &(struct http_answer){.status = 503, .body = STR("here")});
}

static void on_up(void *ctx)
{
    struct fixture *f = ctx;

    f->up++;
    if (f->fails)
        trunk_fail(f->trunk, "the test says so");
}

static void on_lost(void *ctx, const char *why)
{
    struct fixture *f = ctx;

    f->lost++;
    f->trunk = NULL;
    snprintf(f->why, sizeof f->why, "%s", why);
}

static void on_ask(void *ctx, uint32_t number, struct str question)
{
    struct fixture *f = ctx;

    f->asks++;
    f->asked = number;
    buf_reset(&f->question);
    buf_add_str(&f->question, question);
}

static void on_unask(void *ctx, uint32_t number)
{
    struct fixture *f = ctx;

    assert_int_equal(number, f->asked);
    f->unasked++;
}

static void on_told(void *ctx, struct str answer)
{
    struct fixture *f = ctx;

    f->told += answer.p != NULL;
    f->failed += answer.p == NULL;
    buf_reset(&f->answer);
    buf_add_str(&f->answer, answer);
}

static void dial(struct fixture *f, const uint8_t *key, const char *heart)
{
    static const struct trunk_handlers h = {on_up, on_lost, on_ask, on_unask};

    if (f->north != NULL && f->listens != f->heart) {
        trunk_listen(f->heart, f->north,
                     &(struct trunk_heart){.key = f->key,
                                           .name = "north/1",
                                           .admin_tag = admin_tag});
        f->listens = f->heart;
    }
    f->trunk = trunk_open(f->loop, f->edge,
                          &(struct trunk_dial){.host = "127.0.0.1",
                                               .port = (uint16_t)http_server_port(f->heart),
                                               .hop = f->south,
                                               .key = key,
                                               .name = "south/2",
                                               .heart = heart},
                          &h, f);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256], path[64];

    f->loop = loop_new();
    f->heart = http_server_new(f->loop, NULL, heart_handler, f);
    f->edge = http_server_new(f->loop, NULL, edge_handler, f);
    http_server_on_present(f->heart, on_present);
    http_server_on_present(f->edge, on_present);
    assert_int_equal(http_server_listen(f->heart, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    assert_int_equal(http_server_listen(f->edge, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    snprintf(path, sizeof path, "unix:/tmp/trunk-%d.sock", (int)getpid());
    assert_int_equal(http_server_listen(f->edge, str_of(path), NULL, 0600, why), BH_OK);
    http_server_set_last(f->edge, &(struct http_listener){.tag = admin_tag, .reserved = true});
    memset(f->key, 7, sizeof f->key);
    f->big = xmalloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        f->big[i] = (char)('a' + i % 23);
    *state = f;
    return 0;
}

static int setup_up(void **state)
{
    setup(state);
    struct fixture *f = *state;
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->up));
    return 0;
}

static struct redis_hop *open_hop(struct fixture *f, const char *name)
{
    char why[256] = "";
    struct redis_hop *h = redis_hop_open(f->loop,
                                         &(struct redis_hop_options){.url = redis_url,
                                                                     .key = f->key,
                                                                     .name = name,
                                                                     .protocol = TRUNK_PROTOCOL},
                                         why);

    assert_non_null(h);
    for (int i = 0; i < 3000 && *redis_hop_state(h).problem != '\0'; i++)
        loop_turn(f->loop, 10);
    assert_string_equal(redis_hop_state(h).problem, "");
    return h;
}

static int setup_redis(void **state)
{
    setup(state);
    struct fixture *f = *state;
    f->north = open_hop(f, "north/1");
    f->south = open_hop(f, "south/2");
    for (int i = 0; i < 100 && f->up == 0; i++) { /* until the heart has its inbox */
        f->lost = 0;
        dial(f, f->key, "north/1");
        while (f->up == 0 && f->lost == 0)
            loop_turn(f->loop, 10);
    }
    assert_int_equal(f->up, 1);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_signer_free(f->signer);
    trunk_free(f->trunk);
    http_server_free(f->edge);
    http_server_free(f->heart);
    redis_hop_close(f->north);
    redis_hop_close(f->south);
    assert_null(f->ws);
    ledger_free(f->ledger);
    loop_free(f->loop);
    free(f->big);
    buf_done(&f->question);
    buf_done(&f->answer);
    buf_done(&f->past);
    buf_done(&f->lines);
    free(f);
    return 0;
}

static struct raw come(struct fixture *f)
{
    return raw_connect(f->loop, http_server_port(f->edge));
}

/* Nobody is carried any more, as both sides see it. */
static void wait_for_none(struct fixture *f)
{
    for (int i = 0; i < 500; i++) {
        if (trunk_tally(f->heart).connections == 0 && trunk_connections(f->trunk) == 0)
            return;
        loop_turn(f->loop, 2);
    }
    fail_msg("%zu and %zu are left", trunk_tally(f->heart).connections,
             trunk_connections(f->trunk));
}

static void requests_are_answered_by_the_heart(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);

    for (int i = 0; i < 3; i++) { /* one connection, several requests */
        raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(raw_wait(&r, "peer=127.0.0.1 admin=0 body=0."));
        raw_forget(&r);
    }
    assert_int_equal(trunk_tally(f->heart).connections, 1);
    assert_int_equal(trunk_connections(f->trunk), 1);
    raw_close(&r);
    wait_for_none(f);
    assert_int_equal(f->at_edge, 0);
}

static void what_is_asked_of_the_process_itself_stays_there(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);

    raw_send_z(&r, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "here"));
    raw_forget(&r);
    raw_send_z(&r, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"); /* the next one is looked at anew */
    assert_true(raw_wait(&r, "peer="));
    raw_close(&r);
}

static void the_admin_socket_of_an_edge_is_the_hearts(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_storage a = {.ss_family = AF_UNIX};
    struct raw r = {.loop = f->loop, .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    char *path = (char *)&a + sizeof(sa_family_t);

    snprintf(path, 64, "/tmp/trunk-%d.sock", (int)getpid());
    assert_int_equal(connect(r.fd, (struct sockaddr *)&a,
                             (socklen_t)(sizeof(sa_family_t) + strlen(path) + 1)),
                     0);
    fcntl(r.fd, F_SETFL, O_NONBLOCK);
    raw_send_z(&r, "GET /admin/status HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "peer=unix admin=1"));
    raw_close(&r);
}

/* They do not count among the others, neither when they come nor when they go. */
static void who_came_by_the_admin_socket_of_an_edge_leaves_room(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 3; i++) { /* more of them than there are other connections at the heart */
        the_admin_socket_of_an_edge_is_the_hearts(state);
        wait_for_none(f);
    }
    struct raw r = raw_connect(f->loop, http_server_port(f->heart));
    raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "peer=127.0.0.1"));
    raw_close(&r);
}

static void long_bodies_pass_in_both_directions(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);
    struct buf head = BUF_INIT;

    buf_printf(&head, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 900000);
    raw_send(&r, buf_str(&head));
    raw_send(&r, str_make(f->big, 900000));
    assert_true(raw_wait(&r, "body=900000."));
    raw_forget(&r);
    raw_send_z(&r, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "\r\n\r\n"));
    size_t at = 0;
    while (memcmp(r.got.p + at, "\r\n\r\n", 4) != 0)
        at++;
    assert_true(raw_wait_bytes(&r, at + 4 + BIG));
    assert_memory_equal(r.got.p + at + 4, f->big, BIG);
    raw_close(&r);
    buf_done(&head);
}

/* It asks for much and reads nothing: the trunk is free for the others, and little is kept. */
static void who_does_not_read_holds_up_nobody(void **state)
{
    struct fixture *f = *state;
    struct raw slow = come(f), quick;

    for (int i = 0; i < 6; i++)
        raw_send_z(&slow, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 50);
    quick = come(f);
    raw_send_z(&quick, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&quick, "peer="));
    raw_close(&quick);
    assert_true(raw_wait_bytes(&slow, 6 * (size_t)BIG));
    raw_close(&slow);
}

static struct raw open_at(struct fixture *f, const char *path)
{
    struct raw r = come(f);

    raw_send_z(&r, "GET ");
    raw_send_z(&r, path);
    raw_send_z(&r, " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                   "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    assert_true(raw_wait(&r, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"));
    raw_forget(&r);
    return r;
}

static struct raw open_ws(struct fixture *f)
{
    return open_at(f, "/ws");
}

static void send_frame(struct raw *r, enum ws_op op, struct str payload)
{
    static const uint8_t mask[4] = {9, 8, 7, 6};
    struct buf out = BUF_INIT;

    ws_frame_head(&out, op, true, payload.n, mask);
    size_t at = out.n;
    buf_add_str(&out, payload);
    ws_mask(out.p + at, payload.n, mask, 0);
    raw_send(r, buf_str(&out));
    buf_done(&out);
}

static void send_text(struct raw *r, struct str payload)
{
    send_frame(r, WS_TEXT, payload);
}

static void who_does_not_read_is_closed_in_the_end(void **state)
{
    struct fixture *f = *state;
    char why[256];

    http_server_free(f->heart);
    f->heart =
        http_server_new(f->loop, &(struct http_limits){.keep_alive_ms = 300}, heart_handler, f);
    assert_int_equal(http_server_listen(f->heart, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->up));
    struct raw r = come(f), idle = come(f);
    raw_send_z(&idle, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&idle, "peer=127.0.0.1"));
    for (int i = 0; i < 6; i++) /* more than the kernel takes */
        raw_send_z(&r, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 2000 && trunk_tally(f->heart).connections > 1; i++)
        loop_turn(f->loop, 2);
    assert_int_equal(trunk_tally(f->heart).connections, 1);
    raw_forget(&idle);
    raw_send_z(&idle, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&idle, "peer=127.0.0.1")); /* who has read everything may be silent */
    raw_close(&idle);
    raw_close(&r);
    wait_for_none(f);
}

static void a_websocket_is_carried(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    send_text(&r, STR("good morning"));
    assert_true(raw_wait(&r, "\x81\x0cgood morning"));
    raw_close(&r); /* the client vanishes */
    assert_true(loop_until(f->loop, &f->ws_closed));
}

static void leaving_closes_websockets_with_1012(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    trunk_leave(f->trunk);
    assert_true(raw_wait(&r, "\x03\xf4")); /* 1012 */
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
    assert_true(http_stream_write(f->heart, f->stream, STR("first news")));
    assert_true(raw_wait(&r, "first news"));
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->gone));
}

static void a_lost_trunk_takes_its_connections_along(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f), later;

    http_server_free(f->heart);
    f->heart = NULL;
    assert_int_equal(f->ws_closed, 1006);
    assert_true(loop_until(f->loop, &f->lost));
    assert_true(raw_wait_eof(&r));
    raw_close(&r);
    later = come(f);
    raw_send_z(&later, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&later, "here"));
    raw_close(&later);
}

/* A gateway said hello, got one delivery, and is kept. */
static struct raw open_gateway(struct fixture *f)
{
    struct raw r = open_at(f, "/gateway");

    send_text(&r, STR("{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\"}\n"));
    assert_true(loop_until(f->loop, &f->said));
    assert_true(ws_is_remote(f->ws));
    ws_keep(f->ws, &(struct ws_name){STR("gw"), STR("t"), STR("i"), STR("0"), STR("7")});
    ws_sent(f->ws, 5, STR(ID)); /* with the last frame, of which there is none: it went before */
    struct buf *out = ws_send_begin(f->ws);
    buf_add_z(out, "delivery\n");
    ws_send_end(f->ws);
    assert_true(raw_wait(&r, "delivery\n"));
    raw_forget(&r);
    return r;
}

static void lose_trunk(struct fixture *f)
{
    trunk_free(f->trunk);
    f->trunk = NULL;
    assert_true(loop_until(f->loop, &f->ws_closed));
    assert_int_equal(f->parted, 1);
    assert_int_equal(f->ws_closed, 1006);
    f->ws_closed = 0;
}

static void a_gateways_socket_is_presented_to_the_next_heart(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_gateway(f);

    lose_trunk(f);
    send_frame(&r, WS_PING, STR("there?"));
    assert_true(raw_wait(&r, "\x8a\x06there?")); /* it is not noticed */
    send_text(&r, STR("{\"type\":\"inbound_ack\",\"bufferId\":\"" ID "\"}\nhalf a "));
    loop_turns(f->loop, 20);
    assert_int_equal(f->presented, 0);
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->acked));
    assert_string_equal(buf_z(&f->past), "gw 7 1 " ID " 0 0");
    buf_reset(&f->lines);
    send_text(&r, STR("line\n"));
    f->said = 0;
    assert_true(loop_until(f->loop, &f->said));
    assert_true(str_eq(buf_str(&f->lines), STR("half a line\n")));
    ws_send(f->ws, STR("go on\n"));
    assert_true(raw_wait(&r, "\x81\x06go on\n"));
    assert_int_equal(f->acked, 1);
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->ws_closed));
}

static void who_held_a_gateways_socket_may_be_its_next_heart(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_gateway(f);

    lose_trunk(f);
    send_text(&r, STR("{\"type\":\"inbound_ack\",\"bufferId\":\"" ID "\"}\n"));
    loop_turns(f->loop, 20);
    trunk_adopt(f->edge);
    assert_true(loop_until(f->loop, &f->presented));
    loop_turns(f->loop, 5);
    assert_string_equal(buf_z(&f->past), "gw 7 1 " ID " 0 0");
    assert_true(str_ends(buf_str(&f->lines), STR(ID "\"}\n"))); /* as bytes: there is no edge now */
    assert_false(ws_is_remote(f->ws));
    ws_send(f->ws, STR("go on\n"));
    assert_true(raw_wait(&r, "\x81\x06go on\n"));
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->ws_closed));
}

static void a_trunk_that_is_lost_at_once_leaves_the_sockets_to_the_next(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_gateway(f);

    lose_trunk(f);
    f->fails = true;
    f->lost = 0;
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->lost));
    assert_int_equal(f->presented, 0);
    f->fails = false;
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->presented));
    raw_poll(&r);
    assert_int_equal(r.got.n, 0);
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->ws_closed));
}

static void a_heart_that_goes_leaves_its_sockets_to_the_next(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_gateway(f);

    ws_park(f->ws);
    assert_true(loop_until(f->loop, &f->ws_closed));
    assert_int_equal(f->ws_closed, 1012);
    f->ws_closed = 0;
    loop_turns(f->loop, 20);
    trunk_free(f->trunk);
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->presented));
    raw_poll(&r);
    assert_int_equal(r.got.n, 0);
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->ws_closed));
}

static void a_socket_that_is_not_kept_is_told_to_come_back(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_gateway(f);

    ws_keep(f->ws, NULL);
    loop_turns(f->loop, 20);
    lose_trunk(f);
    assert_true(raw_wait(&r, "\x03\xf4")); /* 1012 */
    raw_close(&r);
}

static void connections_between_requests_outlive_the_trunk(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);

    for (int i = 0; i < 3; i++) {
        raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(raw_wait(&r, "peer=127.0.0.1"));
        raw_forget(&r);
        trunk_free(f->trunk);
        f->up = 0;
        dial(f, f->key, "north/1");
        assert_true(loop_until(f->loop, &f->up));
    }
    raw_close(&r);
}

static void chunks_are_put_together_by_the_edge(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);

    raw_send_z(&r, "POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n");
    assert_true(raw_wait(&r, "100 Continue"));
    raw_forget(&r);
    raw_send_z(&r, "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "body=11."));
    assert_true(raw_wait(&r, "body=0.")); /* the next one waited */
    raw_forget(&r);
    raw_send_z(&r, "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    assert_true(raw_wait(&r, "400 Bad Request"));
    raw_close(&r);
    wait_for_none(f);
}

static void another_version_is_refused_and_named(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, http_server_port(f->heart));

    raw_send_z(&r, "GET /cluster/trunk HTTP/1.1\r\nHost: localhost\r\n"
                   "Connection: Upgrade\r\nUpgrade: bellhop-trunk-1\r\n\r\n");
    assert_true(raw_wait(&r, "426 Upgrade Required"));
    assert_true(raw_wait(&r, "bellhop-trunk-2"));
    raw_close(&r);
    f->other_version = true;
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->lost));
    assert_non_null(strstr(f->why, "another version"));
    assert_int_equal(f->up, 0);
}

static void who_comes_while_there_is_no_trunk_waits_for_it(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f), health = come(f);

    trunk_hold(f->edge, 60000);
    raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_send_z(&health, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&health, "here")); /* who asks whether we are ready is told at once */
    loop_turns(f->loop, 20);
    raw_poll(&r);
    assert_int_equal(r.got.n, 0);
    dial(f, f->key, "north/1");
    assert_true(raw_wait(&r, "peer=127.0.0.1"));
    raw_forget(&r);
    raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "peer=127.0.0.1"));
    raw_close(&r);
    raw_close(&health);
}

static void who_waited_in_vain_is_handled_here(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f), other = come(f);

    trunk_hold(f->edge, 60000);
    raw_send_z(&other, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 20);
    trunk_hold(f->edge, 0); /* this process serves from now on */
    assert_true(raw_wait(&other, "here"));
    trunk_hold(f->edge, 100);
    raw_send_z(&r, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "here"));
    raw_close(&r);
    raw_close(&other);
}

static void a_heart_that_goes_down_answers_whom_it_has(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f), next;

    raw_send_z(&r, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "\r\n\r\n"));
    trunk_hold(f->edge, 60000);
    http_server_drain(f->heart);
    loop_turns(f->loop, 20);
    next = come(f);
    raw_send_z(&next, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 20);
    raw_poll(&next);
    assert_int_equal(next.got.n, 0); /* it waits for the next one */
    http_stream_end(f->heart, f->stream);
    assert_true(raw_wait(&r, "0\r\n\r\n"));
    trunk_hold(f->edge, 0);
    assert_true(raw_wait(&next, "here"));
    raw_close(&r);
    raw_close(&next);
}

static void an_edge_that_goes_takes_its_connections_along(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_ws(f);

    trunk_free(f->trunk);
    f->trunk = NULL;
    assert_true(raw_wait_eof(&r));
    assert_true(loop_until(f->loop, &f->ws_closed));
    assert_int_equal(trunk_tally(f->heart).trunks, 0);
    raw_close(&r);
}

static void who_does_not_know_the_key_is_refused(void **state)
{
    struct fixture *f = *state;
    uint8_t wrong[TRUNK_KEY_BYTES] = {0};

    dial(f, wrong, "north/1");
    assert_true(loop_until(f->loop, &f->lost));
    assert_int_equal(f->up, 0);
    assert_int_equal(trunk_tally(f->heart).trunks, 0);
}

static void a_heart_that_is_not_the_expected_one_is_left(void **state)
{
    struct fixture *f = *state;

    dial(f, f->key, "north/7"); /* that process held the lease, not this one */
    assert_true(loop_until(f->loop, &f->lost));
    assert_int_equal(f->up, 0);
    assert_non_null(strstr(f->why, "another process"));
}

/* Frames of a stranger, before and instead of a proof. */
static void nonsense_instead_of_a_proof_ends_it(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        /* CONNECT */
        {"\1\0\0\0\0\0\0\0\x09\0\0\0\1\0\0\0\5\1\0\0\0", 21},
        /* a batch of 16 MiB, one that is no batch of this size, the second one first */
        {"\1\0\0\0\0\0\0\0\0\0\0\1", 12},
        {"\1\0\0\0\0\0\0\0\xff\0\0\0", 12},
        {"\2\0\0\0\0\0\0\0\0\0\0\0", 12},
        /* a proof that is too short, and what is that? */
        {"\1\0\0\0\0\0\0\0\x0b\0\0\0\0\0\0\0\x23\3\0\0xyz", 23},
        {"\1\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x63\0\0\0", 20},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct raw r = raw_connect(f->loop, http_server_port(f->heart));
        raw_send_z(&r, "GET /cluster/trunk HTTP/1.1\r\nHost: localhost\r\n"
                       "Connection: Upgrade\r\nUpgrade: bellhop-trunk-2\r\n\r\n");
        assert_true(raw_wait(&r, "101 Switching"));
        raw_send(&r, str_make(cases[i].bytes, cases[i].n));
        assert_true(raw_wait_eof(&r));
        raw_close(&r);
    }
}

static void a_trunk_over_a_trunk_is_refused(void **state)
{
    struct fixture *f = *state;
    struct raw r = come(f);

    raw_send_z(&r, "GET /cluster/trunk HTTP/1.1\r\nHost: localhost\r\n"
                   "Connection: Upgrade\r\nUpgrade: bellhop-trunk-2\r\n\r\n");
    assert_true(raw_wait(&r, "404"));
    raw_close(&r);
}

/* Places are used again, and what is late for the connection before is not taken for the next. */
static void many_come_and_go(void **state)
{
    struct fixture *f = *state;
    struct raw r[40];

    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < 40; i++) {
            r[i] = come(f);
            raw_send_z(&r[i], "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        for (size_t i = 0; i < 40; i++) {
            if ((i + (size_t)round) % 3 == 0) {
                raw_close(&r[i]); /* without waiting for the answer */
                continue;
            }
            assert_true(raw_wait(&r[i], "peer="));
            raw_close(&r[i]);
        }
    }
    wait_for_none(f);
}

static void an_edge_is_asked_and_answers(void **state)
{
    struct fixture *f = *state;
    struct str big = str_make(f->big, BIG);

    assert_null(trunk_ask(f->heart, STR("nowhere"), STR("?"), on_told, f));
    assert_false(trunk_reaches(f->heart, STR("nowhere")));
    assert_true(trunk_reaches(f->heart, STR("south")));
    assert_non_null(trunk_ask(f->heart, STR("south"), big, on_told, f));
    assert_true(loop_until(f->loop, &f->asks));
    assert_true(str_eq(buf_str(&f->question), big));
    assert_int_equal(f->told, 0);
    trunk_tell(f->trunk, f->asked, big);
    assert_true(loop_until(f->loop, &f->told));
    assert_true(str_eq(buf_str(&f->answer), big));
    assert_true(trunk_say(f->heart, STR("south"), STR("go")));
    f->asks = 0;
    assert_true(loop_until(f->loop, &f->asks));
    assert_true(str_eq(buf_str(&f->question), STR("go")));
    assert_false(trunk_say(f->heart, STR("nowhere"), STR("go")));
}

static void who_reads_no_answers_cannot_have_a_trunk_cut(void **state)
{
    struct fixture *f = *state;
    int little = 4096;

    f->ledger = ledger_new(NULL);
    http_server_count(f->heart, f->ledger);
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->up));
    const struct trunk *t = list_first(&f->heart->trunks, const struct trunk, link);
    assert_int_equal(setsockopt(t->conn->io.fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    uint64_t all = limit_defaults.of[LIMIT_ANSWER_BYTES].all; /* strangers have filled it */
    assert_int_equal(ledger_take(f->ledger, NULL, LIMIT_ANSWER_BYTES, all), LIMIT_TAKEN);
    struct trunk_ask *a = trunk_ask(f->heart, STR("south"), str_make(f->big, BIG), on_told, f);
    assert_non_null(a);
    assert_true(loop_until(f->loop, &f->asks));
    trunk_tell(f->trunk, f->asked, STR("done"));
    assert_true(loop_until(f->loop, &f->told));
    assert_int_equal(f->lost, 0);
    ledger_give(f->ledger, NULL, LIMIT_ANSWER_BYTES, all);
}

static void a_question_that_is_called_off_is_answered_to_nobody(void **state)
{
    struct fixture *f = *state;
    struct trunk_ask *a = trunk_ask(f->heart, STR("south"), STR("one"), on_told, f);

    assert_true(loop_until(f->loop, &f->asks));
    trunk_ask_cancel(&a);
    assert_null(a);
    assert_true(loop_until(f->loop, &f->unasked));
    trunk_tell(f->trunk, f->asked, STR("late"));
    f->asks = 0;
    trunk_ask(f->heart, STR("south"), STR("two"), on_told, f);
    assert_true(loop_until(f->loop, &f->asks));
    trunk_tell(f->trunk, f->asked, STR("yes"));
    assert_true(loop_until(f->loop, &f->told));
    assert_int_equal(f->told, 1);
    assert_true(str_eq(buf_str(&f->answer), STR("yes")));
}

static void whoever_asked_hears_that_the_trunk_was_lost(void **state)
{
    struct fixture *f = *state;

    trunk_ask(f->heart, STR("south"), STR("one"), on_told, f);
    assert_true(loop_until(f->loop, &f->asks));
    trunk_free(f->trunk);
    f->trunk = NULL;
    assert_true(loop_until(f->loop, &f->failed));
    assert_int_equal(f->told, 0);
    assert_false(trunk_reaches(f->heart, STR("south")));
}

/* The heart's keys: those from before the trunk and those that come and go while it is up. */
static void signatures_are_verified_by_the_edge(void **state)
{
    struct fixture *f = *state;
    uint8_t raw[HTTP_SIGNER_BYTES], sig[64];
    struct raw r;

    hook_key(raw, sig);
    f->signer = http_signer_new(f->heart, STR("/hook"), raw);
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->up));
    r = come(f);
    hook_send(&r, "/hook", sig);
    assert_true(raw_wait(&r, "body=5. signed"));
    hook_send(&r, "/other", sig);
    assert_true(raw_wait(&r, "body=5. unchecked"));
    sig[3] ^= 1;
    hook_send(&r, "/hook", sig);
    assert_true(raw_wait(&r, "body=5. forged"));
    sig[3] ^= 1;
    http_signer_free(f->signer);
    f->signer = http_signer_new(f->heart, STR("/later"), raw);
    loop_turns(f->loop, 20);
    raw_forget(&r);
    hook_send(&r, "/hook", sig);
    assert_true(raw_wait(&r, "body=5. unchecked")); /* nobody signs there any more */
    hook_send(&r, "/later", sig);
    assert_true(raw_wait(&r, "body=5. signed"));
    raw_close(&r);
}

/* A request that waits for the next heart is verified with that one's keys, if it has any. */
static void a_verdict_for_one_heart_is_none_for_the_next(void **state)
{
    struct fixture *f = *state;
    uint8_t raw[HTTP_SIGNER_BYTES], sig[64];
    struct raw r;

    hook_key(raw, sig);
    f->signer = http_signer_new(f->heart, STR("/hook"), raw);
    trunk_hold(f->edge, 10000);
    dial(f, f->key, "north/1");
    assert_true(loop_until(f->loop, &f->up));
    loop_turns(f->loop, 5);
    trunk_free(f->trunk);
    http_signer_free(f->signer);
    f->signer = NULL;
    r = come(f);
    hook_send(&r, "/hook", sig);
    loop_turns(f->loop, 20);
    f->up = 0;
    dial(f, f->key, "north/1");
    assert_true(raw_wait(&r, "body=5. unchecked"));
    raw_close(&r);
}

/* ---- over Redis ---- */

static void another_process_of_a_node_replaces_the_first(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_gateway(f);
    struct redis_hop *old = f->south;
    struct trunk *second;

    f->south = open_hop(f, "south/3");
    f->up = 0;
    dial(f, f->key, "north/1"); /* while the heart still takes the first for alive */
    second = f->trunk;
    assert_true(loop_until(f->loop, &f->up));
    assert_int_equal(f->parted, 1);
    assert_int_equal(trunk_tally(f->heart).trunks, 1);
    assert_true(loop_until(f->loop, &f->lost)); /* the first is told */
    f->trunk = second;
    redis_hop_close(old);
    raw_close(&r);
    assert_int_equal(f->ws_closed, 1006);
}

static void without_the_streams_the_trunk_is_lost_and_made_again(void **state)
{
    struct fixture *f = *state;
    struct raw r = open_gateway(f), asks = come(f);
    char command[200];

    f->up = 0;
    snprintf(command, sizeof command, "redis-cli -p %d -a '%s' FLUSHALL >/dev/null 2>&1",
             redis_port, REDIS_PASSWORD);
    assert_int_equal(system(command), 0);
    assert_true(loop_until(f->loop, &f->lost));
    while (f->up == 0) {
        f->lost = 0;
        dial(f, f->key, "north/1");
        while (f->up == 0 && f->lost == 0)
            loop_turn(f->loop, 10);
    }
    raw_send_z(&asks, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&asks, "peer=127.0.0.1"));
    assert_true(loop_until(f->loop, &f->presented));
    ws_send(f->ws, STR("go on\n"));
    assert_true(raw_wait(&r, "\x81\x06go on\n"));
    raw_close(&asks);
    raw_close(&r);
    f->ws_closed = 0;
    assert_true(loop_until(f->loop, &f->ws_closed));
}

#define R(test) cmocka_unit_test_setup_teardown(test, setup_redis, teardown)
UNIT(net_test_trunk)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_are_answered_by_the_heart, setup_up, teardown),
        cmocka_unit_test_setup_teardown(what_is_asked_of_the_process_itself_stays_there, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_admin_socket_of_an_edge_is_the_hearts, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(who_came_by_the_admin_socket_of_an_edge_leaves_room,
                                        setup_up, teardown),
        cmocka_unit_test_setup_teardown(long_bodies_pass_in_both_directions, setup_up, teardown),
        cmocka_unit_test_setup_teardown(who_does_not_read_holds_up_nobody, setup_up, teardown),
        cmocka_unit_test_setup_teardown(who_does_not_read_is_closed_in_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_websocket_is_carried, setup_up, teardown),
        cmocka_unit_test_setup_teardown(leaving_closes_websockets_with_1012, setup_up, teardown),
        cmocka_unit_test_setup_teardown(a_stream_ends_when_its_client_has_gone, setup_up, teardown),
        cmocka_unit_test_setup_teardown(a_lost_trunk_takes_its_connections_along, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_edge_that_goes_takes_its_connections_along, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_gateways_socket_is_presented_to_the_next_heart, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(who_held_a_gateways_socket_may_be_its_next_heart, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_trunk_that_is_lost_at_once_leaves_the_sockets_to_the_next,
                                        setup_up, teardown),
        cmocka_unit_test_setup_teardown(a_heart_that_goes_leaves_its_sockets_to_the_next, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_socket_that_is_not_kept_is_told_to_come_back, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(connections_between_requests_outlive_the_trunk, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(chunks_are_put_together_by_the_edge, setup_up, teardown),
        cmocka_unit_test_setup_teardown(another_version_is_refused_and_named, setup, teardown),
        cmocka_unit_test_setup_teardown(who_comes_while_there_is_no_trunk_waits_for_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_heart_that_goes_down_answers_whom_it_has, setup_up,
                                        teardown),
        cmocka_unit_test_setup_teardown(who_waited_in_vain_is_handled_here, setup, teardown),
        cmocka_unit_test_setup_teardown(who_does_not_know_the_key_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_heart_that_is_not_the_expected_one_is_left, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(nonsense_instead_of_a_proof_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_trunk_over_a_trunk_is_refused, setup_up, teardown),
        cmocka_unit_test_setup_teardown(signatures_are_verified_by_the_edge, setup, teardown),
        cmocka_unit_test_setup_teardown(a_verdict_for_one_heart_is_none_for_the_next, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(many_come_and_go, setup_up, teardown),
        cmocka_unit_test_setup_teardown(an_edge_is_asked_and_answers, setup_up, teardown),
        cmocka_unit_test_setup_teardown(who_reads_no_answers_cannot_have_a_trunk_cut, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_question_that_is_called_off_is_answered_to_nobody,
                                        setup_up, teardown),
        cmocka_unit_test_setup_teardown(whoever_asked_hears_that_the_trunk_was_lost, setup_up,
                                        teardown),
        R(requests_are_answered_by_the_heart),
        R(the_admin_socket_of_an_edge_is_the_hearts),
        R(long_bodies_pass_in_both_directions),
        R(who_does_not_read_holds_up_nobody),
        R(a_websocket_is_carried),
        R(leaving_closes_websockets_with_1012),
        R(a_lost_trunk_takes_its_connections_along),
        R(an_edge_that_goes_takes_its_connections_along),
        R(a_gateways_socket_is_presented_to_the_next_heart),
        R(who_held_a_gateways_socket_may_be_its_next_heart),
        R(a_heart_that_goes_leaves_its_sockets_to_the_next),
        R(connections_between_requests_outlive_the_trunk),
        R(a_heart_that_goes_down_answers_whom_it_has),
        R(many_come_and_go),
        R(an_edge_is_asked_and_answers),
        R(whoever_asked_hears_that_the_trunk_was_lost),
        R(another_process_of_a_node_replaces_the_first),
        R(without_the_streams_the_trunk_is_lost_and_made_again),
    };
    return cmocka_run_group_tests(tests, redis_setup, redis_teardown);
}
