/* curl_loop.h - a libcurl multi handle that lives on the loop.  Private to src/net/.
 *
 * @done runs once for every transfer that ended, from the loop, outside of libcurl: it may add and
 * remove other handles, but not end the curl_loop itself. */
#pragma once
#include "net/curl_late.h"

#include "base/clock.h"
#include "net/loop.h"

typedef void curl_loop_done_cb(void *ctx, CURL *easy, CURLcode code);

struct curl_loop {
    CURLM *multi;      /* owned */
    struct loop *loop; /* borrowed */
    struct timer timer;
    curl_loop_done_cb *done;
    void *ctx;
    bool delivering;
};

void curl_loop_init(struct curl_loop *cl, struct loop *loop, curl_loop_done_cb *done, void *ctx);
void curl_loop_done(struct curl_loop *cl); /* all handles were removed before */
void curl_loop_global_init(void);          /* once per process; harmless to repeat */
