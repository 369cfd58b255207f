#include "platform/telegram/rig.h"

/* ---- polling ---- */

static void an_update_is_confirmed_only_when_it_is_accepted(void **state)
{
    reach_polling();
    assert_false(asks("offset"));
    assert_true(asks("\"timeout\":40") && asks("edited_channel_post"));
    answer(200, UPDATES(UPDATE("10", "5", "a") "," UPDATE("11", "6", "b")));
    assert_int_equal(w.n_events, 2);
    accepted(1, BH_OK);
    assert_int_equal(count_calls("getUpdates"), 1);
    accepted(0, BH_OK);
    assert_int_equal(count_calls("getUpdates"), 2);
    assert_true(asks("\"offset\":12"));
}

static void a_busy_update_waits_and_holds_back_its_chat_only(void **state)
{
    reach_polling();
    answer(200,
           UPDATES(UPDATE("10", "5", "a") "," UPDATE("11", "5", "b") "," UPDATE("12", "6", "c")));
    assert_int_equal(w.n_events, 2); /* a and c; b stands behind a */
    assert_str(buf_str(&w.events[1].text), "c");
    accepted(0, BH_BUSY);
    accepted(1, BH_OK);
    assert_int_equal(w.n_events, 2);
    pass(5000);
    assert_int_equal(w.n_events, 3);
    assert_str(buf_str(&w.events[2].text), "a");
    accepted(2, BH_UNAVAILABLE);
    pass(5000);
    assert_str(buf_str(&w.events[3].text), "a");
    accepted(3, BH_OK);
    assert_str(buf_str(&w.events[4].text), "b");
    assert_int_equal(count_calls("getUpdates"), 1);
    accepted(4, BH_OK);
    assert_true(asks("\"offset\":13"));
}

static void a_full_mailbox_becomes_a_problem_in_the_end(void **state)
{
    reach_polling();
    answer(200, UPDATES(UPDATE("10", "5", "a")));
    for (size_t i = 0; i < 6; i++) {
        accepted(i, BH_BUSY);
        pass(40000);
    }
    assert_non_null(w.p->problem);
    assert_non_null(strstr(w.p->problem, "mailbox is full"));
    accepted(6, BH_OK);
    assert_null(w.p->problem);
}

static void updates_out_of_order_and_repeated_are_put_in_order(void **state)
{
    reach_polling();
    answer(200,
           UPDATES(UPDATE("12", "5", "c") "," UPDATE("10", "5", "a") "," UPDATE("11", "5", "b")));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(w.n_events, i + 1);
        accepted(i, BH_OK);
    }
    assert_str(buf_str(&w.events[0].text), "a");
    assert_str(buf_str(&w.events[2].text), "c");
    assert_true(asks("\"offset\":13"));
}

static void the_offset_survives_a_restart_but_not_a_week(void **state)
{
    reach_polling();
    answer(200, UPDATES(UPDATE("10", "5", "a")));
    accepted(0, BH_OK);
    pass(100);
    platform_close(w.p);
    reach_polling();
    assert_true(asks("\"offset\":11"));
    platform_close(w.p);
    pass((int64_t)7 * 86400 * 1000);
    reach_polling();
    assert_false(asks("offset"));
}

static void somebody_else_polling_is_named_and_waited_out(void **state)
{
    reach_polling();
    answer(409,
           "{'ok':false,'error_code':409,'description':'Conflict: terminated by other getUpdates "
           "request; make sure that only one bot instance is running'}");
    assert_non_null(strstr(w.p->problem, "Another program polls"));
    size_t before = w.n_calls;
    pass(100);
    assert_int_equal(w.n_calls, before);
    pass(3000);
    assert_int_equal(w.n_calls, before + 1);
    answer(
        409,
        "{'ok':false,'error_code':409,'description':'Conflict: can\\u0027t use getUpdates method "
        "while webhook is active'}");
    pass(60000);
    assert_str(buf_str(&last_call()->method), "deleteWebhook");
}

static void a_revoked_token_is_named_and_tried_slowly(void **state)
{
    reach_polling();
    answer(401, "{'ok':false,'error_code':401,'description':'Unauthorized'}");
    assert_non_null(strstr(w.p->problem, "does not know this token"));
    size_t before = w.n_calls;
    pass(30000);
    assert_int_equal(w.n_calls, before);
    pass(31000);
    assert_str(buf_str(&last_call()->method), "getMe");
    answer(200, "{'ok':true,'result':{'id':777,'username':'my_bot'}}");
    answer(200, "{'ok':true,'result':true}");
    answer(200, UPDATES(""));
    assert_null(w.p->problem);
}

