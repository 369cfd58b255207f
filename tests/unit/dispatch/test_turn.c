/* Promises of dispatch/turn.h: when a turn ends, and what its answer is. */
#include "unit.h"
#include "base/limits.h"
#include "dispatch/turn.h"

enum { QUIET_MS = 3000 };

static int ends;
static int64_t now_ms;
static struct clock *clock;

static void on_ended(struct said_turn *t)
{
    ends++;
}

static void pass(int64_t ms)
{
    now_ms += ms;
    clock_set(clock, now_ms, now_ms);
    clock_turn(clock);
}

static int begin(void **state)
{
    static struct said_turn t;

    clock = clock_new();
    now_ms = 1000000;
    clock_set(clock, now_ms, now_ms);
    ends = 0;
    turn_init(&t, clock, QUIET_MS, on_ended);
    *state = &t;
    return 0;
}

static int end(void **state)
{
    turn_done(*state);
    clock_free(clock);
    return 0;
}

static void expect_text(const struct said_turn *t, const char *want)
{
    struct buf text = BUF_INIT;

    turn_write(t, &text);
    assert_str(buf_str(&text), want);
    buf_done(&text);
}

static void a_text_with_a_cursor_is_not_the_answer(void **state)
{
    struct said_turn *t = *state;

    turn_say(t, STR("1"), STR("word0 word1 \xe2\x96\x89"), false);
    pass(QUIET_MS + 1000);
    turn_busy(t);
    pass(QUIET_MS + 1000);
    assert_int_equal(ends, 0);
    turn_say(t, STR("2"), STR("and the rest"), false);
    pass(QUIET_MS);
    assert_int_equal(ends, 1);
    expect_text(t, "word0 word1\nand the rest");
    turn_edit(t, STR("2"), STR("and more \xe2\x96\x89"), false); /* its gateway dies */
    pass(TURN_OPEN_MS);
    assert_int_equal(ends, 2);
}

static void a_marked_message_ends_the_turn_at_once(void **state)
{
    struct said_turn *t = *state;

    turn_say(t, STR("1"), STR("hm"), false);
    pass(100);
    assert_int_equal(ends, 0);
    turn_say(t, STR("2"), STR("42"), true);
    pass(1);
    assert_int_equal(ends, 1);
    expect_text(t, "hm\n42");
}

static void without_a_mark_it_ends_when_nothing_is_said_edited_or_typed(void **state)
{
    struct said_turn *t = *state;

    turn_busy(t);
    pass(60000); /* thinking before the first word is no silence */
    turn_say(t, STR("1"), STR("a"), false);
    pass(QUIET_MS - 1);
    turn_busy(t);
    pass(QUIET_MS - 1);
    assert_true(turn_edit(t, STR("1"), STR("ab"), false));
    pass(QUIET_MS - 1);
    turn_say(t, STR("2"), STR("c"), false);
    pass(QUIET_MS - 1);
    assert_int_equal(ends, 0);
    pass(1);
    assert_int_equal(ends, 1);
    expect_text(t, "ab\nc");
}

static void an_edit_changes_its_own_message_only(void **state)
{
    struct said_turn *t = *state;

    turn_say(t, STR("1"), STR("a"), false);
    turn_say(t, STR("10"), STR("b"), false);
    assert_true(turn_edit(t, STR("1"), STR("A"), false));
    assert_false(turn_edit(t, STR("0"), STR("?"), false));
    assert_true(turn_edit(t, STR("10"), STR(""), false));
    expect_text(t, "A");
}

static void parts_of_a_long_final_text_are_one_answer(void **state)
{
    struct said_turn *t = *state;
    char part[TURN_PART_BYTES];

    memset(part, 'x', sizeof part);
    turn_say(t, STR("1"), str_make(part, sizeof part), true);
    pass(TURN_PART_MS - 1);
    assert_int_equal(ends, 0);
    turn_say(t, STR("2"), STR("end"), true);
    pass(1);
    assert_int_equal(ends, 1);
}

static void what_does_not_fit_is_left_out_and_noted(void **state)
{
    struct said_turn *t = *state;
    char *much = calloc(1, TURN_BYTES);

    memset(much, 'x', TURN_BYTES);
    turn_say(t, STR("1"), STR("a"), false);
    turn_say(t, STR("2"), str_make(much, TURN_BYTES), false);
    assert_true(t->cut);
    assert_true(turn_edit(t, STR("1"), str_make(much, TURN_BYTES), false));
    expect_text(t, "a");
    free(much);
}

static void texts_count_for_their_tenant_until_they_are_forgotten(void **state)
{
    struct said_turn *t = *state;
    struct limit_settings s = limit_defaults;
    char much[4096];

    memset(much, 'x', sizeof much);
    s.of[LIMIT_WORK_BYTES].each = 10000;
    struct ledger *l = ledger_new(&s);
    turn_charge(t, l, STR("acme"));
    for (int i = 0; i < 4; i++)
        turn_say(t, STR("1"), str_make(much, sizeof much), false);
    assert_true(t->refused && !t->cut);
    uint64_t held = ledger_held(l, NULL, LIMIT_WORK_BYTES);
    assert_true(held > 8192 && held <= 10000);
    turn_forget_texts(t);
    assert_true(ledger_held(l, NULL, LIMIT_WORK_BYTES) < 1000);
    assert_true(turn_edit(t, STR("1"), str_make(much, sizeof much), false));
    assert_true(ledger_held(l, NULL, LIMIT_WORK_BYTES) < 1000);
    expect_text(t, "");
    turn_done(t);
    assert_int_equal(ledger_held(l, NULL, LIMIT_WORK_BYTES), 0);
    ledger_free(l);
    turn_init(t, clock, QUIET_MS, on_ended); /* end() frees it */
}

UNIT(dispatch_test_turn)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_text_with_a_cursor_is_not_the_answer, begin, end),
        cmocka_unit_test_setup_teardown(a_marked_message_ends_the_turn_at_once, begin, end),
        cmocka_unit_test_setup_teardown(without_a_mark_it_ends_when_nothing_is_said_edited_or_typed,
                                        begin, end),
        cmocka_unit_test_setup_teardown(an_edit_changes_its_own_message_only, begin, end),
        cmocka_unit_test_setup_teardown(parts_of_a_long_final_text_are_one_answer, begin, end),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_left_out_and_noted, begin, end),
        cmocka_unit_test_setup_teardown(texts_count_for_their_tenant_until_they_are_forgotten,
                                        begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
