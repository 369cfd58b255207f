/* options.c - validates the options of bhgw_new(), fills in defaults, copies.
 *
 * Operators paste the URL in several forms: http or ws, with or without a slash or "/relay" at the
 * end.  All of these mean the same connector, so everything is derived from scheme, authority and
 * path.  A URL with credentials, a query or white space is refused with the reason. */
#include "options.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/json.h"
#include "base/mem.h"

/* ---- the URL ---- */

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

static const char *trouble_with_url(struct str authority, struct str rest)
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
    if ((*ret_why = trouble_with_url(authority, rest)) != NULL)
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

/* ---- options ---- */

static void set_default(int *option, int value)
{
    if (*option == 0)
        *option = value;
}

static void set_defaults(struct bhgw_options *o)
{
    set_default(&o->connect_timeout_ms, 10000);
    set_default(&o->handshake_timeout_ms, 30000);
    set_default(&o->request_timeout_ms, 30000);
    set_default(&o->idle_ack_timeout_ms, 10000);
    set_default(&o->ping_interval_ms, 20000);
    set_default(&o->backoff_min_ms, 1000);
    set_default(&o->backoff_max_ms, 30000);
    set_default(&o->token_ttl_s, 300);
    if (o->max_message_bytes == 0)
        o->max_message_bytes = (size_t)16 << 20;
    if (o->max_pending == 0)
        o->max_pending = 16384;
    if (o->max_pending_bytes == 0)
        o->max_pending_bytes = (size_t)64 << 20;
    if (o->dedup_ids == 0)
        o->dedup_ids = 16384;
    if (o->user_agent == NULL)
        o->user_agent = "bellhop-gateway/" BELLHOP_VERSION;
}

static bool is_header_text(const char *s)
{
    for (; *s != '\0'; s++)
        if ((unsigned char)*s < ' ' || (unsigned char)*s == 0x7f)
            return false;
    return true;
}

static bool is_manifest(const char *text)
{
    struct json_parser *p = json_parser_new();
    struct json doc;
    bool ok = json_parse(p, str_of(text), &doc) && json_type(doc) == JSON_ARRAY;

    json_parser_free(p);
    return ok;
}

static const char *trouble_with_identity(const struct bhgw_identity *id)
{
    if (id->platform == NULL || id->platform[0] == '\0')
        return "an identity has no platform";
    if (id->command_manifest == NULL)
        return NULL;
    if (strpbrk(id->command_manifest, "\r\n") != NULL || !is_manifest(id->command_manifest))
        return "a command_manifest is not a JSON array on one line";
    return NULL;
}

static const char *trouble_with(const struct bhgw_options *o)
{
    const int *const times[] = {&o->connect_timeout_ms, &o->handshake_timeout_ms,
                                &o->request_timeout_ms, &o->idle_ack_timeout_ms,
                                &o->ping_interval_ms,   &o->backoff_min_ms,
                                &o->backoff_max_ms,     &o->token_ttl_s};
    const char *why = NULL;

    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        if (*times[i] < 0)
            return "a time is negative";
    if (o->backoff_max_ms < o->backoff_min_ms)
        return "backoff_max_ms is smaller than backoff_min_ms";
    if (o->url == NULL)
        return "there is no url";
    if ((o->gateway_id == NULL) != (o->secret == NULL))
        return "gateway_id and secret belong together: one of them is missing";
    if (o->gateway_id != NULL && (o->gateway_id[0] == '\0' || o->secret[0] == '\0'))
        return "gateway_id and secret must not be empty";
    if (!is_header_text(o->user_agent))
        return "user_agent contains a control character";
    for (size_t i = 0; i < o->n_identities && why == NULL; i++)
        why = trouble_with_identity(&o->identities[i]);
    return why;
}

static const struct bhgw_identity *copy_identities(const struct bhgw_options *o, size_t *ret_n)
{
    size_t n = o->n_identities > 0 ? o->n_identities : 1;
    struct bhgw_identity *ids = xcalloc(n, sizeof *ids);

    for (size_t i = 0; i < n; i++) {
        const struct bhgw_identity relay = {.platform = PLATFORM_RELAY};
        const struct bhgw_identity *id = o->n_identities > 0 ? &o->identities[i] : &relay;
        ids[i].platform = xstrdup(id->platform);
        ids[i].bot_id = xstrdup(id->bot_id != NULL ? id->bot_id : "");
        ids[i].command_manifest = xstrdup(id->command_manifest);
    }
    *ret_n = n;
    return ids;
}

static const struct bhgw_policy *copy_policy(const struct bhgw_policy *from)
{
    if (from == NULL)
        return NULL;
    struct bhgw_policy *p = xcalloc(1, sizeof *p);
    const char **scopes = xcalloc(from->n_free_scopes + 1, sizeof *scopes);
    for (size_t i = 0; i < from->n_free_scopes; i++)
        scopes[i] = xstrdup(from->free_scopes[i]);
    *p = *from;
    p->free_scopes = scopes;
    return p;
}

static void free_policy(const struct bhgw_policy *p)
{
    for (size_t i = 0; p != NULL && i < p->n_free_scopes; i++)
        free((void *)(uintptr_t)p->free_scopes[i]);
    if (p != NULL)
        free((void *)(uintptr_t)p->free_scopes);
    free((void *)(uintptr_t)p);
}

const char *gwc_options_copy(struct bhgw_options *to, const struct bhgw_options *from)
{
    struct bhgw_options o = {0};

    if (from->struct_bytes < offsetof(struct bhgw_options, ctx))
        return "struct_bytes is not set: start from bhgw_options_init()";
    memcpy(&o, from, from->struct_bytes < sizeof o ? from->struct_bytes : sizeof o);
    o.struct_bytes = sizeof o;
    set_defaults(&o);
    const char *why = trouble_with(&o);
    if (why != NULL)
        return why;
    o.identities = copy_identities(&o, &o.n_identities);
    o.url = xstrdup(o.url);
    o.gateway_id = xstrdup(o.gateway_id);
    o.secret = xstrdup(o.secret);
    o.ca_file = xstrdup(o.ca_file);
    o.user_agent = xstrdup(o.user_agent);
    o.seen_file = xstrdup(o.seen_file);
    o.policy = copy_policy(o.policy);
    *to = o;
    return NULL;
}

void gwc_options_done(struct bhgw_options *o)
{
    for (size_t i = 0; i < o->n_identities; i++) {
        free((void *)(uintptr_t)o->identities[i].platform);
        free((void *)(uintptr_t)o->identities[i].bot_id);
        free((void *)(uintptr_t)o->identities[i].command_manifest);
    }
    free((void *)(uintptr_t)o->identities);
    free((void *)(uintptr_t)o->url);
    free((void *)(uintptr_t)o->gateway_id);
    bhgw_string_free((char *)(uintptr_t)o->secret);
    free((void *)(uintptr_t)o->ca_file);
    free((void *)(uintptr_t)o->user_agent);
    free((void *)(uintptr_t)o->seen_file);
    free_policy(o->policy);
    *o = (struct bhgw_options){0};
}
