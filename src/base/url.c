/* url.c - (url.h has the contract.) */
#include "base/url.h"

/* "host", "host:80", "[::1]:80" */
static bool split_authority(struct str text, struct url *ret)
{
    bool brackets = str_starts(text, STR("["));
    ptrdiff_t end = str_find(text, brackets ? ']' : ':');
    struct str port = end < 0 ? STR("") : str_skip(text, (size_t)end + brackets);
    uint64_t number = 1;

    ret->authority = text;
    ret->host = end < 0 ? text : str_make(text.p + brackets, (size_t)end - brackets);
    if (ret->host.n == 0 || (brackets && end < 0) || (port.n > 0 && *port.p != ':') ||
        (port.n > 1 && (!str_to_u64(str_skip(port, 1), &number) || number - 1 >= 65535)))
        return false;
    ret->port = port.n > 1 ? (uint16_t)number : 0;
    return true;
}

const char *url_split(struct str text, struct url *ret)
{
    struct url u = {0};
    struct str rest = text;
    size_t n = 0;
    ptrdiff_t fragment;

    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] <= ' ' || text.p[i] == 0x7f)
            return "it has blanks";
    if (!str_split(&rest, ':', &u.scheme) || !str_starts(rest, STR("//")))
        return "it does not begin with a scheme and ://";
    rest = str_skip(rest, 2);
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#')
        n++;
    u.target = str_skip(rest, n);
    fragment = str_find(u.target, '#');
    if (fragment >= 0)
        u.target.n = (size_t)fragment;
    struct str place = str_make(rest.p, n);
    const char *at = n > 0 ? memrchr(place.p, '@', n) : NULL;
    if (at != NULL) {
        u.password = str_make(place.p, (size_t)(at - place.p));
        str_split(&u.password, ':', &u.user);
        place = str_skip(place, (size_t)(at - place.p) + 1);
    }
    if (!split_authority(place, &u))
        return "host and port cannot be understood";
    *ret = u;
    return NULL;
}
