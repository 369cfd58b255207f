/* jw.c - design.  (jw.h has the contract.)
 *
 * Most strings need no escaping, so a string is scanned first (eight bytes at a time while they are
 * plain ASCII) and each clean run is copied whole; only the bytes between runs are looked at one by
 * one.  Room is asked for once per token, comma and quotes included.  Ids and names are copied
 * while they are looked at, sixteen bytes at a time where the machine can. */
#include "base/jw.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define ONES 0x0101010101010101ULL
#define HIGHS 0x8080808080808080ULL

enum { PLAIN_MOST = 256 };

/* Non-zero when one of the eight bytes is a control character, a quote, a backslash or not ASCII.
 * Borrows may flag a wrong neighbour too, but only beside a right one. */
static inline uint64_t needs_look(uint64_t w)
{
    uint64_t quote = w ^ (ONES * '"'), slash = w ^ (ONES * '\\');

    return (((w - ONES * 0x20) & ~w) | ((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | w) &
           HIGHS;
}

static inline bool is_tail(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Like utf8_seq_bytes(), with the sequences that can be judged by their first byte taken first:
 * alphabets other than the Latin one, and most of the Asian scripts. */
static inline size_t seq_bytes(const char *p, size_t n)
{
    unsigned char c = (unsigned char)p[0];

    if (c >= 0xc2 && c <= 0xdf && n >= 2)
        return is_tail(p[1]) ? 2 : 0;
    if (c >= 0xe1 && c <= 0xec && n >= 3)
        return is_tail(p[1]) && is_tail(p[2]) ? 3 : 0;
    return utf8_seq_bytes(str_make(p, n));
}

static inline bool all_plain(const char *p)
{
    uint64_t w;

    memcpy(&w, p, sizeof w);
    return needs_look(w) == 0;
}

/* all_plain() for one to seven bytes; overlapping loads put every one of them into the word. */
static inline bool short_is_plain(const char *p, size_t n)
{
    uint32_t a, b;

    if (n >= 4) {
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
    } else {
        a = ONES * ' ' & UINT32_MAX;
        b = (uint32_t)' ' << 24 | (uint32_t)(unsigned char)p[0] << 16 |
            (uint32_t)(unsigned char)p[n / 2] << 8 | (unsigned char)p[n - 1];
    }
    return needs_look((uint64_t)a << 32 | b) == 0;
}

/* memcpy() without the call for the short keys and words most values are. */
static inline void copy(char *to, const char *p, size_t n)
{
    if (n > 16) {
        memcpy(to, p, n);
    } else if (n >= 8) {
        memcpy(to, p, 8);
        memcpy(to + n - 8, p + n - 8, 8);
    } else if (n >= 4) {
        memcpy(to, p, 4);
        memcpy(to + n - 4, p + n - 4, 4);
    } else if (n > 0) {
        to[0] = p[0];
        to[n / 2] = p[n / 2];
        to[n - 1] = p[n - 1];
    }
}

/* How many bytes from the start can be copied as they are. */
static size_t clean_run(const char *p, size_t n)
{
    size_t i = 0;

    if (n < 8 && (n == 0 || short_is_plain(p, n)))
        return n;
    while (n - i >= 8 && all_plain(p + i))
        i += 8;
    if (n >= 8 && n - i < 8 && all_plain(p + n - 8))
        return n; /* the last eight overlap what was seen already */
    while (i < n) {
        unsigned char c = (unsigned char)p[i];
        if (c < 0x80) {
            if (c < 0x20 || c == '"' || c == '\\')
                return i;
            i++;
            while (n - i >= 8 && all_plain(p + i))
                i += 8;
            continue;
        }
        size_t step = seq_bytes(p + i, n - i);
        if (step == 0)
            return i;
        i += step;
    }
    return n;
}

static void add_escaped(struct buf *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[256] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                      ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};

    if (c >= 0x80)
        buf_add(out, "\xef\xbf\xbd", 3); /* U+FFFD for each byte that is no UTF-8 */
    else if (letters[c] != 0)
        buf_add(out, (char[]){'\\', letters[c]}, 2);
    else
        buf_add(out, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
}

#ifdef __SSE2__
/* needs_look() for sixteen bytes: as signed numbers, those that are not ASCII lie below the space.
 */
static inline __m128i needs_look_16(__m128i v)
{
    return _mm_or_si128(_mm_cmplt_epi8(v, _mm_set1_epi8(' ')),
                        _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')),
                                     _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'))));
}

static inline bool copy_plain_16(char *to, const char *p, size_t n)
{
    __m128i v, look = _mm_setzero_si128();

    for (size_t i = 0; i + 16 <= n; i += 16) {
        v = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        look = _mm_or_si128(look, needs_look_16(v));
        _mm_storeu_si128((__m128i *)(void *)(to + i), v);
    }
    v = _mm_loadu_si128((const __m128i *)(const void *)(p + n - 16));
    look = _mm_or_si128(look, needs_look_16(v));
    _mm_storeu_si128((__m128i *)(void *)(to + n - 16), v);
    return _mm_movemask_epi8(look) == 0;
}
#endif

/* Copy and look at once, for the eight to PLAIN_MOST bytes that ids, names and most messages have.
 * False: some need a closer look, and what was copied is to be written over. */
static inline bool copy_plain(char *to, const char *p, size_t n)
{
    uint64_t w, look = 0;

#ifdef __SSE2__
    if (n >= 16)
        return copy_plain_16(to, p, n);
#endif

    for (size_t i = 0; i + 8 <= n; i += 8) {
        memcpy(&w, p + i, 8);
        look |= needs_look(w);
        memcpy(to + i, &w, 8);
    }
    memcpy(&w, p + n - 8, 8);
    look |= needs_look(w);
    memcpy(to + n - 8, &w, 8);
    return look == 0;
}

static bool add_quoted_plain(struct jw *w, struct str s)
{
    char *start = buf_room(w->out, s.n + 3), *to = start;

    if (to == NULL)
        return true; /* failed: there is nothing more to do */
    if (w->comma)
        *to++ = ',';
    *to++ = '"';
    if (!copy_plain(to, s.p, s.n))
        return false;
    to += s.n;
    *to++ = '"';
    w->out->n += (size_t)(to - start);
    return true;
}

/* The string in quotes.  The first run, which is nearly always all of it, goes in with them. */
static void add_quoted(struct jw *w, struct str s)
{
    if (s.n >= 8 && s.n <= PLAIN_MOST && add_quoted_plain(w, s))
        return;
    size_t run = clean_run(s.p, s.n);
    char *start = buf_room(w->out, run + 3), *to = start;

    if (to == NULL)
        return;
    if (w->comma)
        *to++ = ',';
    *to++ = '"';
    copy(to, s.p, run);
    to += run;
    if (run == s.n)
        *to++ = '"';
    w->out->n += (size_t)(to - start);
    if (run == s.n)
        return;
    while (run < s.n) {
        add_escaped(w->out, (unsigned char)s.p[run]);
        s = str_skip(s, run + 1);
        run = clean_run(s.p, s.n);
        buf_add(w->out, s.p, run);
    }
    buf_add_c(w->out, '"');
}

static void separate(struct jw *w)
{
    if (w->comma)
        buf_add_c(w->out, ',');
    w->comma = true;
}

static void open_with(struct jw *w, char c)
{
    separate(w);
    buf_add_c(w->out, c);
    w->comma = false;
}

static void close_with(struct jw *w, char c)
{
    buf_add_c(w->out, c);
    w->comma = true;
}

void jw_obj(struct jw *w)
{
    open_with(w, '{');
}

void jw_end_obj(struct jw *w)
{
    close_with(w, '}');
}

void jw_arr(struct jw *w)
{
    open_with(w, '[');
}

void jw_end_arr(struct jw *w)
{
    close_with(w, ']');
}

void jw_key(struct jw *w, const char *key)
{
    size_t n = strlen(key);
    char *start = buf_room(w->out, n + 4), *to = start;

    if (to == NULL)
        return;
    if (w->comma)
        *to++ = ',';
    *to++ = '"';
    copy(to, key, n);
    to += n;
    *to++ = '"';
    *to++ = ':';
    w->out->n += (size_t)(to - start);
    w->comma = false;
}

void jw_key_str(struct jw *w, struct str key)
{
    add_quoted(w, key.p != NULL ? key : STR(""));
    buf_add_c(w->out, ':');
    w->comma = false;
}

void jw_str(struct jw *w, struct str s)
{
    if (s.p == NULL) {
        jw_null(w);
        return;
    }
    add_quoted(w, s);
    w->comma = true;
}

void jw_hex(struct jw *w, const void *p, size_t n)
{
    separate(w);
    buf_add_c(w->out, '"');
    hex_add(w->out, p, n);
    buf_add_c(w->out, '"');
}

void jw_bool(struct jw *w, bool b)
{
    jw_raw(w, b ? STR("true") : STR("false"));
}

void jw_i64(struct jw *w, int64_t v)
{
    separate(w);
    buf_add_i64(w->out, v);
}

void jw_u64(struct jw *w, uint64_t v)
{
    separate(w);
    buf_add_u64(w->out, v);
}

/* The shortest digits that read back as the same number; always with a mark of a fraction, so that
 * 1.0 does not turn into the integer 1 on its way through. */
void jw_f64(struct jw *w, double v)
{
    char text[40];

    if (!isfinite(v)) {
        jw_null(w); /* JSON has no word for it */
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    if (strpbrk(text, ".e") == NULL)
        memcpy(text + strlen(text), ".0", 3);
    jw_raw(w, str_of(text));
}

void jw_null(struct jw *w)
{
    jw_raw(w, STR("null"));
}

void jw_raw(struct jw *w, struct str json)
{
    separate(w);
    buf_add_str(w->out, json);
}

static void write_number(struct jw *w, struct json v)
{
    int64_t i;
    uint64_t u;
    double f;

    if (json_as_i64(v, &i))
        jw_i64(w, i);
    else if (json_as_u64(v, &u))
        jw_u64(w, u);
    else if (json_as_f64(v, &f))
        jw_f64(w, f);
}

static void write_container(struct jw *w, struct json v, bool object)
{
    open_with(w, object ? '{' : '[');
    for (struct json_iter it = {0}; json_next(v, &it);) {
        if (object)
            jw_key_str(w, it.key);
        jw_value(w, it.value);
    }
    close_with(w, object ? '}' : ']');
}

/* Recursion is bounded: the parser refuses documents deeper than JSON_MAX_DEPTH. */
void jw_value(struct jw *w, struct json v)
{
    switch (json_type(v)) {
    case JSON_ABSENT:
    case JSON_NULL:
        jw_null(w);
        break;
    case JSON_BOOL:
        jw_bool(w, json_as_bool(v, false));
        break;
    case JSON_NUMBER:
        write_number(w, v);
        break;
    case JSON_STRING:
        jw_str(w, json_as_str(v));
        break;
    case JSON_ARRAY:
        write_container(w, v, false);
        break;
    case JSON_OBJECT:
        write_container(w, v, true);
        break;
    }
}

void jw_kstr(struct jw *w, const char *key, struct str s)
{
    jw_key(w, key);
    jw_str(w, s);
}

void jw_kstr_opt(struct jw *w, const char *key, struct str s)
{
    if (s.p != NULL)
        jw_kstr(w, key, s);
}

void jw_kbool(struct jw *w, const char *key, bool b)
{
    jw_key(w, key);
    jw_bool(w, b);
}

void jw_ki64(struct jw *w, const char *key, int64_t v)
{
    jw_key(w, key);
    jw_i64(w, v);
}

void jw_kobj(struct jw *w, const char *key)
{
    jw_key(w, key);
    jw_obj(w);
}

void jw_karr(struct jw *w, const char *key)
{
    jw_key(w, key);
    jw_arr(w);
}

void jw_kraw(struct jw *w, const char *key, struct str json)
{
    jw_key(w, key);
    jw_raw(w, json);
}

void jw_kvalue(struct jw *w, const char *key, struct json v)
{
    jw_key(w, key);
    jw_value(w, v);
}
