/* Promises of platform/teams/normalize.h and platform/teams/proof.h. */
#include "unit.h"
#include <time.h>
#include "base/mem.h"
#include "platform/teams/normalize.h"
#include "platform/teams/proof.h"

#define APP "00001111-aaaa-2222-bbbb-3333cccc4444"
#define TENANT "aaaabbbb-0000-cccc-1111-dddd2222eeee"
#define BOT "28:" APP

static struct json_parser *parser;
static struct arena arena;
static struct teams_out out;
static struct teams_in in = {.bot = STR(APP), .reactions = true};

static int setup(void **state)
{
    parser = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    arena_done(&arena);
    teams_out_done(&out);
    return 0;
}

/* @text has ' for ". */
static struct json parse(const char *text)
{
    static char copy[8192];
    struct json doc;

    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = copy; *p != '\0'; p++)
        *p = *p == '\'' ? '"' : *p;
    if (!json_parse(parser, str_of(copy), &doc))
        fail_msg("bad test JSON: %s", copy);
    return doc;
}

#define FROM "'from':{'id':'29:ann','name':'Ann','aadObjectId':'0001'}"
#define HEAD(place) \
    "'serviceUrl':'https://smba.trafficmanager.net/amer/','channelId':'msteams'," FROM \
    ",'recipient':{'id':'" BOT "'},'conversation':{" place ",'tenantId':'" TENANT "'}"
#define PERSONAL HEAD("'id':'a:1','conversationType':'personal'")
#define CHANNEL HEAD("'id':'19:c@thread.tacv2;messageid=17','conversationType':'channel'")

static enum teams_verdict take(const char *activity)
{
    arena_reset(&arena);
    return teams_normalize(parse(activity), &in, &arena, &out);
}

static void a_message_becomes_an_event(void **state)
{
    assert_int_equal(take("{'type':'message','id':'12','text':' hi '," PERSONAL "}"), TEAMS_EVENT);
    assert_str(out.ev.platform, "teams");
    assert_str(out.ev.text, "hi");
    assert_str(out.ev.chat_id, "a:1");
    assert_str(out.ev.chat_type, "dm");
    assert_str(out.ev.user_id, "0001");
    assert_str(out.ev.user_name, "Ann");
    assert_str(out.ev.route_key, "dm:0001");
    assert_str(out.ev.scope_id, TENANT);
    assert_str(out.at.account, "29:ann");
    assert_str(out.at.service_url, "https://smba.trafficmanager.net/amer/");
    assert_false(out.ev.author_is_bot);
}

static void another_channel_of_the_bot_framework_names_no_place(void **state)
{
    assert_int_equal(take("{'type':'message','id':'12','text':'hi','channelId':'directline',"
                          "'serviceUrl':'https://directline.botframework.com/'," FROM
                          ",'recipient':{'id':'" BOT
                          "'},'conversation':{'id':'a:1','tenantId':'" TENANT "'}}"),
                     TEAMS_IGNORED);
    assert_int_equal(out.at.chat.n, 0);
}

static void tags_that_never_end_take_linear_time(void **state)
{
    BUF_LOCAL text = BUF_INIT;
    clock_t began = clock();
    bool mentioned = false;

    for (size_t i = 0; i < 250000; i++)
        buf_add_z(&text, "<at ");
    arena_reset(&arena);
    struct str read = teams_text_in(&arena, buf_str(&text), (struct json){0}, STR(BOT), &mentioned);
    assert_int_equal(read.n, text.n - 1);              /* the blank at the end goes */
    assert_true(clock() - began < CLOCKS_PER_SEC / 2); /* else 1.8 s */
}

static void a_channel_has_threads_and_a_team(void **state)
{
    assert_int_equal(take("{'type':'message','id':'18','text':'x','channelData':{'team':{'id':"
                          "'19:t@thread.tacv2'},'channel':{'id':'19:c@thread.tacv2','name':'lobby'"
                          "}}," CHANNEL "}"),
                     TEAMS_EVENT);
    assert_str(out.ev.chat_id, "19:c@thread.tacv2");
    assert_str(out.ev.thread_id, "17");
    assert_str(out.ev.chat_type, "channel");
    assert_str(out.ev.chat_name, "lobby");
    assert_str(out.ev.parent_chat_id, "19:t@thread.tacv2");
    assert_str(out.ev.route_key, TENANT);
    assert_int_equal(take("{'type':'message','id':'18','text':'x'," HEAD("'id':'19:c;x=1'") "}"),
                     TEAMS_MALFORMED);
}

