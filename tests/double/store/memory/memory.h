/* memory.h - a store that forgets everything when it is closed: for tests, and as the shortest
 * correct example of what store.h asks for.
 *
 * Ops take effect, and their done() runs, at the clock's next turn, in order of submission; until
 * then an append can be shrunk and a read called off.  Nothing ever fails but conflicts and fences,
 * whose time is the clock's wall time. */
#pragma once
#include "store/store.h"

struct clock;

/* @clock is borrowed and outlives the store.  The boot number is 1. */
struct store *store_memory_new(struct clock *clock);
struct store *store_memory_new_shared(struct clock *clock); /* has leases */
