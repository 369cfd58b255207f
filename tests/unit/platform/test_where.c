/* docs/contract.md tells, platform by platform, what the ids of a message are.  Here one message of
 * each kind goes through the platform's own reader, and what comes out is held against the page:
 * a wrong id puts two conversations into one session. */
#include "page.h"
#include "base/mem.h"
#include "platform/discord/cache.h"
#include "platform/discord/guild.h"
#include "platform/discord/interactions.h"
#include "platform/discord/normalize.h"
#include "platform/email/mime.h"
#include "platform/irc/normalize.h"
#include "platform/signal/normalize.h"
#include "platform/matrix/normalize.h"
#include "platform/hook/inbound.h"
#include "platform/line/inbound.h"
#include "platform/slack/normalize.h"
#include "platform/teams/normalize.h"
#include "platform/telegram/normalize.h"
#include "platform/twilio/inbound.h"
#include "platform/wecom/inbound.h"
#include "platform/whatsapp/normalize.h"

struct sample {
    const char *platform, *where; /* the first two cells of its row */
    void (*read)(const struct sample *s, struct event *ret);
    const char *text;      /* quotes are written as ' */
    const char *words[10]; /* word on the page, id in @text, word, id, ... */
};

static struct json_parser *parser;
static struct dcache *cache;
static struct discord_normalize_out discord_out;
static struct arena arena;
static struct form form;
static struct slack_out slack_out;
static struct teams_out teams_out;
static struct twilio_out twilio_out;
static struct wecom_xml *xml;
static struct wecom_out wecom_out;
static struct mail mail;
static struct hook_out hook_out;
static struct line_out line_out;

static struct json parse(const char *text)
{
    static char copy[4096];
    struct json doc;

    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = copy; *p != '\0'; p++)
        *p = *p == '\'' ? '"' : *p;
    if (!json_parse(parser, str_of(copy), &doc))
        fail_msg("bad test JSON: %s", copy);
    return doc;
}

static void read_discord_as(const struct sample *s, bool in_parent, struct event *ret)
{
    const struct discord_normalize_in in = {.message = parse(s->text),
                                            .cache = cache,
                                            .bot = STR("app"),
                                            .bot_user = STR("9"),
                                            .in_parent = in_parent};

    assert_int_equal(discord_normalize(&in, &discord_out), DISCORD_EVENT);
    *ret = discord_out.ev;
}

static void read_discord(const struct sample *s, struct event *ret)
{
    read_discord_as(s, false, ret);
}

static void read_discord_in_parent(const struct sample *s, struct event *ret)
{
    read_discord_as(s, true, ret);
}

static void read_whatsapp(const struct sample *s, struct event *ret)
{
    static const struct wa_in in = {.bot = STR("106")};
    static struct wa_out out;
    struct wa_walk walk = {.body = parse(s->text)};
    struct wa_item it;

    assert_true(wa_next(&walk, &it));
    assert_int_equal(wa_normalize(&it, &in, &arena, &out), WA_EVENT);
    *ret = out.ev;
}

static void read_signal(const struct sample *s, struct event *ret)
{
    static const struct signal_in in = {.bot = STR("+15550100")};
    static struct signal_out out;

    assert_int_equal(signal_normalize(parse(s->text), &in, &arena, &out), SIGNAL_EVENT);
    *ret = out.ev;
}

static void read_matrix(const struct sample *s, struct event *ret)
{
    const struct mx_self self = {.id = STR("@desk:example.org")};
    const struct mx_in in = {.bot = self.id,
                             .server = STR("example.org"),
                             .self = &self,
                             .n_self = 1,
                             .room = STR("!r:example.org"),
                             .dm = strcmp(s->where, "a room of two") == 0};
    static struct mx_out out;

    assert_int_equal(mx_normalize(parse(s->text), &in, &arena, &out), MX_EVENT);
    *ret = out.ev;
}

static void read_slack(const struct sample *s, struct event *ret)
{
    const struct slack_in in = {.bot = STR("A1"), .bot_user = STR("UBOT")};

    assert_int_equal(slack_normalize(parse(s->text), &in, &arena, &slack_out), SLACK_EVENT);
    *ret = slack_out.ev;
}

static void read_teams(const struct sample *s, struct event *ret)
{
    const struct teams_in in = {.bot = STR("0000")};

    assert_int_equal(teams_normalize(parse(s->text), &in, &arena, &teams_out), TEAMS_EVENT);
    *ret = teams_out.ev;
}

static void read_telegram(const struct sample *s, struct event *ret)
{
    const struct tg_me me = {.id = 777, .username = "bot"};
    const char *why = "";

    if (!tg_normalize(parse(s->text), &me, STR("bot"), &arena, ret, &why))
        fail_msg("%s: %s", s->where, why);
}

