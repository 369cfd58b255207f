/* sweep.h - how much history is kept, and for how long; for the files of this folder.
 *
 * What is older than `retention` goes, and of what is more than limits.history_bytes the oldest. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct web;

void web_sweep_start(struct web *w); /* while opening, when there is history */
void web_sweep_stop(struct web *w);  /* harmless when it was not started */

/* May so many bytes more be kept?  They count as kept then.  False: history is off, nobody is
 * routed to this bot, or there is no room. */
bool web_may_keep(struct web *w, size_t bytes);
bool web_is_routed(struct web *w);               /* somebody gets what is said to this bot */
void web_kept_less(struct web *w, size_t bytes); /* somebody deleted them */
