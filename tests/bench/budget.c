/* budget.c - what an event costs, counted so that the machine does not matter.
 *
 *      budget live|accept|drain|send      under callgrind: budget.py counts what measured() runs
 *      budget memory                      bytes of the heap per gateway, chat, message, idle socket
 *                                         (plain and with TLS)
 *
 * One thread plays everybody: publishers that post to the chat page and gateways on WebSockets,
 * over Unix sockets, and bellhop between them, whole from its HTTP server on, with a store that
 * answers in the next turn (budget_store.h) under a clock that is set by hand.
 *
 *      live      post -> frame -> ack -> 200
 *      accept    post -> row -> 200; its gateway is away
 *      drain     row -> frame -> ack
 *      send      outbound -> outbox -> outbound_result
 *
 * Prints one JSON object. */
#include <errno.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/observers.h"
#include "budget_store.h"
#include "core/journal.h"
#include "core/token.h"
#include "edge/door.h"
#include "host/host.h"
#include "http/front.h"
#include "net/http_server.h"
#include "net/http_tls.h"
#include "net/loop.h"
#include "platform/outgoing.h"
#include "platform/sender.h"
#include "platform/web/web.h"
#include "relay/relay.h"
#include "tenancy/facts.h"

enum {
    GATEWAYS = 20,
    PUBLISHERS = 40,
    ROUNDS = 50,
    EVENTS = ROUNDS * PUBLISHERS,
    SOCKETS = 500,
    TLS_SOCKETS = 100, /* of them, the last */
    MANY = 2000
};

struct client {
    int fd; /* -1: not connected */
    struct buf in;
    char token[256];
    char chat[80]; /* somebody wrote to it from there */
};

static struct {
    struct loop *loop;
    struct store *store;
    struct observers *observers;
    struct seal *seal;
    struct rand rand;
    struct facts *facts;
    struct relay *relay;
    struct host *host;
    struct host_env env;
    struct ledger *ledger;
    struct http_server *server;
    struct front front;
    struct front_settings settings;
    struct waker waker;
    struct web_settings bots[GATEWAYS];
    struct platform outside; /* a platform that takes everything at once */
    struct sockaddr_un at, tls_at;
    int64_t now_ms;
    bool lingered; /* the store's linger is over */
    struct client publishers[PUBLISHERS], gateways[SOCKETS];
    uint64_t posted, answered, delivered, results;
} b;

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fputs("budget: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(2);
}

/* ---- time ---- */

static void on_wake(void *ctx)
{
    clock_set(loop_clock(b.loop), b.now_ms, 1800000000000 + b.now_ms);
    budget_store_turn(b.store, b.lingered);
    b.lingered = false;
}

/* All that is counted happens in here: budget.py gives this name to callgrind. */
void measured(unsigned turns);
__attribute__((noipa)) void measured(unsigned turns)
{
    while (turns-- > 0)
        loop_turn(b.loop, 0);
}

static void settle(unsigned turns)
{
    while (turns-- > 0) {
        b.lingered = true;
        b.now_ms++;
        loop_turn(b.loop, 0);
    }
}

/* ---- the platform that sends go to ---- */

static void take_all(struct platform *p, struct outgoing *o, struct sender_request *q,
                     struct sender_verdict *v)
{
    v->end = SENDER_DONE;
}
static void free_outgoing(struct outgoing *o)
{
    free(o);
}
static const struct sender_ops sender_ops = {.write = take_all, .free = free_outgoing};
static const struct platform_ops outside_ops = {.name = "budget",
                                                .label = "Budget",
                                                .sender = &sender_ops};

static void act(struct outside *o, const struct outlet *to, struct action_id id,
                const struct action_from *from, const struct action *a)
{
    struct outgoing *out = xcalloc(1, sizeof *out);

    out->n_parts = 1;
    sender_act(b.outside.sender, out, &(struct sender_order){.id = id, .from = from, .action = a});
}

/* ---- bellhop ---- */

static void poke(struct waker *w, const char *url, poke_done_cb *done, void *ctx)
{
}

