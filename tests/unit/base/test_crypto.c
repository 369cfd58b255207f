/* Promises of base/crypto.h.  The MAC and hash values are those of RFC 4231, RFC 2202 and FIPS 180;
 * the base64 ones of RFC 4648. */
#include "unit.h"
#include <openssl/hmac.h>
#include "base/crypto.h"
#include "base/mem.h"

static struct buf out;

static int setup(void **state)
{
    out = BUF_INIT;
    return 0;
}

static int teardown(void **state)
{
    buf_done(&out);
    return 0;
}

static void expect_hex(const void *p, size_t n, const char *want)
{
    buf_reset(&out);
    hex_add(&out, p, n);
    assert_string_equal(buf_z(&out), want);
}

static void hashes_match_their_standards(void **state)
{
    uint8_t mac[SHA256_BYTES];

    sha256(STR("abc"), mac);
    expect_hex(mac, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256(STR_NULL, mac);
    expect_hex(mac, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hmac_sha256(STR("Jefe"), STR("what do ya want for nothing?"), mac);
    expect_hex(mac, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    hmac_sha1(STR("Jefe"), STR("what do ya want for nothing?"), mac);
    expect_hex(mac, 20, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
}

static void a_mac_takes_any_key_length_and_forgets_it(void **state)
{
    char key[131];
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];

    memset(key, 0xaa, sizeof key);
    hmac_sha256(str_make(key, sizeof key),
                STR("Test Using Larger Than Block-Size Key - Hash Key First"), a);
    expect_hex(a, 32, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    hmac_sha256(STR_NULL, STR_NULL, a);
    expect_hex(a, 32, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
    hmac_sha256(STR("k1"), STR("m"), a);
    hmac_sha256(STR("k2"), STR("m"), b);
    assert_false(ct_equal(a, b, sizeof a));
    hmac_sha256(STR("k1"), STR("m"), b);
    assert_true(ct_equal(a, b, sizeof a));
    assert_true(ct_equal(NULL, NULL, 0));
}

static void macs_of_all_key_lengths_agree_with_openssl(void **state)
{
    uint8_t text[200], got[SHA256_BYTES], want[SHA256_BYTES];
    unsigned n = 0;

    memset(text, 0x5a, sizeof text);
    for (size_t k = 0; k < sizeof text; k++) {
        text[k] = (uint8_t)k;
        hmac_sha256(str_make(text, k), str_make(text, sizeof text - k), got);
        assert_non_null(HMAC(EVP_sha256(), text, (int)k, text, sizeof text - k, want, &n));
        assert_memory_equal(got, want, 32);
        hmac_sha1(str_make(text, k), str_make(text, sizeof text - k), got);
        assert_non_null(HMAC(EVP_sha1(), text, (int)k, text, sizeof text - k, want, &n));
        assert_memory_equal(got, want, 20);
    }
}

static void hex_goes_both_ways_and_refuses_the_rest(void **state)
{
    static const char *const bad[] = {"",     "0",      "012",
                                      "0g",   "g0",     "0x12",
                                      "12 4", "123456", "\xb1\xb2\xb3\xb4"};
    uint8_t bytes[2] = {9, 9};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(hex_decode(str_of(bad[i]), bytes, 2));
    assert_true(bytes[0] == 9 && bytes[1] == 9);
    assert_true(hex_decode(STR("aBfF"), bytes, 2));
    assert_true(bytes[0] == 0xab && bytes[1] == 0xff);
    assert_true(hex_decode(STR(""), bytes, 0));
}

static void base64_goes_both_ways(void **state)
{
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};

    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        buf_reset(&out);
        base64_add(&out, pairs[i][0], strlen(pairs[i][0]));
        assert_string_equal(buf_z(&out), pairs[i][1]);
        buf_reset(&out);
        assert_true(base64_decode(str_of(pairs[i][1]), &out));
        assert_string_equal(buf_z(&out), pairs[i][0]);
        buf_reset(&out);
        assert_true(base64url_decode(str_of(pairs[i][1]), &out));
        assert_string_equal(buf_z(&out), pairs[i][0]);
    }
    buf_reset(&out);
    base64url_add(&out, "\xfb\xff\xfe\xff", 4);
    assert_string_equal(buf_z(&out), "-__-_w");
    buf_reset(&out);
    base64_add(&out, "\xfb\xff\xfe\xff", 4);
    assert_string_equal(buf_z(&out), "+//+/w==");
}

static void all_bytes_survive_base64url(void **state)
{
    uint8_t in[256];

    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * 181);
    for (size_t n = 0; n <= sizeof in; n++) {
        struct buf text = BUF_INIT;
        buf_reset(&out);
        base64url_add(&text, in, n);
        assert_true(base64url_decode(buf_str(&text), &out));
        assert_int_equal(out.n, n);
        if (n > 0)
            assert_memory_equal(out.p, in, n);
        buf_done(&text);
    }
}

static void sloppy_base64_is_refused_and_leaves_nothing(void **state)
{
    static const char *const bad[] = {
        "Z",        "Zg",       "Zg=",    "Zg===", "Zh==", "Zm9=",
        "Zm9v=",    "Zm9v====", "=",      "==",    "====", "Z===",
        "Zg==Zg==", "Zm 9",     "Zm9v\n", "Zm-_",  "Zg=a", "\xff\xff\xff\xff"};
    static const char *const bad_url[] = {"Z", "Zg=",   "Zh",   "Zm9",   "Zm+/", "Zg===",
                                          "=", "Zm9vY", "Zm 9", "Zg==x", "===="};

    buf_add_z(&out, "kept");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (base64_decode(str_of(bad[i]), &out))
            fail_msg("accepted: %s", bad[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad_url); i++)
        if (base64url_decode(str_of(bad_url[i]), &out))
            fail_msg("accepted: %s", bad_url[i]);
    assert_string_equal(buf_z(&out), "kept");
}

static const uint8_t key[SEAL_KEY_BYTES] = "0123456789abcdef0123456789abcde";

static void a_seal_opens_with_its_key_and_name_only(void **state)
{
    struct buf sealed = BUF_INIT;
    uint8_t other[SEAL_KEY_BYTES];

    memcpy(other, key, sizeof other);
    other[31] ^= 1;
    seal_add(key, STR("tenant:7"), STR("the secret"), &sealed);
    assert_int_equal(sealed.n, 12 + 10 + 16);
    assert_true(seal_open(key, STR("tenant:7"), buf_str(&sealed), &out));
    assert_string_equal(buf_z(&out), "the secret");
    buf_reset(&out);
    assert_false(seal_open(key, STR("tenant:8"), buf_str(&sealed), &out));
    assert_false(seal_open(key, STR_NULL, buf_str(&sealed), &out));
    assert_false(seal_open(other, STR("tenant:7"), buf_str(&sealed), &out));
    assert_int_equal(out.n, 0);
    buf_done(&sealed);
}

static void a_changed_or_cut_seal_does_not_open(void **state)
{
    struct buf sealed = BUF_INIT;

    seal_add(key, STR("a"), STR("text"), &sealed);
    for (size_t i = 0; i < sealed.n; i++) {
        sealed.p[i] ^= 1;
        assert_false(seal_open(key, STR("a"), buf_str(&sealed), &out));
        sealed.p[i] ^= 1;
        assert_false(seal_open(key, STR("a"), str_make(sealed.p, i), &out));
    }
    assert_int_equal(out.n, 0);
    assert_false(seal_open(key, STR("a"), STR_NULL, &out));
    buf_done(&sealed);
}

static void sealing_twice_differs_and_nothing_can_be_sealed(void **state)
{
    struct buf one = BUF_INIT, two = BUF_INIT;

    seal_add(key, STR_NULL, STR(""), &one);
    seal_add(key, STR_NULL, STR(""), &two);
    assert_int_equal(one.n, two.n);
    assert_memory_not_equal(one.p, two.p, one.n);
    assert_true(seal_open(key, STR(""), buf_str(&one), &out));
    assert_int_equal(out.n, 0);
    buf_done(&one);
    buf_done(&two);
}

static void a_wiped_secret_is_zero(void **state)
{
    char secret[32];

    memset(secret, 's', sizeof secret);
    secret_wipe(secret, sizeof secret);
    for (size_t i = 0; i < sizeof secret; i++)
        assert_int_equal(secret[i], 0);
    secret_wipe(NULL, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(base_test_crypto)
{
    const struct CMUnitTest tests[] = {
        TEST(hashes_match_their_standards),
        TEST(a_mac_takes_any_key_length_and_forgets_it),
        TEST(macs_of_all_key_lengths_agree_with_openssl),
        TEST(hex_goes_both_ways_and_refuses_the_rest),
        TEST(base64_goes_both_ways),
        TEST(all_bytes_survive_base64url),
        TEST(sloppy_base64_is_refused_and_leaves_nothing),
        TEST(a_seal_opens_with_its_key_and_name_only),
        TEST(a_changed_or_cut_seal_does_not_open),
        TEST(sealing_twice_differs_and_nothing_can_be_sealed),
        TEST(a_wiped_secret_is_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
