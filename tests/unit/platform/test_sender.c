/* Promises of platform/sender.h: order, parts, what answers mean, deadlines, questions. */
#include "platform/sender_rig.h"

/* ---- lanes ---- */

static void what_is_said_in_one_chat_leaves_one_after_the_other(void **state)
{
    when(0, "one", 0, 1);
    say(0, "a", "one");
    say(1, "a", "two");
    assert_int_equal(w.n_heard, 0); /* never inside the call */
    wait_for(w.n_held == 1);
    say(2, "b", "other");
    wait_for(w.results[2].success);
    assert_string_equal(buf_z(&w.heard), "one other ");
    answer_held(0, 200);
    wait_for(w.results[1].success);
    assert_string_equal(buf_z(&w.heard), "one other two ");
    assert_str(buf_str(&w.results[0].id), "id of one");
    assert_int_equal(w.results[0].n + w.results[1].n + w.results[2].n, 3);
}

static void what_is_put_off_keeps_its_place(void **state)
{
    when(0, "one", 429, 2);
    say(0, "a", "one");
    say(1, "a", "two");
    wait_for(w.results[1].success);
    assert_true(w.results[0].success);
    assert_string_equal(buf_z(&w.heard), "one one one two ");
}

static void a_wait_longer_than_the_outbox_keeps_things_ends_it_and_those_behind_it(void **state)
{
    w.env.outbox_max_age_ms = 30000;
    when(0, "one", 430, 1);
    say(0, "a", "one");
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "network trouble: it answers 430"));
    say(1, "a", "two");
    wait_for(w.n_results == 2);
    assert_true(error_is(1, "network trouble: Notes asks to wait too long here"));
    assert_string_equal(buf_z(&w.heard), "one ");
}

static void a_full_lane_says_so_later(void **state)
{
    when(0, "x", 0, 100);
    say(0, "a", "x");
    wait_for(w.n_held == 1);
    for (int i = 0; i < 64; i++) /* tenants have room of their own */
        ask(&note_new("a", "q")->out, STR_NULL, "a");
    ask(&note_new("a", "q")->out, STR_NULL, "a");
    assert_int_equal(w.n_told, 0);
    wait_for(w.n_told == 1);
    assert_int_equal(w.told, SENDER_FAILED);
    assert_string_equal(w.told_why, "too many messages are waiting already");
}

static void a_pause_holds_everything(void **state)
{
    int64_t began = clock_now_ms(w.clock);

    sender_pause(w.sender, 300);
    say(0, "a", "one");
    wait_for(w.results[0].success);
    assert_true(clock_now_ms(w.clock) - began >= 300);
}

/* ---- parts ---- */

static void parts_leave_in_order_and_the_first_names_them(void **state)
{
    when(0, "p2", 429, 1);
    act(0, three_parts("a"), 0);
    say(1, "a", "behind");
    wait_for(w.results[1].success);
    assert_string_equal(buf_z(&w.heard), "p1 p2 p2 p3 behind ");
    assert_str(buf_str(&w.results[0].id), "id of p1");
}

static void a_failure_behind_a_delivered_part_is_unknown(void **state)
{
    when(0, "p2", 400, 9);
    act(0, three_parts("a"), 0);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "timed out: only 1 of 3 parts were delivered: it answers 400"));
    when(0, "p2", 430, 9);
    w.env.outbox_max_age_ms = 30000;
    act(1, three_parts("b"), 0);
    wait_for(w.n_results == 2);
    assert_true(error_is(1, "timed out: only 1 of 3 parts were delivered: it answers 430"));
}

static void nothing_to_say_is_refused(void **state)
{
    struct note *n = note_new("a", "");

    n->out.n_parts = 0;
    act(0, n, 0);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "there is nothing to send"));
    assert_int_equal(w.n_freed, 1);
}

static void more_than_sixteen_parts_are_refused_whole(void **state)
{
    struct note *n = note_new("a", "the first of many");

    n->out.n_parts = SENDER_MAX_PARTS + 1;
    act(0, n, 0);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "the text is too long: it would be more than 16 messages"));
    pass(50);
    assert_int_equal(w.n_heard, 0);
    assert_int_equal(w.n_freed, 1);
}

