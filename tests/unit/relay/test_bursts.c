/* Promises of relay/in/burst.h and of staged.h about bursts: what one person writes in a burst
 * is one delivery, on disk message by message, and nothing of it is lost or doubled. */
#include "relay/rig.h"
#include "core/journal.h"
#include "relay/in/burst.h"
#include "relay/in/staged.h"

static struct handle fetched[32];
static size_t n_fetched;

static void on_fetch(struct outside *o, struct handle id, size_t file, const struct event *ev,
                     struct str tenant)
{
    fetched[n_fetched++] = id;
}

static int64_t how_long(struct outside *o)
{
    return 60000;
}

static int setup_bursts(void **state)
{
    setup(state);
    n_fetched = 0;
    rig.outside.fetch = on_fetch;
    rig.outside.wait_ms = how_long;
    return 0;
}

#define PAUSE 2000

static struct event message(const char *key, const char *id)
{
    struct event ev = make_event(key, id);

    ev.text = str_of(id);
    ev.burst_ms = PAUSE;
    return ev;
}

static void give(const struct event *ev)
{
    relay_accept(rig.relay, ev, on_accepted, NULL);
    turn();
}

static void write_as(const char *key, const char *id, const char *user, const char *thread)
{
    struct event ev = message(key, id);

    ev.user_id = str_of(user);
    ev.thread_id = thread != NULL ? str_of(thread) : STR_NULL;
    give(&ev);
}

static void post(const char *id)
{
    write_as("a", id, "u1", NULL);
}

static void post_file(const char *id)
{
    const struct event_media file = {.ref = STR("r"), .type = STR("image/png")};
    struct event ev = message("a", id);

    ev.media = &file;
    ev.n_media = 1;
    ev.message_type = STR("photo");
    give(&ev);
}

enum how { TOLD, SILENT, DELETED };

static void edit(const char *id, const char *text, enum how how)
{
    char told[64], event_id[64];
    struct event ev = message("a", id);

    snprintf(told, sizeof told, "[edited] %s", text);
    snprintf(event_id, sizeof event_id, "%s:e%u", id, rig.events++);
    ev.event_id = str_of(event_id);
    ev.text = str_of(told);
    ev.edit.set = true;
    ev.edit.silent = how != TOLD;
    ev.edit.deletes = how == DELETED;
    ev.edit.text = str_of(text);
    give(&ev);
}

/* True when the n-th delivery on @f has this text and, in JSON, these messages. */
static bool is_burst(const struct fake *f, size_t n, const char *text, const char *ids)
{
    struct str line = line_with(f, INBOUND, n);
    char part[512];

    snprintf(part, sizeof part, "\"text\":\"%s\"", text);
    bool ok = str_contains(line, str_of(part));
    snprintf(part, sizeof part, "\"message_ids\":%s", ids);
    return ok && (ids[0] == '\0' ? !str_contains(line, STR("message_ids"))
                                 : str_contains(line, str_of(part)));
}

/* ---- joining ---- */

static void a_burst_is_one_delivery_with_the_id_of_its_first_message(void **state)
{
    struct fake *f = connect_as("gw-a");
    char name[DELIVERY_ID_CHARS];
    struct hash128 key;
    struct event first = message("a", "one");

    post("one");
    advance(PAUSE - 500);
    post("two");
    advance(PAUSE - 500);
    post("three");
    assert_int_equal(accepted_ok(), 3);
    assert_int_equal(rows(), 1);
    assert_int_equal(inbound(f), 0);
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
    assert_true(is_burst(f, 0, "one\\ntwo\\nthree", "[\"one\",\"two\",\"three\"]"));
    assert_true(is_event(f, 0, "one"));
    assert_true(delivery_id_of(&first, &rig.tap.base.dedup_key, STR("acme"), STR("ann"), &key));
    delivery_id_format(key, name);
    assert_true(str_eq(buffer_id(line_with(f, INBOUND, 0)), str_make(name, sizeof name)));
    ack(f, 0);
    advance(1000);
    assert_int_equal(rows(), 0);
    assert_int_equal(relay_counters(rig.relay)->joined, 2);
}