static void mentions_are_believed_by_their_entity_only(void **state)
{
    static const struct {
        const char *text, *entities, *is;
        bool mentioned;
    } all[] = {
        {"<at>Bot</at> hi", "{'type':'mention','text':'<at>Bot</at>','mentioned':{'id':'" BOT "'}}",
         "hi", true},
        {"hi <at>Bot</at> there",
         "{'type':'mention','text':'<at>Bot</at>','mentioned':{'id':'" BOT "'}}", "hi there", true},
        {"<at id=\\\"0\\\">Bot</at>\\u00a0hi",
         "{'type':'mention','text':'<at id=\\\"0\\\">Bot</at>','mentioned':{'id':'" BOT "'}}", "hi",
         true},
        {"<at>Bot</at> hi", "{'type':'clientInfo'}", "@Bot hi", false},
        {"<at>Ben</at> hi", "{'type':'mention','text':'<at>Ben</at>','mentioned':{'id':'29:ben'}}",
         "@Ben hi", false},
        {"a < b <at> c", "{'type':'clientInfo'}", "a < b <at> c", false},
        {"<at>x<b></at>", "{'type':'clientInfo'}", "<at>x<b></at>", false},
        {"<at>", "{'type':'clientInfo'}", "<at>", false},
        {"&nbsp;hi\\r\\n", "{'type':'clientInfo'}", "hi", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        BUF_LOCAL text = BUF_INIT;
        buf_printf(&text, "{'type':'message','id':'1','text':'%s','entities':[%s]," PERSONAL "}",
                   all[i].text, all[i].entities);
        assert_int_equal(take(buf_z(&text)), TEAMS_EVENT);
        assert_str(out.ev.text, all[i].is);
        assert_int_equal(out.ev.mentions_bot, all[i].mentioned);
    }
}

static void files_are_pictures_and_downloads(void **state)
{
    assert_int_equal(
        take("{'type':'message','id':'1','attachments':[{'contentType':'text/html','content':'x'},"
             "{'contentType':'image/png','contentUrl':'https://smba.trafficmanager.net/p'},"
             "{'contentType':'application/vnd.microsoft.teams.file.download.info','name':'a.pdf',"
             "'content':{'downloadUrl':'https://contoso.sharepoint.com/a'}},"
             "{'contentType':'image/png','contentUrl':'file:///etc/passwd'},"
             "{'contentType':'application/vnd.microsoft.card.hero','content':{}}]," PERSONAL "}"),
        TEAMS_EVENT);
    assert_int_equal(out.ev.n_media, 2);
    assert_str(out.ev.message_type, "photo");
    assert_str(out.media[0].ref, "https://smba.trafficmanager.net/p");
    assert_str(out.media[1].name, "a.pdf");
    assert_str(out.media[1].kind, "document");
}

static void a_quoted_message_is_an_answer(void **state)
{
    assert_int_equal(
        take("{'type':'message','id':'1','text':'x','attachments':[{'contentType':'text/html',"
             "'content':'<blockquote itemscope itemtype=\\\"http://schema.skype.com/Reply\\\" "
             "itemid=\\\"99\\\"><strong itemprop=\\\"mri\\\" itemid=\\\"" BOT
             "\\\">B</strong></blockquote>x'}]," PERSONAL "}"),
        TEAMS_EVENT);
    assert_str(out.ev.reply_to_message_id, "99");
    assert_true(out.ev.replies_to_bot);
}

static void edits_deletions_and_reactions(void **state)
{
    assert_int_equal(take("{'type':'messageUpdate','id':'1','text':'y','channelData':{'eventType':"
                          "'editMessage'}," PERSONAL "}"),
                     TEAMS_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.silent && !out.ev.edit.deletes);
    assert_str(out.ev.edit.text, "y");
    assert_int_equal(take("{'type':'messageDelete','id':'1','channelData':{'eventType':"
                          "'softDeleteMessage'}," PERSONAL "}"),
                     TEAMS_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.deletes);
    assert_int_equal(take("{'type':'messageReaction','id':'f:1','replyToId':'7','reactionsAdded':"
                          "[{'type':'like'}],'reactionsRemoved':[{'type':'sad'}]," PERSONAL "}"),
                     TEAMS_EVENT);
    assert_str(out.ev.text, "reaction:added:like\nreaction:removed:sad");
    assert_str(out.ev.reply_to_message_id, "7");
    in.reactions = false;
    assert_int_equal(take("{'type':'messageReaction','id':'f:1','replyToId':'7','reactionsAdded':"
                          "[{'type':'like'}]," PERSONAL "}"),
                     TEAMS_IGNORED);
    in.reactions = true;
}

static void presses_invokes_and_installations(void **state)
{
    assert_int_equal(
        take("{'type':'invoke','id':'f:1','name':'adaptiveCard/action','replyToId':'5','value':"
             "{'action':{'data':{'bellhop':{'press':'hp1:q:y'}}}}," CHANNEL "}"),
        TEAMS_PRESS);
    assert_str(out.press, "hp1:q:y");
    assert_str(out.ev.press.message_id, "5");
    assert_true(out.invoke);
    assert_int_equal(take("{'type':'message','id':'6','value':{'bellhop':{'press':'hp1:q:y'}},"
                          "'replyToId':'5'," PERSONAL "}"),
                     TEAMS_PRESS);
    assert_false(out.invoke);
    assert_int_equal(take("{'type':'invoke','name':'task/fetch'," PERSONAL "}"), TEAMS_INVOKE);
    assert_int_equal(take("{'type':'invoke','name':'fileConsent/invoke'," PERSONAL "}"),
                     TEAMS_CONSENT);
    assert_int_equal(take("{'type':'installationUpdate','action':'add'," PERSONAL "}"),
                     TEAMS_INSTALLED);
    assert_int_equal(take("{'type':'installationUpdate','action':'remove-upgrade'," PERSONAL "}"),
                     TEAMS_REMOVED);
    assert_int_equal(take("{'type':'conversationUpdate','membersRemoved':[{'id':'" BOT
                          "'}]," CHANNEL "}"),
                     TEAMS_REMOVED);
    assert_int_equal(take("{'type':'conversationUpdate','membersAdded':[{'id':'29:x'}]," CHANNEL
                          "}"),
                     TEAMS_IGNORED);
}

static void another_organisation_and_nonsense(void **state)
{
    in.tenant = STR("11112222-0000-cccc-1111-dddd2222eeee");
    assert_int_equal(take("{'type':'message','id':'1','text':'x'," PERSONAL "}"),
                     TEAMS_OTHER_TENANT);
    in.tenant = STR("AAAABBBB-0000-cccc-1111-dddd2222eeee");
    assert_int_equal(take("{'type':'message','id':'1','text':'x'," PERSONAL "}"), TEAMS_EVENT);
    in.tenant = STR_NULL;
    assert_int_equal(take("{'type':'message','id':'1','text':'x'}"), TEAMS_MALFORMED);
    assert_int_equal(take("{'type':'message','id':'1/2','text':'x'," PERSONAL "}"),
                     TEAMS_MALFORMED);
    assert_int_equal(take("{'type':7," PERSONAL "}"), TEAMS_MALFORMED);
    assert_int_equal(take("{'type':'message','id':'1','text':' '," PERSONAL "}"), TEAMS_IGNORED);
}

/* ---- proof.h ---- */

static const struct teams_self self = {.app = STR(APP), .tenant = STR(TENANT)};
#define SERVICE "https://smba.trafficmanager.net/amer/"
#define STS "'iss':'https://sts.windows.net/" TENANT "/'"

static bool proves(const char *claims)
{
    struct json doc = parse(claims);

    return teams_claims_wrong(doc, teams_issuer_of(doc, &self), &self, STR(SERVICE)) == NULL;
}

static void only_tokens_for_this_bot_prove_anything(void **state)
{
    static const struct {
        const char *claims;
        bool good;
    } all[] = {
        {"{'iss':'https://api.botframework.com','aud':'" APP "','serviceurl':'" SERVICE "'}", true},
        {"{'iss':'https://api.botframework.com','aud':'" APP
         "','serviceurl':'https://smba.trafficmanager.net/amer'}",
         true},
        {"{'iss':'https://api.botframework.com','aud':['" APP "'],'serviceurl':'" SERVICE "'}",
         true},
        {"{'iss':'https://api.botframework.com','aud':'" APP "'}", false},
        {"{'iss':'https://api.botframework.com','aud':'" APP
         "','serviceurl':'https://smba.trafficmanager.net/emea/'}",
         false},
        {"{'iss':'https://api.botframework.com','aud':'x','serviceurl':'" SERVICE "'}", false},
        {"{'iss':'https://api.botframework.com.evil.example','aud':'" APP "','serviceurl':'" SERVICE
         "'}",
         false},
        {"{" STS ",'aud':'https://api.botframework.com','appid':'" APP "'}", true},
        {"{" STS ",'aud':'https://api.botframework.com','azp':'" APP "','tid':'" TENANT "'}", true},
        {"{'iss':'https://login.microsoftonline.com/" TENANT "/v2.0','aud':'" APP "','azp':'" APP
         "'}",
         true},
        {"{" STS ",'aud':'https://api.botframework.com'}", false},
        {"{" STS ",'aud':'https://api.botframework.com','appid':'x'}", false},
        {"{" STS ",'aud':'https://api.botframework.com','appid':'" APP "','azp':'x'}", false},
        {"{" STS ",'aud':'https://api.botframework.com','appid':'" APP "','tid':'x'}", false},
        {"{" STS ",'aud':'https://graph.microsoft.com','appid':'" APP "'}", false},
        {"{" STS ",'aud':'https://api.botframework.com','appid':'" APP "','serviceurl':'x'}",
         false},
        {"{'iss':'https://sts.windows.net/" TENANT "','aud':'https://api.botframework.com',"
         "'appid':'" APP "'}",
         false},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (proves(all[i].claims) != all[i].good)
            fail_msg("%s", all[i].claims);
    const struct teams_self of_many = {.app = STR(APP)};
    struct json doc = parse("{" STS "}");
    assert_int_equal(teams_issuer_of(doc, &of_many), TEAMS_ISSUER_NONE);
    assert_true(teams_is_guid(STR(APP)));
    assert_false(teams_is_guid(STR("00001111-aaaa-2222-bbbb-3333cccc444g")));
}

static void the_token_goes_to_teams_only(void **state)
{
    static const struct {
        const char *url;
        bool own;
    } all[] = {
        {"https://smba.trafficmanager.net/amer/", true},
        {"https://smba.infra.gcc.teams.microsoft.com/x", true},
        {"https://api.botframework.com/v3", true},
        {"http://smba.trafficmanager.net/amer/", false},
        {"https://evil.trafficmanager.net/", false},
        {"https://smba.trafficmanager.net.evil.example/", false},
        {"https://evil.example/smba.trafficmanager.net", false},
        {"https://u@smba.trafficmanager.net/", false},
        {"https://smba.trafficmanager.net:8443/", false},
        {"https://notbotframework.com/", false},
        {"http://127.0.0.1:7/", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (teams_is_own_url(str_of(all[i].url), STR_NULL) != all[i].own)
            fail_msg("%s", all[i].url);
    assert_true(teams_is_own_url(STR("http://127.0.0.1:7/x"), STR("http://127.0.0.1:7")));
}

UNIT(platform_teams_test_normalize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_becomes_an_event),
        cmocka_unit_test(another_channel_of_the_bot_framework_names_no_place),
        cmocka_unit_test(tags_that_never_end_take_linear_time),
        cmocka_unit_test(a_channel_has_threads_and_a_team),
        cmocka_unit_test(mentions_are_believed_by_their_entity_only),
        cmocka_unit_test(files_are_pictures_and_downloads),
        cmocka_unit_test(a_quoted_message_is_an_answer),
        cmocka_unit_test(edits_deletions_and_reactions),
        cmocka_unit_test(presses_invokes_and_installations),
        cmocka_unit_test(another_organisation_and_nonsense),
        cmocka_unit_test(only_tokens_for_this_bot_prove_anything),
        cmocka_unit_test(the_token_goes_to_teams_only),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
