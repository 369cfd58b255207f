/* Promises of platform/discord/normalize.h. */
#include "unit.h"
#include "base/json.h"
#include "base/mem.h"
#include "platform/discord/cache.h"
#include "platform/discord/guild.h"
#include "platform/discord/normalize.h"

static struct dcache *c;
static struct json_parser *p;
static struct discord_normalize_out out;
static bool lenient;
static struct str guild_hint;

static int setup(void **state)
{
    struct json d;

    p = json_parser_new();
    c = dcache_new(NULL);
    out = (struct discord_normalize_out){0};
    lenient = false;
    guild_hint = STR_NULL;
    dcache_set_bot(c, 9);
    assert_true(json_parse(p, STR(GUILD_77), &d));
    dcache_put_guild(c, d);
    return 0;
}

static int teardown(void **state)
{
    discord_normalize_done(&out);
    dcache_free(c);
    json_parser_free(p);
    return 0;
}

static enum discord_verdict run(const char *text)
{
    struct discord_normalize_in in = {.cache = c,
                                      .bot = STR("app1"),
                                      .bot_user = STR("9"),
                                      .lenient = lenient,
                                      .guild_id = guild_hint};

    if (!json_parse(p, str_of(text), &in.message))
        fail_msg("bad test JSON: %s", text);
    return discord_normalize(&in, &out);
}

#define ANN "\"author\":{\"id\":\"42\",\"username\":\"ann\",\"global_name\":\"Ann\"}"
#define IN_GUILD "\"guild_id\":\"77\",\"member\":{\"nick\":\"Annie\",\"roles\":[]}"
/* A message of Ann in #general, with more fields. */
#define SAYS(more) \
    "{\"id\":\"1001\",\"channel_id\":\"100\",\"type\":0," ANN "," IN_GUILD "," more "}"

static void a_message_in_a_guild_channel_is_a_group_event(void **state)
{
    assert_int_equal(run(SAYS("\"content\":\"hello\"")), DISCORD_EVENT);
    assert_str(out.ev.platform, "discord");
    assert_str(out.ev.bot, "app1");
    assert_str(out.ev.text, "hello");
    assert_str(out.ev.event_id, "1001");
    assert_str(out.ev.message_id, "1001");
    assert_str(out.ev.chat_id, "100");
    assert_str(out.ev.chat_type, "group");
    assert_str(out.ev.chat_name, "general");
    assert_str(out.ev.chat_topic, "all things");
    assert_str(out.ev.scope_id, "77");
    assert_str(out.ev.route_key, "77");
    assert_str(out.ev.user_id, "42");
    assert_str(out.ev.user_name, "Annie");
    assert_str(out.ev.user_handle, "ann");
    assert_null(out.ev.thread_id.p);
    assert_null(out.ev.parent_chat_id.p);
    assert_false(out.ev.author_is_bot);
    assert_false(out.ev.mentions_bot);
    assert_int_equal(out.message_id, 1001);
}

static void a_thread_carries_its_own_id_twice_and_its_parent(void **state)
{
    assert_int_equal(run("{\"id\":\"5\",\"channel_id\":\"200\",\"type\":0,\"content\":\"x\"," ANN
                         "," IN_GUILD "}"),
                     DISCORD_EVENT);
    assert_str(out.ev.chat_id, "200");
    assert_str(out.ev.thread_id, "200");
    assert_str(out.ev.parent_chat_id, "100");
    assert_str(out.ev.chat_type, "thread");
    assert_str(out.ev.chat_name, "dinner");
    assert_str(out.ev.chat_topic, "all things");
}

static void a_forum_post_is_a_thread_of_its_forum(void **state)
{
    assert_int_equal(run("{\"id\":\"220\",\"channel_id\":\"220\",\"type\":0,\"content\":\"x\"," ANN
                         "," IN_GUILD "}"),
                     DISCORD_EVENT);
    assert_str(out.ev.chat_type, "thread");
    assert_str(out.ev.parent_chat_id, "120");
    assert_str(out.ev.chat_name, "how do I");
}

static void a_direct_message_has_no_scope_and_a_route_of_its_own(void **state)
{
    assert_int_equal(run("{\"id\":\"5\",\"channel_id\":\"300\",\"type\":0,\"content\":\"hi\"," ANN
                         "}"),
                     DISCORD_EVENT);
    assert_str(out.ev.chat_type, "dm");
    assert_str(out.ev.chat_name, "Ann");
    assert_str(out.ev.route_key, "dm:42");
    assert_null(out.ev.scope_id.p);
    assert_str(out.ev.user_name, "Ann");
}