static void one_message_alone_is_no_burst(void **state)
{
    struct fake *f = connect_as("gw-a");

    post("one");
    advance(PAUSE);
    assert_true(is_burst(f, 0, "one", ""));
    post("two"); /* a new one */
    assert_int_equal(inbound(f), 1);
    advance(PAUSE);
    assert_true(is_burst(f, 1, "two", ""));
}

static void without_debounce_nothing_waits(void **state)
{
    struct fake *f = connect_as("gw-a");

    publish("a", "one");
    publish("a", "two");
    assert_int_equal(inbound(f), 2);
}

static void files_come_together_in_order(void **state)
{
    struct fake *f = connect_as("gw-a");
    const struct relay_file here = {STR("0123456789abcdef0123456789abcdef"), STR("image/png"), 7};

    post("look");
    post_file("p1");
    post_file("p2");
    assert_int_equal(n_fetched, 0);
    advance(PAUSE);
    assert_int_equal(n_fetched, 2);
    relay_file_here(rig.relay, fetched[0], 1, &here);
    relay_file_lost(rig.relay, fetched[0], 0, "it is too large");
    turn();
    assert_int_equal(inbound(f), 1);
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("\"message_type\":\"photo\"")));
    assert_true(is_burst(f, 0, "look\\np1\\np2\\n[a file is missing: it is too large]",
                         "[\"look\",\"p1\",\"p2\"]"));
    assert_true(str_contains(line_with(f, INBOUND, 0),
                             STR("{\"bytes\":2,\"files\":0},{\"bytes\":2,\"files\":1}")));
}

static void every_recipient_gets_the_same_burst(void **state)
{
    struct fake *a = connect_as("gw-a"), *b = connect_as("gw-b");

    write_as("both", "one", "u1", NULL);
    write_as("both", "two", "u1", NULL);
    assert_int_equal(rows(), 1);
    advance(PAUSE);
    assert_true(is_burst(a, 0, "one\\ntwo", "[\"one\",\"two\"]"));
    assert_true(is_burst(b, 0, "one\\ntwo", "[\"one\",\"two\"]"));
}

/* ---- what ends a burst ---- */

static void somebody_else_ends_it_and_the_order_holds(void **state)
{
    struct fake *f = connect_as("gw-a");

    post("one");
    write_as("a", "other", "u2", NULL);
    assert_int_equal(inbound(f), 1);
    assert_true(is_burst(f, 0, "one", ""));
    post("two");
    advance(PAUSE);
    assert_int_equal(inbound(f), 3);
    assert_true(is_event(f, 1, "other") && is_event(f, 2, "two"));
}

static void topics_are_apart(void **state)
{
    struct fake *f = connect_as("gw-a");

    write_as("a", "one", "u1", "t1");
    write_as("a", "two", "u1", "t2");
    advance(PAUSE);
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "one") && is_event(f, 1, "two"));
}

static void a_reply_to_another_message_begins_anew(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = message("a", "two");

    post("one");
    ev.reply_to_message_id = STR("m7");
    give(&ev);
    post("three");
    advance(PAUSE);
    assert_int_equal(inbound(f), 2);
    assert_true(is_burst(f, 0, "one", ""));
    assert_true(is_burst(f, 1, "two\\nthree", "[\"two\",\"three\"]"));
}

static void commands_and_presses_end_it_at_once(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = message("a", "cmd");

    post("one");
    ev.text = STR(" /new chat");
    give(&ev);
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "one") && is_event(f, 1, "cmd"));
    post("two");
    ev = message("a", "press");
    ev.press.prompt_id = STR("p");
    ev.press.option_id = STR("o");
    give(&ev);
    assert_int_equal(inbound(f), 4);
    assert_true(is_event(f, 2, "two") && is_event(f, 3, "press"));
}