/* ---- what answers mean ---- */

static void endings_have_the_words_the_gateway_acts_on(void **state)
{
    when(0, "no", 400, 1);
    when(1, "later", 420, 1);
    when(2, "broken", 500, 1);
    say(0, "a", "no");
    say(1, "b", "later");
    say(2, "c", "broken");
    wait_for(w.n_results == 3);
    assert_str(buf_str(&w.results[0].error), "it answers 400");
    assert_str(buf_str(&w.results[1].error), "network trouble: it answers 420");
    assert_str(buf_str(&w.results[2].error), "timed out: it answers 500");
    when(3, "strange", 499, 1);
    say(3, "d", "strange");
    wait_for(w.n_results == 4);
    assert_str(buf_str(&w.results[3].error), "Notes refused this");
}

static void a_lost_answer_is_unknown_where_twice_is_not_once(void **state)
{
    struct note *n = note_new("a", "one");

    when(0, "one", 0, 1);
    n->timeout_ms = 200;
    act(0, n, 0);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "timed out: Notes did not answer"));
    pass(100);
    assert_string_equal(buf_z(&w.heard), "one ");
}

static void a_lost_answer_is_asked_for_again_where_twice_is_once(void **state)
{
    struct note *n = note_new("a", "one");

    when(0, "one", 0, 1);
    n->timeout_ms = 200;
    n->once = false;
    act(0, n, 0);
    wait_for(w.results[0].success);
    assert_string_equal(buf_z(&w.heard), "one one ");
}

static void a_refusal_after_a_lost_answer_is_unknown(void **state)
{
    struct note *n = note_new("a", "one");

    when(0, "one", 500, 1);
    when(1, "one", 400, 2); /* the later rule wins */
    w.rules[1].times = 0;
    n->once = false;
    act(0, n, 0);
    wait_for(w.n_heard == 1);
    when(1, "one", 400, 9);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "timed out: it answers 400; an earlier try may have been delivered"));
}

static void another_way_is_taken_at_once(void **state)
{
    when(0, "one", 300, 1);
    say(0, "a", "one");
    say(1, "a", "two");
    wait_for(w.results[1].success);
    assert_string_equal(buf_z(&w.heard), "one elsewhere two ");
    when(0, "round", 300, 1);
    when(1, "elsewhere", 300, 99);
    say(2, "a", "round"); /* ways that lead nowhere end */
    wait_for(w.n_results == 3);
    assert_false(w.results[2].success);
}

static void what_cannot_be_written_yet_waits_for_resume(void **state)
{
    w.token = false;
    say(0, "a", "one");
    say(1, "b", "two");
    pass(100);
    assert_int_equal(w.n_heard, 0);
    sender_resume(w.sender, "no token comes");
    assert_true(error_is(0, "network trouble: no token comes"));
    assert_true(error_is(1, "network trouble: no token comes"));
    say(2, "a", "three");
    pass(100);
    sender_resume(w.sender, NULL); /* still none: it is held again */
    w.token = true;
    sender_resume(w.sender, NULL);
    wait_for(w.results[2].success);
    assert_string_equal(buf_z(&w.heard), "three ");
}

/* ---- deadlines ---- */

static void what_cannot_leave_in_time_is_told_to_be_queued_before_the_deadline(void **state)
{
    int64_t now = clock_now_ms(w.clock);

    when(0, "one", 0, 1);
    say(0, "a", "one");
    act(1, note_new("a", "two"), now + 3000 + 300);
    wait_for(w.results[1].n == 1);
    assert_true(w.results[1].success && w.results[1].queued);
    assert_true(str_starts(buf_str(&w.results[1].id), STR("queued:")));
    assert_true(clock_now_ms(w.clock) < now + 3000);
    answer_held(0, 200);
    wait_for(w.n_heard == 2);
    pass(50);
    assert_int_equal(w.results[1].n, 1); /* it has its answer */
    assert_string_equal(buf_z(&w.heard), "one two ");
}

