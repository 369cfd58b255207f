/* split.h - splits a long text into parts that fit into one message of a platform each.
 *
 *      struct split s = SPLIT_INIT;
 *      split_text(&s, text, 2000, SPLIT_CHARS);
 *      for (size_t i = 0; i < s.n; i++) send(split_part(&s, i));
 *      split_done(&s);
 *
 * Adapters call it.  No part is longer than the limit, counted in code points or UTF-16 units, as
 * the platform counts.  A cut is made at an empty line, else at the end of a line, else at a space,
 * else between two code points.  A ``` or ~~~ fence that is cut is closed at the end of the part
 * and opened again, with its language, at the start of the next.  White space at a cut outside of
 * fences is dropped; the rest of the text is in the parts, in order.
 */
#pragma once
#include "base/buf.h"

enum split_unit { SPLIT_CHARS, SPLIT_UTF16 };

#define SPLIT_MIN_LIMIT 64 /* smaller limits count as this: the lines of a fence have to fit */

struct split {
    struct buf bytes; /* owned; the parts, one after the other */
    size_t *ends;     /* owned; where part i ends in @bytes */
    size_t n;         /* parts; a text that is empty or all white space gives none */
};
#define SPLIT_INIT ((struct split){0})

void split_text(struct split *s, struct str text, size_t limit, enum split_unit unit);
struct split_limits {
    size_t max; /* of a part, in @unit */
    enum split_unit unit;
    size_t max_bytes; /* of a part, besides @max; 0: no such limit */
};
void split_within(struct split *s, struct str text, const struct split_limits *limits);
struct str split_part(const struct split *s, size_t i); /* borrowed from @s */
void split_done(struct split *s);                       /* usable again afterwards */

/* How long @text is in @unit; bytes that are not UTF-8 count one each. */
size_t split_length(struct str text, enum split_unit unit);
