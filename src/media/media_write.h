/* media_write.h - one file being written.
 *
 *      w = media_begin(m, &spec, handlers, ctx)
 *      media_add(w, bytes)  --> a thread writes --> handlers->room(): the next piece
 *      media_end(w)         --> synced, renamed, recorded --> handlers->done(file)
 *      media_abort(&w)          any time before done(): nothing is left of it
 *
 * One piece at a time: after media_add() nothing may be added until room() has run.  So a writer
 * costs one piece of memory, however slow the disk is.
 */
#pragma once
#include "media/media.h"

struct media_write;

struct media_spec {    /* borrowed for the call */
    struct str tenant; /* pays for it, and may read it */
    struct str type, name;
    uint64_t max_bytes; /* 0: MEDIA_MAX_BYTES */
    uint64_t expected;  /* bytes that were announced; 0: unknown */
};

struct media_write_ops { /* neither runs inside a call of ours */
    void (*room)(void *ctx);
    /* The last call.  BH_BUSY: over a quota; BH_MALFORMED: empty or too large; BH_UNAVAILABLE: the
     * disk or the store failed.  @f with BH_OK only. */
    void (*done)(void *ctx, enum bh_err err, const struct media_file *f);
};

/* NULL: over the quota already, too large as announced, or off; @ret_err says which. */
struct media_write *media_begin(struct media *m, const struct media_spec *spec,
                                const struct media_write_ops *ops, void *ctx, enum bh_err *ret_err);
/* A piece, at most 64 KiB, copied.  A failure is told by done(), soon. */
void media_add(struct media_write *w, struct str bytes);
void media_end(struct media_write *w);    /* that was all; also right after media_add() */
void media_abort(struct media_write **w); /* NULL inside is fine; sets it to NULL */
