/* Answers that stream (platform/stream.h), shown by the Telegram adapter on a clock of the test. */
#include "platform/telegram/rig.h"

#include "platform/sender.h"
#include "platform/stream.h"

#define SENT(id) "{'ok':true,'result':{'message_id':" id "}}"
#define YES "{'ok':true,'result':true}"
#define CURSOR " \xe2\x96\x89"

static const struct action_from ann = {STR("acme"), STR("bot1"), STR("r")};

static void submit(uint32_t index, struct action a)
{
    sender_submit(w.p->sender, (struct action_id){.index = index}, &ann, &a);
    pass(0);
    pass(10); /* the store commits, the outbox starts */
}

static void edit(uint32_t index, const char *chat, const char *message, const char *text)
{
    submit(index, (struct action){.op = ACTION_EDIT,
                                  .chat_id = str_of(chat),
                                  .message_id = str_of(message),
                                  .content = str_of(text),
                                  .content_set = true});
}

static void say(uint32_t index, const char *chat, const char *text)
{
    submit(index, (struct action){.op = ACTION_SEND,
                                  .chat_id = str_of(chat),
                                  .content = str_of(text),
                                  .content_set = true});
}

static void draft_as(uint32_t index, const char *chat, int64_t id, const char *text, bool final,
                     bool is_message)
{
    submit(index, (struct action){.op = ACTION_DRAFT,
                                  .chat_id = str_of(chat),
                                  .draft_id = id,
                                  .content = str_of(text),
                                  .final = final,
                                  .is_message = is_message,
                                  .content_set = true});
}

static void draft(uint32_t index, int64_t id, const char *text, bool final)
{
    draft_as(index, "5", id, text, final, false);
}

static void restart(void)
{
    platform_close(w.p);
    w.p = NULL;
    pass(100);
    w.revives = true;
    open_bot(false);
    pass(10);
    pass(10);
}

/* ---- edits ---- */

static void an_edit_with_room_is_answered_by_the_platform(void **state)
{
    reach_polling();
    edit(0, "5", "70", "one");
    assert_true(asks("one"));
    assert_int_equal(w.results[0].n, 0);
    answer(200, SENT("70"));
    assert_true(w.results[0].success && !w.results[0].queued);
    pass(5000);
    edit(1, "5", "70", "two");
    answer(400, "{'ok':false,'error_code':400,'description':'message to edit not found'}");
    assert_true(w.results[1].n == 1 && !w.results[1].success);
    assert_int_equal(count_calls("editMessageText"), 2);
    pass(60000);
    assert_int_equal(count_calls("sendMessage"), 0); /* its gateway was told */
}

static void only_the_newest_of_many_texts_is_shown(void **state)
{
    char text[16];

    reach_polling();
    edit(0, "5", "70", "first");
    for (uint32_t i = 1; i <= 50; i++) {
        snprintf(text, sizeof text, "text %u", (unsigned)i);
        edit(i, "5", "70", text);
        assert_true(w.results[i].success && w.results[i].queued && w.results[i].merged);
    }
    answer_call(&w.calls[w.n_calls - 1], BH_OK, 200, SENT("70"));
    assert_int_equal(count_calls("editMessageText"), 1);
    pass(1100);
    pass(10);
    assert_int_equal(count_calls("editMessageText"), 2);
    assert_true(asks("text 50"));
    answer(200, SENT("70"));
    pass(60000);
    assert_int_equal(count_calls("editMessageText"), 2);
}

static void a_slow_platform_does_not_keep_an_edit_waiting(void **state)
{
    reach_polling();
    edit(0, "5", "70", "one" CURSOR);
    edit(1, "6", "80", "one");
    pass(STREAM_PATIENCE_MS);
    assert_true(w.results[0].success && w.results[0].queued);
    assert_int_equal(w.results[1].n, 0);
    pass(STREAM_ALONE_MS);
    assert_true(w.results[1].success && w.results[1].queued);
    answer(200, SENT("70"));
    assert_int_equal(w.results[0].n, 1);
}

