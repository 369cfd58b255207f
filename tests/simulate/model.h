/* model.h - what must be true, kept as dumb lists so that it can be read and believed.
 *
 * The world tells the model what happened; the model stops the run when a promise is broken:
 *   1. a confirmed delivery is acked or on disk, always; at the end every one was received
 *      (one that waits for a file or its context may be a staged row instead)
 *   2. what is acked is not sent again by this process, nor after a crash once the ack is on disk
 *   3. on one socket, order only grows: nothing twice; and nothing older that is still owed is
 *      skipped
 *   4. nobody receives what was not routed to them
 *   5. a going_idle_ack means: the sleep is on disk, and so is all that was accepted before
 *      going_idle, sent and not acked; nothing is sent after it
 *   6. what was accepted for one holder of a name is never sent to the next, and at the end is not
 *      on disk either
 *   7. an event has the same bufferId whenever it is sent, and never two rows: a client that
 *      remembers ids acts exactly once on it, and in the order in which events were confirmed
 *   8. a sleeper with mail is poked after a restart (world.c looks)
 *   9. (a shared store) nothing goes down a socket before it is on disk
 *  10. (several processes) nothing is sent, poked, asked or written under a lease after its end,
 *      and no two processes poll a platform at once (nodes.c and truth.h look)
 *  11. a burst is one person's plain messages, in order, and is fixed: what was sent once under its
 *      bufferId has the same messages whenever it is sent again
 */
#pragma once
#include "base/str.h"
#include "core/event.h"
#include "simulate/sim_store.h"

#define MODEL_INSTANCES 3
#define MODEL_SOCKETS 256
#define MODEL_CHATS 3

struct copy {              /* one event for one instance */
    bool owed;             /* routed to it and neither failed nor lost with an unconfirmed accept */
    bool promised;         /* and its accept was answered with "ok" */
    bool confirmed;        /* that was so at least once */
    uint64_t confirmed_at; /* when for the first time */
    bool seen;             /* on a wire, in its newest life */
    uint64_t row;          /* its row on disk, once it was found there; 0: not yet */
    uint64_t acked_boot;   /* the boot whose relay was told of the ack; 0: never */
    bool received;         /* some gateway read it */
    unsigned effects;      /* how often a gateway that remembers ids acted on it */
    bool settled;          /* acked and the ack is on disk, or nothing of it is on disk any more */
    unsigned sends;
    uint64_t order;   /* place in its instance's order of acceptance, newest life */
    bool loose;       /* no order: a crash forgot its ack while a repeat of it waited, or it was
                       * refused while its commit was in doubt, and the platform repeats it */
    uint32_t sent_on; /* the socket it was last written to */
    uint64_t sent_at; /* when */
    uint32_t holder;  /* which holder of the instance's name it was accepted for */
    bool ended;       /* that one gave the name up: nobody is owed it any more */
    size_t head;      /* seen: the first event of its delivery, counted from 1 */
    size_t n_parts;   /* of the first one: how many events the delivery has */
};
struct model_event {
    char name[24];
    unsigned route; /* which instances it goes to: bit set */
    char author;
    bool command; /* never part of a burst */
    bool accepting, confirmed, failed;
    unsigned lives;      /* how often it was offered */
    bool unanswered;     /* the process died before it said anything: the platform sends it again */
    uint64_t offered_at; /* when it was offered first */
    struct copy copies[MODEL_INSTANCES];
};
struct model {
    struct sim_disk *disk; /* borrowed */
    bool shared;           /* nothing is sent before its commit is known */
    bool per_chat;         /* some events wait: order is that of a chat, not of an instance */
    bool bursts;           /* messages of one person are joined */
    struct model_event *events;
    size_t n, cap;
    uint64_t boot, order;
    unsigned max_attempts;
    uint32_t holder[MODEL_INSTANCES]; /* of the names, counted from 0 */
    bool gone[MODEL_INSTANCES];       /* nobody holds it: events go past it */
    unsigned planned; /* crashes, drains and other losses that do not count as attempts */
    char broken[256]; /* empty: all promises hold */
    uint64_t checks;
    uint64_t moment; /* grows with everything that happens */
    struct {
        uint64_t *ids; /* owned; hashes of the bufferIds acted on */
        size_t n, cap;
    } remembered[MODEL_INSTANCES]; /* by the holder of the name */
};

struct model_socket { /* what the model knows of one socket */
    uint32_t number;
    unsigned instance;
    uint64_t last_order[MODEL_CHATS]; /* by chat; all the same one if nothing waits */
    uint64_t idle_order; /* the newest event offered when the relay heard its going_idle */
    uint64_t idle_at;    /* when that was */
    bool idle_acked;
    uint32_t holder; /* who opened it */
};

void model_init(struct model *m, struct sim_disk *disk);
void model_done(struct model *m);
struct model_event *model_offer(struct model *m, unsigned route); /* a new event */
void model_offer_again(struct model *m, struct model_event *ev);  /* the platform repeats it */
/* Somebody else holds the name, or will: everything for the one before is over. */
void model_ended(struct model *m, unsigned instance, uint32_t holder);
bool model_is_over(const struct model *m, const struct model_event *ev); /* for one of its copies */
void model_accepted(struct model *m, struct model_event *ev, enum bh_err err);
/* The same from a process that was replaced since: who is told "ok" must be right all the same. */
unsigned model_owed(const struct model_event *ev); /* to which instances: bit set */
void model_accepted_late(struct model *m, const struct model_event *ev, unsigned owed,
                         enum bh_err err);
struct model_names { /* the events of one delivery */
    struct str names[EVENT_MAX_PARTS];
    size_t n;
};
void model_sent(struct model *m, struct model_socket *s, const struct model_names *all,
                struct str buffer_id);
/* What an event is called on the wire. */
void model_name(const struct model_event *ev, unsigned instance, char ret[DELIVERY_ID_CHARS]);
struct model_event *model_find(struct model *m, struct str name); /* NULL: no such event */
/* The event that is called so on the wire of this instance; NULL: none. */
struct model_event *model_called(struct model *m, unsigned instance, struct str buffer_id);
/* A gateway reads it, and acts on it unless it remembers the id. */
void model_received(struct model *m, unsigned instance, const struct model_names *all,
                    struct str buffer_id);
/* The oldest event whose answer died with a process; NULL: none. */
struct model_event *model_unanswered(struct model *m);
/* going_idle_ack goes out: what was accepted before going_idle and went down this socket must be
 * acked or on disk by now. */
void model_idle_acked(struct model *m, const struct model_socket *s);
/* It was told of the ack of a delivery, by its first event. */
void model_acked(struct model *m, unsigned instance, const struct model_event *ev);
void model_crashed(struct model *m);   /* after the disk settled */
void model_check(struct model *m);     /* after every step */
void model_check_end(struct model *m); /* after everything was drained */
void model_break(struct model *m, const char *fmt, ...) BH_PRINTF(2, 3);