static void failures_are_tried_again_with_growing_patience(void **state)
{
    reach_polling();
    for (int i = 0; i < 12; i++) {
        answer_call(last_call(), BH_UNAVAILABLE, 0,
                    "no route to https://x/bot" TOKEN "/getUpdates");
        size_t before = w.n_calls;
        pass(300);
        assert_int_equal(w.n_calls, before);
        pass(80000);
        assert_int_equal(w.n_calls, before + 1);
    }
    assert_non_null(w.p->problem);
    assert_null(strstr(w.p->problem, "SECRET"));
    answer(429, "{'ok':false,'error_code':429,'parameters':{'retry_after':7}}");
    size_t before = w.n_calls;
    pass(6900);
    assert_int_equal(w.n_calls, before);
    pass(200);
    assert_int_equal(w.n_calls, before + 1);
}

static void a_server_without_long_polling_is_not_stormed(void **state)
{
    reach_polling();
    answer(200, UPDATES(""));
    assert_int_equal(count_calls("getUpdates"), 1);
    pass(400);
    assert_int_equal(count_calls("getUpdates"), 2);
    pass(50000);
    answer(200, UPDATES(""));
    assert_int_equal(count_calls("getUpdates"), 3);
}

static int64_t two_and_a_half(void *ctx)
{
    return 2500;
}

static int64_t hardly_anything(void *ctx)
{
    return 900;
}

static void telegram_hangs_up_before_another_process_may_ask(void **state)
{
    w.env.alone_ms = two_and_a_half;
    reach_polling();
    assert_true(asks("\"timeout\":2,"));
    w.env.alone_ms = hardly_anything;
    pass(2000);
    answer(200, UPDATES(""));
    assert_true(asks("\"timeout\":0,"));
    answer(200, UPDATES("")); /* and it is not stormed */
    assert_int_equal(count_calls("getUpdates"), 2);
    pass(400);
    assert_int_equal(count_calls("getUpdates"), 3);
    w.env.alone_ms = NULL;
    pass(2000);
    answer(200, UPDATES(""));
    assert_true(asks("\"timeout\":40,"));
}

static void chats_go_by_their_own_route_else_by_the_bots(void **state)
{
    reach_polling();
    answer(200, UPDATES(UPDATE("10", "5", "a")));
    assert_str(buf_str(&w.events[0].route), "my_bot");
    accepted(0, BH_OK);
    w.routed = "5";
    answer(200, UPDATES(UPDATE("11", "5", "a")));
    assert_str(buf_str(&w.events[1].route), "5");
    accepted(1, BH_OK);
    w.routed = "-7";
    answer(200,
           UPDATES(
               "{'update_id':12,'message':{'message_id':1,'chat':{'id':-7,'type':'group'},"
               "'migrate_to_chat_id':-1007}},"
               "{'update_id':13,'message':{'message_id':2,'chat':{'id':-1007,'type':'supergroup'},"
               "'from':{'id':5},'text':'moved'}}"));
    assert_str(buf_str(&w.events[2].chat), "-1007");
    assert_str(buf_str(&w.events[2].route), "-7");
}

/* ---- webhooks ---- */

static void post(uint32_t index, const char *secret, const char *body)
{
    struct http_req req = {.method = "POST",
                           .secret = secret,
                           .body = body,
                           .id = {.index = index, .generation = 9}};

    if (!telegram_ops.http(w.p, &req))
        w.http_status[index] = 401; /* what the site answers then */
}

static void webhooks_are_answered_when_the_event_is_safe(void **state)
{
    static const char *const update =
        "{\"update_id\":1,\"message\":{\"message_id\":1,\"chat\":{\"id\":5,\"type\":\"private\"},"
        "\"from\":{\"id\":5},\"text\":\"x\"}}";

    open_bot(true);
    answer(200, "{'ok':true,'result':{'id':777,'username':'my_bot'}}");
    assert_str(buf_str(&last_call()->method), "setWebhook");
    assert_true(asks("\"url\":\"https://relay.example.org/webhooks/telegram/my_bot\"") &&
                asks("\"secret_token\":\"s3cret\""));
    answer(200, "{'ok':true,'result':true}");
    post(1, "wrong", update);
    post(2, NULL, update);
    assert_int_equal(w.http_status[1], 401);
    assert_int_equal(w.http_status[2], 401);
    assert_int_equal(w.n_events, 0);
    post(3, "s3cret", update);
    assert_int_equal(w.http_status[3], 0);
    accepted(0, BH_OK);
    assert_int_equal(w.http_status[3], 200);
    post(4, "s3cret", update);
    accepted(1, BH_BUSY);
    assert_int_equal(w.http_status[4], 503);
    post(5, "s3cret", "{\"update_id\":2,\"my_chat_member\":{}}");
    assert_int_equal(w.http_status[5], 200);
    post(6, "s3cret", "nonsense");
    assert_int_equal(w.http_status[6], 400);
}

