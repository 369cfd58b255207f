/* Promises of relay/in/allowance.h: deliveries are counted with their own transaction, what is over
 * is refused, and the person is told once per period. */
#include "relay/rig.h"
#include "base/zone.h"
#include "core/journal.h"
#include "relay/in/allowance.h"

static void on_set(void *ctx, enum bh_err err, const char *why)
{
    assert_int_equal(err, BH_OK);
}

static void allow(const char *instance, uint32_t turns, enum gate_period period, bool per_chat,
                  const char *reply)
{
    const struct gate_allowance a = {turns, period, per_chat, (char *)reply};

    grant_allowance(rig.facts, (struct grant_who){STR("acme"), str_of(instance)}, &a, on_set, NULL);
    turn();
}

static void write_as(const char *id, const char *user)
{
    struct event ev = make_event("a", id);

    ev.user_id = str_of(user);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}

static void count_record(void *ctx, struct str key, struct str value)
{
    ++*(size_t *)ctx;
}

static size_t n_records(const char *ns)
{
    size_t n = 0;

    assert_int_equal(rig.tap.inner->ops->load_records(rig.tap.inner, ns, STR(""), count_record, &n),
                     BH_OK);
    return n;
}

static size_t refused(void)
{
    return relay_counters(rig.relay)->over_allowance;
}

static void what_is_over_is_refused_and_told_once(void **state)
{
    struct fake *f = connect_as("gw-a");

    allow("ann", 2, GATE_DAY, false, "Enough for today.");
    publish("a", "e1");
    publish("a", "e2");
    publish("a", "e3");
    publish("a", "e4");
    assert_int_equal(accepted_ok(), 4);
    assert_int_equal(inbound(f), 2);
    assert_int_equal(refused(), 2);
    assert_int_equal(rig.acts, 1);
    assert_string_equal(rig.act_content, "Enough for today.");
    assert_string_equal(rig.act_chat, "c1");
}

static void each_person_has_their_own(void **state)
{
    struct fake *f = connect_as("gw-a");

    allow("ann", 1, GATE_DAY, false, NULL);
    write_as("e1", "u1");
    write_as("e2", "u2");
    write_as("e3", "u1");
    assert_int_equal(inbound(f), 2);
    assert_string_equal(rig.act_content,
                        "You have used up the 1 messages that you may send me today.");
}

static void a_chat_can_share_one(void **state)
{
    struct fake *f = connect_as("gw-a");

    allow("ann", 1, GATE_HOUR, true, NULL);
    write_as("e1", "u1");
    write_as("e2", "u2");
    assert_int_equal(inbound(f), 1);
    assert_string_equal(rig.act_content,
                        "The 1 messages that this chat may send me this hour are used up.");
}

static void a_repetition_does_not_count_and_is_not_refused(void **state)
{
    struct fake *f = connect_as("gw-a");

    allow("ann", 2, GATE_DAY, false, NULL);
    publish("a", "e1");
    publish("a", "e1");
    publish("a", "e2");
    assert_int_equal(inbound(f), 2);
    publish("a", "e2");
    assert_int_equal(refused(), 0);
    assert_int_equal(rig.acts, 0);
}

static void it_survives_a_restart_and_the_person_is_not_told_again(void **state)
{
    allow("ann", 2, GATE_DAY, false, NULL);
    publish("a", "e1");
    restart();
    publish("a", "e2");
    publish("a", "e3");
    assert_int_equal(rig.acts, 1);
    restart();
    publish("a", "e4");
    assert_int_equal(rig.acts, 1);
    assert_int_equal(look("ann").entries, 2);
    assert_int_equal(look("ann").allowance->turns, 2);
}

static void the_next_period_begins_anew(void **state)
{
    struct fake *f;

    allow("ann", 1, GATE_HOUR, false, NULL);
    publish("a", "e1");
    publish("a", "e2");
    advance(3600000);
    publish("a", "e3");
    publish("a", "e4");
    assert_int_equal(rig.acts, 2);
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 1, "e3"));
}

