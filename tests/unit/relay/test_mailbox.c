/* Promises of relay/mailbox/mailbox.h, relay/session/pump.h, relay/in/dedup.h and
 * relay/session/session.h: the small parts. */
#include "unit.h"
#include "base/buf.h"
#include "relay/in/dedup.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "relay/mailbox/mailbox.h"

static struct slot *push(struct mailbox *mb, uint64_t id, size_t bytes, int64_t at_s)
{
    const struct store_row row = {.id = id, .frame_bytes = bytes, .at_ms = at_s * 1000};

    return mailbox_push(mb, &row);
}

static void a_slot_costs_24_bytes(void **state)
{
    assert_int_equal(sizeof(struct slot), 24);
}

static void what_is_pushed_is_found_until_it_is_dropped(void **state)
{
    struct mailbox mb;
    mailbox_init(&mb);
    for (uint64_t id = 1; id <= 1000; id++)
        push(&mb, id * 3, 100, 7);
    assert_int_equal(mailbox_entries(&mb), 1000);
    assert_int_equal(mailbox_find(&mb, 300)->id, 300);
    assert_null(mailbox_find(&mb, 301));
    mailbox_drop(&mb, mailbox_find(&mb, 300));
    assert_null(mailbox_find(&mb, 300));
    assert_int_equal(mailbox_entries(&mb), 999);
    assert_int_equal(mailbox_bytes(&mb), 999 * 112);
    mailbox_done(&mb);
}

static void seek_finds_the_first_id_above(void **state)
{
    struct mailbox mb;
    mailbox_init(&mb);
    assert_int_equal(mailbox_seek(&mb, 5), 0);
    for (uint64_t id = 10; id <= 100; id += 10)
        push(&mb, id, 1, 0);
    assert_int_equal(mailbox_seek(&mb, 0), 0);
    assert_int_equal(mailbox_at(&mb, mailbox_seek(&mb, 10))->id, 20);
    assert_int_equal(mailbox_at(&mb, mailbox_seek(&mb, 55))->id, 60);
    assert_int_equal(mailbox_seek(&mb, 100), mb.n);
    mailbox_done(&mb);
}

static void a_parked_head_does_not_make_the_ring_grow_with_the_traffic(void **state)
{
    struct mailbox mb;
    mailbox_init(&mb);
    mailbox_park(&mb, push(&mb, 1, 1, 0), true);
    for (uint64_t id = 2; id < 100000; id++) {
        mailbox_drop(&mb, push(&mb, id, 1, 0));
        push(&mb, ++id, 1, 0);
        mailbox_drop(&mb, mailbox_find(&mb, id));
        mailbox_tidy(&mb);
    }
    assert_int_equal(mailbox_entries(&mb), 1);
    assert_int_equal(mailbox_waiting(&mb), 0);
    assert_true(mb.cap <= 128);
    mailbox_done(&mb);
}

static void an_empty_mailbox_gives_its_memory_back(void **state)
{
    struct mailbox mb;
    mailbox_init(&mb);
    for (uint64_t id = 1; id <= 1000; id++)
        push(&mb, id, 1, 0);
    for (uint64_t id = 1; id <= 1000; id++)
        mailbox_drop(&mb, mailbox_find(&mb, id));
    mailbox_tidy(&mb);
    assert_null(mb.ring);
    mailbox_done(&mb);
}

static void rows_loaded_out_of_order_are_sorted(void **state)
{
    static const uint64_t ids[] = {5, 3, 9, 1};
    struct mailbox mb;
    mailbox_init(&mb);
    for (size_t i = 0; i < 4; i++)
        push(&mb, ids[i], 1, 0);
    mailbox_sort(&mb);
    for (uint32_t i = 1; i < mb.n; i++)
        assert_true(mailbox_at(&mb, i - 1)->id < mailbox_at(&mb, i)->id);
    mailbox_done(&mb);
}

static void a_message_leaves_the_window_with_its_last_delivery(void **state)
{
    struct flight *f = NULL;
    flight_add(&f, 1, 3, 3);
    flight_add(&f, 4, 4, 1);
    assert_false(flight_forget(f, 2));
    assert_false(flight_forget(f, 1));
    assert_int_equal(flight_count(f), 2);
    assert_true(flight_forget(f, 4));
    assert_true(flight_forget(f, 3));
    assert_int_equal(flight_count(f), 0);
    assert_false(flight_forget(f, 9));
    free(f);
}

static struct hash128 key_of(uint64_t bot, uint64_t k)
{
    return (struct hash128){k * 2654435761u, bot << 54 | k};
}

