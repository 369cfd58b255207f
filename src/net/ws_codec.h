/* ws_codec.h - RFC 6455 frames as a pure function of bytes: shared by the server, the client and
 * the SDK, and fuzzed directly.
 *
 * The decoder is fed whatever arrived and answers one item at a time.  It checks masking (a server
 * requires it, a client refuses it), reserved bits, opcodes, control frame sizes and fragmentation
 * order; the UTF-8 of text is left to the JSON parser behind it, which checks every byte anyway.
 * State is 48 bytes; payload is unmasked in place and handed out without being collected, except
 * for control frames that arrive in pieces.
 */
#pragma once
#include "base/buf.h"

enum ws_op { WS_CONT = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

enum ws_item {
    WS_ITEM_MORE, /* feed more bytes */
    WS_ITEM_DATA, /* a piece of a data message: .bytes, .end */
    WS_ITEM_PING, /* answer with a pong of .bytes (whole, at most 125) */
    WS_ITEM_PONG,
    WS_ITEM_CLOSE, /* .code (CLOSE_CODE_NONE when the peer gave none) */
    WS_ITEM_BAD,   /* protocol violation: close with .code; then only MORE */
};

struct ws_decoder {
    bool server;     /* expects masked frames */
    bool in_message; /* between the first fragment and the last */
    bool text;       /* the kind of the message under way */
    bool broken;
    bool fin;
    uint8_t state, op;
    uint8_t mask_at; /* index into the mask of the next payload byte */
    uint8_t mask[4];
    uint8_t head_n, head_need;
    uint8_t head[14];   /* header bytes so far, when a header arrives in pieces */
    uint32_t left;      /* payload bytes still to come of this frame */
    uint32_t message_n; /* bytes of the message so far */
    uint32_t max_message;
    struct ws_control *control; /* owned; a control frame that arrives in pieces, else NULL */
};

struct ws_decoded {
    enum ws_item item;
    struct str bytes; /* borrowed from the input or the decoder */
    bool end, text;
    int code;
};

void ws_decoder_init(struct ws_decoder *d, bool server, uint32_t max_message);
/* True between two messages, when a new decoder reads on just as well. */
bool ws_decoder_is_idle(const struct ws_decoder *d);
void ws_decoder_done(struct ws_decoder *d);
/* Take the next item from *@p..@p+*@n, advancing both.  @p is written to (unmasking).  An empty
 * message gives one WS_ITEM_DATA of no bytes. */
struct ws_decoded ws_decode(struct ws_decoder *d, char **p, size_t *n);

/* Append a frame header for @n payload bytes; with @mask (client) the payload must then be appended
 * through ws_mask(). */
void ws_frame_head(struct buf *out, enum ws_op op, bool fin, uint64_t n, const uint8_t mask[4]);
/* The same into @ret_head; the size of the header. */
size_t ws_frame_head_bytes(uint8_t ret_head[14], enum ws_op op, bool fin, uint64_t n,
                           const uint8_t mask[4]);
void ws_mask(char *p, size_t n, const uint8_t mask[4], size_t offset);

/* base64(SHA-1(key + GUID)), 28 characters and a NUL. */
void ws_accept_key(struct str key, char ret_accept[29]);

/* ---- dialling: the upgrade and the frames of a client, as bytes ----
 *
 * Called by ws.c and by the gateway library (sdk/).  Opens no socket and reads no clock;
 * keys and masks are random. */

#define WS_DIAL_KEY_BYTES 25   /* Sec-WebSocket-Key and a NUL */
#define WS_DIAL_HEAD_MAX 16384 /* a longer answer is refused by whoever reads it */

struct ws_dial {
    struct str target, host, user_agent; /* checked by the caller: nothing that ends a line */
    const char *const *headers;          /* "Name: value", NULL-terminated; NULL: none */
};
/* Appends the request; @ret_key is what the answer is held against. */
void ws_dial_request(struct buf *out, const struct ws_dial *d, char ret_key[WS_DIAL_KEY_BYTES]);

/* Bytes of the answer's head at the front of @in, its empty line included; 0: not whole yet. */
size_t ws_dial_head_bytes(struct str in);
/* True: the socket speaks WebSocket from here on.  False: *@ret_status is the HTTP status, or 0
 * when it is no HTTP or a false 101 (another key's, or with an extension we did not offer). */
bool ws_dial_accepted(struct str head, struct str key, int *ret_status);

/* A whole frame, masked as a client's must be. */
void ws_dial_frame(struct buf *out, enum ws_op op, struct str payload);
void ws_dial_close(struct buf *out, int code); /* CLOSE_CODE_NONE: without one */
