/* bellhop/gateway.h - be an agent behind a bellhop connector.
 *
 * A gateway is a program that dials out to a connector over one authenticated WebSocket, is handed
 * the messages people write on chat platforms, and sends answers back.  It needs no public port and
 * holds no platform credential.  This library is the whole transport: dialling with a fresh token,
 * the handshake, acknowledgements, requests and their results, going to sleep, coming back.
 *
 *      static enum bhgw_verdict on_event(void *ctx, struct bhgw *gw, const struct bhgw_event *ev)
 *      {
 *          bhgw_reply(gw, ev, ev->text, NULL, NULL);
 *          return BHGW_ACK;                                // taken: never send it again
 *      }
 *
 *      struct bhgw_options opt = bhgw_options_init();
 *      opt.url = "https://relay.example.org";
 *      opt.gateway_id = "gw-1";
 *      opt.secret = getenv("GATEWAY_RELAY_SECRET");
 *      opt.on_event = on_event;
 *      struct bhgw *gw = bhgw_new(&opt, error, sizeof error);
 *      bhgw_open(gw);
 *      ...
 *      bhgw_close(gw);                                     // say goodbye, lose nothing
 *      bhgw_free(gw);
 *
 * Threads.  Each handle owns three threads, and none is started before bhgw_open():
 *
 *      socket     reads and writes, never runs code of yours, so results and acks always flow
 *      events     on_event and on_passthrough, one at a time, in the order of the connector
 *      notices    on_interrupt, on_state, on_descriptor and the done callbacks of requests, one at
 *                 a time, in order; not held up by a slow on_event, so an interrupt can reach it
 *
 * Every function may be called from any thread and from inside every handler, blocking ones
 * (..._wait) included, except where a comment says otherwise.  There are no globals: a process may
 * have as many handles as it likes.  All signals are blocked in the library's threads.
 *
 * Strings are UTF-8 and end in a NUL; absent is NULL.  What a handler is given is borrowed until it
 * returns; what you pass in is copied.  When memory is gone the library aborts the process.
 *
 * States, as told to on_state and by bhgw_state():
 *
 *      OFF --open--> CONNECTING --descriptor--> READY --go_idle / close--> DRAINING
 *                     ^      '-- fails --.         |                          |
 *                     |                  v         | lost                     v
 *                     '---- later --- WAITING <----'         DORMANT (open: again) or CLOSED
 *
 *      a 4401 after any good handshake of this handle --> DISABLED: the credential was revoked
 */
#ifndef BELLHOP_GATEWAY_H
#define BELLHOP_GATEWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BHGW_API __attribute__((visibility("default")))
#else
#define BHGW_API
#endif

#define BHGW_VERSION "0.1.0"
/* The version of the library that is running, which may be newer than BHGW_VERSION. */
BHGW_API const char *bhgw_version(void);

struct bhgw; /* one gateway: one socket at a time, and what must outlive it */

enum bhgw_state {
    BHGW_OFF,        /* bhgw_open() was not called yet */
    BHGW_CONNECTING, /* dialling, upgrading or waiting for the descriptor */
    BHGW_READY,      /* messages flow */
    BHGW_DRAINING,   /* going_idle is said; still serving until the connector answers */
    BHGW_WAITING,    /* the connection failed or was lost; the next dial comes by itself */
    BHGW_DORMANT,    /* closed by bhgw_go_idle(); the connector keeps what arrives */
    BHGW_DISABLED,   /* the connector revoked this gateway: there will be no further dial */
    BHGW_CLOSED,     /* closed by bhgw_close(): the end */
};
BHGW_API const char *bhgw_state_name(enum bhgw_state state); /* "ready" */

/* How a call ended. */
enum bhgw_status {
    BHGW_OK,
    BHGW_TIMEOUT,       /* not in the time given; bhgw_go_idle_wait(): closed, but unconfirmed */
    BHGW_NOT_CONNECTED, /* there is no connection, or it was lost meanwhile */
    BHGW_STOPPED,       /* DISABLED or CLOSED: waiting longer is of no use */
    BHGW_NO_THREADS,    /* bhgw_open(): the system gave no threads now; nothing was started */
};

