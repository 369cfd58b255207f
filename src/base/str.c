/* str.c - text functions, numbers with units, and strict UTF-8.  (str.h has the contract.) */
#include "base/str.h"
#include <endian.h>
#include "base/mem.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static unsigned char fold(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static inline bool eight_eq_ci(const char *a, const char *b)
{
    const uint64_t ones = 0x0101010101010101u, tops = ones << 7;
    uint64_t x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    uint64_t diff = x ^ y, low = (x | ones * 0x20) & ~tops;
    /* The top bit of each byte that is a letter. */
    uint64_t letters = (low + ones * (0x80 - 'a')) & ~(low + ones * (0x7f - 'z')) & ~x & tops;
    return (diff & ~(ones * 0x20)) == 0 && (diff << 2 & ~letters) == 0;
}

bool str_eq_ci(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    if (a.n >= 8) {
        for (size_t i = 0; i + 8 < a.n; i += 8)
            if (!eight_eq_ci(a.p + i, b.p + i))
                return false;
        return eight_eq_ci(a.p + a.n - 8, b.p + a.n - 8);
    }
    for (size_t i = 0; i < a.n; i++)
        if (a.p[i] != b.p[i] && fold(a.p[i]) != fold(b.p[i])) /* most bytes need no folding */
            return false;
    return true;
}

int str_cmp(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int diff = n > 0 ? memcmp(a.p, b.p, n) : 0;

    return diff != 0 ? diff : (a.n > b.n) - (a.n < b.n);
}

bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && str_eq(str_make(s.p, prefix.n), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && str_eq(str_skip(s, s.n - suffix.n), suffix);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct str str_trim(struct str s)
{
    while (s.n > 0 && is_space(s.p[0]))
        s = str_skip(s, 1);
    while (s.n > 0 && is_space(s.p[s.n - 1]))
        s.n--;
    return s;
}

struct str str_skip(struct str s, size_t n)
{
    if (n > s.n)
        n = s.n;
    return n > 0 ? str_make(s.p + n, s.n - n) : s;
}

ptrdiff_t str_find(struct str s, char c)
{
    const char *at = s.n > 0 ? memchr(s.p, c, s.n) : NULL;

    return at != NULL ? at - s.p : -1;
}

bool str_contains(struct str s, struct str needle)
{
    return needle.n == 0 || (s.n > 0 && memmem(s.p, s.n, needle.p, needle.n) != NULL);
}

bool str_split(struct str *rest, char sep, struct str *ret_part)
{
    if (rest->p == NULL)
        return false;
    ptrdiff_t at = str_find(*rest, sep);
    if (at < 0) {
        *ret_part = *rest;
        *rest = STR_NULL;
    } else {
        *ret_part = str_make(rest->p, (size_t)at);
        *rest = str_skip(*rest, (size_t)at + 1);
    }
    return true;
}

bool str_has_only(struct str s, const char *more)
{
    static const bool plain[256] = {['0' ... '9'] = true,
                                    ['A' ... 'Z'] = true,
                                    ['a' ... 'z'] = true};

    for (size_t i = 0; i < s.n; i++)
        if (!plain[(unsigned char)s.p[i]] && (s.p[i] == '\0' || strchr(more, s.p[i]) == NULL))
            return false;
    return true;
}

char *str_dup_opt(struct str s)
{
    return s.n > 0 ? str_dup(s) : NULL;
}

char *str_dup(struct str s)
{
    char *copy = xmalloc(s.n + 1);

    if (s.n > 0)
        memcpy(copy, s.p, s.n); /* and not strndup: a NUL inside is a byte like any other */
    copy[s.n] = '\0';
    return copy;
}

struct str str_pack(char **at, struct str s)
{
    struct str copy = str_make(*at, s.n);

    if (s.p == NULL)
        return s;
    memcpy(*at, s.p, s.n);
    *at += s.n;
    return copy;
}

bool str_to_u64(struct str s, uint64_t *ret_v)
{
    uint64_t v = 0;

    if (s.n == 0)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (unsigned)(s.p[i] - '0'), &v))
            return false;
    }
    *ret_v = v;
    return true;
}

bool str_to_i64(struct str s, int64_t *ret_v)
{
    bool minus = s.n > 0 && s.p[0] == '-';
    uint64_t v;

    if (!str_to_u64(str_skip(s, minus), &v) || v > (uint64_t)INT64_MAX + minus)
        return false;
    *ret_v = (int64_t)(minus ? 0 - v : v);
    return true;
}

struct unit {
    struct str name;
    uint64_t factor;
};

/* Digits, then one of the units (the bare number is the unit with the empty name). */
static bool with_unit(struct str s, const struct unit *units, size_t n_units, uint64_t *ret_v)
{
    size_t digits = 0;
    uint64_t v;

    while (digits < s.n && s.p[digits] >= '0' && s.p[digits] <= '9')
        digits++;
    if (!str_to_u64(str_make(s.p, digits), &v))
        return false;
    for (size_t i = 0; i < n_units; i++)
        if (str_eq(str_skip(s, digits), units[i].name))
            return !__builtin_mul_overflow(v, units[i].factor, ret_v);
    return false;
}

