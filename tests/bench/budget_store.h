/* budget_store.h - a store on the loop's own thread that costs next to nothing, so that what is
 * counted is the rest of bellhop.
 *
 * Rows lie in a mapping beside the heap, records are forgotten, reads find nothing but rows.  Ops
 * are answered in their order when budget_store_turn() is called: all of them once one of them is
 * urgent, or when @all says so, as a real store does when its linger is over. */
#pragma once
#include "store/store.h"

struct store *budget_store_new(void);
void budget_store_turn(struct store *st, bool all);
