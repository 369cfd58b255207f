/* Promises of base/spill.h. */
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/spill.h"

static void what_is_spilled_is_the_file_in_order_and_has_no_name(void **state)
{
    char dir[] = "/tmp/bellhop-spill-XXXXXX", got[32];
    struct spill s = SPILL_INIT;
    struct buf b = BUF_INIT;

    assert_non_null(mkdtemp(dir));
    buf_add_z(&b, "one, ");
    assert_true(spill_add(&s, dir, 100, &b));
    assert_int_equal(b.n, 0);
    buf_add_z(&b, "two");
    assert_true(spill_add(&s, dir, 100, &b));
    assert_int_equal(s.bytes, 8);
    assert_int_equal(pread(s.fd, got, sizeof got, 0), 8);
    assert_memory_equal(got, "one, two", 8);
    assert_true(fcntl(s.fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(rmdir(dir), 0); /* nothing is in it */
    spill_done(&s);
    assert_int_equal(s.fd, -1);
    buf_done(&b);
}

static void a_file_has_its_length_and_a_folder_must_be_there(void **state)
{
    struct spill s = SPILL_INIT;
    struct buf b = BUF_INIT;

    buf_add_z(&b, "0123456789");
    assert_false(spill_add(&s, "/tmp", 9, &b));
    assert_int_equal(errno, EFBIG);
    assert_int_equal(b.n, 10);
    assert_false(spill_add(&s, "/nowhere/at/all", 100, &b));
    assert_int_equal(errno, ENOENT);
    assert_int_equal(b.n, 10);
    assert_true(spill_add(&s, "/tmp", 10, &b));
    spill_done(&s);
    buf_done(&b);
}

UNIT(base_test_spill)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_spilled_is_the_file_in_order_and_has_no_name),
        cmocka_unit_test(a_file_has_its_length_and_a_folder_must_be_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
