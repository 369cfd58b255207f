/* url.c - design.  (url.h has the contract.)
 *
 * Operators paste whatever they were given: the page's address, the WebSocket's, with and without a
 * slash or the "/relay".  All of them mean the same connector, so everything is derived from
 * scheme, authority and path.  What cannot be part of that (credentials, a query, white space) is
 * refused by name instead of being dialled and failing oddly. */
#include "url.h"
#include <stdlib.h>
#include "base/mem.h"
#include "net/ws_codec.h"

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

void gwc_upgrade_request(struct buf *out, const struct gwc_url *url, struct str key,
                         struct str bearer, struct str user_agent)
{
    buf_printf(out, "GET %s HTTP/1.1\r\nHost: %s\r\n", url->path, url->host);
    buf_add_z(out, "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n");
    buf_printf(out, "Sec-WebSocket-Key: %.*s\r\n", STR_FMT(key));
    if (bearer.p != NULL)
        buf_printf(out, "Authorization: Bearer %.*s\r\n", STR_FMT(bearer));
    buf_printf(out, "User-Agent: %.*s\r\n\r\n", STR_FMT(user_agent));
}

size_t gwc_upgrade_head_bytes(struct str in)
{
    const char *end = in.n >= 4 ? memmem(in.p, in.n, "\r\n\r\n", 4) : NULL;

    return end != NULL ? (size_t)(end - in.p) + 4 : 0;
}

static int status_of(struct str line)
{
    uint64_t status;

    if (!str_starts(line, STR("HTTP/1.1 ")) || line.n < 12 ||
        !str_to_u64(str_make(line.p + 9, 3), &status))
        return 0;
    return (int)status;
}

/* "Connection: keep-alive, Upgrade" names upgrade among others. */
static bool has_word(struct str list, struct str word)
{
    struct str part;

    while (str_split(&list, ',', &part))
        if (str_eq_ci(str_trim(part), word))
            return true;
    return false;
}

bool gwc_upgrade_accepted(struct str head, struct str key, int *ret_status)
{
    bool upgrade = false, connection = false, accept = false, extended = false;
    char expected[29];
    struct str line;

    if (!str_split(&head, '\n', &line) || (*ret_status = status_of(str_trim(line))) != 101)
        return false;
    ws_accept_key(key, expected);
    while (str_split(&head, '\n', &line)) {
        ptrdiff_t colon = str_find(line, ':');
        if (colon <= 0)
            continue;
        struct str name = str_make(line.p, (size_t)colon);
        struct str value = str_trim(str_skip(line, (size_t)colon + 1));
        if (str_eq_ci(name, STR("upgrade")))
            upgrade = str_eq_ci(value, STR("websocket"));
        else if (str_eq_ci(name, STR("connection")))
            connection = has_word(value, STR("upgrade"));
        else if (str_eq_ci(name, STR("sec-websocket-accept")))
            accept = str_eq(value, str_of(expected));
        else if (str_eq_ci(name, STR("sec-websocket-extensions")))
            extended = true; /* we offered none */
    }
    *ret_status = 0;
    return upgrade && connection && accept && !extended;
}
