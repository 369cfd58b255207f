/* url.h - from the one configured URL to what is dialled.
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
