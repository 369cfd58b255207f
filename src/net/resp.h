/* resp.h - what a Redis server says (RESP2), cut out of a stream.  A pure function of bytes.
 *
 * Only what a client needs: words, errors, numbers, bulk strings, and arrays of these.  Lengths are
 * held against RESP_MAX_BULK and RESP_MAX_ITEMS before anything is kept, and nothing nests. */
#pragma once
#include "base/str.h"

enum { RESP_MAX_BULK = 16 << 20, RESP_MAX_ITEMS = 8 };

enum resp_kind { RESP_WORD, RESP_ERROR, RESP_NUMBER, RESP_BULK, RESP_ARRAY };
struct resp { /* views into the bytes that were read */
    enum resp_kind kind;
    struct str text; /* of a word, an error, a number (its digits) or a bulk; absent: null */
    struct str items[RESP_MAX_ITEMS]; /* of an array: each one's text */
    size_t n_items;
};

/* Bytes that the reply at the front of @in takes; 0: it is not all there yet; -1: this is no
 * RESP2, or more than we take. */
ptrdiff_t resp_read(struct str in, struct resp *ret);
