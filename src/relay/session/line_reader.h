/* line_reader.h - the stream of a socket cut into lines.
 *
 * Whole lines inside one piece are handed on where they lie; only an unfinished one is copied.  A
 * line longer than the limit is told when it gets so long and thrown away up to its end, costing no
 * more memory than the limit. */
#pragma once
#include "base/str.h"

struct line_reader; /* NULL: nothing unfinished */

/* @whole is false for a line that was too long; its bytes are not there then.  False: stop, the
 * rest of the piece is of no interest. */
typedef bool line_cb(void *ctx, struct str line, bool whole);

void line_reader_feed(struct line_reader **l, struct str bytes, size_t max, line_cb *cb, void *ctx);
size_t line_reader_bytes(const struct line_reader *l); /* memory it holds; NULL is fine */
void line_reader_free(struct line_reader *l);          /* NULL is fine */
