/* http_server.h - HTTP/1.1 and WebSocket server, on TCP, TLS and Unix sockets.
 *
 * One handler gets every request once its body is complete (or an upgrade once its headers are).
 * It answers at once or later: what survives the handler is a number (struct http_id), never a
 * pointer, and answering a request whose client has gone is harmless.
 *
 *      accept -> HEAD -> BODY -> HANDLING -> reply -> HEAD ...          (keep-alive, pipelining)
 *                      |             |-> http_stream_begin -> STREAM    (server-sent events)
 *                      |             |-> http_answer_file -> FILE       (from a descriptor)
 *                      |             '-> ws_accept -> WEBSOCKET         (net/ws.h)
 *                      '-> http_take_body -> UPLOAD -> on_end -> reply  (a body as it comes)
 *      every state -> CLOSED on error, time-out, limit or http_server_drain
 *
 * Limits (struct http_limits) bound what a stranger can cost: head bytes, body bytes, seconds for
 * a head, seconds for a body, connections.  Violations answer 400, 408, 413, 431, 501 or 503 with
 * a JSON error and close.  Idle connections own no buffer.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"

struct http_req; /* valid only while the handler runs */
struct loop;

struct http_id { /* a request that awaits its answer */
    uint32_t index, generation;
};

struct http_limits {
    size_t head_bytes;     /* request line and headers; default 16 KiB */
    size_t body_bytes;     /* default 1 MiB; http_handler may see less, never more */
    int64_t head_ms;       /* from first byte to end of head; default 10 s */
    int64_t body_ms;       /* from end of head to end of body; default 30 s */
    int64_t keep_alive_ms; /* between requests; default 75 s */
    size_t connections;    /* default 65536; more are answered 503.  Lowered if the limit of open
                            * files would leave no reserve for store, admin and outbound */
};
extern const struct http_limits http_limits_default;

struct http_tls; /* net/http_tls.h */

typedef void http_handler(void *ctx, struct http_req *req);

struct http_server *http_server_new(struct loop *loop, const struct http_limits *limits,
                                    http_handler *handler, void *ctx);
/* "127.0.0.1:7077", "[::1]:0", "0.0.0.0:80" or "unix:/path" (then @mode is its file mode, and a
 * stale socket file is replaced).  Several calls listen in several places.  On failure @ret_why
 * (256 bytes) says what to fix. */
enum bh_err http_server_listen(struct http_server *s, struct str where, const struct http_tls *tls,
                               int mode, char *ret_why) BH_MUST_USE;
/* Options of a listener; zeroed: the defaults. */
struct http_listener {
    void *tag;     /* http_listener_tag() returns it to the handler */
    bool reserved; /* the operator's: accepted even when all other connections are at their limit,
                    * 32 at a time */
    bool any_host; /* accepts any Host header, as a Unix socket always does */
    bool proxy_protocol; /* only trusted proxies connect, and name their client first (PROXY v2) */
};
void http_server_set_last(struct http_server *s, const struct http_listener *l); /* added last */
/* Reads the certificate files again, for every listener with TLS.  New connections use them.  On
 * failure nothing changes, and @ret_why (256 bytes) says what to fix. */
enum bh_err http_server_renew_tls(struct http_server *s, const struct http_tls *tls,
                                  char *ret_why) BH_MUST_USE;
/* Sets the accepted host names (copied, NULL at the end): "example.org", "*.example.org" or "*".
 * Addresses, localhost and its subdomains are always accepted.  Other names are answered 421, which
 * prevents DNS rebinding by a web page.  NULL, the default: any name. */
void http_server_answer_to(struct http_server *s, const char *const *names);
/* The trusted proxies (copied): http_peer() returns the client they name in X-Forwarded-For, and
 * only they may connect to a listener with the PROXY protocol.  Empty at first. */
struct addr_net;
void http_server_trust(struct http_server *s, const struct addr_net *proxies, size_t n);
/* Count what connections hold, per party (base/limits.h); @ledger is borrowed.  Without a ledger
 * nothing is counted.  Called again when its bounds have changed. */