static void a_webhook_taken_away_or_failing_is_noticed(void **state)
{
    open_bot(true);
    answer(200, "{'ok':true,'result':{'id':777,'username':'my_bot'}}");
    answer(200, "{'ok':true,'result':true}");
    pass(30000);
    assert_str(buf_str(&last_call()->method), "getWebhookInfo");
    answer(
        200,
        "{'ok':true,'result':{'url':'https://relay.example.org/webhooks/telegram/my_bot',"
        "'pending_update_count':3,'last_error_date':1700000020,'last_error_message':'SSL error'}}");
    assert_non_null(strstr(w.p->problem, "SSL error"));
    pass(300000);
    answer(
        200,
        "{'ok':true,'result':{'url':'https://relay.example.org/webhooks/telegram/my_bot',"
        "'pending_update_count':0,'last_error_date':1700000020,'last_error_message':'SSL error'}}");
    assert_null(w.p->problem);
    pass(300000);
    answer_call(last_call(), BH_UNAVAILABLE, 0, "no route");
    pass(60000);
    answer(200, "{'ok':true,'result':{'url':''}}");
    assert_str(buf_str(&last_call()->method), "setWebhook");
}

/* ---- sending ---- */

#define SENT(id) "{'ok':true,'result':{'message_id':" id "}}"

static void sends_of_one_chat_leave_one_after_the_other(void **state)
{
    reach_polling();
    act(0, ACTION_SEND, "5", "one", NULL);
    struct http_call *one = last_call();
    act(1, ACTION_SEND, "5", "two", NULL);
    act(2, ACTION_SEND, "6", "other", NULL);
    assert_int_equal(count_calls("sendMessage"), 2);
    assert_true(one->once && asks("\"chat_id\":6"));
    answer_call(one, BH_OK, 429, "{'ok':false,'error_code':429,'parameters':{'retry_after':3}}");
    pass(2900);
    assert_int_equal(count_calls("sendMessage"), 2);
    pass(200);
    pass(10);
    assert_int_equal(count_calls("sendMessage"), 3);
    assert_true(asks("one"));
    answer(200, SENT("70"));
    pass(10);
    assert_true(w.results[0].success);
    assert_str(buf_str(&w.results[0].id), "70");
    assert_true(asks("two"));
}

static void a_limit_longer_than_patience_is_waited_out_in_the_outbox(void **state)
{
    reach_polling();
    act(0, ACTION_SEND, "5", "one", NULL);
    answer(429, "{'ok':false,'error_code':429,'parameters':{'retry_after':40}}");
    act(1, ACTION_SEND, "5", "again", NULL);
    pass(26000);
    assert_int_equal(count_calls("sendMessage"), 1);
    assert_true(w.results[0].success && str_starts(buf_str(&w.results[0].id), STR("queued:")));
    assert_true(w.results[1].success && str_starts(buf_str(&w.results[1].id), STR("queued:")));
    pass(15000);
    assert_int_equal(count_calls("sendMessage"), 2);
    answer(200, SENT("71"));
    pass(2000);
    assert_int_equal(count_calls("sendMessage"), 3);
    answer(200, SENT("72"));
}

static void outcomes_have_the_words_the_gateway_acts_on(void **state)
{
    reach_polling();
    act(0, ACTION_SEND, "5", "x", NULL);
    answer_call(last_call(), BH_UNKNOWN, 0, "the line died");
    assert_true(str_starts(buf_str(&w.results[0].error), STR("timed out: ")));
    act(1, ACTION_SEND, "5", "x", NULL);
    answer(504, "<html>");
    assert_true(str_starts(buf_str(&w.results[1].error), STR("timed out: ")));
    act(2, ACTION_SEND, "5", "x", NULL);
    for (int i = 0; i < 3; i++) {
        answer(502, "<html>");
        pass(5000);
    }
    answer(200, SENT("71"));
    assert_true(w.results[2].success);
    act(3, ACTION_SEND, "5", "x", NULL);
    answer(403,
           "{'ok':false,'error_code':403,'description':'Forbidden: bot was blocked by the user'}");
    assert_true(str_contains(buf_str(&w.results[3].error), STR("has blocked this bot")));
    act(4, ACTION_SEND, "5", "x", NULL);
    answer(400, "{'ok':false,'error_code':400,'description':'odd: " TOKEN "'}");
    assert_str(buf_str(&w.results[4].error), "Telegram refused: odd: <token>");
    act(5, ACTION_SEND, "5", " \n ", NULL);
    assert_str(buf_str(&w.results[5].error), "the message is empty");
    act(6, ACTION_SEND, "nobody", "x", NULL);
    assert_str(buf_str(&w.results[6].error), "\"nobody\" is no Telegram chat");
    pass(2000); /* an edit leaves a second after a message */
    act(7, ACTION_EDIT, "5", "same", "70");
    answer(400,
           "{'ok':false,'error_code':400,'description':'Bad Request: message is not modified: x'}");
    assert_true(w.results[7].success);
}

