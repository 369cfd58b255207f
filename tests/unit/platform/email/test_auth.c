/* Promises of platform/email/auth.h. */
#include "unit.h"
#include "base/mem.h"
#include "platform/email/auth.h"

static struct auth_list *list;

static int setup(void **state)
{
    list = auth_list_load();
    return 0;
}

static int teardown(void **state)
{
    auth_list_free(list);
    return 0;
}

static const struct {
    const char *value;
    bool proven;
} results[] = {
    /* what servers write */
    {"mx.our.test; dmarc=pass (p=none dis=none) header.from=people.test", true},
    {"mx.our.test;\r\n dkim=pass header.i=@people.test header.s=s1 header.b=RzqDQvJ1;\r\n spf=pass "
     "(google.com: domain of a@x.test designates 1.2.3.4) smtp.mailfrom=a@x.test;\r\n dmarc=pass "
     "(p=REJECT sp=REJECT dis=NONE) header.from=people.test",
     true},
    {"mx.our.test;\tdkim=pass (1024-bit key)\n header.d=people.test header.i=@people.test "
     "header.a=rsa-sha256 header.s=s1;\tdkim-atps=neutral",
     true},
    {"mx.our.test 1; spf=pass smtp.mailfrom=bounces@mail.people.test", true},
    {"mx.our.test; spf=pass smtp.mailfrom=people.test", true},
    {"mx.our.test; spf=pass smtp.mailfrom=\"a b\"@people.test", true},
    {"mx.our.test; dkim/1=PASS header.d=\"PEOPLE.TEST\"", true},
    {"mx.our.test; dkim=fail header.d=evil.test; dkim=pass header.d=people.test", true},
    {"mx.our.test; dkim=pass reason=\"good signature; dmarc=fail\" header.d=people.test", true},
    {"mx.our.test; dmarc=none header.from=people.test; dkim=pass header.d=people.test", true},
    {"\"mx.our.test\" (comment (nested \\) ) ) ; dkim = pass header . d=x header.d=people.test",
     true},
    /* what proves nothing */
    {"mx.our.test; none", false},
    {"mx.our.test", false},
    {"mx.our.test; dkim=none; spf=none", false},
    {"mx.our.test; dkim=pass header.d=evil.test", false},
    {"mx.our.test; dkim=pass", false},
    {"mx.our.test; dkim=pass header.d=people.test.evil.test", false},
    {"mx.our.test; dkim=pass header.d=test", false},
    {"mx.our.test; dkim=pass header.d=", false},
    {"mx.our.test; spf=pass smtp.helo=people.test", false},
    {"mx.our.test; spf=pass smtp.mailfrom=people.test@evil.test", false},
    {"mx.our.test; spf=softfail smtp.mailfrom=people.test", false},
    {"mx.our.test; spf=passed smtp.mailfrom=people.test", false},
    {"mx.our.test; arc=pass header.d=people.test", false},
    {"mx.our.test; iprev=pass policy.iprev=people.test", false},
    {"mx.our.test; dmarc=fail header.from=people.test; dkim=pass header.d=people.test", false},
    {"mx.our.test; dmarc=pass header.from=evil.test", false},
    {"mx.our.test; dmarc=pass header.from=people.test; dmarc=fail header.from=people.test", false},
    /* tricks: a comment, a quoted string and an open end hide nothing and show nothing */
    {"mx.our.test; dkim=fail (; dmarc=pass header.from=people.test)", false},
    {"mx.our.test; spf=fail smtp.mailfrom=\"x; dmarc=pass header.from=people.test\"@evil.test",
     false},
    {"mx.our.test; spf=pass smtp.mailfrom=\"@people.test", false},
    {"mx.our.test; dmarc=pass header.from=people.test (", false},
    {"mx.our.test; dmarc=pass header.from=people.test \"", false},
    {"mx.our.test dmarc=pass header.from=people.test", false},
};

static void test_what_a_header_proves(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(results); i++) {
        const char *why = auth_judge(str_of(results[i].value), STR("people.test"), list);
        if ((why == NULL) != results[i].proven)
            fail_msg("%s: %s", results[i].value, why != NULL ? why : "proven");
    }
}

static void test_whose_header_it_is(void **state)
{
    struct str id = STR("mx.our.test");

    assert_true(auth_is_of(STR("mx.our.test; none"), id));
    assert_true(auth_is_of(STR(" MX.OUR.TEST 1; none"), id));
    assert_true(auth_is_of(STR("(a) \"mx.our.test\" (b); none"), id));
    assert_false(auth_is_of(STR("mx.our.test.evil.test; none"), id));
    assert_false(auth_is_of(STR("evil.test (mx.our.test); none"), id));
    assert_false(auth_is_of(STR("evil.test; mx.our.test; none"), id));
    assert_false(auth_is_of(STR(""), id));
    assert_false(auth_is_of(STR("spf=pass smtp.mailfrom=a.test"), id));
    assert_true(auth_is_of(STR("spf=pass smtp.mailfrom=a.test"), AUTH_NO_ID));
    assert_false(auth_is_of(STR("mx.our.test; none"), AUTH_NO_ID));
    assert_null(
        auth_judge(STR("spf=pass (sender IP is 1.2.3.4) smtp.mailfrom=people.test; "
                       "dkim=none (message not signed) header.d=none;dmarc=pass action=none "
                       "header.from=people.test;compauth=pass reason=100"),
                   STR("people.test"), list));
}

static void test_alignment_is_by_the_public_suffix_list(void **state)
{
    assert_non_null(list);
    assert_true(auth_aligned(list, STR("mail.example.co.uk"), STR("example.co.uk")));
    assert_true(auth_aligned(list, STR("a.Example.com."), STR("b.example.COM")));
    assert_false(auth_aligned(list, STR("evil.co.uk"), STR("example.co.uk")));
    assert_false(auth_aligned(list, STR("evil.github.io"), STR("good.github.io")));
    assert_false(auth_aligned(list, STR("co.uk"), STR("example.co.uk")));
    assert_false(auth_aligned(list, STR(""), STR("")));
    assert_false(auth_aligned(NULL, STR("mail.example.com"), STR("example.com")));
    assert_true(auth_aligned(NULL, STR("example.com"), STR("EXAMPLE.com")));
}

UNIT(platform_email_test_auth)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_what_a_header_proves),
        T(test_whose_header_it_is),
        T(test_alignment_is_by_the_public_suffix_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
