/* acks.h - settled deliveries told to the store: collected during a turn, written as one operation,
 * and tried again until the store has them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct acks;
struct relay;

struct acks *acks_new(void);
void acks_free(struct acks *t); /* NULL is fine; the store holds none of them any more */

struct slot_ring;

void acks_add(struct relay *r, uint64_t id);
/* Everything in @all, which is owned from now on: some in a turn, as fast as the store deletes. */
void acks_add_ring(struct relay *r, struct slot_ring all);
void acks_submit(struct relay *r); /* at the end of a turn */
void acks_retry(struct relay *r);  /* those the store refused */
bool acks_pending(const struct relay *r);
