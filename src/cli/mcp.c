/* mcp.c - bellhop mcp: the Model Context Protocol over standard input and output.
 *
 * A bridge: each input line is posted to the server's /mcp, and each reply becomes an output line.
 * Several requests may be in flight, so a slow one does not delay others.  Replies come in the
 * order they are ready, as the protocol allows.  Standard output carries only messages.
 *
 *      older versions   initialize -> the session and its version go with every later request; its
 *                       event stream (GET) is kept open, and after a break its subscriptions are
 *                       made again
 *      newer versions   the headers repeat what the line says; subscriptions/listen stays open
 *                       until the client cancels it
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "agent/channel.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "net/http_client.h"
#include "net/loop.h"

#define LINE_MAX_BYTES ((size_t)1 << 20)
#define IN_FLIGHT_MAX 64 /* requests in flight; at the limit the bridge stops reading */
#define LISTEN_MAX 64    /* streams of subscriptions/listen; the server's limit is lower */
#define POST_MS 600000
#define STREAM_MS INT32_MAX /* 24 days; SILENCE_MS ends a dead one */
#define SILENCE_MS 60000    /* the server says something every 15 s */
#define AGAIN_MS 2000       /* until a broken event stream is opened again */
#define SUBSCRIBED_MAX 64
#define HEADERS_MAX 10

struct bridge {
    struct loop *loop;
    struct http_client *http;
    struct json_parser *parser;
    struct cli_door *door; /* borrowed */
    struct loop_fd *in;    /* NULL: not reading now */
    struct buf line;       /* what has arrived of the next one */
    struct buf url, sock;  /* where to */
    struct list posts;     /* struct mcp_post; owned */
    size_t n_posts;        /* without streams */
    size_t n_listens;
    char *session;           /* owned; NULL: none yet */
    char *version;           /* owned; of the session */
    struct mcp_post *events; /* the session's event stream; NULL: none now */
    struct timer again;      /* opens it again */
    struct timer subscribe;  /* makes its subscriptions again */
    struct timer look;       /* ends silent streams */
    struct list subscribed;  /* struct subscribed, owned: the session's */
    size_t n_subscribed;
    bool ended; /* no more input */
    int rc;
};

enum post_kind {
    POST_CALL,
    POST_LISTEN, /* subscriptions/listen: its answer is a stream */
    POST_EVENTS, /* the event stream of the session */
    POST_AGAIN,  /* a subscription made again: nobody waits for the answer */
};
struct mcp_post {
    struct list link;
    struct bridge *b; /* borrowed */
    struct http_call *call;
    enum post_kind kind;
    bool stateless;   /* of a newer version */
    bool answered;    /* POST_LISTEN: its response is among the messages that came */
    bool is_json;     /* POST_LISTEN: the answer is no stream but a response */
    bool heard;       /* something came */
    int64_t heard_ms; /* when the newest came, or the request left */
    struct buf id;    /* JSON of the request's id; empty: a notification */
    struct buf got;   /* of a stream: a piece of the next line; POST_AGAIN: the URI */
};

struct subscribed { /* a line of resources/subscribe */
    struct list link;
    struct buf uri, line;
};

struct about { /* what a line says; borrowed from the parser */
    struct str method, name, version, uri;
    struct json id, cancels;
};

static struct about read_about(struct bridge *b, struct str line)
{
    struct about a = {0};
    struct json doc;

    if (!json_parse(b->parser, line, &doc))
        return a;
    struct json params = json_get(doc, "params");
    a.uri = json_str(params, "uri");
    a.name = json_str(params, "name");
    a.version = json_str(json_get(params, "_meta"), "io.modelcontextprotocol/protocolVersion");
    a.method = json_str(doc, "method");
    if (a.method.p == NULL)
        return a; /* an answer: its id is one of the server's */
    a.id = json_get(doc, "id");
    if (str_eq(a.method, STR("resources/read")))
        a.name = a.uri;
    if (str_eq(a.method, STR("notifications/cancelled")))
        a.cancels = json_get(params, "requestId");
    return a;
}

