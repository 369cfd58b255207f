/* str.h - a borrowed view of bytes, and functions on text: compare, split, parse numbers, UTF-8.
 *
 * A str is passed by value, is not NUL-terminated and owns nothing.  {NULL, 0} means "absent";
 * {non-NULL, 0} means "present and empty".  Both answer true to str_is_empty(). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct str {
    const char *p;
    size_t n;
};

#define STR(lit) ((struct str){"" lit, sizeof(lit) - 1})
#define STR_NULL ((struct str){NULL, 0})
#define STR_FMT(s) (int)(s).n, (s).p /* for "%.*s" */

static inline struct str str_of(const char *z) /* NULL gives STR_NULL */
{
    return (struct str){z, z != NULL ? strlen(z) : 0};
}
static inline struct str str_make(const void *p, size_t n)
{
    return (struct str){(const char *)p, n};
}
static inline bool str_is_empty(struct str s)
{
    return s.n == 0;
}
static inline bool str_eq(struct str a, struct str b)
{
    /* Strings mostly differ in the first byte, and comparing it is cheaper than a call. */
    return a.n == b.n && (a.n == 0 || (*a.p == *b.p && memcmp(a.p, b.p, a.n) == 0));
}

bool str_eq_ci(struct str a, struct str b); /* ASCII case folded */
int str_cmp(struct str a, struct str b);    /* byte order; a prefix sorts first */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
struct str str_trim(struct str s);           /* ASCII white space off both ends */
struct str str_skip(struct str s, size_t n); /* without its first n bytes */
ptrdiff_t str_find(struct str s, char c);    /* index, or -1 */
bool str_contains(struct str s, struct str needle);

/* Removes the part before the first @sep from *@rest.  False: *@rest is absent.  After the last
 * part *@rest is absent. */
bool str_split(struct str *rest, char sep, struct str *ret_part);

/* Has @s only ASCII letters, digits and characters of @more?  True for an empty @s. */
bool str_has_only(struct str s, const char *more);

char *str_dup(struct str s);     /* heap, NUL-terminated; caller frees */
char *str_dup_opt(struct str s); /* NULL for an absent or empty one */
/* Copies @s to *@at, moves *@at behind it, and returns the copy.  An absent @s stays absent. */
struct str str_pack(char **at, struct str s);

/* Parses the whole of @s as a decimal number.  False: anything else, or overflow. */
bool str_to_u64(struct str s, uint64_t *ret_v);
bool str_to_i64(struct str s, int64_t *ret_v);

/* How many bytes come before the first control character (below a space, or DEL). */
size_t str_until_control(struct str s);

int hex_value(char c); /* of a hex digit, either case; -1: not a hex digit */
enum { HEX_U64_CHARS = 16 };
void hex_u64(uint64_t v, char ret[HEX_U64_CHARS]); /* lower case, leading zeros, no NUL */

/* "30s", "5m", "1h", "250ms", "2d" or a bare number of seconds -> ms. */
bool str_to_duration_ms(struct str s, int64_t *ret_ms);
/* "1GiB", "64KiB", "10MB" or a bare number of bytes. */
bool str_to_bytes(struct str s, uint64_t *ret_bytes);

bool utf8_valid(struct str s);                   /* strict: no surrogates, no over-long forms */
size_t utf8_chars(struct str s);                 /* code points in valid UTF-8 */
struct str utf8_head(struct str s, size_t most); /* at most so many bytes, in whole code points */
size_t utf16_units(struct str s);                /* UTF-16 code units of valid UTF-8 */
/* Bytes of the valid sequence (one code point) @s starts with; 0: none, or @s is empty. */
size_t utf8_seq_bytes(struct str s);

#ifdef __cplusplus
}
#endif
