/* Promises of platform/signal/normalize.h. */
#include "unit.h"
#include <stdio.h>
#include "base/mem.h"
#include "platform/signal/normalize.h"

#define ANN "9d0652a3-dcc3-4d11-975f-74d61598733f"
#define SELF "11111111-1111-4111-8111-111111111111"
#define BEN "22222222-2222-4222-8222-222222222222"

static struct json_parser *parser;
static struct arena arena;
static struct signal_out out;

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

/* Reads @text, with ' for ". */
static enum signal_verdict read_all(const char *text)
{
    static const struct signal_in in = {.bot = STR("+15550100"), .reactions = true};
    BUF_LOCAL body = BUF_INIT;
    struct json doc;

    buf_add_z(&body, text);
    for (size_t i = 0; i < body.n; i++)
        body.p[i] = body.p[i] == '\'' ? '"' : body.p[i];
    if (!json_parse(parser, buf_str(&body), &doc))
        fail_msg("bad test JSON: %s", text);
    arena_reset(&arena);
    return signal_normalize(doc, &in, &arena, &out);
}

/* An envelope of Ann with @kind in it. */
static enum signal_verdict read_of(const char *kind)
{
    BUF_LOCAL body = BUF_INIT;

    buf_printf(
        &body,
        "{'account':'+15550100','envelope':{'source':'x','sourceNumber':'+15551','sourceUuid':"
        "'" ANN "','sourceName':'Ann','timestamp':1700000000001,%s}}",
        kind);
    return read_all(buf_z(&body));
}

#define DATA(more) "'dataMessage':{'timestamp':1700000000001" more "}"
#define assert_text(s, want) assert_str(s, want)

static void a_message_has_the_uuid_and_the_number_of_its_author(void **state)
{
    assert_int_equal(read_of(DATA(",'message':'hi'")), SIGNAL_EVENT);
    assert_text(out.ev.chat_id, ANN);
    assert_text(out.ev.user_id, ANN);
    assert_text(out.ev.user_id_alt, "+15551");
    assert_text(out.ev.former_key, "+15551");
    assert_text(out.ev.message_id, "1700000000001:" ANN);
    assert_text(out.ev.event_id, "1700000000001:" ANN);
    assert_text(out.ev.user_name, "Ann");
    assert_true(out.ev.mentions_bot);
}

static void an_old_account_without_a_uuid_is_known_by_its_number(void **state)
{
    assert_int_equal(read_all(
                         "{'envelope':{'sourceNumber':'+15551','sourceUuid':null,'timestamp':5,"
                         "'dataMessage':{'timestamp':5,'message':'x'}}}"),
                     SIGNAL_EVENT);
    assert_text(out.ev.user_id, "+15551");
    assert_int_equal(out.ev.user_id_alt.n, 0);
    assert_text(out.ev.message_id, "5:+15551");
}

static void mentions_count_utf16_units(void **state)
{
    /* an emoji has two units; Ben is at 3, the account at 5 */
    assert_int_equal(read_of(DATA(
                         ",'groupInfo':{'groupId':'QUJD'},'message':'\xf0\x9f\x98\x80 \xef\xbf\xbc "
                         "\xef\xbf\xbc.','mentions':[{'number':'+15550100','uuid':'" SELF
                         "','start':5,'length':1},{'number':'+15552','start':3,'length':1}]")),
                     SIGNAL_EVENT);
    assert_text(out.ev.text, "\xf0\x9f\x98\x80 @+15552 .");
    assert_true(out.ev.mentions_bot);
    assert_text(out.self, SELF);
    /* ranges that lie outside are ignored */
    assert_int_equal(read_of(DATA(",'message':'ab','mentions':[{'number':'+15552','start':9,"
                                  "'length':1},{'start':-1,'length':1},{'start':0,'length':0}]")),
                     SIGNAL_EVENT);
    assert_text(out.ev.text, "ab");
}

static void a_bare_mention_in_a_group_is_a_message(void **state)
{
    const char *mention =
        DATA(",'groupInfo':{'groupId':'QUJD'},'message':'\xef\xbf\xbc','mentions':["
             "{'number':'+15550100','start':0,'length':1}]");

    assert_int_equal(read_of(mention), SIGNAL_EVENT);
    assert_int_equal(out.ev.text.n, 0);
    assert_true(out.ev.mentions_bot);
    assert_int_equal(read_of(DATA(",'groupInfo':{'groupId':'QUJD'},'message':null")),
                     SIGNAL_IGNORED);
}

