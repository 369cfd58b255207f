/* pump.h - what goes down the receiver's socket, and when.
 *
 * Deliveries go in order of their ids, several packed into one WebSocket message, at most `window`
 * messages unacked.  Nothing goes down one socket twice: a session remembers the newest id it was
 * sent, and everything up to there is the business of its acks, or of the next socket.
 *
 * A delivery that was on two sockets when they were lost travels alone, so that one that kills its
 * reader does not take its neighbours along.
 *
 * What no ack will settle has a ping sent behind it: acking.h.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct instance;
struct pump;
struct relay;

#define PUMP_MESSAGE_MAX 1000000u /* the real client refuses messages above 1 MiB */
#define PUMP_SOLO_ATTEMPTS 2

struct pump *pump_new(void);
void pump_free(struct pump *p); /* NULL is fine */

void pump_want(struct instance *i); /* something may be sent: look when the turn ends */
/* A parked delivery is back in its old place: a receiver that has passed it by goes back for it,
 * if it was certainly never sent it. */
void pump_again(struct instance *i, uint64_t id);
void pump_all(struct relay *r); /* at the end of a turn */
