/* Upgrade tokens against what the real gateway mints and what its reference verifier accepts. */
#include "core/vectors.h"
#include "base/crypto.h"
#include "base/rand.h"
#include "core/token.h"

#define NOW 1782000000

static void every_vector_is_minted_and_judged_like_the_reference(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json cases = load_vectors(p, VECTORS "/upgrade_token.json");
    struct buf minted = BUF_INIT, scratch = BUF_INIT;
    int n = 0;

    for (struct json_iter it = {0}; json_next(cases, &it); n++) {
        struct str name = json_str(it.value, "name"), token = json_str(it.value, "token");
        struct json verify = json_get(it.value, "verify");
        struct str secrets[8], want = json_str(verify, "payload"), got = STR_NULL;
        size_t n_secrets = 0;
        int64_t now, exp;
        struct token t;

        if (str_eq(json_str(it.value, "kind"), STR("mint_and_verify"))) {
            assert_true(json_as_i64(json_get(it.value, "exp"), &exp));
            buf_reset(&minted);
            token_mint(&minted, json_str(it.value, "gateway_id"), json_str(it.value, "secret"),
                       exp);
            assert_same(buf_str(&minted), token);
        }
        for (struct json_iter s = {0}; json_next(json_get(verify, "secrets"), &s);)
            secrets[n_secrets++] = json_as_str(s.value);
        assert_true(json_as_i64(json_get(verify, "now"), &now));
        if (token_read(token, &scratch, &t) &&
            token_verify(&t, secrets, n_secrets, now, 0) == TOKEN_OK)
            got = t.payload;
        if ((got.p == NULL) != (want.p == NULL) || !str_eq(got, want))
            fail_msg("%.*s: got %.*s", STR_FMT(name), STR_FMT(got));
    }
    assert_int_equal(n, 45);
    buf_done(&minted);
    buf_done(&scratch);
    json_parser_free(p);
}

struct minted {
    struct buf text, scratch;
    struct token t;
};

static void mint(struct minted *m, struct str id, struct str secret, int64_t exp)
{
    *m = (struct minted){0};
    token_mint(&m->text, id, secret, exp);
    assert_true(token_read(buf_str(&m->text), &m->scratch, &m->t));
}
static void minted_done(struct minted *m)
{
    buf_done(&m->text);
    buf_done(&m->scratch);
}

static void the_skew_is_granted_past_exp_and_not_a_second_more(void **state)
{
    struct str secret = STR("s3cret");
    struct minted m;

    mint(&m, STR("gw-1"), secret, NOW);
    assert_int_equal(token_verify(&m.t, &secret, 1, NOW + TOKEN_SKEW_S, TOKEN_SKEW_S), TOKEN_OK);
    assert_int_equal(token_verify(&m.t, &secret, 1, NOW + TOKEN_SKEW_S + 1, TOKEN_SKEW_S),
                     TOKEN_EXPIRED);
    minted_done(&m);
}

static void an_expired_token_with_a_wrong_signature_is_bad_not_expired(void **state)
{
    struct str other = STR("other");
    struct minted m;

    mint(&m, STR("gw-1"), STR("s3cret"), 5);
    assert_int_equal(token_verify(&m.t, &other, 1, NOW, 120), TOKEN_BAD);
    assert_int_equal(token_verify(&m.t, NULL, 0, NOW, 120), TOKEN_BAD);
    minted_done(&m);
}

static void the_end_of_time_is_not_in_the_past(void **state)
{
    struct str secret = STR("s3cret");
    struct minted m;

    mint(&m, STR("gw-1"), secret, INT64_MAX);
    assert_int_equal(token_verify(&m.t, &secret, 1, NOW, TOKEN_SKEW_S), TOKEN_OK);
    minted_done(&m);
    mint(&m, STR("gw-1"), secret, -INT64_MAX);
    assert_int_equal(token_verify(&m.t, &secret, 1, NOW, TOKEN_SKEW_S), TOKEN_EXPIRED);
    minted_done(&m);
}

static void an_unverified_token_shows_its_payload_and_signed_part(void **state)
{
    struct minted m;

    mint(&m, STR("a:b:c"), STR("k"), 17);
    assert_same(m.t.payload, STR("a:b:c"));
    assert_same(m.t.signed_part, STR("a:b:c:17"));
    assert_int_equal(m.t.exp, 17);
    minted_done(&m);
}

