/* Promises of relay.h to those who look: views, showing, purging and redriving mailboxes. */
#include "relay/rig.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"

struct shown {
    size_t n, parked, sent;
    uint32_t attempts;
    char reason[128];
    bool done;
    enum bh_err err;
};
static struct shown shown;

static void on_shown_line(void *ctx, const struct mailbox_line *line)
{
    shown.n++;
    shown.sent += line->sent;
    shown.attempts = line->attempts;
    assert_true(str_contains(line->frame, STR(INBOUND)));
    if (line->parked.p != NULL) {
        shown.parked++;
        snprintf(shown.reason, sizeof shown.reason, "%.*s", STR_FMT(line->parked));
    }
}
static void on_shown_all(void *ctx, enum bh_err err)
{
    shown.done = true;
    shown.err = err;
}
static void show(const char *instance, size_t limit)
{
    shown = (struct shown){0};
    relay_mailbox_show(rig.relay, STR("acme"), str_of(instance), limit, on_shown_line, on_shown_all,
                       NULL);
    assert_false(shown.done);
    turn();
    assert_true(shown.done);
}
static void few_attempts(void)
{
    struct relay_limits lim = rig.lim;
    lim.max_attempts = 1;
    relay_set_limits(rig.relay, &lim);
}
static uint64_t redrive(void)
{
    uint64_t n = relay_parked_change(rig.relay, STR("acme"), STR("ann"), NULL, 0, false);
    turn();
    return n;
}

static void a_view_tells_what_waits(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    struct instance_view v = look("ann");
    assert_string_equal(v.state, "live");
    assert_int_equal(v.sessions, 1);
    assert_int_equal(v.entries, 1);
    assert_int_equal(v.unacked, 1);
    assert_true(v.bytes > 100);
    assert_true(v.wake_url);
    assert_int_equal(v.oldest_ms, 1700000005000);
    assert_int_equal(v.last_inbound_ms, 1700000005000);
    ack(f, 0);
    v = look("ann");
    assert_int_equal(v.entries + v.unacked + v.bytes, 0);
}

static void when_it_was_last_busy_survives_a_crash(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    int64_t in = look("ann").last_inbound_ms;
    advance(250);
    restart();
    assert_int_equal(look("ann").last_inbound_ms, in);
    assert_int_equal(look("ann").last_outbound_ms, 0);
    f = connect_as("gw-a");
    say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"send\","
           "\"chat_id\":\"c1\",\"content\":\"x\"}}");
    int64_t out = look("ann").last_outbound_ms;
    assert_true(out > in);
    advance(250);
    restart();
    assert_int_equal(look("ann").last_outbound_ms, out);
}

static void when_it_was_last_busy_is_one_write_for_many_messages(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ack(f, 0);
    advance(1000);
    rig.tap.transactions = 0;
    for (int n = 0; n < 8; n++) {
        char id[8];
        snprintf(id, sizeof id, "x%d", n);
        publish("a", id);
        say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"send\","
               "\"chat_id\":\"c1\",\"content\":\"x\"}}");
    }
    advance(250);
    assert_int_equal(rig.tap.transactions, 1);
}

static void every_instance_is_listed(void **state)
{
    struct instance_view v;
    struct relay_tally t;
    uint32_t pos = 0;

    relay_tally(rig.relay, &t);
    assert_int_equal(t.in_state[RELAY_NEVER], 2); /* without mailboxes yet */
    publish("both", "e1");
    assert_true(relay_next_instance(rig.relay, &pos, &v));
    struct str first = v.instance;
    assert_true(relay_next_instance(rig.relay, &pos, &v));
    assert_false(str_eq(first, v.instance));
    assert_false(relay_next_instance(rig.relay, &pos, &v));
    relay_tally(rig.relay, &t);
    assert_int_equal(t.in_state[RELAY_NEVER], 2);
    assert_int_equal(t.entries, 2);
}