static void refused_styles_are_left_out_once(void **state)
{
    reach_polling();
    act(0, ACTION_SEND, "5", "**x**", NULL);
    assert_true(asks("entities"));
    answer(
        400,
        "{'ok':false,'error_code':400,'description':'Bad Request: can\\u0027t parse entities: x'}");
    assert_false(asks("entities"));
    answer(
        400,
        "{'ok':false,'error_code':400,'description':'Bad Request: can\\u0027t parse entities: x'}");
    assert_false(w.results[0].success);
    assert_int_equal(count_calls("sendMessage"), 2);
}

/* ---- rich messages ---- */

#define REFUSED(code, why) "{'ok':false,'error_code':" #code ",'description':'" why "'}"
#define ODD REFUSED(400, "Bad Request: RICH_MESSAGE_INVALID")
#define NO_METHOD REFUSED(404, "Not Found: method not found")

static void reach_rich(void)
{
    w.rich = true;
    reach_polling();
}

static char *long_text(void) /* three messages; the caller frees it */
{
    struct buf text = BUF_INIT;

    for (int i = 0; i < 1000; i++)
        buf_printf(&text, "word%04d ", i);
    return buf_take(&text);
}

static void rich_text_leaves_as_it_is_in_one_message(void **state)
{
    char *text = long_text();
    struct action a = {.op = ACTION_SEND,
                       .chat_id = STR("-100"),
                       .content = STR("# T\n|a|b|\n|-|-|\n|**1**|$x$|"),
                       .reply_to = STR("9"),
                       .thread_id = STR("4")};

    reach_rich();
    telegram_ops.act(w.p, (struct action_id){.index = 0}, &(struct action_from){0}, &a);
    pass(0);
    pass(10);
    assert_str(buf_str(&last_call()->method), "sendRichMessage");
    assert_str(buf_str(&last_call()->body),
               "{\"chat_id\":-100,\"message_thread_id\":4,\"reply_parameters\":{\"message_id\":9,"
               "\"allow_sending_without_reply\":true},\"rich_message\":{\"markdown\":"
               "\"# T\\n|a|b|\\n|-|-|\\n|**1**|$x$|\"}}");
    assert_true(last_call()->once);
    answer(200, SENT("70"));
    assert_str(buf_str(&w.results[0].id), "70");
    act(1, ACTION_SEND, "5", text, NULL);
    assert_true(asks("word0000") && asks("word0999"));
    answer(200, SENT("71"));
    assert_true(w.results[1].success);
    pass(5000);
    assert_int_equal(count_calls("sendRichMessage"), 2);
    assert_int_equal(count_calls("sendMessage"), 0);
    free(text);
}

static void a_refused_rich_message_is_sent_in_parts_once(void **state)
{
    char *text = long_text();

    reach_rich();
    act(0, ACTION_SEND, "5", "**x**", NULL);
    answer(400, ODD);
    assert_str(buf_str(&last_call()->method), "sendMessage");
    assert_true(asks("\"text\":\"x\"") && asks("bold") && !asks("rich_message"));
    answer(200, SENT("70"));
    assert_true(w.results[0].success);
    act(1, ACTION_SEND, "6", text, NULL); /* the next one is rich again */
    assert_str(buf_str(&last_call()->method), "sendRichMessage");
    answer(400, ODD);
    for (int i = 0; i < 3; i++) {
        assert_str(buf_str(&last_call()->method), "sendMessage");
        answer(200, SENT("71"));
        pass(5000);
    }
    assert_true(w.results[1].success && w.results[1].n == 1);
    assert_int_equal(count_calls("sendMessage"), 4);
    act(2, ACTION_SEND, "7", "x", NULL);
    answer(400, ODD);
    answer(400, REFUSED(400, "Bad Request: chat not found"));
    assert_true(str_contains(buf_str(&w.results[2].error), STR("knows no such chat")));
    act(3, ACTION_SEND, "8", "x", NULL);
    answer(403, REFUSED(403, "Forbidden: bot was blocked by the user"));
    assert_true(str_contains(buf_str(&w.results[3].error), STR("has blocked this bot")));
    assert_int_equal(count_calls("sendRichMessage"), 4);
    assert_int_equal(count_calls("sendMessage"), 5);
    free(text);
}

