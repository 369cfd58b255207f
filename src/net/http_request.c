/* http_request.c - requests: from bytes to handler calls.
 *
 * http_codec.c reads heads and the framing of chunked bodies; this file applies the connection's
 * limits and calls the handler.
 *
 * A request lies in memory as its head followed by its decoded body: in the shared read buffer when
 * it arrived whole, else in conn->in.  Chunk framing is squeezed out in place.  A request stores
 * offsets, not pointers, because the bytes move when the buffer grows.
 *
 * Uploads.  A sink gets the body piece by piece.  Once a sink took the body the head is freed; the
 * upload keeps the request's number, the bytes still to come, and the sink.  A sink that pauses
 * stops the server from reading the socket; bytes that were read already wait in conn->in.  The
 * sink hears of the end exactly once: from the input when the body is complete, from conn_free()
 * when the client disconnected, or deferred when the server refuses the rest.
 *
 * Names.  A request by a host name that nobody configured is refused.  Otherwise a web page whose
 * owner points its name at this machine could talk to bellhop through a local browser (DNS
 * rebinding). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "net/conn.h"
#include "net/edges.h"
#include "net/trunk_priv.h"

enum parsed {
    PARSED_MORE,
    PARSED_WHOLE,
    PARSED_SINK,
    PARSED_REFUSED,
    PARSED_PIECES, /* the heart answers it, and its body follows in pieces */
    PARSED_HELD,   /* it waits for a trunk */
};
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

static void req_done(struct http_server *s, struct http_req *r)
{
    if (s->n_spare_reqs == MAX_SPARE_REQS) {
        free(r);
        return;
    }
    r->next_spare = s->spare_reqs;
    s->spare_reqs = r;
    s->n_spare_reqs++;
}

void http_req_free(struct conn *c)
{
    if (c->top == TOP_WS || c->req == NULL)
        return;
    req_done(c->server, c->req);
    c->req = NULL;
}

static enum parsed refuse(struct conn *c, int status, const char *code, const char *text)
{
    http_refuse(c, status, code, text);
    return PARSED_REFUSED;
}

/* ---- bodies that go to a sink ---- */

#define SLOWEST_BYTES_S 8192 /* a second, over the whole upload */

struct http_upload {
    struct http_sink sink;
    void *ctx;
    struct http_id id;
    bool chunked, paused;
    bool decoded, ended;  /* the edge has decoded the body; and all of it has come */
    uint64_t taken, left; /* bytes so far; still to come when not chunked */
    struct http_chunks chunks;
    int64_t ran_ms, since_ms; /* time of the client, without pauses; when it last began to run */
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
    u->chunked = r->head.chunked;
    u->decoded = r->decoded;
    u->left = r->left;
    c->upload = u;
}

void http_allow_body(struct http_req *r, size_t max_bytes)
{
    assert(r->conn->body_waits); /* from on_head only */
    if (max_bytes > r->max_body)
        r->max_body = max_bytes;
}

/* ---- the end ---- */

void http_upload_end_early(struct conn *c)
{
    free(c->upload);
    c->upload = NULL;
    conn_enter(c, CONN_HANDLING);
    c->body_waits = true; /* the rest of it will not be read */
}

static void tell_gone(void *upload)
{
    struct http_upload *u = upload;

    u->sink.on_gone(u->ctx, u->id);
    free(u);
}

void http_upload_gone(struct conn *c)
{
    struct http_upload *u = c->upload;

    c->upload = NULL;
    tell_gone(u);
}

static void refuse_rest(struct conn *c, int status, const char *code, const char *text)
{
    struct http_upload *u = c->upload;

    c->upload = NULL;
    clock_defer(c->server->clock, tell_gone, u);
    http_refuse(c, status, code, text);
}

void http_upload_late(struct conn *c)
{
    refuse_rest(c, 408, "timeout", "the body of the request took too long");
}

static void finish_upload(struct conn *c)
{
    struct http_upload *u = c->upload;

    c->upload = NULL;
    conn_enter(c, CONN_HANDLING);
    u->sink.on_end(u->ctx, u->id);
    free(u);
}

/* ---- input ---- */

/* True: with the @n bytes that have come now, the client has sent less than it should have since
 * the upload began.  The first body_ms are free, so that a short upload may take them. */
