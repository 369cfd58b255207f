/* conform_peer.c - plays the gateway: sockets to somebody's connector, a person who writes, HTTP.
 * (conform.h has the contract.)
 *
 * The connections are those of the gateway library (sdk/src/conn.h), used from one thread.  While
 * one socket waits, the others are read too, and pings are answered. */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/launch.h"
#include "base/mem.h"
#include "base/rand.h"
#include "cli/conform.h"
#include "core/contract.h"
#include "core/token.h"
#include "net/http_client.h"
#include "sdk/src/conn.h"
#include "sdk/src/options.h"

#define MAX_MESSAGE (64u << 20)
#define TOKEN_S 300
#define SETTLE_MS 150 /* what an earlier obligation left comes again within this time */
#define PERSON_MS 30000

struct peer {
    struct list link;
    struct conform *c; /* borrowed */
    struct gwc_conn conn;
    struct frames frames;
    char key[WS_DIAL_KEY_BYTES];
    int status, code;
    bool upgraded, over, sent_close;
    uint64_t messages;
    size_t message_n;   /* bytes of the message that is coming */
    struct buf message; /* a text so far, for its UTF-8 */
    struct buf pong;    /* the payload of the pong that came last */
    unsigned requests;
};

/* ---- reading and writing ---- */

static void end_peer(struct peer *p, int code)
{
    if (p->over)
        return;
    p->over = true;
    if (p->upgraded)
        p->code = code;
    gwc_conn_close(&p->conn);
}

static void take_data(struct peer *p, const struct ws_decoded *it)
{
    struct conform *c = p->c;

    p->message_n += it->bytes.n;
    buf_add_str(&p->message, it->bytes);
    frames_take(c, &p->frames, it->bytes);
    if (!it->end)
        return;
    p->messages++;
    lint(c, LINT_SIZE, p->message_n <= CONTRACT_MAX_FRAME, "a message has %zu bytes", p->message_n);
    lint(c, LINT_UTF8, utf8_valid(buf_str(&p->message)), "a message is not UTF-8");
    p->message_n = 0;
    buf_reset(&p->message);
}

static void take_item(struct peer *p, const struct ws_decoded *it)
{
    switch (it->item) {
    case WS_ITEM_DATA:
        take_data(p, it);
        break;
    case WS_ITEM_PING:
        gwc_conn_add_frame(&p->conn, WS_PONG, it->bytes);
        break;
    case WS_ITEM_PONG:
        buf_reset(&p->pong);
        buf_add_str(&p->pong, it->bytes);
        break;
    case WS_ITEM_CLOSE:
        if (!p->sent_close)
            gwc_conn_add_close(&p->conn, it->code);
        gwc_conn_flush(&p->conn);
        end_peer(p, it->code);
        break;
    case WS_ITEM_BAD:
        end_peer(p, CLOSE_CODE_PROTOCOL);
        break;
    default:
        break;
    }
}

static void take_head(struct peer *p, char **at, size_t *n)
{
    size_t had = p->conn.head.n;

    buf_add(&p->conn.head, *at, *n);
    size_t head = ws_dial_head_bytes(buf_str(&p->conn.head));
    if (head == 0) {
        *n = 0;
        if (p->conn.head.n > WS_DIAL_HEAD_MAX)
            end_peer(p, 0);
        return;
    }
    *at += head - had;
    *n -= head - had;
    p->status = 101;
    p->upgraded = ws_dial_accepted(str_make(p->conn.head.p, head), str_of(p->key), &p->status);
    if (!p->upgraded)
        end_peer(p, 0);
    else
        ws_decoder_init(&p->conn.decoder, false, MAX_MESSAGE);
}