static void an_older_server_is_asked_for_rich_messages_once(void **state)
{
    reach_rich();
    act(0, ACTION_SEND, "5", "one", NULL);
    act(1, ACTION_SEND, "6", "two", NULL); /* both are under way */
    assert_int_equal(count_calls("sendRichMessage"), 2);
    answer(404, NO_METHOD);
    assert_str(buf_str(&last_call()->method), "sendMessage");
    answer(200, SENT("70"));
    for (size_t i = 0; i < w.n_calls; i++)
        if (w.calls[i].done != NULL && str_eq(buf_str(&w.calls[i].method), STR("sendRichMessage")))
            answer_call(&w.calls[i], BH_OK, 404, NO_METHOD);
    answer(200, SENT("71"));
    assert_true(w.results[0].success && w.results[1].success);
    act(2, ACTION_SEND, "7", "three", NULL);
    answer(200, SENT("72"));
    assert_true(w.results[2].success);
    assert_int_equal(count_calls("sendRichMessage"), 2);
    assert_int_equal(count_calls("sendMessage"), 3);
}

static void rich_messages_wait_and_fail_like_others(void **state)
{
    reach_rich();
    act(0, ACTION_SEND, "5", "x", NULL);
    answer(429, "{'ok':false,'error_code':429,'parameters':{'retry_after':2}}");
    pass(2100);
    answer(502, "<html>");
    pass(5000);
    answer(200, SENT("70"));
    assert_true(w.results[0].success);
    assert_int_equal(count_calls("sendRichMessage"), 3);
    act(1, ACTION_SEND, "6", "x", NULL);
    answer_call(last_call(), BH_UNKNOWN, 0, "the line died");
    assert_true(str_starts(buf_str(&w.results[1].error), STR("timed out: ")));
    act(2, ACTION_SEND, "7", "maybe", NULL);
    platform_close(w.p);
    reach_polling();
    assert_int_equal(w.n_cut_off, 1);
    assert_int_equal(count_calls("sendRichMessage"), 5);
    assert_int_equal(count_calls("sendMessage"), 0);
}

static void edits_are_rich_and_captions_are_not(void **state)
{
    reach_rich();
    act(0, ACTION_EDIT, "5", "# new", "70");
    assert_str(buf_str(&last_call()->method), "editMessageText");
    assert_true(asks("\"rich_message\":{\"markdown\":\"# new\"}") && !asks("\"text\""));
    answer(200, SENT("70"));
    act(1, ACTION_EDIT, "6", "# new", "71");
    answer(400, REFUSED(400, "Bad Request: message is not modified: x"));
    assert_true(w.results[0].success && w.results[1].success);
    act(2, ACTION_EDIT, "7", "# new", "72");
    answer(400, REFUSED(400, "Bad Request: there is no text in the message to edit"));
    assert_str(buf_str(&last_call()->method), "editMessageCaption");
    assert_true(asks("\"caption\":\"new\"") && !asks("rich_message"));
    answer(200, SENT("72"));
    act(3, ACTION_EDIT, "8", "# new", "73"); /* an older server does not see rich_message */
    answer(400, REFUSED(400, "Bad Request: message text is empty"));
    assert_true(asks("\"text\":\"new\"") && !asks("rich_message"));
    answer(200, SENT("73"));
    assert_true(w.results[2].success && w.results[3].success);
}

static void a_long_text_that_fell_back_goes_on_in_parts_after_a_restart(void **state)
{
    char *text = long_text();

    reach_rich();
    act(0, ACTION_SEND, "5", text, NULL);
    answer(400, ODD);
    answer(200, SENT("70"));
    answer(429, "{'ok':false,'error_code':429,'parameters':{'retry_after':40}}");
    pass(100);
    platform_close(w.p);
    w.revives = true;
    open_bot(false);
    pass(60000);
    pass(10);
    struct http_call *next = NULL;
    for (size_t i = 0; i < w.n_calls; i++)
        if (w.calls[i].done != NULL && str_eq(buf_str(&w.calls[i].method), STR("sendMessage")))
            next = &w.calls[i];
    assert_non_null(next);
    assert_false(str_contains(buf_str(&next->body), STR("word0000")));
    assert_int_equal(count_calls("sendRichMessage"), 1);
    free(text);
}

