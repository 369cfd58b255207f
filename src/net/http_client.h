/* http_client.h - makes outbound HTTP(S) calls with libcurl: platform REST, wake pokes, JWKS.
 *
 *      struct http_fetch what = {.url = url, .timeout_ms = 5000};
 *      s->poke = http_fetch(client, &what, on_poked, s);
 *      ...
 *      http_cancel(&s->poke);      // on_poked will not run; s->poke is NULL now
 *
 * Names are resolved off the loop.  Redirects are never followed.  Only http and https, and SMTP
 * for a call with `.mail`: the sender of a mail platform then needs no second kind of call. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "net/mail.h"

struct http_call; /* one request under way: a cancel handle */
struct loop;

struct http_result;
/* What on_data() did with a piece of an answer. */
enum http_take {
    HTTP_TOOK,
    HTTP_LATER, /* deliver the same piece again after http_call_resume(), and nothing until then */
    HTTP_STOP,  /* end the call with BH_MALFORMED */
};
/* @head has the status and the headers.  The callback must not cancel the call; it returns
 * HTTP_STOP instead. */
typedef enum http_take http_data_cb(void *ctx, const struct http_result *head, struct str bytes);

/* A body made of a file's bytes, with other bytes before and behind them.  The file is read as it
 * is sent. */
struct http_file_body {
    int fd; /* duplicated */
    uint64_t size;
    struct str before, after; /* copied */
};

struct http_fetch {
    const char *method; /* NULL: GET */
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    struct str body;            /* copied; absent: none */
    int64_t timeout_ms;         /* the whole call; 0: 30 s */
    size_t max_body;            /* a longer answer is cut off with BH_MALFORMED; 0: 8 MiB */
    bool public_only;           /* refuse private, loopback, link-local, unique-local, multicast and
                                 * metadata addresses, checked on the one actually connected to */
    bool not_local;             /* refuse link-local and metadata addresses */
    bool once;                  /* not idempotent: when a kept connection breaks, libcurl must not
                                 * repeat the request; the call ends with BH_UNKNOWN instead */
    const char *unix_socket;    /* connect here instead; NULL: by the URL */
    const char *ca_path;        /* PEM file of the authorities to trust; NULL: the system's */
    http_data_cb *on_data;      /* gets the body of a 2xx answer as it comes, with the ctx of done;
                                 * never inside a call of ours.  NULL: it is gathered */
    const struct http_file_body *file; /* instead of @body; never sent twice.  NULL: none */
    const char *keep_header; /* http_fetch_now() appends this header of the answer to @kept */
    struct buf *kept;        /* borrowed; NULL: none is kept */
    /* @body or @file is a mail, which goes to this server; a file is sent as base64.  Of the above
     * only body, file and timeout_ms count.  The result's status is the last SMTP reply code, its
     * body that reply; an error before the mail was sent is BH_UNAVAILABLE.  NULL: no mail. */
    const struct mail_envelope *mail;
};

struct http_result {
    /* BH_OK: an answer came, whatever its status; BH_REFUSED: address refused by public_only;
     * BH_UNKNOWN: the request was written but no answer came; BH_UNAVAILABLE: never connected;
     * BH_MALFORMED: answer too long or not HTTP */
    enum bh_err err;
    int status;
    struct str body;              /* borrowed for the callback */
    const char *why;              /* a sentence for the log when err != BH_OK */
    int64_t retry_after_ms;       /* http_retry_after_ms(), or -1 */
    const struct http_call *call; /* for http_result_header() */
};
typedef void http_done_cb(void *ctx, const struct http_result *r);

struct http_client *http_client_new(struct loop *loop);
void http_client_free(struct http_client *c); /* cancels what is under way */
struct http_call *http_fetch(struct http_client *c, const struct http_fetch *f, http_done_cb *done,
                             void *ctx) BH_MUST_USE;
void http_call_resume(struct http_call *call); /* after HTTP_LATER; harmless otherwise */
void http_cancel(struct http_call **call);     /* NULL inside is fine; sets it to NULL */
struct str http_result_header(const struct http_result *r, const char *name);

/* http_fetch(), blocking, for the command line. */
enum bh_err http_fetch_now(const struct http_fetch *f, int *ret_status, struct buf *ret_body,
                           char *ret_why /* 256 */);
