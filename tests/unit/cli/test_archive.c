/* Promises of cli/archive.h. */
#include "unit.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/file.h"
#include "cli/archive.h"

static char dir[64], tar[128], file[128], out[128], why[256];

static int setup(void **state)
{
    strcpy(dir, "/tmp/bellhop-archive-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(tar, sizeof tar, "%s/a.tar", dir);
    snprintf(file, sizeof file, "%s/file", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    return 0;
}

static int teardown(void **state)
{
    unlink(tar);
    unlink(file);
    unlink(out);
    return rmdir(dir);
}

static void write_file(const char *path, const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static enum bh_err make(const char *const *names, size_t n)
{
    struct archive a;
    enum bh_err err = BH_OK;

    unlink(tar);
    assert_int_equal(archive_create(&a, tar, why), BH_OK);
    for (size_t i = 0; i < n && err == BH_OK; i++) {
        write_file(file, names[i], i * 100 < strlen(names[i]) ? i * 100 : strlen(names[i]));
        err = archive_add(&a, names[i], file, why);
    }
    if (err == BH_OK)
        assert_int_equal(archive_finish(&a, why), BH_OK);
    archive_close(&a);
    return err;
}

static void what_goes_in_comes_out(void **state)
{
    static const char *const names[] = {
        "bellhop.db", "data/acme/notes.db",
        "data/a-tenant-with-quite-a-long-name-that-does-not-fit-into-the-first-field-of-a-head/"
        "and-a-namespace-that-is-long-too-longer-than-any-field-of-a-head-has-room-for-and-that-is-"
        "no-reason-to-leave-it-out-of-a-backup.db"};
    struct archive a;
    char name[ARCHIVE_NAME];
    uint64_t bytes;

    assert_int_equal(make(names, 3), BH_OK);
    assert_int_equal(archive_open(&a, tar, why), BH_OK);
    for (size_t i = 0; i < 3; i++) {
        struct buf got = BUF_INIT;
        size_t n = i * 100 < strlen(names[i]) ? i * 100 : strlen(names[i]);
        unlink(out);
        assert_int_equal(archive_next(&a, name, &bytes, why), BH_OK);
        assert_string_equal(name, names[i]);
        assert_int_equal(bytes, n);
        if (i == 1)
            continue; /* not everything is taken out */
        assert_int_equal(archive_extract(&a, out, why), BH_OK);
        assert_true(file_read(out, 1000, &got));
        assert_true(str_eq(buf_str(&got), str_make(names[i], n)));
        buf_done(&got);
    }
    assert_int_equal(archive_next(&a, name, &bytes, why), BH_NOT_FOUND);
    archive_close(&a);
}

static void a_name_that_leads_elsewhere_is_refused(void **state)
{
    static const char *const bad[] = {"/etc/passwd", "../x",
                                      "a/../../x",   "a//b",
                                      "a/./b",       ".hidden",
                                      "a/",          "a/b/c/d/e/f/g/h/i/j/k"};
    struct archive a;
    char name[ARCHIVE_NAME];
    uint64_t bytes;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(make(&bad[i], 1), BH_OK);
        assert_int_equal(archive_open(&a, tar, why), BH_OK);
        assert_int_equal(archive_next(&a, name, &bytes, why), BH_MALFORMED);
        archive_close(&a);
    }
}

static void a_name_that_is_far_too_long_is_refused(void **state)
{
    char long_name[1200] = "";
    const char *names[] = {long_name};

    memset(long_name, 'x', 1100);
    assert_int_not_equal(make(names, 1), BH_OK);
    assert_non_null(strstr(why, "File name too long"));
}

/* Every byte of what is inside changed, one after the other. */
static void a_changed_byte_of_a_file_is_noticed_at_the_end(void **state)
{
    static const char *const names[] = {"empty", "data/a-file-with-something-in-it"};
    struct buf whole = BUF_INIT;
    struct archive a;
    char name[ARCHIVE_NAME];
    uint64_t bytes;
    const size_t n = strlen(names[1]), from = 2 * 512;

    assert_int_equal(make(names, 2), BH_OK);
    assert_true(file_read(tar, 1 << 16, &whole));
    assert_memory_equal(whole.p + from, names[1], n);
    for (size_t at = 0; at < n; at++) {
        whole.p[from + at] ^= 4;
        write_file(tar, whole.p, whole.n);
        whole.p[from + at] ^= 4;
        assert_int_equal(archive_open(&a, tar, why), BH_OK);
        assert_int_equal(archive_next(&a, name, &bytes, why), BH_OK);
        assert_int_equal(archive_next(&a, name, &bytes, why), BH_OK);
        assert_int_equal(archive_next(&a, name, &bytes, why), BH_MALFORMED);
        assert_non_null(strstr(why, "damaged"));
        archive_close(&a);
    }
    buf_done(&whole);
}

/* Every byte of a head changed, one after the other, and every shorter file. */
static void a_damaged_archive_is_noticed(void **state)
{
    static const char *const names[] = {"bellhop.db"};
    struct buf whole = BUF_INIT;
    struct archive a;
    char name[ARCHIVE_NAME];
    uint64_t bytes;

    assert_int_equal(make(names, 1), BH_OK);
    assert_true(file_read(tar, 1 << 16, &whole));
    for (size_t at = 0; at < 512; at++) {
        whole.p[at] ^= 1;
        write_file(tar, whole.p, whole.n);
        whole.p[at] ^= 1;
        assert_int_equal(archive_open(&a, tar, why), BH_OK);
        enum bh_err err = archive_next(&a, name, &bytes, why);
        if (at < 148 || at > 155) /* within the checksum itself some bytes are only filling */
            assert_int_equal(err, BH_MALFORMED);
        archive_close(&a);
    }
    for (size_t n = 0; n < 512; n += 37) {
        write_file(tar, whole.p, n);
        assert_int_equal(archive_open(&a, tar, why), BH_OK);
        assert_int_equal(archive_next(&a, name, &bytes, why), BH_MALFORMED);
        archive_close(&a);
    }
    buf_done(&whole);
}

static void a_member_that_ends_too_early_is_noticed(void **state)
{
    static const char *const names[] = {"first", "second-with-a-body-of-some-length"};
    struct archive a;
    char name[ARCHIVE_NAME];
    uint64_t bytes;

    assert_int_equal(make(names, 2), BH_OK);
    assert_int_equal(truncate(tar, 2 * 512 + 10), 0);
    assert_int_equal(archive_open(&a, tar, why), BH_OK);
    assert_int_equal(archive_next(&a, name, &bytes, why), BH_OK);
    assert_int_equal(archive_next(&a, name, &bytes, why), BH_OK);
    assert_int_not_equal(archive_extract(&a, out, why), BH_OK);
    archive_close(&a);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(cli_test_archive)
{
    const struct CMUnitTest tests[] = {
        T(what_goes_in_comes_out),
        T(a_name_that_leads_elsewhere_is_refused),
        T(a_name_that_is_far_too_long_is_refused),
        T(a_changed_byte_of_a_file_is_noticed_at_the_end),
        T(a_damaged_archive_is_noticed),
        T(a_member_that_ends_too_early_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
