/* conn.h - one connection to the connector: dialling, TLS, reading, writing, WebSocket frames.
 *
 * libcurl dials and does TLS; a loopback address is dialled without libcurl.  net/ws_codec.h does
 * the upgrade and the frames.  Used by the socket thread, with the handle's lock held.  Only
 * gwc_conn_dial_wait() blocks.
 *
 *      gwc_conn_dial -> gwc_conn_dial_step until it is done
 *          -> gwc_conn_add_frame, gwc_conn_flush, gwc_conn_read -> gwc_conn_close
 */
#pragma once
#include <curl/curl.h>
#include "base/buf.h"
#include "net/ws_codec.h"

struct gwc_conn {
    bool curl_ready; /* libcurl was initialised, at its first use */
    bool near;       /* @fd is our own socket to a loopback address, without libcurl */
    CURLM *multi;    /* owned while dialling and connected */
    CURL *easy;      /* owned, inside @multi */
    curl_socket_t fd;
    char curl_error[CURL_ERROR_SIZE];
    struct buf head; /* the upgrade's answer so far */
    char key[WS_DIAL_KEY_BYTES];
    struct ws_decoder decoder;
    struct buf out;     /* framed, not yet being written */
    struct buf writing; /* must not move: TLS may repeat a write of the same bytes */
    size_t written;
    bool want_write; /* the socket is full */
    bool more;       /* TLS may hold unread bytes that poll() does not report */
};

enum gwc_io { GWC_IO_AGAIN, GWC_IO_DONE, GWC_IO_FAILED };

/* False: libcurl refuses the URL. */
bool gwc_conn_dial(struct gwc_conn *c, const char *url, const char *ca_file, int64_t timeout_ms);
enum gwc_io gwc_conn_dial_step(struct gwc_conn *c);
/* Waits for progress of the dial, for @wake_fd or for @timeout_ms. */
void gwc_conn_dial_wait(struct gwc_conn *c, int wake_fd, int timeout_ms);

void gwc_conn_add(struct gwc_conn *c, struct str raw); /* raw bytes: the upgrade */
void gwc_conn_add_frame(struct gwc_conn *c, enum ws_op op, struct str s); /* one masked frame */
void gwc_conn_add_close(struct gwc_conn *c, int code);
size_t gwc_conn_unsent(const struct gwc_conn *c);

enum gwc_io gwc_conn_flush(struct gwc_conn *c); /* DONE: all bytes were written */
enum gwc_io gwc_conn_read(struct gwc_conn *c, char *p, size_t n,
                          size_t *ret_n); /* DONE: *ret_n bytes */

static inline bool gwc_conn_is_open(const struct gwc_conn *c) /* or dialling */
{
    return c->near || c->easy != NULL;
}
void gwc_conn_close(struct gwc_conn *c); /* at once; harmless when not open */
void gwc_conn_done(struct gwc_conn *c);  /* also releases libcurl */
