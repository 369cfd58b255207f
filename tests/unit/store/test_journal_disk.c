/* Promises of store/journal_disk.h. */
#include "unit.h"
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "core/event.h"
#include "net/loop.h"
#include "store/journal_disk.h"

static struct {
    char dir[64];
    struct loop *loop;
    struct journal *journal;
    struct journal_disk *disk;
    uint64_t max_bytes;
    int64_t keep_ms;
} rig;

static struct gate_instance ANN = {.tenant = STR("acme"), .instance = STR("ann")};

static void open_disk(void)
{
    char why[256];

    rig.journal = journal_new();
    assert_int_equal(journal_disk_open(&(struct journal_disk_env){.loop = rig.loop,
                                                                  .journal = rig.journal,
                                                                  .dir = rig.dir,
                                                                  .key = {1, 2},
                                                                  .keep_ms = rig.keep_ms,
                                                                  .max_bytes = rig.max_bytes},
                                       &rig.disk, why),
                     BH_OK);
}

static void close_disk(void)
{
    journal_disk_close(rig.disk);
    journal_free(rig.journal);
}

static int setup(void **state)
{
    memset(&rig, 0, sizeof rig);
    strcpy(rig.dir, "/tmp/bh-why-XXXXXX");
    assert_non_null(mkdtemp(rig.dir));
    rig.loop = loop_new();
    rig.max_bytes = 64 << 20;
    rig.keep_ms = 3600000;
    open_disk();
    return 0;
}

/* The files in the folder; with @remove they go. */
static size_t files(bool remove, uint64_t *ret_bytes)
{
    DIR *dir = opendir(rig.dir);
    size_t n = 0;

    *ret_bytes = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[400];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", rig.dir, e->d_name);
        int fd = open(path, O_RDONLY);
        *ret_bytes += (uint64_t)lseek(fd, 0, SEEK_END);
        close(fd);
        n++;
        if (remove)
            unlink(path);
    }
    closedir(dir);
    return n;
}

static int teardown(void **state)
{
    uint64_t bytes;

    close_disk();
    loop_free(rig.loop);
    files(true, &bytes);
    rmdir(rig.dir);
    return 0;
}

static int64_t now_ms(void)
{
    return clock_wall_ms(loop_clock(rig.loop));
}

static void note(const char *id, const char *user, uint64_t delivery, int64_t at_ms)
{
    struct event ev = {.platform = STR("web"),
                       .message_id = str_of(id),
                       .chat_id = STR("c1"),
                       .user_id = str_of(user)};
    struct gate_verdict v = {&ANN, GATE_YES_OWNER};
    struct journal_copy c = {delivery, JOURNAL_ACCEPTED};

    journal_event(rig.journal, at_ms, &ev, JOURNAL_JUDGED, NULL, &v, &c, 1);
}

struct answer {
    bool here;
    size_t n_hits, n_steps;
    char first[32], last[32];
    uint64_t next;
    struct journal_record step[4];
};

static void on_found(void *ctx, const struct journal_found *f)
{
    struct answer *a = ctx;

    *a = (struct answer){.here = true, .n_hits = f->n_hits, .n_steps = f->n_steps, .next = f->next};
    if (f->n_hits > 0) {
        snprintf(a->first, sizeof a->first, "%.*s", STR_FMT(f->hits[0].rec.message_id));
        snprintf(a->last, sizeof a->last, "%.*s", STR_FMT(f->hits[f->n_hits - 1].rec.message_id));
    }
    for (size_t i = 0; i < f->n_steps && i < 4; i++)
        a->step[i] = f->steps[i].rec;
}

static struct answer find(struct journal_query q, uint64_t before, size_t limit)
{
    struct answer a = {0};

    assert_true(journal_disk_find(rig.disk, &q, before, limit, on_found, &a));
    while (!a.here)
        loop_turn(rig.loop, 100);
    return a;
}

static void a_search_sees_what_was_recorded_before_it_with_the_steps(void **state)
{
    note("m1", "u1", 7, now_ms());
    note("m2", "u2", 8, now_ms());
    journal_step(rig.journal, now_ms(), JOURNAL_SENT, 7, 0, STR_NULL);
    journal_step(rig.journal, now_ms(), JOURNAL_ACKED, 8, 0, STR_NULL);
    journal_step(rig.journal, now_ms(), JOURNAL_ACKED, 7, 0, STR_NULL);
    struct answer a = find((struct journal_query){.person = STR("u1")}, 0, 20);
    assert_int_equal(a.n_hits, 1);
    assert_string_equal(a.first, "m1");
    assert_int_equal(a.n_steps, 2);
    assert_int_equal(a.step[0].what, JOURNAL_SENT);
    assert_int_equal(a.step[1].what, JOURNAL_ACKED);
    assert_int_equal(find((struct journal_query){.message = STR("none")}, 0, 20).n_hits, 0);
}

static void records_outlive_the_process_and_numbers_go_on(void **state)
{
    note("m1", "u1", 7, now_ms());
    close_disk();
    open_disk();
    note("m2", "u1", 9, now_ms());
    struct answer a = find((struct journal_query){.person = STR("u1")}, 0, 20);
    assert_int_equal(a.n_hits, 2);
    assert_string_equal(a.first, "m2");
    assert_string_equal(a.last, "m1");
}

