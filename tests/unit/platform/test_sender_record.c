/* Promises of platform/sender.h and platform/outgoing_log.h: what a crash or a stop finds. */
#include "platform/sender_rig.h"

/* ---- the record ---- */

static void the_record_is_on_disk_before_anything_leaves_and_goes_with_the_answer(void **state)
{
    say(0, "a", "one");
    wait_for(w.results[0].success);
    assert_int_equal(w.records_when_heard, 1);
    wait_for(n_records("outgoing") == 0);
}

static void typing_and_lookups_leave_no_record(void **state)
{
    struct action_from from = {STR("acme"), STR("bot1"), STR("r")};
    const enum action_op ops[] = {ACTION_TYPING, ACTION_GET_CHAT_INFO};

    for (uint32_t i = 0; i < ARRAY_LEN(ops); i++) {
        struct action a = {.op = ops[i], .chat_id = STR("a")};
        w.n_heard = 0;
        sender_act(w.sender, &note_new("a", "one")->out,
                   &(struct sender_order){.id = {.index = i}, .from = &from, .action = &a});
        wait_for(w.results[i].success);
        assert_int_equal(w.records_when_heard, 0);
    }
}

static void a_send_costs_two_store_operations(void **state)
{
    struct store_stats before, after;

    w.store->ops->stats(w.store, &before);
    act(0, three_parts("a"), 0);
    wait_for(w.results[0].success);
    pass(50);
    w.store->ops->stats(w.store, &after);
    assert_int_equal(after.ops - before.ops, 2);
    assert_int_equal(w.n_heard, 3);
}

static void copy_file(const char *from, const char *to)
{
    char command[256];

    snprintf(command, sizeof command, "cd %s && cp %s %s", w.dir, from, to);
    assert_int_equal(system(command), 0);
}

/* The disk as a crash would leave it: a copy taken while the request is under way. */
static void what_a_crash_cut_off_is_reported_and_not_done_blindly(void **state)
{
    when(0, "maybe", 0, 1);
    say(3, "a", "maybe");
    wait_for(w.n_held == 1);
    copy_file("db", "crashed");
    copy_file("db-wal", "crashed-wal");
    answer_held(0, 200);
    wait_for(w.results[3].success);
    close_all();
    open_store("crashed");
    open_sender();
    assert_string_equal(
        buf_z(&w.cut_off),
        "acme/bot1/r3 timed out: bellhop restarted while this was being sent; it may have "
        "been delivered\n");
    struct sender_stats n;
    sender_stats(w.sender, &n);
    assert_int_equal(n.cut_off, 1);
    say(4, "a", "maybe");
    say(5, "a", "another");
    wait_for(w.results[4].n == 1 && w.results[5].n == 1);
    assert_true(error_is(4, "timed out: "));
    assert_true(w.results[5].success);
    say(6, "a", "maybe");
    wait_for(w.results[6].success);
    assert_string_equal(buf_z(&w.heard), "maybe another maybe ");
    wait_for(n_records("outgoing") == 0);
}

static void what_was_found_is_found_again_until_it_is_forgotten(void **state)
{
    when(0, "maybe", 0, 1);
    say(0, "a", "maybe");
    wait_for(w.n_held == 1);
    reopen();
    buf_reset(&w.cut_off);
    reopen(); /* nobody asked for it again in between */
    assert_true(str_starts(buf_str(&w.cut_off), STR("acme/bot1/r0 timed out: ")));
    say(1, "a", "maybe");
    wait_for(w.results[1].n == 1);
    assert_true(error_is(1, "timed out: "));
}

static void stopping_tells_what_left_from_what_did_not(void **state)
{
    when(0, "left", 0, 1);
    say(0, "a", "left");
    say(1, "a", "waits");
    wait_for(w.n_held == 1);
    reopen();
    assert_true(error_is(0, "timed out: bellhop was stopped"));
    assert_true(error_is(1, "network trouble: bellhop is stopping"));
    assert_true(
        str_contains(buf_str(&w.cut_off),
                     STR("acme/bot1/r1 network trouble: bellhop was restarted before this")));
    say(2, "a", "waits"); /* it never left, so it may */
    wait_for(w.results[2].success);
    assert_string_equal(buf_z(&w.heard), "left waits ");
}

