/* The promises of normalize.h, by example: an update in, the event's fields out. */
#include "unit.h"
#include "base/mem.h"
#include "platform/telegram/normalize.h"

static const struct tg_me me = {.id = 777, .username = "My_Bot"};

static struct json_parser *parser;
static struct arena arena;
static const char *why;

/* @message is the inside of a message object; quotes are written as '. */
static bool read_as(const char *kind, const char *message, struct event *ev)
{
    static char text[8192];
    struct json doc;

    snprintf(text, sizeof text, "{'update_id':1,'%s':{%s}}", kind, message);
    for (char *p = text; *p != '\0'; p++)
        *p = *p == '\'' ? '"' : *p;
    assert_true(json_parse(parser, str_of(text), &doc));
    arena_reset(&arena);
    return tg_normalize(doc, &me, STR("my_bot"), &arena, ev, &why);
}

static bool read_message(const char *message, struct event *ev)
{
    return read_as("message", message, ev);
}

#define ANN \
    "'from':{'id':5,'is_bot':false,'first_name':'Ann','last_name':'Lee','username':'annlee'}"
#define DM "'chat':{'id':5,'type':'private','first_name':'Ann'}," ANN
#define GROUP "'chat':{'id':-100,'type':'supergroup','title':'Team'}," ANN
#define FORUM "'chat':{'id':-100,'type':'supergroup','title':'Team','is_forum':true}," ANN

static void a_private_message_becomes_a_dm(void **state)
{
    struct event ev;

    assert_true(read_message("'message_id':9,'date':1,'text':'hi'," DM, &ev));
    assert_str(ev.platform, "telegram");
    assert_str(ev.bot, "my_bot");
    assert_str(ev.route_key, "5");
    assert_str(ev.event_id, "5:9");
    assert_str(ev.text, "hi");
    assert_str(ev.message_id, "9");
    assert_str(ev.chat_id, "5");
    assert_str(ev.chat_type, "dm");
    assert_str(ev.chat_name, "Ann");
    assert_str(ev.user_id, "5");
    assert_str(ev.user_name, "Ann Lee");
    assert_str(ev.user_display_name, "Ann Lee");
    assert_str(ev.user_handle, "annlee");
    assert_null(ev.message_type.p);
    assert_null(ev.thread_id.p);
    assert_null(ev.scope_id.p);
    assert_false(ev.mentions_bot || ev.replies_to_bot || ev.author_is_bot || ev.reply_to.set);
}

static void groups_forums_and_channels_keep_their_kind(void **state)
{
    struct event ev;

    assert_true(read_message("'message_id':9,'text':'hi','message_thread_id':4," GROUP, &ev));
    assert_str(ev.chat_type, "group");
    assert_str(ev.chat_name, "Team");
    assert_null(ev.thread_id.p); /* a thread of replies is no topic */
    assert_true(
        read_message("'message_id':9,'text':'hi','chat':{'id':-7,'type':'group','title':'T'}," ANN,
                     &ev));
    assert_str(ev.chat_type, "group");
    assert_true(read_message("'message_id':9,'text':'hi'," FORUM, &ev));
    assert_str(ev.chat_type, "forum");
    assert_null(ev.thread_id.p);
    assert_true(
        read_as("channel_post",
                "'message_id':9,'text':'news','chat':{'id':-200,'type':'channel','title':'News'},"
                "'sender_chat':{'id':-200,'type':'channel','title':'News'}",
                &ev));
    assert_str(ev.chat_type, "channel");
    assert_str(ev.user_id, "-200");
    assert_str(ev.user_name, "News");
}

static void a_topic_message_names_its_topic_and_replies_to_nothing(void **state)
{
    struct event ev;

    assert_true(
        read_message("'message_id':9,'text':'hi','message_thread_id':4,'is_topic_message':true,"
                     "'reply_to_message':{'message_id':4,'forum_topic_created':{'name':'Bugs'}," ANN
                     "}," FORUM,
                     &ev));
    assert_str(ev.thread_id, "4");
    assert_str(ev.chat_topic, "Bugs");
    assert_null(ev.reply_to_message_id.p);
    assert_false(ev.reply_to.set);
}

