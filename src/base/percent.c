/* percent.c - %XX, written and read.  (percent.h has the contract.) */
#include "base/percent.h"

void percent_encode(struct buf *out, struct str s)
{
    static const char hex[] = "0123456789ABCDEF";

    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' ||
            c == '_' || c == '.' || c == '~') {
            buf_add_c(out, (char)c);
        } else {
            buf_add_c(out, '%');
            buf_add_c(out, hex[c >> 4]);
            buf_add_c(out, hex[c & 15]);
        }
    }
}

static bool decode(struct buf *out, struct str s, bool plus_is_space)
{
    bool whole = true;

    for (size_t i = 0; i < s.n; i++) {
        bool escape = s.p[i] == '%';
        int hi = escape && i + 2 < s.n ? hex_value(s.p[i + 1]) : -1;
        int lo = hi >= 0 ? hex_value(s.p[i + 2]) : -1;
        if (lo >= 0) {
            buf_add_c(out, (char)(hi << 4 | lo));
            i += 2;
            continue;
        }
        whole &= !escape;
        buf_add_c(out, plus_is_space && s.p[i] == '+' ? ' ' : s.p[i]);
    }
    return whole;
}

bool percent_decode(struct buf *out, struct str s)
{
    return decode(out, s, false);
}

bool percent_decode_form(struct buf *out, struct str s)
{
    return decode(out, s, true);
}
