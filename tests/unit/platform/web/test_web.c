/* Promises of the web platform (platform/web/web.h): pages, posts and answers. */
#include "platform/web/web_rig.h"

/* ---- pages ---- */

static void the_page_mints_a_visitor_and_allows_only_its_own_files(void **state)
{
    open_bot(10);
    uint32_t r = ask((struct http_req){.method = "GET", .path = "/chat"});
    const char *head = buf_z(&fake.reqs[r].headers);
    assert_int_equal(status_of(r), 200);
    assert_has(head, "Set-Cookie: bellhop_visitor=");
    assert_has(head, "HttpOnly; SameSite=Lax; Secure");
    assert_has(head, "Content-Security-Policy: default-src 'none'; script-src 'self'");
    assert_has(head, "text/html");
    assert_has(body_of(r), "The &lt;Lobby&gt;");
    assert_has_not(body_of(r), "{{");
    assert_has_not(body_of(r), "The <Lobby>");
    assert_has_not(body_of(r), "<script>");
}

static void a_visitor_who_returns_keeps_the_cookie(void **state)
{
    open_bot(10);
    uint32_t r = ask((struct http_req){.method = "GET",
                                       .path = "/chat/lobby",
                                       .cookie = "00000000000000000000000000000abc"});
    assert_has(buf_z(&fake.reqs[r].headers), "bellhop_visitor=00000000000000000000000000000abc;");
}

static void an_asset_is_sent_once_and_confirmed_after(void **state)
{
    open_bot(10);
    uint32_t r = ask((struct http_req){.method = "GET", .path = "/chat/assets/app.js"});
    char etag[64] = "";

    assert_int_equal(status_of(r), 200);
    assert_has(buf_z(&fake.reqs[r].headers), "text/javascript");
    assert_int_equal(sscanf(strstr(buf_z(&fake.reqs[r].headers), "ETag: "), "ETag: %60s", etag), 1);
    r = ask((struct http_req){.method = "GET",
                              .path = "/chat/assets/app.js",
                              .headers = {{"If-None-Match", etag}}});
    assert_int_equal(status_of(r), 304);
    assert_int_equal(fake.reqs[r].body.n, 0);
}

static void what_does_not_exist_is_not_found(void **state)
{
    static const char *const paths[] = {"/chat/elsewhere",
                                        "/chat/assets/../app.js",
                                        "/chat/assets/",
                                        "/chat/assets/index.html",
                                        "/chat/lobby/x",
                                        "/chat/lobby/api/nonsense",
                                        "/chat/elsewhere/api/history",
                                        "/chat/api/"};
    open_bot(10);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        assert_int_equal(status_of(ask((struct http_req){.method = "GET", .path = paths[i]})), 404);
}

/* ---- posting ---- */

static void a_message_is_confirmed_only_when_it_was_accepted(void **state)
{
    open_bot(10);
    uint32_t r = post(ADA, "{\"text\":\"hello\",\"client_id\":\"c1\",\"name\":\"Ada\"}");
    turn();
    assert_int_equal(status_of(r), 0);
    assert_string_equal(buf_z(&fake.events[0].text), "hello");
    assert_string_equal(buf_z(&fake.events[0].user_name), "Ada");
    accept_all(BH_OK);
    assert_int_equal(status_of(r), 200);
    assert_has(body_of(r), buf_z(&fake.events[0].message_id));
}

static void a_message_that_was_not_accepted_is_to_be_sent_again(void **state)
{
    open_bot(10);
    uint32_t r = post(ADA, "{\"text\":\"hello\"}");
    accept_all(BH_UNAVAILABLE);
    assert_int_equal(status_of(r), 503);
    assert_has(buf_z(&fake.reqs[r].headers), "Retry-After");
    assert_has(body_of(get(ADA, "history", NULL)), "\"messages\":[]");
}

static void the_token_shows_in_no_id(void **state)
{
    open_bot(10);
    post(ADA, "{\"text\":\"hello\",\"client_id\":\"c1\"}");
    assert_has_not(chat_of(0), "ada");
    assert_has_not(buf_z(&fake.events[0].event_id), "ada");
}

static void one_visitor_cannot_spend_the_client_ids_of_another(void **state)
{
    open_bot(10);
    post(ADA, "{\"text\":\"hello\",\"client_id\":\"c1\"}");
    post(BOB, "{\"text\":\"hello\",\"client_id\":\"c1\"}");
    post(ADA, "{\"text\":\"hello\",\"client_id\":\"c1\"}");
    assert_string_not_equal(buf_z(&fake.events[0].event_id), buf_z(&fake.events[1].event_id));
    assert_string_equal(buf_z(&fake.events[0].event_id), buf_z(&fake.events[2].event_id));
}

