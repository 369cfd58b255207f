/* Promises of platform/hook/template.h and sign.h. */
#include "unit.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/hook/sign.h"
#include "platform/hook/template.h"

static struct json_parser *parser;
static struct buf out;

static struct str header(const void *ctx, const char *name)
{
    return strcmp(name, "X-Random") == 0 ? STR("r4nd")
           : strcmp(name, "X-Time") == 0 ? STR("1000")
                                         : STR_NULL;
}

static struct template_values values(void)
{
    struct template_values v = {.header = header};

    v.of[TEMPLATE_TEXT] = STR("say \"hi\"\n{chat_id}");
    v.of[TEMPLATE_CHAT_ID] = STR("a/b ?");
    v.of[TEMPLATE_REPLY_TO] = STR("42");
    v.of[TEMPLATE_BODY] = STR("{}");
    v.of[TEMPLATE_SECRET] = STR("s3cret");
    return v;
}

static void assert_plain(const char *text, const char *want)
{
    struct template_values v = values();

    buf_reset(&out);
    assert_true(template_plain(str_of(text), &v, &out));
    assert_string_equal(buf_z(&out), want);
}

static void values_take_the_place_of_their_names(void **state)
{
    assert_plain("{body}", "{}");
    assert_plain("{header:X-Random}{body}", "r4nd{}");
    assert_plain("{header:X-Time}.{body}", "1000.{}");
    assert_plain("{{text}", "{text}");
    assert_plain("{{{reply_to}}", "{42}");
    assert_plain("", "");
    assert_plain("}", "}");
    assert_plain("{thread_id}", "");
    assert_plain("<{text}>", "<say \"hi\"\n{chat_id}>"); /* a value is no template */
}

static void a_header_that_is_not_there_signs_nothing(void **state)
{
    struct template_values v = values();

    assert_false(template_plain(STR("{header:X-Other}{body}"), &v, &out));
    v.header = NULL;
    assert_false(template_plain(STR("{header:X-Random}{body}"), &v, &out));
}

static void urls_are_encoded_and_do_not_climb(void **state)
{
    struct template_values v = values();

    buf_reset(&out);
    assert_true(template_url(STR("https://h/x/{chat_id}/y?re={reply_to}&t={thread_id}"), &v, &out));
    assert_string_equal(buf_z(&out), "https://h/x/a%2Fb%20%3F/y?re=42&t=");
    static const char *const bad[] = {"", ".", ".."};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        v.of[TEMPLATE_CHAT_ID] = str_of(bad[i]);
        assert_false(template_url(STR("https://h/x/{chat_id}/y"), &v, &out));
    }
    v.of[TEMPLATE_CHAT_ID] = v.of[TEMPLATE_THREAD_ID] = STR(".");
    buf_reset(&out);
    assert_false(template_url(STR("https://h/{chat_id}{thread_id}"), &v, &out));
    buf_reset(&out);
    assert_true(template_url(STR("https://h/a?q={chat_id}{thread_id}"), &v, &out));
}

static void headers_have_no_line_breaks(void **state)
{
    struct template_values v = values();

    buf_reset(&out);
    assert_true(template_header(STR("Bearer {secret}"), &v, &out));
    assert_string_equal(buf_z(&out), "Bearer s3cret");
    assert_false(template_header(STR("{text}"), &v, &out));
}

static void assert_json(const char *body, const char *want)
{
    struct template_values v = values();
    struct json doc;

    assert_true(json_parse(parser, str_of(body), &doc));
    buf_reset(&out);
    bool ok = template_json(doc, &v, &out);
    if (ok != (want != NULL) || (ok && strcmp(buf_z(&out), want) != 0))
        fail_msg("%s became %s", body, buf_z(&out));
}

static void json_stays_json(void **state)
{
    assert_json("{\"m\":\"{text}\"}", "{\"m\":\"say \\\"hi\\\"\\n{chat_id}\"}");
    assert_json("{\"m\":[1,true,null,1.5,{\"{text}\":\"x\"}]}",
                "{\"m\":[1,true,null,1.5,{\"{text}\":\"x\"}]}"); /* names are no templates */
    assert_json("{\"re\":\"{number:reply_to?}\",\"t\":\"{thread_id?}\",\"u\":\"{thread_id}\"}",
                "{\"re\":42,\"u\":\"\"}");
    assert_json("{\"t\":\"{number:thread_id?}\",\"a\":[\"{thread_id?}\",\"{reply_to?}\"]}",
                "{\"a\":[\"42\"]}");
    assert_json("{\"t\":\"{number:chat_id}\"}", NULL);
    assert_json("\"{text}\"", "\"say \\\"hi\\\"\\n{chat_id}\"");
}

static bool is_good(const char *text, unsigned allowed)
{
    unsigned used = 0;
    char why[256] = "";

    return template_check(str_of(text), allowed, &used, why) && why[0] == '\0';
}

