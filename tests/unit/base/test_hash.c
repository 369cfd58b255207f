/* Promises of base/hash.h.  OpenSSL's SipHash is the second opinion for every length. */
#include "unit.h"
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include "base/hash.h"

/* The key of the published vectors: bytes 00 01 .. 0f. */
static const struct hash_key published = {0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};

static void openssl_siphash(const struct hash_key *key, unsigned c, unsigned d, struct str s,
                            uint8_t *ret, size_t n)
{
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    size_t got = 0;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &n),
                           OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_C_ROUNDS, &c),
                           OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_D_ROUNDS, &d),
                           OSSL_PARAM_construct_end()};

    assert_int_equal(EVP_MAC_init(ctx, (const uint8_t *)key, sizeof *key, params), 1);
    assert_int_equal(EVP_MAC_update(ctx, (const uint8_t *)s.p, s.n), 1);
    assert_int_equal(EVP_MAC_final(ctx, ret, &got, n), 1);
    assert_int_equal(got, n);
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
}

static void the_published_vectors_come_out(void **state)
{
    static const char in[15] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    struct hash128 wide = hash128(&published, STR(""));

    assert_true(hash64(&published, STR("")) == 0x726fdb47dd0e0e31ULL);
    assert_true(hash64(&published, str_make(in, 15)) == 0xa129ca6149be45e5ULL);
    assert_true(wide.lo == 0xe6a825ba047f81a3ULL && wide.hi == 0x930255c71472f66dULL);
}

static void every_length_agrees_with_openssl(void **state)
{
    char in[260];
    uint8_t want64[8], want128[16], want_brief[8];

    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (char)(i * 7 + 1);
    for (size_t n = 0; n <= sizeof in; n++) {
        uint64_t h = hash64(&published, str_make(in, n));
        struct hash128 w = hash128(&published, str_make(in, n));
        uint64_t brief = hash64_brief(&published, str_make(in, n));
        openssl_siphash(&published, 2, 4, str_make(in, n), want64, sizeof want64);
        openssl_siphash(&published, 2, 4, str_make(in, n), want128, sizeof want128);
        openssl_siphash(&published, 1, 3, str_make(in, n), want_brief, sizeof want_brief);
        assert_memory_equal(&brief, want_brief, sizeof brief);
        assert_memory_equal(&h, want64, sizeof h);
        assert_memory_equal(&w, want128, sizeof w);
    }
}

static void the_absent_string_hashes_like_the_empty_one(void **state)
{
    assert_true(hash64(&published, STR_NULL) == hash64(&published, STR("")));
}

static void another_key_gives_another_hash(void **state)
{
    struct hash_key other = {published.k0, published.k1 ^ 1};

    assert_true(hash64(&published, STR("abc")) != hash64(&other, STR("abc")));
}

static void the_process_key_is_made_once_and_can_be_fixed(void **state)
{
    const struct hash_key *key = hash_process_key();

    assert_true(key->k0 != 0 || key->k1 != 0);
    assert_ptr_equal(key, hash_process_key());
    hash_set_process_key(published);
    assert_true(hash_process_key()->k0 == published.k0 && hash_process_key()->k1 == published.k1);
}

UNIT(base_test_hash)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vectors_come_out),
        cmocka_unit_test(every_length_agrees_with_openssl),
        cmocka_unit_test(the_absent_string_hashes_like_the_empty_one),
        cmocka_unit_test(another_key_gives_another_hash),
        cmocka_unit_test(the_process_key_is_made_once_and_can_be_fixed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