static void any_flipped_bit_is_refused(void **state)
{
    struct str secret = STR("s3cret");
    struct buf scratch = BUF_INIT;
    struct minted m;
    struct token t;

    mint(&m, STR("gw-1"), secret, NOW);
    for (size_t i = 0; i < m.text.n; i++)
        for (int bit = 0; bit < 8; bit++) {
            m.text.p[i] ^= (char)(1 << bit);
            /* The last character carries bits that encode nothing; flipping them may be harmless,
             * and then what was read is exactly what was signed. */
            if (token_read(buf_str(&m.text), &scratch, &t) &&
                token_verify(&t, &secret, 1, NOW, 0) == TOKEN_OK) {
                assert_same(t.payload, STR("gw-1"));
                assert_int_equal(t.exp, NOW);
            }
            m.text.p[i] ^= (char)(1 << bit);
        }
    minted_done(&m);
    buf_done(&scratch);
}

static bool reads_plain(const char *front, const char *sig)
{
    struct buf plain = BUF_INIT, text = BUF_INIT, scratch = BUF_INIT;
    struct token t;
    bool read;

    buf_add_z(&plain, front);
    buf_add_z(&plain, sig);
    base64url_add(&text, buf_str(&plain).p, plain.n);
    read = token_read(buf_str(&text), &scratch, &t);
    buf_done(&plain);
    buf_done(&text);
    buf_done(&scratch);
    return read;
}

static void what_is_not_a_token_is_not_read(void **state)
{
    static const char sig[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static const char *const fronts[] = {
        "",      "gw:",         "gw::",      "gw:+1:",  "gw: 1:", "gw:1_0:",
        "gw:-:", "gw:--1:",     "gw:0x10:",  "gw:1.5:", "gw:1 :", "gw:9223372036854775808:",
        "gw",    "\xff\xfe:1:", "gw:\xc3:1",
    };
    static const char *const raw[] = {"", "=", "====", "!!!!", "a", "Z3c6MDow\n", "Z3 6", "Z3+/"};
    struct buf scratch = BUF_INIT;
    struct token t;

    assert_true(reads_plain("gw:0:", sig));
    assert_true(reads_plain(":0:", sig));
    assert_false(reads_plain("gw:0:", sig + 2));
    assert_false(reads_plain("gw:0:0", sig));
    assert_false(reads_plain("gw:0:00", sig));
    for (size_t i = 0; i < sizeof fronts / sizeof fronts[0]; i++)
        if (reads_plain(fronts[i], sig))
            fail_msg("read \"%s\"", fronts[i]);
    for (size_t i = 0; i < sizeof raw / sizeof raw[0]; i++)
        assert_false(token_read(str_of(raw[i]), &scratch, &t));
    buf_done(&scratch);
}

static void random_bytes_never_crash_the_reader(void **state)
{
    static const char alphabet[] = "ABab01-_=+/:. \n";
    struct rand r = rand_seeded(3);
    struct buf scratch = BUF_INIT;
    struct str secret = STR("k");

    for (int i = 0; i < 20000; i++) {
        char bytes[96];
        size_t n = rand_below(&r, sizeof bytes);
        struct token t;
        for (size_t k = 0; k < n; k++)
            bytes[k] = alphabet[rand_below(&r, sizeof alphabet - 1)];
        if (token_read(str_make(bytes, n), &scratch, &t))
            assert_int_equal(token_verify(&t, &secret, 1, NOW, 0), TOKEN_BAD);
    }
    buf_done(&scratch);
}

static void only_bearer_headers_hold_a_token(void **state)
{
    assert_same(token_of_header(STR("Bearer abc")), STR("abc"));
    assert_same(token_of_header(STR("bearer   abc ")), STR("abc"));
    assert_same(token_of_header(STR("BEARER a.b-c_d=")), STR("a.b-c_d="));
    assert_null(token_of_header(STR("Bearer a b")).p);
    assert_null(token_of_header(STR("Bearer")).p);
    assert_null(token_of_header(STR("Bearer ")).p);
    assert_null(token_of_header(STR("Bearerabc")).p);
    assert_null(token_of_header(STR("Basic abc")).p);
    assert_null(token_of_header(STR("")).p);
    assert_null(token_of_header(STR_NULL).p);
}

UNIT(core_test_token)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_vector_is_minted_and_judged_like_the_reference),
        cmocka_unit_test(the_skew_is_granted_past_exp_and_not_a_second_more),
        cmocka_unit_test(an_expired_token_with_a_wrong_signature_is_bad_not_expired),
        cmocka_unit_test(the_end_of_time_is_not_in_the_past),
        cmocka_unit_test(an_unverified_token_shows_its_payload_and_signed_part),
        cmocka_unit_test(any_flipped_bit_is_refused),
        cmocka_unit_test(what_is_not_a_token_is_not_read),
        cmocka_unit_test(random_bytes_never_crash_the_reader),
        cmocka_unit_test(only_bearer_headers_hold_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