static void finish_if_done(struct bridge *b)
{
    if (b->ended && b->n_posts == 0)
        loop_stop(b->loop);
}

/* Writes a whole line; stops the bridge when the reader is gone. */
static void say(struct bridge *b, struct str line)
{
    fwrite(line.p, 1, line.n, stdout);
    fputc('\n', stdout);
    if (fflush(stdout) != 0) {
        b->rc = CLI_FAILED;
        loop_stop(b->loop);
    }
}

static void say_error(struct bridge *b, const struct buf *id, const char *what, struct str why)
{
    struct buf out = BUF_INIT, text = BUF_INIT;
    struct jw w = jw_begin(&out);

    buf_printf(&text, "%s%.*s", what, STR_FMT(why));
    jw_obj(&w);
    jw_kstr(&w, "jsonrpc", STR("2.0"));
    jw_kraw(&w, "id", buf_str(id));
    jw_kobj(&w, "error");
    jw_ki64(&w, "code", -32603);
    jw_kstr(&w, "message", buf_str(&text));
    jw_end_obj(&w);
    jw_end_obj(&w);
    say(b, buf_str(&out));
    buf_done(&out);
    buf_done(&text);
}

static void say_no_answer(struct bridge *b, const struct buf *id, const char *why)
{
    struct buf what = BUF_INIT;

    if (b->sock.n > 0)
        buf_printf(&what,
                   "no bellhop answers at %s; start it with bellhop serve, or name it with "
                   "--url URL or --state-dir DIR: ",
                   buf_z(&b->sock));
    else
        buf_printf(&what, "no bellhop answers at %s: ", buf_z(&b->url));
    say_error(b, id, buf_z(&what), str_of(why));
    buf_done(&what);
}

/* Called after the event stream was broken: the changes in between are not known. */
static void say_updated(struct bridge *b, struct str uri)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_obj(&w);
    jw_kstr(&w, "jsonrpc", STR("2.0"));
    jw_kstr(&w, "method", STR("notifications/resources/updated"));
    jw_kobj(&w, "params");
    jw_kstr(&w, "uri", uri);
    jw_end_obj(&w);
    jw_end_obj(&w);
    say(b, buf_str(&out));
    buf_done(&out);
}

static void read_on(struct bridge *b);
static void open_events(struct bridge *b);
static http_done_cb on_answer;

/* ---- streams ---- */

static bool is_response(struct bridge *b, struct str message)
{
    struct json doc;

    return json_parse(b->parser, message, &doc) && json_str(doc, "method").p == NULL;
}

/* Prints every message of an event stream; each is one line. */
static enum http_take on_data(void *ctx, const struct http_result *head, struct str bytes)
{
    struct mcp_post *p = ctx;
    bool first = !p->heard;
    const char *end;

    p->heard = true;
    p->heard_ms = clock_now_ms(loop_clock(p->b->loop));
    buf_add_str(&p->got, bytes);
    p->is_json = !str_contains(http_result_header(head, "Content-Type"), STR("event-stream"));
    while (!p->is_json && p->got.n > 0 && (end = memchr(p->got.p, '\n', p->got.n)) != NULL) {
        struct str line = str_make(p->got.p, (size_t)(end - p->got.p));
        struct str message = str_trim(str_skip(line, 5));
        if (str_starts(line, STR("data:"))) {
            p->answered |= p->kind == POST_LISTEN && is_response(p->b, message);
            say(p->b, message);
        }
        buf_consume(&p->got, line.n + 1);
    }
    if (first && p->kind == POST_EVENTS) /* no request may begin inside this one */
        timer_set(loop_clock(p->b->loop), &p->b->subscribe, 0);
    return p->got.n > LINE_MAX_BYTES ? HTTP_STOP : HTTP_TOOK;
}