static void the_tally_of_many_instances_is_counted_in_rounds(void **state)
{
    struct relay_tally t;
    char name[32];

    publish("a", "e1");
    relay_tally(rig.relay, &t);
    assert_int_equal(t.entries, 1);
    for (size_t i = 0; i < RELAY_TALLY_AT_ONCE + 50; i++) {
        snprintf(name, sizeof name, "many-%zu", i);
        assert_non_null(instance_get(rig.relay, STR("acme"), str_of(name)));
    }
    relay_tally(rig.relay, &t);
    uint64_t all = t.in_state[RELAY_NEVER] + t.in_state[RELAY_LIVE] + t.in_state[RELAY_AWAY] +
                   t.in_state[RELAY_ASLEEP];
    assert_in_range(all, RELAY_TALLY_AT_ONCE + 51, RELAY_TALLY_AT_ONCE + 60);
    publish("a", "e2");
    relay_tally(rig.relay, &t);
    assert_int_equal(t.entries, 1); /* of the last round */
    advance(RELAY_TALLY_MS);
    advance(10);
    relay_tally(rig.relay, &t);
    assert_int_equal(t.entries, 2);
}

static void a_mailbox_shows_its_lines_up_to_the_limit(void **state)
{
    publish("a", "e1");
    publish("a", "e2");
    show("ann", 10);
    assert_int_equal(shown.n, 2);
    show("ann", 1);
    assert_int_equal(shown.n, 1);
    show("nobody", 1);
    assert_int_equal(shown.err, BH_NOT_FOUND);
}

static void a_parked_line_shows_its_reason(void **state)
{
    few_attempts();
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    hang_up(f, 1006);
    show("ann", 10);
    assert_int_equal(shown.parked, 1);
    assert_non_null(strstr(shown.reason, "1 socket was lost with it"));
}

static void however_much_is_purged_a_turn_takes_some_of_it(void **state)
{
    enum { MANY = 9000, A_TURN = 4096 };
    char id[16];

    for (int k = 0; k < MANY; k++) {
        snprintf(id, sizeof id, "e%d", k);
        offer("a", id);
        if (k % 500 == 0)
            turn();
    }
    turn();
    restart(); /* the bytes are on disk only */
    assert_int_equal(rows(), MANY);
    rig.tap.acked_ids = 0;
    assert_int_equal(relay_mailbox_purge(rig.relay, STR("acme"), STR("ann")), MANY);
    assert_int_equal(look("ann").entries, 0);
    for (size_t before = 0; rig.tap.acked_ids < MANY; before = rig.tap.acked_ids) {
        clock_turn(rig.clock);
        assert_true(rig.tap.acked_ids - before <= A_TURN);
    }
    publish("a", "next"); /* and life goes on meanwhile */
    turn();
    assert_int_equal(rows(), 1);
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
}

static void a_purge_empties_the_mailbox_and_answers_who_waits(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    rig.tap.hold = true;
    publish("a", "e2");
    assert_int_equal(relay_mailbox_purge(rig.relay, STR("acme"), STR("ann")), 2);
    turn();
    rig_release();
    assert_int_equal(accepted_ok(), 2);
    assert_int_equal(rows(), 0);
    assert_int_equal(look("ann").entries, 0);
    publish("a", "e3");
    ack(f, 1); /* a late ack of something purged is harmless */
    assert_int_equal(inbound(f), 3);
}

static uint64_t last_id;

static void note_id(void *ctx, const struct mailbox_line *line)
{
    last_id = line->id;
}

static void what_was_read_without_a_socket_is_settled_up_to_where_it_was_read(void **state)
{
    for (int i = 0; i < 5; i++) {
        char id[8];
        snprintf(id, sizeof id, "e%d", i);
        publish("a", id);
    }
    relay_mailbox_show(rig.relay, STR("acme"), STR("ann"), 3, note_id, on_shown_all, NULL);
    turn();
    assert_int_equal(look("ann").entries, 5); /* a look takes nothing */
    assert_int_equal(relay_mailbox_take(rig.relay, STR("acme"), STR("ann"), last_id), 3);
    assert_int_equal(relay_mailbox_take(rig.relay, STR("acme"), STR("ann"), last_id), 0);
    assert_int_equal(relay_mailbox_take(rig.relay, STR("acme"), STR("nobody"), last_id), 0);
    turn();
    assert_int_equal(look("ann").entries, 2);
    restart();
    assert_int_equal(look("ann").entries, 2);
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 2); /* the rest, once, to whoever connects */
}

