/* client.h - the contents of a struct bhgw; private to sdk/src.
 *
 * One mutex guards everything below.  The socket thread releases it only to wait.  Callers of
 * functions named gwc_..._locked hold the mutex; all code of socket.c, frames.c and conn.c holds it
 * too.
 *
 *      gateway.c   the life of a handle, states, waiting
 *      options.c   the options and the URL of bhgw_new()
 *      socket.c    the socket thread: phases, timers, the turn
 *      conn.c      one connection: libcurl dials, bytes in and out, WebSocket frames
 *      frames.c    the upgrade, the hello, lines from the connector
 *      convert.c   JSON to the structs of the public header
 *      request.c   requests and their results, the common requests in one call
 *      threads.c   the events thread and the notices thread; declaring the relevance policy
 *      seen.c      the ids of received deliveries, in memory and on disk
 */
#pragma once
#include <pthread.h>
#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/list.h"
#include "base/map.h"
#include "bellhop/gateway.h"
#include "conn.h"
#include "core/contract.h"
#include "options.h"
#include "seen.h"

/*  OFF --> DIALING --> UPGRADING --> HELLO --> READY --> DRAINING --> CLOSING --> OFF
 *   ^         |            |           |         |           |
 *   |         '------------+-----------+---------+--> BACKOFF (or OFF when that is wanted)
 *   '-- wanted -- BACKOFF --due--> DIALING                                             */
enum gwc_phase {
    GWC_OFF,
    GWC_DIALING,   /* DNS, TCP, TLS */
    GWC_UPGRADING, /* the upgrade was sent, waiting for the answer */
    GWC_HELLO,     /* hello was sent, waiting for the descriptor; requests may be sent already */
    GWC_READY,
    GWC_DRAINING, /* going_idle was sent */
    GWC_CLOSING,  /* our close frame was sent, waiting for the peer's */
    GWC_BACKOFF,
};

enum gwc_want { GWC_WANT_NOTHING, GWC_WANT_UP, GWC_WANT_DORMANT, GWC_WANT_CLOSED };

struct gwc_waiter { /* on the stack of a thread that waits for its request */
    pthread_cond_t cond;
    struct bhgw_result *result; /* NULL: not yet */
};

struct gwc_request {
    struct list link; /* in gw->requests */
    char id[33];      /* 32 hex digits */
    int64_t due_ms;
    struct gwc_waiter *waiter; /* borrowed; NULL: no thread waits */
    bhgw_done_cb *done;        /* NULL: no callback */
    void *done_ctx;
    char *chat_id, *message_id; /* owned, may be NULL: defaults of the result */
    struct bhgw_result *result; /* owned; set when the request finished and @done is set */
};

enum gwc_notice_kind {
    GWC_NOTICE_STATE,
    GWC_NOTICE_INTERRUPT,
    GWC_NOTICE_DESCRIPTOR,
    GWC_NOTICE_DONE
};

struct gwc_notice {
    struct list link;
    enum gwc_notice_kind kind;
    enum bhgw_state state;
    char *a, *b;                        /* owned: the reason; or session key and chat id */
    struct bhgw_descriptor *descriptor; /* owned */
    struct gwc_request *request;        /* owned */
};

struct gwc_delivery { /* waits for the events thread */
    struct list link;
    uint64_t number; /* in the handle's @seen; 0: it has no buffer id */
    bool passthrough;
    size_t bytes;
    char line[]; /* the frame, and a NUL */
};

struct bhgw {
    unsigned magic;
#define GWC_MAGIC 0x62686777u
    struct bhgw_options opt; /* strings and identities owned */
    struct gwc_url url;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* @phase or @want changed; the blocking calls wait for it */
    pthread_cond_t events_wakeup, notices_wakeup;
    pthread_t socket_thread, events_thread, notices_thread;
    bool started, quit; /* threads run; threads must end */
    bool notices_quit;  /* set last: queued notices are delivered first */
    int wake_fd;        /* eventfd that ends the socket thread's poll() */
    bool wake_sent;

