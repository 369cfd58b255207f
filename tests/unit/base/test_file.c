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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole_or_not_at_all_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
