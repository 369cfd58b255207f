/* bellhop/gateway.h - turns a program into an agent behind a bellhop connector.
 *
 * A gateway is a program that dials out to a connector over one authenticated WebSocket, receives
 * the messages that people write on chat platforms, and sends answers back.  A gateway needs no
 * public port and holds no platform credential.  This library is the whole transport: dialling with
 * a fresh token, the handshake, acknowledgements, requests and their results, sleep and wake.
 *
 *      static enum bhgw_verdict on_event(void *ctx, struct bhgw *gw, const struct bhgw_event *ev)
 *      {
 *          bhgw_reply(gw, ev, ev->text, NULL, NULL);
 *          return BHGW_ACK;                                // done: do not deliver it again
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
 *      bhgw_close(gw);                                     // clean shutdown, loses nothing
 *      bhgw_free(gw);
 *
 * Threads.  Each handle owns three threads, and none is started before bhgw_open():
 *
 *      socket     reads and writes; never runs your code, so results and acks are never delayed
 *      events     on_event and on_passthrough, one at a time, in the order of the connector
 *      notices    on_interrupt, on_state, on_descriptor and the done callbacks of requests, one at
 *                 a time, in order; a slow on_event does not delay an interrupt
 *
 * Every function may be called from any thread and from inside every handler, blocking ones
 * (..._wait) included, except where a comment says otherwise.  There are no globals: a process may
 * have any number of handles.  All signals are blocked in the library's threads.
 *
 * Strings are UTF-8 and end in a NUL; absent is NULL.  Arguments of a handler are borrowed until it
 * returns; arguments that you pass in are copied.  When memory is exhausted the library aborts the
 * process.
 *
 * States, as reported by on_state and bhgw_state():
 *
 *      OFF --open--> CONNECTING --descriptor--> READY --go_idle / close--> DRAINING
 *                     ^      '-- fails --.         |                          |
 *                     |                  v         | lost                     v
 *                     '--- backoff -- WAITING <----'         DORMANT (until open) or CLOSED
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

#define BHGW_VERSION "0.2.0"
/* The version of the library that is running, which may be newer than BHGW_VERSION. */
BHGW_API const char *bhgw_version(void);

struct bhgw; /* one gateway; it keeps its state across connections, one socket at a time */

enum bhgw_state {
    BHGW_OFF,        /* bhgw_open() was not called yet */
    BHGW_CONNECTING, /* dialling, upgrading or waiting for the descriptor */
    BHGW_READY,      /* connected: messages and requests are exchanged */
    BHGW_DRAINING,   /* going_idle was sent; still serving until the connector answers */
    BHGW_WAITING,    /* the connection failed or was lost; redials after a backoff */
    BHGW_DORMANT,    /* closed by bhgw_go_idle(); the connector buffers messages */
    BHGW_DISABLED,   /* the connector revoked this gateway; it does not redial */
    BHGW_CLOSED,     /* closed by bhgw_close(); final */
};
BHGW_API const char *bhgw_state_name(enum bhgw_state state); /* "ready" */

/* The result of a call. */
enum bhgw_status {
    BHGW_OK,
    BHGW_TIMEOUT,       /* timed out; bhgw_go_idle_wait(): closed, but unconfirmed */
    BHGW_NOT_CONNECTED, /* not connected, or the connection was lost during the call */
    BHGW_STOPPED,       /* DISABLED or CLOSED: do not retry */
    BHGW_NO_THREADS,    /* bhgw_open(): no thread could be created; nothing was started */
};

/* What the library does with a delivery after its handler. */
enum bhgw_verdict {
    BHGW_ACK,     /* acknowledges it; it is never delivered again */
    BHGW_LATER,   /* waits: the application calls bhgw_ack() or bhgw_release() */
    BHGW_RELEASE, /* leaves it with the connector, which sends it on a later connection */
};

enum bhgw_log_level { BHGW_LOG_ERROR, BHGW_LOG_WARN, BHGW_LOG_INFO, BHGW_LOG_DEBUG };

/* ---- incoming deliveries ---- */

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
        *quoted_author; /* of the message it replies to, if the platform tells */
    bool quoted_is_own; /* the quoted message was sent by this agent */
    /* chat and sender */
    const char *platform; /* "telegram", "web", ... */
    const char *bot_id;   /* the agent's identity on that platform */
    const char *chat_id, *chat_type, *chat_name, *chat_topic;
    const char *user_id, *user_name;
    const char *thread_id, *parent_chat_id;
    const char *scope_id;    /* guild, workspace or server */
    const char *session_key; /* identifies the conversation; on_interrupt uses the same key */
    const char
        *answer_metadata; /* JSON object for the metadata of an answer: thread, scope, user */
    /* the delivery */
    const char *buffer_id; /* the connector's id; NULL: it needs no ack */
    uint64_t delivery;     /* for bhgw_ack(); 0: nothing to acknowledge */
    const char *json;      /* the frame as it came: {"type":"inbound","event":{...},...} */
    size_t json_bytes;
};

