/* The promises of relay/session/pump.h: sent_ids. */
#include "unit.h"
#include "base/rand.h"
#include "relay/mailbox/mailbox.h"
#include "relay/session/pump.h"

enum { MANY = 20000 };

static struct mailbox mb;

static int up(void **state)
{
    (void)state;
    mailbox_init(&mb);
    for (uint64_t id = 1; id <= MANY; id++)
        mailbox_push(&mb, &(struct store_row){.id = id, .frame_bytes = 10});
    return 0;
}

static int down(void **state)
{
    (void)state;
    mailbox_done(&mb);
    return 0;
}

static void what_was_added_is_taken_once(void **state)
{
    struct sent_ids t = {0};

    (void)state;
    assert_int_equal(sent_ids_take(&t, 5), 0);
    sent_ids_add(&t, &mb, 5, 7);
    sent_ids_add(&t, &mb, 5, 7); /* on another socket */
    assert_int_equal(t.n, 1);
    assert_int_equal(sent_ids_take(&t, 6), 0);
    assert_int_equal(sent_ids_take(&t, 5), 7);
    assert_int_equal(sent_ids_take(&t, 5), 0);
    sent_ids_done(&t);
}

static void two_deliveries_of_one_name_are_taken_one_after_the_other(void **state)
{
    struct sent_ids t = {0};

    (void)state;
    sent_ids_add(&t, &mb, 5, 7);
    sent_ids_add(&t, &mb, 5, 9);
    uint64_t first = sent_ids_take(&t, 5), second = sent_ids_take(&t, 5);
    assert_int_equal(first + second, 16);
    assert_int_equal(sent_ids_take(&t, 5), 0);
    sent_ids_done(&t);
}

static void any_order_of_taking_finds_all(void **state)
{
    struct sent_ids t = {0};
    struct rand r = rand_seeded(3);
    static uint64_t tags[MANY + 1];

    (void)state;
    for (uint64_t id = 1; id <= MANY; id++) {
        tags[id] = rand_u64(&r) & ~(uint64_t)(id % 3 == 0 ? 0xffff : 0); /* long runs too */
        sent_ids_add(&t, &mb, tags[id], id);
    }
    for (uint64_t n = MANY; n > 0; n--) {
        uint64_t at = 1 + rand_below(&r, n);
        assert_int_not_equal(sent_ids_take(&t, tags[at]), 0);
        tags[at] = tags[n];
    }
    assert_int_equal(t.n, 0);
    sent_ids_done(&t);
}

static void what_was_settled_without_an_ack_takes_no_room_for_ever(void **state)
{
    struct sent_ids t = {0};

    (void)state;
    for (uint64_t id = 1; id <= MANY; id++) {
        sent_ids_add(&t, &mb, id * 977, id);
        mailbox_drop(&mb, mailbox_find(&mb, id));
    }
    assert_true(t.cap <= 64);
    sent_ids_done(&t);
}

UNIT(relay_test_sent_ids)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_added_is_taken_once, up, down),
        cmocka_unit_test_setup_teardown(two_deliveries_of_one_name_are_taken_one_after_the_other,
                                        up, down),
        cmocka_unit_test_setup_teardown(any_order_of_taking_finds_all, up, down),
        cmocka_unit_test_setup_teardown(what_was_settled_without_an_ack_takes_no_room_for_ever, up,
                                        down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
