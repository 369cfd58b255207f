/* buf.h - a growing byte buffer that owns its memory.
 *
 * An append beyond the limit fails, and all later appends do nothing.  So one check of buf_failed()
 * at the end covers the whole message.
 *
 *      BUF_LOCAL out = BUF_INIT; // buf_done() runs when its block ends
 *      buf_printf(&out, "id=%" PRIu64, id);
 */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct buf {
    char *p;           /* owned; NUL-terminated only by buf_z() and buf_take() */
    size_t n;          /* bytes in use */
    size_t cap;        /* bytes allocated */
    size_t limit : 63; /* 0: BUF_LIMIT */
    size_t failed : 1;
};
#define BUF_INIT ((struct buf){0})
#define BUF_LIMIT ((size_t)256 << 20)

void buf_done(struct buf *b); /* frees; the buf is usable again, empty */
void buf_wipe(struct buf *b); /* zeroes the bytes, then buf_done() */
/* A struct buf of a block: buf_done(), or for secrets buf_wipe(), runs when the block ends. */
#define BUF_LOCAL __attribute__((cleanup(buf_done))) struct buf
#define BUF_SECRET __attribute__((cleanup(buf_wipe))) struct buf

void buf_add(struct buf *b, const void *p, size_t n);
void buf_add_str(struct buf *b, struct str s);
void buf_add_z(struct buf *b, const char *z);
void buf_add_u64(struct buf *b, uint64_t v); /* decimal */
void buf_add_i64(struct buf *b, int64_t v);
void buf_printf(struct buf *b, const char *fmt, ...) BH_PRINTF(2, 3);
/* Appends untrusted text for display.  Control characters and invalid UTF-8 become \xNN, and
 * characters that reverse or hide text (U+202E, ...) become \uNNNN, so the text can neither control
 * a terminal nor start a new line nor be read as another text. */
void buf_add_plain(struct buf *b, struct str s);
void buf_consume(struct buf *b, size_t n); /* drop n bytes from the front */
const char *buf_z(struct buf *b);          /* as a C string; valid until the next call */
char *buf_take(struct buf *b);             /* NUL-terminated heap string; the buf is empty after */

/* Returns @n writable bytes at the end, not counted in buf.n yet; NULL: failed.  One more byte is
 * always allocated, for the NUL of buf_z(). */
char *buf_grow(struct buf *b, size_t n); /* the slow half of buf_room() */
static inline char *buf_room(struct buf *b, size_t n)
{
    return !b->failed && b->cap - b->n > n ? b->p + b->n : buf_grow(b, n);
}
static inline void buf_add_c(struct buf *b, char c)
{
    char *to = buf_room(b, 1);

    if (to != NULL) {
        *to = c;
        b->n++;
    }
}

static inline bool buf_failed(const struct buf *b)
{
    return b->failed;
}
static inline void buf_reset(struct buf *b) /* keeps the memory */
{
    b->n = 0;
    b->failed = false;
}
static inline struct str buf_str(const struct buf *b)
{
    return (struct str){b->p != NULL ? b->p : "", b->n};
}