struct ledger;
void http_server_count(struct http_server *s, struct ledger *ledger);
/* The port of the first TCP listener, for "port 0". */
int http_server_port(const struct http_server *s);
/* Stop accepting, finish answers in progress, close idle connections.  WebSockets are left to
 * their owners. */
void http_server_drain(struct http_server *s);
/* The process will go, and its proxy is to notice first: every answer closes its connection, and a
 * node that carries connections answers /readyz itself.  Everything else goes on. */
void http_server_leave(struct http_server *s);
/* During a drain: requests have begun to come. */
bool http_server_hears(const struct http_server *s);
bool http_server_handles(const struct http_server *s); /* requests wait for their answer */
size_t http_server_connections(const struct http_server *s);
void http_server_free(struct http_server *s); /* closes everything; ws owners get on_closed; not
                                               * from inside a handler */

/* ---- inside the handler: borrowed views, gone when it returns ---- */
struct str http_method(const struct http_req *r);
struct str http_path(const struct http_req *r);      /* without the query; still percent-encoded */
struct str http_raw_query(const struct http_req *r); /* as it came; STR_NULL: there is no "?" */
bool http_query(const struct http_req *r, const char *name, struct buf *ret_value); /* decoded */
struct str http_header_named(const struct http_req *r, struct str name); /* STR_NULL: absent */
static inline struct str http_header(const struct http_req *r, const char *name)
{
    return http_header_named(r, str_of(name));
}
bool http_cookie(const struct http_req *r, const char *name, struct str *ret_value);
struct str http_body(const struct http_req *r);
/* The client's address: "203.0.113.7", "unix"; behind a trusted proxy, the client it names. */
struct str http_peer(const struct http_req *r);
/* The name of this server that the client asked for, without port: of the Host header; behind a
 * trusted proxy, of the X-Forwarded-Host that the proxy wrote, if it wrote one. */
struct str http_host(const struct http_req *r);
/* The party of that address: one hold, for the caller to drop; NULL: a Unix socket. */
struct party *http_party(const struct http_req *r);
bool http_is_upgrade(const struct http_req *r); /* asks for a WebSocket */
bool http_is_carried(const struct http_req *r); /* came over a trunk: net/trunk.h */
bool http_is_tls(const struct http_req *r);
bool http_lacks_client_cert(const struct http_req *r); /* asked for a certificate, showed none */
/* False: a browser made the request for a page of another site.  @public_url is another address of
 * this server; NULL: none.  True also without the headers that browsers send. */
bool http_same_origin(const struct http_req *r, const char *public_url);
bool http_is_json(const struct http_req *r); /* by its Content-Type, which no form can send */
struct http_id http_req_id(const struct http_req *r);
void *http_listener_tag(const struct http_req *r); /* struct http_listener's */

/* ---- bodies as they come: uploads ----
 *
 * A caller that wants a body piece by piece, or a larger one, says so when the head has arrived:
 *
 *      static void on_head(void *ctx, struct http_req *req)
 *      {
 *              if (str_eq(http_path(req), STR("/relay/media")))
 *                      http_take_body(req, &sink, ctx);
 *      }
 *
 * It runs for requests that announce a body, before any of it is read and before the client is told
 * "100 Continue".  It may look at the request as a handler does; answer it, which refuses the body;
 * take the body; or do nothing, and the handler gets the request. */
void http_server_on_head(struct http_server *s, http_handler *on_head); /* with the handler's ctx */

struct http_sink {
    uint64_t max_bytes; /* a longer body is answered 413, and on_gone() runs */
    /* The next piece, at most 64 KiB, borrowed. */
    void (*on_data)(void *ctx, struct http_id id, struct str bytes);
    /* The body is complete: answer now or later.  The last call. */
    void (*on_end)(void *ctx, struct http_id id);
    /* The client disconnected, was too slow or sent nonsense.  The last call; later answers are
     * dropped. */
    void (*on_gone)(void *ctx, struct http_id id);
};
/* From here on the request belongs to @sink (copied) and is answered by its number.  Exactly one of
 * on_end() and on_gone() runs, never inside a call into the server; an answer before on_end() ends
 * the upload, and then neither runs.  A client is too slow if it sends nothing for limits.body_ms,
 * or less than 8 KiB/s over the whole upload after the first limits.body_ms; pauses do not count.
 */
