/* upkeep.h - the work of every ten minutes, and the retention of what people wrote.
 *
 * Every ten minutes old deduplication keys, chats past their limit and old edits' rights are
 * dropped.  With a retention set, mail that waited longer is settled as if it had been purged, some
 * in a turn; chats that were quiet for longer are dropped every six hours. */
#pragma once
#include <stdint.h>

struct relay;
struct upkeep;

struct upkeep *upkeep_new(struct relay *r); /* the first time ten minutes from now */
void upkeep_free(struct upkeep *u);         /* NULL is fine; the store may be closed */

/* Called at the start and when the setting changes; 0: no limit. */
void relay_retain(struct relay *r, int64_t retention_ms);
