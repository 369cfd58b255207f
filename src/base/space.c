/* space.c - the table behind \s.  (space.h has the contract.) */
#include "base/space.h"

size_t space_bytes(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;

    if (s.n == 0)
        return 0;
    if (p[0] < 0x80)
        return p[0] == ' ' || (p[0] >= '\t' && p[0] <= '\r');
    if (p[0] == 0xc2)
        return s.n >= 2 && p[1] == 0xa0 ? 2 : 0;
    if (s.n < 3)
        return 0;
    if (p[0] == 0xe1)
        return p[1] == 0x9a && p[2] == 0x80 ? 3 : 0;
    if (p[0] == 0xe2 && p[1] == 0x80)
        return p[2] <= 0x8a || p[2] == 0xa8 || p[2] == 0xa9 || p[2] == 0xaf ? 3 : 0;
    if (p[0] == 0xe2)
        return p[1] == 0x81 && p[2] == 0x9f ? 3 : 0;
    if (p[0] == 0xe3)
        return p[1] == 0x80 && p[2] == 0x80 ? 3 : 0;
    return p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf ? 3 : 0;
}

size_t eol_bytes(struct str s)
{
    if (s.n == 0)
        return 0;
    if (s.p[0] == '\n' || s.p[0] == '\r')
        return 1;
    return s.n >= 3 && (memcmp(s.p, "\xe2\x80\xa8", 3) == 0 || memcmp(s.p, "\xe2\x80\xa9", 3) == 0)
               ? 3
               : 0;
}

size_t space_run(struct str s)
{
    size_t n = 0;

    for (size_t step; (step = space_bytes(str_skip(s, n))) > 0;)
        n += step;
    return n;
}

/* Bytes of the white space character that ends @s. */
static size_t last_bytes(struct str s)
{
    for (size_t n = 1; n <= 3 && n <= s.n; n++)
        if (space_bytes(str_skip(s, s.n - n)) == n)
            return n;
    return 0;
}

struct str space_trim_end(struct str s)
{
    for (size_t step; (step = last_bytes(s)) > 0;)
        s.n -= step;
    return s;
}

struct str space_trim(struct str s)
{
    return space_trim_end(str_skip(s, space_run(s)));
}