static void open_heart(void)
{
    struct clock *clock = loop_clock(b.loop);
    struct relay_limits limits = relay_limits_default;
    char why[512] = "";

    limits.instance_actions = limits.tenant_actions = 0;
    struct facts_env fe = {.clock = clock,
                           .store = b.store,
                           .observers = b.observers,
                           .rand = &b.rand,
                           .seal = b.seal};
    struct relay_env re = {.clock = clock,
                           .store = b.store,
                           .observers = b.observers,
                           .rand = &b.rand,
                           .waker = &b.waker,
                           .journal = journal_new()};
    for (unsigned k = 0; k < 2 * JOURNAL_BLOCKS * JOURNAL_BLOCK / 25; k++)
        journal_step(re.journal, 1, JOURNAL_SENT, 1, 0, STR_NULL); /* as after an hour: full */
    if (facts_open(&fe, &b.facts, why) != BH_OK)
        die("no facts: %s", why);
    b.env = (struct host_env){.loop = b.loop,
                              .clock = clock,
                              .store = b.store,
                              .rand = &b.rand,
                              .seal = b.seal,
                              .server = b.server,
                              .ledger = b.ledger,
                              .journal = re.journal};
    b.host = host_new(&b.env, b.facts);
    re.facts = b.facts;
    re.outside = host_outside(b.host);
    re.outside->act = act;
    if (relay_load(&re, &limits, &b.relay, why) != BH_OK)
        die("no relay: %s", why);
    relay_begin(b.relay, &re);
    host_set_relay(b.host, b.relay);
}

static void open_bots(void)
{
    static char names[GATEWAYS][8], web[] = "web";
    char why[256] = "";

    for (unsigned i = 0; i < GATEWAYS; i++) {
        snprintf(names[i], sizeof names[i], "b%05u", i);
        b.bots[i].base = (struct platform_settings){.platform = web, .bot = names[i]};
        if (host_open_platform(b.host, &b.bots[i].base, why) != BH_OK)
            die("no bot: %s", why);
    }
    b.outside = (struct platform){.ops = &outside_ops,
                                  .host = b.host,
                                  .env = host_env(b.host),
                                  .bot = "budget"};
    if (sender_new(&b.outside, why) != BH_OK)
        die("no sender: %s", why);
}

static void listen_at(const char *dir)
{
    char where[160], why[256] = "";

    b.at.sun_family = AF_UNIX;
    snprintf(b.at.sun_path, sizeof b.at.sun_path, "%s/socket", dir);
    snprintf(where, sizeof where, "unix:%s", b.at.sun_path);
    if (http_server_listen(b.server, str_of(where), NULL, 0600, why) != BH_OK)
        die("no listener: %s", why);
}

static void open_all(void)
{
    char dir[] = "/tmp/bellhop-budget-XXXXXX", why[256] = "";

    log_setup(LOG_WARN, false);
    b.now_ms = 5000;
    b.rand = rand_seeded(7);
    hash_set_process_key((struct hash_key){3, 5});
    b.loop = loop_new();
    b.store = budget_store_new();
    loop_on_wake(b.loop, on_wake, NULL);
    clock_set(loop_clock(b.loop), b.now_ms, 1800000000000 + b.now_ms);
    b.observers = observers_new(loop_clock(b.loop));
    b.ledger = ledger_new(NULL);
    b.waker.poke = poke;
    if (seal_open_master(STR("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
                         STR("salt"), NULL, &b.seal, why) != BH_OK)
        die("no seal: %s", why);
    b.server = http_server_new(b.loop, &http_limits_default, front_handle, &b.front);
    http_server_count(b.server, b.ledger);
    open_heart();
    b.front = (struct front){.loop = b.loop,
                             .server = b.server,
                             .ledger = b.ledger,
                             .settings = &b.settings,
                             .store = b.store,
                             .facts = b.facts,
                             .relay = b.relay,
                             .host = b.host,
                             .door = door_new(&b.rand)};
    if (mkdtemp(dir) == NULL)
        die("%s: %s", dir, strerror(errno));
    listen_at(dir);
    open_bots();
    settle(5);
    for (unsigned i = 0; i < SOCKETS; i++)
        b.gateways[i].fd = -1;
}

static void remove_socket(void)
{
    unlink(b.at.sun_path);
    unlink(b.tls_at.sun_path);
    *strrchr(b.at.sun_path, '/') = '\0';
    rmdir(b.at.sun_path);
}

/* ---- the clients ---- */

static void dial(struct client *c)
{
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&b.at, sizeof b.at) != 0)
        die("connect: %s", strerror(errno));
}

