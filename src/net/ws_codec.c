/* ws_codec.c - design.  (ws_codec.h has the contract.)
 *
 *      HEAD --header complete--> DATA    --payload complete--> HEAD
 *                           '--> CONTROL --payload complete--> HEAD       any --violation--> broken
 *
 * The header of a frame, up to 14 bytes, is copied into the struct.  The payload is unmasked in
 * place, eight bytes at a time.  Only a control payload that a read cut in two is copied, into a
 * block that exists while the frame is incomplete, so that ten thousand silent sockets pay for none
 * of it. */
#include "net/ws_codec.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/contract.h"

enum { HEAD, DATA, CONTROL };
enum { CONTROL_MAX = 125 };

struct ws_control {
    uint8_t n;
    char bytes[CONTROL_MAX];
};

void ws_decoder_init(struct ws_decoder *d, bool server, uint32_t max_message)
{
    *d = (struct ws_decoder){.server = server, .max_message = max_message, .head_need = 2};
}

void ws_decoder_done(struct ws_decoder *d)
{
    free(d->control);
    d->control = NULL;
}

bool ws_decoder_is_idle(const struct ws_decoder *d)
{
    return d->state == HEAD && d->head_n == 0 && !d->in_message && !d->broken;
}

void ws_mask(char *p, size_t n, const uint8_t mask[4], size_t offset)
{
    uint8_t m[8];
    uint64_t wide, word;
    size_t i = 0;

    for (size_t k = 0; k < 8; k++)
        m[k] = mask[(offset + k) & 3];
    memcpy(&wide, m, 8);
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, p + i, 8);
        word ^= wide;
        memcpy(p + i, &word, 8);
    }
    for (; i < n; i++)
        p[i] = (char)((uint8_t)p[i] ^ m[i & 7]);
}

static struct ws_decoded bad(struct ws_decoder *d, int code)
{
    d->broken = true;
    return (struct ws_decoded){.item = WS_ITEM_BAD, .code = code};
}

/* The first two bytes: 0 when they may stand here, else the close code. */
static int check_start(const struct ws_decoder *d, const uint8_t *h)
{
    uint8_t op = h[0] & 0x0f, len = h[1] & 0x7f;
    bool fin = (h[0] & 0x80) != 0;

    if ((h[0] & 0x70) != 0 || ((h[1] & 0x80) != 0) != d->server)
        return CLOSE_CODE_PROTOCOL;
    if (op >= WS_CLOSE)
        return op <= WS_PONG && fin && len <= CONTROL_MAX ? 0 : CLOSE_CODE_PROTOCOL;
    if (op > WS_BINARY)
        return CLOSE_CODE_PROTOCOL;
    return (op == WS_CONT) == d->in_message ? 0 : CLOSE_CODE_PROTOCOL;
}

/* A whole header has been seen: 0, or the close code. */
static int take_head(struct ws_decoder *d, const uint8_t *h, uint8_t size)
{
    uint8_t len = h[1] & 0x7f, more = size - 2 - (d->server ? 4 : 0);
    uint64_t n = more == 0 ? len : 0;

    for (int i = 0; i < more; i++)
        n = n << 8 | h[2 + i];
    if ((len == 126 && n < 126) || (len == 127 && (n < 65536 || n >> 63 != 0)))
        return CLOSE_CODE_PROTOCOL; /* the shortest form is required, the top bit clear */
    d->op = h[0] & 0x0f;
    d->fin = (h[0] & 0x80) != 0;
    d->mask_at = 0;
    d->head_n = 0;
    d->head_need = 2;
    if (d->server)
        memcpy(d->mask, h + size - 4, 4);
    if (d->op >= WS_CLOSE) {
        d->state = CONTROL;
        d->left = (uint32_t)n; /* at most CONTROL_MAX: check_start() */
        return 0;
    }
    d->state = DATA;
    if (d->op != WS_CONT) {
        d->text = d->op == WS_TEXT;
        d->message_n = 0;
    }
    if (n > d->max_message - d->message_n)
        return CLOSE_CODE_TOO_LARGE;
    d->left = (uint32_t)n;
    d->message_n += d->left;
    d->in_message = !d->fin;
    return 0;
}

/* Collects a header, which may come in pieces.  True when it is complete; *@ret_code as above. */
static bool read_head(struct ws_decoder *d, char **p, size_t *n, int *ret_code)
{
    while (d->head_n < d->head_need) {
        size_t missing = (size_t)d->head_need - d->head_n, part = *n < missing ? *n : missing;
        if (part == 0)
            return false;
        memcpy(d->head + d->head_n, *p, part);
        d->head_n += (uint8_t)part;
        *p += part;
        *n -= part;
        if (d->head_n != 2)
            continue;
        uint8_t len = d->head[1] & 0x7f;
        *ret_code = check_start(d, d->head);
        if (*ret_code != 0)
            return true;
        d->head_need = (uint8_t)(2 + (len == 126 ? 2 : len == 127 ? 8 : 0) + (d->server ? 4 : 0));
    }
    *ret_code = take_head(d, d->head, d->head_need);
    return true;
}

