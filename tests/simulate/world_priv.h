/* world_priv.h - the parts of the simulated world, shared by world.c (the scheduler), peers.c (the
 * gateways, the waker and the platform), posts.c (what people write) and nodes.c (several
 * processes). */
#pragma once
#include "base/clock.h"
#include "base/json.h"
#include "base/rand.h"
#include "cluster/node.h"
#include "net/kept.h"
#include "relay/relay.h"
#include "simulate/model.h"
#include "simulate/world.h"

#define PEER_SOCKETS 3
#define PEER_ACKS 512
#define MAX_NODES 5

struct accept_ctx;
struct world;

struct sim_order { /* what the model knew of a socket when the heart wrote this frame */
    uint32_t number, frame;
    uint64_t last[MODEL_CHATS];
};

struct sim_socket { /* of a gateway; behind an edge: its half there, and another one at the heart */
    struct wire wire;
    struct world *world; /* borrowed */
    struct model_socket seen;
    struct session *session; /* NULL once closed */
    bool said_hello, frozen, idle_sent, idle_acked;
    bool heard_hello;        /* the relay did */
    struct sim_node *keeper; /* borrowed; whose session it is; NULL: there is one process */
    struct sim_node *via; /* borrowed; where the gateway dialled; not the keeper: a trunk between */
    struct sim_socket *next; /* world->orphans, or ->halves */
    struct sim_link *link;   /* borrowed; behind an edge: edges.c; NULL: not, or the link is lost */
    struct sim_socket *far;  /* borrowed; the heart's half: that at the edge; NULL: gone */
    uint32_t number;         /* on the link */
    uint32_t frames;         /* written by the heart; of the edge's half: that came down */
    struct kept_socket kept; /* the edge's half */
    struct buf orders;       /* the edge's half: struct sim_order of what is under way */
    struct buf said;         /* the edge's half: lines that the heart is to hear, in order */
    struct buf old_acks;     /* the edge's half: of before it was presented */
    struct buf passed;       /* the edge's half: the bufferIds that came down */
    struct buf past, rows, row_ids, past_asked; /* the heart's half: a presentation */
    bool limbo;                                 /* the edge's half: no heart has it */
    bool remote, parked, writing;               /* the heart's half */
    int gone_code;       /* the gateway has gone, and its keeper does not know it yet */
    struct buf up, down; /* under way to the keeper, to the gateway */
    struct buf line;     /* of what the relay hears */
    int close_code;      /* the relay asked for it; 0: open */
    struct buf sending;  /* send_begin() */
    struct buf inbox;    /* written by the relay, not yet read by the gateway */
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
    bool late_acks;    /* it acks when its work has ended, in any order */
    bool asleep;       /* told so by a going_idle_ack, and no hello since */
    bool has_acked; /* since this process started; before that it keeps quiet, lest it be taken for
                     * one that never acks */
};

struct pending_poke {
    poke_done_cb *done;
    void *ctx;
    struct sim_node *of; /* borrowed; NULL: there is one process */
};

struct pending_want { /* what an event waits for */
    struct handle id;
    size_t file;
    bool context;
    struct sim_node *of; /* borrowed; NULL: there is one process */
};

struct sim_node {        /* one process of several: nodes.c */
    struct world *world; /* borrowed */
    bool alive, frozen, draining, drained;
    bool over;                                    /* its time is up, and it knows it */
    enum { LINE_WELL, LINE_LATE, LINE_CUT } line; /* to the database: answers wait; requests too */
    bool serves;                /* it has read everything and was not stopped since */
    int64_t offset_ms, skew_ms; /* of its clocks: monotonic, wall */
    int64_t since_ms;           /* when it began to be dead, frozen, over or draining */
    int64_t thaw_ms, heals_ms;  /* when it goes on, when its line is well again */
    int64_t poll_ms;            /* until when the platform keeps its long poll open */
    uint64_t epoch, boot;       /* of its lease, of the model when it began to serve */
    char name[24];
    struct cluster_settings settings;
    struct rand rand;
    struct node *node;
    struct clock *clock;
    struct store *store;
    struct observers *observers;
    struct facts *facts;
    struct relay *relay;
};

struct stopped { /* a process that another one took over from; it is not turned any more */
    struct clock *clock;
    struct store *store; /* NULL: there is none */
    struct observers *observers;
    struct facts *facts;
    struct relay *relay;
};

