/* Both ends of a trunk against somebody hostile at the other one.  The first byte says who that is:
 * a stranger or a node of the cluster, an edge of ours or our heart.  Then messages: the
 * connection's number and what it is, a byte each, the length in two, the payload; each becomes a
 * batch of its own.  One that is none of msg_what makes time pass, or is sent as the bytes that it
 * has.
 *
 * A stranger is never taken for a node, nobody holds anything once the trunk is gone. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/log.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/trunk_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WE_CARRY = 1, STRANGER = 2 };
enum { ANSWER_BYTES = 3000, CLIENTS = 2, WAITS = 20000, RAW = 0x80 };

static const char name[] = "north/1";
static struct loop *loop;
static struct http_server *server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static unsigned who;
static struct trunk *trunk; /* ours to them; NULL: none, or lost */
static struct trunk_ask *ask;
static int listener = -1, end = -1; /* the hostile end */
static int clients[CLIENTS] = {-1, -1};
static bool up;
static uint32_t asked;
static uint64_t said; /* batches */

enum { IN_BATCH = BATCH_HEAD_BYTES + MSG_HEAD_BYTES }; /* where the first payload begins */

static void on_told(void *ctx, struct str answer)
{
    (void)ctx, (void)answer;
    ask = NULL;
}

static struct ws *ws; /* of the edge; NULL: none */

static void on_ws_data(void *ctx, struct str bytes, bool is_end)
{
    (void)ctx, (void)is_end;
    if (ws != NULL && bytes.n > 0 && bytes.p[0] == 's') {
        ws_sent(ws, 7, STR("b00000000000000000000000001"));
        ws_send(ws, bytes);
    }
    if (ws != NULL && bytes.n > 0 && bytes.p[0] == 'p')
        ws_park(ws);
}

static void on_ws_ack(void *ctx, struct str id)
{
    (void)ctx;
    if (id.n != MSG_ID_BYTES)
        abort();
}

static void on_ws_closed(void *ctx, int code)
{
    (void)ctx, (void)code;
    ws = NULL;
}

static const struct ws_handlers ws_handlers = {.max_message = 4096,
                                               .max_queued = 1 << 20,
                                               .on_data = on_ws_data,
                                               .on_ack = on_ws_ack,
                                               .on_closed = on_ws_closed};

static void on_present(void *ctx, const struct ws_past *past)
{
    (void)ctx;
    for (size_t i = 0; i + 1 < past->n_rows; i++)
        if (past->rows[i].row > past->rows[i + 1].row)
            abort();
    if (past->name.gateway.n > 0 && ws == NULL)
        ws = ws_resume(past, &ws_handlers, NULL);
}

static void handler(void *ctx, struct http_req *r)
{
    static const char body[ANSWER_BYTES] = {'x'};
    static const uint8_t key[TRUNK_KEY_BYTES] = {7};

    (void)ctx;
    if (str_eq(http_path(r), STR("/cluster/trunk")))
        trunk_accept(server, r, &(struct trunk_heart){.key = key, .name = name});
    else if (http_is_upgrade(r))
        ws = ws_accept(server, r, &ws_handlers, NULL);
    else
        http_answer(server, http_req_id(r),
                    &(struct http_answer){.status = 200, .body = str_make(body, sizeof body)});
}

static void on_up(void *ctx)
{
    (void)ctx;
    up = true;
}

static void on_lost(void *ctx, const char *why)
{
    (void)ctx, (void)why;
    trunk = NULL;
}

static void on_ask(void *ctx, uint32_t number, struct str question)
{
    (void)ctx;
    asked = number;
    if (question.n > 0 && question.p[0] == 'a')
        trunk_tell(trunk, number, question);
}

static void on_unask(void *ctx, uint32_t number)
{
    (void)ctx, (void)number;
}

static int listen_somewhere(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 8) != 0)
        abort();
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_in a;
    socklen_t n = sizeof a;

    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        abort();
    return ntohs(a.sin_port);
}

static void set_up(void)
{
    static char dir[] = "/tmp/bellhop-fuzz-XXXXXX";
    char where[128], why[256];

    log_setup(LOG_ERROR, false);
    if (mkdtemp(dir) == NULL)
        abort();
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", dir);
    snprintf(where, sizeof where, "unix:%s", address.sun_path);
    loop = loop_new();
    server = http_server_new(loop, NULL, handler, NULL);
    http_server_on_present(server, on_present);
    if (http_server_listen(server, str_of(where), NULL, 0600, why) != BH_OK)
        abort();
    listener = listen_somewhere();
}

static int come(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        abort();
    return fd;
}

/* What goes over TCP takes its time. */
static void turn(void)
{
    char sink[8192];

    loop_turn(loop, who & WE_CARRY ? 1 : 0);
    if (end >= 0)
        (void)!recv(end, sink, sizeof sink, MSG_DONTWAIT);
}

