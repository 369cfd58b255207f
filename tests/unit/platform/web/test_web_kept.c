/* Promises of the web platform (platform/web/web.h): streams, history and how much is kept. */
#include "platform/web/web_rig.h"

/* ---- streams ---- */

static void last_id(const char *stream, char ret[32])
{
    const char *at = stream, *found = NULL;
    while ((at = strstr(at, "id: ")) != NULL)
        found = at++;
    assert_non_null(found);
    assert_int_equal(sscanf(found, "id: %30s", ret), 1);
}

static void a_page_that_reconnects_is_told_exactly_what_it_missed(void **state)
{
    char last[32];

    open_bot(10);
    say(ADA, "{\"text\":\"zero\"}");
    uint32_t tab = get(ADA, "events", NULL);
    size_t one = send_text(chat_of(0), "one");
    last_id(stream_of(tab), last);
    fake_client_gone(tab);
    send_text(chat_of(0), "two");
    act((struct action){.op = ACTION_EDIT,
                        .chat_id = str_of(chat_of(0)),
                        .message_id = buf_str(&fake.results[one].message_id),
                        .content = STR("one, better")});
    tab = get(ADA, "events", last);
    assert_has_not(stream_of(tab), "zero");
    assert_int_equal(count(stream_of(tab), "\"two\""), 1);
    assert_int_equal(count(stream_of(tab), "event: edit"), 1);
    assert_has(stream_of(tab), "one, better");
    last_id(stream_of(tab), last);
    fake_client_gone(tab);
    tab = get(ADA, "events", last);
    assert_has_not(stream_of(tab), "event: message");
}

static void an_agent_cannot_edit_what_the_person_wrote(void **state)
{
    char id[32];

    open_bot(10);
    say(ADA, "{\"text\":\"zero\"}");
    uint32_t tab = get(ADA, "events", "0000000000000001");
    last_id(stream_of(tab), id);
    for (int i = 0; i < 3; i++) {
        size_t n = act((struct action){.op = ACTION_EDIT,
                                       .chat_id = str_of(chat_of(0)),
                                       .message_id = str_of(id),
                                       .content = STR("not their words")});
        later(2000);
        assert_false(fake.results[n].success);
    }
    assert_has_not(stream_of(tab), "not their words");
    size_t one = send_text(chat_of(0), "one");
    for (int i = 0; i < 2; i++) {
        act((struct action){.op = ACTION_EDIT,
                            .chat_id = str_of(chat_of(0)),
                            .message_id = buf_str(&fake.results[one].message_id),
                            .content = i == 0 ? STR("one two") : STR("one two three")});
        later(100);
    }
    assert_has(stream_of(tab), "event: delta");
    assert_has(stream_of(tab), "three");
}

static void texts_that_stream_are_bounded(void **state)
{
    enum { CHARS = 16000, TEXTS = (8 << 20) / (4 * CHARS) }; /* half of the room, for one tenant */
    struct buf text = BUF_INIT;
    size_t n = 0;

    for (int i = 0; i < CHARS; i++)
        buf_add_z(&text, "\xf0\x9f\x98\x80");
    open_bot(10);
    say(ADA, "{\"text\":\"zero\"}");
    for (int i = 0; i <= (int)TEXTS; i++) {
        for (int of = 0; of < 2; of++) { /* a short text, then a longer one */
            n = act((struct action){.op = ACTION_DRAFT,
                                    .chat_id = str_of(chat_of(0)),
                                    .draft_id = i + 1,
                                    .content = of == 0 ? STR("x") : buf_str(&text)});
            fake.n_results = n; /* its place is used again */
        }
        assert_int_equal(fake.results[n].success, i < (int)TEXTS);
    }
    struct action_from other = {STR("another"), STR("two")}; /* has an eighth all the same */
    struct action a = {.op = ACTION_DRAFT,
                       .chat_id = str_of(chat_of(0)),
                       .content = buf_str(&text)};
    for (int i = 0; i <= (int)TEXTS / 4; i++) {
        a.draft_id = i + 1;
        web->ops->act(web, (struct action_id){.index = 77}, &other, &a);
        turn();
        assert_int_equal(fake.results[--fake.n_results].success, i < (int)TEXTS / 4);
    }
    later(60000); /* without a newer text they are over */
    n = act((struct action){.op = ACTION_DRAFT,
                            .chat_id = str_of(chat_of(0)),
                            .draft_id = 9999,
                            .content = buf_str(&text)});
    assert_true(fake.results[n].success);
    buf_done(&text);
}

