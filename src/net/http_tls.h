/* http_tls.h - what the operator says about TLS, and how it looks from outside.
 *
 * The files are read when the listener opens and whenever the configuration is: connections made
 * before keep the certificate they were shown. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct config_section;

enum http_client_certs { /* who must show a certificate signed by client_ca */
                         CLIENT_CERTS_ALL,
                         CLIENT_CERTS_GATEWAYS, /* others may; see http_lacks_client_cert() */
};

struct http_tls {      /* owned by the config; PEM files */
    char *cert, *key;  /* both or neither; NULL: plain */
    char *min_version; /* "1.2" or "1.3"; NULL is 1.2 */
    char *ciphers;     /* OpenSSL's names and lists, ':' between; NULL: the defaults below */
    char *client_ca;   /* NULL: nobody is asked for a certificate */
    int client_certs;  /* enum http_client_certs */
};
extern const struct config_section tls_config;

/* What is wrong with it, or how long it is good: seconds since 1970 when the certificate ends.
 * @ret_why has 256 bytes. */
enum bh_err http_tls_look(const struct http_tls *tls, int64_t *ret_until_s,
                          char *ret_why) BH_MUST_USE;