/* What a handler did with a delivery. */
enum bhgw_verdict {
    BHGW_ACK,     /* taken: acknowledge it, never hand it over again */
    BHGW_LATER,   /* I keep ->delivery and call bhgw_ack() or bhgw_release() */
    BHGW_RELEASE, /* not taken: the connector keeps it and sends it on a later connection */
};

enum bhgw_log_level { BHGW_LOG_ERROR, BHGW_LOG_WARN, BHGW_LOG_INFO, BHGW_LOG_DEBUG };

/* ---- what arrives ---- */

/* A message from a person.  ->text, ->platform, ->chat_id, ->chat_type and ->session_key are never
 * NULL; everything else may be.  Later versions add fields at the end. */
struct bhgw_event {
    const char *text;
    size_t text_bytes;        /* the text may contain NULs */
    const char *message_type; /* "text", "photo", "command", ...; never NULL */
    const char *message_id;
    const char *reply_to_message_id;
    const char *const *media_urls;
    size_t n_media_urls;
    const char *quoted_text,
        *quoted_author; /* the message it replies to, where the platform tells */
    bool quoted_is_own; /* that message was ours */
    /* where and who */
    const char *platform; /* "telegram", "web", ... */
    const char *bot_id;   /* which of our identities there */
    const char *chat_id, *chat_type, *chat_name, *chat_topic;
    const char *user_id, *user_name;
    const char *thread_id, *parent_chat_id;
    const char *scope_id;        /* guild, workspace or server */
    const char *session_key;     /* names the conversation; on_interrupt speaks of the same key */
    const char *answer_metadata; /* JSON object an answer should carry: thread, scope, user */
    /* the delivery itself */
    const char *buffer_id; /* the connector's id; NULL: it wants no ack */
    uint64_t delivery;     /* for bhgw_ack(); 0: nothing to acknowledge */
    const char *json;      /* the frame as it came: {"type":"inbound","event":{...},...} */
    size_t json_bytes;
};

/* An event that outlives its handler, for answering later.  Free it with bhgw_event_free(). */
BHGW_API struct bhgw_event *bhgw_event_copy(const struct bhgw_event *ev);
BHGW_API void bhgw_event_free(struct bhgw_event *ev); /* NULL is fine */

/* A webhook request the connector verified and stripped of credentials (Discord interactions). */
struct bhgw_passthrough {
    const char *platform, *bot_id, *method, *path;
    const char *const *header_names, *const *header_values;
    size_t n_headers;
    const void *body;
    size_t body_bytes;
    const char *buffer_id;
    uint64_t delivery;
    const char *json; /* the frame as it came */
    size_t json_bytes;
};

/* Whom it is from and where an answer belongs, as far as that can be told: an event without text,
 * whose ->session_key is the one a follow_up takes and whose ->chat_id is empty when nobody knows
 * (anything but a Discord interaction).  Free it with bhgw_event_free(). */
BHGW_API struct bhgw_event *bhgw_passthrough_event(const struct bhgw_passthrough *fwd);

/* What the platform behind an identity can do. */
struct bhgw_descriptor {
    int contract_version;
    const char *platform, *label;
    int max_message_length; /* of one message's text, always positive */
    bool counts_utf16;      /* ... in UTF-16 units; else in code points */
    bool supports_draft_streaming, supports_edit, supports_threads;
    const char *markdown_dialect;     /* "plain", "discord", ... */
    const char *emoji;                /* never NULL: a plug when the connector did not say */
    const char *platform_hint;        /* a sentence for the agent; never NULL, may be empty */
    const char *const *supported_ops; /* empty: the connector did not say */
    size_t n_supported_ops;
    bool pii_safe; /* ids may be replaced by hashes before a model sees them: nobody is mentioned by
                    * id there.  False unless the connector said so */
};

/* How a request ended. */
struct bhgw_result {
    bool success;
    const char *error;                 /* set when not successful; see BHGW_ERROR_... */
    const char *message_id;            /* of what was sent or edited */
    const char *chat_name, *chat_type; /* get_chat_info */
    const char *thread_id;             /* where the connector put it, when it made a thread */
    const char *json;                  /* the connector's whole result; NULL when none came */
};
/* The two failures that are ours; every other text is the connector's. */
#define BHGW_ERROR_TIMED_OUT "relay outbound timed out" /* it may have happened */
#define BHGW_ERROR_NOT_CONNECTED "relay transport not connected"

