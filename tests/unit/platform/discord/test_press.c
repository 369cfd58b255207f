/* Questions with buttons on Discord: how they look, who may press them, and what a press is. */
#include "bot_rig.h"
#include "platform/discord/interactions.h"
#include "platform/prompts.h"

static struct json_parser *parser;

static int begin(void **state)
{
    parser = json_parser_new();
    return setup(state);
}

static int end(void **state)
{
    json_parser_free(parser);
    return teardown(state);
}

#define OPTIONS \
    "[{'id':'once','label':'Once','style':'primary'},{'id':'never','label':'Never','style':'" \
    "danger'}]"
#define POST "POST /channels/50/messages"
#define PATCH "PATCH /channels/50/messages/77"

static void ask(const char *id, const char *options, int64_t timeout_s)
{
    struct action a = {.op = ACTION_PROMPT,
                       .op_name = STR("prompt"),
                       .chat_id = STR("50"),
                       .content = STR("sure?"),
                       .prompt_id = str_of(id),
                       .timeout_s = timeout_s};
    char *text = quoted(options);

    assert_true(json_parse(parser, str_of(text), &a.options));
    discord_ops.act(w.p, (struct action_id){.index = 1},
                    &(struct action_from){.tenant = STR("acme"), .instance = STR("bot1")}, &a);
    free(text);
    pass(0);
    pass(10);
}

static void ask_and_show(void)
{
    ask("1a2b3c4d", OPTIONS, 0);
    answer(POST, 200, "{'id':'77'}");
    assert_true(w.success);
}

/* Somebody presses what carries @id in @channel. */
static bool press_in(const char *channel, const char *id, int type)
{
    char *text =
        quoted("{'type':%d,'id':'8','application_id':'" BOT "','token':'tok','channel_id':'%s',"
               "'guild_id':'60','member':{'user':{'id':'42','username':'ann'}},"
               "'message':{'id':'77'},'data':{'custom_id':%s,'component_type':2}}");
    struct discord_interaction x;
    struct buf body = BUF_INIT;
    struct json doc;

    buf_reset(&w.answered);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    buf_printf(&body, text, type, channel, id);
#pragma GCC diagnostic pop
    free(text);
    assert_true(json_parse(parser, buf_str(&body), &doc));
    assert_true(discord_interaction_read(doc, &x));
    bool ours = discord_press(bot(), &x, &(struct discord_asker){.id = x.id, .token = x.token});
    buf_done(&body);
    return ours;
}

static bool press(const char *id)
{
    return press_in("50", id, INTERACTION_COMPONENT);
}

static bool told(const char *part)
{
    return str_contains(buf_str(&w.answered), str_of(part));
}

static void taken(enum bh_err err)
{
    accepted_cb *done = w.done;

    assert_non_null(done);
    w.done = NULL;
    done(w.ctx, err);
    pass(10);
}

static bool body_has(const char *what, const char *part)
{
    const struct http_call *call = asked(what);
    char *text = quoted(part);
    bool yes = call != NULL && str_contains(buf_str(&call->body), str_of(text));

    free(text);
    return yes;
}

static void options_are_buttons_in_rows_of_five(void **state)
{
    struct buf options = BUF_INIT;

    buf_add_z(&options, "[");
    for (int i = 0; i < 7; i++)
        buf_printf(&options, "%s{'id':'o%d','label':'Nr %d'}", i > 0 ? "," : "", i, i);
    buf_add_z(&options, "]");
    ask("1a2b3c4d", buf_z(&options), 0);
    assert_true(
        body_has(POST, "'custom_id':'hp1:1a2b3c4d:o4'}]},{'type':1,'components':[{'type':2"));
    assert_true(body_has(POST, "'label':'Nr 6','custom_id':'hp1:1a2b3c4d:o6'}]}]"));
    buf_done(&options);
}

static void a_press_is_an_answer_once_it_is_safe(void **state)
{
    ask_and_show();
    assert_true(press("\"hp1:1a2b3c4d:once\""));
    assert_string_equal(buf_z(&w.taken), "/once once Once 42 77 acme/bot1;");
    assert_int_equal(w.answered.n, 0); /* not before it is on disk */
    taken(BH_OK);
    assert_true(told("200 {\"type\":7") && told("\"disabled\":true"));
    /* The message is changed by a request of its own too: the chosen one green, the other grey. */
    assert_true(
        body_has(PATCH,
                 "'style':3,'label':'Once','custom_id':'hp1:1a2b3c4d:once','disabled':true"));
    assert_true(
        body_has(PATCH,
                 "'style':2,'label':'Never','custom_id':'hp1:1a2b3c4d:never','disabled':true"));
    answer(PATCH, 200, "{'id':'77'}");
    assert_true(press("\"hp1:1a2b3c4d:never\"")); /* too late */
    assert_true(told("answered already"));
    assert_string_equal(buf_z(&w.taken), "/once once Once 42 77 acme/bot1;");
}

