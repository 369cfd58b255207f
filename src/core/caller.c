/* caller.c - checks the names of namespaces and the ids of traces.  (caller.h has the contract.) */
#include "core/caller.h"

bool caller_ns_valid(struct str ns)
{
    return ns.n > 0 && ns.n <= 64 && str_has_only(ns, "_.-") && str_has_only(str_make(ns.p, 1), "");
}

/* @n hex digits in lower case at @at, and not all of them zero unless @may_be_zero. */
static bool is_hex(struct str s, size_t at, size_t n, bool may_be_zero)
{
    bool zero = true;

    for (size_t i = at; i < at + n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        zero &= c == '0';
    }
    return may_be_zero || !zero;
}

bool caller_trace_valid(struct str t)
{
    enum { WHOLE = 55 };

    if (t.n < WHOLE || t.n > CALLER_TRACE_MAX || t.p[2] != '-' || t.p[35] != '-' ||
        t.p[52] != '-' || !is_hex(t, 0, 2, true) || !is_hex(t, 3, 32, false) ||
        !is_hex(t, 36, 16, false) || !is_hex(t, 53, 2, true) || str_eq(str_make(t.p, 2), STR("ff")))
        return false;
    if (t.n == WHOLE)
        return true;
    return !str_eq(str_make(t.p, 2), STR("00")) && t.p[WHOLE] == '-' && str_has_only(t, "-");
}
