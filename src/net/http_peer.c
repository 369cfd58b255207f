/* http_peer.c - who is really asking, and by which name.
 *
 * Behind a proxy the socket's address is the proxy's.  Its word is believed only when it is one of
 * the trusted: of X-Forwarded-For, read from the right, the first address that is not a trusted
 * proxy itself, since everything to the left of that may be made up by whoever it is.
 *
 * A name that nobody configured is not answered: a page on some site, whose name its owner points
 * at this machine, must not talk to us with a browser on this machine (DNS rebinding). */
#include "net/conn.h"

#include <stdlib.h>

#include "base/log.h"

/* ---- proxies ---- */

void http_server_trust(struct http_server *s, const struct addr_net *proxies, size_t n)
{
    free(s->proxies);
    s->proxies = xcalloc(n + 1, sizeof *s->proxies);
    if (n > 0)
        memcpy(s->proxies, proxies, n * sizeof *s->proxies);
    s->n_proxies = n;
}

bool http_peer_is_trusted(const struct http_server *s, const struct addr *a)
{
    return addr_is_in(a, s->proxies, s->n_proxies);
}

/* The part behind the last comma, taken off. */
static struct str last_of(struct str *list)
{
    size_t at = list->n;
    struct str part;

    while (at > 0 && list->p[at - 1] != ',')
        at--;
    part = str_trim(str_skip(*list, at));
    list->n = at > 0 ? at - 1 : 0;
    return part;
}

/* Walk one header line from its end.  True: *@peer is the one who asks. */
static bool walk_line(const struct http_server *s, struct str line, struct addr *peer)
{
    while (line.n > 0) {
        struct addr said;
        if (!addr_parse(last_of(&line), &said))
            return true; /* nonsense: whoever wrote it is as far as we can see */
        *peer = said;
        if (!http_peer_is_trusted(s, &said))
            return true;
    }
    return false;
}

/* Once: this looks like a proxy that somebody forgot to name. */
static void tell_of_proxy(struct http_server *s, const struct addr *peer)
{
    char text[ADDR_TEXT_BYTES];

    s->told_of_proxy = true;
    addr_text(peer, text);
    log_warn(NULL,
             "%s sends X-Forwarded-For and is not believed: if it is your proxy, add it to "
             "trusted_proxies, or all its clients count as one",
             text);
}

struct addr http_req_addr(const struct http_req *r)
{
    struct addr peer = r->conn->peer;
    struct http_server *s = r->conn->server;

    if (!http_peer_is_trusted(s, &peer)) {
        if (!s->told_of_proxy && addr_is_private(&peer) &&
            http_header(r, "x-forwarded-for").p != NULL)
            tell_of_proxy(s, &peer);
        return peer;
    }
    for (uint32_t i = r->head.n_fields; i > 0; i--) {
        const struct http_field *f = &r->head.fields[i - 1];
        if (str_eq_ci(str_make(r->base + f->name, f->name_n), STR("x-forwarded-for")) &&
            walk_line(s, str_make(r->base + f->value, f->value_n), &peer))
            break;
    }
    return peer;
}

struct str http_peer(const struct http_req *r)
{
    struct http_req *cache = (struct http_req *)(uintptr_t)r;

    if (r->peer[0] == '\0') {
        struct addr a = http_req_addr(r);
        addr_text(&a, cache->peer);
    }
    return str_of(r->peer);
}

/* ---- names ---- */

void http_server_answer_to(struct http_server *s, const char *const *names)
{
    for (char **p = s->names; p != NULL && *p != NULL; p++)
        free(*p);
    free(s->names);
    s->names = NULL;
    s->last_host_n = 0;
    if (names == NULL)
        return;
    size_t n = 0;
    while (names[n] != NULL)
        n++;
    s->names = xcalloc(n + 1, sizeof *s->names);
    for (size_t i = 0; i < n; i++)
        s->names[i] = xstrdup(names[i]);
}

/* "*", "name", or "*.name" for everything below it. */
static bool name_matches(struct str pattern, struct str host)
{
    if (str_eq(pattern, STR("*")))
        return true;
    if (!str_starts(pattern, STR("*.")))
        return str_eq_ci(pattern, host);
    pattern = str_skip(pattern, 1);
    return host.n > pattern.n &&
           str_eq_ci(str_make(host.p + host.n - pattern.n, pattern.n), pattern);
}

static bool is_known(const struct http_server *s, struct str host)
{
    struct addr ignored;
    ptrdiff_t colon;

    if (addr_parse(host, &ignored))
        return true; /* no name, so nobody can have pointed it here */
    colon = str_find(host, ':');
    if (colon >= 0)
        host.n = (size_t)colon;
    if (host.n > 1 && host.p[host.n - 1] == '.')
        host.n--; /* the root */
    if (str_eq_ci(host, STR("localhost")) || name_matches(STR("*.localhost"), host))
        return true;
    for (char **p = s->names; *p != NULL; p++) {
        if (name_matches(str_of(*p), host))
            return true;
    }
    return false;
}

bool http_host_is_ours(struct conn *c, struct str host)
{
    struct http_server *s = c->server;

    if (s->names == NULL || c->any_host || host.n == 0)
        return true;
    if (host.n == s->last_host_n && memcmp(host.p, s->last_host, host.n) == 0)
        return true; /* almost always the same one */
    if (!is_known(s, host))
        return false;
    if (host.n <= sizeof s->last_host) {
        memcpy(s->last_host, host.p, host.n);
        s->last_host_n = host.n;
    }
    return true;
}