static void on_look(struct timer *t)
{
    struct bridge *b = container_of(t, struct bridge, look);
    int64_t now_ms = clock_now_ms(loop_clock(b->loop));

    timer_set(loop_clock(b->loop), t, SILENCE_MS / 4);
    list_each (&b->posts, it, nxt) {
        struct mcp_post *p = list_entry(it, struct mcp_post, link);
        bool silent = now_ms - p->heard_ms > SILENCE_MS;
        if (silent && (p->kind == POST_LISTEN || p->kind == POST_EVENTS)) {
            http_cancel(&p->call);
            on_answer(p, &(struct http_result){.err = BH_UNKNOWN, .why = "it is silent"});
        }
    }
}

/* ---- answers ---- */

static void post_free(struct mcp_post *p)
{
    struct bridge *b = p->b;

    if (p->kind == POST_LISTEN)
        b->n_listens--;
    else if (p->kind == POST_EVENTS)
        b->events = NULL;
    else
        b->n_posts--;
    http_cancel(&p->call);
    list_remove(&p->link);
    buf_done(&p->id);
    buf_done(&p->got);
    free(p);
}

static void forget_subscription(struct bridge *b, struct subscribed *s)
{
    list_remove(&s->link);
    buf_done(&s->uri);
    buf_done(&s->line);
    free(s);
    b->n_subscribed--;
}

/* initialize was answered: the session begins. */
static void begin_session(struct bridge *b, struct str session, struct str body)
{
    struct json doc = {0};
    bool ok = json_parse(b->parser, body, &doc);
    struct str version = ok ? json_str(json_get(doc, "result"), "protocolVersion") : STR_NULL;

    if (b->events != NULL)
        post_free(b->events); /* of an earlier session */
    list_each (&b->subscribed, it, nxt)
        forget_subscription(b, list_entry(it, struct subscribed, link));
    free(b->session);
    free(b->version);
    b->session = str_dup(session);
    b->version = str_dup_opt(version);
    open_events(b);
}

static void on_answer(void *ctx, const struct http_result *r)
{
    struct mcp_post *p = ctx;
    struct bridge *b = p->b;
    struct str session = r->call != NULL ? http_result_header(r, "Mcp-Session-Id") : STR_NULL;
    struct str body = p->is_json ? buf_str(&p->got) : r->body;
    bool is_reply = r->err == BH_OK && !str_is_empty(body) &&
                    str_contains(body, STR("\"jsonrpc\"")) &&
                    (r->status == 200 || r->status == 400 || r->status == 404);
    bool again = p->kind == POST_EVENTS &&
                 (r->err != BH_OK || r->status == 200 || r->status == 429 || r->status == 503);

    p->call = NULL;
    if (p->kind == POST_AGAIN && r->status == 200)
        say_updated(b, buf_str(&p->got));
    else if (p->kind == POST_EVENTS || p->kind == POST_AGAIN || p->answered)
        ;
    else if (is_reply)
        say(b, body);
    else if (p->id.n > 0 && r->err != BH_OK)
        say_no_answer(b, &p->id, r->why);
    else if (p->id.n > 0 && p->kind == POST_LISTEN && r->status == 200)
        say_error(b, &p->id, "bellhop ended the stream", STR_NULL);
    else if (p->id.n > 0)
        say_error(b, &p->id, "bellhop refused: ", r->body);
    if (session.p != NULL && p->kind == POST_CALL)
        begin_session(b, session, body);
    post_free(p);
    if (again)
        timer_set(loop_clock(b->loop), &b->again, AGAIN_MS);
    read_on(b);
    finish_if_done(b);
}

/* ---- requests ---- */

struct post_headers {
    const char *all[HEADERS_MAX + 1];
    size_t n;
    struct buf lines[4]; /* owned */
    size_t n_lines;
};

/* Adds a header, unless its value is absent.  A value that no header may have is sent as base64,
 * which the protocol allows for names. */