static void a_stop_ends_it_and_follows_it(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = message("a", "halt");

    post("one");
    ev.text = STR("/stop");
    give(&ev);
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "one"));
    assert_true(count_with(f, "interrupt_inbound") > 0);
    advance(5000);
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 1, "halt"));
}

static void a_stop_for_a_sleeper_follows_it_too(void **state)
{
    struct event ev = message("a", "halt");

    post("one");
    ev.text = STR("/stop");
    give(&ev);
    assert_int_equal(look("ann").entries, 2);
    struct fake *f = connect_as("gw-a");
    assert_true(is_event(f, 0, "one") && is_event(f, 1, "halt"));
}

static void so_many_messages_are_full(void **state)
{
    struct fake *f = connect_as("gw-a");
    char id[16];

    for (int i = 0; i < EVENT_MAX_PARTS; i++) {
        assert_int_equal(inbound(f), 0);
        snprintf(id, sizeof id, "m%d", i);
        post(id);
    }
    assert_int_equal(inbound(f), 1);
    post("next");
    advance(PAUSE);
    assert_int_equal(inbound(f), 2);
    assert_true(is_burst(f, 1, "next", ""));
}

static void so_many_bytes_and_files_are_full(void **state)
{
    static char text[BURST_TEXT_BYTES];
    struct fake *f = connect_as("gw-a");
    struct event ev = message("a", "big");

    post("one");
    memset(text, 'x', sizeof text);
    ev.text = str_make(text, sizeof text);
    give(&ev); /* does not fit, and is full itself */
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "one") && is_event(f, 1, "big"));
    for (int i = 0; i < EVENT_MAX_MEDIA; i++) {
        char id[16];
        snprintf(id, sizeof id, "f%d", i);
        post_file(id);
    }
    assert_int_equal(n_fetched, EVENT_MAX_MEDIA);
}

static void it_lasts_for_a_minute_at_most(void **state)
{
    char id[16];

    for (int i = 0; look("ann").entries == 0 && i < EVENT_MAX_PARTS - 1; i++) {
        snprintf(id, sizeof id, "m%d", i);
        struct event ev = message("a", id);
        ev.burst_ms = 30000;
        give(&ev);
        advance(10000);
    }
    struct fake *f = connect_as("gw-a");
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("\"m5\"]")));
}

static void bots_and_messages_without_an_author_are_not_joined(void **state)
{
    struct event ev = message("a", "x");

    assert_true(burst_takes(&ev));
    ev.author_is_bot = true;
    assert_false(burst_takes(&ev));
    ev = message("a", "x");
    ev.user_id = STR_NULL;
    assert_false(burst_takes(&ev));
    ev = message("a", "x");
    ev.message_type = STR("location");
    assert_false(burst_takes(&ev));
    ev = message("a", "x");
    ev.only_instance = STR("ann");
    assert_false(burst_takes(&ev));
    ev = message("a", "x");
    ev.text = STR("\xff");
    assert_false(burst_takes(&ev));
    ev = message("a", "x");
    ev.burst_ms = 0;
    assert_false(burst_takes(&ev));
}

/* ---- the disk ---- */

static void each_message_is_received_when_it_is_on_disk(void **state)
{
    struct fake *f = connect_as("gw-a");

    rig.tap.hold = true;
    post("one");
    post("two");
    assert_int_equal(accepted_ok(), 0);
    rig_release();
    assert_int_equal(accepted_ok(), 2);
    rig.tap.hold = true;
    post("three");
    advance(PAUSE * 2); /* over, but not all of it is written */
    assert_int_equal(accepted_ok(), 2);
    assert_int_equal(inbound(f), 0);
    rig_release();
    assert_int_equal(accepted_ok(), 3);
    assert_true(is_burst(f, 0, "one\\ntwo\\nthree", "[\"one\",\"two\",\"three\"]"));
}

