/* Promises of platform/child.h: a shell script as the program. */
#include "net/net_test.h"

#include <dirent.h>
#include <signal.h>

#include "base/log.h"
#include "net/spawner.h"
#include "platform/child.h"

/* Answers every call with its own id, and prints what the test wants: "say TEXT", "die", "deaf". */
static const char script[] =
    "while read -r line; do case $line in"
    " *'\"method\":\"say\"'*) echo "
    "'{\"jsonrpc\":\"2.0\",\"method\":\"said\",\"params\":{\"n\":1}}';;"
    " *'\"method\":\"die\"'*) echo 'last words' >&2; exit 3;;"
    " *'\"method\":\"twice\"'*)"
    "  id=${line#*\\\"id\\\":}; id=${id%%,*};"
    "  for i in 1 2; do echo "
    "\"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{\\\"i\\\":$i}}\"; done;;"
    " *'\"method\":\"refuse\"'*)"
    "  id=${line#*\\\"id\\\":}; id=${id%%,*};"
    "  echo "
    "\"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"error\\\":{\\\"code\\\":-5,\\\"message\\\":"
    "\\\"slow down\\\"}}\";;"
    " *'\"method\":\"mute\"'*) ;;"
    " *) id=${line#*\\\"id\\\":}; id=${id%%,*};"
    "  echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{}}\";;"
    " esac; done";
static const char *const argv[] = {"sh", "-c", script, NULL};
static const char *const *const commands[] = {argv};

struct fixture {
    struct loop *loop;
    struct spawner *spawner;
    struct child_peer *child;
    char dir[64];
    unsigned up, down, said, answers, late;
    bool holds;
    enum bh_err err;
    bool ok;
    int64_t code;
    uint64_t late_id;
    char why[256];
};

static void on_up(void *ctx)
{
    ((struct fixture *)ctx)->up++;
}

static void on_down(void *ctx, const char *why)
{
    struct fixture *f = ctx;

    f->down++;
    snprintf(f->why, sizeof f->why, "%s", why);
}

static bool on_notified(void *ctx, struct str method, struct json params)
{
    struct fixture *f = ctx;

    assert_str(method, "said");
    assert_int_equal(json_i64(params, "n", 0), 1);
    f->said++;
    return !f->holds;
}

static void on_late(void *ctx, uint64_t id, const struct child_answer *a)
{
    struct fixture *f = ctx;

    f->late++;
    f->late_id = id;
    assert_true(a->ok);
}

static void on_answer(void *ctx, const struct child_answer *a)
{
    struct fixture *f = ctx;

    f->answers++;
    f->err = a->err;
    f->ok = a->ok;
    f->code = a->code;
}

static const struct child_ops ops = {.up = on_up,
                                     .down = on_down,
                                     .notified = on_notified,
                                     .late = on_late};
static const struct log quiet;

static void open_child(struct fixture *f)
{
    char why[256];
    struct child_options o = {.argv = (char *const *)argv,
                              .max_line = 65536,
                              .loop = f->loop,
                              .spawner = f->spawner,
                              .dir = f->dir,
                              .log = &quiet};

    f->child = child_open(&o, &ops, f, why);
    assert_non_null(f->child);
}