static void a_reply_carries_what_it_answers(void **state)
{
    struct event ev;

    assert_true(read_message(
        "'message_id':9,'text':'yes','reply_to_message':{'message_id':3,'text':'sure?',"
        "'from':{'id':777,'is_bot':true,'first_name':'Bot'}}," GROUP,
        &ev));
    assert_str(ev.reply_to_message_id, "3");
    assert_true(ev.replies_to_bot && ev.reply_to.set && ev.reply_to.is_own);
    assert_str(ev.reply_to.text, "sure?");
    assert_str(ev.reply_to.author, "Bot");
    assert_true(read_message(
        "'message_id':9,'text':'yes','quote':{'text':'part'},'reply_to_message':"
        "{'message_id':3,'text':'a part of it','from':{'id':6,'first_name':'Bo'}}," GROUP,
        &ev));
    assert_str(ev.reply_to.text, "part");
    assert_false(ev.replies_to_bot || ev.reply_to.is_own);
    assert_true(
        read_message("'message_id':9,'text':'?','reply_to_message':{'message_id':3,'photo':[{}],"
                     "'from':{'id':6,'first_name':'Bo'}}," GROUP,
                     &ev));
    assert_str(ev.reply_to.text, "[photo]");
}

static void mentions_are_found_by_utf16_offsets(void **state)
{
    struct event ev;
    /* two emoji are four units; the mention starts at unit 5 */
    static const char text[] = "'message_id':9,'text':'\U0001F600\U0001F600 @my_bot hi','entities':"
                               "[{'type':'mention','offset':%d,'length':%d}]," GROUP;
    char message[1024];

    snprintf(message, sizeof message, text, 5, 7);
    assert_true(read_message(message, &ev));
    assert_true(ev.mentions_bot);
    static const int wrong[][2] = {{3, 7},  {5, 6},  {6, 7},   {5, 700},
                                   {-1, 7}, {5, -7}, {900, 1}, {1, 7}};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        snprintf(message, sizeof message, text, wrong[i][0], wrong[i][1]);
        assert_true(read_message(message, &ev));
        assert_false(ev.mentions_bot);
    }
    assert_true(
        read_message("'message_id':9,'text':'you!','entities':[{'type':'text_mention','offset':0,"
                     "'length':3,'user':{'id':777}}]," GROUP,
                     &ev));
    assert_true(ev.mentions_bot);
    assert_true(read_message("'message_id':9,'photo':[{}],'caption':'@MY_BOT','caption_entities':"
                             "[{'type':'mention','offset':0,'length':7}]," GROUP,
                             &ev));
    assert_true(ev.mentions_bot);
    assert_true(read_message(
        "'message_id':9,'text':'@my_bot','entities':[{'type':'code','offset':0,'length':7}]," GROUP,
        &ev));
    assert_false(ev.mentions_bot);
}

static void hidden_addresses_are_shown(void **state)
{
    struct event ev;

    assert_true(
        read_message("'message_id':9,'text':'\U0001F600 see this and that','entities':["
                     "{'type':'text_link','offset':7,'length':4,'url':'https://a.org'},"
                     "{'type':'text_link','offset':16,'length':4,'url':'https://b.org'},"
                     "{'type':'text_link','offset':16,'length':400,'url':'https://c.org'}]," DM,
                     &ev));
    assert_str(ev.text, "\U0001F600 see this (https://a.org) and that (https://b.org)");
}