static void pages_follow_each_other_without_gap_or_repetition(void **state)
{
    char id[16];
    size_t got = 0;
    for (int i = 0; i < 3000; i++) { /* several blocks */
        snprintf(id, sizeof id, "m%d", i);
        note(id, i % 3 == 0 ? "u1" : "u2", (uint64_t)i + 1, now_ms());
    }
    uint64_t before = 0;
    do {
        struct answer a = find((struct journal_query){.person = STR("u1")}, before, 150);
        snprintf(id, sizeof id, "m%zu", 2997 - got * 3);
        if (a.n_hits > 0)
            assert_string_equal(a.first, id);
        got += a.n_hits;
        before = a.next;
    } while (before != 0);
    assert_int_equal(got, 1000);
}

static void the_oldest_go_beyond_the_bytes(void **state)
{
    uint64_t bytes;
    char id[16];
    close_disk();
    rig.max_bytes = 1 << 20;
    open_disk();
    for (int i = 0; i < 60000; i++) {
        snprintf(id, sizeof id, "m%d", i);
        note(id, "u1", (uint64_t)i + 1, now_ms());
        if (i % 500 == 0) /* as fast as the thread writes */
            find((struct journal_query){.message = STR("none")}, 0, 1);
    }
    assert_int_equal(find((struct journal_query){.message = STR("m59999")}, 0, 1).n_hits, 1);
    assert_int_equal(find((struct journal_query){.message = STR("m0")}, 0, 1).n_hits, 0);
    files(false, &bytes);
    assert_true(bytes <= rig.max_bytes + rig.max_bytes / 4);
    struct journal_stats s;
    journal_disk_stats(rig.disk, &s);
    assert_int_equal(s.dropped_blocks + s.failed, 0);
}

static void what_is_older_than_its_time_is_not_found_and_not_kept(void **state)
{
    uint64_t bytes;
    note("old", "u1", 1, now_ms() - rig.keep_ms - 1000);
    note("new", "u1", 2, now_ms());
    struct answer a = find((struct journal_query){.person = STR("u1")}, 0, 20);
    assert_int_equal(a.n_hits, 1);
    assert_string_equal(a.first, "new");
    journal_disk_set(rig.disk, 1, rig.max_bytes); /* a millisecond: everything is too old */
    for (int64_t from = now_ms(); now_ms() - from < 3;)
        loop_turn(rig.loop, 1);
    close_disk();
    rig.keep_ms = 1;
    open_disk(); /* looks for old files */
    files(false, &bytes);
    assert_int_equal(bytes, 0);
}

static void a_damaged_file_costs_its_own_records_only(void **state)
{
    char path[128];
    note("m1", "u1", 1, now_ms());
    close_disk();
    snprintf(path, sizeof path, "%s/why-%016x.log", rig.dir, 1);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "garbage", 7, JOURNAL_HEAD), 7);
    close(fd);
    snprintf(path, sizeof path, "%s/why-%016llx.log", rig.dir, 0xffffffffffffffffull);
    fd = open(path, O_WRONLY | O_CREAT, 0600); /* a name that would overflow */
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    open_disk();
    note("m2", "u1", 2, now_ms());
    struct answer a = find((struct journal_query){.person = STR("u1")}, 0, 20);
    assert_int_equal(a.n_hits, 1);
    assert_string_equal(a.first, "m2");
}

static void searches_are_bounded_and_closing_drops_their_callbacks(void **state)
{
    struct answer a = {0};
    struct journal_query q = {.person = STR("u1")};
    int n = 0;
    while (n < 1000 && journal_disk_find(rig.disk, &q, 0, 1, on_found, &a))
        n++;
    assert_in_range(n, 1, 64);
    close_disk();
    assert_false(a.here);
    open_disk();
}

static void a_tenant_that_searches_leaves_searches_for_others(void **state)
{
    struct answer a = {0};
    struct journal_query acme = {.tenant = STR("acme"), .by_tenant = true},
                         other = {.tenant = STR("other"), .by_tenant = true},
                         of_operator = {.tenant = STR("acme")};
    int n = 0;
    while (n < 1000 && journal_disk_find(rig.disk, &acme, 0, 1, on_found, &a))
        n++;
    assert_in_range(n, 5, 16); /* a page of the dashboard begins five at once */
    assert_true(journal_disk_find(rig.disk, &other, 0, 1, on_found, &a));
    assert_true(journal_disk_find(rig.disk, &of_operator, 0, 1, on_found, &a));
    close_disk();
    open_disk();
}

UNIT(store_test_journal_disk)
{
#define P(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        P(a_search_sees_what_was_recorded_before_it_with_the_steps),
        P(records_outlive_the_process_and_numbers_go_on),
        P(pages_follow_each_other_without_gap_or_repetition),
        P(the_oldest_go_beyond_the_bytes),
        P(what_is_older_than_its_time_is_not_found_and_not_kept),
        P(a_damaged_file_costs_its_own_records_only),
        P(searches_are_bounded_and_closing_drops_their_callbacks),
        P(a_tenant_that_searches_leaves_searches_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