static void misspelt_placeholders_are_refused(void **state)
{
    static const char *const bad[] = {"{",        "{}",        "{txt}",        "{text",
                                      "{ text }", "{header:}", "{header:a b}", "{number:text}",
                                      "{text?}",  "{Text}",    "{header:a\nb}"};
    char why[256];
    unsigned used = 0;
    struct json doc;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (is_good(bad[i], ~0u))
            fail_msg("%s", bad[i]);
    assert_true(is_good("{text}{{}{header:X-A_b}", ~0u));
    assert_false(is_good("{secret}", TEMPLATE_REQUEST));
    assert_true(json_parse(parser, STR("{\"a\":[{\"b\":\"{text?}\"},\"{key}\"]}"), &doc));
    assert_true(template_check_json(doc, TEMPLATE_REQUEST, &used, why));
    assert_int_equal(used, TEMPLATE_BIT(TEMPLATE_TEXT) | TEMPLATE_BIT(TEMPLATE_KEY));
    assert_true(json_parse(parser, STR("[\" {text?}\"]"), &doc));
    assert_false(template_check_json(doc, TEMPLATE_REQUEST, &used, why));
    assert_true(template_names_header(STR("{header:x-time}.{body}"), STR("X-Time")));
    assert_false(template_names_header(STR("{header:X-Times}.{body}"), STR("X-Time")));
}

/* ---- signatures ---- */

static struct hook_sign sign(void)
{
    return (struct hook_sign){.header = (char *)"X-Sign",
                              .secret = (char *)"key",
                              .secret_encoding = HOOK_AS_TEXT,
                              .covers = (char *)"{body}"};
}

static bool shows(const struct hook_sign *s, const char *shown)
{
    struct template_values v = values();
    BUF_LOCAL key = BUF_INIT;

    v.of[TEMPLATE_BODY] = STR("The quick brown fox jumps over the lazy dog");
    assert_true(hook_key(s, &key));
    return hook_signature_ok(s, buf_str(&key), &v, str_of(shown), 1000000);
}

/* The well-known values of HMAC("key", "The quick brown fox ..."). */
#define FOX256 "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"
#define FOX256_BASE64 "97yD9DBThCSxMpjmqm+xQ+9NWaFJRhdZl0edvC0aPNg="
#define FOX1 "de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9"

static void signatures_in_every_dress(void **state)
{
    struct hook_sign s = sign();

    assert_true(shows(&s, FOX256));
    assert_true(shows(&s, "F7BC83F430538424B13298E6AA6FB143EF4D59A14946175997479DBC2D1A3CD8"));
    assert_false(shows(&s, FOX256 "00"));
    assert_false(shows(&s, "f7bc"));
    assert_false(shows(&s, ""));
    assert_false(shows(&s, NULL));
    assert_false(shows(&s, FOX1));
    s.prefix = (char *)"sha256=";
    assert_true(shows(&s, "sha256=" FOX256));
    assert_false(shows(&s, FOX256));
    assert_true(shows(&s, "sha256=00 sha256=" FOX256 " x"));
    s = sign();
    s.encoding = HOOK_BASE64;
    assert_true(shows(&s, FOX256_BASE64));
    assert_false(shows(&s, FOX256));
    s = sign();
    s.hmac = HOOK_SHA1;
    assert_true(shows(&s, FOX1));
    assert_false(shows(&s, FOX256));
    s = sign();
    s.secret_encoding = HOOK_HEX;
    s.secret = (char *)"6b6579";
    assert_true(shows(&s, FOX256));
    s.secret_encoding = HOOK_BASE64;
    s.secret = (char *)"a2V5";
    assert_true(shows(&s, FOX256));
}

static void keys_that_are_none_are_refused(void **state)
{
    static const struct {
        int encoding;
        const char *secret;
    } bad[] = {{HOOK_AS_TEXT, ""},   {HOOK_HEX, "6b657"}, {HOOK_HEX, "zz"}, {HOOK_HEX, ""},
               {HOOK_BASE64, "a2V"}, {HOOK_BASE64, "?"},  {HOOK_BASE64, ""}};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct hook_sign s = sign();
        BUF_LOCAL key = BUF_INIT;
        s.secret_encoding = bad[i].encoding;
        s.secret = (char *)(uintptr_t)bad[i].secret;
        assert_false(hook_key(&s, &key));
    }
}

static void a_signature_is_as_old_as_its_time(void **state)
{
    struct hook_sign s = sign();
    struct template_values v = values();
    BUF_LOCAL shown = BUF_INIT;

    s.covers = (char *)"{header:X-Time}.{body}";
    s.timestamp_header = (char *)"X-Time"; /* 1000 */
    assert_true(hook_signature(&s, STR("key"), &v, &shown));
    static const struct {
        int64_t now_ms;
        bool good;
    } all[] = {{1000000, true}, {1300000, true}, {1300001, false}, {700000, true}, {699999, false}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        assert_int_equal(hook_signature_ok(&s, STR("key"), &v, buf_str(&shown), all[i].now_ms),
                         all[i].good);
}

static int setup(void **state)
{
    parser = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    buf_done(&out);
    return 0;
}

UNIT(platform_hook_test_template)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_take_the_place_of_their_names),
        cmocka_unit_test(a_header_that_is_not_there_signs_nothing),
        cmocka_unit_test(urls_are_encoded_and_do_not_climb),
        cmocka_unit_test(headers_have_no_line_breaks),
        cmocka_unit_test(json_stays_json),
        cmocka_unit_test(misspelt_placeholders_are_refused),
        cmocka_unit_test(signatures_in_every_dress),
        cmocka_unit_test(keys_that_are_none_are_refused),
        cmocka_unit_test(a_signature_is_as_old_as_its_time),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