static void commands_lose_our_name_and_others_are_nobodys(void **state)
{
    static const struct {
        const char *in, *out; /* out NULL: ignored */
        const char *type;     /* NULL: text */
        bool named;
    } table[] = {
        {"/help", "/help", "command", false},
        {"/help@my_bot x", "/help x", "command", true},
        {"/help@MY_BOT", "/help", "command", true},
        {"/start@my_bot\\nline", "/start\\nline", "command", true},
        {"/stop@other_bot", NULL, NULL, false},
        {"/help@my_bot2", NULL, NULL, false},
        {"/help@", NULL, NULL, false},
        {"/path/to/file", "/path/to/file", "command", false},
        {"/ no", "/ no", NULL, false},
        {"/", "/", NULL, false},
        {"see /help@other_bot", "see /help@other_bot", NULL, false},
    };
    char message[512];
    struct event ev;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        snprintf(message, sizeof message, "'message_id':9,'text':'%s'," GROUP, table[i].in);
        assert_int_equal(read_message(message, &ev), table[i].out != NULL);
        if (table[i].out == NULL)
            continue;
        if (strchr(table[i].out, '\\') == NULL)
            assert_str(ev.text, table[i].out);
        assert_int_equal(ev.message_type.p != NULL, table[i].type != NULL);
        assert_int_equal(ev.mentions_bot, table[i].named);
    }
}

static void files_become_a_note_and_never_an_address(void **state)
{
    static const struct {
        const char *in, *text, *type;
    } table[] = {
        {"'photo':[{'file_id':'A'}]", "", "photo"},
        {"'photo':[{'file_id':'A'}],'caption':'look'", "look", "photo"},
        {"'photo':[{'file_id':'A'}],'caption':'/model'", "/model", "photo"},
        {"'document':{'file_id':'D','file_name':'x.pdf'},'caption':'/model'", "/model", "document"},
        {"'photo':[]", "[photo]", "photo"}, /* which cannot come */
        {"'voice':{'file_id':'A','duration':12}", "[voice message, 12 s]", "voice"},
        {"'audio':{'title':'Song','performer':'Me','duration':3}", "[audio: Song by Me, 3 s]",
         "audio"},
        {"'video':{'duration':3}", "[video, 3 s]", "video"},
        {"'video_note':{'duration':3}", "[video message, 3 s]", "video"},
        {"'animation':{},'document':{'file_name':'a.gif'}", "[animation]", "video"},
        {"'document':{'file_name':'r [1].pdf'}", "[document: r  1 .pdf]", "document"},
        {"'document':{}", "[document]", "document"},
        {"'sticker':{'emoji':'\u2764'}", "[sticker \u2764]", "sticker"},
        {"'location':{'latitude':52.5,'longitude':13.25}", "[location: 52.500000, 13.250000]",
         "location"},
        {"'venue':{'title':'Bar','address':'Road 1','location':{'latitude':1.0,'longitude':2.0}},"
         "'location':{'latitude':1.0,'longitude':2.0}",
         "[place: Bar, Road 1: 1.000000, 2.000000]", "location"},
        {"'contact':{'first_name':'Bo','phone_number':'+1'}", "[contact: Bo, +1]", NULL},
        {"'poll':{'question':'Tea?','options':[{'text':'yes'},{'text':'no'}]}",
         "[poll: Tea? / yes / no]", NULL},
        {"'dice':{'emoji':'D','value':4}", "[dice D 4]", NULL},
    };
    char message[1024];
    struct event ev;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        snprintf(message, sizeof message, "'message_id':9,%s," DM, table[i].in);
        assert_true(read_message(message, &ev));
        assert_str(ev.text, table[i].text);
        assert_int_equal(ev.n_media, strstr(table[i].in, "file_id") != NULL);
        if (table[i].type == NULL)
            assert_null(ev.message_type.p);
        else
            assert_str(ev.message_type, table[i].type);
    }
}

static void an_edit_says_so_and_is_an_event_of_its_own(void **state)
{
    struct event ev;

    assert_true(
        read_as("edited_message", "'message_id':9,'date':1,'edit_date':50,'text':'hi'," DM, &ev));
    assert_str(ev.text, "[edited] hi");
    assert_str(ev.event_id, "5:9:e50");
    assert_str(ev.message_id, "9");
    assert_false(read_as("edited_message", "'message_id':9,'edit_date':50,'text':'/new'," DM, &ev));
    assert_false(
        read_as("edited_message",
                "'message_id':9,'edit_date':50,'location':{'latitude':1,'longitude':2}," DM, &ev));
}

