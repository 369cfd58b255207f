/* poker.h - ringing sleepers: the relay's poker over the HTTP client. */
#pragma once
#include "base/list.h"
#include "relay/relay.h"

struct http_client;

struct http_poker {
    struct poker base;
    struct http_client *http; /* borrowed */
    int64_t timeout_ms;
    bool allow_private;    /* may reach private and loopback addresses */
    struct list under_way; /* private */
};

void http_poker_init(struct http_poker *p, struct http_client *http, int64_t timeout_ms,
                     bool allow_private);
void http_poker_done(struct http_poker *p); /* cancels; no done() runs any more */
