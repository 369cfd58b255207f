/* Promises of tenancy/pairing.h. */
#include "unit.h"
#include <malloc.h>
#include "facts_rig.h"
#include "base/mem.h"
#include "core/event.h"
#include "tenancy/rights.h"
#include "tenancy/pairing.h"

#define DAY_MS INT64_C(86400000)

struct rig {
    struct facts_rig f;
    struct pairing *p;
    struct pairing_settings settings;
    int64_t retention_ms;
    int told;
    char last_told[300];
};

static void on_tell(void *ctx, const struct event *place, struct str text)
{
    struct rig *r = ctx;
    r->told++;
    snprintf(r->last_told, sizeof r->last_told, "%.*s: %.*s", STR_FMT(place->chat_id),
             STR_FMT(text));
}

static void open_queue(struct rig *r)
{
    char why[256] = "";
    struct pairing_env env = {r->f.clock, r->f.store, r->f.facts, &r->settings, &r->retention_ms};
    if (pairing_open(&env, &r->p, why) != BH_OK)
        fail_msg("%s", why);
    pairing_on_tell(r->p, on_tell, r);
}

/* The process is killed, and another one starts on its store. */
static void crash(struct rig *r)
{
    pairing_free(r->p);
    facts_rig_reopen(&r->f);
    open_queue(r);
}

/* The same, but the process ends in good order. */
static void restart(struct rig *r)
{
    pairing_flush(r->p);
    facts_rig_turn(&r->f);
    crash(r);
}

struct answer {
    int calls;
    enum bh_err err;
};

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct answer *a = ctx;
    a->calls++;
    a->err = err;
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);
    struct buf id = BUF_INIT, secret = BUF_INIT;
    struct answer a = {0};

    facts_rig_open(&r->f);
    facts_gateway_add(r->f.facts,
                      &(struct gateway_spec){.id = STR("gw"),
                                             .tenant = STR("acme"),
                                             .instance = STR("x")},
                      &id, &secret, on_done, &a);
    facts_rig_turn(&r->f);
    buf_done(&id);
    buf_done(&secret);
    static char wait[] = "wait";
    r->settings = (struct pairing_settings){.keep_ms = 30 * DAY_MS, .receipt_text = wait};
    open_queue(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    facts_rig_close_store(&r->f);
    pairing_free(r->p);
    facts_rig_done(&r->f);
    free(r);
    return 0;
}

static void says(struct rig *r, const char *bot, const char *user, const char *name)
{
    pairing_wrote(r->p,
                  &(struct event){.platform = STR("telegram"),
                                  .bot = str_of(bot),
                                  .chat_type = STR("dm"),
                                  .chat_id = str_of(user),
                                  .user_id = str_of(user),
                                  .user_name = str_of(name),
                                  .text = STR("never kept")},
                  false);
}

static size_t count(const struct rig *r)
{
    struct pairing_view v;
    char at[PAIRING_ID_CHARS + 1] = "";
    size_t n = 0;
    while (pairing_next(r->p, str_of(at), &v)) {
        memcpy(at, v.id, sizeof at);
        n++;
    }
    return n;
}

static bool find(const struct rig *r, const char *user, struct pairing_view *ret)
{
    char at[PAIRING_ID_CHARS + 1] = "";
    while (pairing_next(r->p, str_of(at), ret)) {
        memcpy(at, ret->id, sizeof at);
        if (str_eq(ret->user, str_of(user)))
            return true;
    }
    return false;
}

