/* Promises of core/journal.h. */
#include "unit.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/event.h"
#include "core/journal.h"

static struct gate_instance ANN = {.tenant = STR("acme"), .instance = STR("ann")},
                            BOB = {.tenant = STR("other"), .instance = STR("bob")};

static struct event message(const char *id, const char *user)
{
    return (struct event){.platform = STR("web"),
                          .bot = STR("lobby"),
                          .message_id = str_of(id),
                          .chat_id = STR("c1"),
                          .chat_type = STR("group"),
                          .user_id = str_of(user),
                          .text = STR("a secret text"),
                          .user_name = STR("A Name")};
}

/* To ann as the owner, not to bob. */
static void note(struct journal *j, const struct event *ev, uint64_t delivery)
{
    struct gate_verdict v[] = {{&BOB, GATE_NO_AUTHOR_FIRST}, {&ANN, GATE_YES_OWNER}};
    struct journal_copy c[] = {{0}, {delivery, JOURNAL_ACCEPTED}};

    journal_event(j, 1000, ev, JOURNAL_JUDGED, NULL, v, c, 2);
}

struct seen {
    size_t n;
    uint64_t pos[64];
    struct journal_record rec[64];
    size_t limit;
};
static bool on_record(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    struct seen *s = ctx;

    if (s->n < 64) {
        s->pos[s->n] = pos;
        s->rec[s->n] = *rec;
    }
    return ++s->n != s->limit;
}
static struct seen all(const struct journal *j)
{
    struct seen s = {0};

    journal_each(j, on_record, &s);
    return s;
}

static void a_record_comes_back_as_it_was_written(void **state)
{
    struct journal *j = journal_new();
    struct event ev = message("m1", "u7");
    note(j, &ev, 77);
    journal_step(j, 1001, JOURNAL_PARKED, 77, 10, STR("10 sockets were lost with it"));
    journal_action(j, &(struct journal_outcome){.platform = STR("web"),
                                                .how = "done",
                                                .bot = STR("lobby"),
                                                .tenant = STR("acme"),
                                                .instance = STR("ann"),
                                                .request = STR("r1"),
                                                .chat = STR("c1"),
                                                .message_id = STR("m2"),
                                                .op = ACTION_SEND,
                                                .number = 9,
                                                .asked_ms = 1002,
                                                .ended_ms = 1005,
                                                .attempts = 2,
                                                .queued = true});
    struct seen s = all(j); /* newest first */
    assert_int_equal(s.n, 3);
    assert_true(s.pos[0] > s.pos[1] && s.pos[1] > s.pos[2]);
    assert_int_equal(s.rec[0].kind, JOURNAL_ACTION);
    assert_str(s.rec[0].request, "r1");
    assert_str(s.rec[0].op, "send");
    assert_str(s.rec[0].how, "done");
    assert_int_equal(s.rec[0].number, 9);
    assert_int_equal(s.rec[0].at_ms - s.rec[0].asked_ms, 3);
    assert_true(s.rec[0].queued);
    assert_int_equal(s.rec[1].what, JOURNAL_PARKED);
    assert_int_equal(s.rec[1].delivery, 77);
    assert_str(s.rec[1].words, "10 sockets were lost with it");
    assert_str(s.rec[2].message_id, "m1");
    assert_str(s.rec[2].user_id, "u7");
    assert_int_equal(s.rec[2].n_verdicts, 2);
    assert_str(s.rec[2].verdicts[0].instance, "ann"); /* recipients come first */
    assert_str(s.rec[2].verdicts[0].reason, "owner");
    assert_int_equal(s.rec[2].verdicts[0].delivery, 77);
    assert_str(s.rec[2].verdicts[1].reason, "author_first");
    journal_free(j);
}

/* The bytes of everything that was written and not taken yet. */
static void take_all(struct journal *j, struct buf *out)
{
    uint64_t block;
    size_t offset;

    for (struct str s; journal_take(j, &block, &offset, &s);)
        buf_add_str(out, s);
}

