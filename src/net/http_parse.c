/* http_parse.c - from bytes to requests.
 *
 * http_head.c reads the head, http_chunk.c the framing of a chunked body; here they meet the
 * connection and its limits.
 *
 * A request lies in memory as its head followed by its decoded body: in the shared read buffer when
 * it arrived whole, else in conn->in.  Chunk framing is squeezed out in place.  Everything the
 * request knows of itself is an offset, because the bytes move when the buffer grows. */
#include "net/conn.h"

#include <stdio.h>
#include <stdlib.h>

enum parsed { PARSED_MORE, PARSED_WHOLE, PARSED_SINK, PARSED_REFUSED };
enum { MAX_SPARE_REQS = 64 };

static struct http_req *req_new(struct conn *c)
{
    struct http_server *s = c->server;
    struct http_req *r = s->spare_reqs;

    if (r != NULL) {
        s->spare_reqs = r->next_spare;
        s->n_spare_reqs--;
    } else {
        r = xmalloc(sizeof *r);
    }
    memset(r, 0, offsetof(struct http_req, head.fields)); /* the fields are counted */
    r->conn = c;
    c->req = r;
    return r;
}

void http_req_free(struct conn *c)
{
    struct http_server *s = c->server;
    struct http_req *r = c->req;

    if (r == NULL)
        return;
    c->req = NULL;
    if (s->n_spare_reqs == MAX_SPARE_REQS) {
        free(r);
        return;
    }
    r->next_spare = s->spare_reqs;
    s->spare_reqs = r;
    s->n_spare_reqs++;
}

static enum parsed refuse(struct conn *c, int status, const char *code, const char *text)
{
    http_refuse(c, status, code, text);
    return PARSED_REFUSED;
}

/* ---- the head ---- */

static enum parsed refuse_name(struct conn *c, struct str host)
{
    char text[256];

    snprintf(text, sizeof text,
             "this server is not called %.*s: add the name to hosts, or set public_url",
             host.n < 100 ? (int)host.n : 100, host.p);
    return refuse(c, 421, "unknown_host", text);
}

/* Somebody may want the body.  False: the request was answered, and there will be no body. */
static bool ask_for_body(struct conn *c)
{
    enum conn_state before = (enum conn_state)c->state;

    conn_enter(c, CONN_HANDLING);
    c->body_waits = true;
    c->server->on_head(c->server->ctx, c->req);
    c->body_waits = false;
    if (c->upload != NULL)
        http_upload_begin(c);
    else if (c->state == CONN_HANDLING)
        conn_enter(c, before == CONN_IDLE ? CONN_HEAD : before);
    else
        return false;
    return true;
}

/* The head is complete: decide what follows it.  PARSED_MORE: go on. */
static enum parsed accept_head(struct conn *c, bool body_waits)
{
    struct http_req *r = c->req;
    const struct http_head *h = &r->head;
    struct str host = h->host != 0 ? str_make(r->base + h->host, h->host_n)
                                   : str_make(r->base + h->authority, h->authority_n);

    if (!http_host_is_ours(c, host))
        return refuse_name(c, host);
    r->left = h->has_length ? h->length : 0;
    r->body_limit = c->server->limits.body_bytes;
    c->keep_alive = h->keep_alive && !c->server->draining;
    c->is_head = h->verb == VERB_HEAD;
    c->http_1_0 = h->minor == 0;
    if (c->server->on_head != NULL && (h->chunked || r->left > 0) && !ask_for_body(c))
        return PARSED_REFUSED;
    if (c->upload == NULL && r->left > r->body_limit)
        return refuse(c, 413, "body_too_large", "the body is larger than this server takes");
    if (h->expects_continue && !c->http_1_0 && !body_waits && (h->chunked || r->left > 0)) {
        buf_add_str(conn_out(c), STR("HTTP/1.1 100 Continue\r\n\r\n"));
        conn_mark(c);
    }
    return c->upload != NULL ? PARSED_SINK : PARSED_MORE;
}

static enum parsed parse_head(struct conn *c, size_t n, size_t *ret_at)
{
    struct http_req *r = c->req;
    struct http_head *h = &r->head;

    switch (http_head_read(h, r->base, n, c->server->limits.head_bytes)) {
    case HEAD_MORE:
        r->kept = n;
        return PARSED_MORE;
    case HEAD_BAD:
        return refuse(c, h->fault.status, h->fault.code, h->fault.text);
    default:
        *ret_at = r->kept = h->bytes;
        return accept_head(c, h->bytes < n);
    }
}

/* ---- the body ---- */

/* Move up to @n raw bytes at @at behind the decoded body. */
static size_t take_body(struct http_req *r, size_t at, size_t n, uint64_t *left)
{
    if (n > *left)
        n = (size_t)*left;
    if (at != r->kept)
        memmove(r->base + r->kept, r->base + at, n);
    r->kept += n;
    r->body_n += n;
    *left -= n;
    return n;
}

