/* batch.c - see batch.h. */
#include "net/batch.h"

#include <assert.h>

/* ---- batches ---- */

void batch_begin(struct buf *b)
{
    assert(b->n == 0);
    buf_add(b, "\0\0\0\0\0\0\0\0\0\0\0", BATCH_HEAD_BYTES);
}

size_t batch_add_begin(struct buf *b, uint32_t number, enum msg_what what)
{
    size_t at = b->n;
    char *head = buf_room(b, MSG_HEAD_BYTES);

    if (head != NULL) {
        put_u32(head, number);
        put_u32(head + 4, (uint32_t)what);
        b->n += MSG_HEAD_BYTES;
    }
    return at;
}

void batch_add_end(struct buf *b, size_t begun)
{
    size_t n = b->n - begun - MSG_HEAD_BYTES;

    if (buf_failed(b))
        return;
    assert(n <= MSG_MAX_PAYLOAD);
    put_u32(b->p + begun + 4, (uint32_t)(uint8_t)b->p[begun + 4] | (uint32_t)n << 8);
}

void batch_add(struct buf *b, uint32_t number, enum msg_what what, struct str payload)
{
    size_t at = batch_add_begin(b, number, what);

    buf_add_str(b, payload);
    batch_add_end(b, at);
}

void batch_add_u32(struct buf *b, uint32_t number, enum msg_what what, uint32_t value)
{
    char bytes[4];

    put_u32(bytes, value);
    batch_add(b, number, what, str_make(bytes, sizeof bytes));
}

void batch_end(struct buf *b, uint64_t number)
{
    if (buf_failed(b))
        return;
    put_u64(b->p, number);
    put_u32(b->p + 8, (uint32_t)(b->n - BATCH_HEAD_BYTES));
}

size_t batch_bytes(struct str bytes)
{
    uint32_t n;

    if (bytes.n < BATCH_HEAD_BYTES)
        return 0;
    n = get_u32(bytes.p + 8);
    return n <= BATCH_MAX_BYTES ? BATCH_HEAD_BYTES + (size_t)n : SIZE_MAX;
}

bool batch_open(struct str whole, uint64_t *no, struct str *ret_messages)
{
    if (batch_bytes(whole) != whole.n || get_u64(whole.p) != *no + 1)
        return false;
    ++*no;
    *ret_messages = str_skip(whole, BATCH_HEAD_BYTES);
    return true;
}

bool batch_next(struct str *messages, struct msg *ret, bool *ret_bad)
{
    uint32_t word;

    *ret_bad = false;
    if (messages->n == 0)
        return false;
    *ret_bad = true;
    if (messages->n < MSG_HEAD_BYTES)
        return false;
    word = get_u32(messages->p + 4);
    *ret = (struct msg){.number = get_u32(messages->p), .what = (uint8_t)word};
    ret->payload = str_make(messages->p + MSG_HEAD_BYTES, word >> 8);
    if (ret->what == 0 || ret->what >= MSG_N || ret->payload.n > MSG_MAX_PAYLOAD ||
        ret->payload.n > messages->n - MSG_HEAD_BYTES)
        return false;
    *messages = str_skip(*messages, MSG_HEAD_BYTES + ret->payload.n);
    *ret_bad = false;
    return true;
}

/* ---- requests ---- */

enum { REQUEST_BYTES = 4 + 2 + 4 * 4 + 8, FIELD_BYTES = 8, SIGNER_BYTES = 8 };
enum { IS_KEPT = 1, IS_CHUNKED = 2, HAS_LENGTH = 4, IS_UPGRADE = 8, IS_CHECKED = 16, EXPECTS = 32 };

static char *put_span(char *at, uint32_t from, uint32_t n)
{
    put_u16(at, (uint16_t)from);
    put_u16(at + 2, (uint16_t)n);
    return at + 4;
}

void batch_add_request(struct buf *b, uint32_t number, enum msg_what what,
                       const struct msg_request *r)
{
    const struct http_head *h = r->head;
    size_t begun = batch_add_begin(b, number, what);
    size_t bytes =
        REQUEST_BYTES + h->n_fields * (size_t)FIELD_BYTES + (r->checked != 0 ? SIGNER_BYTES : 0);
    char *at = buf_room(b, bytes);

    if (at == NULL)
        return;
    assert(r->head_bytes.n <= MSG_MAX_HEAD && h->n_fields <= HTTP_MAX_FIELDS);
    *at++ = (char)h->verb;
    *at++ = (char)h->minor;
    *at++ = (char)((h->keep_alive ? IS_KEPT : 0) | (h->chunked ? IS_CHUNKED : 0) |
                   (h->has_length ? HAS_LENGTH : 0) | (h->upgrade ? IS_UPGRADE : 0) |
                   (r->checked != 0 ? IS_CHECKED : 0) | (r->expects ? EXPECTS : 0));
    *at++ = (char)h->n_fields;
    put_u16(at, (uint16_t)r->head_bytes.n);
    at = put_span(at + 2, h->path, h->path_n);
    at = put_span(at, h->query, h->query_n);
    at = put_span(at, h->authority, h->authority_n);
    at = put_span(at, h->host, h->host_n);
    put_u64(at, h->length);
    at += 8;
    for (uint32_t i = 0; i < h->n_fields; i++) {
        at = put_span(at, h->fields[i].name, h->fields[i].name_n);
        at = put_span(at, h->fields[i].value, h->fields[i].value_n);
    }
    if (r->checked != 0) {
        put_u32(at, r->signer);
        put_u32(at + 4, r->checked);
    }
    b->n += bytes;
    buf_add_str(b, r->head_bytes);
    buf_add_str(b, r->body);
    batch_add_end(b, begun);
}

