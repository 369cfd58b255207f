/* conform_listen.c - plays the connector for a gateway that dials in.  (conform.h has the
 * contract.) */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/launch.h"
#include "base/mem.h"
#include "cli/conform.h"
#include "core/contract.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/ws.h"

#define MAX_QUEUED (64u << 20)
#define DIAL_TIMEOUTS 9 /* gateways wait up to 30 s between two dials */
#define REDIAL_MS 3000  /* a gateway that goes on dials again after a second */
#define ENDING_MS 12000

struct guest {
    struct list link;
    struct conform *c; /* borrowed */
    struct ws *ws;     /* NULL: closed */
    struct frames frames;
    struct buf message; /* so far */
    unsigned number;
    uint32_t ping, pong;
    int code;
    bool said_hello, sent_close;
};

struct conform_listener {
    struct loop *loop;
    struct http_server *server;
    struct list guests; /* owned */
    unsigned n;
    char where[128], url[160];
    char platform[64]; /* of the last hello */
    char path[256], authorization[1024];
    int64_t dialled_ms; /* wall clock */
    int refuse;
    bool fail_next, hold_idle;
    unsigned sent; /* messages of the gateway */
    pid_t program; /* 0: none runs */
};

/* ---- what the gateway says ---- */

static void say(struct guest *g, const char *line)
{
    if (g->ws == NULL)
        return;
    struct buf *out = ws_send_begin(g->ws);
    buf_add_z(out, line);
    buf_add_c(out, '\n');
    ws_send_end(g->ws);
}

/* The descriptor has a field that no gateway knows. */
static void answer_hello(struct guest *g, struct json frame)
{
    struct conform_listener *l = g->c->listener;
    struct str platform = json_str(frame, "platform");
    struct buf line = BUF_INIT;

    g->said_hello = true;
    snprintf(l->platform, sizeof l->platform, "%.*s",
             STR_FMT(platform.n > 0 ? platform : STR("relay")));
    buf_printf(&line,
               "{\"type\":\"descriptor\",\"descriptor\":{\"contract_version\":1,\"platform\":%s,"
               "\"label\":\"Conformance\",\"max_message_length\":4000,"
               "\"supports_draft_streaming\":false,\"supports_edit\":true,"
               "\"supports_threads\":false,\"markdown_dialect\":\"plain\",\"len_unit\":\"chars\","
               "\"supported_ops\":[\"send\",\"edit\",\"typing\",\"get_chat_info\"],"
               "\"conformance_unknown\":[1,{}]}}",
               quoted(g->c, str_of(l->platform)));
    say(g, buf_z(&line));
    buf_done(&line);
}

static void answer_outbound(struct guest *g, struct json frame)
{
    struct conform_listener *l = g->c->listener;
    bool info = str_eq(json_str(json_get(frame, "action"), "op"), STR("get_chat_info"));
    const char *id = quoted(g->c, json_str(frame, "requestId"));
    struct buf line = BUF_INIT;

    buf_printf(&line, "{\"type\":\"outbound_result\",\"requestId\":%s,\"result\":", id);
    if (l->fail_next)
        buf_add_z(&line, "{\"success\":false,"
                         "\"error\":\"target not routed to an onboarded tenant\"}");
    else if (info)
        buf_add_z(&line, "{\"success\":true,\"chat_info\":{\"name\":\"c\",\"type\":\"dm\"}}");
    else
        buf_printf(&line, "{\"success\":true,\"message_id\":\"sent-%u\"}", ++l->sent);
    buf_add_c(&line, '}');
    l->fail_next = false;
    say(g, buf_z(&line));
    buf_done(&line);
}

/* Looks at the lines that came since the last look, before any obligation takes them. */
static void on_line(void *ctx, struct json frame)
{
    struct guest *g = ctx;
    struct str type = json_str(frame, "type");

    if (str_eq(type, STR("hello")))
        answer_hello(g, frame);
    else if (str_eq(type, STR("outbound")))
        answer_outbound(g, frame);
    else if (str_eq(type, STR("going_idle")) && !g->c->listener->hold_idle)
        say(g, "{\"type\":\"going_idle_ack\"}");
}

/* ---- sockets ---- */

