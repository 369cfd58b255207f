/* Promises of platform/twilio/inbound.h about signatures, which were made by Twilio's own
 * library. */
#include "unit.h"
#include "edge/form.h"
#include "platform/twilio/inbound.h"

#define AUTH STR("secret-auth-token")
#define HOST "https://relay.example.org"
#define PATH "/webhooks/twilio/+15550100"
#define FORM \
    "MessageSid=SM0123&From=%2B15551234567&To=%2B15550100&Body=hello+w%C3%B6rld&AccountSid=AC1&X=" \
    "b&X=a"
#define PLAIN "rGcpZNzSonZMgX5/1HCiDyk8mqo="     /* HOST PATH */
#define PORT_443 "1WzO8BoS4Dw8riAUJQaeCTdR6Pw="  /* HOST:443 PATH */
#define PORT_8443 "IqfrT99xxmbx1ntICXWH0g2m1OY=" /* HOST:8443 PATH ?a=1&b=2 */
#define HASH "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
#define JSON_SIGNATURE "E/OAtWRs70wa5wB3hrFthhFZYSU="

static struct form f;

static int teardown(void **state)
{
    form_done(&f);
    return 0;
}

static bool form_ok(const char *url, const char *form, const char *signature)
{
    assert_true(form_parse(&f, str_of(form)));
    return twilio_signature_ok(AUTH, &(struct twilio_request){.url = str_of(url),
                                                              .form = &f,
                                                              .signature = str_of(signature)});
}

static bool json_ok(const char *url, const char *body, const char *signature)
{
    return twilio_signature_ok(AUTH, &(struct twilio_request){.url = str_of(url),
                                                              .body = str_of(body),
                                                              .signature = str_of(signature)});
}

static void a_form_is_believed_with_and_without_its_port(void **state)
{
    assert_true(form_ok(HOST PATH, FORM, PLAIN));
    assert_true(form_ok(HOST PATH, FORM, PORT_443));
    assert_true(form_ok(HOST ":443" PATH, FORM, PLAIN));
    assert_true(form_ok(HOST ":443" PATH, FORM, PORT_443));
    assert_true(form_ok(HOST ":8443" PATH "?a=1&b=2", FORM, PORT_8443));
    assert_false(form_ok(HOST PATH "?a=1&b=2", FORM, PORT_8443));
}

static void another_address_is_not(void **state)
{
    assert_false(form_ok("https://relay.example.com" PATH, FORM, PLAIN));
    assert_false(form_ok("http://relay.example.org" PATH, FORM, PLAIN));
    assert_false(form_ok(HOST PATH "0", FORM, PLAIN));
    assert_false(form_ok(HOST PATH "?", FORM, PLAIN));
    assert_false(form_ok(HOST ":8443" PATH "?b=2&a=1", FORM, PORT_8443));
}

static void another_form_is_not(void **state)
{
    assert_false(form_ok(HOST PATH, FORM "&Y=1", PLAIN));
    assert_false(form_ok(HOST PATH, FORM "&X=b", PLAIN)); /* its library would count it once */
    assert_false(form_ok(HOST PATH, "Body=hello", PLAIN));
    assert_false(form_ok(HOST PATH, "", PLAIN));
}

static void another_signature_is_not(void **state)
{
    char sig[] = PLAIN;

    for (size_t i = 0; i < sizeof sig - 1; i++) {
        char was = sig[i];
        sig[i] = was == 'A' ? 'B' : 'A';
        assert_false(form_ok(HOST PATH, FORM, sig));
        sig[i] = was;
    }
    assert_false(form_ok(HOST PATH, FORM, ""));
    assert_false(form_ok(HOST PATH, FORM, PLAIN "="));
    assert_false(form_ok(HOST PATH, FORM, "rGcpZNzSonZMgX5/1HCiDyk8mqo"));
}

static void any_other_body_needs_its_hash_in_the_address(void **state)
{
    assert_true(json_ok(HOST PATH "?bodySHA256=" HASH, "{\"a\":1}", JSON_SIGNATURE));
    assert_false(json_ok(HOST PATH "?bodySHA256=" HASH, "{\"a\":2}", JSON_SIGNATURE));
    assert_false(json_ok(HOST PATH "?bodySHA256=", "{\"a\":1}", JSON_SIGNATURE));
    assert_false(json_ok(HOST PATH, "{\"a\":1}", JSON_SIGNATURE));
    assert_false(
        json_ok(HOST PATH "?bodySHA256=" HASH "&bodySHA256=" HASH, "{\"a\":1}", JSON_SIGNATURE));
}

static void other(const char *url, const char *want)
{
    struct buf out = BUF_INIT;

    twilio_other_url(str_of(url), &out);
    assert_str(buf_str(&out), want);
    buf_done(&out);
}

static void ports_come_and_go(void **state)
{
    other("https://a/b", "https://a:443/b");
    other("http://a/b?c:d", "http://a:80/b?c:d");
    other("https://a:8443/b:c", "https://a/b:c");
    other("https://[::1]/b", "https://[::1]:443/b");
    other("https://[::1]:8443/b", "https://[::1]/b");
    other("https://a", "https://a:443");
    other("https://a?x=1", "https://a:443?x=1");
}

UNIT(platform_twilio_test_signature)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_form_is_believed_with_and_without_its_port),
        cmocka_unit_test(another_address_is_not),
        cmocka_unit_test(another_form_is_not),
        cmocka_unit_test(another_signature_is_not),
        cmocka_unit_test(any_other_body_needs_its_hash_in_the_address),
        cmocka_unit_test(ports_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
