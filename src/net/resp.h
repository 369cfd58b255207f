/* resp.h - parses replies of a Redis server (RESP2) from a stream.  A pure function of bytes.
 *
 * It reads what a client needs: words, errors, numbers, bulk strings, and arrays of these.  An
 * array inside an array is handed out as its bytes, for another resp_read().  Lengths are
 * checked against RESP_MAX_BULK, RESP_MAX_ITEMS and RESP_MAX_REPLY first. */
#pragma once
#include "base/str.h"

enum {
    RESP_MAX_BULK = 16 << 20,
    RESP_MAX_ITEMS = 32, /* of one array */
    RESP_MAX_DEPTH = 5,  /* arrays in arrays */
    RESP_MAX_REPLY = 64 << 20,
};

enum resp_kind { RESP_WORD, RESP_ERROR, RESP_NUMBER, RESP_BULK, RESP_ARRAY };
struct resp { /* views into the bytes that were read */
    enum resp_kind kind;
    struct str text; /* of a word, an error, a number (its digits) or a bulk; absent: null */
    struct str items[RESP_MAX_ITEMS]; /* of an array: each one's text; an array's bytes */
    size_t n_items;
};

/* A null array is an array without items.  The length of the reply at the front of @in; 0:
 * incomplete; -1: not RESP2, or over a limit. */
ptrdiff_t resp_read(struct str in, struct resp *ret);