static void edits_of_one_chat_are_a_second_apart_and_a_message_goes_first(void **state)
{
    reach_polling();
    say(0, "5", "hello");
    answer(200, SENT("69"));
    edit(1, "5", "69", "hello there" CURSOR);
    assert_true(w.results[1].queued);
    assert_int_equal(count_calls("editMessageText"), 0);
    pass(1100);
    pass(10);
    assert_int_equal(count_calls("editMessageText"), 1);
    answer(200, SENT("69"));
    edit(2, "5", "69", "hello there, Ann" CURSOR); /* waits */
    say(3, "5", "beside");
    assert_int_equal(count_calls("sendMessage"), 2);
    assert_int_equal(count_calls("editMessageText"), 1);
    pass(900);
    assert_int_equal(count_calls("editMessageText"), 1); /* about a second after the message, too */
    pass(1100);
    pass(10);
    assert_int_equal(count_calls("editMessageText"), 2); /* though "beside" has no answer yet */
}

static void a_group_gets_few_edits_and_its_last_text_soon(void **state)
{
    size_t most;

    reach_polling();
    for (uint32_t i = 0; i < 100; i++) {
        char text[16];
        snprintf(text, sizeof text, "text %u", (unsigned)i);
        edit(i, "-7", "70", text);
        if (count_calls("editMessageText") > 0 && last_call()->done != NULL &&
            str_eq(buf_str(&last_call()->method), STR("editMessageText")))
            answer(200, SENT("70"));
        pass(590);
    }
    most = count_calls("editMessageText");
    assert_in_range(most, 8, 13); /* a minute: two thirds of 19, evenly */
    for (int i = 0; i < 4; i++) {
        if (last_call()->done != NULL && asks("text"))
            answer(200, SENT("70"));
        pass(1100);
    }
    assert_true(asks("text 99"));
    assert_in_range(count_calls("editMessageText"), most, most + 2);
}

static void a_limited_chat_waits_alone(void **state)
{
    reach_polling();
    edit(0, "5", "70", "one");
    answer(429, "{'ok':false,'error_code':429,'parameters':{'retry_after':3}}");
    edit(1, "6", "80", "other");
    assert_true(asks("other"));
    answer(200, SENT("80"));
    pass(3100);
    pass(10);
    assert_true(asks("one"));
    answer(200, SENT("70"));
    edit(2, "5", "70", "two");
    edit(3, "6", "80", "other two");
    pass(1200);
    pass(10);
    assert_true(asks("two")); /* last texts leave at the usual pace */
}

static void a_message_that_cannot_be_edited_is_told_at_the_next_edit(void **state)
{
    reach_polling();
    edit(0, "5", "70", "one" CURSOR);
    answer(200, SENT("70"));
    edit(1, "5", "70", "two" CURSOR);
    assert_true(w.results[1].queued);
    pass(1200);
    pass(10);
    answer(400, "{'ok':false,'error_code':400,'description':'message to edit not found'}");
    edit(2, "5", "70", "three");
    assert_true(!w.results[2].success);
    assert_true(str_contains(buf_str(&w.results[2].error), STR("no such message")));
    pass(60000);
    assert_int_equal(count_calls("sendMessage"), 0);
}

static void without_a_next_edit_the_promised_text_becomes_a_message(void **state)
{
    reach_polling();
    edit(0, "5", "70", "one" CURSOR);
    answer(200, SENT("70"));
    edit(1, "5", "70", "the end" CURSOR);
    pass(1200);
    pass(10);
    answer(400, "{'ok':false,'error_code':400,'description':'message to edit not found'}");
    pass(3000);
    pass(10);
    assert_int_equal(count_calls("sendMessage"), 1);
    assert_true(asks("the end"));
}

static void what_outgrows_a_message_rolls_over(void **state)
{
    struct buf text = BUF_INIT;

    reach_polling();
    for (int i = 0; i < 120; i++)
        buf_printf(&text, "This is sentence number %d of a long answer.\n\n", i);
    edit(0, "5", "70", buf_z(&text));
    assert_true(asks("sentence number 0 ") && !asks("number 119"));
    answer(200, SENT("70"));
    pass(1200);
    pass(10);
    assert_int_equal(count_calls("sendMessage"), 1);
    assert_true(asks("number 119 "));
    answer(200, SENT("71"));
    buf_printf(&text, "More.");
    edit(1, "5", "70", buf_z(&text));
    pass(1200);
    pass(10);
    assert_true(asks("\"message_id\":71") && asks("More."));
    answer(200, SENT("71"));
    pass(60000);
    assert_int_equal(count_calls("editMessageText"), 2);
    buf_done(&text);
}

/* ---- what is not finished ---- */