static void say(struct client *c, const void *p, size_t n)
{
    if (send(c->fd, p, n, MSG_NOSIGNAL) != (ssize_t)n)
        die("send: %s", strerror(errno));
}

/* As much as has come. */
static void hear(struct client *c)
{
    static char room[1 << 16];
    ssize_t n;

    while ((n = recv(c->fd, room, sizeof room, MSG_DONTWAIT)) > 0)
        buf_add_str(&c->in, str_make(room, (size_t)n));
    if (n == 0)
        die("bellhop closed a connection: %.*s", STR_FMT(buf_str(&c->in)));
}

static size_t count(struct str text, const char *part)
{
    const char *p = text.p;
    size_t n = 0;

    while (text.p != NULL &&
           (p = memmem(p, (size_t)(text.p + text.n - p), part, strlen(part))) != NULL) {
        p += strlen(part);
        n++;
    }
    return n;
}

static void on_added(void *ctx, enum bh_err err, const char *why)
{
    if (err != BH_OK)
        die("a gateway was refused: %s", why != NULL ? why : bh_err_word(err));
}

/* Gateway @n serves bot @n, if there is one. */
static void add_gateway(unsigned n, struct client *c)
{
    struct buf id = BUF_INIT, secret = BUF_INIT, token = BUF_INIT;
    char name[16], bot[16];

    snprintf(name, sizeof name, "g%05u", n);
    snprintf(bot, sizeof bot, "b%05u", n);
    struct gateway_for own = {STR("web"), str_of(bot), true};
    struct gateway_spec spec = {.id = str_of(name),
                                .tenant = STR("bench"),
                                .instance = str_of(name),
                                .bots = &own,
                                .n_bots = 1};
    facts_gateway_add(b.facts, &spec, &id, &secret, on_added, NULL);
    settle(2);
    token_mint(&token, buf_str(&id), buf_str(&secret), 0);
    if (c != NULL)
        snprintf(c->token, sizeof c->token, "%.*s", STR_FMT(buf_str(&token)));
    buf_done(&id);
    buf_done(&secret);
    buf_done(&token);
}

/* One text message; the masking key is zero. */
static void ws_say(struct client *c, struct str text)
{
    struct buf frame = BUF_INIT;
    uint8_t head[8] = {0x81};
    size_t n = 2;

    if (text.n < 126) {
        head[1] = (uint8_t)(0x80 | text.n);
    } else {
        if (text.n > 65535)
            die("too long a message");
        head[1] = 0x80 | 126;
        head[2] = (uint8_t)(text.n >> 8);
        head[3] = (uint8_t)text.n;
        n = 4;
    }
    buf_add_str(&frame, str_make((char *)head, n + 4)); /* and the key */
    buf_add_str(&frame, text);
    say(c, frame.p, frame.n);
    buf_done(&frame);
}

static void connect_gateway(unsigned n)
{
    struct client *c = &b.gateways[n];
    char text[512];

    dial(c);
    snprintf(
        text, sizeof text,
        "GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        "Authorization: Bearer %s\r\n\r\n",
        c->token);
    say(c, text, strlen(text));
    settle(4);
    hear(c);
    if (count(buf_str(&c->in), "HTTP/1.1 101") != 1)
        die("gateway %u was refused: %.*s", n, STR_FMT(buf_str(&c->in)));
    buf_reset(&c->in);
}

static void hello(unsigned n)
{
    char text[96];

    snprintf(text, sizeof text,
             "{\"type\": \"hello\", \"platform\": \"web\", \"botId\": \"b%05u\"}\n", n);
    ws_say(&b.gateways[n], str_of(text));
}

