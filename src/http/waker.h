/* waker.h - wakes sleeping agents: implements relay/waker.h with GET requests to wake URLs. */
#pragma once
#include <stdint.h>
#include "base/list.h"
#include "relay/waker.h"

struct wake_settings {  /* in `wake:` of the configuration; a reload changes them in place */
    int64_t timeout_ms; /* of one request */
    bool allow_private; /* wake URLs may be private and loopback addresses */
};
extern const struct config_section wake_config;

struct http_waker {
    struct waker base;
    struct http_client *http;             /* borrowed */
    const struct wake_settings *settings; /* borrowed */
    struct list under_way;                /* private */
};

void http_waker_init(struct http_waker *p, struct http_client *http,
                     const struct wake_settings *settings);
void http_waker_done(struct http_waker *p); /* cancels the requests in flight without done() */