static void a_final_draft_that_is_repeated_after_a_restart_is_the_same_message(void **state)
{
    struct action final = {.op = ACTION_DRAFT,
                           .draft_id = 7,
                           .content = STR("the whole answer"),
                           .final = true};

    open_bot(10);
    say(ADA, "{\"text\":\"zero\"}");
    final.chat_id = str_of(chat_of(0));
    size_t first = act(final);
    close_bot();
    store->boot++; /* as a restart does */
    open_bot(10);
    size_t again = act(final);
    assert_true(fake.results[first].success && fake.results[again].success);
    assert_true(fake.results[first].message_id.n > 0);
    assert_true(
        str_eq(buf_str(&fake.results[first].message_id), buf_str(&fake.results[again].message_id)));
    act((struct action){.op = ACTION_EDIT, /* is no repetition */
                        .chat_id = final.chat_id,
                        .message_id = buf_str(&fake.results[first].message_id),
                        .content = STR("the edited answer")});
    assert_int_equal(count(body_of(get(ADA, "history", NULL)), "answer"), 1);
    assert_has(body_of(get(ADA, "history", NULL)), "the edited answer");
    final.draft_id = 8;
    again = act(final);
    assert_false(
        str_eq(buf_str(&fake.results[first].message_id), buf_str(&fake.results[again].message_id)));
}

static void what_is_sent_while_a_page_catches_up_is_not_missed(void **state)
{
    open_bot(10);
    say(ADA, "{\"text\":\"zero\"}");
    struct action_from from = {STR("acme"), STR("one")};
    struct action a = {.op = ACTION_SEND, .chat_id = str_of(chat_of(0)), .content = STR("one")};
    uint32_t tab = ask((struct http_req){.method = "GET",
                                         .path = "/chat/lobby/api/events",
                                         .query = {{"last", "0000000000000001"}},
                                         .headers = {{"X-Bellhop-Visitor", ADA}}});
    web->ops->act(web, (struct action_id){.index = 99}, &from,
                  &a); /* the page's read is under way */
    turn();
    assert_int_equal(count(stream_of(tab), "\"zero\""), 1);
    assert_int_equal(count(stream_of(tab), "\"one\""), 1);
    send_text(chat_of(0), "two");
    assert_int_equal(count(stream_of(tab), "\"two\""), 1);
}

static void a_page_that_leaves_while_catching_up_is_forgotten(void **state)
{
    open_bot(10);
    say(ADA, "{\"text\":\"zero\"}");
    uint32_t tab = ask((struct http_req){.method = "GET",
                                         .path = "/chat/lobby/api/events",
                                         .query = {{"last", "0000000000000001"}},
                                         .headers = {{"X-Bellhop-Visitor", ADA}}});
    fake_client_gone(tab);
    turn();
    assert_has_not(stream_of(tab), "zero");
}

static void a_page_hears_the_state_at_once_and_when_it_changes(void **state)
{
    open_bot(10);
    fake.state = "asleep";
    uint32_t tab = get(ADA, "events", NULL);
    assert_has(stream_of(tab), "event: state\ndata: {\"state\":\"asleep\"}");
    web->ops->instance_changed(web, "live");
    assert_has(stream_of(tab), "{\"state\":\"live\"}");
}

