/* http_answer.c - answers: whole ones, streams, files.
 *
 * The head of an answer is written by hand into one reserved piece of the output buffer: at a
 * hundred thousand answers a second printf would be the most expensive step.
 *
 * Streams are chunked for HTTP/1.1, so that a client can tell the end from a broken connection, and
 * plain until close for HTTP/1.0.
 *
 * Files: a block is read only after the previous one has left, and one block per connection and
 * turn.  So a fast client of a large file takes turns with the others, and a slow client costs one
 * block of memory. */
#include <assert.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/jw.h"
#include "base/log.h"
#include "net/conn.h"
#include "net/file_reader.h"
#include "net/trunk_priv.h"

enum framing { FRAME_LENGTH, FRAME_CHUNKED, FRAME_CLOSE };

static const char default_type[] = "application/json; charset=utf-8";

struct conn *http_find(struct http_server *s, struct http_id id)
{
    struct conn *c = handles_find(&s->conns, (struct handle){id.index, id.generation});

    return c != NULL && c->state != CONN_CLOSED ? c : NULL;
}

static struct conn *find_in(struct http_server *s, struct http_id id, enum conn_state state)
{
    struct conn *c = http_find(s, id);
    return c != NULL && c->state == state ? c : NULL;
}

bool http_waits(struct http_server *s, struct http_id id)
{
    const struct conn *c = find_in(s, id, CONN_HANDLING);

    if (c == NULL || c->no_socket)
        return c != NULL;
    struct pollfd end = {.fd = c->io.fd, .events = POLLRDHUP};
    return poll(&end, 1, 0) == 0;
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {302, "Found"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status)
            return reasons[i].text;
    }
    return "Unknown";
}

static char *put(char *at, const char *p, size_t n)
{
    memcpy(at, p, n);
    return at + n;
}
#define PUT(at, lit) put(at, lit, sizeof(lit) - 1)

