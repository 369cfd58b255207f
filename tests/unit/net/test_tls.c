/* TLS end to end: the server's, seen by the HTTP and the WebSocket client. */
#include "net/net_test.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "net/http_client.h"
#include "net/http_server.h"
#include "net/http_tls.h"
#include "net/ws.h"
#include "net/ws_client.h"

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    char dir[32], cert[64], key[64], url[96];
    struct http_id later;
    int requests, done, opened, messages, closed, code;
    enum bh_err err;
    struct buf body, collected; /* owned */
    struct ws *peer;
    struct ws_client *ws;
};

/* ---- a certificate of our own ---- */

static void add_extension(X509 *x, int nid, const char *value)
{
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    assert_non_null(e);
    X509_add_ext(x, e, -1);
    X509_EXTENSION_free(e);
}

static void write_certificate(const char *cert_path, const char *key_path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    X509_NAME *name = X509_get_subject_name(x);
    FILE *out;

    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_set_pubkey(x, key);
    add_extension(x, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
    add_extension(x, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    out = fopen(cert_path, "w");
    PEM_write_X509(out, x);
    fclose(out);
    out = fopen(key_path, "w");
    PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL);
    fclose(out);
    X509_free(x);
    EVP_PKEY_free(key);
}

/* ---- the server ---- */

static void peer_data(void *ctx, struct str bytes, bool end)
{
    struct fixture *f = ctx;

    buf_add_str(&f->collected, bytes);
    if (end) {
        ws_send(f->peer, buf_str(&f->collected));
        buf_reset(&f->collected);
    }
}

static void peer_closed(void *ctx, int code)
{
    struct fixture *f = ctx;
    f->peer = NULL;
}

static const struct ws_handlers peer_handlers = {.max_message = 4 << 20,
                                                 .max_queued = 8 << 20,
                                                 .on_data = peer_data,
                                                 .on_closed = peer_closed};

static void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;

    f->requests++;
    assert_true(http_is_tls(r));
    if (http_is_upgrade(r))
        f->peer = ws_accept(f->server, r, &peer_handlers, f);
    else if (str_eq(http_path(r), STR("/later")))
        f->later = http_req_id(r);
    else
        http_answer(f->server, http_req_id(r),
                    &(struct http_answer){.status = 200, .body = http_body(r)});
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct http_tls tls = {.cert = f->cert, .key = f->key};
    struct http_limits limits = {.head_ms = 2000, .body_bytes = 2 << 20};
    char why[256];

    strcpy(f->dir, "/tmp/bellhop-tls-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->cert, sizeof f->cert, "%s/cert.pem", f->dir);
    snprintf(f->key, sizeof f->key, "%s/key.pem", f->dir);
    write_certificate(f->cert, f->key);
    f->loop = loop_new();
    f->server = http_server_new(f->loop, &limits, handler, f);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), &tls, 0, why), BH_OK);
    f->client = http_client_new(f->loop);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    ws_client_free(f->ws);
    http_client_free(f->client);
    http_server_free(f->server);
    loop_free(f->loop);
    unlink(f->cert);
    unlink(f->key);
    rmdir(f->dir);
    buf_done(&f->body);
    buf_done(&f->collected);
    free(f);
    return 0;
}

static const char *url_of(struct fixture *f, const char *scheme, const char *path)
{
    snprintf(f->url, sizeof f->url, "%s://127.0.0.1:%d%s", scheme, http_server_port(f->server),
             path);
    return f->url;
}

static void on_done(void *ctx, const struct http_result *r)
{
    struct fixture *f = ctx;

    f->done++;
    f->err = r->err;
    buf_reset(&f->body);
    buf_add_str(&f->body, r->body);
}

