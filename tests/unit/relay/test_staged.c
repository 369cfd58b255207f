/* Promises of relay/in/staged.h: an event waits for its files and its context as one row on disk,
 * its chat behind it, and enters with them or with a word about what is missing. */
#include "relay/rig.h"
#include "core/journal.h"
#include "relay/in/staged.h"

struct ask {
    struct handle id;
    size_t file;
    bool context;
};
static struct ask asks[8192];
static size_t n_asks, n_drops;
static int64_t wait_ms;
static bool of_several;    /* tenants; else every file is acme's */
static char asked_for[16]; /* the tenant of the last file */

static void on_fetch(struct outside *o, struct handle id, size_t file, const struct event *ev,
                     struct str tenant)
{
    assert_true(of_several || str_eq(tenant, STR("acme")));
    assert_true(ev->media[file].ref.n > 0);
    snprintf(asked_for, sizeof asked_for, "%.*s", STR_FMT(tenant));
    asks[n_asks++] = (struct ask){id, file, false};
}

static void on_context(struct outside *o, struct handle id, const struct event *ev)
{
    assert_true(ev->wants_context);
    asks[n_asks++] = (struct ask){id, 0, true};
}

static void on_drop(struct outside *o, struct handle id)
{
    n_drops++;
}

static int64_t how_long(struct outside *o)
{
    return wait_ms;
}

static int setup_staged(void **state)
{
    setup(state);
    n_asks = n_drops = 0;
    wait_ms = 60000;
    of_several = false;
    rig.outside.fetch = on_fetch;
    rig.outside.context = on_context;
    rig.outside.drop = on_drop;
    rig.outside.wait_ms = how_long;
    return 0;
}

/* A file per letter of @files: 'f' only bellhop can fetch, '+' has an address that fades. */
static struct accept_id offer_files(const char *key, const char *id, const char *chat,
                                    const char *files)
{
    struct event_media room[4];
    struct event ev = make_event(key, id);

    ev.chat_id = str_of(chat);
    ev.text = str_of(id);
    ev.media = room;
    for (; *files != '\0'; files++)
        room[ev.n_media++] =
            (struct event_media){.ref = STR("r"),
                                 .url = *files == '+' ? STR("https://x.example/y") : STR_NULL,
                                 .type = STR("image/png")};
    return relay_accept(rig.relay, &ev, on_accepted, NULL);
}

static struct accept_id take(const char *key, const char *id, const char *chat, const char *files)
{
    struct accept_id a = offer_files(key, id, chat, files);

    turn();
    return a;
}

static void here(size_t n)
{
    relay_file_here(rig.relay, asks[n].id, asks[n].file,
                    &(struct relay_file){STR("0123456789abcdef0123456789abcdef"), STR("image/png"),
                                         7});
    turn();
}

static void lost(size_t n, const char *why)
{
    relay_file_lost(rig.relay, asks[n].id, asks[n].file, why);
    turn();
}

/* ---- the promises ---- */

static void an_event_that_waits_for_nothing_is_routed_judged_and_written_once(void **state)
{
    struct fake *f = connect_as("gw-a");
    const struct relay_counters *c = relay_counters(rig.relay);

    publish("a", "e0"); /* the chat is new */
    ack(f, 0);
    struct relay_counters was = *c;
    size_t appends = rig.tap.appends, transactions = rig.tap.transactions;
    publish("a", "e1");
    ack(f, 1);
    assert_int_equal(c->routings - was.routings, 1);
    assert_int_equal(c->judgements - was.judgements, 1);
    assert_int_equal(rig.tap.appends - appends, 1);
    assert_int_equal(rig.tap.transactions, transactions);
}

static void it_is_received_when_it_is_on_disk_and_enters_with_its_files(void **state)
{
    struct fake *f = connect_as("gw-a");

    rig.tap.hold = true;
    take("a", "look", "c1", "ff");
    assert_int_equal(accepted_ok(), 0);
    assert_int_equal(n_asks, 0);
    rig_release();
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(n_asks, 2);
    assert_int_equal(rows(), 1);
    here(1);
    assert_int_equal(inbound(f), 0);
    here(0);
    assert_int_equal(inbound(f), 1);
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("bellhop:media/0123456789abcdef")));
    ack(f, 0);
    advance(1000);
    assert_int_equal(rows(), 0);
    assert_int_equal(relay_waiting(rig.relay), 0);
}