static void a_repeated_post_is_kept_once_and_gets_the_same_answer(void **state)
{
    open_bot(10);
    uint32_t a = say(ADA, "{\"text\":\"hello\",\"client_id\":\"c1\"}");
    uint32_t b = say(ADA, "{\"text\":\"hello\",\"client_id\":\"c1\"}");
    assert_int_equal(status_of(b), 200);
    assert_string_equal(body_of(a), body_of(b));
    assert_int_equal(count(body_of(get(ADA, "history", NULL)), "hello"), 1);
}

static void bad_posts_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *body;
        int status;
    } bad[] = {
        {"", 400},
        {"nonsense", 400},
        {"[]", 400},
        {"{}", 400},
        {"{\"text\":7}", 400},
        {"{\"text\":\" \\n \"}", 400},
        {"{\"text\":\"x\",\"client_id\":\"\"}", 400},
        {"{\"text\":\"x\",\"client_id\":\"a b\"}", 400},
        {"{\"text\":\"x\",\"name\":\"a\\nb\"}", 400},
        {"{\"text\":\"\xff\"}", 400},
    };
    open_bot(10);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(status_of(post(ADA, bad[i].body)), bad[i].status);

    struct buf big = BUF_INIT;
    buf_add_z(&big, "{\"text\":\"");
    for (int i = 0; i < 16385; i++)
        buf_add_c(&big, 'x');
    buf_add_z(&big, "\"}");
    assert_int_equal(status_of(post(ADA, buf_z(&big))), 413);
    buf_done(&big);
    assert_int_equal(fake.n_events, 0);
}

static void other_sites_cannot_post(void **state)
{
    struct http_req r = {.method = "POST",
                         .path = "/chat/lobby/api/message",
                         .body = "{\"text\":\"x\"}",
                         .cookie = "00000000000000000000000000000abc",
                         .headers = {JSON, {"Host", "localhost:7077"}}};
    open_bot(10);
    r.headers[2][0] = "Origin";
    r.headers[2][1] = "https://evil.example";
    assert_int_equal(status_of(ask(r)), 403);
    r.headers[2][1] = "null";
    assert_int_equal(status_of(ask(r)), 403);
    r.headers[2][1] = "https://localhost:7077.evil.example";
    assert_int_equal(status_of(ask(r)), 403);
    r.headers[2][1] = "http://localhost:7077";
    assert_int_equal(status_of(ask(r)), 0); /* under way */
    r.headers[2][1] = "https://chat.example.org";
    assert_int_equal(status_of(ask(r)), 0);
    r.headers[0][1] = "text/plain";
    assert_int_equal(status_of(ask(r)), 415);
    r.headers[0][1] = "application/json; charset=utf-8";
    assert_int_equal(status_of(ask(r)), 0);
    r.cookie = NULL;
    assert_int_equal(status_of(ask(r)), 401);
    accept_all(BH_OK);
}

static void a_person_who_writes_too_fast_is_asked_to_wait(void **state)
{
    struct http_req r = {.method = "POST",
                         .path = "/chat/api/message",
                         .body = "{\"text\":\"x\"}",
                         .cookie = "00000000000000000000000000000abc",
                         .headers = {JSON}};
    uint32_t last = 0;

    open_bot(0);
    for (int i = 0; i < 31; i++)
        last = ask(r);
    assert_int_equal(status_of(last), 429);
    later(2000);
    last = ask(r);
    accept_all(BH_OK);
    assert_int_equal(status_of(last), 200);
}

static void made_up_visitors_keep_nobody_from_writing(void **state)
{
    char id[VISITOR_CHAT_CHARS + 1];

    open_bot(0);
    struct web *w = container_of(web, struct web, base);
    for (int i = 0; i < 100000; i++) {
        snprintf(id, sizeof id, "%032d", i);
        (void)web_may_write_now(w, str_of(id), true);
    }
    assert_true(web_may_write_now(w, STR("0123456789abcdef0123456789abcdef"), true));
}

static void a_name_once_given_goes_with_every_message(void **state)
{
    open_bot(10);
    uint32_t r = ask((struct http_req){.method = "POST",
                                       .path = "/chat/lobby/api/name",
                                       .body = "{\"name\":\" Ada L. \"}",
                                       .headers = {JSON, {"X-Bellhop-Visitor", ADA}}});
    turn();
    assert_string_equal(body_of(r), "{\"name\":\"Ada L.\"}");
    close_bot();
    open_bot(10);
    say(ADA, "{\"text\":\"hello\"}");
    say(BOB, "{\"text\":\"hello\"}");
    assert_string_equal(buf_z(&fake.events[0].user_name), "Ada L.");
    assert_has(buf_z(&fake.events[1].user_name), "Visitor ");
    size_t i = act((struct action){.op = ACTION_GET_CHAT_INFO, .chat_id = str_of(chat_of(0))});
    assert_string_equal(buf_z(&fake.results[i].name), "Ada L.");
}

/* ---- answers ---- */