static void add_header(struct post_headers *h, const char *name, struct str value)
{
    struct buf *line = &h->lines[h->n_lines];
    bool plain = str_until_control(value) == value.n && !str_starts(value, STR("=?base64?"));

    for (size_t i = 0; i < value.n; i++)
        plain = plain && (signed char)value.p[i] > ' ';
    if (value.p == NULL)
        return;
    buf_printf(line, "%s: ", name);
    if (plain) {
        buf_add_str(line, value);
    } else {
        buf_add_z(line, "=?base64?");
        base64_add(line, value.p, value.n);
        buf_add_z(line, "?=");
    }
    h->all[h->n++] = buf_z(line);
    h->n_lines++;
}

static void submit(struct bridge *b, enum post_kind kind, struct str line, const struct about *a)
{
    struct mcp_post *p = xcalloc(1, sizeof *p);
    struct post_headers h = {0};
    bool stream = kind == POST_LISTEN || kind == POST_EVENTS;
    struct jw w = jw_begin(&p->id);

    *p = (struct mcp_post){.b = b,
                           .kind = kind,
                           .stateless = a->version.p != NULL,
                           .heard_ms = clock_now_ms(loop_clock(b->loop))};
    for (; b->door->headers[h.n] != NULL; h.n++)
        h.all[h.n] = b->door->headers[h.n];
    h.all[h.n++] = kind == POST_EVENTS   ? "Accept: text/event-stream"
                   : kind == POST_LISTEN ? "Accept: application/json, text/event-stream"
                                         : "Accept: application/json";
    add_header(&h, "MCP-Protocol-Version", p->stateless ? a->version : str_of(b->version));
    if (p->stateless) {
        add_header(&h, "Mcp-Method", a->method);
        add_header(&h, "Mcp-Name", a->name);
    } else {
        add_header(&h, "Mcp-Session-Id", str_of(b->session));
    }
    if (json_type(a->id) != JSON_ABSENT)
        jw_value(&w, a->id);
    if (kind == POST_AGAIN)
        buf_add_str(&p->got, a->uri);
    list_append(&b->posts, &p->link);
    if (kind == POST_EVENTS)
        b->events = p;
    else if (kind == POST_LISTEN)
        b->n_listens++;
    else
        b->n_posts++;
    p->call =
        http_fetch(b->http,
                   &(struct http_fetch){.method = kind == POST_EVENTS ? "GET" : "POST",
                                        .url = buf_z(&b->url),
                                        .headers = h.all,
                                        .body = line,
                                        .timeout_ms = stream ? STREAM_MS : POST_MS,
                                        .max_body = stream ? SIZE_MAX : (size_t)256 << 20,
                                        .on_data = stream ? on_data : NULL,
                                        .once = str_eq(a->method, STR("tools/call")),
                                        .unix_socket = b->sock.n > 0 ? buf_z(&b->sock) : NULL},
                   on_answer, p);
    for (size_t i = 0; i < h.n_lines; i++)
        buf_done(&h.lines[i]);
}

static void open_events(struct bridge *b)
{
    if (b->events == NULL && b->session != NULL && !b->ended)
        submit(b, POST_EVENTS, STR_NULL, &(struct about){0});
}

static void on_again(struct timer *t)
{
    open_events(container_of(t, struct bridge, again));
}

/* ---- subscriptions of the session ---- */

/* Remembers or forgets a subscription that @line makes or ends. */
static void note_subscription(struct bridge *b, const struct about *a, struct str line)
{
    bool makes = str_eq(a->method, STR("resources/subscribe"));

    if (a->uri.p == NULL || (!makes && !str_eq(a->method, STR("resources/unsubscribe"))))
        return;
    list_each (&b->subscribed, it, nxt) {
        struct subscribed *s = list_entry(it, struct subscribed, link);
        if (str_eq(buf_str(&s->uri), a->uri))
            forget_subscription(b, s);
    }
    if (!makes || b->n_subscribed == SUBSCRIBED_MAX)
        return;
    struct subscribed *s = xcalloc(1, sizeof *s);
    buf_add_str(&s->uri, a->uri);
    buf_add_str(&s->line, line);
    list_append(&b->subscribed, &s->link);
    b->n_subscribed++;
}

