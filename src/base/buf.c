/* buf.c - design.  (buf.h has the contract.)
 *
 * One byte beyond the contents is always allocated, so buf_z() and buf_take() never grow and thus
 * never fail.  Growth doubles, up to the limit. */
#include "base/buf.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"

#define FIRST_BYTES 128
#define TAKE_SLACK 32

char *buf_grow(struct buf *b, size_t n)
{
    size_t limit = b->limit != 0 ? b->limit : BUF_LIMIT;

    if (b->failed || b->n > limit || n > limit - b->n) {
        b->failed = true;
        return NULL;
    }
    size_t cap = b->cap != 0 ? b->cap : FIRST_BYTES;
    while (cap <= b->n + n)
        cap *= 2;
    if (cap > limit + 1)
        cap = limit + 1;
    if (cap > b->cap) {
        b->p = xrealloc(b->p, cap);
        b->cap = cap;
    }
    return b->p + b->n;
}

void buf_done(struct buf *b)
{
    free(b->p);
    *b = (struct buf){.limit = b->limit};
}

void buf_wipe(struct buf *b)
{
    if (b->p != NULL)
        explicit_bzero(b->p, b->cap);
    buf_done(b);
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (n == 0)
        return;
    char *to = buf_room(b, n);
    if (to == NULL)
        return;
    memcpy(to, p, n);
    b->n += n;
}

void buf_add_str(struct buf *b, struct str s)
{
    buf_add(b, s.p, s.n);
}

void buf_add_z(struct buf *b, const char *z)
{
    if (z != NULL)
        buf_add(b, z, strlen(z));
}

void buf_add_u64(struct buf *b, uint64_t v)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930"
                                "31323334353637383940414243444546474849505152535455565758596061"
                                "62636465666768697071727374757677787980818283848586878889909192"
                                "93949596979899";
    char digits[20];
    size_t at = sizeof digits;

    for (; v >= 10; v /= 100) { /* two at a time halves the divisions */
        const char *two = pairs + v % 100 * 2;
        digits[--at] = two[1];
        digits[--at] = two[0];
    }
    if (v > 0 || at == sizeof digits)
        digits[--at] = (char)('0' + v);
    buf_add(b, digits + at, sizeof digits - at);
}

void buf_add_i64(struct buf *b, int64_t v)
{
    if (v < 0)
        buf_add_c(b, '-');
    buf_add_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    assert(n >= 0);
    char *to = buf_room(b, (size_t)n);
    if (to == NULL)
        return;
    va_start(args, fmt);
    vsnprintf(to, (size_t)n + 1, fmt, args); /* the spare byte takes the NUL */
    va_end(args);
    b->n += (size_t)n;
}

/* Characters that show nothing and change how a line is read: U+061C, U+200B to U+200F, U+2028
 * to U+202E, U+2060 to U+206F, U+FEFF; but not U+200D, which joins emoji.  Returns the code
 * point; 0: @s begins with another one. */
static unsigned hidden_at(struct str s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s.p;
    unsigned v = n == 2 ? (unsigned)(p[0] & 0x1f) << 6 | (p[1] & 0x3f)
                 : n == 3
                     ? (unsigned)(p[0] & 0x0f) << 12 | (unsigned)(p[1] & 0x3f) << 6 | (p[2] & 0x3f)
                     : 0;

    return v == 0x61c || (v >= 0x200b && v <= 0x200f && v != 0x200d) ||
                   (v >= 0x2028 && v <= 0x202e) || (v >= 0x2060 && v <= 0x206f) || v == 0xfeff
               ? v
               : 0;
}

void buf_add_plain(struct buf *b, struct str s)
{
    while (s.n > 0) {
        unsigned char c = (unsigned char)*s.p;
        size_t n = utf8_seq_bytes(s);
        unsigned hidden = hidden_at(s, n);
        /* 0xc2 0x80 to 0xc2 0x9f are control characters too, to some terminals */
        bool is_control = c < 0x20 || c == 0x7f || (n == 2 && c == 0xc2 && (s.p[1] & 0x60) == 0);

        if (hidden != 0)
            buf_printf(b, "\\u%04x", hidden);
        else if (n > 0 && !is_control)
            buf_add(b, s.p, n);
        else
            for (size_t i = 0; i < (n > 0 ? n : 1); i++)
                buf_printf(b, "\\x%02x", (unsigned char)s.p[i]);
        s = str_skip(s, n > 0 ? n : 1);
    }
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->n);
    b->n -= n;
    if (b->n > 0 && n > 0)
        memmove(b->p, b->p + n, b->n);
}

const char *buf_z(struct buf *b)
{
    if (b->p == NULL)
        return "";
    b->p[b->n] = '\0';
    return b->p;
}

char *buf_take(struct buf *b)
{
    char *z = b->p != NULL ? b->p : xstrdup("");

    z[b->n] = '\0';
    if (b->cap > b->n + TAKE_SLACK)
        z = xrealloc(z, b->n + 1); /* it may be kept for long */
    *b = (struct buf){.limit = b->limit};
    return z;
}