void http_take_body(struct http_req *r, const struct http_sink *sink, void *ctx);
/* From on_head(): the handler gets a body of up to @max_bytes, if that is more than the limit. */
void http_allow_body(struct http_req *r, size_t max_bytes);
/* Stops on_data() until http_body_resume().  At most 64 KiB wait in memory, the rest in the kernel.
 * Harmless when the upload is over. */
void http_body_pause(struct http_server *s, struct http_id id);
void http_body_resume(struct http_server *s, struct http_id id);

/* ---- webhooks that are signed: Ed25519 over X-Signature-Timestamp and the body ----
 *
 * Edges, threads (net/edges.h) and other nodes (net/trunk.h), verify such requests before the
 * handler gets them. */
#define HTTP_SIGNER_BYTES 32
/* Requests to @path are signed with this key.  Several keys may sign requests to one path.  NULL:
 * the path is too long, and no edge verifies. */
struct http_signer *http_signer_new(struct http_server *s, struct str path,
                                    const uint8_t key[HTTP_SIGNER_BYTES]);
void http_signer_free(struct http_signer *g); /* NULL is fine */
enum http_seal {
    HTTP_UNCHECKED, /* no edge has verified it: the caller does */
    HTTP_SIGNED,
    HTTP_FORGED,
};
enum http_seal http_seal_of(const struct http_req *r, const struct http_signer *g);

/* ---- answers: from the handler or any time later; the first one counts ---- */
struct http_answer {
    int status;
    const char *content_type; /* NULL: application/json; charset=utf-8 */
    const char *headers;      /* extra, each "Name: value\r\n"; NULL: none */
    struct str body;
    bool close; /* close the connection after it */
};
void http_answer(struct http_server *s, struct http_id id, const struct http_answer *a);
/* {"error": ..., "code": ...} */
void http_answer_error(struct http_server *s, struct http_id id, int status, const char *code,
                       const char *fmt, ...) BH_PRINTF(5, 6);

/* True while the request waits for its answer and its client is connected.  Costs a system call:
 * nothing is read from a connection while its request is handled. */
bool http_waits(struct http_server *s, struct http_id id);

/* ---- an answer from a file ---- */
struct http_file {
    int fd; /* taken over, whatever becomes of the answer */
    uint64_t size;
    struct str range, if_range; /* those headers of the request; absent: none */
    const char *etag;           /* with its quotes; NULL: none */
};
/* Answers with a file, whole or the requested range: 200, 206 or 416, with the content type and
 * headers of @head (its status and body are ignored).  The file is read block by block as the
 * client reads.  A block outside the page cache is read on another thread. */
void http_answer_file(struct http_server *s, struct http_id id, const struct http_answer *head,
                      const struct http_file *f);

/* ---- a streamed body: server-sent events ---- */
typedef void http_stream_closed_cb(void *ctx, struct http_id id);
/* Sends the head; the answer is a stream until either side closes.  @closed runs once when the
 * client disconnects or reads too slowly (more than @max_queued bytes waiting).  It also runs if
 * the request is already answered or gone.  It never runs inside this call. */
void http_stream_begin(struct http_server *s, struct http_id id, const struct http_answer *head,
                       size_t max_queued, http_stream_closed_cb *closed, void *ctx);
bool http_stream_write(struct http_server *s, struct http_id id,
                       struct str bytes);                       /* false: gone */
void http_stream_end(struct http_server *s, struct http_id id); /* @closed does not run */

/* ---- settings: the keys of the HTTP server in the configuration ---- */

struct http_settings {      /* owned by the config */
    char **hosts;           /* accepted host names, besides those of listen and public_url */
    char **trusted_proxies; /* "10.0.0.0/8", "::1", "unix" */
    bool proxy_protocol;    /* on the public listener */
};
extern const struct config_section http_config;

/* Applies the settings that may change at a reload.  The hosts of @listen and @public_url (NULL:
 * none) are accepted names too. */
void http_settings_apply(struct http_server *s, const struct http_settings *hs, const char *listen,
                         const char *public_url, const char *const *more);