/* A copy that outlives the handler, for answering later.  Free it with bhgw_event_free(). */
BHGW_API struct bhgw_event *bhgw_event_copy(const struct bhgw_event *ev);
BHGW_API void bhgw_event_free(struct bhgw_event *ev); /* NULL is fine */

/* A webhook request that the connector verified and stripped of credentials (Discord
 * interactions). */
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

/* The sender and the chat of a webhook, as an event without text.  ->session_key is the key for a
 * follow_up.  ->chat_id is empty when the chat is unknown (anything but a Discord interaction).
 * Free it with bhgw_event_free(). */
BHGW_API struct bhgw_event *bhgw_passthrough_event(const struct bhgw_passthrough *fwd);

/* The capabilities of the platform behind an identity. */
struct bhgw_descriptor {
    int contract_version;
    const char *platform, *label;
    int max_message_length; /* of the text of one message, always positive */
    bool counts_utf16;      /* the length is in UTF-16 units; else in code points */
    bool supports_draft_streaming, supports_edit, supports_threads;
    const char *markdown_dialect;     /* "plain", "discord", ... */
    const char *emoji;                /* never NULL; the default is a plug */
    const char *platform_hint;        /* a sentence for the agent; never NULL, may be empty */
    const char *const *supported_ops; /* empty: the connector did not list them */
    size_t n_supported_ops;
    bool pii_safe; /* ids may be replaced by hashes before a model sees them, because the platform
                    * has no mentions by id.  Default: false */
};

/* The result of a request. */
struct bhgw_result {
    bool success;
    const char *error;                 /* set when not successful; see BHGW_ERROR_... */
    const char *message_id;            /* of the message that was sent or edited */
    const char *chat_name, *chat_type; /* get_chat_info */
    const char *thread_id;             /* the thread that the connector created for the message */
    const char *json;                  /* the connector's whole result; NULL when none came */
};
/* The two errors of this library; every other text is the connector's. */
#define BHGW_ERROR_TIMED_OUT "relay outbound timed out" /* the outcome is unknown */
#define BHGW_ERROR_NOT_CONNECTED "relay transport not connected"

typedef enum bhgw_verdict bhgw_event_cb(void *ctx, struct bhgw *gw, const struct bhgw_event *ev);
typedef enum bhgw_verdict bhgw_passthrough_cb(void *ctx, struct bhgw *gw,
                                              const struct bhgw_passthrough *fwd);
typedef void bhgw_interrupt_cb(void *ctx, struct bhgw *gw, const char *session_key,
                               const char *chat_id);
typedef void bhgw_state_cb(void *ctx, struct bhgw *gw, enum bhgw_state state, const char *why);
typedef void bhgw_descriptor_cb(void *ctx, struct bhgw *gw, const struct bhgw_descriptor *d);
typedef void bhgw_done_cb(void *ctx, struct bhgw *gw, const struct bhgw_result *result);
/* One log line without its newline.  Runs on any of the library's threads at any time, and must not
 * call into the library.  A line never contains secrets or message texts. */
typedef void bhgw_log_cb(void *ctx, enum bhgw_log_level level, const char *line);

/* ---- options ---- */

struct bhgw_identity {            /* a bot that the gateway announces */
    const char *platform;         /* "discord" */
    const char *bot_id;           /* "" if the platform has only one bot */
    const char *command_manifest; /* JSON array sent with the hello; NULL: none */
};

/* Which messages of people other than its owner the agent wants in shared chats. */
struct bhgw_policy {
    bool require_address;           /* only messages that mention the agent or reply to it ... */
    const char *const *free_scopes; /* ... except in these chats */
    size_t n_free_scopes;
    bool allow_other_bots; /* messages of other bots too */
};

/* Start from bhgw_options_init(); zero and NULL mean the default. */
struct bhgw_options {
    size_t struct_bytes; /* set by bhgw_options_init(): lets later versions add fields */
    const char *url;     /* http, https, ws or wss, with or without "/relay" at its end */
    const char *gateway_id, *secret;        /* without both, no credential is presented */
    const struct bhgw_identity *identities; /* the first is the primary; none: {"relay", ""} */
    size_t n_identities;

