/* Promises of platform/wecom/inbound.h about XML and messages. */
#include "unit.h"
#include "platform/wecom/inbound.h"

static struct wecom_xml *x;
static struct wecom_out out;

static int setup(void **state)
{
    x = wecom_xml_new();
    return 0;
}

static int teardown(void **state)
{
    wecom_xml_free(x);
    wecom_out_done(&out);
    return 0;
}

static bool parse(const char *text)
{
    return wecom_xml_parse(x, str_of(text));
}

static enum webhook_verdict read(const char *inner)
{
    struct buf text = BUF_INIT;

    buf_printf(&text,
               "<xml><ToUserName><![CDATA[corp]]></ToUserName><FromUserName><![CDATA[ann]]>"
               "</FromUserName><CreateTime>1348831860</CreateTime><AgentID>7</AgentID>%s</xml>",
               inner);
    assert_true(wecom_xml_parse(x, buf_str(&text)));
    buf_done(&text);
    return wecom_normalize(x, STR("7"), &out);
}

static void flat_documents_are_read(void **state)
{
    assert_true(parse("<xml><A><![CDATA[a<b]]></A><B> 1 &amp; 2 </B><C/><A>second</A></xml>"));
    assert_str(wecom_xml_get(x, "A"), "a<b");
    assert_str(wecom_xml_get(x, "B"), " 1 & 2 ");
    assert_str(wecom_xml_get(x, "C"), "");
    assert_null(wecom_xml_get(x, "D").p);
    assert_true(parse("<?xml version=\"1.0\" encoding=\"utf-8\"?><xml><Q>new</Q></xml>"));
    assert_null(wecom_xml_get(x, "A").p);
    assert_true(parse("<xml><In><Deep>no</Deep></In><Z>yes</Z></xml>"));
    assert_str(wecom_xml_get(x, "In"), "");
    assert_null(wecom_xml_get(x, "Deep").p);
}

static void declarations_are_refused_before_they_mean_anything(void **state)
{
    assert_false(parse("<!DOCTYPE xml><xml><A>1</A></xml>"));
    assert_false(parse("<!DOCTYPE xml [<!ENTITY a \"b\">]><xml><A>&a;</A></xml>"));
    assert_false(parse("<!DOCTYPE l [<!ENTITY a \"lol\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">"
                       "<!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;\">]><xml><A>&c;</A></xml>"));
    assert_false(parse("<!DOCTYPE x SYSTEM \"file:///etc/passwd\"><xml><A>1</A></xml>"));
    assert_false(
        parse("<!DOCTYPE x [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><xml><A>&a;</A></xml>"));
    assert_false(parse("<xml><A>&unknown;</A></xml>"));
    assert_null(wecom_xml_get(x, "A").p);
    assert_true(parse("<xml><A>1</A></xml>")); /* and the next one is read */
}

static void what_is_not_well_formed_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "x",
                                      "<xml>",
                                      "<xml><A>1</xml>",
                                      "<xml></xml><xml></xml>",
                                      "<xml><A>\xff</A></xml>",
                                      "<xml a=1></xml>"};
    struct buf deep = BUF_INIT, wide = BUF_INIT;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(parse(bad[i]));
    for (int i = 0; i < 1000; i++)
        buf_add_z(&deep, "<a>");
    for (int i = 0; i < 1000; i++)
        buf_add_z(&deep, "</a>");
    assert_false(wecom_xml_parse(x, buf_str(&deep)));
    buf_add_z(&wide, "<xml>");
    for (int i = 0; i <= WECOM_XML_FIELDS; i++)
        buf_add_z(&wide, "<a/>");
    buf_add_z(&wide, "</xml>");
    assert_false(wecom_xml_parse(x, buf_str(&wide)));
    buf_done(&deep);
    buf_done(&wide);
}

static void a_text_becomes_an_event(void **state)
{
    assert_int_equal(read("<MsgType>text</MsgType><Content>hi</Content><MsgId>99</MsgId>"),
                     WEBHOOK_EVENT);
    assert_str(out.ev.text, "hi");
    assert_str(out.ev.chat_id, "ann");
    assert_str(out.ev.event_id, "99");
    assert_str(out.ev.route_key, "7");
    assert_str(out.ev.chat_type, "dm");
}

static void other_kinds_become_media_or_words(void **state)
{
    assert_int_equal(read("<MsgType>image</MsgType><PicUrl>https://p/x</PicUrl><MsgId>1</MsgId>"),
                     WEBHOOK_EVENT);
    assert_int_equal(out.ev.n_media, 1);
    assert_str(out.ev.message_type, "photo");
    assert_int_equal(read("<MsgType>voice</MsgType><MediaId>m</MediaId><MsgId>1</MsgId>"),
                     WEBHOOK_EVENT);
    assert_str(out.ev.text, "[voice message]");
    assert_int_equal(read("<MsgType>location</MsgType><Location_X>23</Location_X>"
                          "<Location_Y>113</Location_Y><Label>here</Label>"),
                     WEBHOOK_EVENT);
    assert_str(out.ev.text, "[location: 23, 113; here]");
    assert_str(out.ev.event_id, "ann-1348831860");
    assert_int_equal(read("<MsgType>link</MsgType><Title>T</Title><Url>https://u</Url>"),
                     WEBHOOK_EVENT);
    assert_str(out.ev.text, "T\nhttps://u");
}

static void events_and_other_agents_are_ignored(void **state)
{
    assert_int_equal(read("<MsgType>event</MsgType><Event>enter_agent</Event>"), WEBHOOK_IGNORED);
    assert_int_equal(read("<MsgType>text</MsgType><Content></Content>"), WEBHOOK_IGNORED);
    assert_int_equal(read("<MsgType>sticker</MsgType>"), WEBHOOK_IGNORED);
    assert_true(parse("<xml><FromUserName>ann</FromUserName><MsgType>text</MsgType>"
                      "<Content>x</Content><AgentID>8</AgentID></xml>"));
    assert_int_equal(wecom_normalize(x, STR("7"), &out), WEBHOOK_IGNORED);
    assert_true(parse("<xml><MsgType>text</MsgType><Content>x</Content></xml>"));
    assert_int_equal(wecom_normalize(x, STR("7"), &out), WEBHOOK_MALFORMED);
}

UNIT(platform_wecom_test_normalize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_documents_are_read),
        cmocka_unit_test(declarations_are_refused_before_they_mean_anything),
        cmocka_unit_test(what_is_not_well_formed_is_refused),
        cmocka_unit_test(a_text_becomes_an_event),
        cmocka_unit_test(other_kinds_become_media_or_words),
        cmocka_unit_test(events_and_other_agents_are_ignored),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