static void names_fall_back_from_nick_to_display_name_to_handle(void **state)
{
    run("{\"id\":\"5\",\"channel_id\":\"100\",\"type\":0,\"content\":\"x\",\"guild_id\":\"77\","
        "\"member\":{\"nick\":null,\"roles\":[]}," ANN "}");
    assert_str(out.ev.user_name, "Ann");
    run("{\"id\":\"5\",\"channel_id\":\"100\",\"type\":0,\"content\":\"x\",\"guild_id\":\"77\","
        "\"member\":{\"roles\":[]},\"author\":{\"id\":\"42\",\"username\":\"ann\","
        "\"global_name\":null}}");
    assert_str(out.ev.user_name, "ann");
    /* REST does not say the member: the cache may. */
    guild_hint = STR("77");
    run("{\"id\":\"5\",\"channel_id\":\"100\",\"type\":0,\"content\":\"x\"," ANN "}");
    assert_str(out.ev.user_name, "Ann of 77");
    assert_str(out.ev.scope_id, "77");
}

static void only_speech_is_an_event(void **state)
{
    for (int type = 0; type <= 60; type++) {
        char text[400];
        bool speech = type == 0 || type == 19 || type == 20 || type == 23;

        snprintf(text, sizeof text,
                 "{\"id\":\"5\",\"channel_id\":\"100\",\"type\":%d,\"content\":\"x\"," ANN
                 "," IN_GUILD "}",
                 type);
        assert_int_equal(run(text), speech ? DISCORD_EVENT : DISCORD_IGNORED);
    }
}

static void what_we_said_ourselves_is_no_event(void **state)
{
    assert_int_equal(run("{\"id\":\"5\",\"channel_id\":\"100\",\"type\":0,\"content\":\"x\","
                         "\"guild_id\":\"77\",\"author\":{\"id\":\"9\",\"bot\":true}}"),
                     DISCORD_IGNORED);
    assert_string_equal(out.why, "our own");
}

static void bots_webhooks_and_the_system_are_marked_for_the_gate(void **state)
{
    static const char *const authors[] = {
        "\"author\":{\"id\":\"8\",\"username\":\"b\",\"bot\":true}",
        "\"author\":{\"id\":\"8\",\"username\":\"b\",\"system\":true}",
        "\"webhook_id\":\"8\",\"author\":{\"id\":\"8\",\"username\":\"hook\"}",
    };

    for (size_t i = 0; i < ARRAY_LEN(authors); i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{\"id\":\"5\",\"channel_id\":\"100\",\"type\":0,\"content\":\"x\","
                 "\"guild_id\":\"77\",%s}",
                 authors[i]);
        assert_int_equal(run(text), DISCORD_EVENT);
        assert_true(out.ev.author_is_bot);
    }
}

static void a_mention_of_the_bot_is_noticed_and_taken_off_the_front(void **state)
{
    assert_int_equal(run(SAYS("\"content\":\"<@9> /stop\",\"mentions\":[{\"id\":\"9\"}]")),
                     DISCORD_EVENT);
    assert_true(out.ev.mentions_bot);
    assert_str(out.ev.text, "/stop");
    run(SAYS("\"content\":\" <@!9>  <@9> hello <@9>\",\"mentions\":[{\"id\":\"9\"}]"));
    assert_str(out.ev.text, "hello <@9>");
    run(SAYS("\"content\":\"<@99> hello\",\"mentions\":[{\"id\":\"99\"}]"));
    assert_str(out.ev.text, "<@99> hello");
    assert_false(out.ev.mentions_bot);
    run(SAYS("\"content\":\"<@9\",\"mentions\":[]"));
    assert_str(out.ev.text, "<@9");
}

static void a_mention_of_the_bots_own_role_counts_everyone_does_not(void **state)
{
    run(SAYS("\"content\":\"<@&500> hi\",\"mention_roles\":[\"500\"]"));
    assert_true(out.ev.mentions_bot);
    run(SAYS("\"content\":\"<@&501> hi\",\"mention_roles\":[\"501\"]"));
    assert_false(out.ev.mentions_bot);
    run(SAYS("\"content\":\"@everyone\",\"mention_everyone\":true"));
    assert_false(out.ev.mentions_bot);
}

static void a_lone_mention_is_an_event_without_text(void **state)
{
    assert_int_equal(run(SAYS("\"content\":\"<@9>\",\"mentions\":[{\"id\":\"9\"}]")),
                     DISCORD_EVENT);
    assert_str(out.ev.text, "");
}