static char *put_number(char *at, uint64_t v)
{
    char digits[20];
    size_t n = 0;

    do
        digits[n++] = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

static char *put_date(struct http_server *s, char *at)
{
    int64_t now = clock_wall_ms(s->clock) / 1000;

    if (now != s->date_s || s->date_n == 0) {
        time_t t = (time_t)now;
        struct tm tm;
        s->date_n =
            strftime(s->date, sizeof s->date, "Date: %a, %d %b %Y %T GMT\r\n", gmtime_r(&t, &tm));
        s->date_s = now;
    }
    return put(at, s->date, s->date_n);
}

/* @n: Content-Length, of FRAME_LENGTH. */
static void put_head(struct conn *c, const struct http_answer *a, enum framing framing, uint64_t n,
                     bool last)
{
    const char *type = a->content_type != NULL ? a->content_type : default_type;
    const char *reason = reason_of(a->status);
    size_t type_n = strlen(type), reason_n = strlen(reason);
    size_t more_n = a->headers != NULL ? strlen(a->headers) : 0;
    struct buf *out = conn_out(c);
    char *start = buf_room(out, 256 + type_n + reason_n + more_n), *at = start;
    bool bodiless = a->status == 204 || a->status == 304;

    if (start == NULL)
        return; /* over the limit of a buffer: noticed when flushing */
    at = PUT(at, "HTTP/1.1 ");
    at = put_number(at, (uint64_t)a->status);
    *at++ = ' ';
    at = put(at, reason, reason_n);
    at = PUT(at, "\r\n");
    at = put_date(c->server, at);
    if (!bodiless) {
        at = PUT(at, "Content-Type: ");
        at = put(at, type, type_n);
        at = PUT(at, "\r\n");
    }
    if (framing == FRAME_CHUNKED) {
        at = PUT(at, "Transfer-Encoding: chunked\r\n");
    } else if (framing == FRAME_LENGTH && !bodiless) {
        at = PUT(at, "Content-Length: ");
        at = put_number(at, n);
        at = PUT(at, "\r\n");
    }
    if (last)
        at = PUT(at, "Connection: close\r\n");
    else if (c->http_1_0)
        at = PUT(at, "Connection: keep-alive\r\n");
    at = put(at, a->headers != NULL ? a->headers : "", more_n);
    at = PUT(at, "\r\n");
    out->n += (size_t)(at - start);
}

/* The answer is queued. */
static void finish(struct conn *c, bool last)
{
    conn_answered(c);
    c->linger = c->linger || c->in->n > 0;
    conn_enter(c, last ? CONN_LAST : CONN_IDLE);
    conn_mark(c);
}

static void answer(struct conn *c, const struct http_answer *a)
{
    bool last = a->close || !c->keep_alive || c->server->draining || c->body_waits;

    assert(a->status >= 100 && a->status <= 999);
    c->linger = c->linger || c->body_waits;
    put_head(c, a, FRAME_LENGTH, a->body.n, last);
    if (!c->is_head && a->status != 204 && a->status != 304)
        buf_add_str(&c->out, a->body);
    finish(c, last);
}

void http_answer(struct http_server *s, struct http_id id, const struct http_answer *a)
{
    struct conn *c = http_find(s, id);

    if (c == NULL)
        return;
    if (c->upload != NULL)
        http_upload_end_early(c);
    if (c->state == CONN_HANDLING)
        answer(c, a);
}

static void error_body(struct buf *out, const char *code, const char *text)
{
    struct jw w = jw_begin(out);
    jw_obj(&w);
    jw_kstr(&w, "error", str_of(text));
    jw_kstr(&w, "code", str_of(code));
    jw_end_obj(&w);
}

void http_answer_error(struct http_server *s, struct http_id id, int status, const char *code,
                       const char *fmt, ...)
{
    struct buf body = BUF_INIT;
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    error_body(&body, code, text);
    http_answer(s, id, &(struct http_answer){.status = status, .body = buf_str(&body)});
    buf_done(&body);
}

void http_refuse(struct conn *c, int status, const char *code, const char *text)
{
    struct buf body = BUF_INIT;

    error_body(&body, code, text);
    c->linger = true;
    c->is_head = false;
    answer(c, &(struct http_answer){.status = status, .body = buf_str(&body), .close = true});
    buf_done(&body);
}

/* ---- streams ---- */

/* Nobody waits for a stream's bytes with a full window: the kernel doubles this. */
enum { STREAM_KERNEL_BYTES = 16 * 1024 };

static void tell_closed(void *stream)
{
    struct http_stream *st = stream;

    st->closed(st->ctx, st->id);
    free(st);
}

void http_stream_begin(struct http_server *s, struct http_id id, const struct http_answer *head,
                       size_t max_queued, http_stream_closed_cb *closed, void *ctx)
{
    struct conn *c = find_in(s, id, CONN_HANDLING);
    struct http_stream *st = xcalloc(1, sizeof *st);
    int kernel = STREAM_KERNEL_BYTES;

    *st = (struct http_stream){.max_queued = max_queued, .closed = closed, .ctx = ctx, .id = id};
    if (c == NULL) {
        clock_defer(s->clock, tell_closed, st);
        return;
    }
    st->chunked = !c->http_1_0;
    st->mute = c->is_head;
    c->stream = st;
    c->top = TOP_STREAM;
    c->keep_alive = c->keep_alive && st->chunked && !head->close && !c->body_waits;
    put_head(c, head, st->chunked ? FRAME_CHUNKED : FRAME_CLOSE, 0, !c->keep_alive);
    if (c->no_socket)
        carried_say(c->carried, MSG_STREAM, STR_NULL);
    else
        setsockopt(c->io.fd, SOL_SOCKET, SO_SNDBUF, &kernel, sizeof kernel);
    conn_enter(c, CONN_STREAM);
    conn_mark(c);
    if (!str_is_empty(head->body))
        http_stream_write(s, id, head->body);
}

static void put_chunk(struct buf *out, struct str bytes)
{
    static const char hex[] = "0123456789abcdef";
    char size[18];
    size_t at = sizeof size;

    size[--at] = '\n';
    size[--at] = '\r';
    for (size_t v = bytes.n; v != 0; v >>= 4)
        size[--at] = hex[v & 15];
    buf_add(out, size + at, sizeof size - at);
    buf_add_str(out, bytes);
    buf_add_str(out, STR("\r\n"));
}

bool http_stream_write(struct http_server *s, struct http_id id, struct str bytes)
{
    struct conn *c = find_in(s, id, CONN_STREAM);

    if (c == NULL)
        return false;
    if (c->stream->mute || bytes.n == 0)
        return true;
    if (c->stream->chunked)
        put_chunk(conn_out(c), bytes);
    else
        buf_add_str(conn_out(c), bytes);
    conn_mark(c);
    if (conn_queued(c) > c->stream->max_queued || buf_failed(&c->out))
        conn_flush(c); /* the socket may have room */
    if (c->state == CONN_STREAM && conn_queued(c) > c->stream->max_queued)
        conn_close(c); /* the client does not read */
    return c->state == CONN_STREAM;
}

/* The connection is closed, and its owner was not notified yet: cancel the notification. */
static void forget_owner(struct http_server *s, struct http_id id)
{
    struct conn *c = handles_find(&s->conns, (struct handle){id.index, id.generation});

    if (c == NULL || c->top != TOP_STREAM)
        return;
    free(c->stream);
    c->top = TOP_NONE;
}

void http_stream_end(struct http_server *s, struct http_id id)
{
    struct conn *c = find_in(s, id, CONN_STREAM);

    if (c == NULL) {
        forget_owner(s, id);
        return;
    }
    if (c->stream->chunked && !c->stream->mute)
        buf_add_str(conn_out(c), STR("0\r\n\r\n"));
    free(c->stream);
    c->top = TOP_NONE;
    finish(c, !c->keep_alive || s->draining);
}

void http_stream_gone(struct conn *c)
{
    struct http_stream *st = c->stream;

    c->top = TOP_NONE;
    tell_closed(st);
}

/* ---- answers from a file ---- */

enum { READER_THREADS = 2 };

void http_file_gone(struct conn *c)
{
    file_reader_free(c->file);
    c->top = TOP_NONE;
}

void http_file_pump(struct conn *c)
{
    char *to = buf_room(conn_out(c), FILE_BLOCK_BYTES); /* it is empty: there is room */
    ssize_t n = file_reader_take(c->file, to, FILE_BLOCK_BYTES);

    if (n > 0) {
        c->out.n += (size_t)n;
        conn_enter(c, CONN_FILE); /* the time-out is for one block */
        conn_want_write(c);       /* not now: others first */
    } else if (n == 0) {
        http_file_gone(c);
        finish(c, !c->keep_alive);
    } else if (n == FILE_READER_BROKEN) {
        /* The head promised so many bytes; the end of the connection tells the client. */
        log_warn(NULL, "cannot read a file to its end: %llu bytes are missing",
                 (unsigned long long)file_reader_left(c->file));
        conn_close(c);
    }
}

static void on_block(void *ctx)
{
    struct conn *c = ctx;

    if (c->state == CONN_FILE)
        http_file_pump(c);
}

static bool wants_part(const struct http_file *f)
{
    if (f->range.p == NULL)
        return false;
    return f->if_range.p == NULL || (f->etag != NULL && str_eq(f->if_range, str_of(f->etag)));
}

/* The status, and the header lines that go with it. */
static int choose(const struct http_file *f, struct buf *lines, uint64_t *at, uint64_t *n)
{
    enum http_range_end end =
        wants_part(f) ? http_range_read(f->range, f->size, at, n) : RANGE_WHOLE;

    if (f->etag != NULL)
        buf_printf(lines, "ETag: %s\r\n", f->etag);
    buf_add_z(lines, "Accept-Ranges: bytes\r\n");
    if (end == RANGE_OUTSIDE) {
        *n = 0;
        buf_printf(lines, "Content-Range: bytes */%llu\r\n", (unsigned long long)f->size);
        return 416;
    }
    if (end == RANGE_PART) {
        buf_printf(lines, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)*at,
                   (unsigned long long)(*at + *n - 1), (unsigned long long)f->size);
        return 206;
    }
    *at = 0;
    *n = f->size;
    return 200;
}

void http_answer_file(struct http_server *s, struct http_id id, const struct http_answer *head,
                      const struct http_file *file)
{
    struct conn *c = find_in(s, id, CONN_HANDLING);
    struct buf lines = BUF_INIT;
    struct http_answer a = *head;
    uint64_t at = 0, n;

    if (c == NULL) {
        close(file->fd);
        return;
    }
    c->keep_alive = c->keep_alive && !head->close && !s->draining && !c->body_waits;
    a.status = choose(file, &lines, &at, &n);
    buf_add_z(&lines, head->headers);
    a.headers = buf_z(&lines);
    put_head(c, &a, FRAME_LENGTH, n, !c->keep_alive);
    buf_done(&lines);
    if (s->readers == NULL)
        s->readers = work_pool_new(s->loop, READER_THREADS);
    c->file = file_reader_new(s->readers, file->fd, at, c->is_head ? 0 : n, on_block, c);
    c->top = TOP_FILE;
    conn_enter(c, CONN_FILE);
    conn_mark(c);
}