static void read_line(const struct sample *s, struct event *ret)
{
    assert_int_equal(line_normalize(parse(s->text), STR("U1"), &line_out), WEBHOOK_EVENT);
    *ret = line_out.ev;
}

static void read_hook(const struct sample *s, struct event *ret)
{
    static const struct hook_settings cfg = {.map = {.text = (char *)"/text",
                                                     .chat_id = (char *)"/chat",
                                                     .user_id = (char *)"/from",
                                                     .thread_id = (char *)"/thread"}};
    struct json_parser *inner = json_parser_new();

    assert_int_equal(hook_normalize(&cfg, STR("desk"), parse(s->text), STR("x"), inner, &hook_out),
                     WEBHOOK_EVENT);
    *ret = hook_out.ev;
    json_parser_free(inner);
}

static void read_twilio(const struct sample *s, struct event *ret)
{
    assert_true(form_parse(&form, str_of(s->text)));
    assert_int_equal(twilio_normalize(&form, STR("+15550100"), STR("AC1"), &twilio_out),
                     WEBHOOK_EVENT);
    *ret = twilio_out.ev;
}

static void read_email(const struct sample *s, struct event *ret)
{
    struct mail_rules rules = {.bot = STR("desk@our.test"), .authserv_id = STR("mx.our.test")};

    auth_list_free(auth_list_load()); /* loads GMime */
    mail_done(&mail);
    mail_read(&mail, str_of(s->text), &rules);
    assert_null(mail.refused);
    mail_event(&mail, ret);
}

static void read_irc(const struct sample *s, struct event *ret)
{
    static const struct irc_in in = {.bot = STR("desk@net"),
                                     .network = STR("net"),
                                     .nick = STR("desk"),
                                     .chantypes = STR("#"),
                                     .has_accounts = true};
    static struct irc_out out;
    struct irc_line l;

    assert_true(irc_parse(str_of(s->text), &l));
    assert_int_equal(irc_normalize(&l, &in, STR("n1"), &arena, &out), IRC_EVENT);
    *ret = out.ev;
}

static void read_wecom(const struct sample *s, struct event *ret)
{
    assert_true(wecom_xml_parse(xml, str_of(s->text)));
    assert_int_equal(wecom_normalize(xml, STR("7"), &wecom_out), WEBHOOK_EVENT);
    *ret = wecom_out.ev;
}

#define ANN "'author':{'id':'42','username':'ann'},'content':'x','type':0,'id':'1001'"
#define TG(chat) \
    "{'update_id':1,'message':{'message_id':9,'date':1,'text':'x','chat':{" chat "}," \
    "'from':{'id':5,'is_bot':false,'first_name':'Ann'}"
#define TG_GROUP "'id':-100,'type':'supergroup','title':'T'"
#define SLACK(more) \
    "{'type':'event_callback','team_id':'T1','event_id':'Ev1','event':{'type':'message','user':" \
    "'U1','text':'x','ts':'2.0'," more "}}"
#define SIGNAL(more) \
    "{'envelope':{'sourceUuid':'9d0652a3-dcc3-4d11-975f-74d61598733f','timestamp':5," \
    "'dataMessage':{'timestamp':5,'message':'x'" more "}}}"
#define TEAMS(place) \
    "{'type':'message','id':'9','text':'x','channelId':'msteams','serviceUrl':'https://smba." \
    "trafficmanager.net/amer/','from':{'id':'29:ann','aadObjectId':'E1'},'recipient':{'id':" \
    "'28:bot'},'channelData':{'tenant':{'id':'T1'},'team':{'id':'19:t'}},'conversation':{" place \
    "}}"
#define WECOM \
    "<xml><ToUserName>corp</ToUserName><FromUserName>ann</FromUserName><CreateTime>1</CreateTime>" \
    "<AgentID>7</AgentID><MsgType>text</MsgType><Content>x</Content><MsgId>1</MsgId></xml>"

#define MATRIX(more, text) \
    "{'type':'m.room.message','event_id':'$1','sender':'@ann:example.org','content':{" more \
    "'msgtype':'m.text','body':'" text "'}}"
#define MATRIX_THREAD "'m.relates_to':{'rel_type':'m.thread','event_id':'$root'},"
#define MATRIX_WORDS \
    { \
        "room id", "!r:example.org", "author's user id", "@ann:example.org", "root event", \
            "$root", "bot's server", "example.org" \
    }

#define LINE_ANN "Uaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define LINE_GROUP "Ccccccccccccccccccccccccccccccccc"
#define LINE(source) \
    "{'type':'message','mode':'active','source':{" source ",'userId':'" LINE_ANN \
    "'},'message':{'id':'1','type':'text','text':'x'}}"

