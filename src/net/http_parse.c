/* http_parse.c - reading requests.
 *
 * http-parser reads the head, we read the body.  The library of Debian is built without its strict
 * mode, which lets through what a proxy in front may understand differently: spaces in header
 * names, folded lines, bare line feeds, any two bytes behind a chunk.  So once the head is complete
 * its lines are checked again here, and bodies - counted or chunked - are decoded by a small
 * machine that accepts one spelling only.
 *
 * A request lies in memory as its head followed by its decoded body: in the shared read buffer when
 * it arrived whole, else in conn->in.  Chunk framing is squeezed out in place.  Everything the
 * request knows of itself is an offset, because the bytes move when the buffer grows. */
#include "net/conn.h"

#include <assert.h>
#include <stdlib.h>

enum parsed { PARSED_MORE, PARSED_WHOLE, PARSED_REFUSED };
enum { MAX_SPARE_REQS = 64, MAX_CHUNK_LINE = 256 };

/* ---- the head ---- */

static int on_url(http_parser *p, const char *at, size_t n)
{
    struct http_req *r = p->data;
    if (r->url_n == 0)
        r->url = (uint32_t)(at - r->base);
    r->url_n += (uint32_t)n;
    return 0;
}

static int on_field(http_parser *p, const char *at, size_t n)
{
    struct http_req *r = p->data;

    if (!r->field_open) {
        if (r->n_fields == MAX_FIELDS)
            return 1;
        r->fields[r->n_fields++] = (struct http_field){.name = (uint32_t)(at - r->base)};
        r->field_open = true;
    }
    r->fields[r->n_fields - 1].name_n += (uint32_t)n;
    return 0;
}

static int on_value(http_parser *p, const char *at, size_t n)
{
    struct http_req *r = p->data;
    struct http_field *f = &r->fields[r->n_fields - 1];

    if (r->field_open) {
        f->value = (uint32_t)(at - r->base);
        r->field_open = false;
    }
    f->value_n += (uint32_t)n;
    return 0;
}

static int on_head(http_parser *p)
{
    http_parser_pause(p, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_head,
};

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
    memset(r, 0, offsetof(struct http_req, fields)); /* the fields are counted */
    r->conn = c;
    http_parser_init(&r->parser, HTTP_REQUEST);
    r->parser.data = r;
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

static enum parsed refuse_syntax(struct conn *c)
{
    struct http_req *r = c->req;
    char first = r->base[0];

    switch (HTTP_PARSER_ERRNO(&r->parser)) {
    case HPE_CB_header_field:
    case HPE_HEADER_OVERFLOW:
        return refuse(c, 431, "head_too_large", "too many header fields");
    case HPE_INVALID_METHOD:
        if (first >= 'A' && first <= 'Z')
            return refuse(c, 501, "bad_method", "this method is not implemented");
        break;
    case HPE_INVALID_TRANSFER_ENCODING:
        return refuse(c, 501, "bad_transfer_encoding", "only chunked is implemented");
    default:
        break;
    }
    return refuse(c, 400, "bad_request", http_errno_description(HTTP_PARSER_ERRNO(&r->parser)));
}

/* No control characters but tabs and the ends of lines: what one parser takes for white space
 * another takes for part of a word.  A plain loop, which compilers make a fast one. */
static bool bytes_are_strict(const char *p, size_t n, size_t *ret_returns)
{
    size_t returns = 0, bad = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        returns += c == '\r';
        bad += (c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f;
    }
    *ret_returns = returns;
    return bad == 0;
}

/* What http-parser lets pass: every line must end in CR LF and none may continue another. */
static bool lines_are_strict(const char *p, size_t n)
{
    const char *end = p + n, *at = p;
    size_t returns;

    if (!bytes_are_strict(p, n, &returns))
        return false;
    while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        if (at == p || at[-1] != '\r')
            return false;
        at++;
        returns--;
        if (at < end && (*at == ' ' || *at == '\t'))
            return false;
    }
    return end[-1] == '\n' && returns == 0;
}

/* One space before it, none in it. */
static bool url_is_strict(const struct http_req *r)
{
    struct str url = str_make(r->base + r->url, r->url_n);

    if (r->url < 2 || url.p[-1] != ' ' || url.p[-2] == ' ')
        return false;
    for (size_t i = 0; i < url.n; i++) {
        if ((unsigned char)url.p[i] <= ' ' || (unsigned char)url.p[i] >= 0x7f)
            return false;
    }
    return url.n > 0;
}

/* "/a?b#c", "*" or "http://host/a?b" -> path and query. */
static void split_url(struct http_req *r)
{
    const char *u = r->base + r->url;
    uint32_t at = 0, n = r->url_n;
    const char *mark;

    mark = memchr(u, '#', n);
    if (mark != NULL)
        n = (uint32_t)(mark - u);
    if (u[0] != '/' && (mark = memmem(u, n, "://", 3)) != NULL) {
        uint32_t host = (uint32_t)(mark - u) + 3;
        mark = memchr(u + host, '/', n - host);
        at = mark != NULL ? (uint32_t)(mark - u) : n;
    }
    r->path = r->url + at;
    r->path_n = n - at;
    mark = memchr(u + at, '?', n - at);
    if (mark != NULL) {
        r->path_n = (uint32_t)(mark - u) - at;
        r->query = r->url + (uint32_t)(mark - u) + 1;
        r->query_n = r->url + n - r->query;
    }
}