static void one_row_waits_for_all_and_goes_with_their_deliveries(void **state)
{
    take("both", "look", "c1", "f");
    assert_int_equal(rows(), 1);
    size_t appends = rig.tap.appends, acks = rig.tap.acks;
    here(0);
    assert_int_equal(rig.tap.appends - appends, 2);
    assert_int_equal(rig.tap.acks, acks); /* the appends removed it */
    assert_int_equal(rows(), 2);
    assert_int_equal(look("ann").entries, 1);
    assert_int_equal(look("bob").entries, 1);
}

static void its_chat_waits_behind_it_in_order_and_no_other_does(void **state)
{
    struct fake *f = connect_as("gw-a");

    take("a", "one", "c1", "f");
    take("a", "two", "c1", "");
    take("a", "three", "c1", "f");
    take("a", "elsewhere", "c2", "");
    assert_int_equal(accepted_ok(), 4);
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "elsewhere"));
    publish_text("a", "s", "/stop"); /* what stops an agent waits for no picture */
    advance(3000);
    assert_true(is_event(f, 1, "s"));
    here(1);
    assert_int_equal(inbound(f), 2);
    here(0);
    assert_int_equal(inbound(f), 5);
    assert_true(is_event(f, 2, "one") && is_event(f, 3, "two") && is_event(f, 4, "three"));
}

static void who_comes_while_it_enters_follows_and_is_written_once(void **state)
{
    struct fake *f = connect_as("gw-a");
    const struct relay_counters *c = relay_counters(rig.relay);

    take("a", "zero", "c1", "");
    ack(f, 0);
    take("a", "one", "c1", "f");
    rig.tap.hold = true;
    here(0); /* sent, and on its way to the disk */
    assert_int_equal(inbound(f), 2);
    struct relay_counters was = *c;
    size_t appends = rig.tap.appends;
    take("a", "two", "c1", "");
    take("a", "three", "c1", "");
    take("a", "elsewhere", "c2", "");
    assert_true(is_event(f, 2, "elsewhere"));
    assert_int_equal(accepted_ok(), 2);
    rig_release();
    assert_int_equal(accepted_ok(), 5);
    assert_true(is_event(f, 3, "two") && is_event(f, 4, "three"));
    assert_int_equal(rig.tap.appends - appends, 3);
    assert_int_equal(c->routings - was.routings, 3);
    assert_int_equal(c->judgements - was.judgements, 5); /* again when it is its turn */
}

static void what_does_not_come_is_said(void **state)
{
    struct fake *f = connect_as("gw-a");

    take("a", "look", "c1", "ff");
    lost(0, "nobody knows it");
    here(1);
    assert_true(str_contains(line_with(f, INBOUND, 0),
                             STR("\"look\\n[a file is missing: nobody knows it]\"")));
}

static void what_comes_too_late_is_missing_and_keeps_nobody(void **state)
{
    struct fake *f = connect_as("gw-a");

    wait_ms = 5000;
    take("a", "late", "c1", "f");
    take("a", "next", "c1", "");
    advance(4500);
    assert_int_equal(inbound(f), 0);
    advance(1000);
    assert_int_equal(inbound(f), 2);
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("late\\n[a file is missing: ")));
    assert_true(n_drops > 0);
    here(0); /* harmless */
    assert_int_equal(inbound(f), 2);
}

