/* Promises of edge/sanitize.h. */
#include "unit.h"
#include "edge/sanitize.h"

static bool clean(const char *in, struct buf *out)
{
    struct json_parser *p = json_parser_new();
    struct json doc;

    buf_reset(out);
    assert_true(json_parse(p, str_of(in), &doc));
    struct jw w = jw_begin(out);
    bool ok = sanitize_json(&w, doc);
    json_parser_free(p);
    return ok;
}

static void expect(const char *in, const char *want)
{
    struct buf out = BUF_INIT;

    assert_true(clean(in, &out));
    assert_str(buf_str(&out), want);
    buf_done(&out);
}

static void everything_else_goes_through_as_it_is(void **state)
{
    expect("{\"id\":900014,\"a\":[1,-2.5,true,null,{\"b\":\"gr\\u00fc\\u00df\"}],\"e\":{}}",
           "{\"id\":900014,\"a\":[1,-2.5,true,null,{\"b\":\"gr\xc3\xbc\xc3\x9f\"}],\"e\":{}}");
}

static void a_token_is_left_out_at_any_depth(void **state)
{
    expect("{\"token\":\"token-01\",\"a\":{\"b\":[{\"token\":\"token-02\",\"c\":1}]}}",
           "{\"a\":{\"b\":[{\"c\":1}]}}");
    expect("{\"a\":1,\"token\":\"x1\",\"token\":\"x2\"}", "{\"a\":1}");
    expect("{\"a\":1,\"Token\":{\"deep\":\"x1\"}}", "{\"a\":1}");
    expect("{\"webhook_token\":\"t9\",\"client_secret\":\"s\",\"authorization\":\"b\",\"b\":2}",
           "{\"b\":2}");
}

static void its_copies_go_too_wherever_they_hide(void **state)
{
    expect("{\"token\":\"token-01\",\"url\":\"https://d/webhooks/1/token-01/x\",\"keep\":\"tok\"}",
           "{\"url\":\"\",\"keep\":\"tok\"}");
    expect("{\"x\":{\"token-01\":5,\"y\":[\"token-01\"]},\"token\":\"token-01\"}",
           "{\"x\":{\"y\":[\"\"]}}");
    expect("{\"token\":\"t\\u006f\\u006ben-09\",\"x\":\"token-09\"}", "{\"x\":\"\"}");
    expect("{\"token\":{\"in\":[\"secret-09\"]},\"x\":\"see secret-09\"}", "{\"x\":\"\"}");
}

static void an_empty_or_odd_token_removes_only_itself(void **state)
{
    expect("{\"token\":\"\",\"x\":\"y\"}", "{\"x\":\"y\"}");
    expect("{\"token\":null,\"x\":\"y\"}", "{\"x\":\"y\"}");
    expect("{\"token\":7,\"x\":7}", "{\"x\":7}");
    expect("{\"token\":\"1\",\"x\":\"100\"}", "{\"x\":\"100\"}");
    expect("\"token\"", "\"token\"");
}

static void words_that_merely_resemble_stay(void **state)
{
    assert_true(sanitize_names_credential(STR("TOKEN")));
    assert_true(sanitize_names_credential(STR("interaction_token")));
    assert_false(sanitize_names_credential(STR("tokens")));
    assert_false(sanitize_names_credential(STR("_token")));
    assert_false(sanitize_names_credential(STR("broken")));
    assert_false(sanitize_names_credential(STR("")));
}

static void more_credentials_than_sensible_are_refused(void **state)
{
    struct buf in = BUF_INIT, out = BUF_INIT;

    buf_add_z(&in, "{\"token\":[");
    for (int i = 0; i <= SANITIZE_MAX_SECRETS; i++)
        buf_printf(&in, "%s\"secret %d\"", i > 0 ? "," : "", i);
    buf_add_z(&in, "]}");
    assert_false(clean(buf_z(&in), &out));
    assert_int_equal(out.n, 0);
    buf_done(&in);
    buf_done(&out);
}

UNIT(edge_test_sanitize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_else_goes_through_as_it_is),
        cmocka_unit_test(a_token_is_left_out_at_any_depth),
        cmocka_unit_test(its_copies_go_too_wherever_they_hide),
        cmocka_unit_test(an_empty_or_odd_token_removes_only_itself),
        cmocka_unit_test(words_that_merely_resemble_stay),
        cmocka_unit_test(more_credentials_than_sensible_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
