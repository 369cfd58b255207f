/* Promises of core/jwt.h and of the RSA half of base/crypto.h.  Tokens of a foreign library are in
 * the end-to-end tests; here are the ones no library will make. */
#include "unit.h"
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/jwt.h"

#define NOW 1800000000

static EVP_PKEY *pkey;
static struct jwt_keys *keys;

static struct str pem_of(EVP_PKEY *k, BIO *bio)
{
    char *p;
    PEM_write_bio_PUBKEY(bio, k);
    long n = BIO_get_mem_data(bio, &p);
    return str_make(p, (size_t)n);
}

static int setup(void **state)
{
    BIO *bio = BIO_new(BIO_s_mem());
    pkey = EVP_RSA_gen(2048);
    keys = jwt_keys_new();
    assert_true(jwt_keys_add_pem(keys, pem_of(pkey, bio)));
    BIO_free(bio);
    return 0;
}
static int teardown(void **state)
{
    EVP_PKEY_free(pkey);
    jwt_keys_free(keys);
    return 0;
}

static void sign(struct buf *out, const char *header, const char *claims)
{
    uint8_t sig[512];
    size_t n = sizeof sig;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    base64url_add(out, header, strlen(header));
    buf_add_c(out, '.');
    base64url_add(out, claims, strlen(claims));
    assert_int_equal(EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, pkey), 1);
    assert_int_equal(EVP_DigestSign(ctx, sig, &n, (const uint8_t *)out->p, out->n), 1);
    EVP_MD_CTX_free(ctx);
    buf_add_c(out, '.');
    base64url_add(out, sig, n);
}

/* The verdict on a token with these parts; -1: it does not read. */
static int verdict(const char *header, const char *claims)
{
    struct buf token = BUF_INIT;
    struct jwt t;
    sign(&token, header, claims);
    int v = jwt_read(buf_str(&token), &t) ? (int)jwt_verify(&t, keys, NOW) : -1;
    jwt_done(&t);
    buf_done(&token);
    return v;
}
#define RS256 "{\"alg\":\"RS256\"}"

static void a_well_signed_token_is_believed_until_it_expires(void **state)
{
    assert_int_equal(verdict(RS256, "{\"exp\":1800000001}"), JWT_OK);
    assert_int_equal(verdict(RS256, "{\"exp\":1799999950}"), JWT_OK); /* skew */
    assert_int_equal(verdict(RS256, "{\"exp\":1799999940}"), JWT_EXPIRED);
    assert_int_equal(verdict(RS256, "{\"exp\":1800000000.5}"), JWT_OK);
    assert_int_equal(verdict(RS256, "{}"), JWT_NO_EXPIRY);
    assert_int_equal(verdict(RS256, "{\"exp\":\"1900000000\"}"), JWT_NO_EXPIRY);
    assert_int_equal(verdict(RS256, "{\"exp\":1900000000,\"nbf\":1800000061}"), JWT_EARLY);
    assert_int_equal(verdict(RS256, "{\"exp\":1900000000,\"nbf\":1800000060}"), JWT_OK);
    assert_int_equal(verdict(RS256, "{\"exp\":1900000000,\"nbf\":\"now\"}"), JWT_EARLY);
}

static void no_algorithm_but_rs256_is_tried(void **state)
{
    const char *const heads[] = {"{\"alg\":\"none\"}",    "{\"alg\":\"HS256\"}",
                                 "{\"alg\":\"RS512\"}",   "{\"alg\":\"rs256\"}",
                                 "{\"alg\":\"PS256\"}",   "{}",
                                 "{\"alg\":[\"RS256\"]}", "{\"alg\":\"RS256\",\"crit\":[\"exp\"]}"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        assert_int_equal(verdict(heads[i], "{\"exp\":1900000000}"), JWT_BAD_ALG);
}

static void a_changed_byte_anywhere_is_noticed(void **state)
{
    struct buf token = BUF_INIT;
    sign(&token, RS256, "{\"exp\":1900000000}");
    for (size_t i = 0; i < token.n; i++) {
        struct jwt t;
        char was = token.p[i];
        token.p[i] = was == 'A' ? 'B' : 'A';
        if (jwt_read(buf_str(&token), &t))
            /* the last character of a part carries bits that do not count */
            if (i + 1 != token.n && token.p[i + 1] != '.')
                assert_int_not_equal(jwt_verify(&t, keys, NOW), JWT_OK);
        jwt_done(&t);
        token.p[i] = was;
    }
    buf_done(&token);
}

static void nonsense_is_no_token(void **state)
{
    const char *const bad[] = {"",          ".",          "..",           "a.b",
                               "a.b.c.d",   "e30.e30",    "e30.e30.",     "!.!.!",
                               "e30..AAAA", "W10.W10.AA", "e30.bnVsbA.AA"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct jwt t;
        bool read = jwt_read(str_of(bad[i]), &t);
        assert_true(!read || jwt_verify(&t, keys, NOW) != JWT_OK);
        jwt_done(&t);
    }
    struct buf huge = BUF_INIT;
    for (int i = 0; i < JWT_MAX_BYTES + 1; i++)
        buf_add_c(&huge, 'A');
    struct jwt t;
    assert_false(jwt_read(buf_str(&huge), &t));
    jwt_done(&t);
    buf_done(&huge);
}

static void keys_that_are_too_small_or_no_rsa_are_not_taken(void **state)
{
    EVP_PKEY *const weak[] = {EVP_RSA_gen(1024), EVP_EC_gen("P-256")};
    for (size_t i = 0; i < ARRAY_LEN(weak); i++) {
        BIO *bio = BIO_new(BIO_s_mem());
        assert_null(rsa_key_from_pem(pem_of(weak[i], bio)));
        BIO_free(bio);
        EVP_PKEY_free(weak[i]);
    }
    assert_null(rsa_key_from_pem(STR("-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n")));
    assert_null(rsa_key_from_numbers(STR("abc"), STR("\x01\x00\x01")));
    assert_null(rsa_key_from_numbers(STR(""), STR("")));
}

static void an_audience_may_be_one_or_several(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json doc;
    assert_true(json_parse(p, STR("{\"aud\":\"a\"}"), &doc));
    assert_true(jwt_has_audience(doc, STR("a")) && !jwt_has_audience(doc, STR("A")));
    assert_true(json_parse(p, STR("{\"aud\":[\"b\",7,\"a\"]}"), &doc));
    assert_true(jwt_has_audience(doc, STR("a")) && !jwt_has_audience(doc, STR("7")));
    assert_true(json_parse(p, STR("{\"aud\":{\"a\":1}}"), &doc));
    assert_false(jwt_has_audience(doc, STR("a")));
    json_parser_free(p);
}

UNIT(core_test_jwt)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_well_signed_token_is_believed_until_it_expires),
        cmocka_unit_test(no_algorithm_but_rs256_is_tried),
        cmocka_unit_test(a_changed_byte_anywhere_is_noticed),
        cmocka_unit_test(nonsense_is_no_token),
        cmocka_unit_test(keys_that_are_too_small_or_no_rsa_are_not_taken),
        cmocka_unit_test(an_audience_may_be_one_or_several),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
