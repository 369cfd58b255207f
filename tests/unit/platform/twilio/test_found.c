/* Promises of platform/twilio/outbound.h. */
#include "unit.h"
#include "base/json.h"
#include "base/mem.h"
#include "platform/twilio/outbound.h"

static struct json_parser *parser;
static struct twilio_sids known;
static struct twilio_sought q;

static int setup(void **state)
{
    parser = json_parser_new();
    known = (struct twilio_sids){0};
    q = (struct twilio_sought){.to = STR("+2"),
                               .from = STR("+1"),
                               .body = STR("hi"),
                               .since_s = 1692853305, /* 24 Aug 2023 05:01:45 */
                               .known = &known};
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    return 0;
}

#define MESSAGE(sid, more) \
    "{\"sid\":\"" sid "\",\"to\":\"+2\",\"from\":\"+1\",\"direction\":\"outbound-api\"," more "}"
#define REST(body, media, at) \
    "\"body\":\"" body "\",\"num_media\":\"" media "\",\"date_created\":\"Thu, 24 Aug 2023 " at \
    " +0000\""

static const char *find(const char *messages)
{
    static char sid[64];
    char text[2048];
    struct json list;

    snprintf(text, sizeof text, "{\"messages\":[%s]}", messages);
    assert_true(json_parse(parser, str_of(text), &list));
    snprintf(sid, sizeof sid, "%.*s", STR_FMT(twilio_find(list, &q)));
    return sid;
}

static void the_same_text_to_the_same_person_is_it(void **state)
{
    assert_string_equal(find(MESSAGE("SM1", REST("hi", "0", "05:01:45"))), "SM1");
    assert_string_equal(find(MESSAGE("SM1", REST("Sent from your Twilio trial account - hi", "0",
                                                 "05:02:00"))),
                        "SM1");
    assert_string_equal(find(MESSAGE("SM2", REST("hi", "0", "05:01:50")) "," //
                             MESSAGE("SM1", REST("hi", "0", "05:01:46"))),
                        "SM2"); /* the older one said the same before */
    q.from = STR_NULL;
    assert_string_equal(find("{\"sid\":\"SM3\",\"to\":\"+2\",\"from\":null,\"direction\":"
                             "\"outbound-api\"," REST("hi", "0", "05:01:45") "}"),
                        "SM3"); /* a service has not chosen yet */
}

static void another_one_is_not(void **state)
{
    static const char *const others[] = {
        MESSAGE("SM1", REST("not hi", "0", "05:01:45")),
        MESSAGE("SM1", REST("hi", "1", "05:01:45")),
        MESSAGE("SM1", REST("hi", "0", "05:01:44")), /* before it was tried */
        MESSAGE("SM1", "\"body\":\"hi\",\"num_media\":\"0\",\"date_created\":\"today\""),
        MESSAGE("", REST("hi", "0", "05:01:45")),
        "{\"sid\":\"SM1\",\"to\":\"+1\",\"from\":\"+2\",\"direction\":\"inbound\"," //
        REST("hi", "0", "05:01:45") "}",
        "7",
        "",
    };

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_string_equal(find(others[i]), "");
    twilio_sids_add(&known, STR("SM1"));
    assert_string_equal(find(MESSAGE("SM1", REST("hi", "0", "05:01:45"))), "");
    q.first_id = STR("SM2"); /* part 1 may well say what part 2 says */
    assert_string_equal(find(MESSAGE("SM2", REST("hi", "0", "05:01:45"))), "");
}

static void a_file_counts(void **state)
{
    q.media = true;
    q.body = STR("");
    assert_string_equal(find(MESSAGE("MM1", REST("", "1", "05:01:45"))), "MM1");
    assert_string_equal(find(MESSAGE("MM1", REST("", "0", "05:01:45"))), "");
}

static void the_newest_sids_are_remembered(void **state)
{
    char sid[16];

    for (int i = 0; i < TWILIO_SIDS + 1; i++) {
        snprintf(sid, sizeof sid, "SM%d", i);
        twilio_sids_add(&known, str_of(sid));
    }
    assert_false(twilio_sids_have(&known, STR("SM0")));
    assert_true(twilio_sids_have(&known, STR("SM1")));
    assert_true(twilio_sids_have(&known, str_of(sid)));
    twilio_sids_add(&known, STR("SMxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")); /* none */
    assert_true(twilio_sids_have(&known, STR("SM1")));
}

UNIT(platform_twilio_test_found)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(the_same_text_to_the_same_person_is_it),
        T(another_one_is_not),
        T(a_file_counts),
        T(the_newest_sids_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