static void a_kind_that_is_not_known_yet_is_a_note_with_its_words(void **state)
{
    static const struct {
        const char *message, *text;
    } table[] = {
        {"'hologram':{'size':3}", "[hologram]"},
        {"'future_thing':{'title':'T','parts':[{'text':'a'},{'x':{'caption':'b'}}]}",
         "[future thing]\nT\na\nb"},
        {"'rich_message':{'blocks':[{'type':'heading','text':'Plan'},{'type':'paragraph','text':["
         "'one ',{'type':'bold','text':'two'}]}],'is_rtl':false}",
         "[rich message]\nPlan\none two"},
        {"'hologram':[1],'caption':'see'", "see\n[hologram]"},
        {"'checklist':{'title':'Shop','tasks':[{'id':1,'text':'milk'},{'id':2,'text':'tea'}]}",
         "[checklist: Shop / milk / tea]"},
        {"'text':'hi','effect':{'id':1},'new_field':{'a':1}", "hi"},
    };
    char message[512];
    struct event ev;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        snprintf(message, sizeof message, "'message_id':9,%s," DM, table[i].message);
        assert_true(read_message(message, &ev));
        assert_str(ev.text, table[i].text);
    }
    assert_true(
        read_message("'message_id':9,'text':'x','chat':{'id':5,'type':'sphere'}," ANN, &ev));
    assert_str(ev.chat_type, "channel"); /* never taken for a private chat */
}

static void an_unknown_kind_is_bounded(void **state)
{
    char message[4096] = "'message_id':9,'deep':";
    struct event ev;

    for (int i = 0; i < 40; i++)
        strcat(message, "{'a':");
    strcat(message, "{'text':'too deep'}");
    for (int i = 0; i < 40; i++)
        strcat(message, "}");
    strcat(message, "," DM);
    assert_true(read_message(message, &ev));
    assert_str(ev.text, "[deep]");
}

static void what_is_not_speech_is_ignored_with_a_reason(void **state)
{
    static const char *const table[] = {
        "'message_id':9,'new_chat_members':[{'id':6}]," GROUP,
        "'message_id':9,'pinned_message':{}," GROUP,
        "'message_id':9,'video_chat_started':{},'voice_chat_started':{}," GROUP,
        "'message_id':9,'video_chat_ended':{'duration':5},'voice_chat_ended':{'duration':5}," GROUP,
        "'message_id':9,'chat_owner_changed':{'new_owner':{'id':6,'first_name':'Bo'}}," GROUP,
        "'message_id':9,'community_chat_added':{'community':{'title':'C'}}," GROUP,
        "'message_id':9,'poll_option_added':{'option_text':'x'}," GROUP,
        "'message_id':9,'migrate_to_chat_id':-1001," GROUP,
        "'message_id':9,'text':''," GROUP,
        "'message_id':9,'text':'mine','chat':{'id':5,'type':'private'},'from':{'id':777}",
        "'message_id':9,'text':'x','chat':{'type':'private'}," ANN,
        "'message_id':'9','text':'x'," DM,
        "'text':'x'," DM,
    };
    struct event ev;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        why = NULL;
        assert_false(read_message(table[i], &ev));
        assert_non_null(why);
    }
    assert_false(read_as("callback_query", "'message_id':9,'text':'x'," DM, &ev));
}

static void bots_are_marked_and_anonymous_admins_are_people(void **state)
{
    struct event ev;

    assert_true(
        read_message("'message_id':9,'text':'beep','chat':{'id':-1,'type':'group'},'from':{'id':8,"
                     "'is_bot':true,'first_name':'Robo'}",
                     &ev));
    assert_true(ev.author_is_bot);
    assert_true(
        read_message("'message_id':9,'text':'x','chat':{'id':-1,'type':'supergroup','title':'T'},"
                     "'sender_chat':{'id':-1,'title':'T'},'from':{'id':1087968824,'is_bot':true}",
                     &ev));
    assert_false(ev.author_is_bot);
    assert_str(ev.user_id, "-1");
    assert_str(ev.user_name, "T");
}

