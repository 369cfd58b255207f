/* http_tls.h - the TLS settings of the server, and a check of its certificate.
 *
 * The server reads the files when a listener opens and at every reload of the configuration.
 * Existing connections keep the certificate they were shown. */
#pragma once
#include <stdint.h>
#include "base/err.h"

enum http_client_certs { /* which clients must show a certificate signed by client_ca */
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

/* Check the files: BH_OK with the certificate's expiry (seconds since 1970), else @ret_why (256
 * bytes) says what is wrong. */
enum bh_err http_tls_look(const struct http_tls *tls, int64_t *ret_until_s,
                          char *ret_why) BH_MUST_USE;