static void a_platform_that_is_away_is_tried_until_it_is_there(void **state)
{
    char url[64];

    memcpy(url, w.url, sizeof url);
    snprintf(w.url, sizeof w.url, "http://127.0.0.1:1/");
    act(0, note_new("a", "one"), clock_now_ms(w.clock) + 3000 + 1500);
    wait_for(w.n_results == 1);
    assert_true(w.results[0].queued);
    struct sender_stats n;
    sender_stats(w.sender, &n);
    assert_true(n.requests >= 2 && n.queued == 1);
    memcpy(w.url, url, sizeof url);
    wait_for(w.n_heard == 1);
}

static void what_is_too_old_is_given_up(void **state)
{
    w.env.outbox_max_age_ms = 900;
    snprintf(w.url, sizeof w.url, "http://127.0.0.1:1/");
    say(0, "a", "one");
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "network trouble: Notes cannot be reached"));
    assert_true(ended("failed"));
    struct sender_stats n;
    sender_stats(w.sender, &n);
    assert_int_equal(n.expired, 1);
    wait_for(n_records("outgoing") == 0);
}

/* ---- questions, and calling off ---- */

static void questions_are_told_without_a_record(void **state)
{
    ask(&note_new("a", "q")->out, STR_NULL, "a");
    wait_for(w.n_told == 1);
    assert_int_equal(w.told, SENDER_DONE);
    assert_int_equal(w.records_when_heard, 0);
    assert_int_equal(w.n_results, 0);
    when(0, "no", 400, 1);
    ask(&note_new("a", "no")->out, STR_NULL, "a");
    wait_for(w.n_told == 2);
    assert_int_equal(w.told, SENDER_REFUSED);
}

static void what_was_called_off_never_leaves_and_tells_nobody(void **state)
{
    struct note *waits = note_new("a", "waits"), *runs = note_new("a", "runs");
    struct outgoing *a = &runs->out, *b = &waits->out;

    when(0, "runs", 0, 1);
    ask(a, STR_NULL, "a");
    ask(b, STR_NULL, "a");
    wait_for(w.n_held == 1);
    sender_cancel(&a);
    sender_cancel(&b);
    assert_true(a == NULL && b == NULL);
    sender_cancel(&a);
    answer_held(0, 200);
    wait_for(w.n_freed == 2);
    assert_string_equal(buf_z(&w.heard), "runs ");
    assert_int_equal(w.n_told, 0);
}

static void who_is_refused_too_often_is_held_back_with_what_waits_already(void **state)
{
    struct note *runs = note_new("a", "runs");
    struct note *asked = note_new("c", "asked"), *own = note_new("c", "own");

    when(0, "runs", 0, 1);
    act(0, runs, 0);
    say(1, "a", "behind it");
    wait_for(w.n_held == 1);
    for (int i = 0; i < 100; i++)
        sender_blame(&runs->out);
    say(2, "b", "comes later");
    ask(&asked->out, STR("acme"), "c");
    wait_for(w.n_told == 1);
    assert_int_equal(w.told, SENDER_FAILED);
    answer_held(0, 200); /* what was under way ends as it ends */
    wait_for(w.n_results == 3);
    assert_true(w.results[0].success);
    assert_true(error_is(1, "network trouble: the platform refused too much"));
    assert_true(error_is(2, "network trouble: the platform refused too much"));
    ask(&own->out, STR_NULL, "c"); /* for nobody: others' fault */
    wait_for(w.n_told == 2);
    assert_int_equal(w.told, SENDER_DONE);
    assert_string_equal(buf_z(&w.heard), "runs own ");
}

static void a_question_for_nobody_is_held_back_by_its_lane(void **state)
{
    struct note *runs = note_new("a", "runs");

    when(0, "runs", 0, 1);
    ask(&runs->out, STR_NULL, "a");
    wait_for(w.n_held == 1);
    for (int i = 0; i < 100; i++)
        sender_blame(&runs->out);
    answer_held(0, 200);
    wait_for(w.n_told == 1);
    ask(&note_new("a", "q")->out, STR_NULL, "a");
    wait_for(w.n_told == 2);
    assert_int_equal(w.told, SENDER_FAILED);
    ask(&note_new("b", "other")->out, STR_NULL, "b");
    wait_for(w.n_told == 3);
    assert_int_equal(w.told, SENDER_DONE);
    say(0, "a", "said");
    wait_for(w.results[0].success);
    assert_string_equal(buf_z(&w.heard), "runs other said ");
}

