/* Promises of platform/discord/socket.h, on a fake wire and a clock turned by hand. */
#include "unit.h"
#include "base/mem.h"
#include "base/rand.h"
#include "platform/discord/socket.h"

static struct clock *c;
static struct rand r;
static struct dsocket *g;
static int64_t now;
static char url[300], sent[2000], seen[2000];
static bool socket_open;
static int opens, drops;
static bool grant;

static void note(const char *what)
{
    strncat(seen, what, sizeof seen - strlen(seen) - 1);
    strncat(seen, " ", sizeof seen - strlen(seen) - 1);
}

static void wire_open(void *ctx, struct dsocket *who, const char *to)
{
    assert_false(socket_open);
    socket_open = true;
    opens++;
    snprintf(url, sizeof url, "%s", to);
}

static void wire_send(void *ctx, struct dsocket *who, struct str text)
{
    assert_true(socket_open);
    assert_true(text.n + strlen(sent) < sizeof sent - 2);
    strncat(sent, text.p, text.n);
    strcat(sent, "\n");
}

static void wire_drop(void *ctx, struct dsocket *who)
{
    socket_open = false;
    drops++;
}

static void on_wants_identify(void *ctx, struct dsocket *who)
{
    note("wants");
    if (grant)
        dsocket_identify(who);
}

static void on_live(void *ctx, struct dsocket *who, struct json ready)
{
    note(ready.doc != NULL ? "ready" : "resumed");
}

static void on_dispatch(void *ctx, struct dsocket *who, struct str type, struct json d,
                        uint64_t seq)
{
    char text[64];

    snprintf(text, sizeof text, "%.*s/%llu", STR_FMT(type), (unsigned long long)seq);
    note(text);
}

static void on_lost(void *ctx, struct dsocket *who)
{
    note("lost");
}

static void on_stopped(void *ctx, struct dsocket *who, int code, const char *problem)
{
    assert_true(strlen(problem) > 20);
    note("stopped");
}

static void on_wants_shards(void *ctx, struct dsocket *who)
{
    note("shards");
}

static const struct dsocket_wire wire = {wire_open, wire_send, wire_drop};
static const struct dsocket_handlers handlers = {
    .wants_identify = on_wants_identify,
    .live = on_live,
    .dispatch = on_dispatch,
    .session_lost = on_lost,
    .stopped = on_stopped,
    .wants_shards = on_wants_shards,
};

static void pass(int64_t ms)
{
    now += ms;
    clock_set(c, now, now);
    clock_turn(c);
}

static void say(const char *text)
{
    dsocket_message(g, str_of(text));
}

static void clear(void)
{
    sent[0] = seen[0] = '\0';
}

static int setup(void **state)
{
    c = clock_new();
    now = 1000000;
    clock_set(c, now, now);
    r = rand_seeded(3);
    socket_open = false;
    opens = drops = 0;
    grant = true;
    clear();
    g = dsocket_new(&(struct dsocket_options){.clock = c,
                                              .rand = &r,
                                              .wire = &wire,
                                              .handlers = &handlers,
                                              .token = "tok",
                                              .url = "wss://gw.example/",
                                              .intents = 37377,
                                              .n_shards = 1});
    return 0;
}

static int teardown(void **state)
{
    dsocket_free(g);
    clock_free(c);
    return 0;
}

#define HELLO "{\"op\":10,\"d\":{\"heartbeat_interval\":10000}}"
#define READY \
    "{\"op\":0,\"t\":\"READY\",\"s\":1,\"d\":{\"session_id\":\"S1\",\"resume_gateway_url\":" \
    "\"wss://resume.example\",\"user\":{\"id\":\"9\"}}}"
#define RESUMED "{\"op\":0,\"t\":\"RESUMED\",\"s\":9,\"d\":{}}"
#define ACK "{\"op\":11}"

static void go_live(void)
{
    dsocket_start(g);
    pass(10);
    dsocket_opened(g);
    say(HELLO);
    say(READY);
    dsocket_confirm(g, 1);
    assert_int_equal(dsocket_state(g), DSOCKET_LIVE);
    clear();
}

