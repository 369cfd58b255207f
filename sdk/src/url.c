/* url.c - design.  (url.h has the contract.)
 *
 * Operators paste whatever they were given: the page's address, the WebSocket's, with and without a
 * slash or the "/relay".  All of them mean the same connector, so everything is derived from
 * scheme, authority and path.  What cannot be part of that (credentials, a query, white space) is
 * refused by name instead of being dialled and failing oddly. */
#include "url.h"
#include <stdlib.h>
#include "base/mem.h"

static const struct {
    struct str prefix;
    const char *ws, *http;
} schemes[] = {
    {{"https://", 8}, "wss", "https"},
    {{"wss://", 6}, "wss", "https"},
    {{"http://", 7}, "ws", "http"},
    {{"ws://", 5}, "ws", "http"},
};

static char *join(const char *scheme, struct str authority, struct str path, const char *tail)
{
    struct buf b = BUF_INIT;

    if (scheme != NULL)
        buf_printf(&b, "%s://", scheme);
    buf_add_str(&b, authority);
    buf_add_str(&b, path);
    buf_add_z(&b, tail);
    return buf_take(&b);
}

static const char *trouble_with(struct str authority, struct str rest)
{
    if (authority.n == 0)
        return "the URL names no host";
    if (str_find(authority, '@') >= 0)
        return "the URL must not contain a user name or password";
    if (str_find(rest, '?') >= 0 || str_find(rest, '#') >= 0)
        return "the URL must not contain a query or a fragment";
    for (size_t i = 0; i < rest.n; i++)
        if ((unsigned char)rest.p[i] <= ' ' || (unsigned char)rest.p[i] >= 0x7f)
            return "the URL contains a character that must be percent-encoded";
    return NULL;
}

bool gwc_url_read(struct gwc_url *url, const char *configured, const char **ret_why)
{
    struct str rest = str_trim(str_of(configured));
    size_t scheme = 0;

    while (rest.n > 0 && rest.p[rest.n - 1] == '/')
        rest.n--;
    while (scheme < ARRAY_LEN(schemes)) {
        struct str prefix = schemes[scheme].prefix;
        if (rest.n >= prefix.n && str_eq_ci(str_make(rest.p, prefix.n), prefix))
            break;
        scheme++;
    }
    *ret_why = "the URL must start with https://, http://, wss:// or ws://";
    if (scheme == ARRAY_LEN(schemes))
        return false;
    rest = str_skip(rest, schemes[scheme].prefix.n);
    ptrdiff_t slash = str_find(rest, '/');
    struct str authority = slash < 0 ? rest : str_make(rest.p, (size_t)slash);
    struct str path = str_skip(rest, authority.n);
    if ((*ret_why = trouble_with(authority, rest)) != NULL)
        return false;
    if (str_ends(path, STR("/relay")))
        path.n -= strlen("/relay");
    *url = (struct gwc_url){
        .ws = join(schemes[scheme].ws, authority, path, "/relay"),
        .http = join(schemes[scheme].http, authority, path, ""),
        .dial = join(schemes[scheme].http, authority, path, "/relay"),
        .host = join(NULL, authority, STR(""), ""),
        .path = join(NULL, STR(""), path, "/relay"),
    };
    return true;
}

void gwc_url_done(struct gwc_url *url)
{
    free(url->ws);
    free(url->http);
    free(url->dial);
    free(url->host);
    free(url->path);
    *url = (struct gwc_url){0};
}