    void *ctx;                           /* passed to every handler */
    bhgw_event_cb *on_event;             /* NULL: every event stays with the connector */
    bhgw_passthrough_cb *on_passthrough; /* NULL: webhooks are acknowledged and dropped */
    bhgw_interrupt_cb *on_interrupt;
    bhgw_state_cb *on_state;
    bhgw_descriptor_cb *on_descriptor;
    bhgw_log_cb *log; /* NULL: silent */

    int connect_timeout_ms;             /* DNS, TCP, TLS and upgrade; 10 s */
    int handshake_timeout_ms;           /* from hello to descriptor; 30 s */
    int request_timeout_ms;             /* from a request to its result; 30 s */
    int idle_ack_timeout_ms;            /* from going_idle to its answer; 10 s */
    int ping_interval_ms;               /* 20 s; also the timeout for the pong */
    int backoff_min_ms, backoff_max_ms; /* between dials: 1 s, doubled up to 30 s, jittered */
    int token_ttl_s;                    /* lifetime of each token; 300 */
    size_t max_message_bytes;           /* of one incoming frame; 16 MiB */
    size_t max_pending;                 /* deliveries received and not settled; 16384 */
    size_t max_pending_bytes;           /* bytes of these deliveries; 64 MiB */
    size_t dedup_ids;                   /* settled buffer ids remembered; 16384 */
    const char *ca_file;                /* PEM bundle to trust instead of the system's */
    const char *user_agent;
    const char *seen_file; /* keeps the settled buffer ids across restarts, at most twice dedup_ids;
                            * one process at a time; not synced: a power failure may lose the
                            * newest ids.  NULL: memory only */
    const struct bhgw_policy *policy; /* declared for the platforms of the identities, except
                                       * "relay", before the first event is delivered; replaces the
                                       * connector's policy.  NULL: keeps the connector's */
    bool late_acks; /* the application settles BHGW_LATER deliveries after minutes or hours: the
                     * connector goes on sending, and does not take it for dead.  False: a delivery
                     * that is unacknowledged for 90 s, or 8 of them, stop the others */
};
static inline struct bhgw_options bhgw_options_init(void)
{
    struct bhgw_options opt;
    memset(&opt, 0, sizeof opt);
    opt.struct_bytes = sizeof opt;
    return opt;
}

/* NULL: an option is invalid, and @error (truncated to fit; may be NULL) says which.  Everything in
 * @opt is copied. */
BHGW_API struct bhgw *bhgw_new(const struct bhgw_options *opt, char *error, size_t error_bytes);

/* Cuts an open connection, ends the threads, frees @gw.  NULL is fine.  Pending done callbacks run
 * before it returns.  Unsettled deliveries stay with the connector.  Do not call it from a handler,
 * or while another thread is inside a call on @gw. */
BHGW_API void bhgw_free(struct bhgw *gw);

/* ---- connecting, sleeping, closing ---- */

/* Dials, and redials until bhgw_go_idle(), bhgw_close() or DISABLED.  Returns at once.  Also ends
 * DORMANT; while WAITING it skips the rest of the backoff.  STOPPED: DISABLED or CLOSED.
 * NO_THREADS: nothing happened; retry later. */
BHGW_API enum bhgw_status bhgw_open(struct bhgw *gw);

/* Waits until READY.  @timeout_ms negative: no timeout. */
BHGW_API enum bhgw_status bhgw_wait_ready(struct bhgw *gw, int timeout_ms);

/* Goes dormant: sends going_idle, serves until the connector has confirmed and the handlers are
 * idle (at most idle_ack_timeout_ms), and closes with 1000.  From then on the connector buffers
 * messages and pokes the wake URL; bhgw_open() fetches them.  Suspend the machine only after
 * bhgw_go_idle_wait() returned BHGW_OK. */
BHGW_API void bhgw_go_idle(struct bhgw *gw);
BHGW_API enum bhgw_status bhgw_go_idle_wait(struct bhgw *gw);

/* Closes for good.  No further event is delivered, the running handler may finish, going_idle is
 * sent as in bhgw_go_idle(), the socket closes, and open requests fail.  Blocks until then, for
 * little more than idle_ack_timeout_ms.  Twice is fine.  Called from a handler it returns at once
 * and the close continues in the background. */
BHGW_API void bhgw_close(struct bhgw *gw);

BHGW_API enum bhgw_state bhgw_state(struct bhgw *gw);

/* The number of deliveries received and not settled yet. */
BHGW_API size_t bhgw_pending(struct bhgw *gw);

/* The latest descriptor for @platform (NULL: the primary); NULL: none received yet.  Free it with
 * bhgw_descriptor_free(). */
BHGW_API struct bhgw_descriptor *bhgw_descriptor_get(struct bhgw *gw, const char *platform);
BHGW_API void bhgw_descriptor_free(struct bhgw_descriptor *d);

/* ---- settling deliveries after BHGW_LATER ---- */