static void post(unsigned publisher, unsigned visitor, unsigned bot)
{
    char body[160], text[512];

    snprintf(body, sizeof body,
             "{\"text\":\"%016llu hello, is anybody there? I have a question about my order.\","
             "\"client_id\":\"budget-%016llu\"}",
             (unsigned long long)b.posted, (unsigned long long)b.posted);
    snprintf(text, sizeof text,
             "POST /chat/b%05u/api/message HTTP/1.1\r\nHost: localhost\r\n"
             "Content-Type: application/json\r\nX-Bellhop-Visitor: bench-visitor-%08u\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             bot, visitor, strlen(body), body);
    b.posted++;
    say(&b.publishers[publisher], text, strlen(text));
}

static void hear_answers(void)
{
    for (unsigned i = 0; i < PUBLISHERS; i++) {
        struct client *c = &b.publishers[i];
        hear(c);
        b.answered += count(buf_str(&c->in), "HTTP/1.1 200");
        buf_reset(&c->in);
    }
}

static void note_chat(struct client *c, struct str event)
{
    static const char start[] = "\"chat_id\":\"";
    const char *p = memmem(event.p, event.n, start, sizeof start - 1);
    struct str id;

    if (p == NULL)
        die("an event without a chat");
    event = str_skip(event, (size_t)(p - event.p) + sizeof start - 1);
    str_split(&event, '"', &id);
    snprintf(c->chat, sizeof c->chat, "%.*s", STR_FMT(id));
}

/* Every gateway acks what it has got. */
static void ack_all(void)
{
    static const char start[] = "{\"type\":\"inbound\",\"bufferId\":\"";
    struct buf acks = BUF_INIT;

    for (unsigned i = 0; i < GATEWAYS; i++) {
        struct client *c = &b.gateways[i];
        if (c->fd < 0)
            continue;
        hear(c);
        struct str rest = buf_str(&c->in);
        for (const char *p;
             rest.n > 0 && (p = memmem(rest.p, rest.n, start, sizeof start - 1)) != NULL;) {
            struct str id;
            rest = str_skip(rest, (size_t)(p - rest.p) + sizeof start - 1);
            str_split(&rest, '"', &id);
            buf_printf(&acks, "{\"type\": \"inbound_ack\", \"bufferId\": \"%.*s\"}\n", STR_FMT(id));
            note_chat(c, rest);
            b.delivered++;
            if (acks.n > 60000) {
                ws_say(c, buf_str(&acks));
                buf_reset(&acks);
            }
        }
        buf_reset(&c->in);
        if (acks.n > 0)
            ws_say(c, buf_str(&acks));
        buf_reset(&acks);
    }
    buf_done(&acks);
}

/* ---- the loads ---- */

static void prepare(bool connected)
{
    for (unsigned i = 0; i < GATEWAYS; i++)
        add_gateway(i, &b.gateways[i]);
    for (unsigned i = 0; i < PUBLISHERS; i++)
        dial(&b.publishers[i]);
    for (unsigned i = 0; i < GATEWAYS && connected; i++) {
        connect_gateway(i);
        hello(i);
    }
    settle(10);
}

/* Everybody writes where they have written before. */
static void round_of_posts(void)
{
    for (unsigned i = 0; i < PUBLISHERS; i++)
        post(i, i, i % GATEWAYS);
    measured(2);
    ack_all();
    measured(1);
    b.lingered = true;
    b.now_ms += 3;
    measured(2);
    hear_answers();
}

static void warm_up(void)
{
    for (unsigned i = 0; i < PUBLISHERS; i++)
        post(i, i, i % GATEWAYS);
    settle(2);
    ack_all();
    settle(5);
    hear_answers();
    if (b.answered != b.posted)
        die("%llu of %llu posts were answered", (unsigned long long)b.answered,
            (unsigned long long)b.posted);
    b.answered = b.delivered = 0;
}

static uint64_t run_posts(bool live)
{
    prepare(live);
    warm_up();
    for (unsigned i = 0; i < ROUNDS; i++)
        round_of_posts();
    if (b.answered != EVENTS || b.delivered != (live ? EVENTS : 0))
        die("of %d posts %llu were answered, %llu delivered", EVENTS,
            (unsigned long long)b.answered, (unsigned long long)b.delivered);
    return EVENTS;
}

static uint64_t run_drain(void)
{
    prepare(false);
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned k = 0; k < PUBLISHERS; k++)
            post(k, k, (i + k) % GATEWAYS);
        settle(4);
        hear_answers();
    }
    for (unsigned i = 0; i < GATEWAYS; i++)
        connect_gateway(i);
    for (unsigned i = 0; i < GATEWAYS; i++)
        hello(i);
    for (unsigned i = 0; i < 60 && b.delivered < b.posted; i++) {
        measured(2);
        ack_all();
        b.lingered = true;
        b.now_ms += 3;
    }
    measured(2);
    if (b.answered != EVENTS || b.delivered != EVENTS)
        die("of %d posts %llu were answered, %llu delivered", EVENTS,
            (unsigned long long)b.answered, (unsigned long long)b.delivered);
    return EVENTS;
}

