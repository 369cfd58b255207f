/* http_upload.c - a body that goes to a sink piece by piece.
 *
 * The request's head is gone once somebody took the body: what is left of the request is its
 * number, how much is still to come, and whom to tell.  A sink that pauses stops us reading the
 * socket; what was read already waits in conn->in.
 *
 * Whoever took the body hears of its end exactly once: from the input when it is whole, from
 * conn_free() when the client has gone, or deferred when we refuse the rest. */
#include "net/conn.h"

#include <assert.h>
#include <stdlib.h>

enum { SLOWEST_BYTES = 4096 }; /* in one time-out */

struct http_upload {
    struct http_sink sink;
    void *ctx;
    struct http_id id;
    struct clock *clock; /* borrowed; for being told late */
    bool chunked, paused;
    uint64_t taken, left; /* bytes so far; still to come when not chunked */
    struct http_chunks chunks;
    size_t since; /* bytes since the deadline was last moved */
};

void http_take_body(struct http_req *r, const struct http_sink *sink, void *ctx)
{
    struct conn *c = r->conn;
    struct http_upload *u;

    assert(c->body_waits && c->upload == NULL); /* from on_head only */
    if (c->state != CONN_HANDLING)
        return; /* answered already */
    u = xcalloc(1, sizeof *u);
    *u = (struct http_upload){.sink = *sink, .ctx = ctx, .id = http_req_id(r)};
    u->clock = c->server->clock;
    u->chunked = r->head.chunked;
    u->left = r->left;
    c->upload = u;
}

void http_upload_begin(struct conn *c)
{
    conn_enter(c, c->upload->paused ? CONN_UPLOAD_PAUSED : CONN_UPLOAD);
}

/* ---- the end ---- */

void http_upload_end_early(struct conn *c)
{
    free(c->upload);
    c->upload = NULL;
    conn_enter(c, CONN_HANDLING);
    c->body_waits = true; /* the rest of it will not be read */
}

void http_upload_gone(struct conn *c)
{
    struct http_upload *u = c->upload;

    c->upload = NULL;
    u->sink.on_gone(u->ctx, u->id);
    free(u);
}

static void on_refused(void *ctx)
{
    struct http_upload *u = ctx;

    u->sink.on_gone(u->ctx, u->id);
    free(u);
}

static void refuse(struct conn *c, int status, const char *code, const char *text)
{
    struct http_upload *u = c->upload;

    c->upload = NULL;
    clock_defer(u->clock, on_refused, u);
    http_refuse(c, status, code, text);
}

void http_upload_late(struct conn *c)
{
    refuse(c, 408, "timeout", "the body of the request took too long");
}

static void finish(struct conn *c)
{
    struct http_upload *u = c->upload;

    c->upload = NULL;
    conn_enter(c, CONN_HANDLING);
    u->sink.on_end(u->ctx, u->id);
    free(u);
}

/* ---- input ---- */

/* Hand over up to @n bytes of which *@left belong to us. */
static size_t pass_on(struct conn *c, const char *p, size_t n, uint64_t *left)
{
    struct http_upload *u = c->upload;

    if (n > *left)
        n = (size_t)*left;
    *left -= n;
    u->taken += n;
    u->since += n;
    if (u->since >= SLOWEST_BYTES) {
        u->since = 0;
        conn_enter(c, CONN_UPLOAD);
    }
    u->sink.on_data(u->ctx, u->id, str_make(p, n)); /* may end it */
    return n;
}

/* False: the upload is over, or waits. */
static bool step_chunked(struct conn *c, const char *p, size_t n, size_t *at)
{
    struct http_upload *u = c->upload;

    switch (http_chunk_next(&u->chunks, p, n, at, c->server->limits.head_bytes)) {
    case CHUNK_MORE:
        return false;
    case CHUNK_DATA:
        if (u->chunks.left > u->sink.max_bytes - u->taken) {
            refuse(c, 413, "body_too_large", "the body is larger than this address takes");
            return false;
        }
        *at += pass_on(c, p + *at, n - *at, &u->chunks.left);
        return true;
    case CHUNK_DONE:
        finish(c);
        return false;
    default:
        refuse(c, 400, "bad_request", "the chunked body is malformed");
        return false;
    }
}

static bool step_counted(struct conn *c, const char *p, size_t n, size_t *at)
{
    struct http_upload *u = c->upload;

    if (u->left > u->sink.max_bytes - u->taken) {
        refuse(c, 413, "body_too_large", "the body is larger than this address takes");
        return false;
    }
    if (u->left == 0) {
        finish(c);
        return false;
    }
    if (*at == n)
        return false;
    *at += pass_on(c, p + *at, n - *at, &u->left);
    return true;
}

size_t http_upload_input(struct conn *c, const char *p, size_t n)
{
    size_t at = 0;
    bool more = true;

    while (more && c->state == CONN_UPLOAD)
        more = c->upload->chunked ? step_chunked(c, p, n, &at) : step_counted(c, p, n, &at);
    return at;
}

/* ---- back-pressure ---- */

void http_body_pause(struct http_server *s, struct http_id id)
{
    struct conn *c = http_find(s, id);

    if (c == NULL || c->upload == NULL)
        return;
    c->upload->paused = true;
    if (c->state == CONN_UPLOAD)
        conn_enter(c, CONN_UPLOAD_PAUSED);
}

void http_body_resume(struct http_server *s, struct http_id id)
{
    struct conn *c = http_find(s, id);

    if (c == NULL || c->upload == NULL)
        return;
    c->upload->paused = false;
    if (c->state != CONN_UPLOAD_PAUSED)
        return;
    conn_enter(c, CONN_UPLOAD);
    conn_mark(c); /* goes on when the turn ends, with what waits and then with the socket */
}