static void what_the_store_refuses_is_not_part_of_it(void **state)
{
    struct fake *f = connect_as("gw-a");

    post("one");
    rig.tap.refuse = true;
    post("two");
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 1);
    rig.tap.refuse = false;
    post("three");
    post("two"); /* the platform repeats it */
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
    assert_true(is_burst(f, 0, "one\\nthree\\ntwo", "[\"one\",\"three\",\"two\"]"));
}

static void a_crash_leaves_what_was_received(void **state)
{
    post("one");
    post("two");
    restart();
    post("two"); /* unanswered, for all the platform knows */
    assert_int_equal(rows(), 1);
    advance(PAUSE);
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    assert_true(is_burst(f, 0, "one\\ntwo", "[\"one\",\"two\"]"));
    post("one");
    post("two");
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
}

static void repetitions_of_each_message_are_known_while_it_waits_and_later(void **state)
{
    struct fake *f = connect_as("gw-a");

    post("one");
    post("two");
    post("one");
    post("two");
    advance(PAUSE);
    assert_true(is_burst(f, 0, "one\\ntwo", "[\"one\",\"two\"]"));
    ack(f, 0);
    advance(1000);
    post("two");
    post("one");
    advance(PAUSE);
    assert_int_equal(accepted_ok(), 6);
    restart(); /* the keys are on disk */
    f = connect_as("gw-a");
    post("two");
    post("one");
    advance(PAUSE);
    assert_int_equal(inbound(f), 0);
    assert_int_equal(rows(), 0);
}

static void a_repetition_is_received_only_when_its_message_is_on_disk(void **state)
{
    post("one");
    rig.tap.hold = true;
    post("two");
    post("two");
    assert_int_equal(accepted_ok(), 1);
    rig_release();
    assert_int_equal(accepted_ok(), 3);
}

static void a_lost_answer_is_asked_again_before_it_enters(void **state)
{
    struct fake *f;

    rig.tap.lose_answers = true;
    post("one");
    rig.tap.lose_answers = false;
    post("two");
    advance(1500);
    assert_int_equal(accepted_ok(), 2);
    advance(PAUSE);
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    assert_true(is_burst(f, 0, "one\\ntwo", "[\"one\",\"two\"]"));
}

/* The store refuses the burst's append, and the agent acks the burst all the same: only the staged
 * row knows that "two" was a part of it. */
static struct fake *ack_before_the_keys_are_on_disk(void)
{
    struct fake *f = connect_as("gw-a");

    post("one");
    post("two");
    rig.tap.refuse = true;
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
    ack(f, 0);
    advance(100);
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(rows(), 1);
    return f;
}

static void an_acked_burst_keeps_its_row_until_its_keys_are_on_disk(void **state)
{
    ack_before_the_keys_are_on_disk();
    advance(3000); /* each retry is refused */
    assert_int_equal(rows(), 1);
    rig.tap.refuse = false;
    advance(2000);
    assert_int_equal(rows(), 0);
    assert_int_equal(relay_waiting(rig.relay), 0);
    restart();
    struct fake *f = connect_as("gw-a");
    post("two");
    post("one");
    advance(PAUSE);
    assert_int_equal(inbound(f), 0);
}

/* Without its key, "one" would begin a burst under a bufferId that the gateway has seen, and drops:
 * "two" would be lost. */
static void a_message_that_was_acked_alone_begins_no_burst_when_it_is_repeated(void **state)
{
    struct fake *f = connect_as("gw-a");

    post("one");
    rig.tap.refuse = true;
    advance(PAUSE);
    ack(f, 0);
    advance(100);
    rig.tap.refuse = false;
    advance(3000);
    assert_int_equal(rows(), 0);
    restart();
    f = connect_as("gw-a");
    post("one");
    post("two");
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
    assert_non_null(strstr(line_with(f, INBOUND, 0).p, "\"text\":\"two\""));
}

