/* A system without threads to give: bhgw_open() says so and nothing is left behind.  This program
 * has a pthread_create() of its own, which fails when it is told to. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include "unit.h"
#include "bellhop/gateway.h"

static int allowed = -1; /* so many more; -1: all */
static int made;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*f)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;

    if (allowed == 0)
        return EAGAIN;
    allowed -= allowed > 0;
    made++;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attr, f, arg);
}

static struct bhgw *make(void)
{
    struct bhgw_options opt = bhgw_options_init();

    opt.url = "http://127.0.0.1:1";
    return bhgw_new(&opt, NULL, 0);
}

static void without_threads_opening_fails_and_may_be_tried_again(void **state)
{
    for (int n = 0; n < 3; n++) {
        struct bhgw *gw = make();
        made = 0;
        allowed = n;
        assert_int_equal(bhgw_open(gw), BHGW_NO_THREADS);
        assert_int_equal(made, n);
        assert_int_equal(bhgw_state(gw), BHGW_OFF);
        assert_int_equal(bhgw_go_idle_wait(gw), BHGW_NOT_CONNECTED);
        allowed = -1;
        assert_int_equal(bhgw_open(gw), BHGW_OK);
        bhgw_close(gw);
        assert_int_equal(bhgw_state(gw), BHGW_CLOSED);
        bhgw_free(gw);
    }
}

static void count(void *ctx, struct bhgw *gw, const struct bhgw_result *r)
{
    assert_string_equal(r->error, BHGW_ERROR_NOT_CONNECTED);
    ++*(int *)ctx;
}

static void callbacks_owed_run_even_without_threads(void **state)
{
    struct bhgw *gw = make();
    int calls = 0;

    allowed = 0;
    bhgw_send(gw, "c", "text", NULL, NULL, count, &calls);
    assert_int_equal(bhgw_open(gw), BHGW_NO_THREADS);
    bhgw_free(gw);
    allowed = -1;
    assert_int_equal(calls, 1);
}

UNIT(sdk_test_threads)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_threads_opening_fails_and_may_be_tried_again),
        cmocka_unit_test(callbacks_owed_run_even_without_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
