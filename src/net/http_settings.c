/* http_settings.c - see http_settings.h. */
#include "net/http_settings.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/mem.h"
#include "net/addr.h"
#include "net/http_server.h"

#define AT(member) offsetof(struct http_settings, member)

static const struct config_key keys[] = {
    {"hosts", CFG_TEXTS, CFG_RELOAD, AT(hosts),
     .what =
         "Names to answer to, beside the one in `public_url`, `localhost` and addresses: "
         "`[bellhop, \"*.example.org\"]`. Requests by another name are 421, so that no web page "
         "can point its own name here; `\"*\"` answers to any."},
    {"trusted_proxies", CFG_TEXTS, CFG_RELOAD, AT(trusted_proxies),
     .what = "Addresses and networks of proxies in front, `[127.0.0.1, 10.0.0.0/8, unix]`: their "
             "`X-Forwarded-For` says who a client is. Nobody else's is believed."},
    {"proxy_protocol", CFG_BOOL, CFG_RESTART, AT(proxy_protocol), "false",
     .what =
         "Expect the PROXY protocol, version 2, on `listen`; only `trusted_proxies` may connect "
         "then."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    struct http_settings *hs = settings;
    struct addr_net net;

    for (char **p = hs->trusted_proxies; p != NULL && *p != NULL; p++) {
        if (!addr_net_parse(str_of(*p), &net)) {
            snprintf(ret_why, 256,
                     "trusted_proxies: expected an address, a network such as 10.0.0.0/8, or unix, "
                     "found \"%.60s\"",
                     *p);
            return false;
        }
    }
    if (hs->proxy_protocol && hs->trusted_proxies == NULL) {
        snprintf(ret_why, 256, "proxy_protocol: needs trusted_proxies, or nobody could connect");
        return false;
    }
    return true;
}

const struct config_section http_config = {.keys = keys,
                                           .size = sizeof(struct http_settings),
                                           .check = check};

/* The host of "https://host:1/path" or "host:1". */
static char *host_of(const char *url)
{
    struct str s = str_of(url);
    size_t n = 0;

    for (size_t i = 0; i + 2 < s.n; i++) {
        if (memcmp(s.p + i, "://", 3) == 0) {
            s = str_skip(s, i + 3);
            break;
        }
    }
    while (n < s.n && s.p[n] != '/' && s.p[n] != ':' && s.p[n] != '?')
        n++;
    return str_dup(str_make(s.p, n));
}

static void apply_names(struct http_server *s, const struct http_settings *hs, const char *listen,
                        const char *public_url)
{
    size_t n = 0, given = 0;
    const char **names;
    char *own[2] = {NULL, NULL};

    while (hs->hosts != NULL && hs->hosts[given] != NULL)
        given++;
    names = xcalloc(given + 3, sizeof *names);
    for (; n < given; n++)
        names[n] = hs->hosts[n];
    if (public_url != NULL)
        names[n++] = own[0] = host_of(public_url);
    if (!str_starts(str_of(listen), STR("unix:")) && listen[0] != '[')
        names[n++] = own[1] = host_of(listen);
    http_server_answer_to(s, names);
    free(names);
    free(own[0]);
    free(own[1]);
}

void http_settings_apply(struct http_server *s, const struct http_settings *hs, const char *listen,
                         const char *public_url)
{
    struct addr_net *nets;
    size_t n = 0;

    while (hs->trusted_proxies != NULL && hs->trusted_proxies[n] != NULL)
        n++;
    nets = xcalloc(n + 1, sizeof *nets);
    for (size_t i = 0; i < n; i++)
        (void)addr_net_parse(str_of(hs->trusted_proxies[i]), &nets[i]); /* checked when read */
    http_server_trust(s, nets, n);
    free(nets);
    apply_names(s, hs, listen, public_url);
}
