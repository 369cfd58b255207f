/* http_getters.c - what a handler may ask of a request: its parts, and the client's address.
 *
 * Peers.  Behind a proxy the socket's address is the proxy's.  The server believes X-Forwarded-For
 * only from a trusted proxy.  It reads the header from the right and takes the first address that
 * is not a trusted proxy, because a client can invent everything further left. */
#include <stdlib.h>

#include "base/log.h"
#include "base/percent.h"
#include "net/conn.h"
#include "net/edges.h"
#include "net/trunk_priv.h"

/* ---- its parts ---- */

struct str http_method(const struct http_req *r)
{
    return str_of(http_verb_word((enum http_verb)r->head.verb));
}

struct str http_path(const struct http_req *r)
{
    return str_make(r->base + r->head.path, r->head.path_n);
}

struct str http_body(const struct http_req *r)
{
    return str_make(r->base + r->head.bytes, r->body_n);
}

struct str http_header_named(const struct http_req *r, struct str want)
{
    for (uint32_t i = 0; i < r->head.n_fields; i++) {
        const struct http_field *f = &r->head.fields[i];
        if (f->name_n == want.n && str_eq_ci(str_make(r->base + f->name, f->name_n), want))
            return str_make(r->base + f->value, f->value_n);
    }
    return STR_NULL;
}

struct str http_raw_query(const struct http_req *r)
{
    const struct http_head *h = &r->head;
    return h->query != 0 ? str_make(r->base + h->query, h->query_n) : STR_NULL;
}

bool http_query(const struct http_req *r, const char *name, struct buf *ret_value)
{
    struct str rest = http_raw_query(r);
    struct str part, want = str_of(name);
    struct buf key = BUF_INIT;
    bool found = false;

    while (!found && str_split(&rest, '&', &part)) {
        ptrdiff_t eq = str_find(part, '=');
        size_t key_n = eq < 0 ? part.n : (size_t)eq;
        buf_reset(&key);
        percent_decode_form(&key, str_make(part.p, key_n));
        found = str_eq(buf_str(&key), want);
        if (found && eq >= 0)
            percent_decode_form(ret_value, str_skip(part, key_n + 1));
    }
    buf_done(&key);
    return found;
}

bool http_cookie(const struct http_req *r, const char *name, struct str *ret_value)
{
    struct str rest = http_header(r, "cookie"), part, want = str_of(name);

    while (str_split(&rest, ';', &part)) {
        ptrdiff_t eq = str_find(part, '=');
        if (eq < 0 || !str_eq(str_trim(str_make(part.p, (size_t)eq)), want))
            continue;
        *ret_value = str_trim(str_skip(part, (size_t)eq + 1));
        if (ret_value->n >= 2 && ret_value->p[0] == '"' && ret_value->p[ret_value->n - 1] == '"')
            *ret_value = str_make(ret_value->p + 1, ret_value->n - 2);
        return true;
    }
    return false;
}

/* "https://a.example:8443/x" -> "a.example:8443" */
static struct str host_of_url(struct str url)
{
    for (size_t i = 0; i + 2 < url.n; i++)
        if (url.p[i] == ':' && url.p[i + 1] == '/' && url.p[i + 2] == '/') {
            struct str rest = str_skip(url, i + 3), host;
            return str_split(&rest, '/', &host) ? host : STR_NULL;
        }
    return STR_NULL;
}

bool http_same_origin(const struct http_req *r, const char *public_url)
{
    struct str origin = http_header(r, "Origin"), host = host_of_url(origin);
    struct str site = http_header(r, "Sec-Fetch-Site");

    if (site.p != NULL && !str_eq(site, STR("same-origin")) && !str_eq(site, STR("none")))
        return false;
    if (origin.p == NULL)
        return true; /* not a browser, or an old one: SameSite cookies still protect it */
    return host.n > 0 && (str_eq_ci(host, http_header(r, "Host")) ||
                          str_eq_ci(host, host_of_url(str_of(public_url))));
}

bool http_is_json(const struct http_req *r)
{
    struct str type = http_header(r, "Content-Type"), main;

    return str_split(&type, ';', &main) && str_eq_ci(str_trim(main), STR("application/json"));
}

bool http_is_upgrade(const struct http_req *r)
{
    return r->head.upgrade;
}

bool http_is_carried(const struct http_req *r)
{
    const struct carried *k = r->conn->carried;

    return k != NULL && k->trunk->ring == NULL;
}

bool http_is_tls(const struct http_req *r)
{
    return r->conn->is_tls;
}

struct http_id http_req_id(const struct http_req *r)
{
    return (struct http_id){r->conn->id.index, r->conn->id.generation};
}

void *http_listener_tag(const struct http_req *r)
{
    return r->conn->io.data;
}

/* ---- the client's address, behind a proxy too ---- */

static void trust_like(struct http_server *edge, void *heart)
{
    const struct http_server *h = heart;

    http_server_trust(edge, h->proxies, h->n_proxies);
}

void http_server_trust(struct http_server *s, const struct addr_net *proxies, size_t n)
{
    free(s->proxies);
    s->proxies = xcalloc(n + 1, sizeof *s->proxies);
    if (n > 0)
        memcpy(s->proxies, proxies, n * sizeof *s->proxies);
    s->n_proxies = n;
    if (s->edges != NULL)
        edges_each(s->edges, trust_like, s);
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
            return true; /* malformed: the previous hop counts as the client */
        *peer = said;
        if (!http_peer_is_trusted(s, &said))
            return true;
    }
    return false;
}

/* Logs once: this looks like a proxy that is not in trusted_proxies. */
static void tell_of_proxy(struct http_server *s, const struct addr *peer)
{
    char text[ADDR_TEXT_BYTES];

    s->told_of_proxy = true;
    addr_text(peer, text);
    log_warn(NULL,
             "ignoring X-Forwarded-For of %s: if this is your proxy, add it to trusted_proxies, "
             "else all its clients count as one",
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

struct str http_host(const struct http_req *r)
{
    struct str said = http_header(r, "host");
    bool trusted = http_peer_is_trusted(r->conn->server, &r->conn->peer);

    for (uint32_t i = r->head.n_fields; trusted && i > 0; i--) {
        const struct http_field *f = &r->head.fields[i - 1];
        struct str list = str_make(r->base + f->value, f->value_n);
        if (!str_eq_ci(str_make(r->base + f->name, f->name_n), STR("x-forwarded-host")))
            continue;
        said = last_of(&list); /* a client can invent everything further left */
        break;
    }
    ptrdiff_t colon = str_find(said, ':');
    if (colon >= 0 && (said.n == 0 || said.p[0] != '['))
        said.n = (size_t)colon;
    if (said.n > 1 && said.p[said.n - 1] == '.')
        said.n--; /* the root */
    return said;
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
