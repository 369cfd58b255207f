/* socket.h - one shard's connection to Discord: connect, identify or resume, send heartbeats,
 * notice a dead connection, reconnect.
 *
 *      s = dsocket_new(&options);  dsocket_start(s);
 *      handlers->dispatch(ctx, s, "MESSAGE_CREATE", d, 17);
 *      dsocket_confirm(s, 17);           once that event and all before it are stored
 *
 * The caller hands in a clock, a random source and a wire (a WebSocket in the program, a fake in
 * the tests); the socket touches nothing else.  The caller confirms the sequence numbers of stored
 * events.  Heartbeats and resumes carry the confirmed number.  So Discord resends an event that was
 * received but not stored when the connection or the process died.
 *
 * Discord limits new sessions.  The socket calls wants_identify() and waits for dsocket_identify();
 * discord.c decides when. */
#pragma once
#include "base/clock.h"
#include "base/json.h"

struct dsocket;

enum dsocket_state {
    DSOCKET_IDLE,        /* not started */
    DSOCKET_WAITING,     /* for the next attempt */
    DSOCKET_QUEUED,      /* for dsocket_identify() */
    DSOCKET_CONNECTING,  /* the WebSocket is being opened */
    DSOCKET_GREETING,    /* open; waiting for hello */
    DSOCKET_IDENTIFYING, /* requested a new session */
    DSOCKET_RESUMING,    /* requested the old session; missed events come in */
    DSOCKET_LIVE,
    DSOCKET_STOPPED, /* for good: an operator must act */
};

struct dsocket_wire { /* holds at most one WebSocket for each dsocket */
    void (*open)(void *ctx, struct dsocket *s, const char *url);
    void (*send)(void *ctx, struct dsocket *s, struct str text);
    /* Drops the WebSocket at once and without a close code, so that Discord keeps the session.
     * Also called for a WebSocket that is closed already. */
    void (*drop)(void *ctx, struct dsocket *s);
};

struct dsocket_handlers {
    /* A new session is needed: call dsocket_identify() when Discord's limits allow. */
    void (*wants_identify)(void *ctx, struct dsocket *s);
    /* LIVE.  @ready is the READY payload of a new session; absent after a resume. */
    void (*live)(void *ctx, struct dsocket *s, struct json ready);
    /* One event; @d is borrowed.  Call dsocket_confirm() once it and all before it are stored. */
    void (*dispatch)(void *ctx, struct dsocket *s, struct str type, struct json d, uint64_t seq);
    /* Discord ended the session and will not send its undelivered events. */
    void (*session_lost)(void *ctx, struct dsocket *s);
    /* STOPPED.  @problem says what an operator should do; static. */
    void (*stopped)(void *ctx, struct dsocket *s, int code, const char *problem);
    /* STOPPED: Discord wants more shards (close code 4011). */
    void (*wants_shards)(void *ctx, struct dsocket *s);
};

struct dsocket_options { /* strings are borrowed while the dsocket lives */
    struct clock *clock;
    struct rand *rand;
    const struct dsocket_wire *wire;
    const struct dsocket_handlers *handlers;
    void *ctx; /* for both */
    const char *token;
    const char *url; /* wss://host, without the query */
    uint64_t intents;
    unsigned shard, n_shards;
    bool ignore_resume_url; /* the operator configured an address: use no other */
};

struct dsocket *dsocket_new(const struct dsocket_options *opt);
void dsocket_free(struct dsocket *s); /* NULL is fine */

/* Resumes the session of an earlier process; call it before dsocket_start(). */
void dsocket_set_session(struct dsocket *s, struct str session_id, struct str resume_url,
                         uint64_t seq);
void dsocket_start(struct dsocket *s);
void dsocket_identify(struct dsocket *s); /* ignored unless QUEUED */
void dsocket_confirm(struct dsocket *s, uint64_t seq);
/* Reconnects in @after_ms, so that Discord sends everything after the confirmed number again. */
void dsocket_replay(struct dsocket *s, int64_t after_ms);

/* ---- the wire calls these ---- */
void dsocket_opened(struct dsocket *s);
void dsocket_message(struct dsocket *s, struct str text);
void dsocket_closed(struct dsocket *s, int code, const char *why);

/* ---- status ---- */
enum dsocket_state dsocket_state(const struct dsocket *s);
const char *dsocket_state_name(enum dsocket_state s);
unsigned dsocket_shard(const struct dsocket *s);
int64_t dsocket_latency_ms(const struct dsocket *s); /* of the last heartbeat; -1: none yet */
struct dsocket_session {
    const char *id, *resume_url; /* borrowed; "": none */
    uint64_t seq;                /* confirmed */
};
struct dsocket_session dsocket_session(const struct dsocket *s);
