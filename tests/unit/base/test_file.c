/* Promises of base/file.h. */
#include "unit.h"
#include <errno.h>
#include <unistd.h>
#include "base/file.h"

static void a_file_is_read_whole_or_not_at_all_right(void **state)
{
    char path[] = "/tmp/bellhop-file-XXXXXX";
    struct buf got = BUF_INIT;
    int fd = mkstemp(path);
    char text[10000];
    memset(text, 'x', sizeof text);
    text[9999] = '\0'; /* any byte */
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    close(fd);
    assert_true(file_read(path, 10000, &got));
    assert_int_equal(got.n, 10000);
    assert_memory_equal(got.p, text, 10000);
    buf_reset(&got);
    assert_false(file_read(path, 9999, &got));
    assert_int_equal(errno, EFBIG);
    buf_reset(&got);
    assert_true(file_read("/dev/null", 0, &got));
    assert_int_equal(got.n, 0);
    assert_false(file_read("/tmp", 100, &got));
    assert_int_equal(errno, EISDIR);
    unlink(path);
    assert_false(file_read(path, 100, &got));
    assert_int_equal(errno, ENOENT);
    buf_done(&got);
}

static void name_of(struct str text, struct buf *out)
{
    buf_reset(out);
    file_name_add(out, text);
    assert_true(out->n <= FILE_NAME_MAX);
    assert_null(memchr(out->p, '/', out->n));
}

static void any_name_can_be_a_files_and_no_two_are_the_same(void **state)
{
    struct buf a = BUF_INIT, b = BUF_INIT, longer = BUF_INIT;
    name_of(STR("Plain-name_1.txt"), &a);
    assert_str(buf_str(&a), "Plain-name_1.txt");
    name_of(STR(".."), &a);
    assert_str(buf_str(&a), "%2E.");
    name_of(STR("a/b%"), &a);
    assert_str(buf_str(&a), "a%2Fb%25");
    for (int i = 0; i < 128; i++)
        buf_add_c(&longer, '\xe6');
    name_of(buf_str(&longer), &a);
    assert_int_equal(a.n, FILE_NAME_MAX);
    longer.p[127] = '\xe7';
    name_of(buf_str(&longer), &b);
    assert_string_not_equal(buf_z(&a), buf_z(&b));
    name_of(buf_str(&b), &longer); /* what looks like a cut one is another name */
    assert_string_not_equal(buf_z(&longer), buf_z(&b));
    buf_done(&a);
    buf_done(&b);
    buf_done(&longer);
}

UNIT(base_test_file)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole_or_not_at_all_right),
        cmocka_unit_test(any_name_can_be_a_files_and_no_two_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