static bool is_slow(const struct conn *c, size_t n)
{
    const struct http_upload *u = c->upload;
    int64_t ran_ms = u->ran_ms + clock_now_ms(c->server->clock) - u->since_ms;

    return ran_ms - c->server->limits.body_ms > (int64_t)((u->taken + n) * 1000 / SLOWEST_BYTES_S);
}

/* Hand over up to @n bytes of which *@left belong to us. */
static size_t pass_on(struct conn *c, const char *p, size_t n, uint64_t *left)
{
    struct http_upload *u = c->upload;

    if (n > *left)
        n = (size_t)*left;
    *left -= n;
    u->taken += n;
    conn_enter(c, CONN_UPLOAD); /* a client that sends nothing for body_ms is late, too */
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
            refuse_rest(c, 413, "body_too_large", "the body is larger than this address takes");
            return false;
        }
        *at += pass_on(c, p + *at, n - *at, &u->chunks.left);
        return true;
    case CHUNK_DONE:
        finish_upload(c);
        return false;
    default:
        refuse_rest(c, 400, "bad_request", "the chunked body is malformed");
        return false;
    }
}

static bool step_counted(struct conn *c, const char *p, size_t n, size_t *at)
{
    struct http_upload *u = c->upload;

    if (u->left > u->sink.max_bytes - u->taken) {
        refuse_rest(c, 413, "body_too_large", "the body is larger than this address takes");
        return false;
    }
    if (u->left == 0) {
        finish_upload(c);
        return false;
    }
    if (*at == n)
        return false;
    *at += pass_on(c, p + *at, n - *at, &u->left);
    return true;
}

/* What an edge has decoded; the end is told apart. */
static bool step_decoded(struct conn *c, const char *p, size_t n, size_t *at)
{
    struct http_upload *u = c->upload;
    uint64_t here = n - *at < HTTP_READ_BYTES ? n - *at : HTTP_READ_BYTES;

    if ((u->left > here ? u->left : here) > u->sink.max_bytes - u->taken) {
        refuse_rest(c, 413, "body_too_large", "the body is larger than this address takes");
        return false;
    }
    if (here == 0) {
        if (u->ended)
            finish_upload(c);
        return false;
    }
    u->left -= u->left < here ? u->left : here;
    *at += pass_on(c, p + *at, (size_t)here, &here);
    return true;
}

/* Feeds the sink from @p; the bytes it took, framing included. */
static size_t upload_input(struct conn *c, const char *p, size_t n)
{
    size_t at = 0;
    bool more = true;

    if (c->state == CONN_UPLOAD && is_slow(c, n)) {
        http_upload_late(c);
        return 0;
    }
    while (more && c->state == CONN_UPLOAD)
        more = c->upload->decoded   ? step_decoded(c, p, n, &at)
               : c->upload->chunked ? step_chunked(c, p, n, &at)
                                    : step_counted(c, p, n, &at);
    return at;
}

/* ---- back-pressure ---- */

void http_body_pause(struct http_server *s, struct http_id id)
{
    struct conn *c = http_find(s, id);

    if (c == NULL || c->upload == NULL)
        return;
    c->upload->paused = true;
    if (c->state != CONN_UPLOAD)
        return;
    c->upload->ran_ms += clock_now_ms(s->clock) - c->upload->since_ms;
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
    c->upload->since_ms = clock_now_ms(s->clock);
    conn_enter(c, CONN_UPLOAD);
    conn_mark(c); /* goes on when the turn ends, with what waits and then with the socket */
}

/* ---- names ---- */

static void answer_to(struct http_server *edge, void *names)
{
    http_server_answer_to(edge, names);
}

void http_server_answer_to(struct http_server *s, const char *const *names)
{
    for (char **p = s->names; p != NULL && *p != NULL; p++)
        free(*p);
    free(s->names);
    s->names = NULL;
    s->last_host_n = 0;
    if (s->edges != NULL)
        edges_each(s->edges, answer_to, (void *)(uintptr_t)names);
    if (names == NULL)
        return;
    size_t n = 0;
    while (names[n] != NULL)
        n++;
    s->names = xcalloc(n + 1, sizeof *s->names);
    for (size_t i = 0; i < n; i++)
        s->names[i] = xstrdup(names[i]);
}