static void a_silent_stream_has_a_heartbeat(void **state)
{
    open_bot(10);
    uint32_t tab = get(ADA, "events", NULL);
    later(15000);
    later(15000);
    assert_int_equal(count(stream_of(tab), ": still here\n\n"), 2);
}

static void a_fifth_page_lets_the_oldest_rest(void **state)
{
    uint32_t tabs[5];

    open_bot(10);
    for (int i = 0; i < 5; i++)
        tabs[i] = get(ADA, "events", NULL);
    assert_has(stream_of(tabs[0]), "event: rest");
    assert_true(fake.reqs[tabs[0]].ended);
    assert_false(fake.reqs[tabs[1]].ended);
}

/* ---- history ---- */

static void only_the_newest_messages_are_kept(void **state)
{
    char body[64];

    open_bot(3);
    for (int i = 0; i < 9; i++) {
        snprintf(body, sizeof body, "{\"text\":\"m%d\",\"client_id\":\"c%d\"}", i, i);
        say(ADA, body);
    }
    const char *all = body_of(get(ADA, "history", NULL));
    assert_has_not(all, "\"m5\"");
    assert_has(all, "\"m6\"");
    assert_has(all, "\"m7\"");
    assert_has(all, "\"m8\"");
    assert_true(strstr(all, "m6") < strstr(all, "m8"));
}

static void history_is_read_page_by_page(void **state)
{
    char body[64], before[32];

    open_bot(50);
    for (int i = 0; i < 5; i++) {
        snprintf(body, sizeof body, "{\"text\":\"m%d\"}", i);
        say(ADA, body);
    }
    uint32_t r = ask((struct http_req){.method = "GET",
                                       .path = "/chat/lobby/api/history",
                                       .query = {{"limit", "2"}},
                                       .headers = {{"X-Bellhop-Visitor", ADA}}});
    turn();
    assert_has(body_of(r), "\"more\":true");
    assert_has(body_of(r), "\"m3\"");
    assert_has_not(body_of(r), "\"m2\"");
    snprintf(before, sizeof before, "%s", buf_z(&fake.events[3].message_id));
    r = ask((struct http_req){.method = "GET",
                              .path = "/chat/lobby/api/history",
                              .query = {{"before", before}},
                              .headers = {{"X-Bellhop-Visitor", ADA}}});
    turn();
    assert_has(body_of(r), "\"more\":false");
    assert_has(body_of(r), "\"m0\"");
    assert_has(body_of(r), "\"m2\"");
    assert_has_not(body_of(r), "\"m3\"");
}

/* Several reads of 256 KiB, and the one message that the page has not seen is the oldest. */
static void a_long_history_is_looked_through_for_what_a_page_missed(void **state)
{
    static char text[12000];
    char last[32];

    open_bot(100);
    say(ADA, "{\"text\":\"first\"}");
    size_t first = send_text(chat_of(0), "to be edited");
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 60; i++)
        send_text(chat_of(0), text);
    uint32_t tab = get(ADA, "events", NULL);
    last_id(stream_of(tab), last);
    fake_client_gone(tab);
    act((struct action){.op = ACTION_EDIT,
                        .chat_id = str_of(chat_of(0)),
                        .message_id = buf_str(&fake.results[first].message_id),
                        .content = STR("edited since")});
    tab = get(ADA, "events", last);
    assert_int_equal(count(stream_of(tab), "event: edit"), 1);
    assert_has(stream_of(tab), "edited since");
    assert_has_not(stream_of(tab), "event: message");
    assert_has_not(stream_of(tab), "event: reset");
    assert_has(stream_of(tab), "event: state");
    tab = get(ADA, "events", "0000000000000001"); /* it has missed more than one sends it */
    assert_has(stream_of(tab), "event: reset");
    assert_has_not(stream_of(tab), "event: message");
}