    /* the wanted state, and the current one */
    enum gwc_want want;
    bool disabled;
    bool had_hello;         /* one handshake succeeded: CLOSE_CODE_UNAUTHORIZED is final from now */
    bool dial_now;          /* bhgw_open() was called while waiting */
    bool choked;            /* over a limit: skip deliveries, reconnect once half is settled */
    bool drain_from_events; /* the events thread requested the drain: do not wait for it */
    bool idle_acked;
    enum gwc_phase phase;
    enum bhgw_state told;   /* the state last reported to on_state */
    int64_t deadline_ms;    /* of the phase; 0: none */
    unsigned failures;      /* dials in a row without a handshake */
    unsigned n_descriptors; /* on this connection */

    struct gwc_conn conn;
    uint64_t socket_number;         /* counts connections */
    struct json_parser *parser;     /* owned; used by the socket thread */
    struct buf line;                /* an incomplete line */
    int64_t ping_at_ms, pong_by_ms; /* 0: none */
    bool complained;                /* bad frames were logged, once per connection */

    struct seen seen;
    struct seen_file seen_file;
    struct list deliveries; /* struct gwc_delivery, in order */
    size_t n_deliveries, delivery_bytes;
    bool events_busy;
    bool policy_due; /* connected, but the policy is not declared yet */
    bool policy_declared;
    struct buf acks; /* lines not yet sent */
    size_t n_acks;
    int64_t acks_since_ms;

    struct list requests; /* oldest first, so in order of due_ms too */
    struct map request_by_id;
    struct list notices;
    size_t n_interrupts;     /* queued interrupts, which are bounded */
    struct list descriptors; /* owned by convert.c, primary first */
    struct bhgw_stats stats;
};

/* gateway.c */
int64_t gwc_now_ms(void); /* monotonic */
void gwc_log(struct bhgw *gw, enum bhgw_log_level level, const char *fmt, ...) BH_PRINTF(3, 4);
void gwc_wake_locked(struct bhgw *gw);

/* socket.c */
void *gwc_socket_main(void *gw);
bool gwc_is_connected(const struct bhgw *gw);              /* hello was sent: frames may be sent */
void gwc_send_line(struct bhgw *gw, struct str line);      /* one line, newline included */
void gwc_drop(struct bhgw *gw, int code, const char *why); /* ends the connection */
void gwc_ready(struct bhgw *gw);
void gwc_idle_acked(struct bhgw *gw);
int64_t gwc_backoff_ms(unsigned failures, int64_t min_ms, int64_t max_ms, uint64_t random);

void gwc_enter(struct bhgw *gw, enum gwc_phase next, int64_t timeout_ms, const char *why);

/* frames.c: the upgrade, the hello, reading */
void gwc_ask_upgrade(struct bhgw *gw); /* the dial succeeded */
void gwc_receive(struct bhgw *gw);     /* reads available bytes and handles them */

/* frames.c */
void gwc_bytes(struct bhgw *gw, struct str piece); /* of the stream of lines */
void gwc_frame(struct bhgw *gw, struct str line);
void gwc_ack_entry(struct bhgw *gw, const struct seen_entry *e);
void gwc_settle_locked(struct bhgw *gw, uint64_t number, enum bhgw_verdict verdict);

/* convert.c */
bool gwc_event_read(struct json doc, struct arena *a, struct bhgw_event *ret);
bool gwc_passthrough_read(struct json doc, struct arena *a, struct bhgw_passthrough *ret);
/* NULL: a required key is missing. */
struct bhgw_descriptor *gwc_descriptor_read(struct json object);
struct bhgw_descriptor *gwc_descriptor_copy(const struct bhgw_descriptor *d);
void gwc_descriptor_keep(struct bhgw *gw, struct bhgw_descriptor *d, bool primary); /* takes @d */
void gwc_descriptors_free(struct bhgw *gw);
struct bhgw_result *gwc_result_read(struct json object, const struct gwc_request *req);
struct bhgw_result *gwc_result_failure(const char *error);
/* A bufferId as text: a string unchanged, a number in decimal in @scratch; STR_NULL: none. */
struct str gwc_buffer_id(struct json v, char scratch[24]);

/* request.c */
void gwc_result_arrived(struct bhgw *gw, struct json doc);
void gwc_requests_expire(struct bhgw *gw, int64_t now_ms);
void gwc_requests_fail(struct bhgw *gw);
void gwc_request_free(struct gwc_request *req);

/* threads.c */
void *gwc_events_main(void *gw);
void *gwc_notices_main(void *gw);
void gwc_notify_locked(struct bhgw *gw, struct gwc_notice *n); /* takes ownership of @n */
void gwc_notice_free(struct gwc_notice *n);