static const struct sample samples[] = {
    {"discord",
     "a channel",
     read_discord,
     "{" ANN ",'guild_id':'77','channel_id':'100'}",
     {"channel id", "100", "author id", "42", "guild id", "77"}},
    {"discord",
     "a thread, a forum post",
     read_discord,
     "{" ANN ",'guild_id':'77','channel_id':'200'}",
     {"thread id", "200", "author id", "42", "guild id", "77", "channel id", "100"}},
    {"discord",
     "a thread, where answers open them",
     read_discord_in_parent,
     "{" ANN ",'guild_id':'77','channel_id':'200'}",
     {"thread id", "200", "author id", "42", "guild id", "77", "channel id", "100"}},
    {"discord",
     "a direct message",
     read_discord,
     "{" ANN ",'channel_id':'300'}",
     {"channel id", "300", "author id", "42"}},
    {"slack",
     "a channel, a group message",
     read_slack,
     SLACK("'channel':'C1','channel_type':'channel'"),
     {"channel id", "C1", "author id", "U1", "workspace id", "T1"}},
    {"slack",
     "a thread",
     read_slack,
     SLACK("'channel':'C1','channel_type':'group','thread_ts':'1.0'"),
     {"channel id", "C1", "author id", "U1", "workspace id", "T1", "thread ts", "1.0"}},
    {"slack",
     "a direct message",
     read_slack,
     SLACK("'channel':'D1','channel_type':'im'"),
     {"channel id", "D1", "author id", "U1", "workspace id", "T1"}},
    {"telegram",
     "a group",
     read_telegram,
     TG(TG_GROUP) "}}",
     {"chat id", "-100", "author id", "5"}},
    {"telegram",
     "a topic of a forum",
     read_telegram,
     TG(TG_GROUP ",'is_forum':true") ",'message_thread_id':4,'is_topic_message':true}}",
     {"chat id", "-100", "author id", "5", "topic id", "4"}},
    {"telegram",
     "a channel",
     read_telegram,
     "{'update_id':1,'channel_post':{'message_id':9,'date':1,'text':'x','chat':{'id':-7,"
     "'type':'channel','title':'N'}}}",
     {"chat id", "-7"}},
    {"telegram",
     "a direct message",
     read_telegram,
     TG("'id':6,'type':'private'") "}}",
     {"chat id", "6", "author id", "5"}},
    {"twilio",
     "a message",
     read_twilio,
     "MessageSid=SM01&AccountSid=AC1&From=%2B15551234567&To=%2B15550100&Body=x",
     {"sender's number", "+15551234567"}},
    {"email",
     "a mail",
     read_email,
     "Authentication-Results: mx.our.test; dmarc=pass\nFrom: Ann@People.Test\n"
     "References: <1@people.test> <2@people.test>\nMessage-ID: <3@people.test>\n\nhi",
     {"the author's address", "ann@people.test", "the thread's first Message-ID",
      "<1@people.test>"}},
    {"irc",
     "a channel",
     read_irc,
     "@account=Ann :annie!u@h PRIVMSG #Lobby :x",
     {"#channel@network", "#lobby@net", "account@network", "ann@net"}},
    {"irc",
     "a direct message",
     read_irc,
     "@account=Ann :annie!u@h PRIVMSG desk :x",
     {"nick@network", "annie@net", "account@network", "ann@net"}},
    {"irc",
     "of somebody without an account",
     read_irc,
     ":annie!u@h PRIVMSG desk :x",
     {"nick@network", "annie@net", "?nick@network", "?annie@net"}},
    {"wecom", "a message", read_wecom, WECOM, {"sender's id", "ann"}},
    {"signal",
     "a message",
     read_signal,
     SIGNAL(""),
     {"UUID, else the number", "9d0652a3-dcc3-4d11-975f-74d61598733f"}},
    {"signal",
     "in a group",
     read_signal,
     SIGNAL(",'groupInfo':{'groupId':'QUJD','groupName':'G'}"),
     {"UUID, else the number", "9d0652a3-dcc3-4d11-975f-74d61598733f",
      "`group:` and the group's id", "group:QUJD"}},
    {"whatsapp",
     "a message",
     read_whatsapp,
     "{'entry':[{'changes':[{'field':'messages','value':{'messages':[{'id':'wamid.A','from':"
     "'15551','from_user_id':'US.1','type':'text','text':{'body':'x'}}]}}]}]}",
     {"BSUID, else the number", "US.1"}},
    {"matrix", "a room", read_matrix, MATRIX("", "x"), MATRIX_WORDS},
    {"matrix", "a thread", read_matrix, MATRIX(MATRIX_THREAD, "x"), MATRIX_WORDS},
    {"matrix", "a room of two", read_matrix, MATRIX("", "x"), MATRIX_WORDS},
    {"webhook",
     "a message of a `hook`",
     read_hook,
     "{'text':'x','chat':'c1','from':'u1','thread':'t1'}",
     {"the bot, a slash and the service's id", "desk/c1", "the bot, a slash and the author's id",
      "desk/u1", "the service's id", "t1"}},
    {"teams",
     "a personal chat",
     read_teams,
     TEAMS("'id':'a:1','conversationType':'personal'"),
     {"conversation id", "a:1", "the person's Entra id", "E1", "Entra tenant", "T1"}},
    {"teams",
     "a group chat",
     read_teams,
     TEAMS("'id':'19:g','conversationType':'groupChat'"),
     {"conversation id", "19:g", "the person's Entra id", "E1", "Entra tenant", "T1"}},
    {"teams",
     "a channel",
     read_teams,
     TEAMS("'id':'19:c;messageid=8','conversationType':'channel'"),
     {"channel id", "19:c", "the person's Entra id", "E1", "first message of the thread", "8",
      "Entra tenant", "T1", "team id", "19:t"}},
    {"line", "a message", read_line, LINE("'type':'user'"), {"the person", LINE_ANN}},
    {"line",
     "in a group, a room",
     read_line,
     LINE("'type':'group','groupId':'" LINE_GROUP "'"),
     {"the group", LINE_GROUP, "the person", LINE_ANN}},
};

