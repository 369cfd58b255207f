/* Promises of platform/recent.h. */
#include "unit.h"
#include <stdio.h>
#include "base/clock.h"
#include "base/mem.h"
#include "platform/recent.h"

static struct clock *clock_now;
static struct recent *r;
static struct event_said out[EVENT_MAX_CONTEXT];
static int next_id;

static int setup(void **state)
{
    clock_now = clock_new();
    clock_set(clock_now, 1000, 1000);
    r = recent_new(clock_now, 3);
    next_id = 0;
    return 0;
}

static void advance(int64_t ms)
{
    clock_set(clock_now, clock_now_ms(clock_now) + ms, 1000);
}

static int teardown(void **state)
{
    recent_free(r);
    clock_free(clock_now);
    return 0;
}

static void says_as(const char *chat, const char *user, const char *text, const char *id,
                    bool to_us)
{
    struct event ev = {.text = str_of(text),
                       .message_id = str_of(id),
                       .user_id = str_of(user),
                       .user_name = str_of(user),
                       .mentions_bot = to_us};

    recent_note(r, str_of(chat), &ev);
}

static void says(const char *chat, const char *user, const char *text)
{
    char id[16];

    snprintf(id, sizeof id, "m%d", next_id++);
    says_as(chat, user, text, id, false);
}

static const char *before_of(const char *chat, const char *user, const char *id)
{
    static char all[256];
    struct event ev = {.user_id = str_of(user), .message_id = str_of(id)};
    size_t n = recent_before(r, str_of(chat), &ev, out), at = 0;

    all[0] = '\0';
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%.*s:%.*s ", STR_FMT(out[i].user_id),
                               STR_FMT(out[i].text));
    return all;
}

static void what_was_said_is_told_in_order_and_no_more_of_it_than_allowed(void **state)
{
    says("c", "ann", "1");
    says("c", "bob", "2");
    says("d", "bob", "elsewhere");
    assert_string_equal(before_of("c", "ann", "x"), "ann:1 bob:2 ");
    says("c", "ann", "3");
    says("c", "ann", "4");
    assert_string_equal(before_of("c", "ann", "x"), "bob:2 ann:3 ann:4 ");
    assert_string_equal(before_of("nowhere", "ann", "x"), "");
}

static void what_its_author_said_to_the_bot_is_known(void **state)
{
    says_as("c", "ann", "do this", "a", true);
    says_as("c", "bob", "do that", "b", true);
    assert_string_equal(before_of("c", "ann", "x"), "bob:do that ");
    assert_string_equal(before_of("c", "bob", "x"), "ann:do this ");
}

static void an_edit_changes_the_words_where_they_stand(void **state)
{
    says_as("c", "ann", "1", "a", false);
    says_as("c", "bob", "2", "b", false);
    says_as("c", "ann", "one", "a", false);
    assert_string_equal(before_of("c", "eve", "x"), "ann:one bob:2 ");
    assert_string_equal(before_of("c", "bob", "b"), "ann:one "); /* it came again */
}

static void nothing_outlives_its_time(void **state)
{
    says("c", "ann", "old");
    says("d", "ann", "old too");
    advance(RECENT_MS / 2);
    says("c", "ann", "new");
    advance(RECENT_MS / 2);
    assert_string_equal(before_of("c", "bob", "x"), "ann:new ");
    size_t bytes = recent_bytes(r);
    says("c", "bob", "x"); /* and the chat that nobody looks at goes as well */
    assert_true(recent_bytes(r) < 2 * bytes + 8);
    recent_retain(r, 1000);
    advance(1000);
    assert_string_equal(before_of("c", "eve", "x"), "");
    size_t empty = recent_bytes(r);
    recent_free(r);
    r = recent_new(clock_now, 3);
    says("c", "ann", "");
    assert_int_equal(recent_bytes(r), 0);
    recent_refill(r, STR("c"), STR("1"));
    assert_int_equal(recent_bytes(r), empty); /* the chat alone, without a word */
}

static void texts_are_bounded_by_their_bytes(void **state)
{
    char *text = xcalloc(1, EVENT_CONTEXT_BYTES + 2);

    memset(text, 'x', EVENT_CONTEXT_BYTES + 1);
    says("c", "ann", "short");
    says("c", "ann", text); /* too long for any context */
    assert_string_equal(before_of("c", "bob", "x"), "ann:short ");
    text[EVENT_CONTEXT_BYTES] = '\0';
    says("c", "ann", text);
    struct event ev = {.user_id = STR("bob"), .message_id = STR("x")};
    assert_int_equal(recent_before(r, STR("c"), &ev, out), 1);
    for (int i = 0; i < 4000; i++) {
        char chat[16];
        snprintf(chat, sizeof chat, "c%d", i);
        says(chat, "ann", text);
    }
    assert_true(recent_bytes(r) <= RECENT_TOTAL_BYTES);
    assert_int_equal(recent_before(r, STR("c3999"), &ev, out), 1);
    assert_int_equal(recent_before(r, STR("c"), &ev, out), 0);
    free(text);
}