/* ---- a platform that is not spoken to over HTTP ---- */

static struct {
    struct outgoing *in[MAX]; /* in flight, as they were carried */
    struct buf said;          /* "text text ", as they were carried */
    size_t n, dropped;
} wire;

static void wire_transmit(struct platform *p, struct outgoing *o, const struct sender_request *q)
{
    buf_printf(&wire.said, "%.*s ", STR_FMT(buf_str(&q->body)));
    wire.in[wire.n++] = o;
}

static void wire_drop(struct platform *p, struct outgoing *o)
{
    size_t i = 0;

    while (i < wire.n && wire.in[i] != o)
        i++;
    assert_true(i < wire.n); /* only what is in flight */
    wire.in[i] = NULL;
    wire.dropped++;
}

static void answer(size_t i, enum bh_err err, int status)
{
    struct outgoing *o = wire.in[i];

    wire.in[i] = NULL;
    sender_answer(o, &(struct http_result){.err = err, .status = status});
}

static const struct sender_ops wire_sender = {.write = note_write,
                                              .read = note_read,
                                              .free = note_free,
                                              .transmit = wire_transmit,
                                              .drop = wire_drop};
static const struct platform_ops wire_ops = {.name = "notes",
                                             .label = "Notes",
                                             .sender = &wire_sender,
                                             .act = note_act};

static void open_wire(void)
{
    char why[256];

    w.base = (struct platform){.ops = &wire_ops, .env = &w.env, .bot = "me"};
    assert_int_equal(sender_new(&w.base, why), BH_OK);
    w.sender = w.base.sender;
}

static int setup_wire(void **state)
{
    memset(&wire, 0, sizeof wire);
    setup(state);
    sender_free(w.sender);
    open_wire();
    return 0;
}

static int teardown_wire(void **state)
{
    int rc = teardown(state);

    buf_done(&wire.said);
    return rc;
}

static void what_is_carried_holds_its_lane_until_it_is_answered(void **state)
{
    say(0, "a", "one");
    say(1, "a", "two");
    say(2, "b", "other");
    assert_int_equal(wire.n, 0); /* never inside the call */
    wait_for(wire.n == 2);
    pass(50);
    assert_string_equal(buf_z(&wire.said), "one other ");
    assert_int_equal(w.n_results, 0);
    assert_int_equal(w.n_heard, 0); /* nothing goes over HTTP */
    answer(0, BH_OK, 200);
    assert_true(w.results[0].success);
    assert_str(buf_str(&w.results[0].id), "id of one");
    wait_for(wire.n == 3);
    answer(2, BH_OK, 400);
    assert_true(error_is(1, "it answers 400"));
    answer(1, BH_OK, 200);
    assert_true(w.results[2].success);
    wait_for(n_records("outgoing") == 0);
    assert_int_equal(wire.dropped, 0);
    assert_int_equal(w.n_freed, 3);
}

static void carried_parts_leave_in_order(void **state)
{
    act(0, three_parts("a"), 0);
    for (size_t i = 0; i < 3; i++) {
        wait_for(wire.n == i + 1);
        answer(i, BH_OK, 200);
    }
    assert_true(w.results[0].success);
    assert_string_equal(buf_z(&wire.said), "p1 p2 p3 ");
    assert_str(buf_str(&w.results[0].id), "id of p1");
}

static void what_never_left_is_carried_again(void **state)
{
    say(0, "a", "one");
    wait_for(wire.n == 1);
    answer(0, BH_UNAVAILABLE, 0);
    wait_for(wire.n == 2);
    answer(1, BH_OK, 429);
    wait_for(wire.n == 3);
    answer(2, BH_OK, 200);
    assert_true(w.results[0].success);
    assert_string_equal(buf_z(&wire.said), "one one one ");
}

