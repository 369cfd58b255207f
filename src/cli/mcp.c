/* mcp.c - bellhop mcp: the Model Context Protocol over standard input and output.
 *
 * A bridge: each input line is posted to the server's /mcp, and each reply becomes an output line.
 * Several requests may be in flight, so a slow one does not delay others.  Replies come in the
 * order they are ready, as the protocol allows.  Standard output carries only replies. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/list.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "net/http_client.h"
#include "net/loop.h"

#define LINE_MAX_BYTES ((size_t)1 << 20)
#define IN_FLIGHT_MAX 64 /* requests in flight; at the limit the bridge stops reading */
#define POST_MS 600000

struct bridge {
    struct loop *loop;
    struct http_client *http;
    struct cli_door *door; /* borrowed */
    struct loop_fd *in;    /* NULL: not reading now */
    struct buf line;       /* what has arrived of the next one */
    struct buf url, sock;  /* where to */
    struct list posts;     /* struct mcp_post; owned */
    size_t n_posts;
    char *session; /* owned; NULL: none yet */
    bool ended;    /* no more input */
    int rc;
};
struct mcp_post {
    struct list link;
    struct bridge *b; /* borrowed */
    struct http_call *call;
    struct buf id; /* JSON of the request's id; empty: a notification */
};

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

static void read_on(struct bridge *b);

static void on_answer(void *ctx, const struct http_result *r)
{
    struct mcp_post *p = ctx;
    struct bridge *b = p->b;
    struct str session = http_result_header(r, "Mcp-Session-Id");

    p->call = NULL;
    if (session.p != NULL) {
        free(b->session);
        b->session = str_dup(session);
    }
    if (r->err == BH_OK && (r->status == 200 || r->status == 400) && !str_is_empty(r->body) &&
        str_contains(r->body, STR("\"jsonrpc\"")))
        say(b, r->body);
    else if (p->id.n > 0 && r->err != BH_OK)
        say_error(b, &p->id, "bellhop does not answer: ", str_of(r->why));
    else if (p->id.n > 0)
        say_error(b, &p->id, "bellhop refused: ", r->body);
    list_remove(&p->link);
    buf_done(&p->id);
    free(p);
    b->n_posts--;
    read_on(b);
    finish_if_done(b);
}

/* The id of a request, for the error reply when the post fails. */
static void read_id(struct str line, struct buf *out)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    struct jw w = jw_begin(out);

    if (json_parse(parser, line, &doc) && json_type(json_get(doc, "id")) != JSON_ABSENT &&
        json_type(json_get(doc, "method")) != JSON_ABSENT)
        jw_value(&w, json_get(doc, "id"));
    json_parser_free(parser);
}

static void post(struct bridge *b, struct str line)
{
    struct mcp_post *p = xcalloc(1, sizeof *p);
    struct buf session = BUF_INIT;
    const char *headers[8];
    size_t n = 0;

    while (b->door->headers[n] != NULL) {
        headers[n] = b->door->headers[n];
        n++;
    }
    headers[n++] = "Accept: application/json";
    if (b->session != NULL) {
        buf_printf(&session, "Mcp-Session-Id: %s", b->session);
        headers[n++] = buf_z(&session);
    }
    headers[n] = NULL;
    p->b = b;
    read_id(line, &p->id);
    list_append(&b->posts, &p->link);
    b->n_posts++;
    p->call =
        http_fetch(b->http,
                   &(struct http_fetch){.method = "POST",
                                        .url = buf_z(&b->url),
                                        .headers = headers,
                                        .body = line,
                                        .timeout_ms = POST_MS,
                                        .max_body = (size_t)256 << 20,
                                        .unix_socket = b->sock.n > 0 ? buf_z(&b->sock) : NULL},
                   on_answer, p);
    buf_done(&session);
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
    http_client_free(b.http); /* cancels the requests in flight */
    list_each (&b.posts, it, nxt) {
        struct mcp_post *p = list_entry(it, struct mcp_post, link);
        buf_done(&p->id);
        free(p);
    }
    loop_free(b.loop);
    buf_done(&b.line);
    buf_done(&b.url);
    buf_done(&b.sock);
    free(b.session);
    free(dir);
    return b.rc;
}

static int run(struct cli_job *j)
{
    if (cli_value(j, "--key-file") == NULL && getenv("BELLHOP_KEY") == NULL)
        return cli_misused(j, "a key is missing: set BELLHOP_KEY or give --key-file");
    return serve(j);
}

const struct command cmd_mcp = {
    .name = "mcp",
    .summary = "offer tools to an MCP client over standard input and output",
    .help =
        "Usage: bellhop mcp [--key-file F] [--url URL] [--namespace N]\n\n"
        "For clients that start their servers as programs.  Each input line is a message, each\n"
        "output line a reply.  The key (BELLHOP_KEY, or --key-file F) comes from bellhop token\n"
        "agent and decides which tools there are.  The server is the one on this machine\n"
        "(--state-dir, -c) or the one at --url.  A client that speaks HTTP needs no program:\n"
        "give it URL/mcp and the key as a bearer.\n",
    .verbs = (const struct cli_verb[]){{"", .run = run}, {0}},
    .v1 = true,
};
