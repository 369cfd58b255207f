/* frames.h - reads the byte stream of a gateway's socket: lines, then frames, then their effects.
 *
 *      bytes --line_reader--> lines --frame_read()--> frames --one handler per type--> relay
 *
 * The entry point is session_data() (relay.h).  This header declares the state a session keeps for
 * it: an unfinished line, and the personas that the socket announced in its hellos. */
#pragma once
#include "base/str.h"

struct line_reader; /* NULL: nothing unfinished */
struct session;

/* @whole is false for a line above the limit; its bytes are dropped.  Returns false to skip the
 * rest of the piece. */
typedef bool line_cb(void *ctx, struct str line, bool whole);

/* Calls @cb for each line.  Whole lines in @bytes are not copied; only an unfinished line is.  A
 * line longer than @max is reported once and never buffers more than @max bytes. */
void line_reader_feed(struct line_reader **l, struct str bytes, size_t max, line_cb *cb, void *ctx);
size_t line_reader_bytes(const struct line_reader *l); /* memory it holds; NULL is fine */
void line_reader_free(struct line_reader *l);          /* NULL is fine */

/* ---- personas: the (platform, bot) pairs a socket may speak as ---- */

#define PERSONA_MAX 16 /* per socket; further hellos are answered but not remembered */

/* The first pair is the default. */
void persona_add(struct session *s, struct str platform, struct str bot);
/* True when the socket announced this pair.  An empty @bot matches any; @ret_bot receives it. */
bool persona_find(const struct session *s, struct str platform, struct str bot,
                  struct str *ret_bot);
bool persona_default(const struct session *s, struct str *ret_platform, struct str *ret_bot);