static void silence_on_the_wire_is_unknown(void **state)
{
    struct note *edit = note_new("b", "edit");

    say(0, "a", "one");
    edit->once = false;
    edit->twice = TWICE_IS_ONE;
    act(1, edit, 0);
    wait_for(wire.n == 2);
    answer(0, BH_UNKNOWN, 0);
    answer(1, BH_UNKNOWN, 0);
    assert_true(error_is(0, "timed out: Notes did not answer; it may have been delivered"));
    assert_true(ended("unknown"));
    wait_for(wire.n == 3); /* a second time changes nothing */
    answer(2, BH_OK, 200);
    assert_true(w.results[1].success);
    assert_string_equal(buf_z(&wire.said), "one edit edit ");
}

static void what_is_in_flight_when_bellhop_stops_is_dropped_and_unknown(void **state)
{
    say(0, "a", "left");
    say(1, "a", "waits");
    wait_for(wire.n == 1);
    wait_for(n_records("outgoing") == 2);
    close_all();
    assert_int_equal(wire.dropped, 1);
    assert_int_equal(w.n_freed, 2);
    assert_true(error_is(0, "timed out: bellhop was stopped; it may have been delivered"));
    assert_true(w.results[1].success && w.results[1].queued);
    open_store("db");
    open_wire();
    wait_for(wire.n == 2); /* only what had not left goes on */
    assert_string_equal(buf_z(&wire.said), "left waits ");
    assert_non_null(strstr(buf_z(&w.cut_off), "acme/bot1/r0 timed out: "));
    answer(1, BH_OK, 200);
    assert_true(w.results[1].success && !w.results[1].queued);
}

static void a_question_called_off_in_flight_tells_nobody(void **state)
{
    struct outgoing *a = &note_new("a", "runs")->out, *b = &note_new("a", "waits")->out;

    ask(a, STR_NULL, "a");
    ask(b, STR_NULL, "a");
    wait_for(wire.n == 1);
    sender_cancel(&a);
    sender_cancel(&b);
    pass(20);
    assert_int_equal(w.n_freed, 0); /* it goes on */
    answer(0, BH_OK, 200);
    wait_for(w.n_freed == 2);
    assert_string_equal(buf_z(&wire.said), "runs ");
    assert_int_equal(w.n_told, 0);
    assert_int_equal(wire.dropped, 0);
}

UNIT(platform_test_sender)
{
#define W(name) cmocka_unit_test_setup_teardown(name, setup_wire, teardown_wire)
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_is_said_in_one_chat_leaves_one_after_the_other),
        T(what_is_put_off_keeps_its_place),
        T(a_wait_longer_than_the_outbox_keeps_things_ends_it_and_those_behind_it),
        T(a_full_lane_says_so_later),
        T(a_pause_holds_everything),
        T(parts_leave_in_order_and_the_first_names_them),
        T(a_failure_behind_a_delivered_part_is_unknown),
        T(nothing_to_say_is_refused),
        T(more_than_sixteen_parts_are_refused_whole),
        T(endings_have_the_words_the_gateway_acts_on),
        T(a_lost_answer_is_unknown_where_twice_is_not_once),
        T(a_lost_answer_is_asked_for_again_where_twice_is_once),
        T(a_refusal_after_a_lost_answer_is_unknown),
        T(another_way_is_taken_at_once),
        T(what_cannot_be_written_yet_waits_for_resume),
        T(what_cannot_leave_in_time_is_told_to_be_queued_before_the_deadline),
        T(a_platform_that_is_away_is_tried_until_it_is_there),
        T(what_is_too_old_is_given_up),
        T(questions_are_told_without_a_record),
        T(what_was_called_off_never_leaves_and_tells_nobody),
        T(who_is_refused_too_often_is_held_back_with_what_waits_already),
        T(a_question_for_nobody_is_held_back_by_its_lane),
        W(what_is_carried_holds_its_lane_until_it_is_answered),
        W(carried_parts_leave_in_order),
        W(what_never_left_is_carried_again),
        W(silence_on_the_wire_is_unknown),
        W(what_is_in_flight_when_bellhop_stops_is_dropped_and_unknown),
        W(a_question_called_off_in_flight_tells_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