static int set_up(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256];

    signal(SIGPIPE, SIG_IGN);
    strcpy(f->dir, "/tmp/child-XXXXXX");
    f->spawner = spawner_new(commands, 1, STR_NULL, false, why);
    f->loop = loop_new();
    if (f->spawner == NULL || f->loop == NULL || mkdtemp(f->dir) == NULL)
        return -1;
    spawner_watch(f->spawner, f->loop);
    open_child(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    DIR *d = opendir(f->dir);

    child_close(f->child);
    spawner_free(f->spawner);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(f->dir);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void turn_until(struct fixture *f, const unsigned *count, unsigned want)
{
    int64_t end = test_now_ms() + 20000;

    while (*count < want && test_now_ms() < end)
        loop_turn(f->loop, 50);
    assert_int_equal(*count, want);
}

static struct child_call *call(struct fixture *f, uint64_t id, const char *method, int64_t ms)
{
    return child_call(f->child, id, method, STR("{}"), ms, on_answer, f);
}

static void calls_are_answered(void **state)
{
    struct fixture *f = *state;

    turn_until(f, &f->up, 1);
    (void)!call(f, 0, "hello", 10000);
    turn_until(f, &f->answers, 1);
    assert_true(f->err == BH_OK && f->ok);
    (void)!call(f, 0, "refuse", 10000);
    turn_until(f, &f->answers, 2);
    assert_true(f->err == BH_OK && !f->ok && f->code == -5);
}

static void a_call_before_the_start_was_not_sent(void **state)
{
    struct fixture *f = *state;

    (void)!call(f, 0, "hello", 10000);
    assert_int_equal(f->answers, 0); /* never inside */
    turn_until(f, &f->answers, 1);
    assert_int_equal(f->err, BH_UNAVAILABLE);
}

static void a_cancelled_call_is_not_answered(void **state)
{
    struct fixture *f = *state;
    struct child_call *w;

    turn_until(f, &f->up, 1);
    w = call(f, 0, "hello", 10000);
    child_cancel(&w);
    assert_null(w);
    child_cancel(&w);
    (void)!call(f, 0, "hello", 10000);
    turn_until(f, &f->answers, 1);
    for (int i = 0; i < 3; i++)
        loop_turn(f->loop, 20);
    assert_int_equal(f->answers, 1);
}

static void silence_is_unknown_and_a_late_answer_is_told(void **state)
{
    struct fixture *f = *state;

    turn_until(f, &f->up, 1);
    (void)!call(f, CHILD_OWN_IDS + 7, "mute", 50);
    turn_until(f, &f->answers, 1);
    assert_int_equal(f->err, BH_UNKNOWN);
    (void)!call(f, CHILD_OWN_IDS + 8, "twice", 10000);
    turn_until(f, &f->answers, 2);
    turn_until(f, &f->late, 1);
    assert_int_equal(f->late_id, CHILD_OWN_IDS + 8);
}

static void a_program_that_dies_is_started_again(void **state)
{
    struct fixture *f = *state;

    turn_until(f, &f->up, 1);
    (void)!call(f, 0, "mute", 60000);
    (void)!call(f, 0, "die", 60000);
    turn_until(f, &f->down, 1);
    assert_int_equal(f->answers, 2);
    assert_int_equal(f->err, BH_UNKNOWN);
    assert_string_equal(f->why, "the program ended: exit status 3; it said: last words");
    assert_false(child_is_up(f->child));
    turn_until(f, &f->up, 2);
    (void)!call(f, 0, "hello", 10000);
    turn_until(f, &f->answers, 3);
    assert_true(f->ok);
}

static void what_was_not_taken_comes_again(void **state)
{
    struct fixture *f = *state;

    turn_until(f, &f->up, 1);
    f->holds = true;
    (void)!call(f, CHILD_OWN_IDS + 9, "say", 60000);
    (void)!call(f, CHILD_OWN_IDS + 10, "hello", 60000);
    turn_until(f, &f->said, 1);
    for (int i = 0; i < 5; i++)
        loop_turn(f->loop, 20);
    assert_int_equal(f->answers, 0); /* the answer is behind it */
    child_close(f->child);
    f->holds = false;
    f->up = 0;
    open_child(f);
    turn_until(f, &f->up, 1);
    assert_int_equal(f->said, 2);
    assert_int_equal(f->late, 1); /* printed before the restart */
    assert_int_equal(f->late_id, CHILD_OWN_IDS + 10);
}

static void addresses_are_checked(void **state)
{
    static const char *const good[] = {"unix:/run/x", "localhost:7583", "[::1]:80", "10.0.0.1:1"};
    static const char *const bad[] = {"",       "unix:x", "unix:", "host",      "host:0",
                                      "host:x", ":80",    "a b:1", "host:70000"};

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_null(child_address_wrong(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_non_null(child_address_wrong(bad[i]));
}

UNIT(platform_test_child)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_are_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_call_before_the_start_was_not_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cancelled_call_is_not_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silence_is_unknown_and_a_late_answer_is_told, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_program_that_dies_is_started_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_not_taken_comes_again, set_up, tear_down),
        cmocka_unit_test(addresses_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