static void on_data(void *ctx, struct str bytes, bool end)
{
    struct guest *g = ctx;

    buf_add_str(&g->message, bytes);
    frames_take(g->c, &g->frames, bytes);
    if (!end)
        return;
    lint(g->c, LINT_SIZE, g->message.n <= CONTRACT_MAX_FRAME, "a message has %zu bytes",
         g->message.n);
    lint(g->c, LINT_UTF8, utf8_valid(buf_str(&g->message)), "a message is not UTF-8");
    buf_reset(&g->message);
}

static void on_pong(void *ctx, uint32_t number)
{
    ((struct guest *)ctx)->pong = number;
}

static void on_closed(void *ctx, int code)
{
    struct guest *g = ctx;

    g->ws = NULL;
    g->code = code;
    g->frames.cut |= code == CLOSE_CODE_LOST;
    frames_end(g->c, &g->frames);
}

static const struct ws_handlers handlers = {.max_message = MAX_QUEUED,
                                            .max_queued = MAX_QUEUED,
                                            .on_data = on_data,
                                            .on_pong = on_pong,
                                            .on_closed = on_closed};

static void accept_guest(struct conform *c, struct http_req *req)
{
    struct conform_listener *l = c->listener;
    struct guest *g = xcalloc(1, sizeof *g);

    g->c = c;
    g->number = ++l->n;
    frames_init(&g->frames, false);
    g->frames.on_line = on_line;
    g->frames.on_line_ctx = g;
    list_init(&g->link);
    list_append(&l->guests, &g->link);
    g->ws = ws_accept(l->server, req, &handlers, g);
}

static void note_dial(struct conform_listener *l, const struct http_req *req)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    l->dialled_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    snprintf(l->path, sizeof l->path, "%.*s%s", STR_FMT(http_path(req)),
             http_raw_query(req).p != NULL ? "?" : "");
    snprintf(l->authorization, sizeof l->authorization, "%.*s",
             STR_FMT(http_header(req, "Authorization").p != NULL ? http_header(req, "Authorization")
                                                                 : STR("")));
}

static void answer_json(struct conform_listener *l, struct http_req *req, int status,
                        const char *json)
{
    http_answer(l->server, http_req_id(req),
                &(struct http_answer){.status = status, .body = str_of(json)});
}

static void handle(void *ctx, struct http_req *req)
{
    struct conform *c = ctx;
    struct conform_listener *l = c->listener;
    struct str path = http_path(req);
    struct buf body = BUF_INIT;

    if (http_is_upgrade(req)) {
        note_dial(l, req);
        if (l->refuse != 0)
            answer_json(l, req, l->refuse, "{\"error\":\"come back later\",\"code\":\"busy\"}");
        else
            accept_guest(c, req);
        l->refuse = 0;
    } else if (str_ends(path, STR("/relay/policy"))) {
        answer_json(l, req, 200, "{\"ok\":true}");
    } else if (str_ends(path, STR("/relay/provision")) || str_ends(path, STR("/relay/enroll"))) {
        buf_printf(&body,
                   "{\"secret\":%s,\"deliveryKey\":\"\",\"tenant\":\"conformance\","
                   "\"gatewayId\":%s,\"routeKeys\":[]}",
                   quoted(c, buf_str(&c->secret)), quoted(c, buf_str(&c->id)));
        answer_json(l, req, 200, buf_z(&body));
    } else {
        answer_json(l, req, 404, "{\"error\":\"not here\",\"code\":\"not_found\"}");
    }
    buf_wipe(&body);
}

/* ---- the program ---- */

bool listen_start_program(struct conform *c, char *ret_why)
{
    static const char *const names[] = {"GATEWAY_RELAY_URL", "GATEWAY_RELAY_ID",
                                        "GATEWAY_RELAY_SECRET"};
    const char *values[] = {c->listener->url, buf_z(&c->id), buf_z(&c->secret)};
    int err;

    if (c->program == NULL)
        return true;
    for (size_t i = 0; i < 3; i++)
        setenv(names[i], values[i], 1);
    err = launch(c->program, environ, (const int[3]){-1, STDERR_FILENO, -1}, &c->listener->program);
    if (err != 0)
        c->listener->program = 0;
    return err == 0 || bh_why(ret_why, "%.100s: %s", c->program[0], strerror(err));
}