static void what_was_under_way_when_we_stopped_is_unknown_once(void **state)
{
    reach_polling();
    act(0, ACTION_SEND, "5", "maybe", NULL);
    assert_int_equal(count_calls("sendMessage"), 1);
    platform_close(w.p);
    assert_true(str_starts(buf_str(&w.results[0].error), STR("timed out: ")));
    reach_polling();
    assert_int_equal(w.n_cut_off, 1); /* the heart answers with that when it is said again */
    act(2, ACTION_SEND, "5", "maybe", NULL);
    pass(100); /* after a crash the budget of the bot begins empty */
    answer(200, SENT("71"));
    assert_true(w.results[2].success);
    pass(100);
    platform_close(w.p);
    reach_polling();
    act(3, ACTION_SEND, "5", "maybe", NULL);
    pass(100);
    assert_str(buf_str(&last_call()->method), "sendMessage"); /* that one had its answer */
}

static void typing_is_not_repeated_every_moment(void **state)
{
    reach_polling();
    act(0, ACTION_TYPING, "5", NULL, NULL);
    answer(200, "{'ok':true,'result':true}");
    act(1, ACTION_TYPING, "5", NULL, NULL);
    assert_true(w.results[0].success && w.results[1].success);
    assert_int_equal(count_calls("sendChatAction"), 1);
    pass(4000);
    act(2, ACTION_TYPING, "5", NULL, NULL);
    assert_int_equal(count_calls("sendChatAction"), 2);
}

/* ---- questions ---- */

#define PRESS(id, data) \
    "{'update_id':" id ",'callback_query':{'id':'cb" id "','from':{'id':5,'first_name':'A'}," \
    "'chat_instance':'1','data':'" data "','message':{'message_id':70,'date':1,'chat':{'id':5," \
    "'type':'private'}}}}"
#define FINE "{'ok':true,'result':true}"

/* The newest call of @method that waits for its answer. */
static struct http_call *open_call(const char *method)
{
    for (size_t i = w.n_calls; i-- > 0;)
        if (w.calls[i].done != NULL && str_eq(buf_str(&w.calls[i].method), str_of(method)))
            return &w.calls[i];
    fail_msg("no %s", method);
    return NULL;
}

static bool said(const struct http_call *call, const char *part)
{
    return str_contains(buf_str(&call->body), str_of(part));
}

/* A question in chat 5, which is its message 70 by then. */
static void ask(const char *id, int64_t timeout_s)
{
    static const struct action_from from = {.tenant = STR("t"), .instance = STR("i")};
    struct json_parser *parser = json_parser_new();
    struct action a = {.op = ACTION_PROMPT,
                       .chat_id = STR("5"),
                       .content = STR("Well?"),
                       .prompt_id = str_of(id),
                       .timeout_s = timeout_s};

    assert_true(json_parse(parser,
                           STR("[{\"id\":\"yes\",\"label\":\"Yes\"},{\"id\":\"no\",\"label\":"
                               "\"No\"}]"),
                           &a.options));
    telegram_ops.act(w.p, (struct action_id){.index = 0}, &from, &a);
    json_parser_free(parser);
    pass(0);
    pass(10);
    assert_true(said(last_call(), "\"callback_data\":\"hp1:") && said(last_call(), "Yes"));
    answer(200, SENT("70"));
}

static void a_press_is_answered_when_it_is_safe_and_shown(void **state)
{
    reach_polling();
    w.lets_in = true;
    ask("q", 0);
    answer_call(open_call("getUpdates"), BH_OK, 200, UPDATES(PRESS("20", "hp1:q:no")));
    assert_int_equal(w.n_events, 1);
    assert_str(buf_str(&w.events[0].text), "/no");
    assert_int_equal(count_calls("answerCallbackQuery"), 0);
    accepted(0, BH_OK);
    assert_true(said(open_call("answerCallbackQuery"), "\"callback_query_id\":\"cb20\""));
    struct http_call *edit = open_call("editMessageReplyMarkup");
    assert_true(said(edit, "\"chat_id\":5") && said(edit, "\"message_id\":70"));
    assert_true(said(edit, "\xe2\x9c\x94 No") && !said(edit, "Yes"));
    answer_call(edit, BH_OK, 200, FINE);
    answer_call(open_call("getUpdates"), BH_OK, 200, UPDATES(PRESS("21", "hp1:q:yes")));
    assert_int_equal(w.n_events, 1); /* once */
    assert_true(said(open_call("answerCallbackQuery"), "answered already"));
    pass(3600 * 1000);
    assert_int_equal(count_calls("editMessageReplyMarkup"), 1);
}