/* True: the span lies inside @n bytes. */
static bool get_span(const char **at, size_t n, uint32_t *ret_from, uint32_t *ret_n)
{
    *ret_from = get_u16(*at);
    *ret_n = get_u16(*at + 2);
    *at += 4;
    return (size_t)*ret_from + *ret_n <= n;
}

bool batch_read_request(struct str payload, struct msg_request *ret)
{
    struct http_head *h = ret->head;
    const char *at = payload.p;
    size_t n, fields;
    uint8_t flags;
    bool ok;

    if (payload.n < REQUEST_BYTES)
        return false;
    memset(h, 0, offsetof(struct http_head, fields));
    h->verb = (uint8_t)at[0];
    h->minor = (uint8_t)at[1];
    flags = (uint8_t)at[2];
    h->n_fields = (uint8_t)at[3];
    n = get_u16(at + 4);
    fields = h->n_fields * (size_t)FIELD_BYTES + ((flags & IS_CHECKED) != 0 ? SIGNER_BYTES : 0);
    if (h->verb >= VERB_N || h->minor > 1 || h->n_fields > HTTP_MAX_FIELDS ||
        payload.n - REQUEST_BYTES < fields + n || n == 0)
        return false;
    h->keep_alive = (flags & IS_KEPT) != 0;
    h->chunked = (flags & IS_CHUNKED) != 0;
    h->has_length = (flags & HAS_LENGTH) != 0;
    h->upgrade = (flags & IS_UPGRADE) != 0;
    h->bytes = (uint32_t)n;
    at += 6;
    ok = get_span(&at, n, &h->path, &h->path_n) && get_span(&at, n, &h->query, &h->query_n) &&
         get_span(&at, n, &h->authority, &h->authority_n) && get_span(&at, n, &h->host, &h->host_n);
    if (!ok || h->path_n == 0)
        return false;
    h->length = get_u64(at);
    at += 8;
    for (uint32_t i = 0; ok && i < h->n_fields; i++)
        ok = get_span(&at, n, &h->fields[i].name, &h->fields[i].name_n) &&
             get_span(&at, n, &h->fields[i].value, &h->fields[i].value_n);
    ret->signer = ret->checked = 0;
    if (ok && (flags & IS_CHECKED) != 0) {
        ret->signer = get_u32(at);
        ret->checked = get_u32(at + 4);
        at += SIGNER_BYTES;
    }
    ret->head_bytes = str_make(at, n);
    ret->body = str_skip(payload, REQUEST_BYTES + fields + n);
    ret->expects = h->expects_continue = (flags & EXPECTS) != 0;
    return ok;
}

/* ---- the rest ---- */

enum { WS_BYTES = 1 + 4 + 4 };

void batch_add_ws(struct buf *b, uint32_t number, const struct msg_ws *w)
{
    char bytes[WS_BYTES] = {(char)w->gateway};

    put_u32(bytes + 1, w->max_message);
    put_u32(bytes + 5, w->before);
    batch_add(b, number, MSG_WS, str_make(bytes, sizeof bytes));
}

bool batch_read_ws(struct str payload, struct msg_ws *ret)
{
    if (payload.n != WS_BYTES)
        return false;
    *ret = (struct msg_ws){payload.p[0] != 0, get_u32(payload.p + 1), get_u32(payload.p + 5)};
    return true;
}

void batch_add_signer(struct buf *b, enum msg_what what, const struct msg_signer *s)
{
    size_t begun = batch_add_begin(b, 0, what);
    char id[4];

    put_u32(id, s->id);
    buf_add(b, id, sizeof id);
    buf_add(b, s->key, MSG_KEY_BYTES);
    buf_add_str(b, s->path);
    batch_add_end(b, begun);
}

bool batch_read_signer(struct str payload, struct msg_signer *ret)
{
    enum { BEFORE_PATH = 4 + MSG_KEY_BYTES };

    if (payload.n <= BEFORE_PATH || payload.n > BEFORE_PATH + MSG_PATH_BYTES)
        return false;
    ret->id = get_u32(payload.p);
    ret->key = (const uint8_t *)payload.p + 4;
    ret->path = str_skip(payload, BEFORE_PATH);
    return true;
}

bool batch_read_connect(struct str payload, uint8_t *ret_flags, struct addr *ret_peer)
{
    if (payload.n != 1 && payload.n != 1 + 4 && payload.n != 1 + 16)
        return false;
    *ret_flags = (uint8_t)payload.p[0];
    *ret_peer = (struct addr){.n = (uint8_t)(payload.n - 1)};
    memcpy(ret_peer->bytes, payload.p + 1, payload.n - 1);
    return true;
}

void batch_put_row(struct buf *b, const struct msg_row *r)
{
    char row[8];

    assert(r->id.n == MSG_ID_BYTES);
    put_u64(row, r->row);
    buf_add(b, row, sizeof row);
    buf_add_str(b, r->id);
}

bool batch_next_row(struct str *rows, struct msg_row *ret)
{
    if (rows->n < MSG_ROW_BYTES)
        return false;
    *ret = (struct msg_row){get_u64(rows->p), str_make(rows->p + 8, MSG_ID_BYTES)};
    *rows = str_skip(*rows, MSG_ROW_BYTES);
    return true;
}

void batch_put_texts(struct buf *b, const struct str *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_add_str(b, texts[i]);
        buf_add_c(b, '\0');
    }
}

bool batch_read_texts(struct str payload, struct str *ret, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *end = payload.n > 0 ? memchr(payload.p, '\0', payload.n) : NULL;
        if (end == NULL)
            return false;
        ret[i] = str_make(payload.p, (size_t)(end - payload.p));
        payload = str_skip(payload, ret[i].n + 1);
    }
    return payload.n == 0;
}