static void say(const void *p, size_t n)
{
    (void)!send(end, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say_message(uint32_t number, uint8_t what, const void *p, size_t n)
{
    struct buf b = BUF_INIT;

    batch_begin(&b);
    batch_add(&b, number, (enum msg_what)what, str_make(p, n));
    batch_end(&b, ++said);
    say(b.p, b.n);
    buf_done(&b);
}

/* So many bytes of the other side, behind an empty line if @head is set. */
static void expect(bool head, void *ret, size_t n)
{
    uint32_t last = 0;
    size_t got = 0;

    for (int i = 0; i < WAITS; i++) {
        uint8_t c;
        loop_turn(loop, 1);
        while (head && last != 0x0d0a0d0a && recv(end, &c, 1, MSG_DONTWAIT) == 1)
            last = last << 8 | c;
        if (head && last != 0x0d0a0d0a)
            continue;
        ssize_t k = recv(end, (char *)ret + got, n - got, MSG_DONTWAIT);
        got += k > 0 ? (size_t)k : 0;
        if (got == n)
            return;
    }
    abort(); /* it does not begin as trunk.h says */
}

/* ---- the handshake, done right ---- */

static void ask_for_trunk(void)
{
    static const char head[] = "GET /cluster/trunk HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                               "Upgrade: " TRUNK_PROTOCOL "\r\n\r\n";

    end = come();
    say(head, sizeof head - 1);
}

static void prove(void)
{
    uint8_t in[IN_BATCH + TRUNK_NONCE_BYTES];
    uint8_t out[TRUNK_NONCE_BYTES + TRUNK_MAC_BYTES + 7] = {1, 2, 3};
    struct trunk peer = {.key = {7}};

    expect(true, in, sizeof in);
    memcpy(peer.challenge, in + IN_BATCH, TRUNK_NONCE_BYTES);
    memcpy(peer.answer, out, TRUNK_NONCE_BYTES);
    trunk_mac(&peer, "edge", STR("south/2"), out + TRUNK_NONCE_BYTES);
    memcpy(out + TRUNK_NONCE_BYTES + TRUNK_MAC_BYTES, "south/2", 7);
    say_message(0, MSG_PROOF, out, sizeof out);
    for (int i = 0; i < WAITS && trunk_tally(server).trunks == 0; i++)
        turn();
    if (trunk_tally(server).trunks != 1)
        abort();
    ask = trunk_ask(server, STR("south"), STR("how are you"), on_told, NULL);
}

static void be_dialled(void)
{
    static const uint8_t key[TRUNK_KEY_BYTES] = {7};
    static const struct trunk_handlers h = {on_up, on_lost, on_ask, on_unask};

    trunk = trunk_open(loop, server,
                       &(struct trunk_dial){.host = "127.0.0.1",
                                            .port = port_of(listener),
                                            .key = key,
                                            .name = "south/2",
                                            .heart = name},
                       &h, NULL);
    for (int i = 0; i < WAITS && end < 0; i++) {
        loop_turn(loop, 1);
        end = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    }
    if (end < 0)
        abort();
}

static void welcome(void)
{
    static const char *const requests[CLIENTS] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        "\x81\x87\1\1\1\1zcdkmn\x0b\x89\x81\1\1\1\1x"}; /* a line, a ping */
    static const char head[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: " TRUNK_PROTOCOL
                               "\r\nConnection: Upgrade\r\n\r\n";
    uint8_t in[IN_BATCH + TRUNK_NONCE_BYTES + TRUNK_MAC_BYTES + 7];
    uint8_t out[TRUNK_MAC_BYTES + sizeof name - 1];
    struct trunk peer = {.key = {7}, .challenge = {9}};

    say(head, sizeof head - 1);
    say_message(0, MSG_CHALLENGE, peer.challenge, TRUNK_NONCE_BYTES);
    expect(true, in, sizeof in);
    memcpy(peer.answer, in + IN_BATCH, TRUNK_NONCE_BYTES);
    trunk_mac(&peer, "heart", STR("north/1"), out);
    memcpy(out + TRUNK_MAC_BYTES, name, sizeof name - 1);
    say_message(0, MSG_WELCOME, out, sizeof out);
    for (int i = 0; i < WAITS && !up; i++)
        turn();
    if (!up)
        abort();
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = come();
        (void)!send(clients[i], requests[i], strlen(requests[i]), MSG_NOSIGNAL);
    }
    for (int i = 0; i < WAITS && trunk != NULL && trunk_connections(trunk) < CLIENTS; i++)
        turn();
}

/* ---- what comes then ---- */

static void misbehave(struct str rest)
{
    while (rest.n >= 4) {
        const uint8_t *p = (const uint8_t *)rest.p;
        uint32_t number = p[0];
        size_t n = (size_t)p[2] << 8 | p[3];
        rest = str_skip(rest, 4);
        n = n < rest.n ? n : rest.n;
        if ((p[1] & RAW) != 0)
            say(rest.p, n);
        else if (p[1] == 0 || p[1] >= MSG_N)
            turn();
        else
            say_message(number, p[1], rest.p, n);
        rest = str_skip(rest, n);
        if ((p[1] & 1) != 0)
            turn();
    }
    for (int i = 0; i < 4; i++)
        turn();
}

static bool is_held(void)
{
    struct trunk_tally all = trunk_tally(server);

    return http_server_connections(server) > 0 || all.trunks > 0 || all.connections > 0 ||
           ask != NULL;
}

static void go(void)
{
    close(end);
    end = -1;
    for (int i = 0; i < CLIENTS; i++) {
        if (clients[i] >= 0)
            close(clients[i]);
        clients[i] = -1;
    }
    for (int i = 0; i < WAITS && (is_held() || trunk != NULL); i++)
        loop_turn(loop, 1);
    trunk_free(trunk);
    trunk = NULL;
    loop_turn(loop, 0);
    if (is_held())
        abort(); /* and nobody is at the other end */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 60000)
        return 0;
    if (loop == NULL)
        set_up();
    who = data[0];
    up = false;
    said = 0;
    if ((who & WE_CARRY) != 0)
        be_dialled();
    else
        ask_for_trunk();
    if ((who & STRANGER) == 0) {
        if ((who & WE_CARRY) != 0)
            welcome();
        else
            prove();
    }
    misbehave(str_make((const char *)data + 1, size - 1));
    if ((who & STRANGER) != 0 && (up || trunk_tally(server).trunks > 0))
        abort(); /* nobody proved anything */
    go();
    return 0;
}