/* Acknowledges a delivery.  An unknown, settled or zero number does nothing.  If the connection
 * that brought the delivery is gone, the connector sends it again; the library then acknowledges
 * the repetition without calling a handler. */
BHGW_API void bhgw_ack(struct bhgw *gw, uint64_t delivery);
/* Gives a delivery back: a handler gets it again when the connector repeats it. */
BHGW_API void bhgw_release(struct bhgw *gw, uint64_t delivery);

/* ---- requests ---- */

/* One request to the connector.  Start from bhgw_action_init(); NULL leaves a field out.
 *
 *      op               uses
 *      "send"           chat_id, content, reply_to, metadata
 *      "edit"           chat_id, message_id, content, metadata
 *      "typing"         chat_id, metadata; content sets a status phrase, on platforms that have one
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
        *bot_id; /* the identity to use; NULL: the connector derives it from the chat */
};
static inline struct bhgw_action bhgw_action_init(const char *op)
{
    struct bhgw_action a;
    memset(&a, 0, sizeof a);
    a.struct_bytes = sizeof a;
    a.op = op;
    return a;
}

/* Sends a request.  @done (may be NULL) runs exactly once, on the notices thread, never inside this
 * call, even if the request fails immediately. */
BHGW_API void bhgw_request(struct bhgw *gw, const struct bhgw_action *a, bhgw_done_cb *done,
                           void *done_ctx);
/* Sends a request and waits for the result.  Never NULL; free it with bhgw_result_free(). */
BHGW_API struct bhgw_result *bhgw_request_wait(struct bhgw *gw, const struct bhgw_action *a);
/* bhgw_request() with the action as JSON, for ops that struct bhgw_action cannot express. */
BHGW_API void bhgw_request_json(struct bhgw *gw, const char *action_json, const char *platform,
                                const char *bot_id, bhgw_done_cb *done, void *done_ctx);
BHGW_API struct bhgw_result *bhgw_request_json_wait(struct bhgw *gw, const char *action_json,
                                                    const char *platform, const char *bot_id);
BHGW_API void bhgw_result_free(struct bhgw_result *result); /* NULL is fine */

/* Sends an answer to @ev, in its chat and thread, as a reply to its message. */
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
/* A typing indicator has no blocking form. */
BHGW_API void bhgw_typing(struct bhgw *gw, const char *chat_id, const char *metadata);
BHGW_API struct bhgw_result *bhgw_get_chat_info_wait(struct bhgw *gw, const char *chat_id);
/* Uses a capability that the connector holds for @session_key, such as
 * "discord.interaction_token". */
BHGW_API void bhgw_follow_up(struct bhgw *gw, const char *session_key, const char *kind,
                             const char *content, const char *metadata, bhgw_done_cb *done,
                             void *done_ctx);
BHGW_API struct bhgw_result *bhgw_follow_up_wait(struct bhgw *gw, const char *session_key,
                                                 const char *kind, const char *content,
                                                 const char *metadata);

/* Interrupts the turn of @session_key, on any gateway of this tenant.  @reason may be NULL.  There
 * is no answer; NOT_CONNECTED: not sent. */
BHGW_API enum bhgw_status bhgw_interrupt(struct bhgw *gw, const char *session_key,
                                         const char *reason);

/* ---- statistics ---- */

struct bhgw_stats {
    size_t struct_bytes;   /* set it to sizeof(struct bhgw_stats) */
    uint64_t connects;     /* handshakes completed */
    uint64_t events;       /* events and webhooks passed to a handler */
    uint64_t duplicates;   /* repeated deliveries that were not passed to a handler */
    uint64_t acks;         /* acknowledgements sent */
    uint64_t ack_messages; /* WebSocket messages that carried them */
    uint64_t requests, timeouts;
    uint64_t bad_frames; /* unusable lines that were skipped */
};
/* Fills @stats; the caller has set its struct_bytes. */
BHGW_API void bhgw_stats_get(struct bhgw *gw, struct bhgw_stats *stats);

/* ---- for your own HTTP calls to the same connector ---- */

/* Derives the WebSocket URL, or the HTTP base ("https://c.example"), from a configured @url.  Free
 * the string with bhgw_string_free().  NULL: not a valid URL. */
BHGW_API char *bhgw_ws_url(const char *url);
BHGW_API char *bhgw_http_url(const char *url);
/* A bearer token: "Authorization: Bearer <token>".  @ttl_s 0: never expires. */
BHGW_API char *bhgw_token(const char *gateway_id, const char *secret, int ttl_s);
BHGW_API void bhgw_string_free(char *s); /* NULL is fine; wipes the string */

#ifdef __cplusplus
}
#endif
#endif
