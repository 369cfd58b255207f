/* http_tls.c - see http_tls.h. */
#include "net/http_tls.h"
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <stdio.h>
#include "base/buf.h"
#include "base/config.h"
#include "net/conn.h"
#include "net/edges.h"

/* TLS 1.2 ciphers with forward secrecy and authenticated encryption; TLS 1.3 has only such. */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"
#define AT(member) offsetof(struct http_tls, member)

static const struct config_key keys[] = {
    {"tls.cert", CFG_TEXT, CFG_RELOAD, AT(cert),
     .what = "PEM file with the certificate chain; with `tls.key` the listener speaks TLS. A "
             "reload reads the files again. Turning TLS on or off needs a restart."},
    {"tls.key", CFG_TEXT, CFG_RELOAD, AT(key), .what = "PEM file with the private key."},
    {"tls.min_version", CFG_CHOICE, CFG_RELOAD, AT(min_version), "1.2", "1.2|1.3",
     .what = "The oldest TLS version that is accepted."},
    {"tls.ciphers", CFG_TEXT, CFG_RELOAD, AT(ciphers),
     .what = "Cipher suites by OpenSSL's names, `:` between them; those that begin with `TLS_` are "
             "of TLS 1.3. A version of which none is named keeps its default: `" CIPHERS
             "` and all of 1.3."},
    {"tls.client_ca", CFG_TEXT, CFG_RELOAD, AT(client_ca),
     .what = "PEM file with the certificate authorities that must have signed the certificates of "
             "clients."},
    {"tls.client_certs", CFG_ENUM, CFG_RELOAD, AT(client_certs), "all", "all|gateways",
     .what = "Which clients need a certificate: `all`, or only `gateways` (`/relay`), when "
             "platforms and browsers use the same listener."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct http_tls *t = settings;

    if ((t->cert == NULL) != (t->key == NULL))
        return bh_why(ret_why, "tls: cert and key are needed together");
    if (t->cert == NULL && t->client_ca != NULL)
        return bh_why(ret_why, "tls: client_ca needs cert and key");
    return true;
}

const struct config_section tls_config = {.keys = keys,
                                          .size = sizeof(struct http_tls),
                                          .check = check};

/* ---- from files to a context ---- */

static bool BH_PRINTF(2, 3) say(char *ret_why, const char *fmt, ...)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(ret_why, 256, fmt, args);
    va_end(args);
    if (n < 256)
        snprintf(ret_why + n, 256 - (size_t)n, ": %s", reason != NULL ? reason : "unknown reason");
    return false;
}

/* Refuses keys with a passphrase: a server cannot prompt for one. */
static int no_passphrase(char *buf, int size, int rwflag, void *ctx)
{
    return 0;
}

static bool set_files(SSL_CTX *ctx, const struct http_tls *tls, char *ret_why)
{
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(ctx, tls->cert) != 1)
        return say(ret_why, "cannot use the certificate %.120s", tls->cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, tls->key, SSL_FILETYPE_PEM) != 1)
        return say(ret_why, "cannot use the key %.120s", tls->key);
    return true;
}

/* One line of names for two settings of OpenSSL. */
static bool set_ciphers(SSL_CTX *ctx, const char *names, char *ret_why)
{
    struct buf old = BUF_INIT, new = BUF_INIT;
    struct str rest = str_of(names), name;
    bool ok;

    while (names != NULL && str_split(&rest, ':', &name)) {
        struct buf *to = str_starts(name, STR("TLS_")) ? &new : &old;
        buf_printf(to, "%s%.*s", to->n > 0 ? ":" : "", STR_FMT(name));
    }
    ok = SSL_CTX_set_cipher_list(ctx, old.n > 0 ? buf_z(&old) : CIPHERS) == 1 &&
         (new.n == 0 || SSL_CTX_set_ciphersuites(ctx, buf_z(&new)) == 1);
    if (!ok)
        say(ret_why, "tls.ciphers: \"%.120s\"", names);
    buf_done(&old);
    buf_done(&new);
    return ok;
}

static bool set_client_ca(SSL_CTX *ctx, const struct http_tls *tls, char *ret_why)
{
    static const unsigned char sessions[] = "bellhop";
    bool all = tls->client_certs == CLIENT_CERTS_ALL;
    STACK_OF(X509_NAME) *names = NULL;

    if (tls->client_ca == NULL)
        return true;
    names = SSL_load_client_CA_file(tls->client_ca);
    if (names == NULL || SSL_CTX_load_verify_file(ctx, tls->client_ca) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return say(ret_why, "tls.client_ca: cannot use %.120s", tls->client_ca);
    }
    SSL_CTX_set_client_CA_list(ctx, names); /* takes them over */
    SSL_CTX_set_session_id_context(ctx, sessions, sizeof sessions - 1);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | (all ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), NULL);
    return true;
}

enum bh_err http_tls_context(const struct http_tls *tls, SSL_CTX **ret_ctx, char *ret_why)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    bool only_new = tls->min_version != NULL && strcmp(tls->min_version, "1.3") == 0;

    if (ctx == NULL)
        return bh_err_why(BH_REFUSED, ret_why, "no memory for TLS");
    ERR_clear_error();
    SSL_CTX_set_min_proto_version(ctx, only_new ? TLS1_3_VERSION : TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    bool ok = set_files(ctx, tls, ret_why) && set_ciphers(ctx, tls->ciphers, ret_why) &&
              set_client_ca(ctx, tls, ret_why);
    ERR_clear_error();
    if (!ok) {
        SSL_CTX_free(ctx);
        return BH_REFUSED;
    }
    *ret_ctx = ctx;
    return BH_OK;
}

/* ---- looking at it ---- */

static int64_t ends_s(const SSL_CTX *ctx)
{
    const X509 *cert = SSL_CTX_get0_certificate(ctx);
    struct tm tm;

    if (cert == NULL || ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1)
        return 0;
    return (int64_t)timegm(&tm);
}

enum bh_err http_tls_look(const struct http_tls *tls, int64_t *ret_until_s, char *ret_why)
{
    SSL_CTX *ctx = NULL;
    enum bh_err err = http_tls_context(tls, &ctx, ret_why);

    if (err == BH_OK)
        *ret_until_s = ends_s(ctx);
    SSL_CTX_free(ctx);
    return err;
}

static void renew_like(struct http_server *s, void *ctx)
{
    list_each (&s->listeners, it, next) {
        struct listener *l = list_entry(it, struct listener, link);
        if (l->tls == NULL)
            continue;
        SSL_CTX_free(l->tls);
        l->tls = ctx;
        SSL_CTX_up_ref(ctx);
    }
}

enum bh_err http_server_renew_tls(struct http_server *s, const struct http_tls *tls, char *ret_why)
{
    SSL_CTX *ctx = NULL;
    enum bh_err err = http_tls_context(tls, &ctx, ret_why);

    if (err != BH_OK)
        return err;
    renew_like(s, ctx);
    if (s->edges != NULL)
        edges_each(s->edges, renew_like, ctx);
    SSL_CTX_free(ctx);
    return BH_OK;
}

bool conn_lacks_cert(const struct conn *c)
{
    return c->no_cert || (c->ssl != NULL && (SSL_get_verify_mode(c->ssl) & SSL_VERIFY_PEER) != 0 &&
                          SSL_get0_peer_certificate(c->ssl) == NULL);
}

bool http_lacks_client_cert(const struct http_req *r)
{
    return conn_lacks_cert(r->conn);
}