static char chats_seen[256];

static void on_chat(void *ctx, const struct chat_line *line)
{
    size_t n = strlen(chats_seen);
    snprintf(chats_seen + n, sizeof chats_seen - n, "%.*s/%.*s ", STR_FMT(line->platform),
             STR_FMT(line->chat_id));
}

static void the_chats_of_an_instance_are_those_it_was_written_to_from(void **state)
{
    chats_seen[0] = '\0';
    relay_chats_show(rig.relay, STR("acme"), STR("ann"), STR_NULL, 10, on_chat, on_shown_all, NULL);
    turn();
    assert_string_equal(chats_seen, "");
    publish("a", "e1");
    publish("a", "e2");
    relay_chats_show(rig.relay, STR("acme"), STR("ann"), STR_NULL, 10, on_chat, on_shown_all, NULL);
    relay_chats_show(rig.relay, STR("acme"), STR("an"), STR_NULL, 10, on_chat, on_shown_all, NULL);
    relay_chats_show(rig.relay, STR("acm"), STR("ann"), STR_NULL, 10, on_chat, on_shown_all, NULL);
    turn();
    assert_non_null(strstr(chats_seen, "/"));
    assert_ptr_equal(strchr(chats_seen, '/'), strrchr(chats_seen, '/')); /* one chat, once */
    relay_chats_show(rig.relay, STR("acme"), STR("ann"), STR_NULL, 10, on_chat, on_shown_all, NULL);
    /* and a relay that goes forgets who asked */
}

static void the_chats_are_read_on_from_any_of_them(void **state)
{
    publish("a", "e1");
    chats_seen[0] = '\0';
    relay_chats_show(rig.relay, STR("acme"), STR("ann"), STR_NULL, 10, on_chat, on_shown_all, NULL);
    turn();
    char *slash = strchr(chats_seen, '/');
    assert_non_null(slash);
    struct str platform = str_make(chats_seen, (size_t)(slash - chats_seen));
    struct str id = str_trim(str_of(slash + 1));
    assert_true(relay_has_chat(rig.relay, STR("acme"), STR("ann"), platform, id));
    assert_false(relay_has_chat(rig.relay, STR("acme"), STR("ann"), STR("smoke"), id));
    assert_false(relay_has_chat(rig.relay, STR("acme"), STR("ann"), platform, STR("x")));
    assert_false(relay_has_chat(rig.relay, STR("acme"), STR("bob"), platform, id));
    assert_false(relay_has_chat(rig.relay, STR("zorg"), STR("ann"), platform, id));
    struct buf last = BUF_INIT;
    buf_printf(&last, "%.*s\x1f%.*s", STR_FMT(platform), STR_FMT(id));
    chats_seen[0] = '\0';
    relay_chats_show(rig.relay, STR("acme"), STR("ann"), buf_str(&last), 10, on_chat, on_shown_all,
                     NULL);
    buf_done(&last);
    turn();
    assert_string_equal(chats_seen, "");
}

static struct {
    int came, gone, new_chats;
} mail;

static void on_mail_news(void *ctx, const struct mail_news *news)
{
    assert_str(news->tenant, "acme");
    assert_str(news->instance, "ann");
    if (news->chat_id.p != NULL)
        mail.came++;
    else
        mail.gone++;
    mail.new_chats += news->new_chat;
}

static void whoever_watches_the_mail_hears_what_comes_and_goes(void **state)
{
    publish("a", "e0");
    memset(&mail, 0, sizeof mail);
    relay_watch_mail(rig.relay, on_mail_news, NULL);
    publish("a", "e1");
    publish("a", "e1"); /* a repetition is no news */
    assert_int_equal(mail.came, 1);
    assert_int_equal(mail.new_chats, 0);
    assert_int_equal(mail.gone, 0);
    relay_mailbox_purge(rig.relay, STR("acme"), STR("ann"));
    assert_true(mail.gone > 0);
    struct fake *f = connect_as("gw-a");
    mail.gone = 0;
    publish("a", "e2");
    ack(f, 0);
    assert_int_equal(mail.came, 2);
    assert_int_equal(mail.gone, 1);
    hang_up(f, 1000);
    assert_int_equal(mail.gone, 2); /* others may read it now */
    relay_watch_mail(rig.relay, NULL, NULL);
    publish("a", "e3");
    assert_int_equal(mail.came, 2);
}