typedef enum bhgw_verdict bhgw_event_cb(void *ctx, struct bhgw *gw, const struct bhgw_event *ev);
typedef enum bhgw_verdict bhgw_passthrough_cb(void *ctx, struct bhgw *gw,
                                              const struct bhgw_passthrough *fwd);
typedef void bhgw_interrupt_cb(void *ctx, struct bhgw *gw, const char *session_key,
                               const char *chat_id);
typedef void bhgw_state_cb(void *ctx, struct bhgw *gw, enum bhgw_state state, const char *why);
typedef void bhgw_descriptor_cb(void *ctx, struct bhgw *gw, const struct bhgw_descriptor *d);
typedef void bhgw_done_cb(void *ctx, struct bhgw *gw, const struct bhgw_result *result);
/* One line without its newline; may be called from any of the library's threads at any time and
 * must not call back into the library.  Secrets and message texts are never in it. */
typedef void bhgw_log_cb(void *ctx, enum bhgw_log_level level, const char *line);

/* ---- making one ---- */

struct bhgw_identity {            /* what the gateway says it fronts */
    const char *platform;         /* "discord" */
    const char *bot_id;           /* "" where there is only one */
    const char *command_manifest; /* JSON array sent with the hello; NULL: none */
};

/* Which messages of people other than its owner the agent wants in shared chats. */
struct bhgw_policy {
    bool require_address;           /* only those that mention it or answer it ... */
    const char *const *free_scopes; /* ... except in these chats */
    size_t n_free_scopes;
    bool allow_other_bots; /* those of other bots too */
};

/* Start from bhgw_options_init() and set what you need: zero and NULL mean the default. */
struct bhgw_options {
    size_t struct_bytes; /* set by bhgw_options_init(): lets later versions add fields */
    const char *url;     /* http, https, ws or wss, with or without "/relay" at its end */
    const char *gateway_id, *secret;        /* without both, no credential is presented */
    const struct bhgw_identity *identities; /* the first is the primary; none: {"relay", ""} */
    size_t n_identities;

    void *ctx;                           /* handed to every handler */
    bhgw_event_cb *on_event;             /* NULL: every event stays with the connector */
    bhgw_passthrough_cb *on_passthrough; /* NULL: forwards are acknowledged and dropped */
    bhgw_interrupt_cb *on_interrupt;
    bhgw_state_cb *on_state;
    bhgw_descriptor_cb *on_descriptor;
    bhgw_log_cb *log; /* NULL: silent */

    int connect_timeout_ms;             /* DNS, TCP, TLS and upgrade; 10 s */
    int handshake_timeout_ms;           /* from hello to descriptor; 30 s */
    int request_timeout_ms;             /* from a request to its result; 30 s */
    int idle_ack_timeout_ms;            /* from going_idle to its answer; 10 s */
    int ping_interval_ms;               /* 20 s; a peer silent for as long again is given up */
    int backoff_min_ms, backoff_max_ms; /* between dials: 1 s, doubled up to 30 s, jittered */
    int token_ttl_s;                    /* life of each token; 300 */
    size_t max_message_bytes;           /* of one incoming frame; 16 MiB */
    size_t max_pending;                 /* deliveries taken from the socket, not settled; 16384 */
    size_t max_pending_bytes;           /* ... and their bytes; 64 MiB */
    size_t dedup_ids;                   /* settled buffer ids remembered; 16384 */
    const char *ca_file;                /* PEM bundle to trust instead of the system's */
    const char *user_agent;
    const char *seen_file; /* keeps the settled buffer ids across restarts, at most twice dedup_ids;
                            * one process at a time; not synced: a loss of power may cost the
                            * newest.  NULL: they are forgotten */
    const struct bhgw_policy *policy; /* declared for the identities' platforms (but "relay")
                                       * before the first event is handed over, replacing what the
                                       * connector had; NULL: whatever the connector has */
};
static inline struct bhgw_options bhgw_options_init(void)
{
    struct bhgw_options opt;
    memset(&opt, 0, sizeof opt);
    opt.struct_bytes = sizeof opt;
    return opt;
}

/* NULL when an option makes no sense; a sentence saying which is then in @error (cut to fit; may be
 * NULL).  Everything in @opt is copied. */
BHGW_API struct bhgw *bhgw_new(const struct bhgw_options *opt, char *error, size_t error_bytes);