static void read_peer(struct peer *p)
{
    static char room[65536];
    size_t n;

    while (!p->over) {
        enum gwc_io io = gwc_conn_read(&p->conn, room, sizeof room, &n);
        char *at = room;
        if (io == GWC_IO_AGAIN)
            return;
        if (io == GWC_IO_FAILED) {
            end_peer(p, CLOSE_CODE_LOST);
            return;
        }
        if (!p->upgraded)
            take_head(p, &at, &n);
        while (!p->over && p->upgraded) {
            struct ws_decoded it = ws_decode(&p->conn.decoder, &at, &n);
            if (it.item == WS_ITEM_MORE)
                break;
            take_item(p, &it);
        }
    }
}

/* Waits until a socket has news, at most until @until_ms, and reads all sockets. */
static void step(struct conform *c, int64_t until_ms)
{
    struct pollfd fds[32];
    int64_t left = until_ms - conform_now_ms();
    nfds_t n = 0;

    list_each (&c->peers, it, nxt) {
        struct peer *p = list_entry(it, struct peer, link);
        if (p->over || n == sizeof fds / sizeof fds[0])
            continue;
        enum gwc_io io = gwc_conn_flush(&p->conn);
        fds[n++] = (struct pollfd){.fd = (int)p->conn.fd,
                                   .events = (short)(POLLIN | (io == GWC_IO_AGAIN ? POLLOUT : 0))};
    }
    poll(fds, n, left > 0 ? (int)left : 0);
    list_each (&c->peers, it, nxt)
        read_peer(list_entry(it, struct peer, link));
}

/* ---- dialling ---- */

static bool connect_peer(struct peer *p)
{
    struct conform *c = p->c;
    int64_t until_ms = conform_now_ms() + c->timeout_ms;
    enum gwc_io io;

    if (!gwc_conn_dial(&p->conn, c->url->dial, c->ca_file, c->timeout_ms))
        return came(c, false, "cannot dial %s", c->url->dial);
    while ((io = gwc_conn_dial_step(&p->conn)) == GWC_IO_AGAIN && conform_now_ms() < until_ms)
        gwc_conn_dial_wait(&p->conn, -1, 100);
    return io == GWC_IO_DONE ||
           came(c, false, "no connection: %s",
                p->conn.curl_error[0] != '\0' ? p->conn.curl_error : "it took too long");
}

static void mint(struct conform *c, struct buf *out)
{
    token_mint(out, buf_str(&c->id), buf_str(&c->secret), (int64_t)time(NULL) + TOKEN_S);
}

static void upgrade(struct peer *p, const struct peer_dial *how)
{
    struct conform *c = p->c;
    struct buf request = BUF_INIT, line = BUF_INIT;
    const char *headers[] = {NULL, NULL};
    int64_t until_ms = conform_now_ms() + c->timeout_ms;

    buf_add_z(&line, "Authorization: Bearer ");
    if (how->token != NULL)
        buf_add_z(&line, how->token);
    else
        mint(c, &line);
    if (how->token == NULL || how->token[0] != '\0')
        headers[0] = buf_z(&line);
    struct ws_dial dial = {.target = str_of(how->path != NULL ? how->path : c->url->path),
                           .host = str_of(c->url->host),
                           .user_agent = STR("bellhop-conformance"),
                           .headers = headers};
    ws_dial_request(&request, &dial, p->key);
    gwc_conn_add(&p->conn, buf_str(&request));
    buf_wipe(&request);
    buf_wipe(&line);
    while (!p->over && !p->upgraded && conform_now_ms() < until_ms)
        step(c, until_ms);
}

struct peer *peer_dial(struct conform *c, const struct peer_dial *how)
{
    struct peer *p = xcalloc(1, sizeof *p);

    p->c = c;
    p->conn.fd = CURL_SOCKET_BAD;
    frames_init(&p->frames, true);
    list_init(&p->link);
    list_append(&c->peers, &p->link);
    if (!connect_peer(p)) {
        end_peer(p, 0);
        return NULL;
    }
    upgrade(p, how);
    if (p->upgraded && !how->no_hello)
        peer_hello(p);
    return p;
}

