/* url.h - from the one configured URL to what is dialled, and the HTTP upgrade as text.
 *
 * Pure functions of bytes: no socket, no clock. */
#pragma once
#include <stdbool.h>
#include "base/buf.h"

struct gwc_url {
    char *ws;   /* owned: "wss://c.example/relay" */
    char *http; /* owned: "https://c.example", the base of HTTP calls */
    char *dial; /* owned: the WebSocket URL with http or https, for libcurl */
    char *host; /* owned: the Host header */
    char *path; /* owned: the request target */
};

/* False: not an http, https, ws or wss URL we can dial; *@ret_why says what is wrong. */
bool gwc_url_read(struct gwc_url *url, const char *configured, const char **ret_why);
void gwc_url_done(struct gwc_url *url);

#define GWC_UPGRADE_HEAD_MAX 16384

/* The upgrade request.  @bearer absent: without a credential. */
void gwc_upgrade_request(struct buf *out, const struct gwc_url *url, struct str key,
                         struct str bearer, struct str user_agent);
/* Read the answer's @head (up to and including its empty line).  True: the socket speaks WebSocket
 * from here on.  False: *@ret_status is the HTTP status, or 0 when it is no HTTP or a false 101. */
bool gwc_upgrade_accepted(struct str head, struct str key, int *ret_status);
/* Bytes of the head at the front of @in, 0: not whole yet. */
size_t gwc_upgrade_head_bytes(struct str in);