/* "*", "name", or "*.name" for everything below it. */
static bool name_matches(struct str pattern, struct str host)
{
    if (str_eq(pattern, STR("*")))
        return true;
    if (!str_starts(pattern, STR("*.")))
        return str_eq_ci(pattern, host);
    pattern = str_skip(pattern, 1);
    return host.n > pattern.n &&
           str_eq_ci(str_make(host.p + host.n - pattern.n, pattern.n), pattern);
}

static bool is_known(const struct http_server *s, struct str host)
{
    struct addr ignored;
    ptrdiff_t colon;

    if (addr_parse(host, &ignored))
        return true; /* no name, so nobody can have pointed it here */
    colon = str_find(host, ':');
    if (colon >= 0)
        host.n = (size_t)colon;
    if (host.n > 1 && host.p[host.n - 1] == '.')
        host.n--; /* the root */
    if (str_eq_ci(host, STR("localhost")) || name_matches(STR("*.localhost"), host))
        return true;
    for (char **p = s->names; *p != NULL; p++) {
        if (name_matches(str_of(*p), host))
            return true;
    }
    return false;
}

static bool host_is_ours(struct conn *c, struct str host)
{
    struct http_server *s = c->server;

    if (s->names == NULL || c->any_host || host.n == 0)
        return true;
    if (host.n == s->last_host_n && memcmp(host.p, s->last_host, host.n) == 0)
        return true; /* almost always the same one */
    if (!is_known(s, host))
        return false;
    if (host.n <= sizeof s->last_host) {
        memcpy(s->last_host, host.p, host.n);
        s->last_host_n = host.n;
    }
    return true;
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
        c->upload->since_ms = clock_now_ms(c->server->clock);
    if (c->upload != NULL)
        conn_enter(c, c->upload->paused ? CONN_UPLOAD_PAUSED : CONN_UPLOAD);
    else if (c->state == CONN_HANDLING)
        conn_enter(c, before == CONN_IDLE ? CONN_HEAD : before);
    else
        return false;
    return true;
}

static void tell_to_continue(struct conn *c, bool body_waits)
{
    const struct http_head *h = &c->req->head;

    if (!h->expects_continue || c->http_1_0 || body_waits || (!h->chunked && c->req->left == 0))
        return;
    buf_add_str(conn_out(c), STR("HTTP/1.1 100 Continue\r\n\r\n"));
    conn_mark(c);
}

/* At an edge: a request for the heart.  It travels in one message if its body is short. */
static enum parsed accept_carried(struct conn *c, bool body_waits)
{
    struct http_req *r = c->req;
    const struct http_head *h = &r->head;
    size_t message = 64 + h->bytes + 8 * (size_t)h->n_fields;

    if (h->bytes > MSG_MAX_HEAD)
        return refuse(c, 431, "head_too_large", "the head of the request is too long");
    if (h->chunked || r->left > MSG_MAX_PAYLOAD - message) {
        r->streams = true;
        r->body_came = body_waits;
        return PARSED_PIECES;
    }
    tell_to_continue(c, body_waits);
    return PARSED_MORE;
}

/* The head is complete: decide what follows it.  PARSED_MORE: go on. */
static enum parsed accept_head(struct conn *c, bool body_waits)
{
    struct http_req *r = c->req;
    const struct http_head *h = &r->head;
    struct str host = h->host != 0 ? str_make(r->base + h->host, h->host_n)
                                   : str_make(r->base + h->authority, h->authority_n);