struct peer *peer_open(struct conform *c)
{
    struct peer *p = peer_dial(c, &(struct peer_dial){0});

    if (p == NULL)
        return NULL;
    if (!p->upgraded) {
        came(c, false, "the upgrade with a good token was answered with HTTP %d", p->status);
        return NULL;
    }
    if (json_type(peer_next(p, "descriptor")) == JSON_ABSENT) {
        came(c, false, "no descriptor came%s", p->over ? "; the socket was closed" : "");
        return NULL;
    }
    return p;
}

struct peer *peer_fresh(struct conform *c)
{
    struct peer *p = peer_open(c);
    int64_t until_ms = conform_now_ms() + c->timeout_ms, quiet_ms;
    struct json frame;

    if (p == NULL || c->unacked == 0)
        return p;
    quiet_ms = conform_now_ms() + SETTLE_MS;
    while (!p->over && conform_now_ms() < quiet_ms && conform_now_ms() < until_ms) {
        step(c, quiet_ms);
        while (json_type(frame = frames_next(&p->frames, "inbound")) != JSON_ABSENT) {
            peer_ack(p, frame);
            quiet_ms = conform_now_ms() + SETTLE_MS;
        }
    }
    c->unacked = 0;
    return p;
}

int peer_status(const struct peer *p)
{
    return p->upgraded ? 101 : p->status;
}

int peer_code(const struct peer *p)
{
    return p->code;
}

struct frames *peer_frames(struct peer *p)
{
    return &p->frames;
}

uint64_t peer_messages(const struct peer *p)
{
    return p->messages;
}

/* ---- saying ---- */

void peer_frame(struct peer *p, enum ws_op op, bool fin, struct str bytes)
{
    static const uint8_t mask[4] = {0}; /* a mask of zeros changes nothing */

    if (p->over)
        return;
    ws_frame_head(&p->conn.out, op, fin, bytes.n, mask);
    buf_add_str(&p->conn.out, bytes);
    gwc_conn_flush(&p->conn);
}

void peer_send(struct peer *p, struct str message)
{
    peer_frame(p, WS_TEXT, true, message);
}

void peer_say(struct peer *p, const char *fmt, ...)
{
    struct buf line = BUF_INIT;
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) >= 0)
        buf_printf(&line, "%s\n", text);
    va_end(ap);
    peer_send(p, buf_str(&line));
    free(text);
    buf_done(&line);
}

void peer_hello(struct peer *p)
{
    peer_say(p, "{\"type\":\"hello\",\"platform\":\"%.*s\",\"botId\":\"%.*s\"}",
             STR_FMT(p->c->platform), STR_FMT(p->c->bot));
}

void peer_close(struct peer *p, int code)
{
    if (p->over || p->sent_close)
        return;
    p->sent_close = true;
    gwc_conn_add_close(&p->conn, code);
    gwc_conn_flush(&p->conn);
}

void peer_cut(struct peer *p)
{
    p->frames.cut = true;
    end_peer(p, CLOSE_CODE_LOST);
}

/* ---- waiting ---- */

struct json peer_next(struct peer *p, const char *type)
{
    int64_t until_ms = conform_now_ms() + p->c->timeout_ms;

    for (;;) {
        struct json doc = frames_next(&p->frames, type);
        if (json_type(doc) != JSON_ABSENT || p->over || conform_now_ms() >= until_ms)
            return doc;
        step(p->c, until_ms);
    }
}

bool peer_quiet(struct peer *p, const char *type)
{
    int64_t until_ms = conform_now_ms() + p->c->quiet_ms;

    while (!p->over && frames_count(&p->frames, type) == 0 && conform_now_ms() < until_ms)
        step(p->c, until_ms);
    return frames_count(&p->frames, type) == 0;
}

bool peer_pong(struct peer *p, struct str payload)
{
    int64_t until_ms = conform_now_ms() + p->c->timeout_ms;

    while (!p->over && !str_eq(buf_str(&p->pong), payload) && conform_now_ms() < until_ms)
        step(p->c, until_ms);
    return str_eq(buf_str(&p->pong), payload);
}

