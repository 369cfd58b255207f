/* result.h - the answers of reads, built the same way by every store: one array and one arena per
 * op, so that a row costs no allocation of its own.  For stores only. */
#pragma once
#include "store/store.h"

struct result {             /* one read being answered; on the stack of whoever reads */
    struct arena *arena;    /* becomes the op's memory */
    struct store_row *rows; /* one of these two */
    struct store_record *records;
    size_t n, cap, bytes;
    size_t max_bytes, limit; /* neither is 0 */
};

struct result result_begin(size_t max_bytes, size_t limit); /* 0: the bound, no limit */
/* Is there room for one more of @bytes?  The first always fits. */
bool result_has_room(const struct result *r, size_t bytes);
void result_add_row(struct result *r, const struct store_row *row); /* copies what it points at */
void result_add_record(struct result *r, struct str key, struct str value);
void result_drop(struct result *r); /* the read failed */

/* The smallest key above everything that starts with @prefix, added to @out; false: there is none.
 */
bool scan_prefix_end(struct buf *out, struct str prefix);

/* The op's answer from now on. */
void result_end_fetch(struct result *r, struct store_fetch *f);
void result_end_scan(struct result *r, struct store_scan *s, bool more);

/* A read without an answer: at submit, and before it is tried again. */
void result_clear(struct store_op *op);
void result_free(struct store_op *op); /* any kind of op; twice is fine */
size_t result_bytes(const struct store_op *op);
