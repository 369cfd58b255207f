/* Promises of platform/slack/normalize.h. */
#include "unit.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "edge/form.h"
#include "platform/slack/normalize.h"

static struct json_parser *parser;
static struct arena arena;
static struct slack_out out;
static const struct slack_in in = {.bot = STR("A1"),
                                   .bot_user = STR("UBOT"),
                                   .bot_id = STR("BBOT"),
                                   .reactions = true};

static int setup(void **state)
{
    parser = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    arena_done(&arena);
    slack_out_done(&out);
    return 0;
}

/* @event with ' for ", in an envelope. */
static enum slack_verdict read(const char *event)
{
    BUF_LOCAL body = BUF_INIT;
    struct json doc;

    buf_printf(
        &body,
        "{'type':'event_callback','api_app_id':'A1','team_id':'T1','event_id':'Ev1','event':%s}",
        event);
    for (size_t i = 0; i < body.n; i++)
        body.p[i] = body.p[i] == '\'' ? '"' : body.p[i];
    if (!json_parse(parser, buf_str(&body), &doc))
        fail_msg("bad test JSON: %s", buf_z(&body));
    arena_reset(&arena);
    return slack_normalize(doc, &in, &arena, &out);
}

static void a_message_becomes_an_event(void **state)
{
    assert_int_equal(read("{'type':'message','channel':'C1','channel_type':'channel','user':'U1',"
                          "'text':'hi','ts':'1.000002','client_msg_id':'x'}"),
                     SLACK_EVENT);
    assert_str(out.ev.platform, "slack");
    assert_str(out.ev.bot, "A1");
    assert_str(out.ev.text, "hi");
    assert_str(out.ev.chat_id, "C1");
    assert_str(out.ev.chat_type, "group");
    assert_str(out.ev.scope_id, "T1");
    assert_str(out.ev.route_key, "T1");
    assert_str(out.ev.user_id, "U1");
    assert_str(out.ev.message_id, "1.000002");
    assert_str(out.ev.event_id, "C1:1.000002");
    assert_true(out.ev.thread_id.p == NULL && !out.ev.mentions_bot && !out.ev.author_is_bot);
}

static void threads_direct_messages_and_mentions_are_told(void **state)
{
    assert_int_equal(read("{'type':'message','channel':'D1','channel_type':'im','user':'U1',"
                          "'text':'<@UBOT> go','ts':'2.000002','thread_ts':'1.000001',"
                          "'parent_user_id':'UBOT','client_msg_id':'x'}"),
                     SLACK_EVENT);
    assert_str(out.ev.chat_type, "dm");
    assert_str(out.ev.route_key, "dm:U1");
    assert_str(out.ev.thread_id, "1.000001");
    assert_str(out.ev.text, "go");
    assert_true(out.ev.mentions_bot && out.ev.replies_to_bot);
    assert_int_equal(read("{'type':'app_mention','channel':'C1','user':'U1','text':'x <@UBOT|b>',"
                          "'ts':'2.000002','thread_ts':'2.000002','client_msg_id':'x'}"),
                     SLACK_EVENT);
    assert_true(out.ev.mentions_bot && out.ev.thread_id.p == NULL);
    assert_str(out.ev.text, "x <@UBOT>");
    assert_int_equal(read("{'type':'message','channel':'G1','channel_type':'mpim','user':'U1',"
                          "'text':'<@UBOTTER> x','ts':'2.000002','client_msg_id':'x'}"),
                     SLACK_EVENT);
    assert_str(out.ev.chat_type, "group");
    assert_false(out.ev.mentions_bot);
}