/* The id that a cell's word stands for in @s; "–" is none. */
static struct str meant(struct table *t, const struct sample *s, struct str word)
{
    if (str_eq(word, STR("–")))
        return STR("");
    for (size_t i = 0; i + 1 < ARRAY_LEN(s->words) && s->words[i] != NULL; i += 2)
        if (str_eq(word, str_of(s->words[i])))
            return str_of(s->words[i + 1]);
    complain("%s: %s, %s: nothing is called \"%.*s\"", t->name, s->platform, s->where,
             STR_FMT(word));
    return STR_NULL;
}

static void check_id(struct table *t, const struct sample *s, struct str have)
{
    struct str word = cell(t), want = meant(t, s, word);

    if (!str_eq(have, want))
        complain("%s: %s, %s: the page says \"%.*s\", the program \"%.*s\"", t->name, s->platform,
                 s->where, STR_FMT(word), STR_FMT(have));
}

static void places(void)
{
    struct table t = table_open("### Where a message is");
    struct event ev;

    for (size_t i = 0; i < ARRAY_LEN(samples) && next_row(&t, samples[i].platform); i++) {
        const struct sample *s = &samples[i];
        ev = (struct event){0};
        s->read(s, &ev);
        check_cell(&t, s->platform);
        check_cell(&t, s->where);
        agree(&t, str_of(s->platform), event_platform_shown(ev.platform));
        check_id(&t, s, ev.chat_id);
        agree(&t, cell(&t), ev.chat_type);
        check_id(&t, s, ev.user_id);
        check_id(&t, s, ev.thread_id);
        check_id(&t, s, ev.scope_id);
        check_id(&t, s, ev.parent_chat_id);
    }
    if (next_row(&t, "web")) /* read by the end-to-end tests: it has no reader to call */
        check_cell(&t, "web");
    check_end(&t);
}

static void the_ids_of_a_message_are_what_the_page_says(void **state)
{
    page_agrees(places);
}

static void a_changed_cell_is_noticed(void **state)
{
    page_prove(places);
}

static int setup(void **state)
{
    parser = json_parser_new();
    cache = dcache_new(NULL);
    dcache_set_bot(cache, 9);
    struct json_parser *p = json_parser_new();
    struct json guild;
    assert_true(json_parse(p, STR(GUILD_77), &guild));
    dcache_put_guild(cache, guild);
    json_parser_free(p);
    xml = wecom_xml_new();
    return page_open(state);
}

static int teardown(void **state)
{
    discord_normalize_done(&discord_out);
    dcache_free(cache);
    json_parser_free(parser);
    arena_done(&arena);
    form_done(&form);
    slack_out_done(&slack_out);
    teams_out_done(&teams_out);
    twilio_out_done(&twilio_out);
    wecom_xml_free(xml);
    wecom_out_done(&wecom_out);
    mail_done(&mail);
    hook_out_done(&hook_out);
    line_out_done(&line_out);
    return page_close(state);
}

UNIT(platform_test_where)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ids_of_a_message_are_what_the_page_says),
        cmocka_unit_test(a_changed_cell_is_noticed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
