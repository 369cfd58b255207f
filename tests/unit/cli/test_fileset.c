/* Promises of cli/fileset.h, on a real disk. */
#include "unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "cli/fileset.h"

static char folder[40];

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/bellhop-test-set-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[64];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static const char *at(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text, unsigned mode)
{
    FILE *f = fopen(at(name), "we");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(at(name), mode), 0);
}

static void assert_file(const char *name, const char *text, unsigned mode)
{
    struct buf read = BUF_INIT;
    struct stat st;

    assert_true(file_read(at(name), 4096, &read));
    assert_string_equal(buf_z(&read), text);
    assert_int_equal(stat(at(name), &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
    buf_done(&read);
}

static size_t count_files(void)
{
    char command[96];
    size_t n = 0;

    snprintf(command, sizeof command, "find %s -type f", folder);
    FILE *f = popen(command, "re");
    for (int c; (c = fgetc(f)) != EOF;)
        n += c == '\n';
    pclose(f);
    return n;
}

static void nothing_is_written_before_it_is_told_to(void **state)
{
    struct fileset s = {.n = 0};

    fileset_add(&s, at("a"), STR("x"), 0644);
    fileset_done(&s);
    assert_int_equal(count_files(), 0);
}

static void files_get_their_modes_and_an_existing_one_keeps_its_own(void **state)
{
    struct fileset s = {.n = 0};
    struct stat st;
    char why[256] = "";

    put("old", "before", 0640);
    put("leaked", "before", 0644);
    fileset_add(&s, at("old"), STR("no"), 0644);
    fileset_add(&s, at("old"), STR("after"), 0644);
    fileset_add(&s, at("leaked"), STR("secret"), 0600);
    fileset_add(&s, at("secrets/token"), STR("t"), 0600);
    fileset_add(&s, at("conf.d/x"), STR("y"), 0644);
    assert_true(fileset_write(&s, why));
    fileset_keep(&s);
    fileset_done(&s);
    assert_file("old", "after", 0640);
    assert_file("leaked", "secret", 0600);
    assert_file("secrets/token", "t", 0600);
    assert_file("conf.d/x", "y", 0644);
    assert_int_equal(stat(at("secrets"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(count_files(), 4);
}

static void what_is_undone_is_as_it_was(void **state)
{
    struct fileset s = {.n = 0};
    char why[256] = "";

    put("old", "before", 0640);
    fileset_add(&s, at("old"), STR("after"), 0644);
    fileset_add(&s, at("new.d/new"), STR("x"), 0600);
    assert_true(fileset_write(&s, why));
    assert_file("old", "after", 0640);
    fileset_undo(&s);
    fileset_done(&s);
    assert_file("old", "before", 0640);
    assert_int_equal(count_files(), 1);
    assert_int_not_equal(access(at("new.d"), F_OK), 0);
}

static void one_file_that_cannot_be_written_undoes_all(void **state)
{
    struct fileset s = {.n = 0};
    char why[256] = "";

    put("old", "before", 0600);
    put("blocked", "a file", 0600);
    fileset_add(&s, at("old"), STR("after"), 0600);
    fileset_add(&s, at("new"), STR("x"), 0600);
    fileset_add(&s, at("blocked/inside"), STR("x"), 0600);
    assert_false(fileset_write(&s, why));
    assert_non_null(strstr(why, "blocked/inside: "));
    fileset_done(&s);
    assert_file("old", "before", 0600);
    assert_int_equal(count_files(), 2);
}

UNIT(cli_test_fileset)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_written_before_it_is_told_to, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(files_get_their_modes_and_an_existing_one_keeps_its_own,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_undone_is_as_it_was, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(one_file_that_cannot_be_written_undoes_all, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