static void a_press_that_was_not_taken_leaves_the_question_open(void **state)
{
    ask_and_show();
    press("\"hp1:1a2b3c4d:once\"");
    assert_true(press("\"hp1:1a2b3c4d:never\"")); /* somebody is just answering */
    assert_true(told("answered already"));
    buf_reset(&w.answered);
    taken(BH_BUSY);
    assert_true(told("503"));
    assert_true(press("\"hp1:1a2b3c4d:never\""));
    taken(BH_OK);
    assert_true(told("200 {\"type\":7"));
    assert_null(asked(PATCH " "));
}

static void whoever_may_not_answer_is_told_so_alone(void **state)
{
    ask_and_show();
    w.lets_in = false;
    assert_true(press("\"hp1:1a2b3c4d:once\""));
    assert_true(told("not for you") && told("\"flags\":64"));
    assert_int_equal(w.taken.n, 0);
}

static void hostile_ids_answer_nothing(void **state)
{
    static const char *const ours[] = {"\"hp1:1a2b3c4d:nope\"", "\"hp1:ffffffff:once\"",
                                       "\"hp1:once:1a2b3c4d\""};
    static const char *const foreign[] = {"\"my_button\"",
                                          "\"HP1:1a2b3c4d:once\"",
                                          "\"hp2:1a2b3c4d:once\"",
                                          "\"hp1:\"",
                                          "\"hp1::\"",
                                          "\"hp1:1a2b3c4d\"",
                                          "\"hp1:1a2b3c4d:\"",
                                          "\"hp1:1a2b3c4d:once:more\"",
                                          "\"hp1:1a2b3c4d:once \"",
                                          "\"hp1:1a2b3c4d:once\\u0000\"",
                                          "\"hp1:../../1a2b3c4d:once\"",
                                          "\"\"",
                                          "7",
                                          "null",
                                          "{}",
                                          "[\"hp1:1a2b3c4d:once\"]"};
    char large[160] = "\"hp1:1a2b3c4d:";

    ask_and_show();
    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        assert_true(press(ours[i]));
        assert_true(told("answered already"));
    }
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
        assert_false(press(foreign[i])); /* it goes the way of others' buttons */
        assert_int_equal(w.answered.n, 0);
    }
    memset(large + strlen(large), 'x', 120);
    strcat(large, "\"");
    assert_false(press(large));
    assert_true(press_in("51", "\"hp1:1a2b3c4d:once\"", INTERACTION_COMPONENT)); /* elsewhere */
    assert_true(told("answered already"));
    assert_false(press_in("50", "\"hp1:1a2b3c4d:once\"", INTERACTION_MODAL));
    assert_false(press_in("50", "\"hp1:1a2b3c4d:once\"", INTERACTION_COMMAND));
    assert_int_equal(w.taken.n, 0);
    assert_true(press("\"hp1:1a2b3c4d:once\"")); /* and the question is as open as before */
    taken(BH_OK);
    assert_true(told("200 {\"type\":7"));
}

static void when_its_time_is_up_the_buttons_go(void **state)
{
    ask("1a2b3c4d", OPTIONS, 60);
    answer(POST, 200, "{'id':'77'}");
    pass(59000);
    assert_null(asked(PATCH));
    pass(2000);
    assert_true(body_has(PATCH, "{'components':[]}"));
    assert_true(press("\"hp1:1a2b3c4d:once\""));
    assert_true(told("answered already"));
    answer(PATCH, 404,
           "{'code':10008,'message':'Unknown Message'}"); /* somebody removed it: fine */
    pass(3600000);
    assert_null(asked(PATCH));
    assert_int_equal(prompts_count(w.p->prompts), 0);
}

static void a_question_that_discord_refuses_is_none(void **state)
{
    ask("1a2b3c4d", OPTIONS, 0);
    answer(POST, 403, "{'code':50013,'message':'Missing Permissions'}");
    assert_false(w.success);
    assert_int_equal(prompts_count(w.p->prompts), 0);
    assert_true(press("\"hp1:1a2b3c4d:once\""));
    assert_true(told("answered already"));
}

static void a_restart_changes_nothing(void **state)
{
    ask_and_show();
    platform_close(w.p);
    pass(100);
    open_bot();
    assert_true(press("\"hp1:1a2b3c4d:never\""));
    assert_string_equal(buf_z(&w.taken), "/never never Never 42 77 acme/bot1;");
    taken(BH_OK);
    assert_true(told("200 {\"type\":7"));
}

UNIT(platform_discord_test_press)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
        T(options_are_buttons_in_rows_of_five),
        T(a_press_is_an_answer_once_it_is_safe),
        T(a_press_that_was_not_taken_leaves_the_question_open),
        T(whoever_may_not_answer_is_told_so_alone),
        T(hostile_ids_answer_nothing),
        T(when_its_time_is_up_the_buttons_go),
        T(a_question_that_discord_refuses_is_none),
        T(a_restart_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