struct head_facts {
    unsigned lengths, encodings, hosts;
    bool chunked, expects, websocket;
    bool expects_other, bad_name;
};

static void note_field(struct http_req *r, const struct http_field *f, struct head_facts *facts)
{
    struct str name = http_field_name(r, f);

    if (memchr(name.p, ' ', name.n) != NULL)
        facts->bad_name = true;
    switch (name.n) {
    case 4:
        facts->hosts += str_eq_ci(name, STR("host"));
        break;
    case 6:
        if (str_eq_ci(name, STR("expect"))) {
            facts->expects = str_eq_ci(http_field_value(r, f), STR("100-continue"));
            facts->expects_other = !facts->expects;
        }
        break;
    case 7:
        if (str_eq_ci(name, STR("upgrade")))
            facts->websocket = str_eq_ci(http_field_value(r, f), STR("websocket"));
        break;
    case 14:
        facts->lengths += str_eq_ci(name, STR("content-length"));
        break;
    case 17:
        if (str_eq_ci(name, STR("transfer-encoding"))) {
            facts->encodings++;
            facts->chunked = str_eq_ci(http_field_value(r, f), STR("chunked"));
        }
        break;
    default:
        break;
    }
}

/* The head is complete: decide what follows it.  PARSED_MORE: go on. */
static enum parsed check_head(struct conn *c, bool body_waits)
{
    struct http_req *r = c->req;
    struct head_facts facts = {0};

    for (uint32_t i = 0; i < r->n_fields; i++)
        note_field(r, &r->fields[i], &facts);
    if (!lines_are_strict(r->base, r->head_n) || facts.bad_name || facts.hosts > 1 ||
        !url_is_strict(r))
        return refuse(c, 400, "bad_request", "the head of the request is malformed");
    if (r->parser.http_major != 1 || r->parser.method == HTTP_CONNECT)
        return refuse(c, 501, "not_implemented", "only HTTP/1.0 and HTTP/1.1 are spoken here");
    if (facts.lengths + facts.encodings > 1)
        return refuse(c, 400, "bad_request", "more than one length for the body");
    if (facts.encodings > 0 && r->parser.http_minor == 0)
        return refuse(c, 400, "bad_request", "HTTP/1.0 knows no transfer encodings");
    if (facts.encodings > 0 && !facts.chunked)
        return refuse(c, 501, "bad_transfer_encoding", "only chunked is implemented");
    if (facts.expects_other)
        return refuse(c, 400, "bad_request", "only Expect: 100-continue is known");
    r->chunked = facts.chunked;
    r->left = facts.lengths > 0 ? r->parser.content_length : 0;
    if (r->left > c->server->limits.body_bytes)
        return refuse(c, 413, "body_too_large", "the body is larger than this server takes");
    r->upgrade = r->parser.upgrade && facts.websocket && r->parser.method == HTTP_GET;
    if (r->upgrade && (r->chunked || r->left > 0))
        return refuse(c, 400, "bad_request", "an upgrade has no body");
    split_url(r);
    c->keep_alive = http_should_keep_alive(&r->parser) && !c->server->draining;
    c->is_head = r->parser.method == HTTP_HEAD;
    c->http_1_0 = r->parser.http_minor == 0;
    if (facts.expects && !c->http_1_0 && !body_waits && (r->chunked || r->left > 0)) {
        buf_add_str(conn_out(c), STR("HTTP/1.1 100 Continue\r\n\r\n"));
        conn_mark(c);
    }
    return PARSED_MORE;
}

static enum parsed parse_head(struct conn *c, size_t n, size_t *ret_at)
{
    struct http_req *r = c->req;
    size_t limit = c->server->limits.head_bytes;
    size_t k = http_parser_execute(&r->parser, &settings, r->base + r->kept, n - r->kept);

    if (HTTP_PARSER_ERRNO(&r->parser) == HPE_OK) {
        r->kept = n;
        return n > limit
                   ? refuse(c, 431, "head_too_large", "the head is larger than this server takes")
                   : PARSED_MORE;
    }
    if (HTTP_PARSER_ERRNO(&r->parser) != HPE_PAUSED)
        return refuse_syntax(c);
    r->head_n = r->kept + k + 1; /* paused on the last line feed */
    r->kept = r->head_n;
    *ret_at = r->head_n;
    if (r->head_n > limit)
        return refuse(c, 431, "head_too_large", "the head is larger than this server takes");
    return check_head(c, r->head_n < n);
}

/* ---- the body ---- */

