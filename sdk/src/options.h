/* options.h - validates and copies the options and the URL that the application passes.
 *
 * Pure functions of bytes: no socket, no clock. */
#pragma once
#include <stdbool.h>
#include "base/buf.h"
#include "bellhop/gateway.h"

#define PLATFORM_RELAY "relay" /* the platform of an identity that names none */

/* NULL: success, and *@to owns a complete copy.  Else the reason, and *@to is unchanged. */
const char *gwc_options_copy(struct bhgw_options *to, const struct bhgw_options *from);
void gwc_options_done(struct bhgw_options *o);

/* ---- the URLs derived from the configured one ---- */

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
