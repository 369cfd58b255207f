/* Promises of sdk/src/seen.h. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "unit.h"
#include "../../../sdk/src/seen.h"
#include "base/file.h"

static char dir[64], path[96];

static int make_dir(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/seen-file-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/ids", dir);
    return 0;
}

static int remove_dir(void **state)
{
    unlink(path);
    return rmdir(dir); /* and nothing else was left in it */
}

static void put(const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static size_t size_of_file(void)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

struct process { /* what one process has */
    struct seen l;
    struct seen_file f;
};

static void start(struct process *p, size_t keep)
{
    char why[256];

    seen_init(&p->l, keep);
    assert_true(seen_file_open(&p->f, path, &p->l, why));
}

static void end(struct process *p)
{
    seen_file_done(&p->f);
    seen_done(&p->l);
}

static bool settle(struct process *p, struct str id)
{
    seen_settle(&p->l, seen_add(&p->l, id, 1));
    return seen_file_add(&p->f, &p->l, id);
}

static bool knows(const struct process *p, struct str id)
{
    const struct seen_entry *e = seen_find(&p->l, id);

    return e != NULL && e->state == SEEN_SETTLED;
}

static void an_id_settled_in_one_process_is_settled_in_the_next(void **state)
{
    struct process p;

    start(&p, 10);
    settle(&p, STR("b1"));
    settle(&p, STR("odd \n\0%\xff id"));
    end(&p);
    start(&p, 10);
    assert_true(knows(&p, STR("b1")));
    assert_true(knows(&p, STR("odd \n\0%\xff id")));
    assert_false(knows(&p, STR("b2")));
    assert_int_equal(seen_n_pending(&p.l), 0);
    end(&p);
}

/* Whatever part of the last write arrived: what was whole before is known, and so is what comes
 * after. */
static void a_torn_write_costs_one_id_at_most(void **state)
{
    struct buf whole = BUF_INIT;
    struct process p;

    start(&p, 10);
    settle(&p, STR("first"));
    settle(&p, STR("second"));
    end(&p);
    assert_true(file_read(path, 4096, &whole));
    for (size_t n = 0; n < whole.n; n++) {
        put(whole.p, n);
        start(&p, 10);
        assert_int_equal(knows(&p, STR("first")), n >= whole.n - sizeof "second" + 1 - 1);
        assert_false(knows(&p, STR("second")));
        settle(&p, STR("third"));
        end(&p);
        start(&p, 10);
        assert_true(knows(&p, STR("third")));
        assert_false(knows(&p, STR("second")));
        end(&p);
    }
    buf_done(&whole);
}

static void the_file_is_bounded_and_keeps_the_newest(void **state)
{
    struct process p;
    char id[32];
    size_t most = 0;

    start(&p, 50);
    for (int i = 0; i < 1000; i++) {
        assert_true(settle(&p, str_make(id, (size_t)sprintf(id, "id-%06d", i))));
        most = size_of_file() > most ? size_of_file() : most;
    }
    end(&p);
    assert_true(most <= 100 * sizeof "id-000000" + 64);
    start(&p, 50);
    for (int i = 0; i < 50; i++)
        assert_true(knows(&p, str_make(id, (size_t)sprintf(id, "id-%06d", 999 - i))));
    assert_false(knows(&p, STR("id-000000")));
    end(&p);
}

static void a_longer_list_than_is_kept_leaves_the_newest(void **state)
{
    struct process p;
    char id[32];

    start(&p, 500);
    for (int i = 0; i < 400; i++)
        settle(&p, str_make(id, (size_t)sprintf(id, "%d", i)));
    end(&p);
    start(&p, 40);
    assert_true(knows(&p, STR("399")) && knows(&p, STR("360")));
    assert_false(knows(&p, STR("359")));
    settle(&p, STR("new"));
    end(&p);
    assert_true(size_of_file() < 400);
}

static void one_process_at_a_time_and_the_next_takes_over(void **state)
{
    struct process old, new;

    start(&old, 10);
    settle(&old, STR("of the old"));
    start(&new, 10);
    assert_true(settle(&new, STR("kept in memory")));
    assert_true(settle(&old, STR("late")));
    end(&old);
    assert_true(settle(&new, STR("of the new")));
    assert_true(knows(&new, STR("late")));
    end(&new);
    start(&new, 10);
    assert_true(knows(&new, STR("of the old")) && knows(&new, STR("late")));
    assert_true(knows(&new, STR("kept in memory")) && knows(&new, STR("of the new")));
    end(&new);
}

static void what_is_not_ours_is_refused_and_left_alone(void **state)
{
    static const char *const theirs[] = {"my diary\n", "bellhop settled ids 2\nx\n", "\n"};
    struct seen l;
    struct seen_file f;
    char why[256];

    seen_init(&l, 10);
    for (size_t i = 0; i < 3; i++) {
        put(theirs[i], strlen(theirs[i]));
        assert_false(seen_file_open(&f, path, &l, why));
        assert_non_null(strstr(why, "something else"));
        assert_int_equal(size_of_file(), strlen(theirs[i]));
    }
    assert_false(seen_file_open(&f, dir, &l, why));
    assert_false(seen_file_open(&f, "/nowhere/at/all", &l, why));
    assert_non_null(strstr(why, "/nowhere/at/all: No such file"));
    seen_done(&l);
}

static void a_full_disk_is_told_once_and_survived(void **state)
{
    struct process p;
    struct rlimit before, tight;

    start(&p, 10);
    assert_true(settle(&p, STR("a")));
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){size_of_file() + 3, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
    assert_false(settle(&p, STR("does not fit")));
    assert_true(settle(&p, STR("nor does this"))); /* told before */
    setrlimit(RLIMIT_FSIZE, &before);
    assert_true(settle(&p, STR("b")));
    end(&p);
    start(&p, 10);
    assert_true(knows(&p, STR("a")) && knows(&p, STR("b")));
    assert_int_equal(p.l.n_settled, 2);
    end(&p);
}

#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

UNIT(sdk_test_seen_file)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(an_id_settled_in_one_process_is_settled_in_the_next),
        IN_DIR(a_torn_write_costs_one_id_at_most),
        IN_DIR(the_file_is_bounded_and_keeps_the_newest),
        IN_DIR(a_longer_list_than_is_kept_leaves_the_newest),
        IN_DIR(one_process_at_a_time_and_the_next_takes_over),
        IN_DIR(what_is_not_ours_is_refused_and_left_alone),
        IN_DIR(a_full_disk_is_told_once_and_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