static void bots_are_told_apart_and_own_messages_ignored(void **state)
{
    static const char *const own[] = {"'user':'UBOT'", "'user':'U2','bot_id':'BBOT'",
                                      "'user':'U2','app_id':'A1'"};
    static const char *const bots[] = {"'user':'U2','bot_id':'B2'",
                                       "'subtype':'bot_message','bot_id':'B2','username':'n'",
                                       "'user':'U2','app_id':'A2'", "'user':'USLACKBOT'"};
    BUF_LOCAL event = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        buf_reset(&event);
        buf_printf(&event, "{'type':'message','channel':'C1','text':'x','ts':'1.0',%s}", own[i]);
        assert_int_equal(read(buf_z(&event)), SLACK_IGNORED);
    }
    for (size_t i = 0; i < ARRAY_LEN(bots); i++) {
        buf_reset(&event);
        buf_printf(&event, "{'type':'message','channel':'C1','text':'x','ts':'1.0',%s}", bots[i]);
        assert_int_equal(read(buf_z(&event)), SLACK_EVENT);
        assert_true(out.ev.author_is_bot);
    }
}

static void edits_and_deletions_name_the_message(void **state)
{
    assert_int_equal(
        read("{'type':'message','subtype':'message_changed','channel':'C1','ts':'9.0','message':{"
             "'user':'U1','text':'new','ts':'1.0','client_msg_id':'x','edited':{'ts':'9.0'}},"
             "'previous_message':{'user':'U1','text':'old','ts':'1.0'}}"),
        SLACK_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.silent && !out.ev.edit.deletes);
    assert_str(out.ev.edit.text, "new");
    assert_str(out.ev.message_id, "1.0");
    assert_int_equal(read("{'type':'message','subtype':'message_changed','channel':'C1','ts':'9.0',"
                          "'message':{'user':'U1','text':'old','ts':'1.0','attachments':[]},"
                          "'previous_message':{'user':'U1','text':'old','ts':'1.0'}}"),
                     SLACK_IGNORED);
    assert_int_equal(read("{'type':'message','subtype':'message_deleted','channel':'D1',"
                          "'channel_type':'im','ts':'9.0','deleted_ts':'1.0',"
                          "'previous_message':{'user':'U1','text':'old','ts':'1.0'}}"),
                     SLACK_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.deletes);
    assert_str(out.ev.route_key, "dm:U1");
    /* as Slack's reference has it: nobody is told whose it was */
    assert_int_equal(read("{'type':'message','subtype':'message_deleted','hidden':true,"
                          "'channel':'C1','ts':'9.0','deleted_ts':'1.0'}"),
                     SLACK_EVENT);
    assert_true(out.ev.edit.set && out.ev.edit.silent && out.ev.edit.deletes);
    assert_str(out.ev.event_id, "C1:1.0");
    assert_str(out.ev.message_id, "1.0");
    assert_str(out.ev.route_key, "T1");
    assert_true(out.ev.user_id.n == 0);
    assert_int_equal(read("{'type':'message','subtype':'message_deleted','channel':'C1','ts':'9.0',"
                          "'deleted_ts':'x'}"),
                     SLACK_MALFORMED);
    assert_int_equal(read("{'type':'message','subtype':'message_deleted','channel':'C1','ts':'9.0',"
                          "'deleted_ts':'1.0','previous_message':{'text':'old','ts':'1.0'}}"),
                     SLACK_MALFORMED);
}

static void files_become_media_with_the_workspace_in_their_name(void **state)
{
    assert_int_equal(
        read("{'type':'message','subtype':'file_share','channel':'C1','user':'U1','text':'','ts':"
             "'1.0','client_msg_id':'x','files':[{'id':'F1','name':'a.png','mimetype':'image/png',"
             "'size':7,'url_private':'https://files.slack.com/a','mode':'hosted'},"
             "{'id':'F2','mode':'tombstone'}]}"),
        SLACK_EVENT);
    assert_int_equal(out.ev.n_media, 1);
    assert_str(out.ev.media[0].ref, "T1 F1 https://files.slack.com/a");
    assert_str(out.ev.media[0].kind, "image");
    assert_str(out.ev.message_type, "photo");
    assert_int_equal(out.ev.media[0].size, 7);
}