static char *take_payload(struct ws_decoder *d, char **p, size_t *n, size_t want)
{
    char *at = *p;
    if (d->server && want > 0)
        ws_mask(at, want, d->mask, d->mask_at);
    d->mask_at = (uint8_t)((d->mask_at + want) & 3);
    d->left -= (uint32_t)want;
    *p += want;
    *n -= want;
    return at;
}

static struct ws_decoded read_data(struct ws_decoder *d, char **p, size_t *n)
{
    size_t want = *n < d->left ? *n : d->left;
    char *at = take_payload(d, p, n, want);
    bool end = d->left == 0 && d->fin;

    if (d->left == 0)
        d->state = HEAD;
    return (
        struct ws_decoded){.item = WS_ITEM_DATA, .bytes = {at, want}, .end = end, .text = d->text};
}

/* RFC 6455 7.4: the codes that may travel. */
static bool close_code_ok(int code)
{
    if (code >= 3000 && code <= 4999)
        return true;
    return code >= 1000 && code <= 1014 && code != 1004 && code != CLOSE_CODE_NONE &&
           code != CLOSE_CODE_LOST;
}

static struct ws_decoded finish_control(struct ws_decoder *d, struct str bytes)
{
    struct ws_decoded it = {.item = d->op == WS_PING ? WS_ITEM_PING : WS_ITEM_PONG, .bytes = bytes};

    d->state = HEAD;
    if (d->op != WS_CLOSE)
        return it;
    if (bytes.n == 1)
        return bad(d, CLOSE_CODE_PROTOCOL);
    it.item = WS_ITEM_CLOSE;
    it.code = CLOSE_CODE_NONE;
    if (bytes.n == 0)
        return it;
    it.code = (uint8_t)bytes.p[0] << 8 | (uint8_t)bytes.p[1];
    if (!close_code_ok(it.code))
        return bad(d, CLOSE_CODE_PROTOCOL);
    it.bytes = str_skip(bytes, 2);
    return utf8_valid(it.bytes) ? it : bad(d, CLOSE_CODE_NOT_UTF8);
}

static struct ws_decoded read_control(struct ws_decoder *d, char **p, size_t *n)
{
    size_t want = *n < d->left ? *n : d->left;
    bool whole = d->control == NULL && want == d->left;
    char *at = take_payload(d, p, n, want);

    if (whole)
        return finish_control(d, str_make(at, want));
    if (d->control == NULL)
        d->control = xcalloc(1, sizeof *d->control);
    memcpy(d->control->bytes + d->control->n, at, want);
    d->control->n += (uint8_t)want;
    if (d->left > 0)
        return (struct ws_decoded){.item = WS_ITEM_MORE};
    return finish_control(d, str_make(d->control->bytes, d->control->n));
}

struct ws_decoded ws_decode(struct ws_decoder *d, char **p, size_t *n)
{
    struct ws_decoded it = {.item = WS_ITEM_MORE};
    int code = 0;

    if (d->state != CONTROL && d->control != NULL)
        ws_decoder_done(d); /* its bytes were borrowed until this call */
    if (d->broken) {
        *p += *n;
        *n = 0;
        return it;
    }
    if (d->state == HEAD) {
        if (!read_head(d, p, n, &code))
            return it;
        if (code != 0)
            return bad(d, code);
    }
    if (d->state == DATA)
        return *n > 0 || d->left == 0 ? read_data(d, p, n) : it;
    return read_control(d, p, n);
}

size_t ws_frame_head_bytes(uint8_t h[14], enum ws_op op, bool fin, uint64_t n,
                           const uint8_t mask[4])
{
    size_t k = 2;
    uint8_t masked = mask != NULL ? 0x80 : 0;

    h[0] = (uint8_t)((fin ? 0x80 : 0) | op);
    if (n < 126) {
        h[1] = (uint8_t)(masked | n);
    } else if (n < 65536) {
        h[1] = masked | 126;
        h[2] = (uint8_t)(n >> 8);
        h[3] = (uint8_t)n;
        k = 4;
    } else {
        h[1] = masked | 127;
        for (int i = 0; i < 8; i++)
            h[2 + i] = (uint8_t)(n >> (56 - 8 * i));
        k = 10;
    }
    if (mask != NULL) {
        memcpy(h + k, mask, 4);
        k += 4;
    }
    return k;
}

void ws_frame_head(struct buf *out, enum ws_op op, bool fin, uint64_t n, const uint8_t mask[4])
{
    uint8_t head[14];
    buf_add(out, head, ws_frame_head_bytes(head, op, fin, n, mask));
}