static bool has_ended(struct conform_listener *l)
{
    if (l->program != 0 && waitpid(l->program, NULL, WNOHANG) == l->program)
        l->program = 0;
    return l->program == 0;
}

bool listen_stop_program(struct conform *c)
{
    struct conform_listener *l = c->listener;

    if (has_ended(l))
        return false;
    kill(l->program, SIGTERM);
    return true;
}

void listen_end_program(struct conform *c)
{
    struct conform_listener *l = c->listener;
    int64_t until_ms = conform_now_ms() + ENDING_MS;

    l->hold_idle = false;
    if (!listen_stop_program(c))
        return;
    while (!has_ended(l) && conform_now_ms() < until_ms)
        loop_turn(l->loop, 20);
    if (l->program != 0) {
        kill(-l->program, SIGKILL);
        waitpid(l->program, NULL, 0);
        l->program = 0;
    }
}

/* ---- life ---- */

static bool begin(struct conform *c, char *ret_why)
{
    struct conform_listener *l = c->listener;

    l->server = http_server_new(l->loop, &http_limits_default, handle, c);
    return http_server_listen(l->server, str_of(l->where), NULL, 0600, ret_why) == BH_OK;
}

bool listen_open(struct conform *c, const char *where, char *ret_why)
{
    struct conform_listener *l = c->listener = xcalloc(1, sizeof *l);
    struct str host = str_of(where);

    list_init(&l->guests);
    l->loop = loop_new();
    if (l->loop == NULL)
        return bh_why(ret_why, "no descriptor is left");
    snprintf(l->where, sizeof l->where, "%s", where);
    snprintf(l->platform, sizeof l->platform, "relay");
    if (!begin(c, ret_why))
        return false;
    while (host.n > 0 && host.p[host.n - 1] != ':')
        host.n--;
    host.n -= host.n > 0;
    snprintf(l->where, sizeof l->where, "%.*s:%d", STR_FMT(host), http_server_port(l->server));
    bool any = host.n == 0 || str_eq(host, STR("0.0.0.0")) || str_eq(host, STR("*"));
    snprintf(l->url, sizeof l->url, "http://%.*s:%d", STR_FMT(any ? STR("127.0.0.1") : host),
             http_server_port(l->server));
    return listen_start_program(c, ret_why);
}

const char *listen_url(const struct conform *c)
{
    return c->listener->url;
}

bool listen_restart(struct conform *c, char *ret_why)
{
    http_server_free(c->listener->server);
    return begin(c, ret_why);
}

void listen_close(struct conform *c)
{
    struct conform_listener *l = c->listener;

    if (l == NULL)
        return;
    if (l->server != NULL)
        listen_end_program(c);
    http_server_free(l->server);
    list_each (&l->guests, it, nxt) {
        struct guest *g = list_entry(it, struct guest, link);
        frames_done(&g->frames);
        buf_done(&g->message);
        list_remove(&g->link);
        free(g);
    }
    if (l->loop != NULL)
        loop_free(l->loop);
    free(l);
    c->listener = NULL;
}

void listen_refuse(struct conform *c, int status)
{
    c->listener->refuse = status;
}

void listen_fail_next(struct conform *c)
{
    c->listener->fail_next = true;
}

void listen_hold_idle(struct conform *c, bool yes)
{
    c->listener->hold_idle = yes;
}

void listen_wait(struct conform *c, int64_t until_ms)
{
    int64_t left;

    while ((left = until_ms - conform_now_ms()) > 0)
        loop_turn(c->listener->loop, left < 50 ? left : 50);
}

/* ---- guests ---- */

unsigned guest_number(const struct guest *g)
{
    return g->number;
}

struct guest_dial guest_dialled(const struct conform *c)
{
    const struct conform_listener *l = c->listener;

    return (struct guest_dial){l->path, l->authorization, l->dialled_ms};
}

struct guest *guest_wait(struct conform *c, unsigned after)
{
    struct conform_listener *l = c->listener;
    int64_t patience_ms = DIAL_TIMEOUTS * c->timeout_ms, until_ms = conform_now_ms() + patience_ms;
    bool dials = true;