static void a_start_goes_on_with_what_was_received(void **state)
{
    take("a", "one", "c1", "f");
    take("a", "two", "c1", "");
    rig.web.platform = "not yet"; /* platforms open after the relay */
    n_asks = 0;
    restart();
    assert_int_equal(relay_waiting(rig.relay), 2);
    assert_int_equal(n_asks, 0);
    rig.web.platform = "web";
    relay_bot_opened(rig.relay, STR("web"), STR("lobby"));
    turn();
    assert_int_equal(n_asks, 1);
    here(0);
    struct fake *f = connect_as("gw-a");
    assert_true(is_event(f, 0, "one") && is_event(f, 1, "two"));
    ack(f, 0);
    ack(f, 1);
    advance(1000);
    restart();
    assert_int_equal(relay_waiting(rig.relay), 0);
    assert_int_equal(look("ann").entries, 0);
}

static void a_platform_that_never_opens_keeps_nobody_for_long(void **state)
{
    take("a", "one", "c1", "f");
    rig.web.platform = "gone";
    restart();
    advance(61000);
    assert_int_equal(relay_waiting(rig.relay), 0);
    assert_int_equal(look("ann").entries, 1);
}

static void a_mailbox_that_is_full_is_tried_again(void **state)
{
    struct relay_limits lim = rig.lim;

    take("a", "one", "c1", "f");
    lim.max_mailbox_bytes = 1;
    relay_set_limits(rig.relay, &lim);
    here(0);
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(relay_waiting(rig.relay), 1);
    relay_set_limits(rig.relay, &rig.lim);
    advance(1500);
    assert_int_equal(look("ann").entries, 1);
    assert_int_equal(rows(), 1);
}

static void what_the_store_refuses_while_it_enters_is_not_lost(void **state)
{
    take("both", "one", "c1", "f");
    rig.tap.refuse = true;
    here(0);
    assert_int_equal(relay_waiting(rig.relay), 1);
    rig.tap.refuse = false;
    advance(3000);
    assert_int_equal(relay_waiting(rig.relay), 0);
    assert_int_equal(look("ann").entries, 1);
    assert_int_equal(look("bob").entries, 1);
    assert_int_equal(rows(), 2);
}

static void what_the_store_refuses_when_it_comes_is_sent_again(void **state)
{
    rig.tap.refuse = true;
    take("a", "one", "c1", "f");
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 1);
    assert_int_equal(relay_waiting(rig.relay), 0);
    rig.tap.refuse = false;
    take("a", "one", "c1", "f");
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(relay_waiting(rig.relay), 1);
}

static void the_same_event_again_is_the_same(void **state)
{
    struct fake *f = connect_as("gw-a");

    rig.tap.hold = true;
    take("a", "one", "c1", "f");
    take("a", "one", "c1", "f");
    assert_int_equal(accepted_ok(), 0);
    rig_release();
    assert_int_equal(accepted_ok(), 2);
    take("a", "one", "c1", "f");
    assert_int_equal(accepted_ok(), 3);
    assert_int_equal(n_asks, 1);
    here(0);
    take("a", "one", "c1", "f"); /* it has entered */
    assert_int_equal(accepted_ok(), 4);
    assert_int_equal(n_asks, 1);
    assert_int_equal(inbound(f), 1);
    assert_int_equal(relay_waiting(rig.relay), 0);
}

static void nothing_is_fetched_for_nobody(void **state)
{
    take("nobody", "spam", "c1", "f");
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(n_asks, 0);
    assert_int_equal(rows(), 0);
}

static void a_revocation_counts_while_it_waits(void **state)
{
    take("both", "one", "c1", "f");
    const struct route_spec to_bob = {.platform = STR("web"),
                                      .key = STR("both"),
                                      .tenant = STR("acme"),
                                      .instance = STR("bob")};
    facts_route_remove(rig.facts, &to_bob, rig_changed_fact, NULL);
    turn();
    add_route("both", "cleo"); /* who came later does not get it */
    here(0);
    assert_int_equal(look("ann").entries, 1);
    assert_int_equal(look("bob").entries, 0);
    assert_int_equal(look("cleo").entries, 0);
    assert_int_equal(rows(), 1);
}

static void whoever_calls_off_is_not_told_and_the_event_goes_on(void **state)
{
    struct accept_id id = offer_files("a", "one", "c1", "f");

    relay_accept_cancel(rig.relay, id);
    turn();
    assert_int_equal(accepted_ok(), 0);
    here(0);
    assert_int_equal(look("ann").entries, 1);
    relay_accept_cancel(rig.relay, id); /* harmless */
}