static void a_reply_quotes_what_it_answers(void **state)
{
#define REPLY(ref) \
    "{\"id\":\"5\",\"channel_id\":\"100\",\"type\":19,\"content\":\"yes\"," ANN "," IN_GUILD \
    ",\"message_reference\":{\"message_id\":\"4\",\"channel_id\":\"100\"},\"referenced_" \
    "message\":" ref "}"
    assert_int_equal(run(REPLY("{\"id\":\"4\",\"content\":\"tea?\",\"author\":{\"id\":\"9\","
                               "\"username\":\"bell\"}}")),
                     DISCORD_EVENT);
    assert_str(out.ev.reply_to_message_id, "4");
    assert_true(out.ev.reply_to.set);
    assert_str(out.ev.reply_to.text, "tea?");
    assert_str(out.ev.reply_to.author, "bell");
    assert_true(out.ev.reply_to.is_own);
    assert_true(out.ev.replies_to_bot);
    run(REPLY("{\"id\":\"4\",\"content\":\"tea?\",\"author\":{\"id\":\"43\",\"username\":\"bob\","
              "\"global_name\":\"Bob\"}}"));
    assert_str(out.ev.reply_to.author, "Bob");
    assert_false(out.ev.replies_to_bot);
    run(REPLY("null"));
    assert_str(out.ev.reply_to_message_id, "4");
    assert_false(out.ev.reply_to.set);
}

