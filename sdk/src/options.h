/* options.h - the options and the URL that the application gives, checked and owned.
 *
 * Pure functions of bytes: no socket, no clock. */
#pragma once
#include <stdbool.h>
#include "base/buf.h"
#include "bellhop/gateway.h"

#define PLATFORM_RELAY "relay" /* what an identity without a platform is called */

/* NULL: *@to owns a complete copy.  Else a sentence saying what is wrong, and *@to is untouched. */
const char *gwc_options_copy(struct bhgw_options *to, const struct bhgw_options *from);
void gwc_options_done(struct bhgw_options *o);

/* ---- from the one configured URL to what is dialled ---- */

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
