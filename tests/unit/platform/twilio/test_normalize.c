/* Promises of platform/twilio/inbound.h about messages. */
#include "unit.h"
#include "platform/twilio/inbound.h"

static struct form f;
static struct twilio_out out;

static int teardown(void **state)
{
    form_done(&f);
    twilio_out_done(&out);
    return 0;
}

#define BASE "MessageSid=SM0123456789abcdef&AccountSid=AC1&From=%2B15551234567&To=%2B15550100"

static enum webhook_verdict read(const char *form)
{
    assert_true(form_parse(&f, str_of(form)));
    return twilio_normalize(&f, STR("+15550100"), STR("AC1"), &out);
}

static void a_message_becomes_an_event(void **state)
{
    assert_int_equal(read(BASE "&Body=hello&NumMedia=0&SmsStatus=received"), WEBHOOK_EVENT);
    assert_str(out.ev.text, "hello");
    assert_str(out.ev.chat_id, "+15551234567");
    assert_str(out.ev.user_id, "+15551234567");
    assert_str(out.ev.chat_type, "dm");
    assert_str(out.ev.event_id, "SM0123456789abcdef");
    assert_str(out.ev.route_key, "+15550100");
    assert_str(out.ev.platform, "twilio");
}

static void whatsapp_keeps_its_prefix_and_brings_a_name(void **state)
{
    assert_int_equal(read("MessageSid=SM01&From=whatsapp%3A%2B1555123&ProfileName=Ann&Body=x"),
                     WEBHOOK_EVENT);
    assert_str(out.ev.chat_id, "whatsapp:+1555123");
    assert_str(out.ev.user_name, "Ann");
}

static void a_reply_names_what_it_quotes(void **state)
{
    assert_int_equal(read(BASE "&Body=x&OriginalRepliedMessageSid=SM02&"
                               "OriginalRepliedMessageSender=whatsapp%3A%2B15550100"),
                     WEBHOOK_EVENT);
    assert_str(out.ev.reply_to_message_id, "SM02");
    assert_true(out.ev.reply_to.set && out.ev.reply_to.is_own && out.ev.replies_to_bot);
    assert_int_equal(read(BASE "&Body=x&OriginalRepliedMessageSid=SM02&"
                               "OriginalRepliedMessageSender=whatsapp%3A%2B15551234567"),
                     WEBHOOK_EVENT);
    assert_true(out.ev.reply_to.set && !out.ev.reply_to.is_own);
    assert_int_equal(read(BASE "&Body=x&OriginalRepliedMessageSid=..%2Fx"), WEBHOOK_EVENT);
    assert_false(out.ev.reply_to.set);
}

static void pictures_come_along(void **state)
{
    assert_int_equal(read(BASE "&Body=&NumMedia=2&MediaUrl0=https%3A%2F%2Fapi%2Fa&"
                               "MediaContentType0=image%2Fpng&MediaUrl1=https%3A%2F%2Fapi%2Fb"),
                     WEBHOOK_EVENT);
    assert_int_equal(out.ev.n_media, 2);
    assert_str(out.ev.media[1].ref, "https://api/b");
    assert_str(out.ev.message_type, "photo");
    assert_int_equal(read(BASE "&NumMedia=1&MediaUrl0=ftp%3A%2F%2Fx"), WEBHOOK_IGNORED);
    assert_int_equal(read(BASE "&NumMedia=18446744073709551615&Body=x"), WEBHOOK_EVENT);
    assert_int_equal(out.ev.n_media, 0);
}

static void a_shared_place_becomes_words(void **state)
{
    assert_int_equal(read(BASE "&Latitude=52.5&Longitude=13.4&Address=Here"), WEBHOOK_EVENT);
    assert_str(out.ev.text, "[location: 52.5, 13.4; Here]");
}

static void news_of_our_own_messages_are_no_events(void **state)
{
    assert_int_equal(read(BASE "&MessageStatus=delivered"), WEBHOOK_IGNORED);
    assert_int_equal(read(BASE "&SmsStatus=sent&Body=x"), WEBHOOK_IGNORED);
    assert_int_equal(read(BASE "&Body="), WEBHOOK_IGNORED);
}

static void fields_with_shifted_borders_are_no_message(void **state)
{
    assert_int_equal(read("MessageSid=SM01&From=%2B1555FromCityBerlin&Body=x"), WEBHOOK_MALFORMED);
    assert_int_equal(read("MessageSid=SM01&Body=xFrom%2B1555"), WEBHOOK_MALFORMED);
    assert_int_equal(read("MessageSid=SM01%2Fx&From=%2B1555&Body=x"), WEBHOOK_MALFORMED);
    assert_int_equal(read("MessageSid=XX01&From=%2B1555&Body=x"), WEBHOOK_MALFORMED);
    assert_int_equal(read("MessageSid=SM01&AccountSid=AC2&From=%2B1555&Body=x"), WEBHOOK_MALFORMED);
    assert_int_equal(read("Body=x"), WEBHOOK_MALFORMED);
}

static void addresses_have_a_form(void **state)
{
    assert_true(twilio_address_ok(STR("+15551234567")));
    assert_true(twilio_address_ok(STR("12345")));
    assert_true(twilio_address_ok(STR("whatsapp:+15551234567")));
    assert_true(twilio_address_ok(STR("messenger:1234567890")));
    assert_false(twilio_address_ok(STR_NULL));
    assert_false(twilio_address_ok(STR("+1555 123")));
    assert_false(twilio_address_ok(STR("1+555")));
    assert_false(twilio_address_ok(STR("whatsapp:")));
    assert_false(twilio_address_ok(STR("whats app:+1")));
    assert_false(twilio_address_ok(STR("+1555\n")));
}

UNIT(platform_twilio_test_normalize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_becomes_an_event),
        cmocka_unit_test(whatsapp_keeps_its_prefix_and_brings_a_name),
        cmocka_unit_test(a_reply_names_what_it_quotes),
        cmocka_unit_test(pictures_come_along),
        cmocka_unit_test(a_shared_place_becomes_words),
        cmocka_unit_test(news_of_our_own_messages_are_no_events),
        cmocka_unit_test(fields_with_shifted_borders_are_no_message),
        cmocka_unit_test(addresses_have_a_form),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