static void attachments_become_media_and_name_the_kind(void **state)
{
    static const struct {
        const char *mime, *flags, *kind;
    } cases[] = {
        {"\"image/png\"", "0", "photo"},     {"\"video/mp4\"", "0", "video"},
        {"\"audio/ogg\"", "8192", "voice"},  {"\"audio/mpeg\"", "0", "audio"},
        {"\"text/plain\"", "0", "document"}, {"null", "0", "document"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[700];
        snprintf(text, sizeof text,
                 SAYS("\"content\":\"\",\"flags\":%s,\"attachments\":[{\"id\":\"1\",\"url\":"
                      "\"https://cdn.discordapp.com/a\",\"content_type\":%s},{\"id\":\"2\",\"url\":"
                      "\"https://cdn.discordapp.com/b\"}]"),
                 cases[i].flags, cases[i].mime);
        assert_int_equal(run(text), DISCORD_EVENT);
        assert_str(out.ev.message_type, cases[i].kind);
        assert_int_equal(out.ev.n_media, 2);
        assert_str(out.ev.media[0].url, "https://cdn.discordapp.com/a");
        assert_str(out.ev.text, "");
    }
}

static void a_sticker_is_a_picture_and_a_note(void **state)
{
    assert_int_equal(run(SAYS("\"content\":\"\",\"sticker_items\":[{\"id\":\"66\",\"name\":"
                              "\"wave\",\"format_type\":1}]")),
                     DISCORD_EVENT);
    assert_str(out.ev.message_type, "sticker");
    assert_str(out.ev.text, "[sticker: wave]");
    assert_str(out.ev.media[0].url, "https://cdn.discordapp.com/stickers/66.png");
    run(SAYS("\"content\":\"\",\"sticker_items\":[{\"id\":\"66\",\"name\":\"w\",\"format_type\":4}"
             "]"));
    assert_str(out.ev.media[0].url, "https://media.discordapp.net/stickers/66.gif");
    run(SAYS("\"content\":\"\",\"sticker_items\":[{\"id\":\"66\",\"name\":\"w\",\"format_type\":3}"
             "]"));
    assert_int_equal(out.ev.n_media, 0);
    assert_str(out.ev.text, "[sticker: w]");
}

static void a_forward_brings_what_was_forwarded(void **state)
{
    assert_int_equal(
        run(SAYS("\"content\":\"\",\"message_reference\":{\"type\":1,\"message_id\":\"3\"},"
                 "\"message_snapshots\":[{\"message\":{\"content\":\"the news\",\"attachments\":["
                 "{\"url\":\"https://cdn.discordapp.com/n\",\"content_type\":\"image/png\"}]}}]")),
        DISCORD_EVENT);
    assert_str(out.ev.text, "[forwarded]\nthe news");
    assert_str(out.ev.media[0].url, "https://cdn.discordapp.com/n");
    assert_null(out.ev.reply_to_message_id.p);
}

static void embeds_speak_for_those_who_say_nothing_else(void **state)
{
    run(SAYS("\"content\":\"\",\"embeds\":[{\"title\":\"Alert\",\"description\":\"disk full\","
             "\"fields\":[{\"name\":\"host\",\"value\":\"db1\"}]}]"));
    assert_str(out.ev.text, "Alert\ndisk full\nhost\ndb1");
    run(SAYS("\"content\":\"see\",\"embeds\":[{\"title\":\"unfurled\"}]"));
    assert_str(out.ev.text, "see");
}

static void a_poll_is_told_in_words(void **state)
{
    run(SAYS("\"content\":\"\",\"poll\":{\"question\":{\"text\":\"Tea?\"},\"answers\":["
             "{\"poll_media\":{\"text\":\"yes\"}},{\"poll_media\":{\"text\":\"no\"}}]}"));
    assert_str(out.ev.text, "[poll: Tea?]\n- yes\n- no");
}

static void a_message_without_anything_in_it_is_ignored(void **state)
{
    assert_int_equal(run(SAYS("\"content\":\"\"")), DISCORD_IGNORED);
    assert_string_equal(out.why, "empty");
    assert_int_equal(run(SAYS("\"content\":\"x\",\"flags\":128")), DISCORD_IGNORED);
}

static void what_the_cache_does_not_know_is_asked_for(void **state)
{
    const char *elsewhere = "{\"id\":\"5\",\"channel_id\":\"800\",\"type\":0,\"content\":\"x\","
                            "\"guild_id\":\"78\",\"channel_type\":11," ANN "}";
    const char *new_thread = "{\"id\":\"5\",\"channel_id\":\"800\",\"type\":0,\"content\":\"x\","
                             "\"guild_id\":\"77\"," ANN "}";

    assert_int_equal(run(elsewhere), DISCORD_NEED_GUILD);
    assert_int_equal(run(new_thread), DISCORD_NEED_CHANNEL);
    lenient = true;
    assert_int_equal(run(elsewhere), DISCORD_EVENT);
    assert_str(out.ev.chat_type, "thread"); /* the message itself said so */
    assert_str(out.ev.thread_id, "800");
    assert_int_equal(run(new_thread), DISCORD_EVENT);
    assert_str(out.ev.chat_type, "group");
}

static void what_is_not_a_message_is_malformed(void **state)
{
    static const char *const bad[] = {
        "{}",
        "[]",
        "null",
        "{\"id\":5,\"channel_id\":\"100\",\"type\":0," ANN "}",
        "{\"id\":\"5\",\"type\":0," ANN "}",
        "{\"id\":\"5\",\"channel_id\":\"../x\",\"type\":0," ANN "}",
        "{\"id\":\"5\",\"channel_id\":\"100\",\"type\":0}",
        "{\"id\":\"5\",\"channel_id\":\"100\",\"type\":0,\"author\":{\"id\":\"x\"}}",
        "{\"id\":\"5\",\"channel_id\":\"100\",\"type\":\"0\"," ANN "}",
        "{\"id\":\"5\",\"channel_id\":\"100\",\"type\":0,\"guild_id\":\"q\"," ANN "}",
        "{\"id\":\"5\",\"channel_id\":\"100\"," ANN "}",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (run(bad[i]) != DISCORD_MALFORMED)
            fail_msg("taken for a message: %s", bad[i]);
}

static void fields_of_the_wrong_type_are_as_if_absent(void **state)
{
    assert_int_equal(run(SAYS("\"content\":\"x\",\"attachments\":{},\"mentions\":7,\"embeds\":\"\","
                              "\"sticker_items\":[1,null],\"message_reference\":[],"
                              "\"message_snapshots\":{},\"referenced_message\":1,\"poll\":[],"
                              "\"mention_roles\":[{}],\"flags\":\"x\"")),
                     DISCORD_EVENT);
    assert_str(out.ev.text, "x");
    assert_int_equal(out.ev.n_media, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(platform_discord_test_normalize)
{
    const struct CMUnitTest tests[] = {
        T(a_message_in_a_guild_channel_is_a_group_event),
        T(a_thread_carries_its_own_id_twice_and_its_parent),
        T(a_forum_post_is_a_thread_of_its_forum),
        T(a_direct_message_has_no_scope_and_a_route_of_its_own),
        T(names_fall_back_from_nick_to_display_name_to_handle),
        T(only_speech_is_an_event),
        T(what_we_said_ourselves_is_no_event),
        T(bots_webhooks_and_the_system_are_marked_for_the_gate),
        T(a_mention_of_the_bot_is_noticed_and_taken_off_the_front),
        T(a_mention_of_the_bots_own_role_counts_everyone_does_not),
        T(a_lone_mention_is_an_event_without_text),
        T(a_reply_quotes_what_it_answers),
        T(attachments_become_media_and_name_the_kind),
        T(a_sticker_is_a_picture_and_a_note),
        T(a_forward_brings_what_was_forwarded),
        T(embeds_speak_for_those_who_say_nothing_else),
        T(a_poll_is_told_in_words),
        T(a_message_without_anything_in_it_is_ignored),
        T(what_the_cache_does_not_know_is_asked_for),
        T(what_is_not_a_message_is_malformed),
        T(fields_of_the_wrong_type_are_as_if_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