static void send_round(unsigned round, void turns(unsigned n))
{
    char text[256];

    for (unsigned i = 0; i < GATEWAYS; i++) {
        snprintf(
            text, sizeof text,
            "{\"type\": \"outbound\", \"requestId\": \"r%u-%u\", \"action\": {\"op\": \"send\", "
            "\"chat_id\": \"%s\", \"content\": \"what an agent says, about as long as "
            "people do\"}}\n",
            round, i, b.gateways[i].chat);
        ws_say(&b.gateways[i], str_of(text));
    }
    turns(2);
    b.lingered = true;
    b.now_ms += 3;
    turns(4);
    for (unsigned i = 0; i < GATEWAYS; i++) {
        hear(&b.gateways[i]);
        b.results += count(buf_str(&b.gateways[i].in), "\"success\":true");
        buf_reset(&b.gateways[i].in);
    }
}

static uint64_t run_send(void)
{
    prepare(true);
    warm_up();
    send_round(1000000, settle);
    if (b.results != GATEWAYS)
        die("%llu of %d sends came back", (unsigned long long)b.results, GATEWAYS);
    b.results = 0;
    for (unsigned i = 0; i < ROUNDS; i++)
        send_round(i, measured);
    if (b.results != ROUNDS * GATEWAYS)
        die("%llu of %d sends came back", (unsigned long long)b.results, ROUNDS * GATEWAYS);
    return b.results;
}

/* ---- the same with TLS ---- */

static void write_certificate(const char *path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    FILE *out = fopen(path, "w");

    if (key == NULL || x == NULL || out == NULL)
        die("no certificate");
    X509_set_version(x, 2);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    if (X509_sign(x, key, EVP_sha256()) <= 0)
        die("no certificate");
    PEM_write_X509(out, x);
    PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL);
    fclose(out);
    X509_free(x);
    EVP_PKEY_free(key);
}

static void listen_with_tls(void)
{
    char where[160], pem[sizeof b.at.sun_path + 8], why[256] = "";
    struct http_tls tls = {.cert = pem, .key = pem};

    b.tls_at = b.at;
    strcat(b.tls_at.sun_path, "s");
    snprintf(pem, sizeof pem, "%s.pem", b.at.sun_path);
    snprintf(where, sizeof where, "unix:%s", b.tls_at.sun_path);
    write_certificate(pem);
    if (http_server_listen(b.server, str_of(where), &tls, 0600, why) != BH_OK)
        die("no listener: %s", why);
    unlink(pem);
}

/* @done is what OpenSSL answered: it wants another turn, or fails. */
static void tls_step(SSL *ssl, int done)
{
    int err = done > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, done);

    if (err != SSL_ERROR_NONE && err != SSL_ERROR_WANT_READ && err != SSL_ERROR_WANT_WRITE)
        die("TLS failed");
    settle(1);
}