static void bodies_of_every_size_are_echoed(void **state)
{
    static const size_t sizes[] = {1, 200, 16384, 16385, 70000, 2 << 20};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char *body = xmalloc(sizes[i]);
        memset(body, (int)('a' + i), sizes[i]);
        f->done = 0;
        (void)!http_fetch(f->client,
                          &(struct http_fetch){.url = url_of(f, "https", "/echo"),
                                               .method = "POST",
                                               .body = str_make(body, sizes[i]),
                                               .ca_path = f->cert},
                          on_done, f);
        assert_true(loop_until(f->loop, &f->done));
        assert_int_equal(f->err, BH_OK);
        assert_int_equal(f->body.n, sizes[i]);
        assert_memory_equal(f->body.p, body, sizes[i]);
        free(body);
    }
}

static void a_certificate_nobody_vouches_for_is_refused_by_the_clients(void **state)
{
    struct fixture *f = *state;

    (void)!http_fetch(f->client, &(struct http_fetch){.url = url_of(f, "https", "/")}, on_done, f);
    assert_true(loop_until(f->loop, &f->done));
    assert_int_equal(f->err, BH_UNAVAILABLE);
    assert_int_equal(f->requests, 0);
}

/* ---- a raw TLS client, which can pipeline ---- */

struct tls_raw {
    struct raw raw;
    SSL_CTX *ctx;
    SSL *ssl;
    struct buf got;
    bool eof;
};

static void tls_poll(struct tls_raw *t)
{
    char bytes[20000];
    int n;

    while ((n = SSL_read(t->ssl, bytes, sizeof bytes)) > 0)
        buf_add(&t->got, bytes, (size_t)n);
    if (SSL_get_error(t->ssl, n) != SSL_ERROR_WANT_READ)
        t->eof = true;
}

static bool tls_wait(struct fixture *f, struct tls_raw *t, const char *text)
{
    int64_t until = test_now_ms() + 5000;

    while (!str_contains(buf_str(&t->got), str_of(text)) && !t->eof && test_now_ms() < until) {
        loop_turn(f->loop, 2);
        tls_poll(t);
    }
    return str_contains(buf_str(&t->got), str_of(text));
}

static void tls_open(struct fixture *f, struct tls_raw *t)
{
    *t = (struct tls_raw){.raw = raw_connect(f->loop, http_server_port(f->server))};
    t->ctx = SSL_CTX_new(TLS_client_method());
    t->ssl = SSL_new(t->ctx);
    SSL_set_fd(t->ssl, t->raw.fd);
    SSL_set_connect_state(t->ssl);
    for (int i = 0; i < 1000 && SSL_do_handshake(t->ssl) != 1; i++)
        loop_turn(f->loop, 2);
    assert_true(SSL_is_init_finished(t->ssl));
}

static void tls_close(struct tls_raw *t)
{
    SSL_free(t->ssl);
    SSL_CTX_free(t->ctx);
    raw_close(&t->raw);
    buf_done(&t->got);
}