static void half_markdown_is_completed_while_it_streams(void **state)
{
    reach_polling();
    edit(0, "5", "70", "see **this" CURSOR);
    assert_true(asks("\"bold\""));
    answer(200, SENT("70"));
    edit(1, "5", "70", "see **this"); /* the last text: as it came */
    pass(1200);
    pass(10);
    assert_true(asks("see **this") && !asks("\"bold\""));
}

static void the_cursor_of_a_dead_gateway_is_removed(void **state)
{
    reach_polling();
    edit(0, "5", "70", "so far" CURSOR);
    answer(200, SENT("70"));
    pass(STREAM_OVER_MS);
    pass(10);
    assert_int_equal(count_calls("editMessageText"), 2);
    assert_true(asks("so far") && !asks("\xe2\x96\x89"));
    answer(200, SENT("70"));
    pass(60000);
    assert_int_equal(count_calls("editMessageText"), 2);
}

static void a_first_message_with_a_cursor_is_finished_too(void **state)
{
    reach_polling();
    say(0, "5", "Let me" CURSOR);
    answer(200, SENT("70"));
    assert_true(w.results[0].success);
    pass(STREAM_OVER_MS);
    pass(10);
    assert_int_equal(count_calls("editMessageText"), 1);
    assert_true(asks("Let me") && !asks("\xe2\x96\x89"));
}

static void an_edit_without_its_thread_is_of_the_same_message(void **state)
{
    reach_polling();
    submit(0, (struct action){.op = ACTION_SEND,
                              .chat_id = STR("-1002"),
                              .thread_id = STR("4"),
                              .content = STR("Let me" CURSOR),
                              .content_set = true});
    answer(200, SENT("70"));
    edit(1, "-1002", "70", "The answer");
    pass(4000);
    assert_true(asks("The answer"));
    answer(200, SENT("70"));
    pass(STREAM_OVER_MS);
    pass(10);
    assert_int_equal(count_calls("editMessageText"), 1); /* the first text is not put back */
}

static void an_edit_of_a_queued_message_is_not_undone(void **state)
{
    reach_polling();
    say(0, "5", "Let me" CURSOR);
    answer(429, "{'ok':false,'error_code':429,'parameters':{'retry_after':40}}");
    pass(26000);
    assert_true(str_starts(buf_str(&w.results[0].id), STR("queued:")));
    edit(1, "5", buf_z(&w.results[0].id), "The answer");
    assert_true(w.results[1].success && w.results[1].queued);
    pass(15000);
    assert_true(asks("Let me"));
    answer(200, SENT("70"));
    pass(2000);
    pass(10);
    assert_true(asks("The answer"));
    answer(200, SENT("70"));
    pass(STREAM_OVER_MS);
    pass(10);
    assert_int_equal(count_calls("editMessageText"), 1);
}

static void a_restart_finishes_the_last_text_that_was_promised(void **state)
{
    reach_polling();
    edit(0, "5", "70", "one" CURSOR);
    answer(200, SENT("70"));
    edit(1, "5", "70", "one two" CURSOR);
    edit(2, "5", "70", "one two three" CURSOR);
    assert_int_equal(count_calls("editMessageText"), 1);
    restart();
    pass(1000); /* after a crash the budget of the bot begins empty */
    assert_int_equal(count_calls("editMessageText"), 2);
    for (size_t i = 0; i < w.n_calls; i++)
        if (str_contains(buf_str(&w.calls[i].body), STR("one two three")))
            assert_false(str_contains(buf_str(&w.calls[i].body), STR("\xe2\x96\x89")));
}

static void find_text(void *ctx, struct str key, struct str value)
{
    *(bool *)ctx |= str_contains(value, STR("the end"));
}

static void a_text_that_is_marked_as_the_last_is_on_disk_at_once(void **state)
{
    struct json_parser *parser = json_parser_new();
    struct json last;
    bool kept = false;

    reach_polling();
    edit(0, "5", "70", "one" CURSOR);
    answer(200, SENT("70"));
    edit(1, "5", "70", "one two" CURSOR);
    assert_true(json_parse(parser, STR("{\"notify\":true}"), &last));
    submit(2, (struct action){.op = ACTION_EDIT,
                              .chat_id = STR("5"),
                              .message_id = STR("70"),
                              .content = STR("the end"),
                              .content_set = true,
                              .metadata = last});
    assert_true(w.results[2].success && w.results[2].queued);
    assert_int_equal(w.env.store->ops->load_records(w.env.store, "outgoing", STR(""), find_text,
                                                    &kept),
                     BH_OK);
    assert_true(kept);
    json_parser_free(parser);
}