/* Connects, says hello, and forgets the client's half: what is left is bellhop's. */
static void connect_tls_gateway(SSL_CTX *ctx, unsigned n)
{
    struct client *c = &b.gateways[n];
    uint8_t frame[128] = {0x81};
    char text[512];
    SSL *ssl = SSL_new(ctx);
    int done;

    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&b.tls_at, sizeof b.tls_at) != 0)
        die("connect: %s", strerror(errno));
    SSL_set_fd(ssl, c->fd);
    while ((done = SSL_connect(ssl)) != 1)
        tls_step(ssl, done);
    int size = snprintf(
        text, sizeof text,
        "GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        "Authorization: Bearer %s\r\n\r\n",
        c->token);
    if (SSL_write(ssl, text, size) != size)
        die("TLS failed");
    while ((done = SSL_read(ssl, text, sizeof text - 1)) <= 0)
        tls_step(ssl, done);
    text[done] = '\0';
    if (strncmp(text, "HTTP/1.1 101", 12) != 0)
        die("gateway %u was refused: %s", n, text);
    size = snprintf((char *)frame + 6, sizeof frame - 6,
                    "{\"type\": \"hello\", \"platform\": \"web\", \"botId\": \"b%05u\"}\n", n);
    frame[1] = (uint8_t)(0x80 | size);
    if (SSL_write(ssl, frame, 6 + size) != 6 + size)
        die("TLS failed");
    settle(4);
    while (SSL_read(ssl, text, sizeof text) > 0)
        ;
    SSL_free(ssl);
}

/* ---- memory ---- */

static size_t heap(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static double per(size_t before, unsigned n)
{
    return (double)(ssize_t)(heap() - before) / n;
}

static void posts_of(unsigned n, unsigned first_visitor, unsigned step, unsigned bot)
{
    for (unsigned i = 0; i < n; i += PUBLISHERS) {
        for (unsigned k = 0; k < PUBLISHERS; k++)
            post(k, first_visitor + (i + k) * step, bot);
        settle(4);
        ack_all();
        settle(4);
        hear_answers();
    }
}

static void run_memory(void)
{
    struct rlimit files = {4096, 4096};
    size_t before;

    setrlimit(RLIMIT_NOFILE, &files);
    prepare(false);
    connect_gateway(0);
    hello(0);
    warm_up();
    posts_of(MANY, 1, 0, 0); /* what grows in steps has grown */

    before = heap();
    posts_of(MANY, 1000, 1, 0);
    double chat = per(before, MANY);
    before = heap();
    posts_of(MANY, 1, 0, 1);
    double message = per(before, MANY);
    before = heap();
    for (unsigned i = 0; i < MANY; i++)
        add_gateway(GATEWAYS + i, GATEWAYS + i < SOCKETS ? &b.gateways[GATEWAYS + i] : NULL);
    double gateway = per(before, MANY);
    before = heap();
    for (unsigned i = GATEWAYS; i < SOCKETS - TLS_SOCKETS; i++) {
        connect_gateway(i);
        hello(i);
        settle(4);
        hear(&b.gateways[i]);
        buf_done(&b.gateways[i].in);
    }
    settle(20);
    double idle = per(before, SOCKETS - TLS_SOCKETS - GATEWAYS);

    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    listen_with_tls();
    connect_tls_gateway(ctx, SOCKETS - 1); /* what is made once has been made */
    before = heap();
    for (unsigned i = SOCKETS - TLS_SOCKETS; i < SOCKETS - 1; i++)
        connect_tls_gateway(ctx, i);
    settle(20);
    double idle_tls = per(before, TLS_SOCKETS - 1);
    SSL_CTX_free(ctx);
    printf("{\"bytes_per_gateway\":%.0f,\"bytes_per_chat\":%.0f,\"bytes_per_message\":%.0f,"
           "\"bytes_per_idle_socket\":%.0f,\"bytes_per_idle_tls_socket\":%.0f}\n",
           gateway, chat, message, idle, idle_tls);
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    uint64_t events = 0;

    open_all();
    if (strcmp(what, "live") == 0 || strcmp(what, "accept") == 0)
        events = run_posts(what[0] == 'l');
    else if (strcmp(what, "drain") == 0)
        events = run_drain();
    else if (strcmp(what, "send") == 0)
        events = run_send();
    else if (strcmp(what, "memory") == 0)
        run_memory();
    else
        die("budget live|accept|drain|send|memory");
    if (events > 0)
        printf("{\"events\":%llu}\n", (unsigned long long)events);
    remove_socket();
    return 0;
}