int peer_closed(struct peer *p)
{
    int64_t until_ms = conform_now_ms() + p->c->timeout_ms;

    while (!p->over && conform_now_ms() < until_ms)
        step(p->c, until_ms);
    return p->over ? p->code : 0;
}

void peers_close(struct conform *c)
{
    int64_t until_ms = conform_now_ms() + SETTLE_MS;
    bool open = true;

    list_each (&c->peers, it, nxt)
        peer_close(list_entry(it, struct peer, link), CLOSE_CODE_NORMAL);
    while (open && conform_now_ms() < until_ms) {
        open = false;
        list_each (&c->peers, it, nxt)
            open |= !list_entry(it, struct peer, link)->over;
        if (open)
            step(c, until_ms);
    }
    list_each (&c->peers, it, nxt) {
        struct peer *p = list_entry(it, struct peer, link);
        p->frames.cut |= !p->over; /* it did not answer our close: it may be in a line */
        c->unacked += frames_count(&p->frames, "inbound");
        gwc_conn_done(&p->conn);
        frames_end(c, &p->frames);
        frames_done(&p->frames);
        buf_done(&p->message);
        buf_done(&p->pong);
        list_remove(&p->link);
        free(p);
    }
}

/* ---- deliveries and actions ---- */

void peer_ack(struct peer *p, struct json inbound)
{
    struct str id = json_str(inbound, "bufferId");
    struct buf line = BUF_INIT;
    struct jw w = jw_begin(&line);

    if (id.n == 0)
        return;
    p->c->unacked -= p->c->unacked > 0;
    jw_obj(&w);
    jw_kstr(&w, "type", STR("inbound_ack"));
    jw_kstr(&w, "bufferId", id);
    jw_end_obj(&w);
    peer_say(p, "%s", buf_z(&line));
    buf_done(&line);
}

static bool text_has(struct json inbound, const char *text)
{
    struct str is = json_str(json_get(inbound, "event"), "text");

    return is.n > 0 && memmem(is.p, is.n, text, strlen(text)) != NULL;
}

struct json peer_hear(struct peer *p, const char *text)
{
    struct json frame;

    do {
        frame = peer_next(p, "inbound");
        bool stale = json_type(frame) != JSON_ABSENT && !text_has(frame, text);
        p->c->unacked += json_type(frame) != JSON_ABSENT;
        if (!stale)
            return frame;
        peer_ack(p, frame);
    } while (true);
}

struct json peer_act(struct peer *p, const char *fmt, ...)
{
    char id[64];
    char *action = NULL;
    va_list ap;
    struct json frame = {0};

    snprintf(id, sizeof id, "conformance-%u-%u", p->c->number, ++p->requests);
    va_start(ap, fmt);
    if (vasprintf(&action, fmt, ap) < 0)
        action = NULL;
    va_end(ap);
    frames_asked(&p->frames, str_of(id));
    peer_say(p, "{\"type\":\"outbound\",\"requestId\":\"%s\",%s}", id, action);
    free(action);
    do
        frame = peer_next(p, "outbound_result");
    while (json_type(frame) != JSON_ABSENT && !str_eq(json_str(frame, "requestId"), str_of(id)));
    return json_get(frame, "result");
}

/* ---- a person ---- */

const char *person_text(struct conform *c, const char *what)
{
    struct buf text = BUF_INIT;

    buf_printf(&text, "conformance %u %s", c->number, what);
    const char *kept = arena_str(&c->arena, buf_str(&text)).p;
    buf_done(&text);
    return kept;
}