static void a_visitor_reads_one_thing_at_a_time_and_not_too_many(void **state)
{
    uint32_t r[12], other;
    struct store_stats before, after;

    open_bot(10);
    say(ADA, "{\"text\":\"hello\"}");
    store->ops->stats(store, &before);
    for (int i = 0; i < 12; i++)
        r[i] = ask((struct http_req){.method = "GET",
                                     .path = "/chat/lobby/api/history",
                                     .headers = {{"X-Bellhop-Visitor", ADA}}});
    other = ask((struct http_req){.method = "GET",
                                  .path = "/chat/lobby/api/history",
                                  .headers = {{"X-Bellhop-Visitor", BOB}}});
    store->ops->stats(store, &after);
    assert_int_equal(after.queued - before.queued, 2); /* one of each visitor */
    assert_int_equal(status_of(r[9]), 429);
    assert_int_equal(status_of(r[11]), 429);
    turn();
    turn();
    for (int i = 0; i < 9; i++)
        assert_has(body_of(r[i]), "hello");
    assert_has(body_of(other), "\"messages\":[]");
}

static void pages_that_come_and_go_leave_no_reads_behind(void **state)
{
    struct store_stats before, after;

    open_bot(10);
    say(ADA, "{\"text\":\"hello\"}");
    store->ops->stats(store, &before);
    for (int i = 0; i < 40; i++)
        ask((struct http_req){.method = "GET",
                              .path = "/chat/lobby/api/events",
                              .query = {{"last", "0000000000000001"}},
                              .headers = {{"X-Bellhop-Visitor", ADA}}});
    turn();
    store->ops->stats(store, &after);
    assert_in_range(after.reads - before.reads, 1, 4); /* four pages are open at the end */
}

static void history_and_visitors_survive_a_restart(void **state)
{
    open_bot(10);
    say(ADA, "{\"text\":\"before\"}");
    close_bot();
    store->boot++;
    open_bot(10);
    say(ADA, "{\"text\":\"after\"}");
    assert_string_equal(chat_of(0), chat_of(1));
    assert_true(strcmp(buf_z(&fake.events[0].message_id), buf_z(&fake.events[1].message_id)) < 0);
    const char *all = body_of(get(ADA, "history", NULL));
    assert_true(strstr(all, "before") < strstr(all, "after"));
}

static void count_record(void *ctx, struct str key, struct str value)
{
    ++*(int *)ctx;
}

static void without_history_nothing_is_written_but_open_pages_are_served(void **state)
{
    int records = 0;

    open_bot(0);
    uint32_t tab = get(ADA, "events", NULL);
    uint32_t r = say(ADA, "{\"text\":\"hello\",\"client_id\":\"c1\"}");
    size_t i = send_text(chat_of(0), "hi");
    assert_int_equal(status_of(r), 200);
    assert_true(fake.results[i].success);
    assert_has(stream_of(tab), "\"hello\"");
    assert_has(stream_of(tab), "\"hi\"");
    assert_has(body_of(get(ADA, "history", NULL)), "\"messages\":[]");
    store->ops->load_records(store, "web", STR(""), count_record, &records);
    store->ops->load_records(store, "web_once", STR(""), count_record, &records);
    store->ops->load_records(store, "web_name", STR(""), count_record, &records);
    assert_int_equal(records, 0);
}

/* ---- how much is kept ---- */

static struct ledger *ledger;

static void bound(uint64_t each, uint64_t all)
{
    struct limit_settings s = limit_defaults;

    s.of[LIMIT_HISTORY_BYTES] = (struct limit_bounds){each, all};
    fake.env.ledger = ledger = ledger_new(&s);
}

static int count_records(void)
{
    int n = 0;

    store->ops->load_records(store, "web", STR(""), count_record, &n);
    store->ops->load_records(store, "web_once", STR(""), count_record, &n);
    return n;
}