static void a_platform_that_closes_is_asked_again_when_it_opens(void **state)
{
    take("a", "one", "c1", "f");
    assert_int_equal(n_asks, 1);
    relay_bot_closed(rig.relay, STR("web"), STR("lobby"));
    here(0); /* too late: nobody asks for it now */
    assert_int_equal(look("ann").entries, 0);
    relay_bot_opened(rig.relay, STR("web"), STR("lobby"));
    assert_int_equal(n_asks, 2);
    here(1);
    assert_int_equal(look("ann").entries, 1);
}

static void an_address_that_fades_is_kept_for_who_sleeps(void **state)
{
    struct fake *f = connect_as("gw-a");

    take("a", "awake", "c1", "+");
    assert_int_equal(n_asks, 0);
    assert_int_equal(inbound(f), 1);
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("https://x.example/y")));
    hang_up(f, 1006);
    take("a", "asleep", "c1", "++");
    assert_int_equal(n_asks, 2);
    here(0);
    lost(1, "its address answered with status 404");
    f = connect_as("gw-a");
    struct str line = line_with(f, "asleep", 0);
    assert_true(str_contains(line, STR("bellhop:media/0123456789abcdef")));
    assert_true(str_contains(line, STR("[the address of a file may not hold: its address answered "
                                       "with status 404]")));
    assert_true(str_contains(line, STR("https://x.example/y")));
}

static void who_is_awake_gets_the_address_also_behind_another(void **state)
{
    struct fake *f = connect_as("gw-a");

    take("a", "one", "c1", "f");
    take("a", "two", "c1", "+");
    take("a", "three", "c1", "+f");
    assert_int_equal(n_asks, 2);
    here(1);
    here(0);
    assert_int_equal(inbound(f), 3);
    assert_true(
        str_contains(line_with(f, "\"message_id\":\"two\"", 0), STR("https://x.example/y")));
    assert_true(str_contains(line_with(f, "\"message_id\":\"three\"", 0), STR("bellhop:media/")));
}

static void its_context_is_waited_for_where_somebody_reads_it(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("a", "one");

    ev.wants_context = true;
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(n_asks, 0); /* an older gateway */
    assert_int_equal(inbound(f), 1);
    facts_gateway_is_newer(rig.facts, STR("gw-a"));
    turn();
    ev.event_id = ev.message_id = STR("two");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(n_asks, 1);
    assert_int_equal(inbound(f), 1);
    const struct event_said said = {STR("before"), STR("m0"), STR("u2"), STR("Bob")};
    relay_context(rig.relay, asks[0].id, &said, 1, false);
    relay_context(rig.relay, asks[0].id, &said, 1, true); /* twice does nothing */
    turn();
    assert_true(str_contains(line_with(f, INBOUND, 1), STR("\"text\":\"before\"")));
    ev.event_id = ev.message_id = STR("three");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    relay_context(rig.relay, asks[1].id, NULL, 0, true);
    turn();
    assert_true(str_contains(line_with(f, INBOUND, 2), STR("\"context_error\":true")));
    ev.event_id = ev.message_id = STR("four"); /* it comes with its context: nothing to wait for */
    ev.wants_context = false;
    ev.context = &said;
    ev.n_context = 1;
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_true(str_contains(line_with(f, INBOUND, 3), STR("\"text\":\"before\"")));
    assert_int_equal(n_asks, 2);
}

/* ---- who can see the chat ---- */

static enum gate_sight sight;
static enum gate_sight sees(const struct event *ev, struct str user)
{
    return sight;
}

/* Ann's instance has the guild g1 and listens to everybody; the platform knows nobody there yet. */
static struct fake *cold_cache(void)
{
    const struct grant_who ann = {STR("acme"), STR("ann")};