static void after_a_crash_before_that_the_burst_comes_again_under_its_id(void **state)
{
    char before[64];
    struct str id = buffer_id(line_with(ack_before_the_keys_are_on_disk(), INBOUND, 0));

    snprintf(before, sizeof before, "%.*s", STR_FMT(id));
    restart();
    struct fake *f = connect_as("gw-a");
    post("two"); /* unanswered, for all the platform knows */
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
    assert_true(is_burst(f, 0, "one\\ntwo", "[\"one\",\"two\"]"));
    assert_true(str_eq(buffer_id(line_with(f, INBOUND, 0)), str_of(before)));
}

static void a_drain_leaves_the_row_to_the_next_process(void **state)
{
    struct fake *f = ack_before_the_keys_are_on_disk();

    relay_drain(rig.relay, on_drained, NULL);
    advance(600);
    hang_up(f, 1012);
    advance(100);
    assert_true(rig.drained);
    assert_int_equal(rows(), 1);
    restart();
    f = connect_as("gw-a");
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
    ack(f, 0);
    advance(1000);
    assert_int_equal(rows(), 0);
}

/* ---- people ---- */

static void an_edit_reaches_its_message_while_it_waits(void **state)
{
    struct fake *f = connect_as("gw-a");

    post("one");
    edit("one", "ONE", SILENT);
    post("two");
    post("three");
    edit("two", "TWO", TOLD);
    assert_int_equal(accepted_ok(), 5);
    restart();
    f = connect_as("gw-a");
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
    assert_true(is_burst(f, 0, "ONE\\nTWO\\nthree", "[\"one\",\"two\",\"three\"]"));
}

static void a_deletion_takes_its_message_and_its_files(void **state)
{
    struct fake *f = connect_as("gw-a");

    post_file("one");
    post("two");
    post("three");
    edit("one", "", DELETED);
    edit("three", "", DELETED);
    advance(PAUSE);
    assert_int_equal(n_fetched, 0);
    assert_true(is_burst(f, 0, "two", "[\"two\"]"));
    assert_true(is_event(f, 0, "two"));
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("\"media_urls\":[]")));
    post("one"); /* the platform repeats what was deleted */
    advance(PAUSE);
    assert_int_equal(inbound(f), 1);
}

static void a_file_that_is_fetched_goes_with_its_message(void **state)
{
    struct fake *f = connect_as("gw-a");
    const struct relay_file here = {STR("0123456789abcdef0123456789abcdef"), STR("image/png"), 7};

    post_file("one");
    post_file("two");
    advance(PAUSE);
    assert_int_equal(n_fetched, 2);
    relay_file_here(rig.relay, fetched[0], 0, &here);
    edit("one", "", DELETED);
    relay_file_here(rig.relay, fetched[0], 1,
                    &(struct relay_file){STR("fedcba9876543210fedcba9876543210"), STR("image/png"),
                                         7});
    turn();
    assert_int_equal(inbound(f), 1);
    assert_false(str_contains(line_with(f, INBOUND, 0), STR("0123456789abcdef")));
    assert_true(str_contains(line_with(f, INBOUND, 0), STR("fedcba9876543210")));
}

static void a_burst_whose_messages_are_all_deleted_is_gone(void **state)
{
    struct fake *f = connect_as("gw-a");

    post("one");
    post("two");
    edit("one", "", DELETED);
    edit("two", "", DELETED);
    advance(PAUSE);
    assert_int_equal(inbound(f), 0);
    assert_int_equal(rows(), 0);
    assert_int_equal(relay_waiting(rig.relay), 0);
}

static void in_the_mailbox_an_edit_still_finds_its_message(void **state)
{
    struct fake *f;

    post("one");
    post("two");
    post("three");
    advance(PAUSE); /* nobody is here */
    assert_int_equal(look("ann").entries, 1);
    edit("two", "TWO", SILENT);
    edit("one", "", DELETED);
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    assert_true(is_burst(f, 0, "TWO\\nthree", "[\"two\",\"three\"]"));
    edit("two", "2", TOLD); /* the agent has it */
    assert_int_equal(inbound(f), 2);
}