/* Passes of the sweep, and what it waits between them. */
static void rest(int64_t ms)
{
    for (int64_t i = 0; i < ms; i += 500)
        later(500);
}

static void say_long(const char *who, int number, size_t n)
{
    static char body[20000];
    int at = snprintf(body, sizeof body, "{\"client_id\":\"c%d\",\"text\":\"m%d ", number, number);

    memset(body + at, 'x', n);
    strcpy(body + at + n, "\"}");
    say(who, body);
}

static void a_visitor_keeps_so_many_bytes(void **state)
{
    bound(40000, 0);
    open_bot(1000);
    for (int i = 0; i < 60; i++)
        say_long(ADA, i, 2000);
    int kept = count_records();
    assert_in_range(kept, 2 * 10, 2 * 22);
    assert_has(body_of(get(ADA, "history", NULL)), "m59 ");
    assert_has_not(body_of(get(ADA, "history", NULL)), "m20 ");
    assert_in_range(ledger_held(ledger, NULL, LIMIT_HISTORY_BYTES), 1, 60000);
    close_bot();
    ledger_free(ledger);
}

static void of_too_much_the_oldest_goes_whoever_wrote_it(void **state)
{
    char who[32];

    bound(0, 100000);
    open_bot(1000);
    rest(1000); /* the first pass: nothing is there */
    for (int i = 0; i < 120; i++) {
        snprintf(who, sizeof who, "a-made-up-visitor-%03d", i);
        say_long(who, i, 2000);
        later(1000);
    }
    assert_true(ledger_held(ledger, NULL, LIMIT_HISTORY_BYTES) <= 100000);
    assert_in_range(count_records(), 2 * 15, 2 * 50);
    assert_has(body_of(get("a-made-up-visitor-119", "history", NULL)), "m119 ");
    assert_has_not(body_of(get("a-made-up-visitor-000", "history", NULL)), "m0 ");
    rest(10000);
    assert_true(ledger_held(ledger, NULL, LIMIT_HISTORY_BYTES) <= 100000 / 8 * 7);
    close_bot();
    ledger_free(ledger);
}

static void when_there_is_no_room_messages_go_on_but_are_not_kept(void **state)
{
    bound(0, 10000);
    open_bot(1000);
    uint32_t tab = get(ADA, "events", NULL), r = 0;
    for (int i = 0; i < 9; i++)
        say_long(ADA, i, 2000);
    r = say(ADA, "{\"text\":\"the last one\"}");
    assert_int_equal(status_of(r), 200);
    assert_has(stream_of(tab), "the last one");
    assert_true(fake.results[send_text(chat_of(0), "an answer")].success);
    assert_has(stream_of(tab), "an answer");
    assert_in_range(count_records(), 0, 10);
    close_bot();
    ledger_free(ledger);
}

static void what_is_older_than_the_retention_goes(void **state)
{
    fake.env.retention_ms = 86400000;
    open_bot(50);
    say(ADA, "{\"text\":\"long ago\",\"client_id\":\"c1\"}");
    later(80000000);
    say(ADA, "{\"text\":\"of late\",\"client_id\":\"c2\"}");
    later(10000000);
    rest(5000);
    assert_has_not(body_of(get(ADA, "history", NULL)), "long ago");
    assert_has(body_of(get(ADA, "history", NULL)), "of late");
    assert_int_equal(count_records(), 2);
}

static void a_bot_nobody_is_routed_to_keeps_nothing(void **state)
{
    open_bot(50);
    fake.state = "none";
    uint32_t tab = get(ADA, "events", NULL);
    assert_int_equal(status_of(say(ADA, "{\"text\":\"anybody?\",\"client_id\":\"c1\"}")), 200);
    assert_has(stream_of(tab), "anybody?");
    assert_int_equal(count_records(), 0);
}