/* The event stream is there: the server may be another process than the one that was told. */
static void on_subscribe(struct timer *t)
{
    struct bridge *b = container_of(t, struct bridge, subscribe);

    list_each (&b->subscribed, it, nxt) {
        struct subscribed *s = list_entry(it, struct subscribed, link);
        submit(b, POST_AGAIN, buf_str(&s->line), &(struct about){.uri = buf_str(&s->uri)});
    }
}

/* ---- lines ---- */

/* Ends the request that the client cancels.  False: the server is to be told. */
static bool cancel(struct bridge *b, const struct about *a)
{
    struct buf id = BUF_INIT;
    struct jw w = jw_begin(&id);
    bool found = false;

    if (json_type(a->cancels) != JSON_ABSENT)
        jw_value(&w, a->cancels);
    list_each (&b->posts, it, nxt) {
        struct mcp_post *p = list_entry(it, struct mcp_post, link);
        if (id.n > 0 && p->stateless && str_eq(buf_str(&p->id), buf_str(&id))) {
            post_free(p);
            found = true;
        }
    }
    buf_done(&id);
    return found;
}

static void post(struct bridge *b, struct str line)
{
    struct about a = read_about(b, line);
    bool listen = str_eq(a.method, STR("subscriptions/listen")) && a.version.p != NULL;

    if (cancel(b, &a))
        return;
    if (a.version.p == NULL)
        note_subscription(b, &a, line);
    submit(b, listen && b->n_listens < LISTEN_MAX ? POST_LISTEN : POST_CALL, line, &a);
}

/* Posts every complete line of the buffer. */
static void take_lines(struct bridge *b)
{
    for (;;) {
        const char *end = b->line.n > 0 ? memchr(b->line.p, '\n', b->line.n) : NULL;
        if (end == NULL || b->n_posts >= IN_FLIGHT_MAX)
            return;
        size_t n = (size_t)(end - b->line.p);
        struct str line = str_trim(str_make(b->line.p, n));
        if (line.n > 0)
            post(b, line);
        buf_consume(&b->line, n + 1);
    }
}

static void on_input(void *ctx, int events)
{
    struct bridge *b = ctx;
    char piece[65536];
    ssize_t n = read(STDIN_FILENO, piece, sizeof piece);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0)
        buf_add(&b->line, piece, (size_t)n);
    if (n <= 0) {
        b->ended = true;
        if (b->line.n > 0)
            buf_add_c(&b->line, '\n'); /* a last line without a newline */
    }
    read_on(b);
    finish_if_done(b);
}

/* Reads the available input; watches for more, unless IN_FLIGHT_MAX requests are in flight. */
static void read_on(struct bridge *b)
{
    take_lines(b);
    bool too_long = buf_failed(&b->line) || b->line.n > LINE_MAX_BYTES + 65536;
    if (too_long && b->n_posts < IN_FLIGHT_MAX) {
        b->rc = cli_failed("a line of the client is longer than 1 MiB");
        loop_stop(b->loop);
    }
    bool wants = !b->ended && b->n_posts < IN_FLIGHT_MAX && !too_long;
    if (wants && b->in == NULL) {
        b->in = loop_fd_add(b->loop, STDIN_FILENO, LOOP_READ, on_input, b);
    } else if (!wants && b->in != NULL) {
        loop_fd_free(b->in);
        b->in = NULL;
    }
}