void ws_accept_key(struct str key, char ret_accept[29])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char sum[EVP_MAX_MD_SIZE];
    char text[128];

    if (key.n > sizeof text - sizeof guid)
        key.n = sizeof text - sizeof guid; /* a real key has 24 characters */
    memcpy(text, key.p, key.n);
    memcpy(text + key.n, guid, sizeof guid - 1);
    EVP_Digest(text, key.n + sizeof guid - 1, sum, NULL, EVP_sha1(), NULL);
    EVP_EncodeBlock((unsigned char *)ret_accept, sum, 20);
}

/* ---- dialling: the upgrade and the frames of a client ---- */

static void draw_key(char ret_key[WS_DIAL_KEY_BYTES])
{
    struct rand r = RAND_SYSTEM;
    struct buf key = BUF_INIT;
    uint8_t nonce[16];

    rand_bytes(&r, nonce, sizeof nonce);
    base64_add(&key, nonce, sizeof nonce);
    assert(key.n == WS_DIAL_KEY_BYTES - 1);
    memcpy(ret_key, buf_z(&key), WS_DIAL_KEY_BYTES);
    buf_done(&key);
}

void ws_dial_request(struct buf *out, const struct ws_dial *d, char ret_key[WS_DIAL_KEY_BYTES])
{
    draw_key(ret_key);
    buf_printf(out, "GET %s%.*s HTTP/1.1\r\nHost: %.*s\r\n",
               str_starts(d->target, STR("/")) ? "" : "/", STR_FMT(d->target), STR_FMT(d->host));
    buf_add_z(out, "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n");
    buf_printf(out, "Sec-WebSocket-Key: %s\r\nUser-Agent: %.*s\r\n", ret_key,
               STR_FMT(d->user_agent));
    for (const char *const *h = d->headers; h != NULL && *h != NULL; h++)
        buf_printf(out, "%s\r\n", *h);
    buf_add_z(out, "\r\n");
}

size_t ws_dial_head_bytes(struct str in)
{
    const char *end = in.n >= 4 ? memmem(in.p, in.n, "\r\n\r\n", 4) : NULL;

    return end != NULL ? (size_t)(end - in.p) + 4 : 0;
}

static int status_of(struct str line)
{
    uint64_t status;

    if (!str_starts(line, STR("HTTP/1.1 ")) || line.n < 12 || (line.n > 12 && line.p[12] != ' ') ||
        !str_to_u64(str_make(line.p + 9, 3), &status))
        return 0;
    return (int)status;
}

/* "Connection: keep-alive, Upgrade" names upgrade among others. */
static bool has_word(struct str list, struct str word)
{
    struct str part;

    while (str_split(&list, ',', &part))
        if (str_eq_ci(str_trim(part), word))
            return true;
    return false;
}

bool ws_dial_accepted(struct str head, struct str key, int *ret_status)
{
    bool upgrade = false, connection = false, accept = false, extended = false;
    char expected[29];
    struct str line;

    if (!str_split(&head, '\n', &line) || (*ret_status = status_of(str_trim(line))) != 101)
        return false;
    ws_accept_key(key, expected);
    while (str_split(&head, '\n', &line)) {
        ptrdiff_t colon = str_find(line, ':');
        if (colon <= 0)
            continue;
        struct str name = str_make(line.p, (size_t)colon);
        struct str value = str_trim(str_skip(line, (size_t)colon + 1));
        if (str_eq_ci(name, STR("upgrade")))
            upgrade = str_eq_ci(value, STR("websocket"));
        else if (str_eq_ci(name, STR("connection")))
            connection = has_word(value, STR("upgrade"));
        else if (str_eq_ci(name, STR("sec-websocket-accept")))
            accept = str_eq(value, str_of(expected));
        else if (str_eq_ci(name, STR("sec-websocket-extensions")))
            extended = true; /* we offered none */
    }
    *ret_status = 0;
    return upgrade && connection && accept && !extended;
}

void ws_dial_frame(struct buf *out, enum ws_op op, struct str payload)
{
    struct rand r = RAND_SYSTEM;
    uint8_t mask[4];

    rand_bytes(&r, mask, sizeof mask);
    ws_frame_head(out, op, true, payload.n, mask);
    size_t at = out->n;
    buf_add_str(out, payload);
    if (!buf_failed(out) && payload.n > 0)
        ws_mask(out->p + at, payload.n, mask, 0);
}

void ws_dial_close(struct buf *out, int code)
{
    char payload[2] = {(char)(code >> 8), (char)code};

    ws_dial_frame(out, WS_CLOSE, str_make(payload, code == CLOSE_CODE_NONE ? 0 : sizeof payload));
}