static void a_redriven_delivery_goes_to_the_socket_that_was_never_sent_it(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    few_attempts();
    hang_up(f, 1006);
    f = connect_as("gw-a");
    publish("a", "e2");
    assert_int_equal(inbound(f), 1);
    assert_int_equal(redrive(), 1);
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 1, "e1"));
    ack(f, 0);
    ack(f, 1);
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(look("ann").parked, 0);
}

static void a_redriven_delivery_never_goes_twice_down_one_socket(void **state)
{
    struct fake *old = connect_as("gw-a");
    publish("a", "e1");
    few_attempts();
    struct fake *young = connect_as("gw-a"); /* left behind with e1: one attempt, parked */
    assert_int_equal(look("ann").parked, 1);
    hang_up(young, 1006);
    assert_int_equal(redrive(), 1);
    assert_int_equal(inbound(old), 1);
    struct fake *next = connect_as("gw-a");
    publish("a", "e2");
    assert_true(is_event(next, 0, "e1")); /* its old place: first */
    assert_true(is_event(next, 1, "e2"));
}

static void redrive_one(const struct fake *f, uint32_t at)
{
    uint64_t id = mailbox_at(&f->s->inst->mb, at)->id;

    assert_int_equal(relay_parked_change(rig.relay, STR("acme"), STR("ann"), &id, 1, false), 1);
    turn();
}

/* e2 lies between e1 and e3, which are one message, and is acked by a socket that had it before. */
static void a_redriven_delivery_that_was_never_sent_makes_no_room(void **state)
{
    struct fake *old = connect_as("gw-a");
    publish("a", "e1");
    publish("a", "e2");
    publish("a", "e3");
    few_attempts();
    struct fake *young = connect_as("gw-a");
    assert_int_equal(look("ann").parked, 3);
    relay_set_limits(rig.relay, &rig.lim);
    hang_up(young, 1006);
    redrive_one(old, 0);
    redrive_one(old, 2);
    struct fake *next = connect_as("gw-a");
    assert_int_equal(inbound(next), 2);
    for (int k = 0; k < 8; k++) {
        char name[8];
        snprintf(name, sizeof name, "f%d", k);
        publish("a", name);
    }
    assert_int_equal(inbound(next), 2 + 7); /* the window is full */
    redrive_one(next, 1);
    ack(old, 1);
    ack(next, 0);
    assert_int_equal(inbound(next), 2 + 7); /* e3 is unacked */
    ack(next, 1);
    assert_int_equal(inbound(next), 2 + 8);
}

static void a_redrive_counts_from_zero(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    few_attempts();
    hang_up(f, 1006);
    relay_set_limits(rig.relay, &rig.lim);
    redrive();
    show("ann", 1);
    assert_int_equal(shown.attempts, 0);
    restart();
    assert_int_equal(look("ann").parked, 0);
}

/* More instances than one turn may visit. */
static void all_dead_letters_are_changed_in_steps(void **state)
{
    struct parked_walk none = {.tenant = STR("acm")}, ours = {.tenant = STR("acme")},
                       drop = {.drop = true};
    char name[16];
    int steps = 1;

    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    publish("a", "e2");
    few_attempts();
    hang_up(f, 1006);
    assert_int_equal(look("ann").parked, 2);
    for (unsigned k = 0; k <= PARKED_STEP; k++) {
        snprintf(name, sizeof name, "i%u", k);
        assert_non_null(instance_get(rig.relay, STR("acme"), str_of(name)));
    }
    for (; relay_parked_step(rig.relay, &none); steps++)
        turn();
    assert_in_range(steps, 2, 3);
    assert_int_equal(none.done, 0);
    while (relay_parked_step(rig.relay, &ours))
        turn();
    assert_int_equal(ours.done, 2);
    assert_int_equal(look("ann").parked, 0);
    f = connect_as("gw-a");
    assert_true(is_event(f, 0, "e1"));
    assert_true(is_event(f, 1, "e2"));
    hang_up(f, 1006);
    while (relay_parked_step(rig.relay, &drop))
        turn();
    assert_int_equal(drop.done, 2);
    assert_int_equal(look("ann").entries, 0);
}

