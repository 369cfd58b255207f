/* Promises of platform/sender.h and platform/outgoing.h: what a crash or a stop finds. */
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
    say(0, "a", "one");
    wait_for(w.results[0].success);
    pass(50);
    w.store->ops->stats(w.store, &after);
    assert_int_equal(after.ops - before.ops, 2);
    struct note *n = three_parts("a");
    n->twice = TWICE_IS_KEYED; /* of all parts together; else every other part is noted first */
    act(1, n, 0);
    wait_for(w.results[1].success);
    pass(50);
    w.store->ops->stats(w.store, &before);
    assert_int_equal(before.ops - after.ops, 2);
    assert_int_equal(w.n_heard, 4);
}

static void copy_file(const char *from, const char *to)
{
    char command[256];

    snprintf(command, sizeof command, "cd %s && cp %s %s", w.dir, from, to);
    assert_int_equal(system(command), 0);
}

/* The disk as a crash would leave it: a copy taken while the request is under way. */
static void what_a_crash_cut_off_is_reported_and_not_done_again(void **state)
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
    assert_true(w.said == SAID); /* by which the heart knows it when it is said again */
    say(5, "a", "another");
    wait_for(w.results[5].success);
    assert_string_equal(buf_z(&w.heard), "maybe another ");
    wait_for(n_records("outgoing") == 1); /* an operator can see what became unknown */
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
    assert_true(w.said == SAID);
}

static void stopping_tells_what_left_from_what_did_not(void **state)
{
    when(0, "left", 0, 1);
    say(0, "a", "left");
    say(1, "a", "waits");
    wait_for(w.n_held == 1);
    reopen();
    assert_true(error_is(0, "timed out: bellhop was stopped"));
    assert_true(w.results[1].success && w.results[1].queued);
    assert_true(str_starts(buf_str(&w.cut_off), STR("acme/bot1/r0 timed out: ")));
    wait_for(w.results[1].n == 2); /* it never left: it does now */
    assert_true(w.results[1].success && !w.results[1].queued);
    assert_string_equal(buf_z(&w.heard), "left waits ");
}

/* ---- going on ---- */

/* As a crash leaves it: what is on disk at this moment, under a new process. */
static void crash(void)
{
    struct buf heard = w.heard;

    copy_file("db", "crashed");
    copy_file("db-wal", "crashed-wal");
    w.heard = (struct buf)BUF_INIT;
    close_all();
    open_store("crashed");
    buf_done(&w.heard);
    w.heard = heard;
    open_sender();
}

static void what_waited_in_a_crash_goes_on_in_its_order(void **state)
{
    when(0, "one", 430, 1); /* it asks to wait for a minute */
    say(0, "a", "one");
    wait_for(w.n_heard == 1);
    say(1, "a", "two");
    say(2, "b", "three");
    wait_for(w.results[2].success);
    pass(100);
    crash();
    w.results[0].n = w.results[1].n = 0;
    say(3, "a", "four"); /* before anything else had a turn */
    wait_for(w.results[3].success);
    assert_true(w.results[0].success && w.results[0].n == 1 && w.results[1].n == 1);
    assert_string_equal(buf_z(&w.heard), "one three one two four ");
    assert_int_equal(w.cut_off.n, 0);
    struct sender_stats n;
    sender_stats(w.sender, &n);
    assert_int_equal(n.revived, 2);
    wait_for(n_records("outgoing") == 0);
}

static void what_goes_on_is_known_by_what_was_said(void **state)
{
    when(0, "one", 430, 1);
    say(0, "a", "one");
    wait_for(w.n_heard == 1);
    pass(100);
    crash();
    wait_for(w.n_heard == 2);
    assert_true(w.said == SAID);
    wait_for(w.results[0].success);
}

static void parts_that_were_delivered_are_not_sent_again(void **state)
{
    when(0, "p2", 430, 1);
    act(0, three_parts("a"), 0);
    wait_for(w.n_heard == 2);
    pass(100);
    crash();
    wait_for(w.results[0].n == 2);
    assert_true(w.results[0].success);
    assert_str(buf_str(&w.results[0].id), "id of p1");
    assert_string_equal(buf_z(&w.heard), "p1 p2 p2 p3 ");
}

