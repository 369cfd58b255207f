/* gateway.h - one shard's conversation with Discord's gateway: connect, identify or resume, beat,
 * notice death, come back.
 *
 * It is handed a clock, a rand and a wire (a WebSocket in the program, a fake in the tests) and
 * touches nothing else.  Events go to the owner in order, with their sequence numbers; the owner
 * says with dgateway_confirm() up to which number they are safe, and that - not what was merely
 * received - is where a resume starts and what heartbeats name.  So an event that was received but
 * not yet stored when something dies is sent again by Discord.
 *
 * Starting a session is rationed by Discord: the owner is asked, and grants with
 * dgateway_identify(). */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

struct dgateway;
struct rand;

enum dgateway_state {
    DGATEWAY_IDLE,        /* not started */
    DGATEWAY_WAITING,     /* until the next attempt */
    DGATEWAY_QUEUED,      /* for the right to start a session */
    DGATEWAY_CONNECTING,  /* the socket is being opened */
    DGATEWAY_GREETING,    /* open; waiting for hello */
    DGATEWAY_IDENTIFYING, /* asked for a new session */
    DGATEWAY_RESUMING,    /* asked for the old one; missed events come in */
    DGATEWAY_LIVE,
    DGATEWAY_STOPPED, /* for good: an operator must act */
};

struct dgateway_wire { /* one socket per gateway at a time */
    void (*open)(void *ctx, struct dgateway *g, const char *url);
    void (*send)(void *ctx, struct dgateway *g, struct str text);
    /* Let go of the socket, silently and at once: no close code, so that the session stays alive on
     * Discord's side.  Also called when it is closed already. */
    void (*drop)(void *ctx, struct dgateway *g);
};

struct dgateway_handlers {
    /* A session has to be started: call dgateway_identify() when Discord's limits allow. */
    void (*wants_identify)(void *ctx, struct dgateway *g);
    /* LIVE.  @ready is the READY payload of a new session; absent after a resume. */
    void (*live)(void *ctx, struct dgateway *g, struct json ready);
    /* One event; @d is borrowed.  Call dgateway_confirm() when it, and all before it, are safe. */
    void (*dispatch)(void *ctx, struct dgateway *g, struct str type, struct json d, uint64_t seq);
    /* The session was refused or has ended: what it had not delivered yet will not come any more.
     */
    void (*session_lost)(void *ctx, struct dgateway *g);
    /* STOPPED.  @problem says what an operator should do; static. */
    void (*stopped)(void *ctx, struct dgateway *g, int code, const char *problem);
    /* Discord wants more shards than we opened (close code 4011).  STOPPED. */
    void (*wants_shards)(void *ctx, struct dgateway *g);
};

struct dgateway_options { /* strings borrowed for the life of the gateway */
    struct clock *clock;
    struct rand *rand;
    const struct dgateway_wire *wire;
    const struct dgateway_handlers *handlers;
    void *ctx; /* for both */
    const char *token;
    const char *url; /* wss://host, without the query */
    uint64_t intents;
    unsigned shard, n_shards;
    bool ignore_resume_url; /* the operator named a gateway: use no other */
};

struct dgateway *dgateway_new(const struct dgateway_options *opt);
void dgateway_free(struct dgateway *g); /* drops the socket; NULL is fine */

/* Give it the session of an earlier process, before dgateway_start(). */
void dgateway_set_session(struct dgateway *g, struct str session_id, struct str resume_url,
                          uint64_t seq);
void dgateway_start(struct dgateway *g);
void dgateway_identify(struct dgateway *g); /* granted; ignored unless QUEUED */
void dgateway_confirm(struct dgateway *g, uint64_t seq);
/* Ask Discord for everything after the confirmed number again, in @after_ms. */
void dgateway_replay(struct dgateway *g, int64_t after_ms);

/* ---- the wire tells ---- */
void dgateway_opened(struct dgateway *g);
void dgateway_message(struct dgateway *g, struct str text);
void dgateway_closed(struct dgateway *g, int code, const char *why);

/* ---- looking ---- */
enum dgateway_state dgateway_state(const struct dgateway *g);
const char *dgateway_state_name(enum dgateway_state s);
unsigned dgateway_shard(const struct dgateway *g);
int64_t dgateway_latency_ms(const struct dgateway *g); /* of the last heartbeat; -1: none yet */
struct dgateway_session {
    const char *id, *resume_url; /* borrowed; "": none */
    uint64_t seq;                /* confirmed */
};
struct dgateway_session dgateway_session(const struct dgateway *g);