static enum parsed parse_chunks(struct conn *c, size_t n, size_t *at)
{
    struct http_req *r = c->req;

    for (;;) {
        switch (http_chunk_next(&r->chunks, r->base, n, at, c->server->limits.head_bytes)) {
        case CHUNK_MORE:
            return PARSED_MORE;
        case CHUNK_DONE:
            return PARSED_WHOLE;
        case CHUNK_BAD_SIZE:
            return refuse(c, 400, "bad_request", "the chunked body is malformed");
        case CHUNK_BAD_TRAILER:
            return refuse(c, 400, "bad_request", "the trailers are malformed");
        case CHUNK_DATA:
            if (r->chunks.left > r->body_limit - r->body_n)
                return refuse(c, 413, "body_too_large",
                              "the body is larger than this server takes");
            *at += take_body(r, *at, n - *at, &r->chunks.left);
        }
    }
}

/* Read on in the request at @p.  *@ret_used: on PARSED_MORE the bytes at @p to keep, on
 * PARSED_WHOLE where the next request starts, on PARSED_SINK where the body does. */
static enum parsed parse(struct conn *c, char *p, size_t n, size_t *ret_used)
{
    struct http_req *r = c->req != NULL ? c->req : req_new(c);
    size_t at = r->kept;
    enum parsed end;

    r->base = p;
    if (r->head.bytes == 0) {
        end = parse_head(c, n, &at);
        *ret_used = r->kept;
        if (end != PARSED_MORE || r->head.bytes == 0)
            return end;
    }
    if (r->head.chunked) {
        end = parse_chunks(c, n, &at);
    } else {
        at += take_body(r, at, n - at, &r->left);
        end = r->left == 0 ? PARSED_WHOLE : PARSED_MORE;
    }
    *ret_used = end == PARSED_WHOLE ? at : r->kept;
    return end;
}

/* ---- from bytes to handler calls ---- */

static void wait_for_more(struct conn *c)
{
    bool in_body = c->req->head.bytes > 0;

    if (in_body && c->state != CONN_BODY)
        conn_enter(c, CONN_BODY);
    else if (!in_body && c->state == CONN_IDLE)
        conn_enter(c, CONN_HEAD);
}

static void handle(struct conn *c)
{
    struct http_server *s = c->server;

    conn_enter(c, CONN_HANDLING);
    s->handler(s->ctx, c->req);
    http_req_free(c);
}

static bool may_parse(const struct conn *c)
{
    return c->state <= CONN_BODY || (c->state == CONN_IDLE && conn_queued(c) < OUT_HIGH_BYTES);
}

/* Consume requests from @p.  What is left over stays in, or goes to, conn->in. */
static void consume(struct conn *c, char *p, size_t n, bool is_in)
{
    size_t done = 0, keep, used = 0;
    enum parsed end = PARSED_WHOLE;

    if (c->state == CONN_UPLOAD)
        done = http_upload_input(c, p, n);
    while (end == PARSED_WHOLE && done < n && may_parse(c)) {
        end = parse(c, p + done, n - done, &used);
        if (end == PARSED_WHOLE) {
            handle(c);
            done += used;
        } else if (end == PARSED_SINK) {
            http_req_free(c);
            done += used;
            done += http_upload_input(c, p + done, n - done);
            end = PARSED_WHOLE;
        }
    }
    if (end == PARSED_MORE) {
        wait_for_more(c);
        keep = used;
    } else if (end == PARSED_REFUSED || c->state == CONN_LAST || c->state == CONN_CLOSED) {
        keep = 0;
        c->linger = c->linger || done < n;
        http_req_free(c);
    } else {
        keep = n - done;
    }
    if (keep > 0 && c->ws != NULL) {
        ws_input(c, p + done, keep);
        keep = 0;
    }
    if (is_in && keep > 0) {
        c->in.n = done + keep;
        buf_consume(&c->in, done);
    } else if (is_in) {
        buf_done(&c->in);
    } else if (keep > 0) {
        buf_add(&c->in, p + done, keep);
    }
}

void http_input(struct conn *c, char *p, size_t n)
{
    if (c->in.n == 0) {
        consume(c, p, n, false);
        return;
    }
    buf_add(&c->in, p, n);
    consume(c, c->in.p, c->in.n, true);
}

void http_too_much(struct conn *c)
{
    if (c->state == CONN_CLOSED)
        return;
    if (c->state > CONN_BODY) {
        conn_close(c);
        return;
    }
    http_req_free(c);
    buf_done(&c->in);
    http_refuse(c, 503, "overloaded",
                "too much is being sent to this server and not finished: try again in a moment");
}

void http_resume(struct conn *c)
{
    consume(c, c->in.p, c->in.n, true);
}
