/* http_answer.c - answers: whole ones, streams, files.
 *
 * The head of an answer is written by hand into one reserved piece of the output buffer: at a
 * hundred thousand answers a second printf would be the most expensive step.
 *
 * Streams are chunked for HTTP/1.1, so that a client can tell the end from a broken connection, and
 * plain until close for HTTP/1.0.
 *
 * Files:
 *
 *      pump: a block from the page cache --> output --> flushed --> pump ...
 *              '--not in the cache--> a reader thread --> on_read --> output
 *
 * A block is read only after the previous one has left, and one block per connection and turn.  So
 * a fast client of a large file takes turns with the others, and a slow client costs one block of
 * memory.  The file is read without waiting (RWF_NOWAIT); blocks outside the page cache, and files
 * on a file system without RWF_NOWAIT, are read by a thread. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/jw.h"
#include "base/log.h"
#include "net/conn.h"

static const char default_type[] = "application/json; charset=utf-8";

struct conn *http_find(struct http_server *s, struct http_id id)
{
    struct conn_slot *slot = id.index < s->n_slots ? &s->slots[id.index] : NULL;
    return slot != NULL && slot->generation == id.generation ? slot->conn : NULL;
}

static struct conn *find_in(struct http_server *s, struct http_id id, enum conn_state state)
{
    struct conn *c = http_find(s, id);
    return c != NULL && c->state == state ? c : NULL;
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {428, "Precondition Required"},
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

void http_put_head(struct conn *c, const struct http_answer *a, enum framing framing, uint64_t n,
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

void http_finish(struct conn *c, bool last)
{
    c->server->slots[c->slot].generation++;
    c->linger = c->linger || c->in.n > 0;
    conn_enter(c, last ? CONN_LAST : CONN_IDLE);
    conn_mark(c);
}

static void answer(struct conn *c, const struct http_answer *a)
{
    bool last = a->close || !c->keep_alive || c->server->draining || c->body_waits;

    assert(a->status >= 100 && a->status <= 999);
    c->linger = c->linger || c->body_waits;
    http_put_head(c, a, FRAME_LENGTH, a->body.n, last);
    if (!c->is_head && a->status != 204 && a->status != 304)
        buf_add_str(&c->out, a->body);
    http_finish(c, last);
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

struct stillborn {
    http_stream_closed_cb *closed;
    void *ctx;
    struct http_id id;
};

static void on_stillborn(void *ctx)
{
    struct stillborn *b = ctx;
    b->closed(b->ctx, b->id);
    free(b);
}

void http_stream_begin(struct http_server *s, struct http_id id, const struct http_answer *head,
                       size_t max_queued, http_stream_closed_cb *closed, void *ctx)
{
    struct conn *c = find_in(s, id, CONN_HANDLING);
    struct http_stream *st;

    if (c == NULL) {
        struct stillborn *b = xmalloc(sizeof *b);
        *b = (struct stillborn){closed, ctx, id};
        clock_defer(s->clock, on_stillborn, b);
        return;
    }
    st = xcalloc(1, sizeof *st);
    *st = (struct http_stream){.max_queued = max_queued, .closed = closed, .ctx = ctx, .id = id};
    st->chunked = !c->http_1_0;
    st->mute = c->is_head;
    c->stream = st;
    c->keep_alive = c->keep_alive && st->chunked && !head->close && !c->body_waits;
    http_put_head(c, head, st->chunked ? FRAME_CHUNKED : FRAME_CLOSE, 0, !c->keep_alive);
    conn_bound_kernel(c);
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
    struct conn *c = id.index < s->n_slots ? s->slots[id.index].conn : NULL;

    if (c == NULL || c->stream == NULL || c->stream->id.generation != id.generation)
        return;
    free(c->stream);
    c->stream = NULL;
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
    c->stream = NULL;
    http_finish(c, !c->keep_alive || s->draining);
}

void http_stream_gone(struct conn *c)
{
    struct http_stream *st = c->stream;

    c->stream = NULL;
    st->closed(st->ctx, st->id);
    free(st);
}

/* ---- answers from a file ---- */

enum { BLOCK_BYTES = 64 * 1024, READER_THREADS = 2 };

