/* ws_dial.c - RFC 6455, section 4.1.  (ws_dial.h has the contract.) */
#include "net/ws_dial.h"
#include <assert.h>
#include "base/crypto.h"
#include "base/rand.h"
#include "core/contract.h"

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
