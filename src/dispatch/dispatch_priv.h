/* dispatch_priv.h - the dispatch itself: what it was handed, and its parts. */
#pragma once
#include "base/list.h"
#include "base/rand.h"
#include "dispatch/agent.h"
#include "dispatch/dispatch.h"
#include "relay/relay.h"

struct asked;
struct delivered;
struct receipt_room;
struct record_reader;
struct replies;
struct schedule;
struct work_pool;

struct dispatch {
    struct dispatch_env env;
    struct dispatch_counters n;
    struct agents *agents; /* owned */
    struct list calls;     /* struct dispatch_call, owned */
    struct list ending;    /* those that are answered when the turn ends */
    struct map claims;     /* calls by what nobody else may do meanwhile: call.h */
    struct timer endings;
    struct timer tidy;                 /* every ten minutes */
    struct delivered *delivered;       /* owned */
    struct replies *replies;           /* owned */
    struct receipt_room *receipt_room; /* owned */
    struct schedule *schedule;         /* owned */
    struct asked *asked;               /* owned */
    struct work_pool *files;           /* owned; threads that write files */
    struct json_parser *json;          /* owned; one document at a time */
    struct record_reader *records;     /* owned; one record at a time */
    uint64_t next_number;              /* grows for ever: the store's boot, then a count */
};

timer_cb calls_on_timer;
bool agent_rings(const struct agent_config *c); /* wake() is more than deliver() */

/* A number no other thing of this database has: names for what came without one. */
uint64_t dispatch_number(struct dispatch *d);

extern const struct record_form receipt_form, delivered_form, reply_form, wakeup_form;