static void stops_and_presses_pass_and_others_have_no_limit(void **state)
{
    struct fake *a = connect_as("gw-a"), *b = connect_as("gw-b");
    struct event ev = make_event("a", "press");

    allow("ann", 1, GATE_DAY, false, NULL);
    publish("both", "e1");
    publish("both", "e2");
    assert_int_equal(inbound(a), 1);
    assert_int_equal(inbound(b), 2);
    publish_text("a", "e3", "/stop");
    advance(5000);
    assert_int_equal(inbound(a), 2);
    ev.press.prompt_id = STR("p");
    ev.press.option_id = STR("o");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(inbound(a), 3);
}

static void a_burst_counts_once(void **state)
{
    struct fake *f = connect_as("gw-a");

    allow("ann", 2, GATE_DAY, false, NULL);
    for (int i = 0; i < 4; i++) {
        char id[8];
        snprintf(id, sizeof id, "b%d", i);
        struct event ev = make_event("a", id);
        ev.burst_ms = 2000;
        relay_accept(rig.relay, &ev, on_accepted, NULL);
        turn();
    }
    advance(2000);
    publish("a", "e2");
    publish("a", "e3");
    assert_int_equal(inbound(f), 2);
    assert_int_equal(refused(), 1);
}

static void what_the_store_refuses_does_not_count(void **state)
{
    struct fake *f;

    publish("a", "e0"); /* the instance's record */
    allow("ann", 1, GATE_DAY, false, NULL);
    rig.tap.refuse = true;
    publish("a", "e1");
    rig.tap.refuse = false;
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 1);
    publish("a", "e1"); /* the platform repeats it */
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 2);
    publish("a", "e2");
    assert_int_equal(inbound(f), 2);
}

static void without_one_a_message_writes_no_more(void **state)
{
    struct fake *f = connect_as("gw-a");

    publish("a", "e0");
    ack(f, 0);
    size_t appends = rig.tap.appends, transactions = rig.tap.transactions;
    publish("a", "e1");
    ack(f, 1);
    assert_int_equal(rig.tap.transactions, transactions);
    allow("ann", 5, GATE_DAY, false, NULL);
    transactions = rig.tap.transactions;
    publish("a", "e2"); /* the count is part of the append */
    ack(f, 2);
    assert_int_equal(rig.tap.transactions, transactions);
    assert_int_equal(rig.tap.appends, appends + 2);
}

static void removing_it_lets_everything_through(void **state)
{
    struct fake *f = connect_as("gw-a");

    allow("ann", 1, GATE_DAY, false, NULL);
    publish("a", "e1");
    publish("a", "e2");
    grant_allowance(rig.facts, (struct grant_who){STR("acme"), STR("ann")}, NULL, on_set, NULL);
    turn();
    publish("a", "e3");
    assert_int_equal(inbound(f), 2);
    restart();
    assert_null(look("ann").allowance);
}

static void counts_of_past_periods_are_deleted(void **state)
{
    allow("ann", 9, GATE_HOUR, false, NULL);
    write_as("e1", "u1");
    write_as("e2", "u2");
    assert_int_equal(n_records("turns"), 2);
    advance(7200000);
    assert_int_equal(n_records("turns"), 0);
    write_as("e3", "u1");
    assert_int_equal(n_records("turns"), 1);
}

static bool on_record(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    if (rec->kind == JOURNAL_EVENT && str_eq(rec->message_id, STR("e2"))) {
        assert_int_equal(rec->n_verdicts, 1);
        assert_true(str_eq(rec->verdicts[0].reason, STR("allowance")));
        ++*(int *)ctx;
    }
    return true;
}

