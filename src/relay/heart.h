/* heart.h - the relay itself: what it was handed, its parts, and the end of a turn.
 *
 * Only files of this folder include it.  Everything runs on the loop thread.  No part calls back
 * into its caller: a call notes what it causes, and the turn's end does it.
 *
 *      turn ends:  results -> pump -> acks to the store -> answers to platforms -> state changes
 *
 * Each part has a header that says what the part does, and a struct that only its own file sees;
 * relay.c builds the parts and takes them down.  Whatever is walked is a list in order of age,
 * never a map, so that a run can be replayed.
 */
#pragma once
#include "base/log.h"
#include "base/map.h"
#include "relay/in/dedup.h"
#include "relay/relay.h"
#include "relay/sleep/sleep.h"

struct accepts;
struct acking;
struct acks;
struct activity;
struct chats;
struct participants;
struct deliveries;
struct edits;
struct fetches;
struct instances;
struct interrupts;
struct json_parser;
struct judge;
struct linkings;
struct lives;
struct pump;
struct requests;
struct sessions;
struct shows;
struct spoken;
struct stage;
struct upkeep;

struct relay {
    struct relay_env env;
    const struct store_ops *store_ops; /* static: good even when the store has been closed */
    struct relay_limits lim;
    struct relay_counters n;

    struct timer turn_end; /* armed while something waits for the end of this turn */
    struct timer retry;    /* armed while the store has refused something */
    struct list troubled;  /* instances of which it refused something, by retry_link */
    struct timer farewell; /* armed while a drain waits for acks and results */
    bool draining;         /* written by relay_drain() and relay_stop() only */
    bool said_farewell;    /* the sockets have been closed */
    defer_cb *drained;     /* told when all is on disk; NULL: nobody drains, or it is over */
    void *drained_ctx;

    /* All owned. */
    struct upkeep *upkeep;
    struct json_parser *json; /* one frame, or one record, at a time */
    struct dedup dedup;
    struct instances *instances;
    struct lives *lives;
    struct sessions *sessions;
    struct accepts *accepts;
    struct deliveries *deliveries;
    struct edits *edits;
    struct acks *acks;
    struct activity *activity;
    struct acking *acking;
    struct pump *pump;
    struct fetches *fetches;
    struct chats *chats;
    struct participants *participants;
    struct requests *requests;
    struct judge *judge;
    struct interrupts *interrupts;
    struct linkings *linkings;
    struct shows *shows;
    struct spoken *spoken;
    struct stage *stage;
    struct wakes wakes;
};

/* Do the work of the turn's end when the loop's current turn ends.  Often is fine. */
void turn_want(struct relay *r);

/* ---- retries of what the store refused ---- */
#define RETRY_MS 1000

struct instance;

void retry_want(struct instance *i);   /* a write or read of @i failed: try again in RETRY_MS */
void retry_want_acks(struct relay *r); /* a batch of acks failed */