/* Close without ceremony if still open, end the threads, free.  NULL is fine.  Done callbacks still
 * owed run before it returns.  Deliveries not settled stay with the connector.  Not from a handler,
 * and not while another thread is inside a call on @gw. */
BHGW_API void bhgw_free(struct bhgw *gw);

/* ---- connecting, sleeping, leaving ---- */

/* Dial, and keep redialling until bhgw_go_idle(), bhgw_close() or DISABLED.  Returns at once.  Also
 * the way back from DORMANT.  While WAITING it dials now.  STOPPED: DISABLED or CLOSED.
 * NO_THREADS: as if it had not been called; try again when there is room. */
BHGW_API enum bhgw_status bhgw_open(struct bhgw *gw);

/* Wait until READY.  @timeout_ms negative: for ever. */
BHGW_API enum bhgw_status bhgw_wait_ready(struct bhgw *gw, int timeout_ms);

/* Go dormant: tell the connector, keep serving until it confirmed and the handlers are idle (at
 * most idle_ack_timeout_ms), close with 1000.  From then on the connector keeps what arrives and
 * pokes the wake URL; bhgw_open() fetches it.  A machine may be suspended only after BHGW_OK. */
BHGW_API void bhgw_go_idle(struct bhgw *gw);
BHGW_API enum bhgw_status bhgw_go_idle_wait(struct bhgw *gw);

/* Leave for good: no further event is handed over, the running handler may finish, the connector is
 * told as in bhgw_go_idle(), the socket closes, and open requests fail.  Blocks until then, within
 * idle_ack_timeout_ms and a little.  Twice is fine.  From a handler it returns at once and the rest
 * happens behind it. */
BHGW_API void bhgw_close(struct bhgw *gw);

BHGW_API enum bhgw_state bhgw_state(struct bhgw *gw);

/* Deliveries handed out or queued that are not settled yet: 0 means nothing is in flight here. */
BHGW_API size_t bhgw_pending(struct bhgw *gw);

/* The descriptor for @platform (NULL: the primary) as last received; NULL when none came yet.  Free
 * it with bhgw_descriptor_free(). */
BHGW_API struct bhgw_descriptor *bhgw_descriptor_get(struct bhgw *gw, const char *platform);
BHGW_API void bhgw_descriptor_free(struct bhgw_descriptor *d);

/* ---- settling deliveries a handler kept with BHGW_LATER ---- */

/* It is durably taken.  An unknown, settled or zero number does nothing.  When the socket that
 * brought it is gone, the connector sends it again and the library acknowledges it then, by itself,
 * without handing it over twice. */
BHGW_API void bhgw_ack(struct bhgw *gw, uint64_t delivery);
/* It is not taken after all: handed over again when the connector repeats it. */
BHGW_API void bhgw_release(struct bhgw *gw, uint64_t delivery);

/* ---- requests ---- */

/* One request to the connector.  Start from bhgw_action_init(op); NULL leaves a field out.
 *
 *      op               uses
 *      "send"           chat_id, content, reply_to, metadata
 *      "edit"           chat_id, message_id, content, metadata
 *      "typing"         chat_id, metadata; content sets a status phrase where there is one
 *      "get_chat_info"  chat_id
 *      "follow_up"      session_key, kind, content, metadata
 *      any other        whatever is set
 */
struct bhgw_action {
    size_t struct_bytes;
    const char *op;
    const char *chat_id, *content, *reply_to, *message_id, *session_key, *kind;
    const char *metadata; /* a JSON object; NULL: {} */
    const char *extra;    /* a JSON object whose members are added to the action; NULL: none */
    const char *platform,
        *bot_id; /* which identity is meant; NULL: the connector knows by the chat */
};
static inline struct bhgw_action bhgw_action_init(const char *op)
{
    struct bhgw_action a;
    memset(&a, 0, sizeof a);
    a.struct_bytes = sizeof a;
    a.op = op;
    return a;
}

/* Ask, and hear of the result: @done (may be NULL) runs exactly once on the notices thread, never
 * inside this call, also when it fails at once. */
BHGW_API void bhgw_request(struct bhgw *gw, const struct bhgw_action *a, bhgw_done_cb *done,
                           void *done_ctx);