static enum bh_err set(struct rig *r, const char *user, enum pairing_state state)
{
    struct pairing_view v;
    struct answer a = {0};
    assert_true(find(r, user, &v));
    pairing_set(r->p, str_of(v.id), state, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    return a.err;
}

static void a_hundred_thousand_strangers_cost_bounded_memory_and_writes(void **state)
{
    struct rig *r = *state;
    char user[32];
    struct pairing_stats s;

    says(r, "quiet", "friend", "A friend");
    for (int i = 0; i < 2000; i++) { /* the queue of the bot is full */
        snprintf(user, sizeof user, "early-%d", i);
        says(r, "loud", user, "x");
    }
    facts_rig_pass(&r->f, 60000);
    size_t before = mallinfo2().uordblks;
    pairing_stats(r->p, &s);
    uint64_t writes = s.writes;
    for (int i = 0; i < 100000; i++) {
        snprintf(user, sizeof user, "stranger-%d", i);
        says(r, "loud", user, "One of many");
        if (i % 1000 == 0)
            facts_rig_pass(&r->f, 10); /* a second in all */
    }
    size_t after = mallinfo2().uordblks;
    pairing_stats(r->p, &s);
    assert_int_equal(s.waiting, PAIRING_BOT_MAX + 1);
    assert_true(s.writes - writes <= 2);
    if (before != 0) /* sanitizers have an allocator of their own */
        assert_true(after < before + (4u << 20));
    struct pairing_view v;
    assert_true(find(r, "friend", &v)); /* a flood at one bot pushes nobody of another out */
    assert_true(find(r, "stranger-99999", &v));
    for (int i = 0; i < 60; i++)
        facts_rig_pass(&r->f, PAIRING_WRITE_MS);
    restart(r);
    assert_int_equal(count(r), PAIRING_BOT_MAX + 1);
    assert_true(find(r, "friend", &v) && find(r, "stranger-99999", &v));
    assert_false(find(r, "early-1999", &v));
}

static void the_bot_with_most_people_makes_room(void **state)
{
    struct rig *r = *state;
    char bot[16], user[32];
    struct pairing_view v;

    says(r, "small", "friend", "A friend");
    for (int b = 0; b < 11; b++)
        for (int i = 0; i < PAIRING_BOT_MAX; i++) {
            snprintf(bot, sizeof bot, "bot-%d", b);
            snprintf(user, sizeof user, "p-%d-%d", b, i);
            says(r, bot, user, "x");
        }
    struct pairing_stats s;
    pairing_stats(r->p, &s);
    assert_int_equal(s.waiting, PAIRING_MAX);
    assert_true(find(r, "friend", &v));
}

static void a_denied_person_returns_a_week_later_and_a_blocked_one_never(void **state)
{
    struct rig *r = *state;
    struct pairing_view v;

    says(r, "b", "ann", "Ann");
    says(r, "b", "bob", "Bob");
    assert_int_equal(set(r, "ann", PAIRING_DENIED), BH_OK);
    assert_int_equal(set(r, "bob", PAIRING_BLOCKED), BH_OK);
    facts_rig_pass(&r->f, 6 * DAY_MS);
    says(r, "b", "ann", "Ann");
    says(r, "b", "bob", "Bob");
    assert_true(find(r, "ann", &v) && v.state == PAIRING_DENIED && v.messages == 2);
    facts_rig_pass(&r->f, 2 * DAY_MS);
    says(r, "b", "ann", "Ann");
    assert_true(find(r, "ann", &v) && v.state == PAIRING_WAITING);
    facts_rig_pass(&r->f, 400 * DAY_MS);
    facts_rig_pass(&r->f, 1000000);
    says(r, "b", "bob", "Bob");
    assert_false(find(r, "ann", &v)); /* silent for longer than pairing.keep */
    assert_true(find(r, "bob", &v) && v.state == PAIRING_BLOCKED && v.messages == 1);
    restart(r);
    assert_true(find(r, "bob", &v) && v.state == PAIRING_BLOCKED && count(r) == 1);
}

static void the_shorter_retention_counts(void **state)
{
    struct rig *r = *state;

    r->retention_ms = DAY_MS;
    says(r, "b", "ann", "Ann");
    facts_rig_pass(&r->f, DAY_MS / 2);
    says(r, "b", "bob", "Bob");
    facts_rig_pass(&r->f, DAY_MS / 2 + 1);
    facts_rig_pass(&r->f, 600000);
    assert_int_equal(count(r), 1);
    restart(r);
    assert_int_equal(count(r), 1);
}

static void receipts_are_off_and_then_bounded(void **state)
{
    struct rig *r = *state;
    char user[32];

    says(r, "b", "ann", "Ann");
    facts_rig_turn(&r->f);
    assert_int_equal(r->told, 0);
    r->settings.receipt = true;
    for (int i = 0; i < 3; i++) {
        says(r, "b", "ann", "Ann");
        facts_rig_turn(&r->f);
    }
    assert_int_equal(r->told, 1);
    assert_string_equal(r->last_told, "ann: wait");
    restart(r);
    says(r, "b", "ann", "Ann");
    facts_rig_turn(&r->f);
    assert_int_equal(r->told, 1); /* that she was told is on disk */
    for (int i = 0; i < 3 * PAIRING_RECEIPTS_MAX; i++) {
        snprintf(user, sizeof user, "u%d", i);
        says(r, "b", user, "x");
        facts_rig_turn(&r->f);
    }
    assert_in_range(r->told, PAIRING_RECEIPTS_MAX, PAIRING_RECEIPTS_MAX + 1);
    facts_rig_pass(&r->f, PAIRING_TOLD_MS);
    says(r, "b", "ann", "Ann");
    facts_rig_turn(&r->f);
    assert_string_equal(r->last_told, "ann: wait");
}

static void names_are_cut_and_cannot_turn_the_text_around_them(void **state)
{
    struct rig *r = *state;
    struct pairing_view v;
    char longest[400];

    says(r, "b", "ann",
         "Ann\x1b[31m\xe2\x80\xae"
         "gpj\n\xff");
    assert_true(find(r, "ann", &v));
    assert_true(str_eq(v.name, STR("Ann [31m gpj  ")));
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    longest[95] = '\xc3';
    longest[96] = '\xa4'; /* a character that does not fit is left out whole */
    says(r, "b", "bob", longest);
    assert_true(find(r, "bob", &v));
    assert_int_equal(v.name.n, 95);
    says(r, "b", "an\nid", "x");
    assert_int_equal(count(r), 2);
}

static void an_approval_links_on_this_bot_and_two_decisions_do_not_meet(void **state)
{
    struct rig *r = *state;
    struct pairing_view v;
    struct pairing_link link = {0};
    struct answer one = {0}, two = {0};
    struct grant_who x = {STR("acme"), STR("x")};

    says(r, "b", "ann", "Ann");
    assert_true(find(r, "ann", &v));
    pairing_approve(r->p, str_of(v.id), x, &link, on_done, &one);
    pairing_set(r->p, str_of(v.id), PAIRING_BLOCKED, on_done, &two);
    facts_rig_turn(&r->f);
    assert_int_equal(one.err, BH_OK);
    assert_int_equal(two.err, BH_CONFLICT);
    assert_true(link.owner);
    assert_int_equal(count(r), 0);
    const struct gate_instance *to = grant_instance(r->f.facts, x);
    const struct gate_link *l = grant_link_of(r->f.facts, to, STR("telegram"), STR("ann"));
    assert_true(l != NULL && gate_counts_on(l, STR("b")) && !gate_counts_on(l, STR("c")));
    says(r, "b", "ann", "Ann"); /* refused for another reason: nobody to let in */
    assert_int_equal(count(r), 0);
    restart(r);
    assert_int_equal(count(r), 0);
    rights_bot_belongs(r->f.facts, STR("telegram"), STR("c"), STR("zorg"));
    says(r, "c", "ann", "Ann");
    assert_true(find(r, "ann", &v));
    assert_false(pairing_find(r->p, str_of(v.id), STR("acme"), &v));
    assert_true(pairing_find(r->p, str_of(v.id), STR("zorg"), &v));
    pairing_approve(r->p, str_of(v.id), x, &link, on_done, &two);
    facts_rig_turn(&r->f);
    assert_int_equal(two.err, BH_REFUSED);
    assert_int_equal(set(r, "ann", PAIRING_BLOCKED), BH_OK); /* the refusal let go of the entry */
}

static void blocks_are_bounded_and_never_pushed_out(void **state)
{
    struct rig *r = *state;
    char user[32];

    for (int i = 0; i < PAIRING_BLOCKED_MAX; i++) {
        snprintf(user, sizeof user, "u%d", i);
        says(r, "b", user, "x");
        struct pairing_view v;
        assert_true(pairing_next(r->p, STR(""), &v));
        struct answer a = {0};
        pairing_set(r->p, str_of(v.id), PAIRING_BLOCKED, on_done, &a);
        facts_rig_turn(&r->f);
        assert_int_equal(a.err, BH_OK);
    }
    says(r, "b", "more", "x");
    assert_int_equal(set(r, "more", PAIRING_BLOCKED), BH_BUSY);
    for (int i = 0; i < 2 * PAIRING_BOT_MAX; i++) {
        snprintf(user, sizeof user, "w%d", i);
        says(r, "b", user, "x");
    }
    struct pairing_stats s;
    pairing_stats(r->p, &s);
    assert_int_equal(s.blocked, PAIRING_BLOCKED_MAX);
    assert_int_equal(s.waiting, PAIRING_BOT_MAX);
}

static void a_block_outlives_a_flood_that_had_pushed_the_person_out(void **state)
{
    struct rig *r = *state;
    struct pairing_view v;
    char user[32];

    says(r, "b", "bob", "Bob");
    facts_rig_pass(&r->f, PAIRING_WRITE_MS); /* the entry has a record */
    for (int i = 0; i < PAIRING_BOT_MAX; i++) {
        snprintf(user, sizeof user, "w%d", i);
        says(r, "b", user, "x");
    }
    assert_false(find(r, "bob", &v));
    says(r, "b", "bob", "Bob"); /* before the record is deleted */
    assert_int_equal(set(r, "bob", PAIRING_BLOCKED), BH_OK);
    facts_rig_pass(&r->f, PAIRING_WRITE_MS);
    crash(r);
    assert_true(find(r, "bob", &v) && v.state == PAIRING_BLOCKED);
}

#define PROMISE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(tenancy_test_pairing)
{
    const struct CMUnitTest tests[] = {
        PROMISE(a_hundred_thousand_strangers_cost_bounded_memory_and_writes),
        PROMISE(the_bot_with_most_people_makes_room),
        PROMISE(a_denied_person_returns_a_week_later_and_a_blocked_one_never),
        PROMISE(the_shorter_retention_counts),
        PROMISE(receipts_are_off_and_then_bounded),
        PROMISE(names_are_cut_and_cannot_turn_the_text_around_them),
        PROMISE(an_approval_links_on_this_bot_and_two_decisions_do_not_meet),
        PROMISE(blocks_are_bounded_and_never_pushed_out),
        PROMISE(a_block_outlives_a_flood_that_had_pushed_the_person_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
