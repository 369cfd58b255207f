/* track.h - where each delivery of the last day is: dispatch_delivery().
 *
 *      QUEUED --on a socket--> DELIVERED --ack--> ACKNOWLEDGED --reply--> ANSWERED
 *         '--parked or removed, with a reason--> REFUSED <--'
 *
 * Nothing is written for a delivery that the agent takes at once: its receipt has the times
 * (struct delivered_facts).  A delivery that waits is remembered by its row in the mailbox, and its
 * end is one more receipt.  After a restart the sweep over the receipts remembers those that still
 * wait.  At most TRACKS_MAX are remembered; of others the end is known without its time.
 *
 * deliver.c begins deliveries; the relay tells what becomes of them (relay/in/inside.h). */
#pragma once
#include "dispatch/receipts.h"

#define TRACKS_MAX 200000

struct tracks *tracks_new(struct dispatch *d); /* watches the parcels of the relay */
void tracks_free(struct tracks *p);            /* NULL is fine */

void track_begin(struct tracks *p, uint64_t row, int64_t queued_ms);
/* Fills in the times of a delivery whose receipt is written now.  @waits: nobody has taken it.
 * True: it waits, and its end is written when it comes; else the delivery is forgotten. */
bool track_note(struct tracks *p, bool waits, struct delivered_facts *facts);
void track_drop(struct tracks *p, uint64_t row);                          /* its call failed */
void track_recall(struct tracks *p, const struct delivered_facts *facts); /* after a restart */

/* The agent replied to the delivery; an unknown @dispatch_id does nothing. */
void track_answered(struct dispatch *d, struct str tenant, struct str agent,
                    struct str dispatch_id);
