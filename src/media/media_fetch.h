/* media_fetch.h - a file from elsewhere: a platform's, or one at a public address.
 *
 * Streamed to disk as it comes, never followed elsewhere, only 2xx.  What answers with a web page
 * where a file was expected has not answered.
 */
#pragma once
#include "media/media.h"

struct media_fetch; /* a cancel handle */

struct media_source { /* borrowed for the call */
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    bool trusted;               /* the platform's own host: private addresses are fine */
    bool redirects; /* it may be elsewhere, once: asked there without headers, as a stranger's */
    struct str tenant, type, name; /* absent type: what the answer says */
    bool no_page;                  /* a web page is not what was meant */
    uint64_t max_bytes;            /* 0: MEDIA_MAX_BYTES */
    int64_t timeout_ms;            /* 0: media.wait */
};
/* @f on success, else NULL and @why is a sentence for people. */
typedef void media_fetched_cb(void *ctx, const struct media_file *f, const char *why);

/* @done runs later, once, unless cancelled. */
struct media_fetch *media_fetch(struct media *m, const struct media_source *s,
                                media_fetched_cb *done, void *ctx) BH_MUST_USE;
void media_fetch_cancel(struct media_fetch **f); /* NULL inside is fine; sets it to NULL */