    while (conform_now_ms() < until_ms && dials) {
        for (struct list *it = l->guests.prev; it != &l->guests; it = it->prev) {
            struct guest *g = list_entry(it, struct guest, link);
            if (g->number > after && g->ws != NULL && g->said_hello && !g->sent_close)
                return g;
        }
        loop_turn(l->loop, 50);
        dials = c->program == NULL || !has_ended(l);
    }
    came(c, false, dials ? "no gateway dialled and said hello within %d s" : "the program ended",
         (int)(patience_ms / 1000));
    return NULL;
}

bool listen_redial_pause(struct conform *c)
{
    unsigned before = c->listener->n;

    listen_wait(c, conform_now_ms() + REDIAL_MS);
    return c->listener->n == before;
}

void guest_send(struct guest *g, struct str message)
{
    if (g->ws != NULL)
        ws_send(g->ws, message);
}

void guest_inbound(struct guest *g, struct buf *out, const char *id, const char *chat,
                   const char *text, const char *source)
{
    struct conform *c = g->c;
    const char *in = quoted(c, str_of(chat)), *platform = quoted(c, str_of(c->listener->platform));

    buf_add_z(out, "{\"type\":\"inbound\",");
    if (id != NULL)
        buf_printf(out, "\"bufferId\":%s,", quoted(c, str_of(id)));
    buf_printf(out,
               "\"event\":{\"text\":%s,\"message_type\":\"text\",\"message_id\":\"m-%s\","
               "\"reply_to_message_id\":null,\"media_urls\":[],\"conformance_unknown\":{},"
               "\"source\":{\"platform\":%s,\"chat_id\":%s,\"chat_type\":\"dm\","
               "\"chat_name\":null,\"user_id\":\"conformance-user\",\"user_name\":\"Ann\","
               "\"chat_topic\":null%s}}}\n",
               quoted(c, str_of(text)), id != NULL ? id : "none", platform, in, source);
}

void guest_deliver(struct guest *g, const char *id, const char *chat, const char *text,
                   const char *source)
{
    struct buf line = BUF_INIT;

    guest_inbound(g, &line, id, chat, text, source);
    guest_send(g, buf_str(&line));
    buf_done(&line);
}

struct json guest_next(struct guest *g, const char *type)
{
    int64_t until_ms = conform_now_ms() + g->c->timeout_ms;

    for (;;) {
        struct json doc = frames_next(&g->frames, type);
        if (json_type(doc) != JSON_ABSENT || g->ws == NULL || conform_now_ms() >= until_ms)
            return doc;
        loop_turn(g->c->listener->loop, 20);
    }
}

bool guest_quiet(struct guest *g, const char *type)
{
    int64_t until_ms = conform_now_ms() + g->c->quiet_ms;

    while (frames_count(&g->frames, type) == 0 && conform_now_ms() < until_ms)
        loop_turn(g->c->listener->loop, 20);
    return frames_count(&g->frames, type) == 0;
}

bool guest_acks(struct guest *g, const char *id)
{
    struct json frame;

    do
        frame = guest_next(g, "inbound_ack");
    while (json_type(frame) != JSON_ABSENT && !str_eq(json_str(frame, "bufferId"), str_of(id)));
    return json_type(frame) != JSON_ABSENT;
}

struct json guest_answers(struct guest *g, const char *chat)
{
    struct json frame, action;

    do {
        frame = guest_next(g, "outbound");
        action = json_get(frame, "action");
    } while (json_type(frame) != JSON_ABSENT &&
             !(str_eq(json_str(action, "op"), STR("send")) &&
               str_eq(json_str(action, "chat_id"), str_of(chat))));
    return action;
}

bool guest_pong(struct guest *g)
{
    int64_t until_ms = conform_now_ms() + g->c->timeout_ms;

    if (g->ws != NULL)
        ws_ping(g->ws, ++g->ping);
    while (g->ws != NULL && g->pong != g->ping && conform_now_ms() < until_ms)
        loop_turn(g->c->listener->loop, 20);
    return g->ws != NULL && g->pong == g->ping;
}

void guest_close(struct guest *g, int code)
{
    g->sent_close = true;
    if (g->ws != NULL)
        ws_close(g->ws, code, "conformance");
}

int guest_closed(struct guest *g)
{
    int64_t until_ms = conform_now_ms() + g->c->timeout_ms;

    while (g->ws != NULL && conform_now_ms() < until_ms)
        loop_turn(g->c->listener->loop, 20);
    return g->ws == NULL ? g->code : 0;
}
