/* http_request.c - requests: from bytes to handler calls, and what a handler may ask of them.
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
 * Peers.  Behind a proxy the socket's address is the proxy's.  The server believes X-Forwarded-For
 * only from a trusted proxy.  It reads the header from the right and takes the first address that
 * is not a trusted proxy, because a client can invent everything further left.
 *
 * Names.  A request by a host name that nobody configured is refused.  Otherwise a web page whose
 * owner points its name at this machine could talk to bellhop through a local browser (DNS
 * rebinding). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/percent.h"
#include "net/conn.h"

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

/* ---- bodies that go to a sink ---- */

#define SLOWEST_BYTES_S 8192 /* a second, over the whole upload */

struct http_upload {
    struct http_sink sink;
    void *ctx;
    struct http_id id;
    bool chunked, paused;
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

void http_server_answer_to(struct http_server *s, const char *const *names)
{
    for (char **p = s->names; p != NULL && *p != NULL; p++)
        free(*p);
    free(s->names);
    s->names = NULL;
    s->last_host_n = 0;
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
    if (c->server->on_head != NULL && (h->chunked || r->left > 0) && !ask_for_body(c))
        return PARSED_REFUSED;
    if (c->upload == NULL && r->left > r->max_body)
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

/* Consume requests from @p.  What is left over stays in, or goes to, conn->in. */
static void consume(struct conn *c, char *p, size_t n, bool is_in)
{
    size_t done = 0, keep, used = 0;
    enum parsed end = PARSED_WHOLE;

    if (c->state == CONN_UPLOAD)
        done = upload_input(c, p, n);
    while (end == PARSED_WHOLE && done < n && may_parse(c)) {
        end = parse(c, p + done, n - done, &used);
        if (end == PARSED_WHOLE) {
            conn_enter(c, CONN_HANDLING);
            c->server->handler(c->server->ctx, c->req);
            http_req_free(c);
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

/* ---- getters for the handler ---- */

struct str http_method(const struct http_req *r)
{
    return str_of(http_verb_word((enum http_verb)r->head.verb));
}

struct str http_path(const struct http_req *r)
{
    return str_make(r->base + r->head.path, r->head.path_n);
}

struct str http_body(const struct http_req *r)
{
    return str_make(r->base + r->head.bytes, r->body_n);
}

struct str http_header(const struct http_req *r, const char *name)
{
    struct str want = str_of(name);

    for (uint32_t i = 0; i < r->head.n_fields; i++) {
        const struct http_field *f = &r->head.fields[i];
        if (f->name_n == want.n && str_eq_ci(str_make(r->base + f->name, f->name_n), want))
            return str_make(r->base + f->value, f->value_n);
    }
    return STR_NULL;
}

struct str http_raw_query(const struct http_req *r)
{
    const struct http_head *h = &r->head;
    return h->query != 0 ? str_make(r->base + h->query, h->query_n) : STR_NULL;
}

bool http_query(const struct http_req *r, const char *name, struct buf *ret_value)
{
    struct str rest = http_raw_query(r);
    struct str part, want = str_of(name);
    struct buf key = BUF_INIT;
    bool found = false;

    while (!found && str_split(&rest, '&', &part)) {
        ptrdiff_t eq = str_find(part, '=');
        size_t key_n = eq < 0 ? part.n : (size_t)eq;
        buf_reset(&key);
        percent_decode_form(&key, str_make(part.p, key_n));
        found = str_eq(buf_str(&key), want);
        if (found && eq >= 0)
            percent_decode_form(ret_value, str_skip(part, key_n + 1));
    }
    buf_done(&key);
    return found;
}

bool http_cookie(const struct http_req *r, const char *name, struct str *ret_value)
{
    struct str rest = http_header(r, "cookie"), part, want = str_of(name);

    while (str_split(&rest, ';', &part)) {
        ptrdiff_t eq = str_find(part, '=');
        if (eq < 0 || !str_eq(str_trim(str_make(part.p, (size_t)eq)), want))
            continue;
        *ret_value = str_trim(str_skip(part, (size_t)eq + 1));
        if (ret_value->n >= 2 && ret_value->p[0] == '"' && ret_value->p[ret_value->n - 1] == '"')
            *ret_value = str_make(ret_value->p + 1, ret_value->n - 2);
        return true;
    }
    return false;
}

/* "https://a.example:8443/x" -> "a.example:8443" */
static struct str host_of_url(struct str url)
{
    for (size_t i = 0; i + 2 < url.n; i++)
        if (url.p[i] == ':' && url.p[i + 1] == '/' && url.p[i + 2] == '/') {
            struct str rest = str_skip(url, i + 3), host;
            return str_split(&rest, '/', &host) ? host : STR_NULL;
        }
    return STR_NULL;
}

bool http_same_origin(const struct http_req *r, const char *public_url)
{
    struct str origin = http_header(r, "Origin"), host = host_of_url(origin);
    struct str site = http_header(r, "Sec-Fetch-Site");

    if (site.p != NULL && !str_eq(site, STR("same-origin")) && !str_eq(site, STR("none")))
        return false;
    if (origin.p == NULL)
        return true; /* not a browser, or an old one: SameSite cookies still protect it */
    return host.n > 0 && (str_eq_ci(host, http_header(r, "Host")) ||
                          str_eq_ci(host, host_of_url(str_of(public_url))));
}

bool http_is_json(const struct http_req *r)
{
    struct str type = http_header(r, "Content-Type"), main;

    return str_split(&type, ';', &main) && str_eq_ci(str_trim(main), STR("application/json"));
}

bool http_is_upgrade(const struct http_req *r)
{
    return r->head.upgrade;
}

bool http_is_carried(const struct http_req *r)
{
    return r->conn->no_socket;
}

bool http_is_tls(const struct http_req *r)
{
    return r->conn->is_tls;
}

struct http_id http_req_id(const struct http_req *r)
{
    return (struct http_id){r->conn->id.index, r->conn->id.generation};
}

void *http_listener_tag(const struct http_req *r)
{
    return r->conn->io.data;
}

/* ---- the client's address, behind a proxy too ---- */

void http_server_trust(struct http_server *s, const struct addr_net *proxies, size_t n)
{
    free(s->proxies);
    s->proxies = xcalloc(n + 1, sizeof *s->proxies);
    if (n > 0)
        memcpy(s->proxies, proxies, n * sizeof *s->proxies);
    s->n_proxies = n;
}

bool http_peer_is_trusted(const struct http_server *s, const struct addr *a)
{
    return addr_is_in(a, s->proxies, s->n_proxies);
}

/* The part behind the last comma, taken off. */
static struct str last_of(struct str *list)
{
    size_t at = list->n;
    struct str part;

    while (at > 0 && list->p[at - 1] != ',')
        at--;
    part = str_trim(str_skip(*list, at));
    list->n = at > 0 ? at - 1 : 0;
    return part;
}

/* Walk one header line from its end.  True: *@peer is the one who asks. */
static bool walk_line(const struct http_server *s, struct str line, struct addr *peer)
{
    while (line.n > 0) {
        struct addr said;
        if (!addr_parse(last_of(&line), &said))
            return true; /* malformed: the previous hop counts as the client */
        *peer = said;
        if (!http_peer_is_trusted(s, &said))
            return true;
    }
    return false;
}

/* Logs once: this looks like a proxy that is not in trusted_proxies. */
static void tell_of_proxy(struct http_server *s, const struct addr *peer)
{
    char text[ADDR_TEXT_BYTES];

    s->told_of_proxy = true;
    addr_text(peer, text);
    log_warn(NULL,
             "ignoring X-Forwarded-For of %s: if this is your proxy, add it to trusted_proxies, "
             "else all its clients count as one",
             text);
}

struct addr http_req_addr(const struct http_req *r)
{
    struct addr peer = r->conn->peer;
    struct http_server *s = r->conn->server;

    if (!http_peer_is_trusted(s, &peer)) {
        if (!s->told_of_proxy && addr_is_private(&peer) &&
            http_header(r, "x-forwarded-for").p != NULL)
            tell_of_proxy(s, &peer);
        return peer;
    }
    for (uint32_t i = r->head.n_fields; i > 0; i--) {
        const struct http_field *f = &r->head.fields[i - 1];
        if (str_eq_ci(str_make(r->base + f->name, f->name_n), STR("x-forwarded-for")) &&
            walk_line(s, str_make(r->base + f->value, f->value_n), &peer))
            break;
    }
    return peer;
}

struct str http_host(const struct http_req *r)
{
    struct str said = http_header(r, "host");
    bool trusted = http_peer_is_trusted(r->conn->server, &r->conn->peer);

    for (uint32_t i = r->head.n_fields; trusted && i > 0; i--) {
        const struct http_field *f = &r->head.fields[i - 1];
        struct str list = str_make(r->base + f->value, f->value_n);
        if (!str_eq_ci(str_make(r->base + f->name, f->name_n), STR("x-forwarded-host")))
            continue;
        said = last_of(&list); /* a client can invent everything further left */
        break;
    }
    ptrdiff_t colon = str_find(said, ':');
    if (colon >= 0 && (said.n == 0 || said.p[0] != '['))
        said.n = (size_t)colon;
    if (said.n > 1 && said.p[said.n - 1] == '.')
        said.n--; /* the root */
    return said;
}

struct str http_peer(const struct http_req *r)
{
    struct http_req *cache = (struct http_req *)(uintptr_t)r;

    if (r->peer[0] == '\0') {
        struct addr a = http_req_addr(r);
        addr_text(&a, cache->peer);
    }
    return str_of(r->peer);
}