static void a_rich_question_has_its_buttons(void **state)
{
    w.rich = true;
    reach_polling();
    ask("q", 0);
    assert_int_equal(count_calls("sendRichMessage"), 1);
    assert_int_equal(count_calls("sendMessage"), 0);
}

static void a_press_keeps_its_place_in_its_chat(void **state)
{
    reach_polling();
    w.lets_in = true;
    ask("q", 0);
    answer_call(open_call("getUpdates"), BH_OK, 200,
                UPDATES(UPDATE("20", "5", "before") "," PRESS("21", "hp1:q:no") "," UPDATE(
                    "22", "5", "after") "," UPDATE("23", "6", "elsewhere")));
    assert_int_equal(w.n_events, 2); /* the press stands behind "before" */
    assert_str(buf_str(&w.events[1].text), "elsewhere");
    accepted(0, BH_BUSY);
    accepted(1, BH_OK);
    pass(5000);
    assert_str(buf_str(&w.events[2].text), "before");
    assert_int_equal(w.n_events, 3);
    accepted(2, BH_OK);
    assert_str(buf_str(&w.events[3].text), "/no");
    assert_int_equal(w.n_events, 4);
    accepted(3, BH_UNAVAILABLE);
    pass(5000);
    assert_str(buf_str(&w.events[4].text), "/no");
    assert_int_equal(w.n_events, 5);
    accepted(4, BH_OK);
    assert_str(buf_str(&w.events[5].text), "after");
    accepted(5, BH_OK);
    assert_true(said(open_call("getUpdates"), "\"offset\":24"));
}

static void buttons_go_when_the_time_is_up_as_soon_as_telegram_lets_them(void **state)
{
    reach_polling();
    ask("q", 30);
    pass(29000);
    assert_int_equal(count_calls("editMessageReplyMarkup"), 0);
    pass(1000);
    assert_true(said(open_call("editMessageReplyMarkup"), "\"inline_keyboard\":[]"));
    answer_call(open_call("editMessageReplyMarkup"), BH_OK, 429,
                "{'ok':false,'error_code':429,'parameters':{'retry_after':20}}");
    pass(19900);
    assert_int_equal(count_calls("editMessageReplyMarkup"), 1);
    pass(200);
    assert_int_equal(count_calls("editMessageReplyMarkup"), 2);
    answer_call(open_call("editMessageReplyMarkup"), BH_UNAVAILABLE, 0, "no route");
    platform_close(w.p); /* and after a restart, too */
    pass(100);
    open_bot(false);
    pass(0);
    assert_int_equal(count_calls("editMessageReplyMarkup"), 3);
    answer_call(
        open_call("editMessageReplyMarkup"), BH_OK, 400,
        "{'ok':false,'error_code':400,'description':'Bad Request: message is not modified'}");
    pass(3600 * 1000);
    assert_int_equal(count_calls("editMessageReplyMarkup"), 3);
}

static void presses_that_do_not_count_are_answered_too(void **state)
{
    reach_polling();
    ask("q", 0);
    answer_call(open_call("getUpdates"), BH_OK, 200, UPDATES(PRESS("20", "hp1:q:no")));
    assert_true(said(open_call("answerCallbackQuery"), "not for you"));
    w.lets_in = true;
    answer_call(open_call("getUpdates"), BH_OK, 200, UPDATES(PRESS("21", "of somebody else")));
    assert_false(said(open_call("answerCallbackQuery"), "\"text\""));
    answer_call(open_call("getUpdates"), BH_OK, 200, UPDATES(PRESS("22", "hp1:other:no")));
    assert_true(said(open_call("answerCallbackQuery"), "time is up"));
    assert_int_equal(w.n_events, 0);
    assert_int_equal(count_calls("editMessageReplyMarkup"), 0);
}

/* ---- commands ---- */

