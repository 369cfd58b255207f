/* resp.h - parses replies of a Redis server (RESP2) from a stream.  A pure function of bytes.
 *
 * It reads what a client needs: words, errors, numbers, bulk strings, and arrays of these.  Lengths
 * are checked against RESP_MAX_BULK and RESP_MAX_ITEMS first.  Nested arrays are refused. */
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

/* The length of the reply at the front of @in; 0: incomplete; -1: not RESP2, or over a limit. */
ptrdiff_t resp_read(struct str in, struct resp *ret);