/* The next attempt, whenever it is due within two minutes. */
static void until_connecting(void)
{
    for (int i = 0; i < 1200 && dsocket_state(g) != DSOCKET_CONNECTING; i++)
        pass(100);
    assert_int_equal(dsocket_state(g), DSOCKET_CONNECTING);
}

static void it_identifies_after_hello_with_token_intents_and_shard(void **state)
{
    dsocket_start(g);
    pass(10);
    assert_string_equal(url, "wss://gw.example/?v=10&encoding=json");
    dsocket_opened(g);
    assert_string_equal(sent, "");
    say(HELLO);
    assert_string_equal(sent, "{\"op\":2,\"d\":{\"token\":\"tok\",\"intents\":37377,\"properties\":"
                              "{\"os\":\"linux\",\"browser\":\"bellhop\",\"device\":\"bellhop\"},"
                              "\"shard\":[0,1]}}\n");
    say(READY);
    assert_string_equal(seen, "wants ready READY/1 ");
    assert_string_equal(dsocket_session(g).id, "S1");
}

static void no_session_is_started_before_it_is_granted(void **state)
{
    grant = false;
    dsocket_start(g);
    pass(60000);
    assert_int_equal(opens, 0);
    assert_int_equal(dsocket_state(g), DSOCKET_QUEUED);
    dsocket_identify(g);
    assert_int_equal(opens, 1);
}

static void the_first_heartbeat_comes_within_one_interval_then_one_per_interval(void **state)
{
    go_live();
    for (int i = 0; i < 100 && sent[0] == '\0'; i++)
        pass(100);
    assert_string_equal(sent, "{\"op\":1,\"d\":1}\n");
    say(ACK);
    clear();
    pass(9900);
    assert_string_equal(sent, "");
    pass(100);
    assert_string_equal(sent, "{\"op\":1,\"d\":1}\n");
}

static void heartbeats_name_what_is_confirmed_not_what_was_received(void **state)
{
    go_live();
    say("{\"op\":0,\"t\":\"MESSAGE_CREATE\",\"s\":2,\"d\":{}}");
    say("{\"op\":0,\"t\":\"MESSAGE_CREATE\",\"s\":3,\"d\":{}}");
    say("{\"op\":1,\"d\":null}");
    assert_string_equal(sent, "{\"op\":1,\"d\":1}\n");
    dsocket_confirm(g, 2);
    clear();
    say("{\"op\":1,\"d\":null}");
    assert_string_equal(sent, "{\"op\":1,\"d\":2}\n");
}

static void a_missing_acknowledgement_means_a_dead_socket_and_a_resume(void **state)
{
    go_live();
    for (int i = 0; i < 250; i++)
        pass(100);
    assert_true(drops >= 1);
    until_connecting();
    assert_string_equal(url, "wss://resume.example/?v=10&encoding=json");
    dsocket_opened(g);
    clear();
    say(HELLO);
    assert_string_equal(sent,
                        "{\"op\":6,\"d\":{\"token\":\"tok\",\"session_id\":\"S1\",\"seq\":1}}\n");
}

static void after_a_stall_of_our_own_the_beat_goes_first_and_nobody_is_declared_dead(void **state)
{
    go_live();
    for (int i = 0; i < 100 && sent[0] == '\0'; i++)
        pass(100);
    clear();
    now += 300000; /* we stood still; the acknowledgement lies unread behind the events */
    clock_set(c, now, now);
    say("{\"op\":0,\"t\":\"MESSAGE_CREATE\",\"s\":2,\"d\":{}}");
    assert_string_equal(sent, "{\"op\":1,\"d\":1}\n");
    assert_string_equal(seen, "MESSAGE_CREATE/2 ");
    say(ACK);
    clock_turn(c);
    assert_int_equal(drops, 0);
    assert_int_equal(dsocket_state(g), DSOCKET_LIVE);
    /* And when the timer comes first: a late timer proves nothing. */
    now += 300000;
    clock_set(c, now, now);
    clock_turn(c);
    now += 300000;
    clock_set(c, now, now);
    clock_turn(c);
    assert_int_equal(drops, 0);
}