static void
an_answer_is_kept_before_success_and_reaches_every_page_of_that_visitor_only(void **state)
{
    open_bot(10);
    say(ADA, "{\"text\":\"hello\"}");
    uint32_t tab1 = get(ADA, "events", NULL), tab2 = get(ADA, "events", NULL);
    uint32_t other = get(BOB, "events", NULL);
    size_t i = send_text(chat_of(0), "**hi** <b>there</b>");
    assert_true(fake.results[i].success);
    assert_has(stream_of(tab1), "event: message\ndata: {");
    assert_has(stream_of(tab1), "**hi** <b>there</b>");
    assert_has(stream_of(tab2), "**hi** <b>there</b>");
    assert_has_not(stream_of(other), "there");
    assert_has(body_of(get(ADA, "history", NULL)), "**hi** <b>there</b>");
    assert_has_not(body_of(get(BOB, "history", NULL)), "there");
}

static void an_unknown_chat_is_a_permanent_error(void **state)
{
    open_bot(10);
    size_t i = send_text("00000000000000000000000000000000", "hi");
    assert_false(fake.results[i].success);
    assert_has_not(buf_z(&fake.results[i].error), "network");
    i = send_text("", "hi");
    assert_false(fake.results[i].success);
}

static void an_edit_replaces_the_text_everywhere(void **state)
{
    open_bot(10);
    say(ADA, "{\"text\":\"hello\"}");
    uint32_t tab = get(ADA, "events", NULL);
    size_t i = send_text(chat_of(0), "first");
    i = act((struct action){.op = ACTION_EDIT,
                            .chat_id = str_of(chat_of(0)),
                            .message_id = buf_str(&fake.results[i].message_id),
                            .content = STR("second")});
    assert_true(fake.results[i].success);
    assert_has(stream_of(tab), "event: edit");
    assert_has(stream_of(tab), "second");
    const char *body = body_of(get(ADA, "history", NULL));
    assert_has(body, "second");
    assert_has_not(body, "first");
}

static void only_messages_of_the_agent_can_be_edited(void **state)
{
    open_bot(10);
    say(ADA, "{\"text\":\"hello\"}");
    struct action a = {.op = ACTION_EDIT,
                       .chat_id = str_of(chat_of(0)),
                       .content = STR("gone"),
                       .message_id = buf_str(&fake.events[0].message_id)};
    assert_false(fake.results[act(a)].success);
    a.message_id = STR("00000000000000ff");
    assert_false(fake.results[act(a)].success);
    a.message_id = STR("nonsense");
    assert_false(fake.results[act(a)].success);
}

static void typing_is_shown_and_cleared(void **state)
{
    open_bot(10);
    say(ADA, "{\"text\":\"hello\"}");
    uint32_t tab = get(ADA, "events", NULL);
    struct action a = {.op = ACTION_TYPING, .chat_id = str_of(chat_of(0))};
    act(a);
    assert_has(stream_of(tab), "event: typing\ndata: {\"on\":true");
    a.content_set = true;
    a.content = STR("");
    act(a);
    assert_has(stream_of(tab), "{\"on\":false");
}

static void a_stop_goes_to_the_host_and_is_shown_as_an_interrupt(void **state)
{
    open_bot(10);
    uint32_t tab = get(ADA, "events", NULL);
    say(ADA, "{\"text\":\"/stop\"}");
    assert_string_equal(buf_z(&fake.events[0].text), "/stop");
    assert_has(stream_of(tab), "event: interrupt");
    assert_has(body_of(get(ADA, "history", NULL)), "\"kind\":\"stop\"");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
UNIT(platform_web_test_web)
{
    const struct CMUnitTest tests[] = {
        T(the_page_mints_a_visitor_and_allows_only_its_own_files),
        T(a_visitor_who_returns_keeps_the_cookie),
        T(an_asset_is_sent_once_and_confirmed_after),
        T(what_does_not_exist_is_not_found),
        T(a_message_is_confirmed_only_when_it_was_accepted),
        T(a_message_that_was_not_accepted_is_to_be_sent_again),
        T(the_token_shows_in_no_id),
        T(one_visitor_cannot_spend_the_client_ids_of_another),
        T(a_repeated_post_is_kept_once_and_gets_the_same_answer),
        T(bad_posts_are_refused_with_a_reason),
        T(other_sites_cannot_post),
        T(a_person_who_writes_too_fast_is_asked_to_wait),
        T(made_up_visitors_keep_nobody_from_writing),
        T(a_name_once_given_goes_with_every_message),
        T(an_answer_is_kept_before_success_and_reaches_every_page_of_that_visitor_only),
        T(an_unknown_chat_is_a_permanent_error),
        T(an_edit_replaces_the_text_everywhere),
        T(only_messages_of_the_agent_can_be_edited),
        T(typing_is_shown_and_cleared),
        T(a_stop_goes_to_the_host_and_is_shown_as_an_interrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