static void no_text_and_no_name_of_a_person_is_recorded(void **state)
{
    struct journal *j = journal_new();
    struct event ev = message("m1", "u7");
    BUF_LOCAL bytes = BUF_INIT;
    note(j, &ev, 1);
    take_all(j, &bytes);
    assert_true(str_contains(buf_str(&bytes), STR("u7")));
    assert_false(str_contains(buf_str(&bytes), STR("secret")));
    assert_false(str_contains(buf_str(&bytes), STR("Name")));
    journal_free(j);
}

static void strangers_cannot_push_out_what_others_wrote(void **state)
{
    struct journal *j = journal_new();
    struct event mine = message("mine", "u7"), theirs = message("x", "stranger");
    note(j, &mine, 1);
    for (int i = 0; i < 100000; i++) /* within a second */
        journal_event(j, 1000 + i / 100, &theirs, JOURNAL_JUDGED, NULL, NULL, NULL, 0);
    struct seen s = all(j);
    assert_true(s.n <= JOURNAL_STRANGERS_ONCE + JOURNAL_STRANGERS + 2);
    assert_true(journal_thinned(j) >= 98000);
    journal_free(j);
}

static void ids_that_are_too_long_are_cut_and_still_found(void **state)
{
    struct journal *j = journal_new();
    char id[600];
    memset(id, 'i', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    struct event ev = message(id, "u7");
    note(j, &ev, 1);
    struct seen s = all(j);
    struct journal_query q = {.message = str_of(id)};
    assert_int_equal(s.rec[0].message_id.n, JOURNAL_TEXT);
    assert_true(journal_matches(&s.rec[0], &q));
    journal_free(j);
}

static void a_query_matches_by_each_of_its_members(void **state)
{
    struct journal *j = journal_new();
    struct event ev = message("m1", "u7");
    note(j, &ev, 77);
    struct seen s = all(j);
    const struct {
        struct journal_query q;
        bool matches;
    } table[] = {
        {{.delivery = 0}, true},
        {{.platform = STR("web"), .message = STR("m1")}, true},
        {{.platform = STR("discord"), .message = STR("m1")}, false},
        {{.person = STR("u7")}, true},
        {{.person = STR("u8")}, false},
        {{.chat = STR("c1")}, true},
        {{.instance = STR("ann")}, true},
        {{.tenant = STR("other"), .instance = STR("ann")}, false}, /* of one verdict together */
        {{.tenant = STR("other")}, true},
        {{.delivery = 77}, true},
        {{.delivery = 78}, false},
        {{.action = STR("m1")}, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (journal_matches(&s.rec[0], &table[i].q) != table[i].matches)
            fail_msg("row %zu", i);
    journal_free(j);
}

static void bytes_are_taken_once_and_blocks_that_nobody_took_are_counted(void **state)
{
    struct journal *j = journal_new();
    struct event ev = message("m1", "u7");
    uint64_t block, first;
    size_t offset;
    struct str bytes;
    journal_begin_at(j, 5);
    assert_false(journal_take(j, &block, &offset, &bytes));
    note(j, &ev, 1);
    assert_true(journal_take(j, &first, &offset, &bytes));
    assert_int_equal(first, 5);
    assert_int_equal(offset, JOURNAL_HEAD);
    assert_false(journal_take(j, &block, &offset, &bytes));
    note(j, &ev, 2);
    size_t n = bytes.n;
    assert_true(journal_take(j, &block, &offset, &bytes));
    assert_int_equal(offset, JOURNAL_HEAD + n);
    assert_int_equal(journal_dropped(j), 0);
    for (size_t i = 0; i < JOURNAL_BLOCK / n * (JOURNAL_BLOCKS + 3); i++)
        note(j, &ev, 3);
    assert_true(journal_dropped(j) > 0);
    assert_true(journal_take(j, &block, &offset, &bytes));
    assert_true(block > first);
    journal_free(j);
}

static void a_block_is_full_before_the_next_one_begins(void **state)
{
    struct journal *j = journal_new();
    struct event ev = message("m1", "u7");
    uint64_t first = journal_end(j) / JOURNAL_BLOCK, last = 0;

    while (journal_end(j) / JOURNAL_BLOCK == first) {
        last = journal_end(j);
        note(j, &ev, 1);
    }
    assert_true(last % JOURNAL_BLOCK > JOURNAL_BLOCK / 100 * 90);
    journal_free(j);
}

static void the_longest_records_end_before_their_block_does(void **state)
{
    enum { MANY = JOURNAL_VERDICTS + 4 };
    static char text[JOURNAL_TEXT + 46];
    struct rand r = rand_seeded(1);
    struct journal *j = journal_new();
    struct gate_verdict v[MANY];
    struct journal_copy c[MANY];

    memset(text, 'x', sizeof text - 1);
    struct str x = str_of(text);
    struct gate_instance to = {.tenant = x, .instance = x};
    struct event ev = {.platform = x,
                       .bot = x,
                       .message_id = x,
                       .chat_id = x,
                       .chat_type = x,
                       .user_id = x,
                       .trace = x};
    for (size_t i = 0; i < MANY; i++) {
        v[i] = (struct gate_verdict){&to, GATE_YES_OWNER};
        c[i] = (struct journal_copy){i, JOURNAL_ACCEPTED};
    }
    for (int i = 0; i < 20000; i++) {
        for (uint64_t k = rand_below(&r, 200); k > 0; k--)
            journal_step(j, 1, JOURNAL_SENT, k, 0, STR_NULL);
        journal_event(j, 1, &ev, JOURNAL_CONSUMED, text, v, c, rand_below(&r, MANY));
        uint64_t at = journal_end(j) % JOURNAL_BLOCK;
        assert_true(at >= JOURNAL_HEAD || at == 0); /* else the payload has grown too long */
    }
    journal_free(j);
}

static void what_is_erased_of_a_person_or_a_tenant_is_gone_and_the_rest_is_readable(void **state)
{
    struct journal *j = journal_new();
    struct event ada = message("m1", "ada"), bob = message("m2", "bob");
    BUF_LOCAL bytes = BUF_INIT;
    note(j, &ada, 1);
    note(j, &bob, 2);
    journal_step(j, 1001, JOURNAL_SENT, 2, 0, STR_NULL);
    struct journal_subject person = {.platform = STR("web"), .user = STR("ada")};
    assert_int_equal(journal_forget(j, &person, true), 1);
    assert_int_equal(all(j).n, 3);
    assert_int_equal(journal_forget(j, &person, false), 1);
    struct seen s = all(j);
    assert_int_equal(s.n, 2);
    assert_str(s.rec[1].user_id, "bob");
    struct journal_subject tenant = {.tenant = STR("acme")};
    assert_int_equal(journal_forget(j, &tenant, false), 1);
    s = all(j);
    assert_int_equal(s.n, 2); /* the other tenant's verdict stays */
    assert_int_equal(s.rec[1].n_verdicts, 1);
    assert_str(s.rec[1].verdicts[0].tenant, "other");
    tenant.tenant = STR("other");
    journal_forget(j, &tenant, false);
    assert_int_equal(all(j).n, 1);
    take_all(j, &bytes);
    assert_false(str_contains(buf_str(&bytes), STR("ada")));
    assert_false(str_contains(buf_str(&bytes), STR("acme")));
    journal_free(j);
}

static void damaged_bytes_end_the_reading_and_do_no_harm(void **state)
{
    struct journal *j = journal_new();
    struct event ev = message("m1", "u7");
    BUF_LOCAL bytes = BUF_INIT;
    struct journal_record rec;
    note(j, &ev, 1);
    journal_step(j, 1001, JOURNAL_SENT, 1, 0, STR_NULL);
    take_all(j, &bytes);
    for (size_t i = 0; i < bytes.n; i++)
        for (int bit = 0; bit < 8; bit++) {
            char *copy = xmalloc(bytes.n); /* so that reading past the end is seen */
            memcpy(copy, bytes.p, bytes.n);
            copy[i] = (char)(copy[i] ^ (1 << bit));
            for (struct str rest = str_make(copy, bytes.n); journal_read(&rest, &rec);)
                ;
            free(copy);
        }
    for (size_t n = 0; n < bytes.n; n++) {
        char *copy = xmalloc(n + 1);
        memcpy(copy, bytes.p, n);
        for (struct str rest = str_make(copy, n); journal_read(&rest, &rec);)
            ;
        free(copy);
    }
    journal_free(j);
}

static struct journal_record watched[16];
static size_t n_watched;
static void on_watched(void *ctx, const struct journal_record *rec)
{
    watched[n_watched++] = *rec;
}

static void a_watch_sees_the_events_it_asks_for_and_the_steps_of_their_deliveries(void **state)
{
    struct journal *j = journal_new();
    struct event ada = message("m1", "ada"), bob = message("m2", "bob");
    struct journal_watch w = {.query = {.person = STR("ada")}, .cb = on_watched}, more[16] = {0};
    n_watched = 0;
    note(j, &ada, 1); /* before it watches */
    assert_true(journal_watch(j, &w));
    note(j, &bob, 2);
    note(j, &ada, 3);
    journal_step(j, 1001, JOURNAL_SENT, 2, 0, STR_NULL);
    journal_step(j, 1001, JOURNAL_SENT, 3, 0, STR_NULL);
    assert_int_equal(n_watched, 2);
    assert_int_equal(watched[0].verdicts[0].delivery, 3);
    assert_int_equal(watched[1].delivery, 3);
    for (size_t i = 0; i < JOURNAL_WATCHES; i++)
        assert_int_equal(journal_watch(j, &more[i]), i < JOURNAL_WATCHES - 1);
    for (size_t i = 0; i < JOURNAL_WATCHES; i++)
        journal_unwatch(&more[i]);
    journal_unwatch(&w);
    journal_unwatch(&w);
    note(j, &ada, 4);
    assert_int_equal(n_watched, 2);
    journal_free(j);
}

static void a_tenant_that_watches_leaves_watches_for_others(void **state)
{
    struct journal *j = journal_new();
    struct journal_watch of_acme[JOURNAL_WATCHES] = {0}, of_other = {0}, of_operator = {0};
    size_t n = 0;

    for (size_t i = 0; i < JOURNAL_WATCHES; i++) {
        of_acme[i].query = (struct journal_query){.tenant = STR("acme"), .by_tenant = true};
        n += journal_watch(j, &of_acme[i]);
    }
    assert_int_equal(n, JOURNAL_WATCHES / JOURNAL_SHARE);
    of_other.query = (struct journal_query){.tenant = STR("other"), .by_tenant = true};
    of_operator.query = (struct journal_query){.tenant = STR("acme")};
    assert_true(journal_watch(j, &of_other));
    assert_true(journal_watch(j, &of_operator));
    journal_unwatch(&of_acme[0]);
    assert_true(journal_watch(j, &of_acme[0]));
    for (size_t i = 0; i < JOURNAL_WATCHES; i++)
        journal_unwatch(&of_acme[i]);
    journal_unwatch(&of_other);
    journal_unwatch(&of_operator);
    journal_free(j);
}

UNIT(core_test_journal)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_comes_back_as_it_was_written),
        cmocka_unit_test(no_text_and_no_name_of_a_person_is_recorded),
        cmocka_unit_test(strangers_cannot_push_out_what_others_wrote),
        cmocka_unit_test(ids_that_are_too_long_are_cut_and_still_found),
        cmocka_unit_test(a_query_matches_by_each_of_its_members),
        cmocka_unit_test(bytes_are_taken_once_and_blocks_that_nobody_took_are_counted),
        cmocka_unit_test(a_block_is_full_before_the_next_one_begins),
        cmocka_unit_test(the_longest_records_end_before_their_block_does),
        cmocka_unit_test(what_is_erased_of_a_person_or_a_tenant_is_gone_and_the_rest_is_readable),
        cmocka_unit_test(damaged_bytes_end_the_reading_and_do_no_harm),
        cmocka_unit_test(a_watch_sees_the_events_it_asks_for_and_the_steps_of_their_deliveries),
        cmocka_unit_test(a_tenant_that_watches_leaves_watches_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