static void a_resume_starts_at_what_is_confirmed(void **state)
{
    go_live();
    for (int s = 2; s <= 5; s++) {
        char text[80];
        snprintf(text, sizeof text, "{\"op\":0,\"t\":\"X\",\"s\":%d,\"d\":{}}", s);
        say(text);
    }
    dsocket_confirm(g, 3);
    say("{\"op\":7,\"d\":null}");
    until_connecting();
    dsocket_opened(g);
    clear();
    say(HELLO);
    assert_non_null(strstr(sent, "\"seq\":3"));
    say("{\"op\":0,\"t\":\"X\",\"s\":4,\"d\":{}}");
    say("{\"op\":0,\"t\":\"X\",\"s\":5,\"d\":{}}");
    assert_int_equal(dsocket_state(g), DSOCKET_RESUMING);
    say(RESUMED);
    assert_string_equal(seen, "X/4 X/5 resumed RESUMED/9 ");
    assert_int_equal(dsocket_state(g), DSOCKET_LIVE);
}

static void a_session_of_an_earlier_process_is_resumed(void **state)
{
    dsocket_set_session(g, STR("OLD"), STR("wss://old.example"), 77);
    dsocket_start(g);
    pass(10);
    assert_string_equal(url, "wss://old.example/?v=10&encoding=json");
    dsocket_opened(g);
    say(HELLO);
    assert_non_null(strstr(sent, "\"session_id\":\"OLD\",\"seq\":77"));
    assert_string_equal(seen, "");
}

static void an_invalid_session_is_given_up_after_a_random_wait(void **state)
{
    go_live();
    say("{\"op\":9,\"d\":false}");
    assert_string_equal(seen, "lost ");
    pass(999);
    assert_int_equal(dsocket_state(g), DSOCKET_WAITING);
    until_connecting();
    assert_string_equal(url, "wss://gw.example/?v=10&encoding=json");
    dsocket_opened(g);
    clear();
    say(HELLO);
    assert_non_null(strstr(sent, "\"op\":2"));
}

static void an_invalid_session_that_may_be_resumed_is(void **state)
{
    go_live();
    say("{\"op\":9,\"d\":true}");
    assert_string_equal(seen, "");
    until_connecting();
    dsocket_opened(g);
    clear();
    say(HELLO);
    assert_non_null(strstr(sent, "\"op\":6"));
}

