/* upkeep.h - periodic cleanup: expired keys and chats, and mail past the retention.
 *
 * Every ten minutes upkeep drops expired deduplication keys, chats past their limit and expired
 * records of sent messages (out/spoken.h).  With a retention set, the same timer settles mail that
 * waited longer, a bounded amount per turn.  A sweep every six hours drops chats without events for
 * longer than the retention. */
#pragma once
#include <stdint.h>

struct relay;

struct upkeep *upkeep_new(struct relay *r); /* first runs ten minutes from now */
void upkeep_free(struct upkeep *u);         /* NULL is fine; the store may be closed */

/* Sets the retention, at start and on a reload; 0: no limit. */
void relay_retain(struct relay *r, int64_t retention_ms);
