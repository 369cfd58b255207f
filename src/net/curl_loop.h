/* curl_loop.h - a libcurl multi handle that lives on the loop.  Private to src/net/.
 *
 * @done runs once for every transfer that ended, from the loop, outside of libcurl: it may add and
 * remove other handles, but not end the curl_loop itself. */
#pragma once
#include "net/curl_late.h"

#include "base/clock.h"
#include "base/err.h"
#include "net/loop.h"
#include "net/mail.h"

typedef void curl_loop_done_cb(void *ctx, CURL *easy, CURLcode code);

struct curl_loop {
    CURLM *multi;      /* owned; NULL: not live */
    struct loop *loop; /* borrowed */
    struct timer timer;
    curl_loop_done_cb *done;
    void *ctx;
    bool delivering;
};

/* False when libcurl cannot be loaded or has no descriptor: try again later.  @cl is not live then,
 * and curl_loop_done() does nothing. */
bool curl_loop_init(struct curl_loop *cl, struct loop *loop, curl_loop_done_cb *done,
                    void *ctx) BH_MUST_USE;
void curl_loop_done(struct curl_loop *cl); /* all handles were removed before */
/* Load and prepare libcurl, once per process; harmless to repeat.  False: not now. */
bool curl_loop_global_init(void) BH_MUST_USE;

/* Sets address, TLS and login of a mail server; @scheme is "imap" or "smtp"; @helo may be NULL. */
void curl_set_mail(CURL *easy, const struct mail_login *to, const char *scheme, const char *helo);