static void records_of_older_databases_count_once(void **state)
{
    struct hash128 h = hash128(&w.store->dedup_key, STR("maybe"));
    char key[96];

    snprintf(key, sizeof key, "notes\x1fme\x1f%016llx%016llx-1-1", (unsigned long long)h.hi,
             (unsigned long long)h.lo);
    store_put(
        w.store,
        &(struct store_kv){.verb = KV_PUT, .ns = "intent", .key = str_of(key), .value = STR("1")},
        1, true, NULL, NULL);
    reopen();
    say(0, "a", "maybe");
    wait_for(w.results[0].n == 1);
    assert_true(error_is(0, "timed out: "));
    wait_for(n_records("intent") == 0);
    say(1, "a", "maybe");
    wait_for(w.results[1].success);
}

static void records_of_another_bot_are_left_alone(void **state)
{
    store_put(w.store,
              &(struct store_kv){.verb = KV_PUT,
                                 .ns = "outgoing",
                                 .key = STR("notes\x1fother\x1f"
                                            "0000010000000001"),
                                 .value = STR("{\"tenant\":\"t\",\"instance\":\"i\"}")},
              1, true, NULL, NULL);
    reopen();
    assert_int_equal(w.cut_off.n, 0);
    assert_int_equal(n_records("outgoing"), 1);
}

static void ignore_found(void *ctx, const struct outgoing_entry *e)
{
}

static void what_was_found_is_forgotten_after_a_minute(void **state)
{
    struct clock *clock = clock_new();
    struct store *store = store_memory_new(clock);
    struct outgoing_record left = {0}, *rec = &left;
    struct outgoing_log *log;
    char why[256];
    int n = 0;

    clock_set(clock, 1000, 1000);
    assert_int_equal(outgoing_log_open(store, clock, "p", "b", ignore_found, NULL, &log, why),
                     BH_OK);
    outgoing_log_begin(log, rec, &(struct outgoing_entry){.what = STR("x")}, NULL);
    outgoing_log_leave(rec);
    outgoing_log_close(log);
    clock_turn(clock);
    assert_int_equal(outgoing_log_open(store, clock, "p", "b", ignore_found, NULL, &log, why),
                     BH_OK);
    assert_int_equal(outgoing_log_found(log), 1);
    clock_set(clock, 61001, 61001);
    clock_turn(clock);
    clock_turn(clock);
    assert_false(outgoing_log_was_cut_off(log, STR("x")));
    assert_int_equal(store->ops->load_records(store, "outgoing", count_record, &n), BH_OK);
    assert_int_equal(n, 0);
    outgoing_log_close(log);
    store_close(store);
    clock_free(clock);
}

static void broken_submit(struct store *st, struct store_op *op, bool urgent);
static struct store_op *failing;

static void fail_op(void *ctx)
{
    struct store_op *op = failing;

    failing = NULL;
    op->done(op, BH_UNAVAILABLE);
}

static void broken_submit(struct store *st, struct store_op *op, bool urgent)
{
    assert_null(failing);
    failing = op;
    clock_defer(w.clock, fail_op, NULL);
}

static void nothing_leaves_that_cannot_be_recorded(void **state)
{
    const struct store_ops *whole = w.store->ops;
    struct store_ops broken = *whole;

    broken.submit = broken_submit;
    w.store->ops = &broken;
    say(0, "a", "one");
    pass(0);
    loop_turn(w.loop, 5);
    w.store->ops = whole;
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "network trouble: bellhop's store cannot be written"));
    assert_int_equal(w.n_heard, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_record_is_on_disk_before_anything_leaves_and_goes_with_the_answer),
        T(typing_and_lookups_leave_no_record),
        T(a_send_costs_two_store_operations),
        T(what_a_crash_cut_off_is_reported_and_not_done_blindly),
        T(what_was_found_is_found_again_until_it_is_forgotten),
        T(stopping_tells_what_left_from_what_did_not),
        T(records_of_older_databases_count_once),
        cmocka_unit_test(what_was_found_is_forgotten_after_a_minute),
        T(records_of_another_bot_are_left_alone),
        T(nothing_leaves_that_cannot_be_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
