/* v1_path.c - paths with names in them.
 *
 * Each segment is decoded on its own, so that a name may hold a slash (%2F) and still be one
 * segment. */
#include "http/v1.h"

/* STR_NULL: a broken escape, a NUL, or not UTF-8. */
static struct str decode(struct str s, struct arena *arena)
{
    char *out = arena_alloc(arena, s.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            int hi = i + 2 < s.n ? hex_value(s.p[i + 1]) : -1;
            int lo = hi >= 0 ? hex_value(s.p[i + 2]) : -1;
            if (lo < 0)
                return STR_NULL;
            c = (char)(hi << 4 | lo);
            i += 2;
        }
        if (c == '\0')
            return STR_NULL;
        out[n++] = c;
    }
    out[n] = '\0';
    return utf8_valid(str_make(out, n)) ? str_make(out, n) : STR_NULL;
}

bool v1_match(const char *pattern, struct str path, struct arena *arena,
              struct str ret_args[V1_ARGS_MAX])
{
    struct str want_rest = str_of(pattern), rest = path, want, part;
    size_t n_args = 0;

    while (str_split(&want_rest, '/', &want)) {
        if (!str_split(&rest, '/', &part))
            return false;
        if (want.n == 0 || want.p[0] != '{') {
            if (!str_eq(want, part))
                return false;
            continue;
        }
        struct str arg = decode(part, arena);
        if (str_is_empty(arg) || n_args == V1_ARGS_MAX)
            return false;
        ret_args[n_args++] = arg;
    }
    return rest.p == NULL;
}
