/* sent_ids.h - which delivery a bufferId means.
 *
 * Acks name deliveries by their bufferId, mailboxes by the number of the row.  This table of one
 * instance knows the pairs that went down any of its sockets and are not settled: 16 bytes each,
 * room for twice as many, nothing for whoever has nothing unsettled.  An id that it does not know
 * was never sent since we started, or is settled. */
#pragma once
#include <stdint.h>

struct mailbox;

struct sent_id {
    uint64_t tag; /* keyed hash of the bufferId; 0: free */
    uint64_t id;
};
struct sent_ids {       /* zeroed: empty */
    struct sent_id *at; /* owned; cap is a power of two */
    uint32_t cap, n;
};

/* Adding a pair twice is fine.  @mb tells which ids are unsettled when the table must grow. */
void sent_ids_add(struct sent_ids *t, struct mailbox *mb, uint64_t tag, uint64_t id);
uint64_t sent_ids_take(struct sent_ids *t, uint64_t tag); /* and forgets it; 0: unknown */
void sent_ids_done(struct sent_ids *t);