static void quotes_name_the_message_as_agents_know_it(void **state)
{
    assert_int_equal(read_of(DATA(",'message':'x','quote':{'id':7,'authorNumber':'+15550100',"
                                  "'authorUuid':'" SELF "','text':'mine'}")),
                     SIGNAL_EVENT);
    assert_text(out.ev.reply_to_message_id, "7");
    assert_true(out.ev.reply_to.is_own && out.ev.replies_to_bot);
    assert_int_equal(read_of(DATA(",'message':'x','quote':{'id':7,'authorUuid':'" ANN "'}")),
                     SIGNAL_EVENT);
    assert_text(out.ev.reply_to_message_id, "7:" ANN);
    assert_false(out.ev.replies_to_bot);
    assert_int_equal(read_of(DATA(",'message':'x','quote':{'id':-7,'authorUuid':'" ANN "'}")),
                     SIGNAL_EVENT);
    assert_false(out.ev.reply_to.set);
}

static void edits_and_deletions_name_the_first_version(void **state)
{
    assert_int_equal(read_of("'editMessage':{'targetSentTimestamp':9,'dataMessage':{'timestamp':12,"
                             "'message':'new'}}"),
                     SIGNAL_EVENT);
    assert_text(out.ev.message_id, "9:" ANN);
    assert_text(out.ev.edit.text, "new");
    assert_text(out.ev.event_id, "edit 12:" ANN);
    assert_int_equal(read_of(DATA(",'remoteDelete':{'timestamp':9}")), SIGNAL_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.deletes && out.ev.edit.silent);
    assert_text(out.ev.message_id, "9:" ANN);
    assert_int_equal(read_of(
                         DATA(",'groupInfo':{'groupId':'QUJD'},'adminDelete':{'targetAuthor':'" BEN
                              "','targetAuthorUuid':'" BEN "','targetSentTimestamp':8}")),
                     SIGNAL_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.deletes && out.ev.edit.silent);
    assert_text(out.ev.message_id, "8:" BEN);
    assert_text(out.ev.user_id, ANN);
    assert_text(out.ev.event_id, "delete 1700000000001:" ANN);
    assert_int_equal(read_of(DATA(",'adminDelete':{'targetSentTimestamp':8}")), SIGNAL_MALFORMED);
}

static void only_reactions_to_the_account_are_heard(void **state)
{
    assert_int_equal(read_of(DATA(
                         ",'reaction':{'emoji':'\xe2\x9d\xa4','targetAuthorNumber':'+15550100',"
                         "'targetSentTimestamp':7,'isRemove':true}")),
                     SIGNAL_EVENT);
    assert_text(out.ev.text, "reaction:removed:\xe2\x9d\xa4");
    assert_text(out.ev.reply_to_message_id, "7");
    assert_int_equal(read_of(DATA(",'reaction':{'emoji':'x','targetAuthorUuid':'" ANN
                                  "','targetSentTimestamp':7,'isRemove':false}")),
                     SIGNAL_IGNORED);
    assert_int_equal(read_of(DATA(",'reaction':{'emoji':'','targetAuthorUuid':'" ANN
                                  "','targetSentTimestamp':7}")),
                     SIGNAL_MALFORMED);
}

static void the_account_is_never_answered(void **state)
{
    static const char *const own[] = {
        "{'envelope':{'sourceNumber':'+15550100','timestamp':5,'syncMessage':{'sentMessage':"
        "{'timestamp':5,'message':'x'}}}}",
        "{'envelope':{'sourceNumber':'+15550100','timestamp':5,'dataMessage':{'timestamp':5,"
        "'message':'x'}}}",
        "{'envelope':{'sourceNumber':'+15551','timestamp':5,'syncMessage':{}}}",
        "{'envelope':{'sourceNumber':'+15551','timestamp':5,'typingMessage':{'action':'STARTED'}}}",
        "{'envelope':{'sourceNumber':'+15551','timestamp':5},'exception':{'type':'X'}}",
        "{'account':'+15559','envelope':{'sourceNumber':'+15551','timestamp':5,'dataMessage':"
        "{'timestamp':5,'message':'for another account'}}}",
    };

    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        assert_int_equal(read_all(own[i]), SIGNAL_IGNORED);
        assert_non_null(out.why);
    }
}