static void close_codes_are_answered_as_discord_documents(void **state)
{
    static const struct {
        int code;
        const char *op; /* of the next attempt; NULL: there is none */
        const char *seen;
    } cases[] = {
        {1000, "\"op\":6", ""},      {1001, "\"op\":6", ""},   {1006, "\"op\":6", ""},
        {4000, "\"op\":6", ""},      {4001, "\"op\":6", ""},   {4002, "\"op\":6", ""},
        {4003, "\"op\":2", "lost "}, {4004, NULL, "stopped "}, {4005, "\"op\":6", ""},
        {4007, "\"op\":2", "lost "}, {4008, "\"op\":6", ""},   {4009, "\"op\":2", "lost "},
        {4010, NULL, "stopped "},    {4011, NULL, "shards "},  {4012, NULL, "stopped "},
        {4013, NULL, "stopped "},    {4014, NULL, "stopped "}, {4999, "\"op\":6", ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        teardown(state);
        setup(state);
        go_live();
        dsocket_closed(g, cases[i].code, "test");
        assert_string_equal(seen, cases[i].seen);
        if (cases[i].op == NULL) {
            pass(600000);
            assert_int_equal(dsocket_state(g), DSOCKET_STOPPED);
            assert_int_equal(opens, 1);
            continue;
        }
        until_connecting();
        dsocket_opened(g);
        clear();
        say(HELLO);
        assert_non_null(strstr(sent, cases[i].op));
    }
}

static void attempts_grow_apart_and_start_over_after_success(void **state)
{
    int64_t first = 0, tenth = 0;

    go_live();
    dsocket_closed(g, 1006, "gone");
    for (int i = 1; i <= 10; i++) {
        int64_t from = now;
        until_connecting();
        if (i == 1)
            first = now - from;
        tenth = now - from;
        dsocket_closed(g, 0, "refused");
    }
    assert_true(first <= 1600);
    assert_true(tenth >= 60000 && tenth <= 90100);
    until_connecting();
    dsocket_opened(g);
    say(HELLO);
    say(RESUMED);
    dsocket_closed(g, 1006, "gone");
    int64_t from = now;
    until_connecting();
    assert_true(now - from <= 1600);
}

static void a_resume_address_that_never_works_is_replaced_by_the_general_one(void **state)
{
    go_live();
    dsocket_closed(g, 1006, "gone");
    for (int i = 0; i < 4; i++) {
        until_connecting();
        dsocket_closed(g, 0, "refused");
    }
    until_connecting();
    assert_string_equal(url, "wss://gw.example/?v=10&encoding=json");
    dsocket_opened(g);
    clear();
    say(HELLO);
    assert_non_null(strstr(sent, "\"op\":6")); /* the session is still the old one */
}

static void silence_instead_of_hello_is_given_up(void **state)
{
    dsocket_start(g);
    pass(10);
    dsocket_opened(g);
    pass(20100);
    assert_int_equal(dsocket_state(g), DSOCKET_WAITING);
    assert_false(socket_open);
}

static void nonsense_ends_the_socket_and_never_more(void **state)
{
    static const char *const bad[] = {
        "",
        "x",
        "[]",
        "null",
        "{}",
        "{\"op\":\"1\"}",
        "{\"op\":10,\"d\":{}}",
        "\xff\xfe",
        "{\"op\":10,\"d\":{\"heartbeat_interval\":0}}",
        "{\"op\":0,\"t\":\"READY\",\"d\":{}}",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        teardown(state);
        setup(state);
        dsocket_start(g);
        pass(10);
        dsocket_opened(g);
        if (strstr(bad[i], "READY") != NULL)
            say(HELLO);
        say(bad[i]);
        assert_int_equal(dsocket_state(g), DSOCKET_WAITING);
        say(HELLO); /* too late, and harmless */
        until_connecting();
    }
}

static void unknown_opcodes_and_early_events_are_ignored(void **state)
{
    dsocket_start(g);
    pass(10);
    dsocket_opened(g);
    say(READY); /* before hello */
    say("{\"op\":99,\"d\":{}}");
    say(HELLO);
    say(READY);
    assert_int_equal(dsocket_state(g), DSOCKET_LIVE);
}

static void it_never_sends_faster_than_discord_allows(void **state)
{
    go_live();
    for (int i = 0; i < 500; i++) {
        sent[0] = '\0';
        say("{\"op\":1,\"d\":null}");
        if (i > 120)
            assert_string_equal(sent, "");
    }
}

static void a_replay_reconnects_and_resumes(void **state)
{
    go_live();
    say("{\"op\":0,\"t\":\"X\",\"s\":2,\"d\":{}}");
    dsocket_replay(g, 500);
    assert_false(socket_open);
    until_connecting();
    dsocket_opened(g);
    clear();
    say(HELLO);
    assert_non_null(strstr(sent, "\"seq\":1"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(platform_discord_test_socket)
{
    const struct CMUnitTest tests[] = {
        T(it_identifies_after_hello_with_token_intents_and_shard),
        T(no_session_is_started_before_it_is_granted),
        T(the_first_heartbeat_comes_within_one_interval_then_one_per_interval),
        T(heartbeats_name_what_is_confirmed_not_what_was_received),
        T(a_missing_acknowledgement_means_a_dead_socket_and_a_resume),
        T(after_a_stall_of_our_own_the_beat_goes_first_and_nobody_is_declared_dead),
        T(a_resume_starts_at_what_is_confirmed),
        T(a_session_of_an_earlier_process_is_resumed),
        T(an_invalid_session_is_given_up_after_a_random_wait),
        T(an_invalid_session_that_may_be_resumed_is),
        T(close_codes_are_answered_as_discord_documents),
        T(attempts_grow_apart_and_start_over_after_success),
        T(a_resume_address_that_never_works_is_replaced_by_the_general_one),
        T(silence_instead_of_hello_is_given_up),
        T(nonsense_ends_the_socket_and_never_more),
        T(unknown_opcodes_and_early_events_are_ignored),
        T(it_never_sends_faster_than_discord_allows),
        T(a_replay_reconnects_and_resumes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
