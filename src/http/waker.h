/* waker.h - ringing sleepers: the relay's waker over the HTTP client. */
#pragma once
#include <stdint.h>
#include "base/list.h"
#include "relay/waker.h"

struct http_client;

struct http_waker {
    struct waker base;
    struct http_client *http; /* borrowed */
    int64_t timeout_ms;
    bool allow_private;    /* may reach private and loopback addresses */
    struct list under_way; /* private */
};

void http_waker_init(struct http_waker *p, struct http_client *http, int64_t timeout_ms,
                     bool allow_private);
void http_waker_done(struct http_waker *p); /* cancels; no done() runs any more */
