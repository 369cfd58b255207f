/* media_write.h - writes one file to the media folder, piece by piece, on a thread.
 *
 *      w = media_begin(m, &spec, handlers, ctx)
 *      media_add(w, bytes)  --> a thread writes --> handlers->room(): add the next piece
 *      media_end(w)         --> synced, renamed, recorded --> handlers->done(file)
 *      media_abort(&w)          any time before done(): the file is deleted
 *
 * Uploads (http/media_route.c) and media_fetch.c write through it.  After media_begin() and after
 * each media_add() the caller waits for room() before adding more.  So a writer holds one piece in
 * memory, however slow the disk is.
 */
#pragma once
#include "media/media.h"

struct media_spec {    /* borrowed for the call */
    struct str tenant; /* its quota is charged; it may read the file */
    struct str type, name;
    uint64_t max_bytes; /* 0: MEDIA_MAX_BYTES */
    uint64_t expected;  /* announced size in bytes; 0: unknown */
    /* A stranger brings it: bytes are charged as they come, not as announced.  Absent: somebody
     * with a credential, or a person who is linked to the agent. */
    struct str stranger;
    struct str address; /* of the stranger; absent: not known */
};

struct media_write_ops { /* neither runs inside media_begin(), media_add() or media_end() */
    void (*room)(void *ctx);
    /* The last callback; @f is NULL unless BH_OK.  BH_BUSY: over a quota, the disk is full, or the
     * threads are busy; BH_MALFORMED: empty or too large; BH_UNAVAILABLE: disk or store failed. */
    void (*done)(void *ctx, enum bh_err err, const struct media_file *f);
};

/* NULL with @ret_err: BH_BUSY (over a quota), BH_MALFORMED (@expected is too large) or BH_REFUSED
 * (media_env.off). */
struct media_write *media_begin(struct media *m, const struct media_spec *spec,
                                const struct media_write_ops *ops, void *ctx, enum bh_err *ret_err);
/* Copies and writes @bytes.  done() reports a failure, later. */
void media_add(struct media_write *w, struct str bytes);
void media_end(struct media_write *w);    /* no room() needed before */
void media_abort(struct media_write **w); /* NULL inside is fine; sets it to NULL */
