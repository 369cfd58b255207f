/* Promises of platform/whatsapp/normalize.h. */
#include "unit.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/whatsapp/normalize.h"

static struct json_parser *parser;
static struct arena arena;
static struct wa_out out;
static const struct wa_in in = {.bot = STR("106"), .reactions = true};

static int setup(void **state)
{
    parser = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    arena_done(&arena);
    return 0;
}

/* @text with ' for ". */
static struct json parse(const char *text)
{
    BUF_LOCAL body = BUF_INIT;
    struct json doc;

    buf_add_z(&body, text);
    for (size_t i = 0; i < body.n; i++)
        body.p[i] = body.p[i] == '\'' ? '"' : body.p[i];
    if (!json_parse(parser, buf_str(&body), &doc))
        fail_msg("bad test JSON: %s", text);
    return doc;
}

#define CHANGE(field, value) \
    "{'field':'" field "','value':{'metadata':{'phone_number_id':'106'," \
    "'display_phone_number':'+1 555-078'}," value "}}"
#define HOOK(changes) "{'object':'whatsapp_business_account','entry':[{'changes':[" changes "]}]}"
#define ANN "'from':'15551','from_user_id':'US.1','id':'wamid.A=','timestamp':'1700000000',"

/* @message, of a person whose contact is @contact. */
static enum wa_verdict read_of(const char *contact, const char *message)
{
    BUF_LOCAL body = BUF_INIT;
    struct wa_item it;

    buf_printf(&body, HOOK(CHANGE("messages", "'contacts':[%s],'messages':[{%s}]")), contact,
               message);
    struct wa_walk walk = {.body = parse(buf_z(&body))};
    assert_true(wa_is_webhook(walk.body));
    assert_true(wa_next(&walk, &it));
    assert_int_equal(it.kind, WA_MESSAGE);
    arena_reset(&arena);
    return wa_normalize(&it, &in, &arena, &out);
}

static enum wa_verdict read(const char *message)
{
    return read_of("{'wa_id':'15551','user_id':'US.1','profile':{'name':'Ann','username':'annie'}}",
                   message);
}

static void a_message_becomes_an_event(void **state)
{
    assert_int_equal(read(ANN "'type':'text','text':{'body':'hi'}"), WA_EVENT);
    assert_str(out.ev.platform, "whatsapp");
    assert_str(out.ev.bot, "106");
    assert_str(out.ev.text, "hi");
    assert_str(out.ev.chat_id, "US.1");
    assert_str(out.ev.user_id, "US.1");
    assert_str(out.ev.user_id_alt, "15551");
    assert_str(out.ev.route_key, "US.1");
    assert_str(out.ev.former_key, "15551");
    assert_str(out.ev.chat_type, "dm");
    assert_str(out.ev.user_name, "Ann");
    assert_str(out.ev.user_handle, "annie");
    assert_str(out.ev.event_id, "wamid.A=");
    assert_true(out.at_ms == INT64_C(1700000000000) && out.press.p == NULL);
    assert_int_equal(read(ANN "'type':'text','text':{'body':'/x'},"
                              "'context':{'id':'wamid.B','from':'1555078'}"),
                     WA_EVENT);
    assert_str(out.ev.message_type, "command");
    assert_str(out.ev.reply_to_message_id, "wamid.B");
    assert_true(out.ev.reply_to.is_own);
}