static bool run_person(struct conform *c, const char *text)
{
    size_t n = 0;
    int status = 0, err;
    pid_t pid;

    while (c->program[n] != NULL)
        n++;
    char **argv = xcalloc(n + 2, sizeof *argv);
    memcpy(argv, c->program, n * sizeof *argv);
    argv[n] = (char *)(uintptr_t)text;
    err = launch(argv, environ, (const int[3]){-1, STDERR_FILENO, -1}, &pid);
    free(argv);
    if (err != 0)
        return came(c, false, "the person's program cannot be run: %s", strerror(err));
    for (int64_t until_ms = conform_now_ms() + PERSON_MS; waitpid(pid, &status, WNOHANG) == 0;) {
        if (conform_now_ms() > until_ms)
            kill(-pid, SIGKILL);
        step(c, conform_now_ms() + 5);
    }
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
           came(c, false, "the person's program failed (status %d)", status);
}

bool person_says(struct conform *c, const char *text)
{
    if (c->control == NULL)
        return run_person(c, text);
    return cli_op(c->j, "say", CLI_GIVEN({"text", str_of(text)})) == CLI_DONE ||
           came(c, false, "the person's message was not taken");
}

bool person_sends(struct conform *c, const char *event_json)
{
    return cli_op(c->j, "say", CLI_GIVEN({"event", str_of(event_json)})) == CLI_DONE ||
           came(c, false, "the person's event was not taken");
}

/* ---- HTTP ---- */

bool conform_http(struct conform *c, const struct conform_http *rq, int *ret_status,
                  struct buf *ret_body)
{
    struct buf url = BUF_INIT, bearer = BUF_INIT, type = BUF_INIT;
    char why[256] = "";

    buf_printf(&url, "%s%s", c->url->http, rq->path);
    buf_printf(&type, "Content-Type: %s", rq->type != NULL ? rq->type : "application/json");
    buf_add_z(&bearer, "Authorization: Bearer ");
    if (rq->token != NULL)
        buf_add_z(&bearer, rq->token);
    else
        mint(c, &bearer);
    bool anonymous = rq->token != NULL && rq->token[0] == '\0';
    const char *headers[] = {buf_z(&type), anonymous ? NULL : buf_z(&bearer), NULL};
    struct http_fetch fetch = {.method = rq->method,
                               .url = buf_z(&url),
                               .headers = headers,
                               .body = rq->body,
                               .ca_path = c->ca_file,
                               .timeout_ms = c->timeout_ms};
    enum bh_err err = http_fetch_now(&fetch, ret_status, ret_body, why);
    buf_done(&url);
    buf_done(&type);
    buf_wipe(&bearer);
    return err == BH_OK || came(c, false, "no answer: %s", why);
}

bool conform_provision(struct conform *c, char *ret_why)
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT, answer = BUF_INIT;
    struct rand rand = RAND_SYSTEM;
    struct json doc;
    char sent[32];
    int status = 0;

    snprintf(sent, sizeof sent, "conformance-%08x", (unsigned)rand_u64(&rand));
    buf_printf(&body,
               "{\"gatewayId\":\"%s\",\"platform\":\"relay\",\"botId\":\"\","
               "\"gatewayEndpoint\":\"\",\"routeKeys\":[]}",
               sent);
    struct conform_http rq = {.method = "POST",
                              .path = "/relay/provision",
                              .token = buf_z(&c->bearer),
                              .body = buf_str(&body)};
    bool ok = conform_http(c, &rq, &status, &answer);
    if (!ok)
        bh_why(ret_why, "%s", buf_z(&c->came));
    else if (!(ok = json_parse(parser, buf_str(&answer), &doc) && status / 100 == 2 &&
                    json_str(doc, "secret").n > 0))
        bh_why(ret_why, "POST /relay/provision answered HTTP %d", status);
    if (ok) {
        struct str id = json_str(doc, "gatewayId");
        buf_add_str(&c->id, id.n > 0 ? id : str_of(sent));
        buf_add_str(&c->secret, json_str(doc, "secret"));
    }
    json_parser_free(parser);
    buf_done(&body);
    buf_wipe(&answer);
    return ok;
}