    rig.sees = sees;
    rig.web.knows_sight = true;
    sight = GATE_SIGHT_ASKED;
    link_user(ann, "web", "owner", NULL);
    grant_scope_claim(rig.facts, ann, (struct grant_place){STR("web"), STR("g1"), STR("*")},
                      GRANT_CLAIMED, rig_changed_fact, NULL);
    grant_principal(rig.facts, ann, STR("web"), GATE_ANY, NULL, 0, rig_changed_fact, NULL);
    turn();
    return connect_as("gw-a");
}

static void say_in_guild(const char *id, const char *user)
{
    struct event ev = make_event("nowhere", id);

    ev.scope_id = STR("g1");
    ev.chat_type = STR("group");
    ev.user_id = str_of(user);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}

static void answer_sight(enum gate_sight now, const char *guild)
{
    sight = now;
    relay_sight(rig.relay, STR("web"), STR("lobby"), str_of(guild));
    turn();
}

static int last_reason;
static bool on_record(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    if (rec->kind != JOURNAL_EVENT)
        return true;
    for (int r = 0; rec->n_verdicts > 0 && r < GATE_REASONS; r++)
        if (str_eq(rec->verdicts[0].reason, str_of(gate_reason_word(r))))
            last_reason = r;
    return false;
}
static int why_last(void)
{
    last_reason = -1;
    journal_each(relay_journal(rig.relay), on_record, NULL);
    return last_reason;
}

static void a_message_waits_on_disk_until_the_platform_says_who_can_see_it(void **state)
{
    struct fake *f = cold_cache();

    say_in_guild("one", "stranger");
    assert_int_equal(accepted_ok(), 1); /* received: a restart does not lose it */
    say_in_guild("two", "owner");       /* in order, behind it */
    assert_int_equal(inbound(f), 0);
    answer_sight(GATE_SIGHT_ASKED, "g1"); /* about somebody else */
    answer_sight(GATE_SIGHT_ASKED, "g2");
    assert_int_equal(inbound(f), 0);
    answer_sight(GATE_SEEN, "g1");
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "one") && is_event(f, 1, "two"));
    assert_int_equal(relay_waiting(rig.relay), 0);
}

static void a_message_that_waited_through_a_restart_is_judged_after_it(void **state)
{
    cold_cache();
    say_in_guild("one", "stranger");
    sight = GATE_SEEN;
    restart();
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
}

static void without_an_answer_the_message_is_not_delivered_and_why_says_so(void **state)
{
    struct fake *f = cold_cache();

    say_in_guild("one", "stranger");
    advance(STAGED_SIGHT_MS - 1);
    assert_int_equal(relay_waiting(rig.relay), 1);
    advance(1);
    assert_int_equal(relay_waiting(rig.relay), 0);
    assert_int_equal(why_last(), GATE_NO_SIGHT_ASKED);
    say_in_guild("two", "stranger");
    answer_sight(GATE_UNSEEN, "g1");
    assert_int_equal(why_last(), GATE_NO_UNSEEN);
    say_in_guild("three", "stranger"); /* nobody is asked: nothing waits */
    assert_int_equal(relay_waiting(rig.relay), 0);
    assert_int_equal(inbound(f), 0);
}

static void so_many_of_a_chat_wait_for_sight(void **state)
{
    struct fake *f = cold_cache();
    char id[16];

    for (int i = 0; i < STAGED_SIGHT_MAX; i++) {
        snprintf(id, sizeof id, "m%d", i);
        say_in_guild(id, "stranger");
    }
    say_in_guild("more", "stranger"); /* a refusal would hold back the chat of others */
    assert_int_equal(rig.answers[BH_BUSY], 0);
    assert_int_equal(relay_waiting(rig.relay), STAGED_SIGHT_MAX);
    assert_int_equal(why_last(), GATE_NO_SIGHT_ASKED);
    answer_sight(GATE_SEEN, "g1");
    assert_true(inbound(f) > 0);
}

/* Bob is of another tenant; his instance hears everybody on this route. */
static void say_to_both(const char *id, const char *user, const char *file)
{
    struct event_media media = {.ref = str_of(file), .kind = STR("image")};
    struct event ev = make_event("b", id);

    ev.scope_id = STR("g1");
    ev.chat_type = STR("group");
    ev.user_id = str_of(user);
    ev.media = &media;
    ev.n_media = file[0] != '\0';
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}