/* ---- drafts ---- */

static void drafts_are_previews_and_the_answer_ends_them(void **state)
{
    reach_polling();
    draft(0, 9, "Hel", false);
    assert_true(w.results[0].success && w.results[0].queued);
    assert_int_equal(count_calls("sendMessageDraft"), 1);
    assert_true(asks("\"chat_id\":5") && asks("\"draft_id\":") && asks("Hel"));
    answer(200, YES);
    draft(1, 9, "Hello", false);
    draft(2, 9, "Hello, A", false);
    assert_int_equal(count_calls("sendMessageDraft"), 1);
    say(3, "5", "Hello, Ann.");
    answer(200, SENT("70"));
    assert_true(w.results[3].success);
    pass(60000);
    assert_int_equal(count_calls("sendMessageDraft"), 1); /* none behind the answer */
}

static void drafts_are_refused_in_groups_with_a_way_out(void **state)
{
    reach_polling();
    draft_as(0, "-7", 9, "Hel", false, false);
    assert_false(w.results[0].success);
    assert_true(str_contains(buf_str(&w.results[0].error), STR("edit it")));
}

static void a_final_draft_is_one_message_however_often_it_comes(void **state)
{
    reach_polling();
    draft(0, 9, "Hel", false);
    answer(200, YES);
    draft(1, 9, "Hello.", true);
    assert_int_equal(count_calls("sendMessage"), 1);
    answer(200, SENT("70"));
    assert_true(w.results[1].success);
    assert_str(buf_str(&w.results[1].id), "70");
    draft(2, 9, "Hello.", true);
    assert_str(buf_str(&w.results[2].id), "70");
    draft(3, 9, "Hel", false); /* a late frame */
    assert_true(w.results[3].success);
    restart();
    draft(4, 9, "Hello.", true);
    assert_str(buf_str(&w.results[4].id), "70");
    assert_int_equal(count_calls("sendMessage"), 1);
}

static void a_server_without_previews_is_told_at_the_next_draft(void **state)
{
    reach_polling();
    draft(0, 9, "Hel", false);
    answer(404, "{'ok':false,'error_code':404,'description':'Not Found'}");
    draft(1, 9, "Hello", false);
    assert_false(w.results[1].success);
    draft(2, 10, "Hi", false);
    assert_false(w.results[2].success);
    assert_int_equal(count_calls("sendMessageDraft"), 1);
}

static void previews_of_rich_answers_are_rich(void **state)
{
    w.rich = true;
    reach_polling();
    draft(0, 7, "# He", false);
    assert_str(buf_str(&last_call()->method), "sendRichMessageDraft");
    assert_true(asks("\"rich_message\":{\"markdown\":\"# He\"}") && !asks("\"text\""));
    answer(200, YES);
    pass(2000);
    draft(1, 7, "# Hello", true);
    assert_str(buf_str(&last_call()->method), "sendRichMessage");
    answer(200, SENT("70"));
    assert_true(w.results[1].success);
    assert_int_equal(count_calls("sendMessageDraft") + count_calls("sendMessage"), 0);
}

static void an_older_server_shows_the_previews_it_knows(void **state)
{
    w.rich = true;
    reach_polling();
    draft(0, 7, "He", false);
    answer(404, "{'ok':false,'error_code':404,'description':'Not Found'}");
    pass(1100);
    assert_str(buf_str(&last_call()->method), "sendMessageDraft");
    answer(200, YES);
    pass(2000);
    draft(1, 7, "Hello", false);
    assert_str(buf_str(&last_call()->method), "sendMessageDraft");
    answer(200, YES);
    pass(2000);
    draft(2, 7, "Hello.", true);
    assert_str(buf_str(&last_call()->method), "sendMessage");
    answer(200, SENT("70"));
    assert_true(w.results[2].success);
    assert_int_equal(count_calls("sendRichMessageDraft"), 1);
}