static void pipelined_requests_inside_one_record_are_all_answered(void **state)
{
    struct fixture *f = *state;
    struct tls_raw t;
    struct buf req = BUF_INIT;

    tls_open(f, &t);
    buf_add_z(&req, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 100; i++)
        buf_add_z(&req, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnext");
    buf_add_z(&req, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nlast");
    assert_int_equal(SSL_write(t.ssl, req.p, (int)req.n), req.n);
    loop_turns(f->loop, 10);
    assert_int_equal(f->requests, 1);
    http_answer(f->server, f->later, &(struct http_answer){.status = 200, .body = STR("first")});
    assert_true(tls_wait(f, &t, "last"));
    assert_int_equal(f->requests, 102);
    buf_done(&req);
    tls_close(&t);
}

static void a_request_sent_while_another_is_handled_is_read_afterwards(void **state)
{
    struct fixture *f = *state;
    struct tls_raw t;

    tls_open(f, &t);
    assert_int_equal(SSL_write(t.ssl, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n", 32), 32);
    loop_turns(f->loop, 10);
    assert_int_equal(SSL_write(t.ssl, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n",
                               47),
                     47);
    loop_turns(f->loop, 10);
    assert_int_equal(SSL_write(t.ssl, "ok", 2), 2);
    loop_turns(f->loop, 10);
    http_answer(f->server, f->later, &(struct http_answer){.status = 200, .body = STR("first")});
    assert_true(tls_wait(f, &t, "\r\n\r\nok"));
    tls_close(&t);
}

static void plain_text_and_silence_are_cut_off(void **state)
{
    struct fixture *f = *state;
    struct raw plain = raw_connect(f->loop, http_server_port(f->server));
    struct raw silent = raw_connect(f->loop, http_server_port(f->server));

    raw_send_z(&plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait_eof(&plain));
    assert_true(raw_wait_eof(&silent));
    assert_int_equal(f->requests, 0);
    raw_close(&plain);
    raw_close(&silent);
}

static void unusable_certificates_are_explained(void **state)
{
    struct fixture *f = *state;
    char other_cert[64], other_key[64], missing[64], why[256] = "";

    snprintf(other_cert, sizeof other_cert, "%s/c2.pem", f->dir);
    snprintf(other_key, sizeof other_key, "%s/k2.pem", f->dir);
    snprintf(missing, sizeof missing, "%s/missing.pem", f->dir);
    write_certificate(other_cert, other_key);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"),
                                        &(struct http_tls){.cert = missing, .key = f->key}, 0, why),
                     BH_REFUSED);
    assert_non_null(strstr(why, missing));
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"),
                                        &(struct http_tls){.cert = f->cert, .key = other_key}, 0,
                                        why),
                     BH_REFUSED);
    assert_non_null(strstr(why, other_key));
    unlink(other_cert);
    unlink(other_key);
}

/* ---- WebSocket over TLS ---- */

static void on_open(void *ctx)
{
    ((struct fixture *)ctx)->opened++;
}

static void on_message(void *ctx, struct str message, bool text)
{
    struct fixture *f = ctx;

    f->messages++;
    buf_reset(&f->body);
    buf_add_str(&f->body, message);
}

static void on_closed(void *ctx, int code, const char *why)
{
    struct fixture *f = ctx;

    f->closed++;
    f->code = code;
    f->ws = NULL;
}

static const struct ws_client_handlers ws_handlers = {on_open, on_message, on_closed};

static void a_websocket_works_over_tls(void **state)
{
    static const size_t sizes[] = {5, 126, 16384, 65536, 3000000};
    struct fixture *f = *state;

    f->ws = ws_client_open(f->loop,
                           &(struct ws_client_options){.url = url_of(f, "wss", "/ws"),
                                                       .ca_path = f->cert},
                           &ws_handlers, f);
    assert_true(loop_until(f->loop, &f->opened));
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char *text = xmalloc(sizes[i]);
        memset(text, (int)('a' + i), sizes[i]);
        f->messages = 0;
        ws_client_send(f->ws, str_make(text, sizes[i]));
        assert_true(loop_until(f->loop, &f->messages));
        assert_int_equal(f->body.n, sizes[i]);
        assert_memory_equal(f->body.p, text, sizes[i]);
        free(text);
    }
    ws_close(f->peer, 4001, "enough");
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 4001);
}

static void a_websocket_checks_the_certificate(void **state)
{
    struct fixture *f = *state;

    f->ws = ws_client_open(f->loop, &(struct ws_client_options){.url = url_of(f, "wss", "/ws")},
                           &ws_handlers, f);
    assert_true(loop_until(f->loop, &f->closed));
    assert_int_equal(f->code, 0);
    assert_int_equal(f->opened, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(net_test_tls)
{
    const struct CMUnitTest tests[] = {
        T(bodies_of_every_size_are_echoed),
        T(a_certificate_nobody_vouches_for_is_refused_by_the_clients),
        T(pipelined_requests_inside_one_record_are_all_answered),
        T(a_request_sent_while_another_is_handled_is_read_afterwards),
        T(plain_text_and_silence_are_cut_off),
        T(unusable_certificates_are_explained),
        T(a_websocket_works_over_tls),
        T(a_websocket_checks_the_certificate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
