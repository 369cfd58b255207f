/* Promises of relay/in/inside.h about sessions that pull: by a cursor, marked, one receiver. */
#include "relay/rig.h"
#include "relay/in/inside.h"

static struct {
    uint64_t ids[64];
    uint32_t attempts[64];
    size_t n;
    bool done;
    enum bh_err err;
} got;
static size_t mails; /* calls of wire->ops->mail() */

static void count_mail(struct wire *w)
{
    mails++;
}

static struct wire_ops pulling_ops;

static void write_one(void) /* without a turn */
{
    char id[16];

    snprintf(id, sizeof id, "e%u", rig.events++);
    offer("a", id);
}

static struct fake *pull_as(const char *id)
{
    struct fake *f = &rig.fakes[rig.n_fakes++];

    pulling_ops = fake_ops;
    pulling_ops.mail = count_mail;
    mails = 0;
    *f = (struct fake){.wire = {&pulling_ops}};
    f->s = session_open_pulling(rig.relay, facts_gateway(rig.facts, str_of(id)), &f->wire);
    turn();
    return f;
}

static void on_line(void *ctx, const struct mailbox_line *line)
{
    got.ids[got.n] = line->id;
    got.attempts[got.n] = line->attempts;
    got.n++;
}

static void on_done(void *ctx, enum bh_err err)
{
    got.done = true;
    got.err = err;
}

static size_t pull(struct fake *f, uint64_t after, size_t limit, bool peek)
{
    memset(&got, 0, sizeof got);
    session_pull(f->s, after, limit, peek, on_line, on_done, NULL);
    turn();
    assert_true(got.done);
    assert_int_equal(got.err, BH_OK);
    return got.n;
}

static bool done_with(uint64_t id)
{
    bool was = relay_mailbox_done(rig.relay, STR("acme"), STR("ann"), id);

    turn();
    return was;
}

static void mail_is_read_by_a_cursor_in_order_and_settled_by_its_id(void **state)
{
    struct fake *f = pull_as("gw-a");

    for (int i = 0; i < 5; i++)
        write_one();
    turn();
    assert_true(mails > 0);
    assert_int_equal(pull(f, 0, 2, false), 2);
    uint64_t first = got.ids[0], second = got.ids[1];
    assert_true(first < second);
    assert_int_equal(pull(f, second, 10, false), 3);
    assert_true(got.ids[0] > second);
    assert_true(done_with(second));
    assert_false(done_with(second));
    assert_int_equal(look("ann").entries, 4);
    assert_int_equal(pull(f, 0, 10, false), 4);
    assert_int_equal(got.ids[0], first);
    assert_int_equal(inbound(f), 0); /* nothing is pushed */
}

static void what_an_agent_may_have_seen_is_marked_before_it_is_told(void **state)
{
    struct fake *f = pull_as("gw-a");

    write_one();
    write_one();
    turn();
    size_t marks = rig.tap.marks;
    assert_int_equal(pull(f, 0, 1, false), 1);
    assert_int_equal(got.attempts[0], 1);
    assert_int_equal(rig.tap.marks, marks + 1);
    restart();
    f = pull_as("gw-a");
    assert_int_equal(pull(f, 0, 10, false), 2);
    assert_int_equal(got.attempts[0], 2); /* a repetition */
    assert_int_equal(got.attempts[1], 1);
    marks = rig.tap.marks;
    for (int i = 0; i < 30; i++)
        pull(f, 0, 10, false);
    assert_int_equal(rig.tap.marks, marks + 1); /* the second one; then there is nothing to add */
    assert_int_equal(look("ann").parked, 0);
}

static void the_mark_is_on_disk_when_the_bytes_are_handed_out(void **state)
{
    struct fake *f = pull_as("gw-a");

    write_one();
    turn();
    rig.tap.hold = true;
    memset(&got, 0, sizeof got);
    session_pull(f->s, 0, 10, false, on_line, on_done, NULL);
    turn();
    assert_false(got.done);
    assert_int_equal(rig.tap.first->kind, STORE_MARK);
    assert_int_equal(rig.tap.first->next->kind, STORE_FETCH); /* and waits for all before it */
    assert_false(((struct store_fetch *)(void *)rig.tap.first->next)->loose);
    rig_release();
    turn();
    assert_true(got.done);
    assert_int_equal(got.n, 1);
}

