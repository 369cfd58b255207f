/* http_settings.h - what of the HTTP server the operator may set. */
#pragma once
#include <stdbool.h>

struct config_section;
struct http_server;

struct http_settings {      /* owned by the config */
    char **hosts;           /* names to answer to beside our own */
    char **trusted_proxies; /* "10.0.0.0/8", "::1", "unix" */
    bool proxy_protocol;    /* on the public listener */
};
extern const struct config_section http_config;

/* Take over what may change while running.  @listen and @public_url (NULL: none) say by which names
 * we call ourselves. */
void http_settings_apply(struct http_server *s, const struct http_settings *hs, const char *listen,
                         const char *public_url);
