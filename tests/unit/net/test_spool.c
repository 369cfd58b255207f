/* Promises of net/spool.h. */
#include "net/net_test.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "net/spool.h"

struct fixture {
    struct loop *loop;
    struct spool *spool;
    char dir[64];
    struct buf heard; /* the lines, each with a "|" after it, old ones with "old:" before them */
    unsigned dry;
    bool holds, begins; /* line() says no; dry() begins a file */
    int to;
};

static bool on_line(void *ctx, struct str line, bool old)
{
    struct fixture *f = ctx;

    buf_printf(&f->heard, "%s%.*s|", old ? "old:" : "", STR_FMT(line));
    return !f->holds;
}

static void on_dry(void *ctx)
{
    struct fixture *f = ctx;

    f->dry++;
    if (f->begins)
        f->to = spool_begin(f->spool);
}

static const struct spool_ops ops = {.line = on_line, .dry = on_dry};

static void open_spool(struct fixture *f)
{
    char why[256];

    f->dry = 0;
    f->begins = true;
    f->spool = spool_open(f->loop, f->dir, 100, &ops, f, why);
    assert_non_null(f->spool);
}

static int set_up(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);

    strcpy(f->dir, "/tmp/spool-XXXXXX");
    f->to = -1;
    f->loop = loop_new();
    if (mkdtemp(f->dir) == NULL || f->loop == NULL)
        return -1;
    open_spool(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    DIR *d = opendir(f->dir);

    spool_free(f->spool);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(f->dir);
    if (f->to >= 0)
        close(f->to);
    buf_done(&f->heard);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void turn_until(struct fixture *f, const char *heard, unsigned dry)
{
    int64_t end = test_now_ms() + 20000;

    while (test_now_ms() < end && (strcmp(buf_z(&f->heard), heard) != 0 || f->dry < dry))
        loop_turn(f->loop, 50);
    assert_string_equal(buf_z(&f->heard), heard);
    assert_true(f->dry >= dry);
}

static void print(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static size_t files_in(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);

    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void lines_come_as_they_are_printed(void **state)
{
    struct fixture *f = *state;

    turn_until(f, "", 1);
    print(f->to, "one\ntwo\nthr");
    turn_until(f, "one|two|", 1);
    print(f->to, "ee\n\n");
    turn_until(f, "one|two|three||", 1);
    assert_int_equal(spool_unread(f->spool), 0);
}

static void a_line_that_is_not_taken_holds_those_behind_it(void **state)
{
    struct fixture *f = *state;

    turn_until(f, "", 1);
    f->holds = true;
    print(f->to, "one\ntwo\n");
    turn_until(f, "one|", 1);
    loop_turn(f->loop, 20);
    assert_int_equal(spool_unread(f->spool), 8);
    f->holds = false;
    spool_taken(f->spool);
    turn_until(f, "one|two|", 1);
}

static void the_next_process_reads_on_where_the_last_one_stopped(void **state)
{
    struct fixture *f = *state;

    turn_until(f, "", 1);
    print(f->to, "one\n");
    turn_until(f, "one|", 1);
    f->holds = true;
    print(f->to, "two\nthree\n");
    turn_until(f, "one|two|", 1);
    spool_free(f->spool); /* as if killed: two was not taken */
    print(f->to, "four\n");
    close(f->to);
    f->to = -1;
    f->holds = false;
    open_spool(f);
    turn_until(f, "one|two|old:two|old:three|old:four|", 1);
    assert_int_equal(files_in(f->dir), 1); /* the new one */
}

static void a_program_that_outlives_its_starter_is_awaited(void **state)
{
    struct fixture *f = *state;

    turn_until(f, "", 1);
    spool_free(f->spool);
    int still = f->to;
    f->to = -1;
    open_spool(f);
    for (int i = 0; i < 5; i++)
        loop_turn(f->loop, 50);
    assert_int_equal(f->dry, 0);
    print(still, "late\n");
    turn_until(f, "old:late|", 0);
    assert_int_equal(f->dry, 0);
    close(still);
    turn_until(f, "old:late|", 1);
}

static void the_end_of_a_program_comes_after_its_last_line(void **state)
{
    struct fixture *f = *state;

    turn_until(f, "", 1);
    f->begins = false;
    print(f->to, "one\nhalf");
    close(f->to);
    f->to = -1;
    spool_end(f->spool);
    turn_until(f, "one|", 2);
    assert_int_equal(files_in(f->dir), 0);
}

static void a_line_that_is_too_long_is_dropped(void **state)
{
    struct fixture *f = *state;
    char big[70000];

    turn_until(f, "", 1);
    memset(big, 'x', sizeof big);
    print(f->to, "one\n");
    assert_int_equal(write(f->to, big, sizeof big), (ssize_t)sizeof big);
    assert_int_equal(write(f->to, big, sizeof big), (ssize_t)sizeof big);
    print(f->to, "\ntwo\n");
    turn_until(f, "one|two|", 1);
}

static void taken_lines_are_erased(void **state)
{
    struct fixture *f = *state;
    BUF_LOCAL path = BUF_INIT;
    char bytes[16384] = "";
    int64_t end = test_now_ms() + 20000;
    ssize_t n;

    turn_until(f, "", 1);
    print(f->to, "secret\n");
    turn_until(f, "secret|", 1);
    buf_printf(&path, "%s/1", f->dir);
    do {
        loop_turn(f->loop, 50);
        int fd = open(buf_z(&path), O_RDONLY | O_CLOEXEC);
        n = read(fd, bytes, sizeof bytes);
        close(fd);
        assert_int_equal(n, 4096 + 7);
    } while (memcmp(bytes + 4096, "\0\0\0\0\0\0\0", 7) != 0 && test_now_ms() < end);
    assert_memory_equal(bytes + 4096, "\0\0\0\0\0\0\0", 7);
    print(f->to, "more\n");
    turn_until(f, "secret|more|", 1);
}

static void foreign_files_are_left_alone(void **state)
{
    struct fixture *f = *state;
    BUF_LOCAL path = BUF_INIT;

    turn_until(f, "", 1);
    spool_free(f->spool);
    close(f->to);
    f->to = -1;
    buf_printf(&path, "%s/7", f->dir);
    int fd = open(buf_z(&path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    print(fd, "not a file of lines\n");
    close(fd);
    open_spool(f);
    turn_until(f, "", 1);
    print(f->to, "x\n");
    turn_until(f, "x|", 1);
    assert_int_equal(files_in(f->dir), 2);
}

UNIT(net_test_spool)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_come_as_they_are_printed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_that_is_not_taken_holds_those_behind_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_next_process_reads_on_where_the_last_one_stopped,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_program_that_outlives_its_starter_is_awaited, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_a_program_comes_after_its_last_line, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_line_that_is_too_long_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(taken_lines_are_erased, set_up, tear_down),
        cmocka_unit_test_setup_teardown(foreign_files_are_left_alone, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