bool str_to_duration_ms(struct str s, int64_t *ret_ms)
{
    static const struct unit units[] = {{{"", 0}, 1000},     {{"ms", 2}, 1},
                                        {{"s", 1}, 1000},    {{"m", 1}, 60000},
                                        {{"h", 1}, 3600000}, {{"d", 1}, 86400000}};
    uint64_t v;

    if (!with_unit(s, units, ARRAY_LEN(units), &v) || v > INT64_MAX)
        return false;
    *ret_ms = (int64_t)v;
    return true;
}

bool str_to_bytes(struct str s, uint64_t *ret_bytes)
{
    static const struct unit units[] = {
        {{"", 0}, 1},
        {{"B", 1}, 1},
        {{"KiB", 3}, 1ull << 10},
        {{"MiB", 3}, 1ull << 20},
        {{"GiB", 3}, 1ull << 30},
        {{"TiB", 3}, 1ull << 40},
        {{"kB", 2}, 1000ull},
        {{"KB", 2}, 1000ull},
        {{"MB", 2}, 1000000ull},
        {{"GB", 2}, 1000000000ull},
        {{"TB", 2}, 1000000000000ull},
    };
    uint64_t v;

    if (!with_unit(s, units, ARRAY_LEN(units), &v))
        return false;
    *ret_bytes = v;
    return true;
}

static bool is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

size_t utf8_seq_bytes(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;

    if (s.n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4) /* a tail, an over-long form of ASCII, or beyond U+10FFFF */
        return 0;
    if (p[0] < 0xe0)
        return s.n >= 2 && is_tail(p[1]) ? 2 : 0;
    if (p[0] < 0xf0) {
        if (s.n < 3 || !is_tail(p[1]) || !is_tail(p[2]))
            return 0;
        bool over_long = p[0] == 0xe0 && p[1] < 0xa0, surrogate = p[0] == 0xed && p[1] > 0x9f;
        return over_long || surrogate ? 0 : 3;
    }
    if (s.n < 4 || !is_tail(p[1]) || !is_tail(p[2]) || !is_tail(p[3]))
        return 0;
    bool over_long = p[0] == 0xf0 && p[1] < 0x90, too_high = p[0] == 0xf4 && p[1] > 0x8f;
    return over_long || too_high ? 0 : 4;
}

bool utf8_valid(struct str s)
{
    size_t i = 0, step;

    while (i < s.n) {
        uint64_t w;
        if (s.n - i >= 8 && (memcpy(&w, s.p + i, 8), (w & 0x8080808080808080ULL) == 0)) {
            i += 8;
            continue;
        }
        step = utf8_seq_bytes(str_make(s.p + i, s.n - i));
        if (step == 0)
            return false;
        i += step;
    }
    return true;
}

struct str utf8_head(struct str s, size_t most)
{
    if (s.n > most)
        for (s.n = most; s.n > 0 && is_tail((unsigned char)s.p[s.n]);)
            s.n--;
    return s;
}

size_t utf8_chars(struct str s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += !is_tail((unsigned char)s.p[i]);
    return n;
}

size_t utf16_units(struct str s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) /* four byte sequences become a surrogate pair */
        n += (size_t)!is_tail((unsigned char)s.p[i]) + ((unsigned char)s.p[i] >= 0xf0);
    return n;
}

/* 0x80 in every byte of @w that is below 0x20 or is 0x7f; bytes above the first such one may be
 * marked wrongly. */
static uint64_t mark_controls(uint64_t w)
{
    const uint64_t ones = 0x0101010101010101u, tops = ones << 7;
    uint64_t low = (w - ones * 0x20) & ~w;
    uint64_t del = w ^ (ones * 0x7f);

    return (low | ((del - ones) & ~del)) & tops;
}

size_t str_until_control(struct str s)
{
    size_t at = 0;

#ifdef __SSE2__
    for (; s.n - at >= 16; at += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(s.p + at));
        __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v);
        int hit = _mm_movemask_epi8(_mm_or_si128(low, _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f))));
        if (hit != 0)
            return at + (size_t)__builtin_ctz((unsigned)hit);
    }
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; s.n - at >= 8; at += 8) {
        uint64_t w, hit;
        memcpy(&w, s.p + at, 8);
        hit = mark_controls(w);
        if (hit != 0)
            return at + (size_t)__builtin_ctzll(hit) / 8;
    }
#endif
    while (at < s.n && (unsigned char)s.p[at] >= ' ' && s.p[at] != 0x7f)
        at++;
    return at;
}

int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Half of them: one digit in each byte of a word, all at once. */
static void hex_u32(uint32_t v, char ret[HEX_U64_CHARS / 2])
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t w = v;

    w = (w << 16 | w) & 0x0000ffff0000ffffu;
    w = (w << 8 | w) & 0x00ff00ff00ff00ffu;
    w = (w << 4 | w) & 0x0f0f0f0f0f0f0f0fu;
    uint64_t letters = (w + ones * 6) >> 4 & ones;
    w = htobe64(w + ones * '0' + letters * ('a' - '0' - 10));
    memcpy(ret, &w, sizeof w);
}

void hex_u64(uint64_t v, char ret[HEX_U64_CHARS])
{
    hex_u32((uint32_t)(v >> 32), ret);
    hex_u32((uint32_t)v, ret + HEX_U64_CHARS / 2);
}
