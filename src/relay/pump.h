/* pump.h - what goes down the receiver's socket, and when.
 *
 * Deliveries go in order of their ids, several packed into one WebSocket message, at most `window`
 * messages unacked.  Nothing goes down one socket twice: a session remembers the newest id it was
 * sent, and everything up to there is the business of its acks, or of the next socket.
 *
 * A delivery that was on two sockets when they were lost travels alone, so that one that kills its
 * reader does not take its neighbours along.
 *
 * Passthroughs, and everything for gateways that never ack, are settled by a ping sent behind them:
 * the pong says the bytes were read, which is all we will ever know.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct instance;
struct relay;
struct session;

#define PUMP_MESSAGE_MAX 1000000u /* the real client refuses messages above 1 MiB */
#define PUMP_SOLO_ATTEMPTS 2

void pump_want(struct instance *i); /* something may be sent: look when the turn ends */
void pump_all(struct relay *r);     /* at the end of a turn */