static void the_owner_writes_to_the_agent_on_another_device(void **state)
{
    static const struct {
        const char *sent, *chat, *text;
    } own[] = {
        {"'destinationNumber':'+15550100','timestamp':5,'message':'a note'", "+15550100", "a note"},
        {"'destination':null,'timestamp':5,'message':'to all','groupInfo':{'groupId':'YWJj'}",
         "group:YWJj", "to all"},
        {"'destinationNumber':'+15550100','editMessage':{'targetSentTimestamp':4,'dataMessage':"
         "{'timestamp':5,'message':'better'}}",
         "+15550100", "better"},
        {"'destinationNumber':'+15551','timestamp':5,'message':'to Ann'", NULL, NULL},
        {"'timestamp':5,'message':'to nobody'", NULL, NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{'envelope':{'sourceNumber':'+15550100','timestamp':5,'syncMessage':"
                 "{'sentMessage':{%s}}}}",
                 own[i].sent);
        assert_int_equal(read_all(text), own[i].chat != NULL ? SIGNAL_EVENT : SIGNAL_IGNORED);
        if (own[i].chat == NULL)
            continue;
        assert_true(out.own);
        assert_text(out.ev.chat_id, own[i].chat);
        assert_text(out.ev.text, own[i].text);
        assert_text(out.ev.user_id, "+15550100");
        assert_text(out.ev.message_id, out.ev.edit.set ? "4" : "5");
    }
}

static void nonsense_is_malformed(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{'envelope':5}",
        "{'envelope':{'timestamp':5,'dataMessage':{'timestamp':5,'message':'nobody'}}}",
        "{'envelope':{'sourceUuid':'ZZZ','timestamp':5,'dataMessage':{'timestamp':5,'message':'x'}}"
        "}",
        "{'envelope':{'sourceNumber':'+15551','timestamp':0,'dataMessage':{'timestamp':-1,'message'"
        ":'x'}}}",
        "{'envelope':{'sourceNumber':'+15551','timestamp':5,'dataMessage':{'timestamp':5,'message':"
        "'x',"
        "'groupInfo':{'groupId':'no base64!'}}}}",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(read_all(bad[i]), SIGNAL_MALFORMED);
}

static void files_that_cannot_be_fetched_are_named(void **state)
{
    assert_int_equal(read_of(DATA(
                         ",'message':null,'attachments':[{'id':'../x','contentType':'image/png',"
                         "'filename':'a.png'},{'id':'ok.jpg','contentType':'image/jpeg','size':10},"
                         "{'id':'big','contentType':'video/mp4','size':99999999999}]")),
                     SIGNAL_EVENT);
    assert_int_equal(out.ev.n_media, 1);
    assert_text(out.ev.media[0].ref, "ok.jpg");
    assert_text(out.ev.text, "[a file that could not be fetched: a.png]\n"
                             "[a file that could not be fetched: video/mp4]");
}

static void ids_are_read_strictly(void **state)
{
    int64_t at;
    struct str author;

    assert_true(signal_read_id(STR("12:" ANN), &at, &author) && at == 12);
    assert_text(author, ANN);
    assert_true(signal_read_id(STR("12"), &at, &author) && author.n == 0);
    static const char *const bad[] = {"",     ":",      "0",  "12:",
                                      "12:x", "x:" ANN, "-5", "9999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(signal_read_id(str_of(bad[i]), &at, &author));
    assert_true(signal_is_chat(STR(ANN)) && signal_is_chat(STR("+15551")));
    assert_true(signal_is_chat(STR("group:QUJD+/=")));
    assert_false(signal_is_chat(STR("group:")) || signal_is_chat(STR("15551")));
    assert_false(signal_is_chat(STR("9D0652A3-DCC3-4D11-975F-74D61598733F")));
}

UNIT(platform_signal_test_normalize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_has_the_uuid_and_the_number_of_its_author),
        cmocka_unit_test(an_old_account_without_a_uuid_is_known_by_its_number),
        cmocka_unit_test(mentions_count_utf16_units),
        cmocka_unit_test(a_bare_mention_in_a_group_is_a_message),
        cmocka_unit_test(quotes_name_the_message_as_agents_know_it),
        cmocka_unit_test(edits_and_deletions_name_the_first_version),
        cmocka_unit_test(only_reactions_to_the_account_are_heard),
        cmocka_unit_test(the_account_is_never_answered),
        cmocka_unit_test(the_owner_writes_to_the_agent_on_another_device),
        cmocka_unit_test(nonsense_is_malformed),
        cmocka_unit_test(files_that_cannot_be_fetched_are_named),
        cmocka_unit_test(ids_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