static void a_person_can_be_forgotten(void **state)
{
    says("c", "ann", "1");
    says("c", "bob", "2");
    says("d", "ann", "3");
    recent_forget(r, STR("ann"));
    assert_string_equal(before_of("c", "eve", "x"), "bob:2 ");
    assert_string_equal(before_of("d", "eve", "x"), "");
    recent_forget(r, STR("bob"));
    assert_string_equal(before_of("c", "eve", "x"), "");
}

static void edits_and_deletions_reach_what_is_remembered(void **state)
{
    says_as("c", "ann", "wrogn", "1", false);
    says_as("c", "bob", "2", "2", false);
    recent_edit(r, STR("c"), STR("1"), STR("right"));
    recent_edit(r, STR("c"), STR("7"), STR("unknown"));
    recent_edit(r, STR("d"), STR("1"), STR("elsewhere"));
    assert_string_equal(before_of("c", "eve", "9"), "ann:right bob:2 ");
    recent_edit(r, STR("c"), STR("1"), STR_NULL);
    recent_edit(r, STR("c"), STR("1"), STR_NULL);
    assert_string_equal(before_of("c", "eve", "9"), "bob:2 ");
    recent_edit(r, STR("c"), STR("2"), STR(""));
    assert_string_equal(before_of("c", "eve", "9"), "");
}

static bool is_c(void *ctx, struct str chat)
{
    return str_eq(chat, STR("c"));
}

static void a_chat_reaches_back_after_a_refill_until_something_may_be_missing(void **state)
{
    says_as("c", "ann", "stale", "3", false);
    says_as("c", "ann", "so?", "10", false);
    assert_false(recent_reaches_back(r, STR("c")));
    recent_refill(r, STR("c"), STR("10")); /* the page comes newest first */
    says_as("c", "bob", "later", "11", false);
    says_as("c", "bob", "nine", "9", false);
    assert_true(recent_reaches_back(r, STR("c")));
    assert_string_equal(before_of("c", "eve", "10"), "bob:nine ");
    assert_string_equal(before_of("c", "eve", "12"), "bob:nine ann:so? bob:later ");
    says_as("c", "bob", "eight", "8", false); /* three are told */
    assert_string_equal(before_of("c", "eve", "12"), "bob:nine ann:so? bob:later ");
    assert_string_equal(before_of("c", "eve", "10"), "bob:eight bob:nine ");
    recent_refill(r, STR("d"), STR("1"));
    recent_gap(r, is_c, NULL);
    assert_false(recent_reaches_back(r, STR("c")));
    assert_true(recent_reaches_back(r, STR("d")));
    says_as("c", "bob", "thirteen", "13", false); /* what is before it was before the gap */
    says_as("c", "bob", "fourteen", "14", false);
    assert_false(recent_reaches_back(r, STR("c")));
    says_as("c", "bob", "fifteen", "15", false); /* enough: nobody is told more than three */
    assert_true(recent_reaches_back(r, STR("c")));
    assert_string_equal(before_of("c", "eve", "16"), "bob:thirteen bob:fourteen bob:fifteen ");
    advance(RECENT_MS);
    assert_false(recent_reaches_back(r, STR("c")));
    assert_false(recent_reaches_back(r, STR("nowhere")));
}

static void what_has_expired_does_not_count_and_what_is_left_may_be_enough(void **state)
{
    const char *ids[] = {"1", "2", "3", "4", "5"};

    says_as("c", "ann", "one", ids[0], false);
    advance(1000);
    for (size_t i = 1; i < 4; i++)
        says_as("c", "ann", "more", ids[i], false);
    advance(RECENT_MS - 1000); /* the first expires; three are enough */
    assert_true(recent_reaches_back(r, STR("c")));
    advance(1000);
    assert_false(recent_reaches_back(r, STR("c")));
    says_as("c", "ann", "five", ids[4], false); /* the messages before it have expired */
    assert_false(recent_reaches_back(r, STR("c")));
}

UNIT(platform_test_recent)
{
    const struct CMUnitTest tests[] = {
#define PROMISE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        PROMISE(what_was_said_is_told_in_order_and_no_more_of_it_than_allowed),
        PROMISE(what_its_author_said_to_the_bot_is_known),
        PROMISE(an_edit_changes_the_words_where_they_stand),
        PROMISE(nothing_outlives_its_time),
        PROMISE(texts_are_bounded_by_their_bytes),
        PROMISE(a_person_can_be_forgotten),
        PROMISE(edits_and_deletions_reach_what_is_remembered),
        PROMISE(a_chat_reaches_back_after_a_refill_until_something_may_be_missing),
        PROMISE(what_has_expired_does_not_count_and_what_is_left_may_be_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
