/* heart.h - the relay itself: what it was handed, and its parts.
 *
 * Only files of this folder include it.  Everything runs on the loop thread and nothing calls back
 * into a caller: whatever a call causes happens together when the turn ends (turn.h).
 *
 * Each part has a header that says what it does and a struct that only its own file sees; relay.c
 * builds them and takes them down.  Whatever is walked is a list in order of age, never a map, so
 * that a run can be replayed.
 */
#pragma once
#include "base/log.h"
#include "base/map.h"
#include "relay/in/dedup.h"
#include "relay/relay.h"
#include "relay/sleep/wake.h"

struct accepts;
struct acking;
struct acks;
struct activity;
struct chats;
struct participants;
struct deliveries;
struct drain;
struct fetches;
struct gaps;
struct instances;
struct interrupts;
struct json_parser;
struct judge;
struct linkings;
struct lives;
struct pump;
struct requests;
struct retry;
struct sessions;
struct shows;
struct spoken;
struct turn;
struct upkeep;

struct relay {
    struct relay_env env;
    const struct store_ops *store_ops; /* static: good even when the store has been closed */
    struct relay_limits lim;
    struct relay_counters n;
    bool draining; /* written by drain.c */

    /* All owned. */
    struct turn *turn;
    struct retry *retry;
    struct drain *drain;
    struct upkeep *upkeep;
    struct json_parser *json; /* one frame, or one record, at a time */
    struct dedup dedup;
    struct instances *instances;
    struct lives *lives;
    struct sessions *sessions;
    struct accepts *accepts;
    struct deliveries *deliveries;
    struct acks *acks;
    struct activity *activity;
    struct acking *acking;
    struct pump *pump;
    struct fetches *fetches;
    struct gaps *gaps;
    struct chats *chats;
    struct participants *participants;
    struct requests *requests;
    struct judge *judge;
    struct interrupts *interrupts;
    struct linkings *linkings;
    struct shows *shows;
    struct spoken *spoken;
    struct wakes wakes;
};
