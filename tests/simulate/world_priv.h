/* world_priv.h - the parts of the simulated world, shared by world.c (the scheduler) and peers.c
 * (the gateways, the waker and the platform). */
#pragma once
#include "base/clock.h"
#include "base/json.h"
#include "base/rand.h"
#include "relay/relay.h"
#include "simulate/model.h"
#include "simulate/world.h"

#define PEER_SOCKETS 3
#define PEER_ACKS 512

struct accept_ctx;
struct world;

struct sim_socket {
    struct wire wire;
    struct world *world; /* borrowed */
    struct model_socket seen;
    struct session *session; /* NULL once closed */
    bool said_hello, frozen, idle_sent, idle_acked;
    int close_code;     /* the relay asked for it; 0: open */
    struct buf sending; /* send_begin() */
    struct buf inbox;   /* written by the relay, not yet read by the gateway */
    size_t unread_messages;
    uint32_t pings[8];
    size_t n_pings;
    size_t acks[PEER_ACKS]; /* events read, not yet acked */
    size_t n_acks;
    size_t unacked_messages_max;
};

struct peer { /* one gateway */
    const char *id;
    unsigned instance;
    struct sim_socket *sockets[PEER_SOCKETS]; /* owned; NULL: none */
    bool wants_sleep;
    uint32_t receiver; /* the socket that said hello last */
    bool asleep;       /* told so by a going_idle_ack, and no hello since */
    bool has_acked; /* since this process started; before that it keeps quiet, lest it be taken for
                     * one that never acks */
};

struct pending_poke {
    poke_done_cb *done;
    void *ctx;
};

struct stopped { /* a process that another one took over from; it is not turned any more */
    struct clock *clock;
    struct store *store; /* NULL: there is none */
    struct bus *bus;
    struct facts *facts;
    struct relay *relay;
};

struct world {
    bool trace, peace, drained;
    bool shared; /* the store is one that several processes have open */
    struct stopped stopped;
    struct rand rand;       /* the scheduler's */
    struct rand relay_rand; /* the heart's */
    struct clock *clock;
    int64_t now_ms;
    struct sim_disk *disk;
    struct store *store;
    struct bus *bus;
    struct seal *seal;
    struct facts *facts;
    struct relay *relay;
    struct relay_limits limits;
    struct waker waker;
    struct outside outside;
    struct outlet outlet;
    struct model model;
    struct peer peers[MODEL_INSTANCES];
    struct pending_poke pokes[MODEL_INSTANCES * 2];
    size_t n_pokes;
    int64_t last_poke_ms[MODEL_INSTANCES];
    int64_t poke_skew_ms[MODEL_INSTANCES]; /* skew_ms then */
    bool poked[MODEL_INSTANCES];           /* since the vigil began */
    int64_t refused_ms;                    /* when the store last failed */
    int64_t skew_ms;                       /* how far the wall clock was set forward or back */
    struct action_id actions[64];
    size_t n_actions;
    uint32_t socket_numbers;
    uint64_t requests, results;
    struct accept_ctx *contexts; /* owned */
    struct json_parser *parser;
    struct world_result result;
    bool churn;                     /* names are given up and taken by others */
    bool changing[MODEL_INSTANCES]; /* such a change is under way */
    unsigned heat;                  /* steps in which a crash is likely */
};

void world_say(struct world *w, const char *fmt, ...) BH_PRINTF(2, 3);
bool world_chance(struct world *w, unsigned percent);
void world_publish(struct world *w, struct model_event *ev);
uint32_t world_holder(const struct world *w, unsigned instance); /* as the facts have it now */

/* peers.c */
void peers_init(struct world *w);
void peers_lost(struct world *w); /* the process died: every socket is gone */
void peer_connect(struct world *w, struct peer *p);
void peer_step(struct world *w, struct peer *p);  /* one random thing a gateway does */
void peer_peace(struct world *w, struct peer *p); /* read and ack everything, stay connected */
void peers_finish_closes(struct world *w, bool all);