static void nobody_waits_for_what_another_tenants_people_see(void **state)
{
    struct fake *a = cold_cache(), *b = connect_as("gw-b");

    say_to_both("one", "stranger", "");
    assert_int_equal(accepted_ok(), 1);
    assert_true(inbound(b) == 1 && inbound(a) == 0);
    say_to_both("two", "stranger", "");
    say_to_both("one", "stranger", ""); /* its platform sends it again */
    assert_true(inbound(b) == 2 && inbound(a) == 0);
    assert_int_equal(relay_waiting(rig.relay), 2);
    answer_sight(GATE_SEEN, "g1");
    say_to_both("three", "stranger", "");
    assert_true(is_event(a, 0, "one") && is_event(a, 1, "two") && is_event(a, 2, "three"));
    assert_true(is_event(b, 0, "one") && is_event(b, 1, "two") && is_event(b, 2, "three"));
    assert_int_equal(inbound(a) + inbound(b), 6);
}

static void a_file_is_waited_for_apart_from_what_another_tenants_people_see(void **state)
{
    struct fake *a = cold_cache(), *b = connect_as("gw-b");

    of_several = true;
    say_to_both("one", "stranger", "f");
    say_to_both("two", "stranger", "");
    assert_int_equal(inbound(b), 0); /* behind its own file */
    here(0);
    assert_true(inbound(b) == 2 && inbound(a) == 0);
    assert_true(is_event(b, 0, "one") && is_event(b, 1, "two"));
    answer_sight(GATE_SEEN, "g1");
    here(1);
    assert_true(is_event(a, 0, "one") && is_event(a, 1, "two"));
    assert_int_equal(relay_waiting(rig.relay), 0);
}

static void a_full_chat_of_waiting_sights_keeps_nobody_else(void **state)
{
    char id[16];

    cold_cache();
    for (int i = 0; i < STAGED_SIGHT_MAX + 10; i++) {
        snprintf(id, sizeof id, "m%d", i);
        say_to_both(id, "stranger", "");
    }
    assert_int_equal(rig.answers[BH_BUSY], 0);
    assert_int_equal(look("bob").entries, STAGED_SIGHT_MAX + 10);
}

static void after_a_restart_a_file_does_not_wait_for_sight_either(void **state)
{
    cold_cache();
    of_several = true;
    sight = GATE_SEEN;
    say_to_both("one", "stranger", "f"); /* one row for both */
    assert_int_equal(relay_waiting(rig.relay), 1);
    sight = GATE_SIGHT_ASKED;
    restart();
    struct fake *a = connect_as("gw-a"), *b = connect_as("gw-b");
    assert_int_equal(relay_waiting(rig.relay), 2);
    here(n_asks - 1);
    assert_true(inbound(b) == 1 && inbound(a) == 0);
    answer_sight(GATE_SEEN, "g1");
    here(n_asks - 1);
    assert_true(inbound(b) == 1 && inbound(a) == 1);
    assert_int_equal(relay_waiting(rig.relay), 0);
}

static void an_edit_reaches_the_copies_that_wait_and_those_that_are_there(void **state)
{
    struct fake *a = cold_cache();

    say_to_both("one", "stranger", ""); /* bob is not there: it waits in his mailbox */
    struct event ev = make_event("b", "e-edit");
    ev.scope_id = STR("g1");
    ev.chat_type = STR("group");
    ev.user_id = STR("stranger");
    ev.message_id = STR("one");
    ev.edit.set = ev.edit.silent = true;
    ev.edit.text = STR("corrected");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    answer_sight(GATE_SEEN, "g1");
    struct fake *b = connect_as("gw-b");
    assert_true(str_contains(line_with(a, INBOUND, 0), STR("corrected")));
    assert_true(str_contains(line_with(b, INBOUND, 0), STR("corrected")));
}

