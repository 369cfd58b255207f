/* heart.h - struct relay: its environment, its parts, and the work at the end of a turn.
 *
 *      turn ends:  results -> pump -> acks to the store -> answers to platforms -> state changes
 *
 * Only files of src/relay include this header.  Everything runs on the loop thread.  No part calls
 * back into its caller: a call enqueues its effects, and the end of the turn carries them out.
 *
 * Each part has a header with its contract, and a struct that only the part's own file sees.
 * relay.c builds the parts and frees them.  Iteration uses lists in order of age, never maps, so
 * that a run can be replayed.
 */
#pragma once
#include "base/fifo.h"
#include "base/log.h"
#include "core/journal.h"
#include "relay/in/dedup.h"
#include "relay/in/inside.h"
#include "relay/relay.h"
#include "relay/sleep/sleep.h"

struct instance;

struct relay {
    struct relay_env env;
    struct relay_limits lim;
    struct relay_counters n;
    uint32_t life; /* random: differs from that of the previous process */

    struct timer turn_end; /* armed while work waits for the end of this turn */
    unsigned turn;         /* that work: of enum turn_step */
    struct timer retry;    /* armed while a store operation waits for its retry */
    struct list pending;   /* struct pending, owned */
    struct fifo troubled;  /* instances with a failed store operation */
    struct timer farewell; /* armed while a drain waits for acks and results */
    bool draining;         /* written by relay_drain() and relay_stop() only */
    int expected;          /* instances that are about to be added: relay_expect() */
    size_t unsafe;         /* things that must be on disk or answered before a drain ends */
    bool said_farewell;    /* a drain has closed the sockets */
    defer_cb *drained;     /* callback of relay_drain(); NULL: no drain, or it is finished */
    void *drained_ctx;

    /* All owned. */
    struct upkeep *upkeep;
    struct json_parser *json; /* one frame, or one record, at a time */
    struct dedup dedup;
    struct instances *instances;
    struct sessions *sessions;
    struct accepts *accepts;
    struct deliveries *deliveries;
    struct pump *pump;
    struct chats *chats;
    struct requests *requests;
    struct judge *judge;
    struct journal *journal; /* owned if the env has none */
    struct latency *latency;
    struct tally_rounds *tally; /* mailbox/admin.c */
    struct commands *commands;
    struct spoken *spoken;
    struct traced *traced;
    struct stage *stage;
    struct allowances *allowances;
    struct wakes wakes;

    parcel_cb *on_parcel; /* relay_watch_parcels(); NULL: nobody watches */
    void *parcel_ctx;
    mail_news_cb *on_mail; /* relay_watch_mail(); NULL: nobody watches */
    void *mail_ctx;
    bool taking; /* relay_mailbox_take() is settling */
};

enum turn_step { /* the work at the end of a turn, in this order */
                 TURN_RESULTS = 1,
                 TURN_PUMP = 2,
                 TURN_ACKS = 4,
                 TURN_ANSWERS = 8,
                 TURN_STATES = 16,
};
/* Schedules @steps for the end of this turn of the loop; 0: only the drain, if there is one.
 * Idempotent. */
void turn_want(struct relay *r, unsigned steps);

/* drain_hold() counts work that must be on disk or answered before the relay may stop;
 * drain_release() counts it off.  A drain ends when the count is 0. */
static inline void drain_hold(struct relay *r)
{
    r->unsafe++;
}
static inline void drain_release(struct relay *r)
{
    if (--r->unsafe == 0 && r->draining)
        turn_want(r, 0);
}

/* Work that waits for an answer, and is freed with the relay if no answer comes. */
struct pending {
    struct list link;                /* relay->pending */
    void (*free)(struct pending *p); /* frees what @p is part of */
};
void pending_add(struct relay *r, struct pending *p, void (*free)(struct pending *p));
void pending_end(struct pending *p); /* the answer came: unlinks and frees it */

/* ---- relay_watch_mail() ---- */

/* Calls on_mail, which must not be NULL: @ev arrived for @i, or (@ev NULL) any mail of @i may have
 * been removed or changed. */
void mail_tell(const struct instance *i, const struct event *ev, bool new_chat);
static inline void mail_changed(const struct relay *r, const struct instance *i)
{
    if (r->on_mail != NULL)
        mail_tell(i, NULL, false);
}

/* ---- mailbox/admin.c: the numbers of relay_tally() ---- */
struct tally_rounds *tally_new(struct relay *r);
void tally_begin(
    struct tally_rounds *t); /* counts once, and in rounds if there are many instances */
void tally_free(struct tally_rounds *t); /* NULL is fine */

/* ---- retries of failed store operations ---- */
#define RETRY_MS 1000

void retry_want(struct instance *i);   /* a write or read of @i failed: retry within RETRY_MS */
void retry_want_acks(struct relay *r); /* a batch of acks failed: retry within RETRY_MS */
