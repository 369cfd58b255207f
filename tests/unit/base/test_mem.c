/* Promises of base/mem.h. */
#include "unit.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/mem.h"

static void zero_bytes_is_still_a_pointer_to_free(void **state)
{
    void *a = xmalloc(0), *b = xcalloc(0, 8), *c = xrealloc(NULL, 0);

    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    free(a);
    free(b);
    free(c);
}

static void calloc_zeroes(void **state)
{
    unsigned char *p = xcalloc(100, 3);

    for (int i = 0; i < 300; i++)
        assert_int_equal(p[i], 0);
    free(p);
}

static void a_product_that_overflows_aborts(void **state)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        fclose(stderr);
        signal(SIGABRT, SIG_DFL);
        free(xcalloc(SIZE_MAX / 2, 3));
        _exit(0);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void duplicates_are_copies_and_null_stays_null(void **state)
{
    char *a = xstrdup("text"), *b = xstrndup("text", 2), *c = xstrndup("text", 99),
         *d = xstrndup(NULL, 0);

    assert_null(xstrdup(NULL));
    assert_string_equal(a, "text");
    assert_string_equal(b, "te");
    assert_string_equal(c, "text");
    assert_string_equal(d, "");
    free(a);
    free(b);
    free(c);
    free(d);
}

static void container_of_finds_the_owner(void **state)
{
    struct owner {
        int before, member;
    } o;

    assert_ptr_equal(container_of(&o.member, struct owner, member), &o);
}

static void after_a_trim_everything_is_still_there(void **state)
{
    static char in_data[] = "data";
    char *on_heap = xstrdup("heap");

    free(xmalloc(1 << 20));
    mem_trim();
    in_data[0] = 'D';
    assert_string_equal(on_heap, "heap");
    assert_string_equal(in_data, "Data");
    free(on_heap);
}

UNIT(base_test_mem)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_bytes_is_still_a_pointer_to_free),
        cmocka_unit_test(calloc_zeroes),
        cmocka_unit_test(a_product_that_overflows_aborts),
        cmocka_unit_test(duplicates_are_copies_and_null_stays_null),
        cmocka_unit_test(container_of_finds_the_owner),
        cmocka_unit_test(after_a_trim_everything_is_still_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
