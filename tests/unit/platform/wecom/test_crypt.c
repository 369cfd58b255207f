/* Promises of platform/wecom/inbound.h about encryption; the ciphertexts were made by
 * WeCom's own library. */
#include "unit.h"
#include "base/crypto.h"
#include "platform/wecom/inbound.h"

#define KEY "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C"
#define CORP STR("wx5823bf96d3bd56c7")
#define SECRET STR("QDG6eK")
#define TIME STR("1800000000")
#define NONCE STR("1372623149")
#define GOOD \
    "sKqRbbiSUnDhFHOvPjtUMYMyehJ1LatmSpE72cnbbSdr2/0dUaSnv5PRelT/" \
    "3yPwG9jJuGsiojhJL0rYKSDrip5DssF4mb4MSmY2Pr/THivt0bggsJqqY3qocl9E8rIb"
#define SIGNATURE "80b6b91d71e95c8fd573b706d47396fb4305aaab"
#define FOR_ANOTHER \
    "sKqRbbiSUnDhFHOvPjtUMV3/XbDrPphCrWiLtNcrkbwxIogPko5pHa9xm9q9/" \
    "Ywo6TjslhefQhDSegNgphlbhXh3nkcqnqjWUZQdBB/" \
    "Kxon1QfCnfTKdupE5z0uni+K4NTNj5s8800ZExEupFLHMTiMpW2a1WF7fYOQBczA7QRc="
#define EMPTY \
    "sKqRbbiSUnDhFHOvPjtUMU5qwF3QTRQT35ZLQKNzkIFzNtEiqzhRA2bjiTq/aLNxdb+TySor6nIW5pigQ2NbKg=="

static bool open(struct str encrypted, struct str corp, struct buf *out)
{
    uint8_t key[WECOM_KEY_BYTES];

    assert_true(wecom_key_parse(STR(KEY), key));
    buf_reset(out);
    return wecom_decrypt(key, corp, encrypted, out);
}

static void what_wecom_encrypts_is_read(void **state)
{
    struct buf out = BUF_INIT;

    assert_true(open(STR(GOOD), CORP, &out));
    assert_str(buf_str(&out), "<xml><Content>hi</Content></xml>");
    assert_true(open(STR(EMPTY), CORP, &out));
    assert_int_equal(out.n, 0);
    buf_done(&out);
}

static void another_corporations_message_is_not(void **state)
{
    struct buf out = BUF_INIT;

    assert_false(open(STR(FOR_ANOTHER), CORP, &out));
    assert_true(open(STR(FOR_ANOTHER), STR("other"), &out));
    assert_false(open(STR(GOOD), STR("wx5823bf96d3bd56c"), &out));
    assert_false(open(STR(GOOD), STR(""), &out));
    buf_done(&out);
}

static void every_flipped_bit_of_the_last_blocks_reads_as_nothing(void **state)
{
    struct buf bytes = BUF_INIT, text = BUF_INIT, out = BUF_INIT;

    assert_true(base64_decode(STR(GOOD), &bytes));
    for (size_t i = (bytes.n - 48) * 8; i < bytes.n * 8; i++) {
        bytes.p[i / 8] ^= (char)(1 << i % 8);
        buf_reset(&text);
        base64_add(&text, bytes.p, bytes.n);
        assert_false(open(buf_str(&text), CORP, &out));
        assert_int_equal(out.n, 0);
        bytes.p[i / 8] ^= (char)(1 << i % 8);
    }
    buf_done(&bytes);
    buf_done(&text);
    buf_done(&out);
}

static void what_is_no_ciphertext_is_refused(void **state)
{
    struct buf out = BUF_INIT;

    assert_false(open(STR(""), CORP, &out));
    assert_false(open(STR("AAAA"), CORP, &out));
    assert_false(open(STR("not base64!"), CORP, &out));
    assert_false(open(str_make(GOOD, 64), CORP, &out));
    assert_false(open(STR("AAAAAAAAAAAAAAAAAAAAAA=="), CORP, &out));
    buf_done(&out);
}

static bool sig(struct str time, struct str nonce, struct str encrypted, struct str signature)
{
    return wecom_signature_ok(SECRET, time, nonce, encrypted, signature);
}

static void signatures_cover_every_part(void **state)
{
    assert_true(sig(TIME, NONCE, STR(GOOD), STR(SIGNATURE)));
    assert_false(sig(STR("1800000001"), NONCE, STR(GOOD), STR(SIGNATURE)));
    assert_false(sig(TIME, STR("1372623140"), STR(GOOD), STR(SIGNATURE)));
    assert_false(sig(TIME, NONCE, STR(EMPTY), STR(SIGNATURE)));
    assert_false(sig(TIME, NONCE, STR(GOOD), STR("")));
    assert_false(sig(TIME, NONCE, STR_NULL, STR(SIGNATURE)));
    assert_false(wecom_signature_ok(STR("qDG6eK"), TIME, NONCE, STR(GOOD), STR(SIGNATURE)));
    char text[] = SIGNATURE;
    for (size_t i = 0; i < 40; i++) {
        char was = text[i];
        text[i] = was == '0' ? '1' : '0';
        assert_false(sig(TIME, NONCE, STR(GOOD), str_of(text)));
        text[i] = was;
    }
}

static void keys_have_43_characters_whatever_the_last_bits(void **state)
{
    uint8_t a[WECOM_KEY_BYTES], b[WECOM_KEY_BYTES];

    assert_true(wecom_key_parse(STR("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), a));
    assert_true(wecom_key_parse(STR("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD"), b));
    assert_memory_equal(a, b, sizeof a);
    assert_false(wecom_key_parse(STR("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), a));
    assert_false(wecom_key_parse(STR("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA!"), a));
    assert_false(wecom_key_parse(STR("A!AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), a));
    assert_false(wecom_key_parse(STR_NULL, a));
}

UNIT(platform_wecom_test_crypt)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_wecom_encrypts_is_read),
        cmocka_unit_test(another_corporations_message_is_not),
        cmocka_unit_test(every_flipped_bit_of_the_last_blocks_reads_as_nothing),
        cmocka_unit_test(what_is_no_ciphertext_is_refused),
        cmocka_unit_test(signatures_cover_every_part),
        cmocka_unit_test(keys_have_43_characters_whatever_the_last_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