struct file_answer {
    struct conn *conn; /* borrowed; NULL: it closed while a block was being read */
    int fd;            /* owned */
    uint64_t at, left;
    bool last;    /* close the connection after it */
    bool reading; /* @work is with the readers, and so is @block */
    struct work work;
    ssize_t got; /* what the thread read; -1: nothing */
    char *block; /* owned; for the thread to read into; NULL until it has to */
};

static void destroy(struct file_answer *f)
{
    close(f->fd);
    free(f->block);
    free(f);
}

void http_file_gone(struct conn *c)
{
    struct file_answer *f = c->file;

    c->file = NULL;
    f->conn = NULL;
    if (!f->reading)
        destroy(f);
}

static void finish(struct conn *c)
{
    bool last = c->file->last;

    http_file_gone(c);
    http_finish(c, last);
}

/* ---- reading ---- */

static size_t next_bytes(const struct file_answer *f)
{
    return f->left < BLOCK_BYTES ? (size_t)f->left : BLOCK_BYTES;
}

/* A block of @n bytes is in the output, or could not be read: then the promise of so many bytes
 * cannot be held, and the end of the connection tells the client. */
static void took(struct conn *c, ssize_t n)
{
    struct file_answer *f = c->file;

    if (n <= 0) {
        log_warn(NULL, "a file could not be read to its end, %llu bytes are missing",
                 (unsigned long long)f->left);
        conn_close(c);
        return;
    }
    f->at += (uint64_t)n;
    f->left -= (uint64_t)n;
    conn_enter(c, CONN_FILE); /* the time-out is for one block */
    conn_want_write(c);       /* not now: others first */
}

static void on_thread(struct work *w)
{
    struct file_answer *f = container_of(w, struct file_answer, work);

    do
        f->got = pread(f->fd, f->block, next_bytes(f), (off_t)f->at);
    while (f->got < 0 && errno == EINTR);
}

static void on_read(struct work *w)
{
    struct file_answer *f = container_of(w, struct file_answer, work);

    f->reading = false;
    if (f->conn == NULL) {
        destroy(f);
        return;
    }
    if (f->got > 0)
        buf_add(conn_out(f->conn), f->block, (size_t)f->got);
    took(f->conn, f->got);
}

static void read_elsewhere(struct conn *c)
{
    struct file_answer *f = c->file;
    struct http_server *s = c->server;

    if (s->readers == NULL)
        s->readers = work_pool_new(s->loop, READER_THREADS);
    if (f->block == NULL)
        f->block = xmalloc(BLOCK_BYTES);
    f->got = -1;
    f->work = (struct work){.run = on_thread, .done = on_read};
    f->reading = work_start(s->readers, &f->work) == BH_OK;
    if (!f->reading)
        conn_close(c); /* no thread, or a thousand readers before us */
}

void http_file_pump(struct conn *c)
{
    struct file_answer *f = c->file;
    struct iovec block = {.iov_len = next_bytes(f)};
    ssize_t n;

    if (f->reading)
        return;
    if (f->left == 0) {
        finish(c);
        return;
    }
    block.iov_base = buf_room(conn_out(c), block.iov_len); /* it is empty: there is room */
    n = preadv2(f->fd, &block, 1, (off_t)f->at, RWF_NOWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EOPNOTSUPP || errno == EINTR)) {
        read_elsewhere(c);
        return;
    }
    c->out.n += n > 0 ? (size_t)n : 0;
    took(c, n);
}

/* ---- the answer ---- */

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
    struct conn *c = http_find(s, id);
    struct file_answer *f;
    struct buf lines = BUF_INIT;
    struct http_answer a = *head;

    if (c == NULL || c->state != CONN_HANDLING) {
        close(file->fd);
        return;
    }
    f = xcalloc(1, sizeof *f);
    *f = (struct file_answer){.conn = c, .fd = file->fd};
    f->last = head->close || !c->keep_alive || s->draining || c->body_waits;
    a.status = choose(file, &lines, &f->at, &f->left);
    buf_add_z(&lines, head->headers != NULL ? head->headers : "");
    a.headers = buf_z(&lines);
    http_put_head(c, &a, FRAME_LENGTH, f->left, f->last);
    buf_done(&lines);
    if (c->is_head)
        f->left = 0;
    c->file = f;
    conn_enter(c, CONN_FILE);
    conn_mark(c);
}