    if (!host_is_ours(c, host))
        return refuse_name(c, host);
    r->left = h->has_length ? h->length : 0;
    r->max_body = c->server->limits.body_bytes;
    c->keep_alive = h->keep_alive && !c->server->draining && !c->server->leaving;
    c->is_head = h->verb == VERB_HEAD;
    c->http_1_0 = h->minor == 0;
    r->carried = !r->here && !r->decoded && edge_carries(c, str_make(r->base, h->bytes));
    if (r->carried)
        return accept_carried(c, body_waits);
    if (c->server->on_head != NULL && (h->chunked || r->left > 0) && !ask_for_body(c))
        return PARSED_REFUSED;
    if (c->upload == NULL && r->left > r->max_body)
        return refuse(c, 413, "body_too_large", "the body is larger than this server takes");
    tell_to_continue(c, body_waits);
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
            if (r->chunks.left > r->max_body - r->body_n)
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
    if (r->whole) {
        *ret_used = r->used;
        return PARSED_WHOLE;
    }
    *ret_used = r->kept;
    if (r->streams && !r->here)
        return PARSED_PIECES;
    if (r->streams) {
        r->streams = false;
        end = accept_head(c, r->head.bytes < n);
        if (end != PARSED_MORE)
            return end;
    }
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

static bool may_parse(const struct conn *c)
{
    return c->state <= CONN_BODY || (c->state == CONN_IDLE && conn_queued(c) < OUT_HIGH_BYTES);
}

/* A request that was held in vain.  The edge has taken its body without asking for whom. */
static void serve_here(struct conn *c)
{
    struct http_req *r = c->req;
    bool asks = c->server->on_head != NULL && r->body_n > 0;
    struct str body = http_body(r);

    r->decoded = true;
    if (asks && !ask_for_body(c)) {
        http_req_free(c);
    } else if (c->upload != NULL) {
        http_req_free(c);
        http_carried_body(c, body, true);
    } else {
        c->req = NULL; /* the connection may become a WebSocket */
        conn_enter(c, CONN_HANDLING);
        c->server->handler(c->server->ctx, r);
        req_done(c->server, r);
    }
}

/* A request of an edge goes to the heart, or is held until there is one. */
static enum parsed hand_over(struct conn *c, bool whole, size_t used)
{
    struct http_req *r = c->req;