static void after_a_restart_too_and_the_last_deletion_settles_it(void **state)
{
    post("one");
    post("two");
    advance(PAUSE);
    restart();
    edit("two", "", DELETED);
    assert_int_equal(rows(), 1);
    edit("one", "", DELETED);
    advance(1000);
    assert_int_equal(rows(), 0);
}

static void erasing_a_person_takes_the_burst(void **state)
{
    uint64_t quoted = 0;

    post("one");
    post("two");
    assert_int_equal(stage_forget(rig.relay, STR("web"), STR("u1"), false, &quoted), 1);
    advance(PAUSE);
    assert_int_equal(rows(), 0);
    assert_int_equal(look("ann").entries, 0);
}

static bool on_record(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    const struct journal_query q = {.platform = STR("web"), .message = STR("two")};

    if (rec->kind != JOURNAL_EVENT || !journal_matches(rec, &q))
        return true;
    assert_int_equal(rec->n_verdicts, 1);
    assert_int_equal(rec->verdicts[0].fate, JOURNAL_ACCEPTED);
    ++*(int *)ctx;
    return true;
}

static void each_message_can_be_asked_about(void **state)
{
    post("one");
    post("two");
    advance(PAUSE);
    int found = 0;
    journal_each(relay_journal(rig.relay), on_record, &found);
    assert_int_equal(found, 1);
}

UNIT(relay_test_bursts)
{
    const struct CMUnitTest tests[] = {
#define BURST(t) cmocka_unit_test_setup_teardown(t, setup_bursts, teardown)
        BURST(a_burst_is_one_delivery_with_the_id_of_its_first_message),
        BURST(one_message_alone_is_no_burst),
        BURST(without_debounce_nothing_waits),
        BURST(files_come_together_in_order),
        BURST(every_recipient_gets_the_same_burst),
        BURST(somebody_else_ends_it_and_the_order_holds),
        BURST(topics_are_apart),
        BURST(a_reply_to_another_message_begins_anew),
        BURST(commands_and_presses_end_it_at_once),
        BURST(a_stop_ends_it_and_follows_it),
        BURST(a_stop_for_a_sleeper_follows_it_too),
        BURST(so_many_messages_are_full),
        BURST(so_many_bytes_and_files_are_full),
        BURST(it_lasts_for_a_minute_at_most),
        BURST(bots_and_messages_without_an_author_are_not_joined),
        BURST(each_message_is_received_when_it_is_on_disk),
        BURST(what_the_store_refuses_is_not_part_of_it),
        BURST(a_crash_leaves_what_was_received),
        BURST(an_acked_burst_keeps_its_row_until_its_keys_are_on_disk),
        BURST(a_message_that_was_acked_alone_begins_no_burst_when_it_is_repeated),
        BURST(after_a_crash_before_that_the_burst_comes_again_under_its_id),
        BURST(a_drain_leaves_the_row_to_the_next_process),
        BURST(repetitions_of_each_message_are_known_while_it_waits_and_later),
        BURST(a_repetition_is_received_only_when_its_message_is_on_disk),
        BURST(a_lost_answer_is_asked_again_before_it_enters),
        BURST(an_edit_reaches_its_message_while_it_waits),
        BURST(a_deletion_takes_its_message_and_its_files),
        BURST(a_file_that_is_fetched_goes_with_its_message),
        BURST(a_burst_whose_messages_are_all_deleted_is_gone),
        BURST(in_the_mailbox_an_edit_still_finds_its_message),
        BURST(after_a_restart_too_and_the_last_deletion_settles_it),
        BURST(erasing_a_person_takes_the_burst),
        BURST(each_message_can_be_asked_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
