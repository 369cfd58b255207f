/* frames.h - the byte stream of a gateway's socket: lines, frames, and what the frames mean.
 *
 *      bytes --line_reader--> lines --frame_read()--> frames --one handler per type--> relay
 *
 * session_data() (relay.h) is the way in.  This header has what sessions keep for it: an unfinished
 * line, and the personas the socket said hello for. */
#pragma once
#include "base/str.h"

struct line_reader; /* NULL: nothing unfinished */
struct session;

/* @whole is false for a line above the limit; its bytes are dropped.  Returns false to skip the
 * rest of the piece. */
typedef bool line_cb(void *ctx, struct str line, bool whole);

/* Whole lines inside @bytes are handed on where they lie; only an unfinished one is copied.  A line
 * longer than @max is told once and costs no more memory than @max. */
void line_reader_feed(struct line_reader **l, struct str bytes, size_t max, line_cb *cb, void *ctx);
size_t line_reader_bytes(const struct line_reader *l); /* memory it holds; NULL is fine */
void line_reader_free(struct line_reader *l);          /* NULL is fine */

/* ---- personas: the (platform, bot) pairs a socket may speak as ---- */

#define PERSONA_MAX 16 /* per socket; further hellos are answered but not remembered */

/* The first pair is the default. */
void persona_add(struct session *s, struct str platform, struct str bot);
/* True when the socket may speak as this pair.  An empty @bot matches any, which @ret_bot gets. */
bool persona_find(const struct session *s, struct str platform, struct str bot,
                  struct str *ret_bot);
bool persona_default(const struct session *s, struct str *ret_platform, struct str *ret_bot);
