/* smtp.h - sends one mail over SMTP, on a thread.  Private to src/net/.
 *
 *      http_fetch() with .mail --> smtp_send() --> work.h --> libcurl --> done(), on the loop
 *
 * libcurl waits for the reply to the end of the data, and for the reply to QUIT, without returning
 * to its caller, even in a multi handle.  So every mail has a thread while it is sent. */
#pragma once
#include "base/buf.h"
#include "base/err.h"

struct http_fetch;
struct work_pool;

struct smtp_result {
    /* BH_OK: the server answered, whatever its code; BH_UNKNOWN: the mail was sent but no reply to
     * it came; BH_UNAVAILABLE: the server got no mail. */
    enum bh_err err;
    int status;       /* the last reply code */
    struct str reply; /* the last reply's text; borrowed for the callback */
    const char *why;  /* a sentence for the log when err != BH_OK */
};
typedef void smtp_done_cb(void *ctx, const struct smtp_result *r);

/* Copies what it needs of @f.  @done runs later, on the loop, once, unless cancelled.  NULL: no
 * thread, descriptor or memory is left. */
struct smtp_call *smtp_send(struct work_pool *threads, const struct http_fetch *f,
                            smtp_done_cb *done, void *ctx) BH_MUST_USE;
/* @done does not run.  The mail may still be sent; the thread gives up within a second or two. */
void smtp_cancel(struct smtp_call *c);