static void nothing_passes_a_delivery_that_is_not_on_disk(void **state)
{
    struct fake *f = pull_as("gw-a");

    write_one();
    turn();
    assert_int_equal(pull(f, 0, 10, false), 1);
    uint64_t first = got.ids[0];
    rig.tap.hold = true;
    write_one();
    clock_turn(rig.clock);
    memset(&got, 0, sizeof got);
    session_pull(f->s, first, 10, false, on_line, on_done, NULL);
    size_t before = mails;
    rig_release();
    turn();
    assert_int_equal(got.n, 0);
    assert_true(mails > before); /* told again once it is on disk */
    assert_int_equal(pull(f, first, 10, false), 1);
}

static void looking_marks_nothing(void **state)
{
    struct fake *f = pull_as("gw-a");

    write_one();
    turn();
    size_t marks = rig.tap.marks;
    assert_int_equal(pull(f, 0, 10, true), 1);
    assert_int_equal(rig.tap.marks, marks);
    assert_int_equal(pull(f, 0, 10, false), 1);
    assert_int_equal(got.attempts[0], 1);
}

static void an_agent_that_pulls_needs_no_acks_and_is_never_given_up(void **state)
{
    struct fake *f = pull_as("gw-a");

    write_one();
    turn();
    pull(f, 0, 10, false);
    for (int i = 0; i < 600; i++)
        advance(1000);
    assert_int_equal(f->close_code, 0);
    assert_int_equal(f->pings, 0);
    assert_string_equal(look("ann").state, "live");
    for (int i = 0; i < 20; i++) {
        hang_up(f, 1000);
        f->s = session_open_pulling(rig.relay, facts_gateway(rig.facts, STR("gw-a")), &f->wire);
        turn();
        assert_int_equal(pull(f, 0, 10, false), 1);
    }
    assert_int_equal(look("ann").parked, 0);
    assert_int_equal(look("ann").entries, 1);
}

static void a_newer_receiver_closes_it_and_counts_no_attempt(void **state)
{
    struct fake *f = pull_as("gw-a"), *g;

    write_one();
    turn();
    pull(f, 0, 10, false);
    for (int i = 0; i < 3; i++) {
        g = pull_as("gw-a");
        assert_int_equal(f->close_code, 1012);
        hang_up(f, 1012);
        f = g;
    }
    assert_int_equal(pull(f, 0, 10, false), 1);
    assert_int_equal(got.attempts[0], 2);
    g = connect_as("gw-a");
    assert_int_equal(f->close_code, 1012);
    assert_int_equal(inbound(g), 1);
    hang_up(f, 1012);
}

static void a_sleep_is_kept_and_mail_pokes(void **state)
{
    struct fake *f = pull_as("gw-a");

    say(f, "{\"type\":\"going_idle\"}");
    assert_true(str_contains(buf_str(&f->all), STR("going_idle_ack")));
    hang_up(f, 1000);
    assert_string_equal(look("ann").state, "asleep");
    advance(3000);
    write_one();
    turn();
    assert_int_equal(rig.pokes, 1);
}

UNIT(relay_test_pull)
{
    const struct CMUnitTest tests[] = {
        PROMISE(mail_is_read_by_a_cursor_in_order_and_settled_by_its_id),
        PROMISE(what_an_agent_may_have_seen_is_marked_before_it_is_told),
        PROMISE(the_mark_is_on_disk_when_the_bytes_are_handed_out),
        PROMISE(nothing_passes_a_delivery_that_is_not_on_disk),
        PROMISE(looking_marks_nothing),
        PROMISE(an_agent_that_pulls_needs_no_acks_and_is_never_given_up),
        PROMISE(a_newer_receiver_closes_it_and_counts_no_attempt),
        PROMISE(a_sleep_is_kept_and_mail_pokes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