static void a_flood_into_one_bot_pushes_nothing_out_of_another(void **state)
{
    struct dedup d;
    dedup_init(&d);
    for (uint64_t k = 0; k < 30; k++)
        dedup_add(&d, key_of(7, k), 1000, 100);
    for (uint64_t k = 0; k < 5000; k++)
        dedup_add(&d, key_of(9, k), 2000, 100);
    for (uint64_t k = 0; k < 30; k++)
        assert_true(dedup_has(&d, key_of(7, k)));
    assert_false(dedup_has(&d, key_of(9, 4929)));
    assert_true(dedup_has(&d, key_of(9, 4930))); /* its own newest 70 */
    assert_int_equal(d.n, 100);
    dedup_expire(&d, 1500);
    assert_false(dedup_has(&d, key_of(7, 0)));
    assert_int_equal(d.n, 70);
    dedup_expire(&d, 9000);
    assert_int_equal(d.n, 0);
    assert_null(d.rings);
    dedup_done(&d);
}

static void the_oldest_key_goes_when_there_are_too_many(void **state)
{
    struct dedup d;
    dedup_init(&d);
    for (uint64_t k = 0; k < 500; k++)
        dedup_add(&d, (struct hash128){k * 2654435761u, k}, (int64_t)k * 1000, 100);
    for (uint64_t k = 0; k < 500; k++)
        assert_int_equal(dedup_has(&d, (struct hash128){k * 2654435761u, k}), k >= 400);
    dedup_done(&d);
}

static void keys_that_collide_are_told_apart_and_survive_removals(void **state)
{
    struct dedup d;
    dedup_init(&d);
    for (uint64_t k = 0; k < 40; k++)
        dedup_add(&d, (struct hash128){7, k}, 0, 1000); /* one home slot for all */
    for (uint64_t k = 0; k < 40; k += 3)
        dedup_remove(&d, (struct hash128){7, k});
    for (uint64_t k = 0; k < 40; k++)
        assert_int_equal(dedup_has(&d, (struct hash128){7, k}), k % 3 != 0);
    dedup_add(&d, (struct hash128){7, 0}, 0, 1000);
    assert_true(dedup_has(&d, (struct hash128){7, 0}));
    dedup_done(&d);
}

static void old_keys_expire(void **state)
{
    struct dedup d;
    dedup_init(&d);
    dedup_add(&d, (struct hash128){1, 1}, 1000, 10);
    dedup_add(&d, (struct hash128){2, 2}, 9000, 10);
    dedup_expire(&d, 5000);
    assert_false(dedup_has(&d, (struct hash128){1, 1}));
    assert_true(dedup_has(&d, (struct hash128){2, 2}));
    dedup_expire(&d, 50000);
    assert_null(d.rings);
    dedup_done(&d);
}

static void a_key_tells_when_it_came_for_months(void **state)
{
    const int64_t then = INT64_C(1790000000123), day = 86400000;
    struct dedup d;

    dedup_init(&d);
    for (uint64_t k = 0; k < 170; k++) /* ticks wrap once in this time or not at all */
        dedup_add(&d, key_of(7, k), then + (int64_t)k * day, 1000);
    for (uint64_t k = 0; k < 170; k++)
        assert_int_equal(dedup_at(&d, key_of(7, k)),
                         (then + (int64_t)k * day) / DEDUP_TICK_MS * DEDUP_TICK_MS);
    assert_int_equal(dedup_at(&d, key_of(7, 170)), 0);
    for (uint64_t k = 0; k < 100; k++)
        dedup_remove(&d, key_of(7, k));
    for (uint64_t k = 1000; k < 1100;
         k++) /* the table grows, and the removed ones are not counted */
        dedup_add(&d, key_of(7, k), then + 170 * day, 1000);
    assert_int_equal(d.n, 170);
    dedup_expire(&d, then + 120 * day - 1000);
    assert_int_equal(d.n, 150);
    dedup_done(&d);
}

UNIT(relay_test_mailbox)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_costs_24_bytes),
        cmocka_unit_test(what_is_pushed_is_found_until_it_is_dropped),
        cmocka_unit_test(seek_finds_the_first_id_above),
        cmocka_unit_test(a_parked_head_does_not_make_the_ring_grow_with_the_traffic),
        cmocka_unit_test(an_empty_mailbox_gives_its_memory_back),
        cmocka_unit_test(rows_loaded_out_of_order_are_sorted),
        cmocka_unit_test(a_message_leaves_the_window_with_its_last_delivery),
        cmocka_unit_test(the_oldest_key_goes_when_there_are_too_many),
        cmocka_unit_test(keys_that_collide_are_told_apart_and_survive_removals),
        cmocka_unit_test(old_keys_expire),
        cmocka_unit_test(a_key_tells_when_it_came_for_months),
        cmocka_unit_test(a_flood_into_one_bot_pushes_nothing_out_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
