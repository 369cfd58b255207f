/* retain.h - nothing of people is kept longer than `retention`: chats, and mail nobody took.
 *
 * Chats are looked at every six hours (chats.h), mail with every upkeep: deliveries that have
 * waited longer are settled as if they had been purged, some in a turn.  Part of upkeep.c. */
#pragma once
#include <stdint.h>

struct relay;
struct retain;

struct retain *retain_new(struct relay *r);
void retain_free(struct retain *t); /* NULL is fine; the store may be closed */
void retain_set(struct retain *t, int64_t retention_ms);
void retain_tick(struct retain *t); /* every now and then */

/* For whoever has the setting, at the start and when it changes; 0: no limit. */
void relay_retain(struct relay *r, int64_t retention_ms);