static void reactions_to_the_bot_become_texts(void **state)
{
    assert_int_equal(read("{'type':'reaction_added','user':'U1','reaction':'eyes','item_user':"
                          "'UBOT','item':{'type':'message','channel':'C1','ts':'1.0'}}"),
                     SLACK_EVENT);
    assert_str(out.ev.text, "reaction:added:eyes");
    assert_str(out.ev.reply_to_message_id, "1.0");
    assert_str(out.ev.event_id, "Ev1");
    assert_int_equal(read("{'type':'reaction_added','user':'U1','reaction':'eyes','item_user':'U2',"
                          "'item':{'type':'message','channel':'C1','ts':'1.0'}}"),
                     SLACK_IGNORED);
    assert_int_equal(read("{'type':'reaction_added','user':'U1','reaction':'eyes','item_user':"
                          "'UBOT','item':{'type':'file','file':'F1'}}"),
                     SLACK_IGNORED);
}

static void nonsense_is_malformed(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{'type':'message'}",
        "{'type':'message','channel':'c1','user':'U1','ts':'1.0','text':'x'}",
        "{'type':'message','channel':'X1','user':'U1','ts':'1.0','text':'x'}",
        "{'type':'message','channel':'C1','user':'U 1','ts':'1.0','text':'x'}",
        "{'type':'message','channel':'C1','user':'U1','ts':'1','text':'x'}",
        "{'type':'message','channel':'C1','user':'U1','ts':'1.0','thread_ts':'x','text':'x'}",
        "{'type':'message','channel':'C11111111111111111111111111111111111','user':'U1','ts':'1.0'"
        "}"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (read(bad[i]) != SLACK_MALFORMED)
            fail_msg("%s", bad[i]);
}

static void mark_up_becomes_plain_text(void **state)
{
    static const struct {
        const char *from, *to;
    } texts[] = {
        {"plain", "plain"},
        {"a &lt;b&gt; &amp;amp; &c", "a <b> &amp; &c"},
        {"<https://a.org>", "https://a.org"},
        {"<https://a.org|a.org>", "https://a.org"},
        {"see <https://a.org/?a=1&amp;b=2|this>", "see this (https://a.org/?a=1&b=2)"},
        {"<mailto:a@b.org|a@b.org>", "a@b.org"},
        {"<@U2> <@U2|ann> <#C1> <#C1|general>", "<@U2> <@U2> <#C1> #general"},
        {"<!here> <!channel|channel> <!subteam^S1|@team>", "@here channel @team"},
        {"<!date^1^{date}|tomorrow>", "tomorrow"},
        {"<@UBOT>  <@UBOT> /stop", "/stop"},
        {"<@UBOT", "<@UBOT"},
        {"<", "<"},
        {"<>", ""},
        {"1 < 2", "1 < 2"},
    };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        assert_str(slack_text_in(&arena, str_of(texts[i].from), STR("UBOT")), texts[i].to);
}

static void mentions_of_agents_ping_nobody(void **state)
{
    BUF_LOCAL b = BUF_INIT, plain = BUF_INIT;
    struct str text = STR("no mention < > <a@b>");

    assert_ptr_equal(slack_neutralize(&b, text).p, text.p);
    assert_str(slack_neutralize(&b, STR("<!channel><@U1>x<#C1>")),
               "<\xe2\x80\x8b!channel><\xe2\x80\x8b@U1>x<\xe2\x80\x8b#C1>");
    slack_escape(&plain, STR("<!channel> & \xc3\xa9"), 100);
    assert_str(buf_str(&plain), "&lt;!channel&gt; &amp; \xc3\xa9");
    buf_reset(&plain);
    slack_escape(&plain, STR("ab<"), 5);
    assert_str(buf_str(&plain), "ab");
}

static void emoji_have_names(void **state)
{
    assert_str(slack_emoji_name(STR("\xf0\x9f\x91\x80")), "eyes");
    assert_str(slack_emoji_name(STR("\xe2\x9d\xa4\xef\xb8\x8f")), "heart");
    assert_str(slack_emoji_name(STR(":+1:")), "+1");
    assert_str(slack_emoji_name(STR("party_parrot")), "party_parrot");
    assert_null(slack_emoji_name(STR("\xf0\x9f\xaa\xbf")).p);
    assert_null(slack_emoji_name(STR("")).p);
}