static void what_is_not_relevant_does_not_wait_for_sight(void **state)
{
    const struct grant_who ann = {STR("acme"), STR("ann")};
    cold_cache();

    grant_policy(rig.facts, ann,
                 &(struct grant_policy){.platform = STR("web"), .require_address = true},
                 rig_changed_fact, NULL);
    turn();
    say_in_guild("one", "stranger");
    assert_int_equal(relay_waiting(rig.relay), 0);
    assert_int_equal(why_last(), GATE_NO_NOT_ADDRESSED);
}

static void too_many_are_sent_back(void **state)
{
    char id[32];
    int taken = 0;

    for (; taken < STAGED_CHAT_MAX; taken++) {
        snprintf(id, sizeof id, "c%d", taken);
        offer_files("a", id, "full", "f");
    }
    turn();
    take("a", "one more", "full", "f");
    assert_int_equal(rig.answers[BH_BUSY], 1);
    take("a", "elsewhere", "c1", "f");
    assert_int_equal(rig.answers[BH_BUSY], 1);
    for (taken++; taken < STAGED_TENANT_MAX; taken++) {
        snprintf(id, sizeof id, "e%d", taken);
        offer_files("a", id, id, "f");
    }
    turn();
    assert_int_equal(accepted_ok(), STAGED_TENANT_MAX);
    take("a", "one more", "another", "f");
    assert_int_equal(rig.answers[BH_BUSY], 2);
    take("a", "words", "c9", ""); /* of a chat where nothing waits */
    assert_int_equal(rig.answers[BH_BUSY], 2);
}

static void what_waits_at_a_start_counts_for_its_tenant(void **state)
{
    char id[32];

    for (int n = 0; n < STAGED_TENANT_MAX; n++) {
        snprintf(id, sizeof id, "e%d", n);
        offer_files("a", id, id, "f");
    }
    turn();
    rig.web.platform = "not yet"; /* platforms open after the relay */
    restart();
    assert_int_equal(relay_waiting(rig.relay), STAGED_TENANT_MAX);
    take("a", "one more", "another", "f");
    assert_int_equal(rig.answers[BH_BUSY], 1);
}

/* A tenant with one agent and a route, all three of this name. */
static void add_tenant(const char *name)
{
    struct buf id = BUF_INIT, secret = BUF_INIT;
    const struct gateway_spec gw = {.id = str_of(name),
                                    .tenant = str_of(name),
                                    .instance = str_of(name)};
    const struct route_spec open = {.platform = STR("web"),
                                    .key = str_of(name),
                                    .tenant = str_of(name),
                                    .instance = str_of(name),
                                    .open = true};

    facts_gateway_add(rig.facts, &gw, &id, &secret, rig_changed_fact, NULL);
    facts_route_add(rig.facts, &open, rig_changed_fact, NULL);
    turn();
    buf_done(&id);
    buf_done(&secret);
}

static void a_file_is_never_charged_to_a_tenant_that_lost_its_route(void **state)
{
    struct route_spec to = {.platform = STR("web"), .key = STR("t1"), .open = true};

    of_several = true;
    add_tenant("t1");
    add_tenant("t2");
    to.tenant = to.instance = STR("t2");
    facts_route_add(rig.facts, &to, rig_changed_fact, NULL);
    turn();
    rig.web.platform = "not yet"; /* the event waits for its bot */
    take("t1", "one", "c1", "f");
    to.tenant = to.instance = STR("t1");
    facts_route_remove(rig.facts, &to, rig_changed_fact, NULL);
    turn();
    rig.web.platform = "web";
    relay_bot_opened(rig.relay, STR("web"), STR("lobby"));
    turn();
    assert_int_equal(n_asks, 1);
    assert_string_equal(asked_for, "t2");
}