    if (c->server->in_process && str_eq(http_path(r), STR("/cluster/trunk"))) {
        edge_give(c, str_make(r->base, used));
        return PARSED_REFUSED;
    }
    bool room = edge_has_room(c->server) && !edge_queues(c->server);
    if (whole && room)
        signer_check(c, r);
    if (room && edge_send_request(c, r, whole)) {
        if (whole)
            http_req_free(c);
        return PARSED_WHOLE;
    }
    r->whole = whole;
    r->used = used;
    conn_enter(c, CONN_HELD);
    if (c->server->timeout_ms[CONN_HELD] == 0)
        edge_release(c);
    return PARSED_HELD;
}

/* The body of a request that the heart has; the bytes taken. */
static size_t carry_body(struct conn *c, const char *p, size_t n)
{
    struct http_req *r = c->req;
    size_t at = 0, more;

    for (;;) {
        enum http_chunk_end end = r->left > 0 ? CHUNK_DATA : CHUNK_DONE;
        uint64_t *left = r->head.chunked ? &r->chunks.left : &r->left;
        if (r->head.chunked)
            end = http_chunk_next(&r->chunks, p, n, &at, c->server->limits.head_bytes);
        if (end == CHUNK_MORE || (end == CHUNK_DATA && at == n))
            return at;
        if (end == CHUNK_DATA) {
            more = n - at < *left ? n - at : (size_t)*left;
            edge_send_body(c, str_make(p + at, more), false);
            *left -= more;
            at += more;
            continue;
        }
        if (end == CHUNK_DONE)
            edge_send_body(c, STR_NULL, true);
        else
            carried_let_go(c);
        http_req_free(c);
        if (end != CHUNK_DONE)
            http_refuse(c, 400, "bad_request", "the chunked body is malformed");
        return at;
    }
}

/* Consume requests from @p.  What is left over stays in, or goes to, conn->in. */
static void consume(struct conn *c, char *p, size_t n, bool is_in)
{
    size_t done = 0, keep, used = 0;
    enum parsed end = PARSED_WHOLE;

    if (c->state == CONN_UPLOAD)
        done = upload_input(c, p, n);
    else if (c->state == CONN_CARRIED)
        done = carry_body(c, p, n);
    while (end == PARSED_WHOLE && done < n && may_parse(c)) {
        end = parse(c, p + done, n - done, &used);
        if (end == PARSED_PIECES || (end == PARSED_WHOLE && c->req->carried && !c->req->here)) {
            end = hand_over(c, end == PARSED_WHOLE, used);
            done += end == PARSED_WHOLE ? used : 0;
            if (end == PARSED_WHOLE && c->req != NULL)
                done += carry_body(c, p + done, n - done);
        } else if (end == PARSED_WHOLE && c->req->carried) {
            serve_here(c);
            done += used;
        } else if (end == PARSED_WHOLE) {
            struct http_req *r = c->req;
            c->req = NULL; /* the connection may become a WebSocket */
            conn_enter(c, CONN_HANDLING);
            c->server->handler(c->server->ctx, r);
            req_done(c->server, r);
            done += used;
        } else if (end == PARSED_SINK) {
            http_req_free(c);
            done += used;
            done += upload_input(c, p + done, n - done);
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
    if (keep > 0 && c->top == TOP_WS) {
        ws_input(c, p + done, keep);
        keep = 0;
    }
    if (is_in && keep > 0) {
        conn_in(c)->n = done + keep;
        buf_consume(conn_in(c), done);
    } else if (is_in) {
        conn_in_done(c);
    } else if (keep > 0) {
        buf_add(conn_in(c), p + done, keep);
    }
}

void http_input(struct conn *c, char *p, size_t n)
{
    if (c->in->n == 0) {
        consume(c, p, n, false);
        return;
    }
    buf_add(conn_in(c), p, n);
    consume(c, c->in->p, c->in->n, true);
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
    conn_in_done(c);
    http_refuse(c, 503, "overloaded",
                "too much is being sent to this server and not finished: try again in a moment");
}

void http_resume(struct conn *c)
{
    consume(c, c->in->p, c->in->n, true);
}

/* ---- requests that came over a trunk ---- */

bool http_carried_request(struct conn *c, struct str payload, bool whole)
{
    struct http_req *r = req_new(c);
    struct msg_request m = {.head = &r->head};
    enum parsed end;

    if (!batch_read_request(payload, &m) ||
        (whole && (r->head.chunked || (r->head.has_length && r->head.length != m.body.n)))) {
        http_req_free(c);
        return false;
    }
    r->decoded = true;
    r->signer = m.signer;
    r->checked = m.checked;
    r->base = (char *)(uintptr_t)m.head_bytes.p;
    if (!whole) {
        buf_add_str(conn_in(c), m.head_bytes);
        r->base = c->in->p;
    }
    r->kept = r->head.bytes;
    end = accept_head(c, false);
    if (end == PARSED_MORE && whole) {
        r->kept += m.body.n;
        r->body_n = m.body.n;
        c->req = NULL; /* the connection may become a WebSocket */
        conn_enter(c, CONN_HANDLING);
        c->server->handler(c->server->ctx, r);
        req_done(c->server, r);
    } else if (end == PARSED_MORE) {
        conn_enter(c, CONN_BODY);
    } else {
        http_req_free(c);
        conn_in_done(c);
        if (end == PARSED_SINK && whole)
            http_carried_body(c, m.body, true);
    }
    return true;
}

void http_carried_body(struct conn *c, struct str bytes, bool end)
{
    struct http_req *r = c->req;
    size_t taken = 0;

    if (c->upload != NULL) {
        c->upload->ended |= end;
        if (c->state == CONN_UPLOAD && c->in->n == 0)
            taken = upload_input(c, bytes.p, bytes.n);
        if (c->upload != NULL && taken < bytes.n)
            buf_add(conn_in(c), bytes.p + taken, bytes.n - taken);
        if (c->upload != NULL)
            conn_mark(c); /* what waits is taken when the turn ends */
        return;
    }
    if (c->state != CONN_BODY || r == NULL)
        return; /* it was answered before its body */
    if (bytes.n > r->max_body - r->body_n) {
        http_req_free(c);
        conn_in_done(c);
        http_refuse(c, 413, "body_too_large", "the body is larger than this server takes");
        return;
    }
    buf_add_str(conn_in(c), bytes);
    r->base = c->in->p;
    r->kept += bytes.n;
    r->body_n += bytes.n;
    if (!end) {
        conn_mark(c); /* what it holds is counted when the turn ends */
        return;
    }
    c->req = NULL;
    conn_enter(c, CONN_HANDLING);
    c->server->handler(c->server->ctx, r);
    req_done(c->server, r);
    conn_in_done(c);
}
