/* sleep.h - an instance falls asleep and wakes up again: one state, and its one writer.
 *
 *      AWAKE --going_idle on its receiver--> ASLEEP --a hello on any socket--> AWAKE
 *
 * Asleep, deliveries are only kept, and the wake URL is poked for them.  It is durable: part of the
 * instance's record.  The gateway is told going_idle_ack when that record is on disk and so is all
 * that was accepted before; then it may be shut down, and nothing it was sent is lost.
 *
 * A socket is asleep too once it said going_idle (SESSION_ASLEEP): nothing is sent on it any more.
 * The instance may be awake all the same, when another socket receives.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/bucket.h"

struct instance;
struct session;

struct sleep {                 /* part of an instance */
    struct bucket_level often; /* how often it may still fall asleep */
    uint64_t mark;             /* the newest delivery when it last fell asleep */
    int64_t since_ms;          /* wall; when it fell asleep last; 0: never */
    uint32_t owed;             /* sockets that wait for a going_idle_ack */
    bool asleep;               /* written by sleep.c only */
};

void sleep_load(struct instance *i, bool asleep, int64_t since_ms); /* from the record */

void sleep_begin(struct session *s);  /* it said going_idle */
void sleep_end(struct session *s);    /* it said hello, and receives from now on */
void sleep_leave(struct session *s);  /* it closes: nobody is owed an ack any more */
void sleep_check(struct instance *i); /* tell whoever may go to sleep by now */
