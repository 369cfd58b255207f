/* Promises of relay/in/edits.h: an edit or a deletion reaches what still waits for its agent. */
#include "relay/rig.h"
#include "relay/in/staged.h"

static struct handle waits;

static void on_fetch(struct outside *o, struct handle id, size_t file, const struct event *ev,
                     struct str tenant)
{
    waits = id;
}

static int64_t how_long(struct outside *o)
{
    return 60000;
}

static int setup_edits(void **state)
{
    setup(state);
    rig.outside.fetch = on_fetch;
    rig.outside.wait_ms = how_long;
    return 0;
}

enum how { TOLD, SILENT, DELETED };

static void edit(const char *key, const char *id, const char *text, enum how how)
{
    char told[64], event_id[64];
    struct event ev = make_event(key, id);

    snprintf(told, sizeof told, "[edited] %s", text);
    snprintf(event_id, sizeof event_id, "%s:e%u", id, rig.events++);
    ev.event_id = str_of(event_id);
    ev.text = str_of(told);
    ev.edit.set = true;
    ev.edit.silent = how != TOLD;
    ev.edit.deletes = how == DELETED;
    ev.edit.text = str_of(text);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}

static bool says(const struct fake *f, size_t n, const char *text)
{
    char part[64];

    snprintf(part, sizeof part, "\"text\":\"%s\"", text);
    return str_contains(line_with(f, INBOUND, n), str_of(part));
}

static void what_waits_on_disk_gets_the_new_text_and_keeps_its_place(void **state)
{
    publish("a", "e1");
    publish("a", "e2");
    edit("a", "e1", "better", TOLD);
    edit("a", "e2", "two", SILENT);
    edit("a", "e1", "best", TOLD);
    assert_int_equal(accepted_ok(), 5);
    assert_int_equal(look("ann").entries, 2);
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "e1") && says(f, 0, "best"));
    assert_true(is_event(f, 1, "e2") && says(f, 1, "two"));
    ack(f, 0);
    ack(f, 1);
    advance(1000);
    assert_int_equal(rows(), 0);
}

static void the_new_text_survives_a_restart_and_a_restart_does_not_hide_it(void **state)
{
    publish("a", "e1");
    edit("a", "e1", "before", TOLD);
    restart();
    publish("a", "e2");
    edit("a", "e1", "after", TOLD);
    assert_int_equal(look("ann").entries, 2);
    struct fake *f = connect_as("gw-a");
    assert_true(is_event(f, 0, "e1") && says(f, 0, "after"));
    assert_true(is_event(f, 1, "e2") && says(f, 1, "hello"));
}

static void what_is_deleted_is_not_delivered(void **state)
{
    publish("a", "e1");
    publish("a", "e2");
    edit("a", "e1", "", DELETED);
    advance(1000);
    assert_int_equal(rows(), 1);
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e2"));
    publish("a", "e1"); /* the platform repeats itself */
    assert_int_equal(inbound(f), 1);
}

static void what_is_not_written_yet_is_changed_too(void **state)
{
    struct fake *f;

    publish("a", "e0"); /* the instance's record */
    rig.tap.hold = true;
    publish("a", "e1");
    edit("a", "e1", "better", TOLD);
    assert_int_equal(accepted_ok(), 1);
    rig_release();
    assert_int_equal(accepted_ok(), 3);
    restart();
    f = connect_as("gw-a");
    assert_true(is_event(f, 1, "e1") && says(f, 1, "better"));
}

static void who_has_it_is_told_unless_the_platform_never_tells(void **state)
{
    struct fake *f = connect_as("gw-a");

    publish("both", "e1"); /* bob is not here */
    assert_int_equal(inbound(f), 1);
    edit("both", "e1", "better", TOLD);
    assert_int_equal(inbound(f), 2);
    assert_true(says(f, 1, "[edited] better"));
    assert_int_equal(look("bob").entries, 1);
    edit("both", "e1", "best", SILENT);
    assert_int_equal(inbound(f), 2);
    edit("both", "e1", "", DELETED);
    assert_int_equal(inbound(f), 2);
    assert_int_equal(look("bob").entries, 0);
    ack(f, 0);
    edit("both", "e1", "late", TOLD);
    assert_true(says(f, 2, "[edited] late"));
}

static void one_that_is_not_found_is_delivered_after_all(void **state)
{
    publish("a", "e1");
    struct fake *f = connect_as("gw-a");
    ack(f, 0);
    hang_up(f, 1006);
    publish("a", "e2"); /* waits, and is about as old */
    edit("a", "e1", "better", TOLD);
    assert_int_equal(look("ann").entries, 2);
    f = connect_as("gw-a");
    assert_true(is_event(f, 0, "e2") && says(f, 0, "hello"));
    assert_true(says(f, 1, "[edited] better"));
}

static void a_store_that_refuses_is_asked_again(void **state)
{
    publish("a", "e1");
    publish("a", "e2");
    edit("a", "e1", "better", TOLD); /* found on disk */
    rig.tap.refuse = true;
    advance(2000);
    rig.tap.refuse = false;
    advance(2000);
    restart();
    struct fake *f = connect_as("gw-a");
    assert_true(says(f, 0, "better"));
}

static void what_waits_for_a_file_is_changed_for_all(void **state)
{
    const struct event_media file = {.ref = STR("r")};
    struct event ev = make_event("both", "e1");

    ev.media = &file;
    ev.n_media = 1;
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(relay_waiting(rig.relay), 1);
    edit("both", "e1", "better", TOLD);
    assert_int_equal(accepted_ok(), 2);
    restart(); /* it was written */
    relay_file_lost(rig.relay, waits, 0, "nobody knows it");
    turn();
    struct fake *a = connect_as("gw-a"), *b = connect_as("gw-b");
    assert_int_equal(inbound(a) + inbound(b), 2);
    assert_true(str_contains(line_with(a, INBOUND, 0), STR("\"better\\n[a file is missing")));
    assert_true(str_contains(line_with(b, INBOUND, 0), STR("\"better\\n[a file is missing")));

    ev.event_id = ev.message_id = STR("e2");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    edit("both", "e2", "", DELETED);
    advance(1000);
    assert_int_equal(relay_waiting(rig.relay), 0);
    assert_int_equal(inbound(a), 1);
}

UNIT(relay_test_edits)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup_edits, teardown)
        T(what_waits_on_disk_gets_the_new_text_and_keeps_its_place),
        T(the_new_text_survives_a_restart_and_a_restart_does_not_hide_it),
        T(what_is_deleted_is_not_delivered),
        T(what_is_not_written_yet_is_changed_too),
        T(who_has_it_is_told_unless_the_platform_never_tells),
        T(one_that_is_not_found_is_delivered_after_all),
        T(a_store_that_refuses_is_asked_again),
        T(what_waits_for_a_file_is_changed_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