/* Ask and wait for the result.  Never NULL; free it with bhgw_result_free(). */
BHGW_API struct bhgw_result *bhgw_request_wait(struct bhgw *gw, const struct bhgw_action *a);
/* The same with the action as JSON, for ops this header does not know. */
BHGW_API void bhgw_request_json(struct bhgw *gw, const char *action_json, const char *platform,
                                const char *bot_id, bhgw_done_cb *done, void *done_ctx);
BHGW_API struct bhgw_result *bhgw_request_json_wait(struct bhgw *gw, const char *action_json,
                                                    const char *platform, const char *bot_id);
BHGW_API void bhgw_result_free(struct bhgw_result *result); /* NULL is fine */

/* Answer @ev in its chat and thread, as a reply to it. */
BHGW_API void bhgw_reply(struct bhgw *gw, const struct bhgw_event *ev, const char *content,
                         bhgw_done_cb *done, void *done_ctx);
BHGW_API struct bhgw_result *bhgw_reply_wait(struct bhgw *gw, const struct bhgw_event *ev,
                                             const char *content);

/* The common requests in one call.  @metadata as in struct bhgw_action. */
BHGW_API void bhgw_send(struct bhgw *gw, const char *chat_id, const char *content,
                        const char *reply_to, const char *metadata, bhgw_done_cb *done,
                        void *done_ctx);
BHGW_API struct bhgw_result *bhgw_send_wait(struct bhgw *gw, const char *chat_id,
                                            const char *content, const char *reply_to,
                                            const char *metadata);
BHGW_API void bhgw_edit(struct bhgw *gw, const char *chat_id, const char *message_id,
                        const char *content, const char *metadata, bhgw_done_cb *done,
                        void *done_ctx);
BHGW_API struct bhgw_result *bhgw_edit_wait(struct bhgw *gw, const char *chat_id,
                                            const char *message_id, const char *content,
                                            const char *metadata);
/* Nobody waits for a typing indicator: there is no blocking form. */
BHGW_API void bhgw_typing(struct bhgw *gw, const char *chat_id, const char *metadata);
BHGW_API struct bhgw_result *bhgw_get_chat_info_wait(struct bhgw *gw, const char *chat_id);
/* Use a capability the connector keeps for @session_key, such as "discord.interaction_token". */
BHGW_API void bhgw_follow_up(struct bhgw *gw, const char *session_key, const char *kind,
                             const char *content, const char *metadata, bhgw_done_cb *done,
                             void *done_ctx);
BHGW_API struct bhgw_result *bhgw_follow_up_wait(struct bhgw *gw, const char *session_key,
                                                 const char *kind, const char *content,
                                                 const char *metadata);

/* Stop the turn that runs @session_key, wherever in this tenant.  @reason may be NULL.  There is no
 * answer; NOT_CONNECTED: not sent. */
BHGW_API enum bhgw_status bhgw_interrupt(struct bhgw *gw, const char *session_key,
                                         const char *reason);

/* ---- numbers, for a log line or a metric ---- */

struct bhgw_stats {
    size_t struct_bytes;   /* set it to sizeof(struct bhgw_stats) */
    uint64_t connects;     /* handshakes completed */
    uint64_t events;       /* events and forwards handed to a handler */
    uint64_t duplicates;   /* deliveries not handed over because they had been before */
    uint64_t acks;         /* acknowledgements sent */
    uint64_t ack_messages; /* ... and the WebSocket messages they travelled in */
    uint64_t requests, timeouts;
    uint64_t bad_frames; /* lines that were skipped */
};
/* Fill @stats, whose struct_bytes is set. */
BHGW_API void bhgw_stats_get(struct bhgw *gw, struct bhgw_stats *stats);

/* ---- for HTTP calls of your own to the same connector ---- */

/* The WebSocket URL, or the HTTP base ("https://c.example"), behind a configured @url.  Heap
 * strings, freed with bhgw_string_free(); NULL: not a URL of ours. */
BHGW_API char *bhgw_ws_url(const char *url);
BHGW_API char *bhgw_http_url(const char *url);
/* A bearer token: "Authorization: Bearer <token>".  @ttl_s 0: never expires. */
BHGW_API char *bhgw_token(const char *gateway_id, const char *secret, int ttl_s);
BHGW_API void bhgw_string_free(char *s); /* NULL is fine; what it held is wiped */

#ifdef __cplusplus
}
#endif
#endif
