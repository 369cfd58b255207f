/* http_range.c - see http_range.h. */
#include "net/http_range.h"

enum http_range_end http_range_read(struct str range, uint64_t size, uint64_t *ret_start,
                                    uint64_t *ret_n)
{
    struct str first, last;
    uint64_t a, b;
    ptrdiff_t dash;

    if (!str_starts(range, STR("bytes=")))
        return RANGE_WHOLE;
    range = str_trim(str_skip(range, 6));
    dash = str_find(range, '-');
    if (dash < 0)
        return RANGE_WHOLE;
    first = str_make(range.p, (size_t)dash);
    last = str_skip(range, (size_t)dash + 1);
    if (first.n == 0) { /* the last so many */
        if (!str_to_u64(last, &b))
            return RANGE_WHOLE;
        if (b == 0 || size == 0)
            return RANGE_OUTSIDE;
        *ret_n = b < size ? b : size;
        *ret_start = size - *ret_n;
        return RANGE_PART;
    }
    if (!str_to_u64(first, &a) || (last.n > 0 && (!str_to_u64(last, &b) || b < a)))
        return RANGE_WHOLE;
    if (a >= size)
        return RANGE_OUTSIDE;
    *ret_start = a;
    *ret_n = last.n > 0 && b < size - 1 ? b - a + 1 : size - a;
    return RANGE_PART;
}