static void a_draft_that_is_the_message_is_edited_where_previews_are_not_shown(void **state)
{
    reach_polling();
    draft_as(0, "-7", 9, "Hel", false, true);
    assert_int_equal(count_calls("sendMessage"), 1);
    answer(200, SENT("70"));
    draft_as(1, "-7", 9, "Hello", false, true);
    draft_as(2, "-7", 9, "Hello, Ann.", true, true);
    assert_int_equal(w.results[2].n, 0);
    pass(1200);
    pass(10);
    assert_int_equal(count_calls("editMessageText"), 1);
    assert_true(asks("Hello, Ann.") && asks("\"message_id\":70"));
    answer(200, SENT("70"));
    assert_true(w.results[2].success);
    assert_str(buf_str(&w.results[2].id), "70");
    draft_as(3, "-7", 9, "Hello, Ann.", true, true);
    assert_str(buf_str(&w.results[3].id), "70");
}

static void a_draft_whose_message_was_deleted_ends_as_a_new_message(void **state)
{
    reach_polling();
    draft_as(0, "-7", 9, "Hel", false, true);
    answer(200, SENT("70"));
    draft_as(1, "-7", 9, "Hello, Ann.", true, true);
    pass(1200);
    pass(10);
    answer(400, "{'ok':false,'error_code':400,'description':'message to edit not found'}");
    pass(1200);
    pass(10);
    assert_int_equal(count_calls("sendMessage"), 2);
    answer(200, SENT("71"));
    assert_true(w.results[1].success);
    assert_str(buf_str(&w.results[1].id), "71");
}

/* ---- bounds ---- */

static void the_texts_of_one_tenant_leave_room_for_others(void **state)
{
    enum { TEXT_BYTES = 48 << 10, MESSAGES = STREAMS_BYTES / 2 / TEXT_BYTES + 4 };
    char *text = xmalloc(TEXT_BYTES + 1), message[16];
    struct action a = {.op = ACTION_EDIT, .chat_id = STR("5"), .content_set = true};
    size_t taken = 0;

    memset(text, 'x', TEXT_BYTES);
    text[TEXT_BYTES] = '\0';
    reach_polling();
    edit(0, "5", "69", "shown"); /* no room for the next ones: they wait */
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < (int)MESSAGES; i++) {
            snprintf(message, sizeof message, "%d", 1000 + i);
            a.message_id = str_of(message);
            a.content = round == 0 ? STR("x") : str_of(text);
            w.results[1].success = false;
            sender_submit(w.p->sender, (struct action_id){.index = 1}, &ann, &a);
            taken += round == 1 && w.results[1].success;
        }
    assert_true(taken > 0 && taken <= STREAMS_BYTES / 2 / TEXT_BYTES);
    assert_false(w.results[1].success);
    assert_true(str_contains(buf_str(&w.results[1].error), STR("too many answers")));
    const struct action_from bob = {STR("other"), STR("bot2"), STR("r")};
    a.message_id = STR("9");
    sender_submit(w.p->sender, (struct action_id){.index = 2}, &bob, &a);
    assert_true(w.results[2].success && w.results[2].merged);
    free(text);
}

UNIT(platform_telegram_test_streaming)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(an_edit_with_room_is_answered_by_the_platform),
        T(only_the_newest_of_many_texts_is_shown),
        T(a_slow_platform_does_not_keep_an_edit_waiting),
        T(edits_of_one_chat_are_a_second_apart_and_a_message_goes_first),
        T(a_group_gets_few_edits_and_its_last_text_soon),
        T(a_limited_chat_waits_alone),
        T(a_message_that_cannot_be_edited_is_told_at_the_next_edit),
        T(without_a_next_edit_the_promised_text_becomes_a_message),
        T(what_outgrows_a_message_rolls_over),
        T(half_markdown_is_completed_while_it_streams),
        T(the_cursor_of_a_dead_gateway_is_removed),
        T(a_first_message_with_a_cursor_is_finished_too),
        T(an_edit_without_its_thread_is_of_the_same_message),
        T(an_edit_of_a_queued_message_is_not_undone),
        T(a_restart_finishes_the_last_text_that_was_promised),
        T(a_text_that_is_marked_as_the_last_is_on_disk_at_once),
        T(drafts_are_previews_and_the_answer_ends_them),
        T(drafts_are_refused_in_groups_with_a_way_out),
        T(a_final_draft_is_one_message_however_often_it_comes),
        T(a_server_without_previews_is_told_at_the_next_draft),
        T(previews_of_rich_answers_are_rich),
        T(an_older_server_shows_the_previews_it_knows),
        T(a_draft_that_is_the_message_is_edited_where_previews_are_not_shown),
        T(a_draft_whose_message_was_deleted_ends_as_a_new_message),
        T(the_texts_of_one_tenant_leave_room_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
