/* config_expand.c - ${NAME} and ${NAME:-otherwise} inside a value.
 *
 * Done after YAML is through with a scalar, so no value of the environment can change the shape of
 * the document. */
#include <ctype.h>
#include <stdlib.h>
#include "base/config_priv.h"

static bool name_is_ok(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if (!isalnum((unsigned char)name.p[i]) && name.p[i] != '_')
            return false;
    return name.n > 0 && !isdigit((unsigned char)name.p[0]);
}

static bool expand_one(struct str inside, struct buf *out, struct buf *ret_names, struct buf *why)
{
    ptrdiff_t colon = str_find(inside, ':');
    struct str name = colon >= 0 ? str_make(inside.p, (size_t)colon) : inside;
    struct str otherwise = colon >= 0 ? str_skip(inside, (size_t)colon + 1) : STR_NULL;

    if (!name_is_ok(name) || (colon >= 0 && !str_starts(otherwise, STR("-")))) {
        buf_printf(why, "\"${%.*s}\": expected ${NAME} or ${NAME:-otherwise}", STR_FMT(inside));
        return false;
    }
    char *z = str_dup(name);
    const char *value = getenv(z);
    if (ret_names != NULL)
        buf_add(ret_names, z, name.n + 1);
    free(z);
    if (colon >= 0 && (value == NULL || *value == '\0')) {
        buf_add_str(out, str_skip(otherwise, 1));
        return true;
    }
    if (value == NULL) {
        buf_printf(why,
                   "the environment variable %.*s is not set (set it, or write ${%.*s:-} to go "
                   "without)",
                   STR_FMT(name), STR_FMT(name));
        return false;
    }
    buf_add_z(out, value);
    return true;
}

bool config_expand(struct str s, struct buf *out, struct buf *ret_names, struct buf *why)
{
    while (s.n > 0) {
        if (!str_starts(s, STR("${"))) {
            buf_add_c(out, *s.p);
            s = str_skip(s, 1);
            continue;
        }
        ptrdiff_t end = str_find(s, '}');
        if (end < 0) {
            buf_add_z(why, "\"${\" without its \"}\"");
            return false;
        }
        if (!expand_one(str_make(s.p + 2, (size_t)end - 2), out, ret_names, why))
            return false;
        s = str_skip(s, (size_t)end + 1);
    }
    return true;
}
