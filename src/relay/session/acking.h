/* acking.h - does this gateway acknowledge what it is sent?  The one place that knows.
 *
 *      nobody knows yet --an ack--> ACKS, remembered as long as bellhop runs
 *            |                       ^
 *            | answers people,       | an ack
 *            v and never acks        |
 *      NEVER ACKS, remembered on the gateway's record
 *
 * What a gateway of the last kind was sent is settled when it has read it, which the pong to a
 * later ping tells: that is all we will ever know.  Passthroughs are settled that way for
 * everybody, because released gateways never ack them, and so is everything with live_acks off.
 * Such a delivery is soft.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct acking;
struct action;
struct relay;
struct session;
struct slot;

struct acking_signs {     /* what one socket has shown; part of its session */
    uint32_t answer_hash; /* of the message it answered last */
    uint8_t answers;      /* distinct deliveries it answered without ever acking */
    bool acked;           /* it has acked something */
    bool never;           /* its gateway never acks */
    bool spoke;           /* it sent something after a delivery */
};

struct acking *acking_new(void);
void acking_free(struct acking *t); /* NULL is fine */

void acking_begin(struct session *s); /* a new socket: what its gateway's record says */

/* True when only a pong, or a later ack, settles @slot on this socket. */
bool acking_is_soft(const struct session *s, const struct slot *slot);
/* A message with something soft in it went out; @last is its newest id. */
void acking_sent_soft(struct session *s, uint64_t last);

void acking_on_ack(struct session *s, uint64_t id); /* settles what is soft before @id */
void acking_on_pong(struct session *s, uint32_t number);
void acking_on_action(struct session *s,
                      const struct action *a); /* does it answer without acking? */
/* It has acked nothing for ack_patience.  True: it never does, so nobody waits for it any more. */
bool acking_explain_silence(struct session *s);