/*  SIZE --LF--> DATA --all--> CR -> LF -> SIZE
 *    '--size 0, LF--> TRAILER (lines until an empty one) -> whole */
enum {
    CHUNK_SIZE,
    CHUNK_EXT,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_CR,
    CHUNK_LF,
    CHUNK_TRAILER,
    CHUNK_END_LF
};

/* One byte outside of chunk data.  False: malformed. */
static bool chunk_byte(struct http_req *r, char ch)
{
    int hex;

    switch (r->chunk_state) {
    case CHUNK_SIZE:
        hex = http_hex_value(ch);
        if (hex >= 0 && r->left >> 59 == 0) {
            r->left = r->left << 4 | (uint64_t)hex;
            r->line_n++;
            return true;
        }
        if (r->line_n == 0 || hex >= 0)
            return false;
        r->chunk_state = ch == '\r' ? CHUNK_SIZE_LF : CHUNK_EXT;
        return ch == '\r' || ch == ';' || ch == ' ' || ch == '\t';
    case CHUNK_EXT:
        if (ch == '\r')
            r->chunk_state = CHUNK_SIZE_LF;
        return ch != '\n' && ch != '\0' && ++r->line_n < MAX_CHUNK_LINE;
    case CHUNK_SIZE_LF:
        r->chunk_state = r->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
        r->line_n = 0;
        return ch == '\n';
    case CHUNK_CR:
        r->chunk_state = CHUNK_LF;
        return ch == '\r';
    case CHUNK_LF:
        r->chunk_state = CHUNK_SIZE;
        return ch == '\n';
    default:
        assert(false);
        return false;
    }
}

/* A byte of the trailers, which are skipped.  1: that was the end; 0: go on; -1: malformed. */
static int trailer_byte(struct http_req *r, char ch, size_t limit)
{
    if (r->chunk_state == CHUNK_END_LF) {
        if (ch != '\n')
            return -1;
        if (r->line_n == 0)
            return 1;
        r->line_n = 0;
        r->chunk_state = CHUNK_TRAILER;
        return 0;
    }
    if (++r->extra_n > limit || ch == '\n' || ch == '\0')
        return -1;
    if (ch == '\r')
        r->chunk_state = CHUNK_END_LF;
    else
        r->line_n++;
    return 0;
}

/* Move up to @n raw bytes at @at behind the decoded body. */
static size_t take_body(struct http_req *r, size_t at, size_t n)
{
    if (n > r->left)
        n = (size_t)r->left;
    if (at != r->kept)
        memmove(r->base + r->kept, r->base + at, n);
    r->kept += n;
    r->body_n += n;
    r->left -= n;
    return n;
}

static enum parsed parse_chunks(struct conn *c, size_t n, size_t *at)
{
    struct http_req *r = c->req;

    while (*at < n) {
        if (r->chunk_state == CHUNK_DATA) {
            if (r->left > c->server->limits.body_bytes - r->body_n)
                return refuse(c, 413, "body_too_large",
                              "the body is larger than this server takes");
            *at += take_body(r, *at, n - *at);
            if (r->left == 0)
                r->chunk_state = CHUNK_CR;
        } else if (r->chunk_state >= CHUNK_TRAILER) {
            int end = trailer_byte(r, r->base[(*at)++], c->server->limits.head_bytes);
            if (end != 0)
                return end > 0 ? PARSED_WHOLE
                               : refuse(c, 400, "bad_request", "the trailers are malformed");
        } else if (!chunk_byte(r, r->base[(*at)++])) {
            return refuse(c, 400, "bad_request", "the chunked body is malformed");
        }
    }
    return PARSED_MORE;
}

/* Read on in the request at @p.  *@ret_used: on PARSED_MORE the bytes at @p to keep, on
 * PARSED_WHOLE where the next request starts. */
static enum parsed parse(struct conn *c, char *p, size_t n, size_t *ret_used)
{
    struct http_req *r = c->req != NULL ? c->req : req_new(c);
    size_t at = r->kept;
    enum parsed end;

    r->base = p;
    if (r->head_n == 0) {
        end = parse_head(c, n, &at);
        *ret_used = r->kept;
        if (end != PARSED_MORE || r->head_n == 0)
            return end;
    }
    if (r->chunked) {
        end = parse_chunks(c, n, &at);
    } else {
        at += take_body(r, at, n - at);
        end = r->left == 0 ? PARSED_WHOLE : PARSED_MORE;
    }
    *ret_used = end == PARSED_WHOLE ? at : r->kept;
    return end;
}

/* ---- from bytes to handler calls ---- */

static void wait_for_more(struct conn *c)
{
    bool in_body = c->req->head_n > 0;

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

    while (end == PARSED_WHOLE && done < n && may_parse(c)) {
        end = parse(c, p + done, n - done, &used);
        if (end == PARSED_WHOLE) {
            handle(c);
            done += used;
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

void http_resume(struct conn *c)
{
    consume(c, c->in.p, c->in.n, true);
}