static void a_crowd_at_one_tenants_bot_frees_nobody_elsewhere(void **state)
{
    struct gate_allowance a = {.turns = 1, .period = GATE_DAY};
    const struct gate_instance mine = {.tenant = STR("acme"),
                                       .instance = STR("ann"),
                                       .allowance = &a};
    const struct gate_instance crowded = {.tenant = STR("crowd"),
                                          .instance = STR("bot"),
                                          .allowance = &a};
    struct gate_verdict v = {.to = &mine, .reason = GATE_YES_OPEN};
    struct event ev = make_event("a", "e1");
    char user[16];

    ev.user_id = STR("u1");
    allowance_count(rig.relay, &v, &ev);
    for (int i = 0; i < ALLOWANCE_COUNTS_MAX; i++) {
        snprintf(user, sizeof user, "made-up-%d", i);
        ev.user_id = str_of(user);
        allowance_count(rig.relay, &(struct gate_verdict){.to = &crowded}, &ev);
    }
    ev.user_id = STR("u1");
    allowances_judge(rig.relay, &ev, &v, 1);
    assert_int_equal(v.reason, GATE_NO_ALLOWANCE);
    turn();
}

static void why_has_the_reason(void **state)
{
    int found = 0;

    allow("ann", 1, GATE_MONTH, false, NULL);
    publish("a", "e1");
    publish("a", "e2");
    journal_each(relay_journal(rig.relay), on_record, &found);
    assert_int_equal(found, 1);
}

static void turns_are_read_as_people_write_them(void **state)
{
    uint32_t n;
    enum gate_period p;

    assert_true(grant_turns_parse(STR("50/day"), &n, &p) && n == 50 && p == GATE_DAY);
    assert_true(grant_turns_parse(STR("1/month"), &n, &p) && p == GATE_MONTH);
    static const char *const bad[] = {"",       "50",     "0/day",       "-1/day", "5/year",
                                      "5 /day", "5/day ", "9999999/day", "/day"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(grant_turns_parse(str_of(bad[i]), &n, &p));
}

static void zones_are_those_of_the_machine(void **state)
{
    char why[256];
    struct tm tm;

    assert_true(zone_exists("UTC", why));
    static const char *const bad[] = {"", "Mars/Base", "../etc/passwd", "/etc/passwd", "a b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(zone_exists(bad[i], why));
    zone_at(1700000000000, &tm);
    assert_int_equal(tm.tm_hour, 22);
    if (!zone_exists("Europe/Berlin", why))
        return; /* the machine has no tzdata */
    zone_use("Europe/Berlin");
    zone_at(1700000000000, &tm);
    assert_int_equal(tm.tm_hour, 23);
    zone_at(1720000000000, &tm);
    assert_int_equal(tm.tm_gmtoff, 7200);
    zone_use("UTC");
}

UNIT(relay_test_allowance)
{
    const struct CMUnitTest tests[] = {
#define ALLOWANCE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
        ALLOWANCE(what_is_over_is_refused_and_told_once),
        ALLOWANCE(each_person_has_their_own),
        ALLOWANCE(a_chat_can_share_one),
        ALLOWANCE(a_repetition_does_not_count_and_is_not_refused),
        ALLOWANCE(it_survives_a_restart_and_the_person_is_not_told_again),
        ALLOWANCE(the_next_period_begins_anew),
        ALLOWANCE(stops_and_presses_pass_and_others_have_no_limit),
        ALLOWANCE(a_burst_counts_once),
        ALLOWANCE(what_the_store_refuses_does_not_count),
        ALLOWANCE(without_one_a_message_writes_no_more),
        ALLOWANCE(removing_it_lets_everything_through),
        ALLOWANCE(counts_of_past_periods_are_deleted),
        ALLOWANCE(a_crowd_at_one_tenants_bot_frees_nobody_elsewhere),
        ALLOWANCE(why_has_the_reason),
        cmocka_unit_test(turns_are_read_as_people_write_them),
        cmocka_unit_test(zones_are_those_of_the_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
