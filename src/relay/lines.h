/* lines.h - the stream of a socket cut into lines.
 *
 * Whole lines inside one piece are handed on where they lie; only an unfinished one is copied.  A
 * line longer than the limit is thrown away up to its end, costing no more memory than the limit.
 */
#pragma once
#include "base/str.h"

struct lines; /* NULL: nothing unfinished */

/* @whole is false for a line that was too long; its bytes are not there then.  False: stop, the
 * rest of the piece is of no interest. */
typedef bool lines_cb(void *ctx, struct str line, bool whole);

void lines_feed(struct lines **l, struct str bytes, size_t max, lines_cb *cb, void *ctx);
void lines_free(struct lines *l); /* NULL is fine */
