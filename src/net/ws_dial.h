/* ws_dial.h - the dialling half of a WebSocket, as bytes: the request for the upgrade, its answer,
 * masked frames.
 *
 * Shared by ws_client.c and by the gateway library, which is compiled from this file once more.
 * No socket and no clock; keys and masks are drawn at random. */
#pragma once
#include "net/ws_codec.h"

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