static void a_key_makes_twice_once_while_the_platform_remembers_it(void **state)
{
    struct note *n = note_new("a", "keyed");

    n->once = false;
    n->twice = TWICE_IS_KEYED;
    when(0, "keyed", 0, 1);
    act(0, n, 0);
    wait_for(w.n_held == 1);
    uint64_t key = sender_key(&n->out);
    crash();
    wait_for(w.n_heard == 2);
    assert_true(key != 0);
    wait_for(w.results[0].success && !w.results[0].queued);
    assert_int_equal(w.cut_off.n, 0);
}

static void a_key_the_platform_has_forgotten_makes_it_unknown(void **state)
{
    struct note *n = note_new("a", "keyed");

    n->once = false;
    n->twice = TWICE_IS_KEYED;
    when(0, "keyed", 0, 1);
    act(0, n, 0);
    wait_for(w.n_held == 1);
    pass(2100); /* the platform remembers for two seconds */
    crash();
    pass(200);
    assert_int_equal(w.n_heard, 1);
    assert_true(str_starts(buf_str(&w.cut_off), STR("acme/bot1/r0 timed out: ")));
}

static struct note *seen_new(const char *text)
{
    struct note *n = note_new("a", text);

    n->once = true;
    n->twice = TWICE_IS_SEEN;
    n->timeout_ms = 300;
    return n;
}

static void what_the_platform_shows_is_there_and_the_next_part_follows(void **state)
{
    struct note *n = seen_new("p1");

    n->parts[1] = "p2";
    n->out.n_parts = 2;
    when(0, "p1", 0, 1);
    when(1, "?p1", 500, 1); /* no answer worth the name: asked again */
    act(0, n, 0);
    wait_for(w.results[0].n == 1);
    assert_true(w.results[0].success);
    assert_string_equal(buf_z(&w.results[0].id), "found");
    assert_string_equal(buf_z(&w.heard), "p1 ?p1 ?p1 p2 ");
    wait_for(n_records("outgoing") == 0);
}

static void what_the_platform_does_not_show_is_unknown_and_never_repeated(void **state)
{
    when(0, "one", 0, 1);
    when(1, "?one", 404, SENDER_LOOKS);
    act(0, seen_new("one"), 0);
    wait_for(w.results[0].n == 1);
    assert_true(str_starts(buf_str(&w.results[0].error), STR("timed out: no answer came, and ")));
    assert_string_equal(buf_z(&w.heard), "one ?one ?one ?one ");
    assert_true(ended("unknown"));
    assert_int_equal(n_records("outgoing"), 1); /* for an operator */
}

static void after_a_crash_the_platform_is_asked_before_anything_is_repeated(void **state)
{
    when(0, "one", 0, 1);
    when(1, "?one", 404, 1);
    struct note *n = seen_new("one");
    n->timeout_ms = 0;
    act(0, n, 0);
    wait_for(w.n_held == 1);
    crash();
    wait_for(w.results[0].success && !w.results[0].queued);
    assert_string_equal(buf_z(&w.heard), "one ?one ?one ");
    assert_int_equal(w.cut_off.n, 0);
}

static void whoever_is_no_more_sends_nothing(void **state)
{
    when(0, "one", 430, 1);
    say(0, "a", "one");
    wait_for(w.n_heard == 1);
    pass(100);
    w.nobody_lives = true;
    crash();
    pass(200);
    assert_int_equal(w.n_heard, 1);
    wait_for(n_records("outgoing") == 0);
}

static void an_older_life_that_waited_too_long_is_given_up(void **state)
{
    when(0, "one", 430, 1);
    say(0, "a", "one");
    wait_for(w.n_heard == 1);
    pass(300);
    w.env.outbox_max_age_ms = 200;
    crash();
    wait_for(error_is(0, "network trouble: it waited too long while bellhop was away"));
    assert_int_equal(w.n_heard, 1);
    wait_for(n_records("outgoing") == 0);
}

/* ---- by its name, and by its number ---- */

static struct outgoing_view seen;
static int n_seen;
static uint64_t seen_number;

static void on_view(void *ctx, const struct outgoing_view *v)
{
    seen = *v;
    seen_number = v->e.number;
    n_seen++;
}

static const struct outgoing_view *look(uint64_t number)
{
    n_seen = 0;
    sender_each(w.sender, number, on_view, NULL);
    return n_seen == 1 ? &seen : NULL;
}

