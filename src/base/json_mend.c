/* json_mend.c - design.  (json_mend.h has the contract.) */
#include "base/json_mend.h"
#include "base/buf.h"

/* The UTF-16 unit that is escaped there; -1: none is. */
static int unit_at(struct str s, size_t at)
{
    int unit = 0;

    if (at + 6 > s.n || s.p[at] != '\\' || s.p[at + 1] != 'u')
        return -1;
    for (size_t i = at + 2; i < at + 6; i++) {
        int digit = hex_value(s.p[i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/* False: there is no half.  What has no backslash is copied in one piece, because anybody may send
 * a long line that is no JSON. */
static bool mend(struct str rest, struct buf *out)
{
    bool any = false;

    for (size_t n; rest.n > 0; rest = str_skip(rest, n)) {
        ptrdiff_t escape = str_find(rest, '\\');
        if (escape != 0) {
            n = escape > 0 ? (size_t)escape : rest.n;
            buf_add_str(out, str_make(rest.p, n));
            continue;
        }
        int unit = unit_at(rest, 0), next = unit_at(rest, 6);
        bool half = unit >= 0xd800 && unit < 0xe000;
        bool pair = half && unit < 0xdc00 && next >= 0xdc00 && next < 0xe000;
        n = pair ? 12 : unit >= 0 ? 6 : rest.n > 1 ? 2 : 1;
        any |= half && !pair;
        buf_add_str(out, half && !pair ? STR("\\ufffd") : str_make(rest.p, n));
    }
    return any;
}

bool json_parse_mended(struct json_parser *p, struct str bytes, struct json *ret_doc)
{
    BUF_LOCAL mended = BUF_INIT;

    return json_parse(p, bytes, ret_doc) ||
           (mend(bytes, &mended) && json_parse(p, buf_str(&mended), ret_doc));
}
