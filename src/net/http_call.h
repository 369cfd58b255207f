/* http_call.h - one request under way, between http_client.c and http_result.c.  Private to
 * src/net/. */
#pragma once
#include "base/list.h"
#include "net/curl_loop.h"
#include "net/http_client.h"

struct http_call {
    struct list link;
    struct http_client *client; /* borrowed; NULL for http_fetch_now() */
    struct curl_loop *cl;       /* borrowed */
    CURL *easy;                 /* owned */
    struct curl_slist *headers; /* owned */
    struct buf sent;            /* owned; the request's body */
    size_t read;                /* of it, by on_read() */
    struct buf head, body;      /* owned; the answer */
    size_t max_body;
    uint64_t streamed;      /* bytes that went to @on_data */
    http_data_cb *on_data;  /* NULL: the body is gathered */
    struct file_body *file; /* owned; NULL: the body is @sent */
    bool public_only, not_local, refused, too_long, delivering;
    struct timer resume; /* armed: it goes on when the turn ends */
    http_done_cb *done;
    void *ctx;
    struct timer stillborn; /* armed when the call could not even be begun; @easy is NULL then */
    char error[CURL_ERROR_SIZE];
};

struct http_result http_call_head(struct http_call *call); /* status and headers, as far as known */
struct http_result http_call_result(struct http_call *call, CURLcode code);
