/* caller.c - checks the names of namespaces.  (caller.h has the contract.) */
#include "core/caller.h"

#define NS_MAX 64

static bool is_alnum(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool caller_ns_valid(struct str ns)
{
    if (ns.n == 0 || ns.n > NS_MAX || !is_alnum(ns.p[0]))
        return false;
    for (size_t i = 1; i < ns.n; i++)
        if (!is_alnum(ns.p[i]) && ns.p[i] != '_' && ns.p[i] != '.' && ns.p[i] != '-')
            return false;
    return true;
}