static void files_come_from_slack_only(void **state)
{
    static const char *const good[] = {"https://files.slack.com/files-pri/T1-F1/a.png",
                                       "https://hotel.slack.com/x", "https://slack-files.com/T1",
                                       "https://files.slack.com:443/x"};
    static const char *const bad[] = {"http://files.slack.com/x",
                                      "https://files.slack.com.evil.org/x",
                                      "https://evilslack.com/x",
                                      "https://user@files.slack.com/x",
                                      "https://files.slack.com:8443/x",
                                      "https://evil.org/?files.slack.com",
                                      "ftp://files.slack.com/x",
                                      "https://169.254.169.254/",
                                      ""};

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(slack_is_own_url(str_of(good[i]), STR_NULL));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(slack_is_own_url(str_of(bad[i]), STR_NULL));
    assert_true(slack_is_own_url(STR("http://127.0.0.1:7/files/x"), STR("http://127.0.0.1:7/api")));
    assert_false(slack_is_own_url(STR("http://127.0.0.1:8/x"), STR("http://127.0.0.1:7/api")));
}

/* The example of Slack's page on verifying requests. */
static void the_signature_is_slacks(void **state)
{
    struct str secret = STR("8f742231b10e8888abcd99yyyzzz85a5"), at = STR("1531420618");
    struct str signature =
        STR("v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503");
    struct str body = STR(
        "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id="
        "G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-"
        "collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%"
        "2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121."
        "803a0bc887a14d10d2c447fce8b6703c");
    BUF_LOCAL scratch = BUF_INIT;
    int64_t then_ms = INT64_C(1531420618000);

    assert_true(slack_signature_ok(secret, at, signature, body, then_ms, &scratch));
    assert_true(slack_signature_ok(secret, at, signature, body, then_ms + 300000, &scratch));
    assert_false(slack_signature_ok(secret, at, signature, body, then_ms + 300001, &scratch));
    assert_false(slack_signature_ok(secret, at, signature, body, then_ms - 300001, &scratch));
    assert_false(slack_signature_ok(STR(""), at, signature, body, then_ms, &scratch));
    assert_false(slack_signature_ok(secret, at, str_skip(signature, 1), body, then_ms, &scratch));
    assert_false(slack_signature_ok(secret, at, signature, str_skip(body, 1), then_ms, &scratch));
}

static void commands_are_words(void **state)
{
    struct form form = {0};

    assert_true(form_parse(&form, STR("team_id=T1&channel_id=C1&user_id=U1&user_name=ann&command="
                                      "%2Flink&text=+K3Q+&trigger_id=1.2.3")));
    assert_int_equal(slack_normalize_command(&form, &in, &arena, &out), SLACK_EVENT);
    assert_str(out.ev.text, "/link K3Q");
    assert_str(out.ev.message_type, "command");
    assert_str(out.ev.user_name, "ann");
    assert_str(out.ev.route_key, "T1");
    assert_true(form_parse(&form, STR("team_id=T1&channel_id=C1&user_id=U1&command=x")));
    assert_int_equal(slack_normalize_command(&form, &in, &arena, &out), SLACK_MALFORMED);
    form_done(&form);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(platform_slack_test_normalize)
{
    const struct CMUnitTest tests[] = {
        T(a_message_becomes_an_event),
        T(threads_direct_messages_and_mentions_are_told),
        T(bots_are_told_apart_and_own_messages_ignored),
        T(edits_and_deletions_name_the_message),
        T(files_become_media_with_the_workspace_in_their_name),
        T(reactions_to_the_bot_become_texts),
        T(nonsense_is_malformed),
        T(mark_up_becomes_plain_text),
        T(mentions_of_agents_ping_nobody),
        T(emoji_have_names),
        T(files_come_from_slack_only),
        T(the_signature_is_slacks),
        T(commands_are_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
