/* http_range.h - the Range header, as a pure function.  Private to src/net/. */
#pragma once
#include "base/str.h"

enum http_range_end { RANGE_WHOLE, RANGE_PART, RANGE_OUTSIDE };

/* Which bytes of @size are asked for: "bytes=0-99", "bytes=100-" or "bytes=-50".  Anything else,
 * several ranges included, is RANGE_WHOLE, as RFC 9110 allows.  RANGE_OUTSIDE: answer 416. */
enum http_range_end http_range_read(struct str range, uint64_t size, uint64_t *ret_start,
                                    uint64_t *ret_n);
