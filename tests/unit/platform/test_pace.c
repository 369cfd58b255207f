/* The budget of a bot, on a clock of the test. */
#include "unit.h"
#include "platform/pace.h"

static const struct pace_rules rules = {.per_second = 20,
                                        .burst = 8,
                                        .gap_ms = 1100,
                                        .draft_gap_ms = 1000,
                                        .chat_burst = 8,
                                        .group_max = 19};
static struct clock *clock_;
static struct pace *p;
static int64_t now_ms;

static void pass(int64_t ms)
{
    now_ms += ms;
    clock_set(clock_, now_ms, now_ms);
}

static bool take(const char *chat, enum pace_class class)
{
    bool group = chat[0] == '-';

    if (pace_wait_ms(p, str_of(chat), group, class) > 0)
        return false;
    pace_count(p, str_of(chat), group, class);
    return true;
}

static int setup(void **state)
{
    clock_ = clock_new();
    now_ms = 1000;
    pass(0);
    p = pace_new(clock_, &rules);
    return 0;
}

static int teardown(void **state)
{
    pace_free(p);
    clock_free(clock_);
    return 0;
}

/* Hundreds of chats take whatever they get; a message of another chat always finds room. */
static void messages_find_room_while_everybody_streams(void **state)
{
    char chat[16];
    size_t edits = 0, sends = 0;
    int64_t times[64] = {0}; /* ring: when the last requests left */
    size_t at = 0;

    for (int ms = 0; ms < 60000; ms += 5) {
        for (int i = 0; i < 200; i++) {
            snprintf(chat, sizeof chat, "%d", (i + ms) % 200 + 1);
            if (!take(chat, PACE_EDIT))
                continue;
            edits++;
            times[at++ % 64] = now_ms;
        }
        if (ms % 1000 == 0) {
            snprintf(chat, sizeof chat, "%d", 1000 + ms);
            assert_true(take(chat, PACE_SEND));
            sends++;
            times[at++ % 64] = now_ms;
        }
        if (at > 30)
            assert_true(now_ms - times[(at - 31) % 64] >= 1000); /* 30 a second, in any second */
        pass(5);
    }
    assert_in_range(edits + sends, 19 * 60, 21 * 60);
}

static void unfinished_texts_of_a_chat_are_a_gap_apart(void **state)
{
    assert_true(take("5", PACE_SEND));
    assert_false(take("5", PACE_EDIT));
    pass(1100);
    assert_true(take("5", PACE_EDIT));
    pass(1000);
    assert_false(take("5", PACE_EDIT));
    assert_true(take("5", PACE_SEND)); /* a message does not wait */
    assert_true(take("5", PACE_FINAL));
    pass(1100);
    assert_false(take("5", PACE_EDIT)); /* but the burst is paid back */
}

static void a_group_has_a_limit_a_minute_with_room_for_messages(void **state)
{
    size_t edits = 0, sends = 0;

    for (int ms = 0; ms < 60000; ms += 100) {
        edits += take("-7", PACE_EDIT);
        pass(100);
    }
    assert_in_range(edits, 10, 13);
    for (int i = 0; i < 30; i++) {
        sends += take("-7", PACE_SEND);
        pass(100);
    }
    assert_in_range(sends, 5, 8);
    assert_true(edits + sends <= 20);
}

static void a_429_stops_and_widens_its_chat_alone(void **state)
{
    assert_true(take("5", PACE_EDIT));
    pace_hit(p, STR("5"), 3000);
    assert_true(take("6", PACE_EDIT));
    pass(2900);
    assert_false(take("5", PACE_SEND));
    pass(200);
    assert_true(take("5", PACE_EDIT));
    assert_true(take("6", PACE_EDIT));
    pass(1200);
    assert_false(take("5", PACE_EDIT)); /* twice the gap */
    assert_true(take("6", PACE_EDIT));
    pass(1100);
    assert_true(take("5", PACE_EDIT));
}

static void a_platform_that_takes_no_bursts_gets_none(void **state)
{
    const char *const chats[] = {"1", "2", "3"};

    for (int i = 0; i < 3; i++) {
        assert_true(take(chats[i], PACE_SEND));
        assert_true(take(chats[i], PACE_FINAL));
        pace_hit(p, str_of(chats[i]), 1000);
        pass(2000);
    }
    assert_true(take("4", PACE_SEND));
    assert_false(take("4", PACE_FINAL));
    pass(1100);
    assert_true(take("4", PACE_FINAL));
}

static void previews_have_a_gap_of_their_own(void **state)
{
    assert_true(take("5", PACE_DRAFT));
    assert_false(take("5", PACE_DRAFT));
    assert_true(take("5", PACE_SEND));
    pass(1000);
    assert_true(take("5", PACE_DRAFT));
}

static void a_chat_that_was_just_forgotten_begins_anew(void **state)
{
    assert_true(take("1", PACE_SEND));
    pass(61000); /* it is the oldest, and old enough to be forgotten */
    assert_true(take("1", PACE_SEND));
    pass(61000);
    pace_hit(p, STR("1"), 5000);
    assert_true(pace_wait_ms(p, STR("1"), false, PACE_SEND) > 4000);
}

/* A process died after it had sent all that it may: 8 messages in a chat, 28 in a second. */
static void nothing_is_sent_twice_as_fast_because_a_process_died(void **state)
{
    size_t sent = 0;

    for (int i = 0; i < 8; i++)
        assert_true(take("5", PACE_SEND));
    pace_free(p);
    p = pace_new(clock_, &rules);
    pace_spent(p);
    assert_false(take("6", PACE_SEND)); /* of the whole bot, nothing is left */
    pass(50);
    assert_true(take("5", PACE_SEND)); /* nobody waits for a first answer */
    pass(1000);
    assert_false(take("5", PACE_SEND));
    for (int i = 0; i < 50; i++)
        pace_hit(p, STR("5"), 1); /* of no burst of ours: the others keep theirs */
    pass(60000);
    for (int i = 0; i < 20; i++)
        sent += take("7", PACE_SEND);
    assert_int_equal(sent, 8);
}

UNIT(platform_test_pace)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_chat_that_was_just_forgotten_begins_anew),
        T(messages_find_room_while_everybody_streams),
        T(unfinished_texts_of_a_chat_are_a_gap_apart),
        T(a_group_has_a_limit_a_minute_with_room_for_messages),
        T(a_429_stops_and_widens_its_chat_alone),
        T(a_platform_that_takes_no_bursts_gets_none),
        T(previews_have_a_gap_of_their_own),
        T(nothing_is_sent_twice_as_fast_because_a_process_died),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