static void a_queued_message_is_edited_when_it_is_there(void **state)
{
    char id[128];

    when(0, "one", 0, 1);
    act(0, note_new("a", "one"), clock_now_ms(w.clock) + 3000 + 200);
    wait_for(w.results[0].queued);
    struct action edit = {.op = ACTION_EDIT,
                          .chat_id = STR("a"),
                          .message_id = buf_str(&w.results[0].id),
                          .content = STR("new")};
    assert_int_equal(sender_named(w.sender, edit.message_id, id), SENDER_NAMED_WAITS);
    struct action_from from = {STR("acme"), STR("bot1"), STR("r1")};
    sender_submit(w.sender, (struct action_id){.index = 1}, &from, &edit);
    assert_true(w.results[1].success && w.results[1].queued);
    edit.chat_id = STR("b");
    sender_submit(w.sender, (struct action_id){.index = 2}, &from, &edit);
    assert_true(error_is(2, "there is no such message to edit")); /* it is in another chat */
    edit.op = ACTION_REACT;
    sender_submit(w.sender, (struct action_id){.index = 3}, &from, &edit);
    assert_true(error_is(3, "the message is still waiting"));
    answer_held(0, 200);
    wait_for(w.n_heard == 2);
    assert_string_equal(buf_z(&w.heard), "one edit:new ");
    assert_int_equal(sender_named(w.sender, edit.message_id, id), SENDER_NAMED_SENT);
    assert_string_equal(id, "id of one");
    pass(100);
    crash();
    assert_int_equal(sender_named(w.sender, edit.message_id, id), SENDER_NAMED_SENT);
    assert_string_equal(id, "id of one");
    assert_int_equal(sender_named(w.sender, STR("queued:7"), id), SENDER_NAMED_NONE);
    assert_int_equal(sender_named(w.sender, STR("queued:x"), id), SENDER_NAMED_NONE);
}

static void what_is_unknown_can_be_looked_at_and_done_again(void **state)
{
    when(0, "one", 500, 1);
    say(0, "a", "one");
    wait_for(error_is(0, "timed out: "));
    const struct outgoing_view *v = look(0);
    assert_non_null(v);
    assert_int_equal(v->e.state, OUTGOING_UNKNOWN);
    assert_str(v->e.why, "it answers 500");
    assert_int_equal(v->e.attempts, 1);
    uint64_t number = seen_number;
    assert_int_equal(sender_retry(w.sender, number + 1), BH_REFUSED);
    assert_int_equal(sender_retry(w.sender, number), BH_OK);
    wait_for(w.results[0].success);
    assert_string_equal(buf_z(&w.heard), "one one ");
    assert_null(look(number));
    wait_for(n_records("outgoing") == 0);
}

static struct sender_verdict truth(enum sender_end end, const char *id, const char *why)
{
    struct sender_verdict v = {.end = end};

    snprintf(v.message_id, sizeof v.message_id, "%s", id);
    snprintf(v.why, sizeof v.why, "%s", why);
    return v;
}

static void what_is_unknown_is_settled_when_the_platform_tells(void **state)
{
    struct sender_verdict done = truth(SENDER_DONE, "m1", ""), no = truth(SENDER_REFUSED, "", "no");

    when(0, "one", 500, 1);
    when(1, "two", 500, 1);
    say(0, "a", "one");
    say(1, "b", "two");
    wait_for(error_is(0, "timed out: ") && error_is(1, "timed out: "));
    uint64_t two = w.store->boot << 40 | w.numbers, one = two - 1;
    assert_false(sender_settle(w.sender, one, 1, &done)); /* of another part */
    assert_non_null(look(one));
    assert_false(sender_settle(w.sender, one, 0, &done));
    assert_null(look(one));
    assert_true(ended("done"));
    assert_false(sender_settle(w.sender, two, 0, &no));
    assert_null(look(two));
    assert_true(ended("refused"));
    wait_for(n_records("outgoing") == 0);
    assert_int_equal(w.n_heard, 2);
}

