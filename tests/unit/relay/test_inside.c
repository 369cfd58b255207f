/* Promises of relay/in/inside.h: mail by name, quiet or not; agents that live in the program. */
#include "relay/rig.h"
#include "relay/in/inside.h"

static struct gateway inside = {.id = (char *)"agent:x",
                                .tenant = (char *)"acme",
                                .instance = (char *)"agent:x"};

static struct parcel_fate fate; /* of the newest parcel */

/* True: it was known. */
static bool send_to(const char *instance, const char *id, const char *body, bool may_wake)
{
    struct event ev = {.platform = STR("relay"),
                       .event_id = str_of(id),
                       .text = str_of(id),
                       .chat_id = STR("dispatch:x/s"),
                       .chat_type = STR("dm"),
                       .user_id = STR("skill:s")};
    struct parcel p = {.tenant = STR("acme"),
                       .instance = str_of(instance),
                       .ev = &ev,
                       .body = str_of(body),
                       .may_wake = may_wake};

    relay_deliver(rig.relay, &p, &fate, on_accepted, NULL);
    turn();
    turn();
    return fate.known_ms != 0;
}

static struct fake *enter(void)
{
    struct fake *f = &rig.fakes[rig.n_fakes++];
    *f = (struct fake){.wire = {&fake_ops}};
    f->s = session_open_inside(rig.relay, &inside, &f->wire);
    hello(f);
    return f;
}

/* The session is lost, and another one comes in its place. */
static void enter_again(struct fake *f)
{
    hang_up(f, 1000);
    buf_reset(&f->all);
    f->n_messages = 0;
    f->s = session_open_inside(rig.relay, &inside, &f->wire);
    hello(f);
    turn();
}

static bool give_up(struct fake *f, size_t n, bool park)
{
    struct str id = buffer_id(line_with(f, INBOUND, n));
    bool parked = session_failed(f->s, id, STR("the drop is full"), park);
    turn();
    return parked;
}

static void mail_by_name_asks_nobody_and_is_one_delivery(void **state)
{
    struct fake *f = connect_as("gw-a");
    assert_false(send_to("ann", "d1", NULL, true));
    assert_true(send_to("ann", "d1", NULL, true));
    assert_int_equal(inbound(f), 1);
    assert_int_equal(accepted_ok(), 2);
    ack(f, 0);
    assert_true(send_to("ann", "d1", NULL, true));
    assert_int_equal(inbound(f), 1);
}

static void quiet_mail_wakes_nobody_and_goes_along_with_the_next_that_does(void **state)
{
    struct fake *f = connect_as("gw-a");
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    advance(3000);
    send_to("ann", "quiet", NULL, false);
    advance(60000);
    assert_int_equal(rig.pokes, 0);
    restart();
    advance(60000);
    assert_int_equal(rig.pokes, 0);
    send_to("ann", "loud", NULL, true);
    assert_int_equal(rig.pokes, 1);
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 2);
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("\"text\":\"quiet\"")));
}

static void an_agent_inside_gets_its_bodies_a_few_at_a_time(void **state)
{
    struct fake *f = enter();
    send_to("agent:x", "d1", "{\"n\":1}", false);
    send_to("agent:x", "d2", "{\"n\":2}", false);
    assert_int_equal(inbound(f), 1);
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("\"dispatch\":{\"n\":1}}")));
    ack(f, 0);
    assert_int_equal(inbound(f), 2);
    for (int i = 0; i < 600; i++)
        advance(1000);
    assert_int_equal(f->pings, 0);
    assert_int_equal(f->close_code, 0);
    assert_string_equal(look("agent:x").state, "live");
}

static void a_failure_is_an_attempt_and_a_lost_session_is_none(void **state)
{
    struct fake *f = enter();
    send_to("agent:x", "d1", "{}", false);
    for (int i = 0; i < 20; i++)
        enter_again(f);
    assert_int_equal(look("agent:x").parked, 0);
    for (uint32_t i = 1; i < rig.lim.max_attempts; i++) {
        assert_false(give_up(f, 0, false));
        enter_again(f);
    }
    send_to("agent:x", "d2", "{}", false);
    assert_true(give_up(f, 0, false));
    assert_int_equal(look("agent:x").parked, 1);
    assert_int_equal(inbound(f), 2);
}

static void what_is_no_use_is_parked_at_once_and_can_be_redriven_to_the_same_session(void **state)
{
    struct fake *f = enter();
    send_to("agent:x", "d1", "{}", false);
    assert_true(give_up(f, 0, true));
    assert_int_equal(look("agent:x").parked, 1);
    assert_int_equal(relay_parked_change(rig.relay, STR("acme"), STR("agent:x"), NULL, 0, false),
                     1);
    turn();
    assert_int_equal(inbound(f), 2);
    ack(f, 1);
    assert_int_equal(look("agent:x").entries, 0);
}

UNIT(relay_test_inside)
{
    const struct CMUnitTest tests[] = {
        PROMISE(mail_by_name_asks_nobody_and_is_one_delivery),
        PROMISE(quiet_mail_wakes_nobody_and_goes_along_with_the_next_that_does),
        PROMISE(an_agent_inside_gets_its_bodies_a_few_at_a_time),
        PROMISE(a_failure_is_an_attempt_and_a_lost_session_is_none),
        PROMISE(what_is_no_use_is_parked_at_once_and_can_be_redriven_to_the_same_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