static void people_may_have_one_id_only(void **state)
{
    assert_int_equal(read_of("", "'from':'15552','id':'wamid.A','type':'text','text':{'body':'x'}"),
                     WA_EVENT);
    assert_str(out.ev.chat_id, "15552");
    assert_str(out.ev.user_name, "15552");
    assert_true(out.ev.user_id_alt.p == NULL && out.ev.former_key.p == NULL);
    assert_int_equal(read_of("{'user_id':'DE.ENT.9','profile':{}}",
                             "'from_user_id':'DE.ENT.9','id':'wamid.A','type':'text'"),
                     WA_EVENT);
    assert_str(out.ev.chat_id, "DE.ENT.9");
    assert_str(out.ev.user_name, "DE.ENT.9");
    /* the contact knows the id that the message lacks */
    assert_int_equal(read_of("{'wa_id':'15553','user_id':'FR.7'}",
                             "'from':'15553','id':'wamid.A','type':'text','text':{'body':'x'}"),
                     WA_EVENT);
    assert_str(out.ev.chat_id, "FR.7");
    assert_str(out.ev.user_id_alt, "15553");
    /* another person's contact does not */
    assert_int_equal(read_of("{'wa_id':'15554','user_id':'FR.8'}",
                             "'from':'15553','id':'wamid.A','type':'text','text':{'body':'x'}"),
                     WA_EVENT);
    assert_str(out.ev.chat_id, "15553");
    assert_int_equal(read_of("", "'id':'wamid.A','type':'text','text':{'body':'x'}"), WA_MALFORMED);
    assert_int_equal(read_of("", "'from':'+15','id':'wamid.A','type':'text'"), WA_MALFORMED);
    assert_int_equal(read_of("", "'from':'15553','id':'A','type':'text'"), WA_MALFORMED);
}

