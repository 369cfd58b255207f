/* Signatures of the operator, against RFC 8032's first test vectors. */
#include "unit.h"
#include "ed25519_pair.h"
#include "base/crypto.h"

/* PKCS#8 of the seed, as OpenSSL writes it: 16 bytes in front, then the 32. */
static void private_pem(const char *seed_hex, struct buf *out)
{
    static const uint8_t head[] = {0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                   0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
    uint8_t der[48];

    memcpy(der, head, sizeof head);
    assert_true(hex_decode(str_of(seed_hex), der + 16, 32));
    buf_add_z(out, "-----BEGIN PRIVATE KEY-----\n");
    base64_add(out, der, sizeof der);
    buf_add_z(out, "\n-----END PRIVATE KEY-----\n");
}

static void public_pem(const char *key_hex, struct buf *out)
{
    static const uint8_t head[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                   0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
    uint8_t der[44];

    memcpy(der, head, sizeof head);
    assert_true(hex_decode(str_of(key_hex), der + 12, 32));
    buf_add_z(out, "-----BEGIN PUBLIC KEY-----\n");
    base64_add(out, der, sizeof der);
    buf_add_z(out, "\n-----END PUBLIC KEY-----\n");
}

static const struct {
    const char *seed, *key, *msg, *sig;
} vectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b"
     "4"
     "6bd25bf5f0595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "r",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11"
     "d"
     "8c387b2eaeb4302aeeb00d291612bb0c00"},
};

static void the_vectors_hold(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        struct buf a = BUF_INIT, b = BUF_INIT;
        uint8_t want[ED25519_BYTES], got[ED25519_BYTES];
        struct str msg = str_of(vectors[i].msg);
        private_pem(vectors[i].seed, &a);
        public_pem(vectors[i].key, &b);
        struct ed25519_key *sign = ed25519_private(buf_str(&a)),
                           *check = ed25519_public(buf_str(&b));
        assert_non_null(sign);
        assert_non_null(check);
        assert_true(hex_decode(str_of(vectors[i].sig), want, sizeof want));
        assert_true(ed25519_sign(sign, msg, got));
        assert_memory_equal(got, want, sizeof want);
        assert_true(ed25519_verify(check, msg, str_make(got, sizeof got)));
        assert_false(ed25519_verify(check, STR("other"), str_make(got, sizeof got)));
        got[5] ^= 1;
        assert_false(ed25519_verify(check, msg, str_make(got, sizeof got)));
        assert_false(ed25519_verify(check, msg, str_make(got, 63)));
        assert_false(ed25519_verify(check, msg, STR_NULL));
        ed25519_free(sign);
        ed25519_free(check);
        buf_wipe(&a);
        buf_done(&b);
    }
}

static void what_is_no_such_key_is_refused(void **state)
{
    static const char rsa[] =
        "-----BEGIN PUBLIC KEY-----\n"
        "MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\n"
        "KUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n"
        "-----END PUBLIC KEY-----\n";

    assert_null(ed25519_public(STR(ED25519_PAIR_PRIVATE)));
    assert_null(ed25519_private(STR(ED25519_PAIR_PUBLIC)));
    assert_null(ed25519_public(str_of(rsa)));
    assert_null(ed25519_public(STR("")));
    assert_null(ed25519_public(STR_NULL));
    assert_null(ed25519_private(STR("-----BEGIN PRIVATE KEY-----\n")));
    ed25519_free(NULL);
}

UNIT(base_test_ed25519)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_hold),
        cmocka_unit_test(what_is_no_such_key_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