static void what_seemed_done_and_failed_later_is_told_so(void **state)
{
    struct sender_verdict no = truth(SENDER_REFUSED, "", "no");

    say(0, "a", "one");
    wait_for(w.results[0].success);
    assert_true(ended("done"));
    uint64_t number = w.store->boot << 40 | w.numbers;
    assert_false(sender_settle(w.sender, number + 1, 0, &no));
    assert_true(ended("done"));
    assert_false(sender_settle(w.sender, number, 0, &no));
    assert_true(ended("refused"));
}

static void what_waits_can_be_hurried_or_dropped(void **state)
{
    when(0, "one", 430, 1);
    say(0, "a", "one");
    say(1, "a", "two");
    wait_for(w.n_heard == 1);
    pass(100);
    say(2, "b", "three");
    wait_for(w.results[2].success);
    sender_each(w.sender, 0, on_view, NULL);
    uint64_t two = seen_number, one = two - 1; /* in order of asking */
    const struct outgoing_view *v = look(one);
    assert_int_equal(v->e.state, OUTGOING_WAITING);
    assert_true(v->next_ms > clock_wall_ms(w.clock) + 30000);
    assert_int_equal(sender_drop(w.sender, two), BH_OK);
    wait_for(w.results[1].n == 1);
    assert_true(error_is(1, "an operator took it out of the outbox"));
    assert_int_equal(sender_drop(w.sender, two), BH_REFUSED);
    assert_int_equal(sender_retry(w.sender, one), BH_OK);
    wait_for(w.results[0].success);
    assert_string_equal(buf_z(&w.heard), "one three one ");
    wait_for(n_records("outgoing") == 0);
}

static void a_request_under_way_is_not_called_back(void **state)
{
    when(0, "one", 0, 1);
    say(0, "a", "one");
    wait_for(w.n_held == 1);
    sender_each(w.sender, 0, on_view, NULL);
    assert_int_equal(seen.e.state, OUTGOING_TRYING);
    assert_int_equal(sender_drop(w.sender, seen_number), BH_BUSY);
    assert_int_equal(sender_retry(w.sender, seen_number), BH_BUSY);
    answer_held(0, 200);
    wait_for(w.results[0].success);
}

static void what_is_forgotten_never_leaves(void **state)
{
    when(0, "one", 430, 1);
    say(0, "a", "one");
    say(1, "a", "two");
    wait_for(w.n_heard == 1);
    pass(100);
    sender_forget(w.sender, STR("acme"), STR("other"));
    assert_int_equal(n_records("outgoing"), 2);
    sender_forget_chat(w.sender, STR("b"));
    assert_int_equal(n_records("outgoing"), 2);
    sender_forget(w.sender, STR("acme"), STR("bot1"));
    wait_for(n_records("outgoing") == 0);
    assert_int_equal(w.n_results, 0);
    assert_int_equal(w.n_freed, 2);
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

UNIT(platform_test_sender_record)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_record_is_on_disk_before_anything_leaves_and_goes_with_the_answer),
        T(typing_and_lookups_leave_no_record),
        T(a_send_costs_two_store_operations),
        T(what_a_crash_cut_off_is_reported_and_not_done_again),
        T(what_was_found_is_found_again_until_it_is_forgotten),
        T(stopping_tells_what_left_from_what_did_not),
        T(what_waited_in_a_crash_goes_on_in_its_order),
        T(what_goes_on_is_known_by_what_was_said),
        T(parts_that_were_delivered_are_not_sent_again),
        T(a_key_makes_twice_once_while_the_platform_remembers_it),
        T(what_the_platform_shows_is_there_and_the_next_part_follows),
        T(what_the_platform_does_not_show_is_unknown_and_never_repeated),
        T(after_a_crash_the_platform_is_asked_before_anything_is_repeated),
        T(a_key_the_platform_has_forgotten_makes_it_unknown),
        T(whoever_is_no_more_sends_nothing),
        T(an_older_life_that_waited_too_long_is_given_up),
        T(a_queued_message_is_edited_when_it_is_there),
        T(what_is_unknown_can_be_looked_at_and_done_again),
        T(what_is_unknown_is_settled_when_the_platform_tells),
        T(what_seemed_done_and_failed_later_is_told_so),
        T(what_waits_can_be_hurried_or_dropped),
        T(a_request_under_way_is_not_called_back),
        T(what_is_forgotten_never_leaves),
        T(records_of_another_bot_are_left_alone),
        T(nothing_leaves_that_cannot_be_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