static int serve(struct cli_job *j)
{
    struct bridge b = {.door = j->door, .loop = loop_new(), .rc = CLI_DONE};
    char *dir = NULL;

    list_init(&b.posts);
    list_init(&b.subscribed);
    timer_init(&b.again, on_again);
    timer_init(&b.subscribe, on_subscribe);
    timer_init(&b.look, on_look);
    timer_set(loop_clock(b.loop), &b.look, SILENCE_MS / 4);
    b.parser = json_parser_new();
    b.http = http_client_new(b.loop);
    if (j->door->url.p != NULL) {
        buf_printf(&b.url, "%.*s/mcp", STR_FMT(j->door->url));
    } else if ((dir = cli_state_dir(j)) != NULL) {
        buf_add_z(&b.url, "http://bellhop/mcp");
        buf_printf(&b.sock, "%s/admin.sock", dir);
    }
    if (b.url.n > 0) {
        read_on(&b);
        loop_run(b.loop);
    } else {
        b.rc = CLI_FAILED;
    }
    loop_fd_free(b.in);
    list_each (&b.posts, it, nxt)
        post_free(list_entry(it, struct mcp_post, link));
    list_each (&b.subscribed, it, nxt)
        forget_subscription(&b, list_entry(it, struct subscribed, link));
    http_client_free(b.http);
    json_parser_free(b.parser);
    loop_free(b.loop);
    buf_done(&b.line);
    buf_done(&b.url);
    buf_done(&b.sock);
    free(b.session);
    free(b.version);
    free(dir);
    return b.rc;
}

/* --channel: the mailbox of an instance as a channel of Claude Code. */
static int serve_channel(struct cli_job *j)
{
    BUF_LOCAL url = BUF_INIT, sock = BUF_INIT;
    struct channel_options opt = {
        .headers = j->door->headers,
        .instance = cli_value(j, "--instance"),
        .version = BELLHOP_VERSION,
        .window = (size_t)cli_number(j, "--window", 16),
        .settle_ms = cli_number(j, "--settle", 2000),
        .permission_ms = cli_number(j, "--permission-timeout", 3600000),
    };

    if (opt.instance == NULL)
        return cli_misused(j, "--channel needs --instance: whose mailbox it is");
    if (opt.window > 256)
        return cli_misused(j, "--window is 1 to 256");
    if (j->door->url.p != NULL) {
        buf_add_str(&url, j->door->url);
    } else {
        char *dir = cli_state_dir(j);
        if (dir == NULL)
            return CLI_FAILED;
        buf_add_z(&url, "http://bellhop");
        buf_printf(&sock, "%s/admin.sock", dir);
        opt.unix_socket = buf_z(&sock);
        free(dir);
    }
    opt.url = buf_z(&url);
    return channel_run(&opt);
}

static int run(struct cli_job *j)
{
    if (cli_value(j, "--key-file") == NULL && getenv("BELLHOP_KEY") == NULL)
        return cli_misused(j, "a key is missing: set BELLHOP_KEY or give --key-file");
    return cli_flag(j, "--channel") ? serve_channel(j) : serve(j);
}

static const struct cli_option options[] = {
    {"--channel", .kind = CLI_FLAG},
    {"--instance"},
    {"--window", .kind = CLI_NUMBER},
    {"--settle", .kind = CLI_DURATION},
    {"--permission-timeout", .kind = CLI_DURATION},
    {0},
};

const struct command cmd_mcp = {
    .name = "mcp",
    .summary = "offer tools to an MCP client over standard input and output",
    .help =
        "Usage: bellhop mcp [--key-file F] [--url URL] [--namespace N]\n"
        "       bellhop mcp --channel --instance I [--key-file F] [--url URL] [OPTIONS]\n\n"
        "For clients that start their servers as programs.  Each input line is a message, each\n"
        "output line a reply or a notification.  The key (BELLHOP_KEY, or --key-file F) comes from "
        "bellhop token\n"
        "agent and decides which tools there are.  The server is the one on this machine\n"
        "(--state-dir, -c) or the one at --url.  A client that speaks HTTP needs no program:\n"
        "give it URL/mcp and the key as a bearer.\n\n"
        "With --channel it is a channel of Claude Code: the messages that wait for the instance I\n"
        "are pushed into the session.  The key is made by bellhop token agent --instance I.\n\n"
        "  --window N              messages that the model has in hand at once (16)\n"
        "  --permission-timeout D  time to answer a permission request (1h); then it is denied\n"
        "  --settle D              pause between the client's start and the first message (2s)\n",
    .verbs = (const struct cli_verb[]){{"", .run = run}, {0}},
    .options = options,
    .v1 = true,
};