static void commands_are_set_when_they_changed(void **state)
{
    static const char *const list =
        "[{\"name\":\"new-topic\",\"description\":\"Start over\"},{\"name\":\"new_topic\","
        "\"description\":\"the same here\"},{\"name\":\"help\",\"description\":\"What I can do\"}]";

    reach_polling();
    telegram_ops.set_commands(w.p, str_of(list));
    pass(60000);
    struct http_call *set = open_call("setMyCommands");
    assert_true(said(set, "\"new_topic\"") && said(set, "\"help\"") && !said(set, "the same"));
    answer_call(set, BH_OK, 500, "{'ok':false}");
    telegram_ops.set_commands(w.p, str_of(list)); /* announced anew, before it is tried again */
    pass(120000);
    assert_int_equal(count_calls("setMyCommands"), 2);
    answer_call(open_call("setMyCommands"), BH_OK, 200, FINE);
    telegram_ops.set_commands(w.p, str_of(list));
    pass(120000);
    assert_int_equal(count_calls("setMyCommands"), 2);
    platform_close(w.p);
    pass(100);
    open_bot(false);
    telegram_ops.set_commands(w.p, str_of(list)); /* Telegram has them */
    pass(120000);
    assert_int_equal(count_calls("setMyCommands"), 2);
    telegram_ops.set_commands(w.p, STR("[]"));
    pass(60000);
    assert_true(said(open_call("setMyCommands"), "\"commands\":[]"));
}

static void a_picked_command_comes_with_its_dashes(void **state)
{
    reach_polling();
    telegram_ops.set_commands(w.p,
                              STR("[{\"name\":\"new-topic\",\"description\":\"Start over\"}]"));
    pass(0);
    answer_call(open_call("getUpdates"), BH_OK, 200,
                UPDATES("{'update_id':30,'message':{'message_id':30,'chat':{'id':5,'type':"
                        "'private'},'from':{'id':5,'first_name':'A'},'text':'/new_topic now',"
                        "'entities':[{'type':'bot_command','offset':0,'length':10}]}}"));
    assert_str(buf_str(&w.events[0].text), "/new-topic now");
    accepted(0, BH_OK);
}

static void wrong_configuration_is_refused_with_a_reason(void **state)
{
    struct telegram_settings bad[] = {
        {.token = NULL},
        {.token = Z("1:a b")},
        {.token = Z("1:a"), .mode = Z("webhook")},
        {.token = Z("1:a"), .mode = Z("webhook"), .webhook_secret = Z("a b")},
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char why[256] = "";
        bad[i].base = (struct platform_settings){Z("telegram"), Z("b")};
        assert_false(telegram_config.check(&bad[i], why));
        assert_true(strlen(why) > 10);
    }
    char why[256] = "";
    struct telegram_settings far = {.base = {Z("telegram"), Z("b"), .api_base = Z("ftp://x")},
                                    .token = Z("1:a")};
    assert_false(platforms_config.entry->check(&far, why));
    assert_non_null(strstr(why, "https://"));
}

UNIT(platform_telegram_test_adapter)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(an_update_is_confirmed_only_when_it_is_accepted),
        T(a_busy_update_waits_and_holds_back_its_chat_only),
        T(a_full_mailbox_becomes_a_problem_in_the_end),
        T(updates_out_of_order_and_repeated_are_put_in_order),
        T(the_offset_survives_a_restart_but_not_a_week),
        T(somebody_else_polling_is_named_and_waited_out),
        T(a_revoked_token_is_named_and_tried_slowly),
        T(failures_are_tried_again_with_growing_patience),
        T(a_server_without_long_polling_is_not_stormed),
        T(telegram_hangs_up_before_another_process_may_ask),
        T(chats_go_by_their_own_route_else_by_the_bots),
        T(webhooks_are_answered_when_the_event_is_safe),
        T(a_webhook_taken_away_or_failing_is_noticed),
        T(sends_of_one_chat_leave_one_after_the_other),
        T(a_limit_longer_than_patience_is_waited_out_in_the_outbox),
        T(outcomes_have_the_words_the_gateway_acts_on),
        T(refused_styles_are_left_out_once),
        T(rich_text_leaves_as_it_is_in_one_message),
        T(a_refused_rich_message_is_sent_in_parts_once),
        T(an_older_server_is_asked_for_rich_messages_once),
        T(rich_messages_wait_and_fail_like_others),
        T(edits_are_rich_and_captions_are_not),
        T(a_long_text_that_fell_back_goes_on_in_parts_after_a_restart),
        T(a_rich_question_has_its_buttons),
        T(what_was_under_way_when_we_stopped_is_unknown_once),
        T(typing_is_not_repeated_every_moment),
        T(a_press_is_answered_when_it_is_safe_and_shown),
        T(a_press_keeps_its_place_in_its_chat),
        T(buttons_go_when_the_time_is_up_as_soon_as_telegram_lets_them),
        T(presses_that_do_not_count_are_answered_too),
        T(commands_are_set_when_they_changed),
        T(a_picked_command_comes_with_its_dashes),
        T(wrong_configuration_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