static void every_kind_says_something(void **state)
{
    static const struct {
        const char *message, *text;
    } cases[] = {
        {"'type':'location','location':{'latitude':1.5,'longitude':'-2','name':'N'}",
         "[location: 1.5, -2; N]"},
        {"'type':'contacts','contacts':[{'name':{'formatted_name':'B'},'phones':[{'phone':'1'}]},"
         "{'name':{'formatted_name':'C'}}]",
         "[contact: B, 1]\n[contact: C]"},
        {"'type':'order','order':{'product_items':[{'product_retailer_id':'p','quantity':2}]}",
         "[order: 2 x p]"},
        {"'type':'interactive','interactive':{'type':'list_reply','list_reply':{'id':'hp1:q:a',"
         "'title':'A'}}",
         "A"},
        {"'type':'interactive','interactive':{'type':'call_permission_reply'}",
         "[answer: call_permission_reply]"},
        {"'type':'button','button':{'text':'T','payload':'P'}", "T"},
        {"'type':'unsupported','unsupported':{'type':'edit'}", "[unsupported message: edit]"},
        {"'type':'text'", "[unsupported message: text]"},
        {"'type':'image','image':{'id':'a/b','mime_type':'image/png'}",
         "[unsupported message: image]"},
        {"'type':'video','video':{}", "[unsupported message: video]"},
        {"'type':'hologram'", "[unsupported message: hologram]"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        BUF_LOCAL message = BUF_INIT;
        buf_printf(&message, ANN "%s", cases[i].message);
        assert_int_equal(read(buf_z(&message)), WA_EVENT);
        assert_str(out.ev.text, cases[i].text);
    }
}

static void files_are_named_by_their_id(void **state)
{
    assert_int_equal(read(ANN "'type':'audio','audio':{'id':'77','voice':true,"
                              "'mime_type':'audio/ogg; codecs=opus'}"),
                     WA_EVENT);
    assert_int_equal(out.ev.n_media, 1);
    assert_str(out.ev.media[0].ref, "77");
    assert_str(out.ev.media[0].kind, "voice");
    assert_str(out.ev.media[0].type, "audio/ogg");
    assert_int_equal(read(ANN "'type':'document','document':{'id':'78','mime_type':'image/png',"
                              "'filename':'f.png','caption':'c'}"),
                     WA_EVENT);
    assert_str(out.ev.message_type, "document");
    assert_str(out.ev.text, "c");
    assert_str(out.ev.media[0].name, "f.png");
    assert_int_equal(read(ANN "'type':'sticker','sticker':{'id':'79','mime_type':'image/webp'}"),
                     WA_EVENT);
    assert_str(out.ev.media[0].kind, "image");
}

static void reactions_notices_and_groups(void **state)
{
    static const struct wa_in deaf = {.bot = STR("106")};
    struct wa_item it;

    assert_int_equal(read(ANN "'type':'reaction','reaction':{'message_id':'wamid.X','emoji':'+'}"),
                     WA_EVENT);
    assert_str(out.ev.text, "reaction:added:+");
    assert_str(out.ev.message_id, "wamid.X");
    assert_str(out.ev.event_id, "wamid.A=");
    assert_int_equal(read(ANN "'type':'reaction','reaction':{'message_id':'wamid.X'}"), WA_EVENT);
    assert_str(out.ev.text, "reaction:removed");
    struct wa_walk walk = {
        .body = parse(HOOK(CHANGE("messages", "'messages':[{" ANN "'type':'reaction','reaction':{"
                                              "'message_id':'wamid.X','emoji':'+'}}]")))};
    assert_true(wa_next(&walk, &it));
    assert_int_equal(wa_normalize(&it, &deaf, &arena, &out), WA_IGNORED);
    assert_int_equal(read(ANN "'type':'system','system':{'user_id':'US.2','wa_id':'15559'}"),
                     WA_IGNORED);
    assert_str(out.moved, "US.2");
    assert_int_equal(read(ANN "'type':'system','system':{'user_id':'US.1'}"), WA_IGNORED);
    assert_true(out.moved.p == NULL);
    assert_int_equal(read(ANN "'type':'text','group_id':'g','text':{'body':'x'}"), WA_REFUSED);
}

static void edits_and_deletions_name_the_message(void **state)
{
    assert_int_equal(read(ANN "'type':'revoke','revoke':{'original_message_id':'wamid.X'}"),
                     WA_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.silent && out.ev.edit.deletes);
    assert_str(out.ev.message_id, "wamid.X");
    assert_str(out.ev.event_id, "wamid.A=");
    assert_str(out.ev.user_id, "US.1");
    assert_int_equal(read(ANN "'type':'edit','edit':{'original_message_id':'wamid.X','message':{"
                              "'type':'text','text':{'body':'right'}}}"),
                     WA_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.silent && !out.ev.edit.deletes);
    assert_str(out.ev.edit.text, "right");
    assert_int_equal(read(ANN "'type':'edit','edit':{'original_message_id':'wamid.X','message':{"
                              "'type':'image','image':{'id':'1','caption':'c'}}}"),
                     WA_EVENT);
    assert_str(out.ev.edit.text, "c");
    assert_int_equal(out.ev.n_media, 0);
    assert_int_equal(read(ANN "'type':'revoke','revoke':{}"), WA_MALFORMED);
    assert_int_equal(read(ANN "'type':'edit','edit':{'original_message_id':'wamid.X'}"),
                     WA_MALFORMED);
}

static void a_webhook_is_walked_in_order(void **state)
{
    static const enum wa_kind want[] = {WA_MESSAGE, WA_MESSAGE, WA_STATUS, WA_NEW_ID, WA_ERROR};
    struct wa_walk walk = {
        .body = parse("{'object':'whatsapp_business_account','entry':[7,{'changes':["
                      "{'field':'account_update','value':{'messages':[{}]}},"
                      "{'field':'messages','value':{'messages':[{},{}],'statuses':[{}]}}]},"
                      "{'changes':{}},{'changes':[{'field':'user_id_update','value':"
                      "{'user_id_update':[{}]}},{'field':'messages','value':{'errors':[{}]}}]}]}")};
    struct wa_item it;

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(wa_next(&walk, &it));
        assert_int_equal(it.kind, want[i]);
    }
    assert_false(wa_next(&walk, &it));
    assert_false(wa_is_webhook(parse("{'object':'page','entry':[]}")));
    assert_false(wa_is_webhook(parse("{'object':'whatsapp_business_account'}")));
}

