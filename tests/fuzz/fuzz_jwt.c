/* Signed tokens and the keys they name: a line with a JWKS document, then a token, as it comes or
 * as its parts in plain, a line each.  Nothing that was not signed is believed, whatever the header
 * says, and whatever keys are read can be used. */
#include <stdlib.h>
#include "base/crypto.h"
#include "core/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Nobody has the other half of this one. */
static const char public_key[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAtVoH0wMLM5OPu7JH4uWm\n"
    "34/8R8Q28bWn2uuEh8Oy1brtvBoci7Suj/eBzO/mYbwnzuAPGy2GH/ybMLQAjsuE\n"
    "4HzifJ+RtxYjp+Hhd4wf4yyEhoyAaSNnkmLfZ9asGM0Q+epNVNQoIi6T82ClpfH+\n"
    "1spSzIpPs1QsKHIowCPNi/W7BRU/je9b/RCcHCWbKChl9WVc9UfnEqxm+eE3j53i\n"
    "FQEOm1Ky3ZyAe8F+qtFFiH5GjkLxRNMEXTM7AeWMjcsEqTbcIavG3zctCpUOw99L\n"
    "hfWJe1MiFDqFDGNekihsVXJ6Rh1Bs066I16i7+rjHnYwKFCWfyvOsCmYGukXV4ny\n"
    "pQIDAQAB\n"
    "-----END PUBLIC KEY-----\n";

static void try_token(struct str text, const struct jwt_keys *ours, const struct jwt_keys *theirs)
{
    struct jwt t;

    if (jwt_read(text, &t)) {
        if (jwt_verify(&t, ours, 1782000000) == JWT_OK)
            abort();
        (void)jwt_verify(&t, theirs, 1782000000);
        (void)jwt_has_audience(t.claims, STR("bellhop"));
    }
    jwt_done(&t);
}

/* "header \n claims \n signature" as a token, so that the fuzzer need not discover base 64. */
static void try_parts(struct str rest, const struct jwt_keys *ours, const struct jwt_keys *theirs)
{
    struct buf text = BUF_INIT;
    struct str part;

    while (str_split(&rest, '\n', &part)) {
        base64url_add(&text, part.p, part.n);
        if (rest.p != NULL)
            buf_add_c(&text, '.');
    }
    try_token(buf_str(&text), ours, theirs);
    buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct jwt_keys *ours;
    static struct json_parser *parser;
    struct str rest = str_make(data, size), jwks;
    struct jwt_keys *theirs = jwt_keys_new();
    struct json doc;

    if (ours == NULL) {
        ours = jwt_keys_new();
        parser = json_parser_new();
        if (!jwt_keys_add_pem(ours, str_of(public_key)))
            abort();
    }
    str_split(&rest, '\n', &jwks);
    if (json_parse(parser, jwks, &doc) && jwt_keys_set_jwks(theirs, doc) != jwt_keys_count(theirs))
        abort();
    (void)jwt_keys_add_pem(theirs, rest);
    try_token(rest, ours, theirs);
    try_parts(rest, ours, theirs);
    jwt_keys_free(theirs);
    return 0;
}
