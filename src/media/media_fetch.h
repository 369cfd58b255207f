/* media_fetch.h - downloads a file from a platform or a public address into the media folder.
 *
 * host/host.c downloads the files of people's messages, platform/sender_files.c those of agents.
 *
 * The answer is streamed to disk.  Only a 2xx answer counts, and at most one redirect is followed.
 * A platform that answers 202 is asked again every second, within the time that there is.
 * A web page or a JSON error in place of the expected type is a failure.
 */
#pragma once
#include "media/media.h"

struct media_source { /* borrowed for the call */
    const char *url;
    const char *const *headers;    /* "Name: value", NULL-terminated; NULL: none */
    bool trusted;                  /* the platform's own host: private addresses are allowed */
    bool redirects;                /* follows one redirect, untrusted and without @headers */
    struct str tenant, type, name; /* absent type: the answer's Content-Type */
    struct str stranger;           /* who sent it: media_write.h; absent: no stranger */
    bool no_page;                  /* a web page is a failure, whatever the type */
    uint64_t max_bytes;            /* 0: MEDIA_MAX_BYTES */
    int64_t timeout_ms;            /* 0: media.wait */
};
/* @f is NULL on failure; @why then is a sentence to show to people. */
typedef void media_fetched_cb(void *ctx, const struct media_file *f, const char *why);

/* @done runs later, once, unless cancelled. */
struct media_fetch *media_fetch(struct media *m, const struct media_source *s,
                                media_fetched_cb *done, void *ctx) BH_MUST_USE;
void media_fetch_cancel(struct media_fetch **f); /* NULL inside is fine; sets it to NULL */