struct world {
    bool trace, peace, drained;
    bool shared; /* the store is one that several processes have open */
    struct stopped stopped;
    struct sim_node nodes[MAX_NODES];
    size_t n_nodes;                    /* 0: there is one process, and it has no name */
    struct sim_node *at;               /* borrowed; whose clock, store, facts and relay are below */
    struct sim_node *current;          /* borrowed; who began to serve last; NULL: nobody yet */
    struct sim_socket *orphans;        /* owned */
    struct sim_socket *halves;         /* owned; at hearts, of sockets behind edges */
    struct sim_link *links[MAX_NODES]; /* owned; NULL: none */
    size_t n_edges;                    /* of the one process */
    uint32_t connection_numbers;
    struct rand rand;       /* the scheduler's */
    struct rand relay_rand; /* the heart's */
    struct clock *clock;
    int64_t now_ms;
    struct sim_disk *disk;
    struct store *store;
    struct observers *observers;
    struct seal *seal;
    struct facts *facts;
    struct relay *relay;
    struct relay_limits limits;
    struct waker waker;
    struct outside outside;
    struct outlet outlet;
    struct model model;
    struct peer peers[MODEL_INSTANCES];
    struct pending_poke pokes[64];
    size_t n_pokes;
    int64_t last_poke_ms[MODEL_INSTANCES];
    int64_t poke_skew_ms[MODEL_INSTANCES]; /* skew_ms then */
    bool poked[MODEL_INSTANCES];           /* since the vigil began */
    int64_t refused_ms;                    /* when the store last failed */
    int64_t skew_ms;                       /* how far the wall clock was set forward or back */
    struct action_id actions[64];
    const struct sim_node *actors[64]; /* whose they are */
    size_t n_actions;
    bool waits;       /* some events wait for files or their context */
    int64_t burst_ms; /* how long messages wait for more of their author; 0: not at all */
    struct pending_want wants[512];
    size_t n_wants;
    uint32_t socket_numbers;
    uint64_t requests, results;
    size_t strays;
    struct accept_ctx *contexts; /* owned */
    struct json_parser *parser;
    struct world_result result;
    bool churn;                     /* names are given up and taken by others */
    bool changing[MODEL_INSTANCES]; /* such a change is under way */
    unsigned heat;                  /* steps in which a crash is likely */
};

void world_say(struct world *w, const char *fmt, ...) BH_PRINTF(2, 3);
bool world_chance(struct world *w, unsigned percent);
/* Each step of these is of whatever process w->at is. */
void world_boot(struct world *w); /* facts and relay on w->store */
void world_turn(struct world *w, int64_t ms);
void world_complete(struct world *w, size_t n);
void world_settle(struct world *w);
void world_tell_holders(struct world *w);
void world_check_sleepers(struct world *w);
void world_churn(struct world *w);
void world_answer(struct world *w);                              /* pokes and actions */
uint32_t world_holder(const struct world *w, unsigned instance); /* as the facts have it now */

/* posts.c */
void posts_step(struct world *w);  /* somebody writes, or a platform repeats itself */
void posts_stray(struct world *w); /* to a process that is over */
void posts_done(struct world *w);

/* peers.c */
void peers_init(struct world *w);
void peers_lost(struct world *w); /* the process died: every socket is gone */
void peer_connect(struct world *w, struct peer *p);
void peer_step(struct world *w, struct peer *p);  /* one random thing a gateway does */
void peer_peace(struct world *w, struct peer *p); /* read and ack everything, stay connected */
void peers_finish_closes(struct world *w, bool all);

/* sockets.c */
void socket_names(struct json event, struct model_names *ret); /* of what one delivery has */
extern const struct wire_ops sim_wire_ops;
void socket_hear(struct sim_socket *s, struct str bytes);    /* the relay does, sooner or later */
void socket_judge(struct sim_socket *s, struct str message); /* the relay writes it */
void socket_judge_close(struct sim_socket *s, enum close_reason why);
void socket_heard(struct sim_socket *h, struct str lines); /* the heart's half hears them */
void socket_heard_ack(struct sim_socket *h, struct str id);
void socket_presented(struct sim_socket *g); /* the next heart hears what was held, and acks */
void socket_passes(struct sim_socket *g, struct str text); /* a message reaches the gateway */
void socket_pinged(struct sim_socket *s, uint32_t number);
void socket_free(struct sim_socket *s);
void socket_lose(struct world *w, struct sim_socket **slot, int code); /* the gateway goes */
void sockets_move(struct world *w, struct sim_node *n); /* some bytes of each of this keeper's */
void sockets_cut(struct world *w, struct sim_node *n);  /* the process died */

/* edges.c */
void edges_open(struct world *w, size_t n);
void edges_close(struct world *w);
void edges_move(struct world *w);
void edges_crashed(struct world *w);
void edges_ended(struct world *w, const struct sim_node *n);              /* the process died */
struct sim_link *edges_link(struct world *w, const struct sim_node *via); /* NULL: no edge */
/* The heart's half, for session_open(); NULL: the link is down. */
struct sim_socket *edges_connect(struct sim_socket *g, struct sim_link *l);
void edges_refused(struct sim_socket *h);
void edges_hear(struct sim_socket *g, struct str bytes);
void edges_pong(struct sim_socket *g, uint32_t number);
void edges_lose(struct sim_socket *g, int code);

/* nodes.c: see there */
struct sim_node *nodes_heart_of(struct world *w, struct sim_node *via); /* NULL: it knows none */
void nodes_open(struct world *w, unsigned n);
void nodes_close(struct world *w);
void nodes_enter(struct world *w, struct sim_node *n);                   /* NULL is fine */
struct sim_node *nodes_dial(struct world *w, struct sim_node **ret_via); /* NULL: nobody answers */
bool nodes_reach(struct world *w); /* enters the one that serves; false: nobody does */
void nodes_turn(struct world *w, int64_t ms);
void nodes_settle(struct world *w);
void nodes_step(struct world *w); /* one step of trouble */
void nodes_calm(struct world *w); /* all of them run, one serves, nothing is under way */
/* Something is about to leave the process: it must be the one that serves. */
void nodes_judge(struct world *w, const char *what);