static void busy_tenants_do_not_keep_the_others_out(void **state)
{
    static const char *const busy[] = {"t1", "t2", "t3", "t4"};
    char id[32];

    of_several = true;
    for (size_t k = 0; k < ARRAY_LEN(busy); k++) {
        add_tenant(busy[k]);
        for (int n = 0; n < STAGED_TENANT_MAX; n++) {
            snprintf(id, sizeof id, "%s-%d", busy[k], n);
            offer_files(busy[k], id, id, "f");
        }
    }
    add_tenant("quiet");
    assert_int_equal(accepted_ok(), STAGED_MAX);
    take("t1", "one more", "x", "f");
    assert_int_equal(rig.answers[BH_BUSY], 1);
    for (int n = 0; n <= STAGED_TENANT_SURE; n++) {
        snprintf(id, sizeof id, "quiet-%d", n);
        take("quiet", id, id, "f");
    }
    assert_int_equal(accepted_ok(), STAGED_MAX + STAGED_TENANT_SURE);
    assert_int_equal(rig.answers[BH_BUSY], 2);
    assert_int_equal(relay_waiting(rig.relay), STAGED_MAX + STAGED_TENANT_SURE);
}

static void on_forgot(void *ctx, enum bh_err err, const struct relay_forgot *got)
{
    *(struct relay_forgot *)ctx = *got;
}

static void what_an_erased_person_wrote_does_not_enter(void **state)
{
    struct relay_forgot got = {0};

    take("a", "one", "c1", "f");
    relay_forget_mail(rig.relay, STR("web"), STR("u1"), true, on_forgot, &got);
    turn();
    assert_int_equal(got.n, 1);
    relay_forget_mail(rig.relay, STR("web"), STR("u1"), false, on_forgot, &got);
    advance(1000);
    assert_int_equal(got.n, 1);
    assert_int_equal(relay_waiting(rig.relay), 0);
    assert_int_equal(rows(), 0);
    here(0);
    assert_int_equal(look("ann").entries, 0);
}

UNIT(relay_test_staged)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup_staged, teardown)
        T(an_event_that_waits_for_nothing_is_routed_judged_and_written_once),
        T(it_is_received_when_it_is_on_disk_and_enters_with_its_files),
        T(one_row_waits_for_all_and_goes_with_their_deliveries),
        T(its_chat_waits_behind_it_in_order_and_no_other_does),
        T(who_comes_while_it_enters_follows_and_is_written_once),
        T(what_does_not_come_is_said),
        T(what_comes_too_late_is_missing_and_keeps_nobody),
        T(a_start_goes_on_with_what_was_received),
        T(a_platform_that_never_opens_keeps_nobody_for_long),
        T(a_mailbox_that_is_full_is_tried_again),
        T(what_the_store_refuses_while_it_enters_is_not_lost),
        T(what_the_store_refuses_when_it_comes_is_sent_again),
        T(the_same_event_again_is_the_same),
        T(nothing_is_fetched_for_nobody),
        T(a_revocation_counts_while_it_waits),
        T(whoever_calls_off_is_not_told_and_the_event_goes_on),
        T(a_platform_that_closes_is_asked_again_when_it_opens),
        T(an_address_that_fades_is_kept_for_who_sleeps),
        T(who_is_awake_gets_the_address_also_behind_another),
        T(its_context_is_waited_for_where_somebody_reads_it),
        T(a_message_waits_on_disk_until_the_platform_says_who_can_see_it),
        T(a_message_that_waited_through_a_restart_is_judged_after_it),
        T(without_an_answer_the_message_is_not_delivered_and_why_says_so),
        T(so_many_of_a_chat_wait_for_sight),
        T(nobody_waits_for_what_another_tenants_people_see),
        T(a_file_is_waited_for_apart_from_what_another_tenants_people_see),
        T(a_full_chat_of_waiting_sights_keeps_nobody_else),
        T(after_a_restart_a_file_does_not_wait_for_sight_either),
        T(an_edit_reaches_the_copies_that_wait_and_those_that_are_there),
        T(what_is_not_relevant_does_not_wait_for_sight),
        T(too_many_are_sent_back),
        T(what_waits_at_a_start_counts_for_its_tenant),
        T(a_file_is_never_charged_to_a_tenant_that_lost_its_route),
        T(busy_tenants_do_not_keep_the_others_out),
        T(what_an_erased_person_wrote_does_not_enter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