static void control_characters_are_left_out(void **state)
{
    open_bot(50);
    say(ADA, "{\"text\":\"a\\u0001\\u0000b\\tc\\nd\\u007f\"}");
    assert_string_equal(buf_z(&fake.events[0].text), "ab\tc\nd");
    assert_int_equal(status_of(post(ADA, "{\"text\":\"\\u0001\\u0002\"}")), 400);
}

static void closing_in_the_middle_is_safe(void **state)
{
    struct action_from from = {STR("acme"), STR("one")};
    struct action a = {.op = ACTION_SEND, .content = STR("one")};

    open_bot(10);
    say(ADA, "{\"text\":\"zero\"}");
    get(ADA, "events", NULL);
    post(ADA, "{\"text\":\"one\"}");
    a.chat_id = str_of(chat_of(0));
    web->ops->act(web, (struct action_id){.index = 99}, &from, &a);
    ask((struct http_req){.method = "GET",
                          .path = "/chat/lobby/api/events",
                          .query = {{"last", "0000000000000001"}},
                          .headers = {{"X-Bellhop-Visitor", ADA}}});
    size_t results = fake.n_results;
    close_bot();
    accept_all(BH_OK);
    assert_int_equal(fake.n_results, results);
}

static void what_the_store_still_has_when_everything_closes_is_freed(void **state)
{
    open_bot(50);
    say(ADA, "{\"text\":\"kept\"}");
    post(ADA, "{\"text\":\"not yet\"}");
    fake.events[1].done(fake.events[1].ctx, BH_OK); /* its write is under way */
    ask((struct http_req){.method = "GET",
                          .path = "/chat/lobby/api/history",
                          .headers = {{"X-Bellhop-Visitor", ADA}}});
    platform_close(web);
    web = NULL;
}

static void a_bot_name_that_is_no_address_is_refused(void **state)
{
    static const char *const bad[] = {"", "a/b", "assets", "api", "a b", "\xc3\xa4"};
    struct web_settings c = {.base.platform = (char *)"web"};
    struct platform *p;
    char why[256];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        c.base.bot = (char *)(uintptr_t)bad[i];
        assert_false(web_config.check(&c, why));
    }
    open_bot(10);
    assert_int_equal(platform_open(&web_ops, &cfg.base, NULL, &p, why), BH_REFUSED);
    assert_has(why, "two web bots");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
UNIT(platform_web_test_web_kept)
{
    const struct CMUnitTest tests[] = {
        T(a_page_that_reconnects_is_told_exactly_what_it_missed),
        T(an_agent_cannot_edit_what_the_person_wrote),
        T(texts_that_stream_are_bounded),
        T(a_final_draft_that_is_repeated_after_a_restart_is_the_same_message),
        T(what_is_sent_while_a_page_catches_up_is_not_missed),
        T(a_page_that_leaves_while_catching_up_is_forgotten),
        T(a_page_hears_the_state_at_once_and_when_it_changes),
        T(a_silent_stream_has_a_heartbeat),
        T(a_fifth_page_lets_the_oldest_rest),
        T(only_the_newest_messages_are_kept),
        T(history_is_read_page_by_page),
        T(a_long_history_is_looked_through_for_what_a_page_missed),
        T(a_visitor_reads_one_thing_at_a_time_and_not_too_many),
        T(pages_that_come_and_go_leave_no_reads_behind),
        T(history_and_visitors_survive_a_restart),
        T(without_history_nothing_is_written_but_open_pages_are_served),
        T(a_visitor_keeps_so_many_bytes),
        T(of_too_much_the_oldest_goes_whoever_wrote_it),
        T(when_there_is_no_room_messages_go_on_but_are_not_kept),
        T(what_is_older_than_the_retention_goes),
        T(a_bot_nobody_is_routed_to_keeps_nothing),
        T(control_characters_are_left_out),
        T(closing_in_the_middle_is_safe),
        T(what_the_store_still_has_when_everything_closes_is_freed),
        T(a_bot_name_that_is_no_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
