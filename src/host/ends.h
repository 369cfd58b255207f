/* ends.h - how the last actions ended, for `bellhop why --action`: in memory, without what was
 * said.
 */
#pragma once
#include "platform/platform.h"

struct ends;
struct jw;

struct ends *ends_new(size_t max);
void ends_free(struct ends *e); /* NULL is fine */
void ends_note(struct ends *e, const struct host_end *end, int64_t now_ms);
/* Those called @id (by their gateway, or by their number in the outbox; absent or empty: all), the
 * newest first, at most @limit; an object each. */
void ends_write(const struct ends *e, struct str id, size_t limit, struct jw *w);