static void statuses_and_new_ids_are_read(void **state)
{
    struct wa_status s;
    struct wa_new_id m;

    assert_true(wa_read_status(parse("{'id':'wamid.A','status':'failed','recipient_id':'15551',"
                                     "'biz_opaque_callback_data':'1.0.x','errors':[{'code':131047}]"
                                     "}"),
                               &s));
    assert_true(s.failed && s.code == 131047);
    assert_str(s.data, "1.0.x");
    assert_str(s.recipient, "15551");
    assert_true(wa_read_status(parse("{'id':'wamid.A','status':'read'}"), &s) && !s.failed);
    assert_false(wa_read_status(parse("{'id':'A','status':'read'}"), &s));
    assert_false(wa_read_status(parse("{'id':'wamid.A'}"), &s));
    assert_true(wa_read_new_id(parse("{'user_id':{'previous':'US.1','current':'US.2'}}"), &m));
    assert_str(m.to, "US.2");
    assert_false(wa_read_new_id(parse("{'user_id':{'previous':'US.1','current':'US.1'}}"), &m));
    assert_false(wa_read_new_id(parse("{'user_id':{'previous':'US.1'}}"), &m));
}

static void signatures_cover_every_byte(void **state)
{
    uint8_t mac[SHA256_BYTES];
    BUF_LOCAL sign = BUF_INIT;

    hmac_sha256(STR("secret"), STR("body"), mac);
    buf_add_z(&sign, "sha256=");
    hex_add(&sign, mac, sizeof mac);
    assert_true(wa_signature_ok(STR("secret"), buf_str(&sign), STR("body")));
    assert_false(wa_signature_ok(STR("secret"), buf_str(&sign), STR("bodx")));
    assert_false(wa_signature_ok(STR("other"), buf_str(&sign), STR("body")));
    assert_false(wa_signature_ok(STR("secret"), str_skip(buf_str(&sign), 7), STR("body")));
    assert_false(wa_signature_ok(STR("secret"), STR_NULL, STR("body")));
    sign.p[sign.n - 1] = sign.p[sign.n - 1] == '0' ? '1' : '0';
    assert_false(wa_signature_ok(STR("secret"), buf_str(&sign), STR("body")));
}

static void ids_and_addresses_are_checked(void **state)
{
    assert_true(wa_is_bsuid(STR("US.13491208655302741918")) && wa_is_bsuid(STR("US.ENT.a1")));
    assert_false(wa_is_bsuid(STR("us.1")) || wa_is_bsuid(STR("US.")) ||
                 wa_is_bsuid(STR("US.ENT.")));
    assert_false(wa_is_bsuid(STR("US.a.b")) || wa_is_bsuid(STR("US.1 ")));
    assert_false(wa_is_bsuid(STR("USA.1")));
    assert_true(wa_is_number(STR("15551")));
    assert_false(wa_is_number(STR("+15551")) || wa_is_number(STR("")) || wa_is_number(STR("1234")));
    assert_false(wa_is_wamid(STR("wamid.")) || wa_is_wamid(STR("wamid.a b")));
    assert_true(wa_is_own_url(STR("https://lookaside.fbsbx.com/x?a=b"), STR_NULL));
    assert_true(wa_is_own_url(STR("http://sim/v/1"), STR("http://sim")));
    assert_false(wa_is_own_url(STR("http://sim.evil/v/1"), STR("http://sim")));
    assert_false(wa_is_own_url(STR("http://lookaside.fbsbx.com/x"), STR_NULL));
    assert_false(wa_is_own_url(STR("https://lookaside.fbsbx.com.evil/x"), STR_NULL));
    assert_false(wa_is_own_url(STR("https://evil/https://lookaside.fbsbx.com/"), STR_NULL));
}

UNIT(platform_whatsapp_test_normalize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_becomes_an_event),
        cmocka_unit_test(people_may_have_one_id_only),
        cmocka_unit_test(every_kind_says_something),
        cmocka_unit_test(files_are_named_by_their_id),
        cmocka_unit_test(reactions_notices_and_groups),
        cmocka_unit_test(edits_and_deletions_name_the_message),
        cmocka_unit_test(a_webhook_is_walked_in_order),
        cmocka_unit_test(statuses_and_new_ids_are_read),
        cmocka_unit_test(signatures_cover_every_byte),
        cmocka_unit_test(ids_and_addresses_are_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