/* ---- forgetting a person ---- */

static struct {
    int told;
    struct relay_forgot got;
} forgot;

static void on_forgotten(void *ctx, enum bh_err err, const struct relay_forgot *got)
{
    assert_int_equal(err, BH_OK);
    forgot.told++;
    forgot.got = *got;
}

static void what_somebody_wrote_is_settled_and_what_quotes_them_is_counted(void **state)
{
    static const struct event_said said = {.text = STR("hush"), .user_id = STR("u1")};
    struct event by_other = make_event("b", "e2");
    struct fake *b = connect_as("gw-b"); /* of those that read what was said before */

    say(b, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"typing\","
           "\"chat_id\":\"c1\"}}");
    hang_up(b, 1000);
    publish("a", "e1");
    by_other.user_id = by_other.chat_id = STR("u2");
    by_other.chat_type = STR("group");
    by_other.mentions_bot = true;
    by_other.context = &said;
    by_other.n_context = 1;
    relay_accept(rig.relay, &by_other, on_accepted, NULL);
    turn();
    forgot.told = 0;
    relay_forget_mail(rig.relay, STR("web"), STR("u1"), true, on_forgotten, NULL);
    assert_int_equal(forgot.told, 0);
    turn();
    assert_int_equal(look("ann").entries, 1);
    relay_forget_mail(rig.relay, STR("web"), STR("u1"), false, on_forgotten, NULL);
    turn();
    assert_int_equal(forgot.told, 2);
    assert_int_equal(forgot.got.n, 1);
    assert_int_equal(forgot.got.quoted, 1);
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(look("bob").entries, 1);
}

static void however_many_instances_there_are_a_turn_looks_at_some_of_them(void **state)
{
    char name[16];
    int turns = 0;

    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "i%d", i);
        assert_non_null(instance_get(rig.relay, STR("acme"), str_of(name)));
    }
    forgot.told = 0;
    relay_forget_mail(rig.relay, STR("web"), STR("u1"), false, on_forgotten, NULL);
    for (; forgot.told == 0 && turns < 100; turns++)
        clock_turn(rig.clock);
    assert_in_range(turns, 3, 10);
    assert_int_equal(forgot.got.n, 0);
}

UNIT(relay_test_look)
{
    const struct CMUnitTest tests[] = {
        PROMISE(a_view_tells_what_waits),
        PROMISE(the_tally_of_many_instances_is_counted_in_rounds),
        PROMISE(when_it_was_last_busy_survives_a_crash),
        PROMISE(when_it_was_last_busy_is_one_write_for_many_messages),
        PROMISE(every_instance_is_listed),
        PROMISE(a_mailbox_shows_its_lines_up_to_the_limit),
        PROMISE(a_parked_line_shows_its_reason),
        PROMISE(all_dead_letters_are_changed_in_steps),
        PROMISE(a_purge_empties_the_mailbox_and_answers_who_waits),
        PROMISE(however_much_is_purged_a_turn_takes_some_of_it),
        PROMISE(what_was_read_without_a_socket_is_settled_up_to_where_it_was_read),
        PROMISE(the_chats_of_an_instance_are_those_it_was_written_to_from),
        PROMISE(the_chats_are_read_on_from_any_of_them),
        PROMISE(whoever_watches_the_mail_hears_what_comes_and_goes),
        PROMISE(a_redriven_delivery_goes_to_the_socket_that_was_never_sent_it),
        PROMISE(a_redriven_delivery_never_goes_twice_down_one_socket),
        PROMISE(a_redriven_delivery_that_was_never_sent_makes_no_room),
        PROMISE(a_redrive_counts_from_zero),
        PROMISE(what_somebody_wrote_is_settled_and_what_quotes_them_is_counted),
        PROMISE(however_many_instances_there_are_a_turn_looks_at_some_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