static void a_migration_is_seen_from_both_sides(void **state)
{
    struct json doc;
    int64_t from = 0, to = 0;

    assert_true(json_parse(parser,
                           STR("{\"message\":{\"chat\":{\"id\":-5},\"migrate_to_chat_id\":-1005}}"),
                           &doc));
    assert_true(tg_migration(doc, &from, &to));
    assert_int_equal(from, -5);
    assert_int_equal(to, -1005);
    assert_true(json_parse(
        parser, STR("{\"message\":{\"chat\":{\"id\":-1005},\"migrate_from_chat_id\":-5}}"), &doc));
    assert_true(tg_migration(doc, &from, &to));
    assert_int_equal(from, -5);
    assert_int_equal(to, -1005);
    assert_true(
        json_parse(parser, STR("{\"message\":{\"chat\":{\"id\":-5},\"text\":\"x\"}}"), &doc));
    assert_false(tg_migration(doc, &from, &to));
}

static bool read_reaction(const char *inside, int64_t thread, struct event *ev)
{
    static char text[2048];
    struct json doc;

    snprintf(text, sizeof text, "{'update_id':77,'message_reaction':{'message_id':9,%s}}", inside);
    for (char *p = text; *p != '\0'; p++)
        *p = *p == '\'' ? '"' : *p;
    assert_true(json_parse(parser, str_of(text), &doc));
    arena_reset(&arena);
    return tg_normalize_reaction(doc, STR("my_bot"), thread, &arena, ev);
}

#define EMOJI(x) "{'type':'emoji','emoji':'" x "'}"
#define BY_ANN \
    "'chat':{'id':-100,'type':'supergroup','title':'T','is_forum':true}," \
    "'user':{'id':5,'is_bot':false,'first_name':'Ann'},"

static void a_reaction_says_what_came_and_what_went(void **state)
{
    struct event ev;

    assert_true(read_reaction(BY_ANN "'old_reaction':[],'new_reaction':[" EMOJI("+") "]", 4, &ev));
    assert_str(ev.text, "reaction:added:+");
    assert_str(ev.event_id, "-100:9:r77");
    assert_str(ev.message_id, "9");
    assert_str(ev.reply_to_message_id, "9");
    assert_str(ev.thread_id, "4");
    assert_str(ev.user_name, "Ann");
    assert_true(ev.reply_to.is_own && ev.replies_to_bot);
    assert_true(read_reaction(BY_ANN "'old_reaction':[" EMOJI("+") "," EMOJI(
                                  "=") "],"
                                       "'new_reaction':[" EMOJI("=") ",{'type':'custom_emoji'}]",
                              0, &ev));
    assert_str(ev.text, "reaction:added::custom:\nreaction:removed:+");
    assert_null(ev.thread_id.p);
    assert_false(read_reaction(BY_ANN
                               "'old_reaction':[" EMOJI("+") "],'new_reaction':[" EMOJI("+") "]",
                               0, &ev));                                    /* nothing changed */
    assert_false(read_reaction("'new_reaction':[" EMOJI("+") "]", 0, &ev)); /* nowhere, by nobody */
}

UNIT(platform_telegram_test_normalize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_private_message_becomes_a_dm),
        cmocka_unit_test(groups_forums_and_channels_keep_their_kind),
        cmocka_unit_test(a_topic_message_names_its_topic_and_replies_to_nothing),
        cmocka_unit_test(a_reply_carries_what_it_answers),
        cmocka_unit_test(mentions_are_found_by_utf16_offsets),
        cmocka_unit_test(hidden_addresses_are_shown),
        cmocka_unit_test(commands_lose_our_name_and_others_are_nobodys),
        cmocka_unit_test(files_become_a_note_and_never_an_address),
        cmocka_unit_test(an_edit_says_so_and_is_an_event_of_its_own),
        cmocka_unit_test(a_kind_that_is_not_known_yet_is_a_note_with_its_words),
        cmocka_unit_test(an_unknown_kind_is_bounded),
        cmocka_unit_test(what_is_not_speech_is_ignored_with_a_reason),
        cmocka_unit_test(bots_are_marked_and_anonymous_admins_are_people),
        cmocka_unit_test(a_migration_is_seen_from_both_sides),
        cmocka_unit_test(a_reaction_says_what_came_and_what_went),
    };
    parser = json_parser_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_done(&arena);
    json_parser_free(parser);
    return failed;
}
