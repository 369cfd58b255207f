/* The promises of net/spawner.h: real programs, a real helper, a server that confines itself. */
#include "net/net_test.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/confine.h"
#include "net/spawner.h"

static const char *const cat[] = {"cat", NULL};
static const char *const shell[] = {"sh", "-c", NULL};
static const char *const nothing[] = {"/nonexistent/program", NULL};
static const char *const *const commands[] = {cat, shell, nothing};
enum { CAT, SHELL, NOTHING };

struct fixture {
    struct loop *loop;
    struct spawner *spawner;
    unsigned calls;
    struct spawn_end end; /* the last one's; its texts are below */
    char output[4096], errors[4096], how[100], heard[200];
};

static void on_done(void *ctx, const struct spawn_end *end)
{
    struct fixture *f = ctx;

    f->calls++;
    f->end = *end;
    snprintf(f->output, sizeof f->output, "%.*s", STR_FMT(end->output));
    snprintf(f->errors, sizeof f->errors, "%.*s", STR_FMT(end->errors));
    snprintf(f->how, sizeof f->how, "%s", end->how);
}

static int set_up(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256];

    signal(SIGPIPE, SIG_IGN);
    setenv("BELLHOP_MASTER_KEY", "secret", 1);
    setenv("CHAT_TOKEN", "secret", 1);
    f->spawner = spawner_new(commands, 3, str_make("NONE\0CHAT_TOKEN", 16), true, why);
    f->loop = loop_new();
    if (f->spawner == NULL || f->loop == NULL)
        return -1;
    spawner_watch(f->spawner, f->loop);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    spawner_free(f->spawner);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void wait_calls(struct fixture *f, unsigned n)
{
    int64_t end = test_now_ms() + 20000;

    while (f->calls < n && test_now_ms() < end)
        loop_turn(f->loop, 50);
    assert_int_equal(f->calls, n);
}

static struct spawn *run_script(struct fixture *f, const char *script, const char *input,
                                int64_t timeout_ms)
{
    const char *more[] = {script, NULL};

    return spawner_run(f->spawner,
                       &(struct spawn_order){.command = SHELL,
                                             .more = more,
                                             .input = str_of(input),
                                             .timeout_ms = timeout_ms,
                                             .max_output = 1000},
                       on_done, f);
}

static void input_goes_in_and_output_comes_back(void **state)
{
    struct fixture *f = *state;

    assert_non_null(
        spawner_run(f->spawner,
                    &(struct spawn_order){.command = CAT, .input = STR("hello"), .max_output = 100},
                    on_done, f));
    assert_int_equal(f->calls, 0);
    wait_calls(f, 1);
    assert_true(f->end.well);
    assert_string_equal(f->output, "hello");
}

static void a_program_that_fails_says_how(void **state)
{
    struct fixture *f = *state;

    assert_non_null(run_script(f, "echo why >&2; exit 3", "", 0));
    wait_calls(f, 1);
    assert_false(f->end.well);
    assert_int_equal(f->end.status, 3);
    assert_string_equal(f->how, "exit status 3");
    assert_string_equal(f->errors, "why\n");
    assert_non_null(run_script(f, "kill -9 $$", "", 0));
    wait_calls(f, 2);
    assert_string_equal(f->how, "signal 9");
    assert_int_equal(f->end.status, -1);
}

static void a_program_that_does_not_exist_is_told(void **state)
{
    struct fixture *f = *state;

    assert_non_null(spawner_run(f->spawner, &(struct spawn_order){.command = NOTHING}, on_done, f));
    wait_calls(f, 1);
    assert_int_equal(f->end.status, -1);
    assert_string_equal(f->how, strerror(ENOENT));
}

static void output_is_bounded_and_read_to_its_end(void **state)
{
    struct fixture *f = *state;

    assert_non_null(run_script(f, "head -c 5000000 /dev/zero | tr '\\0' x", "", 0));
    wait_calls(f, 1);
    assert_true(f->end.well);
    assert_true(f->end.cut);
    assert_int_equal(f->end.output.n, 1000);
}

static void large_input_that_nobody_reads_does_no_harm(void **state)
{
    struct fixture *f = *state;
    char *large = xcalloc(1, 1000001);

    memset(large, 'x', 1000000);
    assert_non_null(run_script(f, "wc -c", large, 0));
    wait_calls(f, 1);
    assert_int_equal(atoi(f->output), 1000000);
    assert_non_null(run_script(f, "exit 0", large, 0));
    wait_calls(f, 2);
    assert_true(f->end.well);
    free(large);
}

static void a_program_whose_time_is_up_is_ended(void **state)
{
    struct fixture *f = *state;
    int64_t begin = test_now_ms();

    assert_non_null(run_script(f, "echo begun; sleep 1000", "", 100));
    wait_calls(f, 1);
    assert_true(f->end.timed_out);
    assert_false(f->end.well);
    assert_true(test_now_ms() - begin < 15000);
    assert_non_null(run_script(f, "trap '' TERM; sleep 1000 & wait; sleep 1000", "", 100));
    wait_calls(f, 2); /* it does not listen, so it is killed */
    assert_true(f->end.timed_out);
}

static void a_cancelled_run_never_calls_back_and_its_program_ends(void **state)
{
    struct fixture *f = *state;
    char path[] = "/tmp/bellhop-spawn-XXXXXX", script[200], pid[20] = "";
    int fd = mkstemp(path);
    struct spawn *run;

    snprintf(script, sizeof script, "echo $$ > %s; exec sleep 1000", path);
    run = run_script(f, script, "", 0);
    for (int64_t end = test_now_ms() + 20000; pid[0] == '\0' && test_now_ms() < end;) {
        loop_turn(f->loop, 20);
        assert_true(pread(fd, pid, sizeof pid - 1, 0) >= 0);
    }
    assert_int_equal(kill(atoi(pid), 0), 0);
    spawn_cancel(&run);
    assert_null(run);
    spawn_cancel(&run);
    for (int64_t end = test_now_ms() + 20000; kill(atoi(pid), 0) == 0 && test_now_ms() < end;)
        loop_turn(f->loop, 20);
    assert_int_not_equal(kill(atoi(pid), 0), 0);
    assert_int_equal(f->calls, 0);
    close(fd);
    unlink(path);
}

static void our_own_variables_are_kept_from_it(void **state)
{
    struct fixture *f = *state;
    const char *more[] = {"echo \"$BELLHOP_MASTER_KEY$CHAT_TOKEN-$BELLHOP_AGENT\"", NULL};
    const char *env[] = {"BELLHOP_AGENT=a1", NULL}, *bad[] = {"LD_PRELOAD=/tmp/x.so", NULL};
    struct spawn_order o = {.command = SHELL, .more = more, .env = env, .max_output = 100};

    assert_non_null(spawner_run(f->spawner, &o, on_done, f));
    wait_calls(f, 1);
    assert_string_equal(f->output, "-a1\n");
    o.env = bad;
    assert_non_null(spawner_run(f->spawner, &o, on_done, f));
    wait_calls(f, 2);
    assert_string_equal(f->how, strerror(EINVAL));
}

static void only_the_commands_it_was_told_of_are_run(void **state)
{
    struct fixture *f = *state;
    const char *const other[] = {"cat", "/etc/passwd", NULL};

    assert_int_equal(spawner_find(f->spawner, shell), SHELL);
    assert_int_equal(spawner_find(f->spawner, cat), CAT);
    assert_int_equal(spawner_find(f->spawner, other), -1);
    assert_non_null(spawner_run(f->spawner, &(struct spawn_order){.command = 3}, on_done, f));
    wait_calls(f, 1);
    assert_string_equal(f->how, strerror(EINVAL));
}

static void a_spawner_that_learns_runs_what_it_was_taught(void **state)
{
    struct fixture *f = *state;
    const char *const echo[] = {"echo", "taught", NULL};
    const char *const none[] = {NULL};
    int number = spawner_learn(f->spawner, echo);

    assert_int_equal(number, 3);
    assert_int_equal(spawner_learn(f->spawner, echo), 3);
    assert_int_equal(spawner_learn(f->spawner, cat), CAT);
    assert_int_equal(spawner_learn(f->spawner, none), -1);
    assert_non_null(
        spawner_run(f->spawner,
                    &(struct spawn_order){.command = (unsigned)number, .max_output = 100}, on_done,
                    f));
    wait_calls(f, 1);
    assert_string_equal(f->output, "taught\n");
}

static void on_heard(void *ctx, struct str line)
{
    struct fixture *f = ctx;
    size_t n = strlen(f->heard);

    snprintf(f->heard + n, sizeof f->heard - n, "[%.*s]", STR_FMT(line));
}

static void lines_of_a_long_program_are_told_and_it_can_be_asked_to_end(void **state)
{
    struct fixture *f = *state;
    const char *more[] = {
        "trap 'echo bye >&2; exit 0' TERM; echo one >&2; printf 'two\\n\\nthr' >&2; "
        "while :; do sleep 0.05; done",
        NULL};
    struct spawn *run =
        spawner_run(f->spawner,
                    &(struct spawn_order){.command = SHELL, .more = more, .heard = on_heard},
                    on_done, f);
    int64_t end = test_now_ms() + 20000;

    assert_non_null(run);
    while (strstr(f->heard, "[two]") == NULL && test_now_ms() < end)
        loop_turn(f->loop, 50);
    assert_string_equal(f->heard, "[one][two]");
    assert_int_equal(f->calls, 0);
    spawn_stop(run, 20000);
    while (strstr(f->heard, "bye") == NULL && test_now_ms() < end)
        loop_turn(f->loop, 50);
    /* The shell may also say that its sleep was ended. */
    assert_memory_equal(f->heard, "[one][two][thr", 14);
    assert_non_null(strstr(f->heard, "bye]"));
    wait_calls(f, 1);
    assert_true(f->end.well);
}

static void too_much_at_once_is_refused(void **state)
{
    struct fixture *f = *state;
    const char *many[SPAWN_MAX_MORE + 2] = {0}, *large[2] = {0};
    char *text = xcalloc(1, SPAWN_MAX_BYTES + 1);

    for (size_t i = 0; i <= SPAWN_MAX_MORE; i++)
        many[i] = "x";
    assert_null(
        spawner_run(f->spawner, &(struct spawn_order){.command = CAT, .more = many}, on_done, f));
    memset(text, 'x', SPAWN_MAX_BYTES);
    large[0] = text;
    assert_null(
        spawner_run(f->spawner, &(struct spawn_order){.command = CAT, .more = large}, on_done, f));
    free(text);
    for (unsigned i = 0; i < 40; i++)
        assert_non_null(run_script(f, "echo x", "", 0));
    wait_calls(f, 40);
    assert_true(f->end.well);
}

/* The whole point: it cannot run a program itself any more, and still has one run. */
static int confined_life(void)
{
    struct fixture f = {0};
    struct confined c = {0};
    char why[256];

    f.spawner = spawner_new(commands, 3, STR_NULL, false, why);
    f.loop = loop_new();
    spawner_watch(f.spawner, f.loop);
    if (confine_files(&(struct confine_files){.port = -1}, &c, why) != BH_OK ||
        confine_calls(0, &c, why) != BH_OK)
        return 2;
    if (fork() >= 0)
        return 3;
    if (run_script(&f, "echo $((6 * 7))", "", 0) == NULL)
        return 4;
    for (int64_t end = test_now_ms() + 20000; f.calls == 0 && test_now_ms() < end;)
        loop_turn(f.loop, 50);
    return strcmp(f.output, "42\n") == 0 ? 0 : 5;
}

static void a_confined_server_still_has_programs_run(void **state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(confined_life());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void a_program_that_is_talked_to_prints_into_a_file(void **state)
{
    struct fixture *f = *state;
    char path[] = "/tmp/spawned-XXXXXX", got[64] = "";
    int fd = mkstemp(path);
    int64_t end = test_now_ms() + 20000;
    struct spawn *r =
        spawner_run(f->spawner,
                    &(struct spawn_order){.command = CAT, .output_fd = fd, .talks = true}, on_done,
                    f);

    assert_non_null(r);
    assert_true(spawn_say(r, STR("one\n")));
    while (strcmp(got, "one\n") != 0 && test_now_ms() < end) {
        loop_turn(f->loop, 20);
        (void)!pread(fd, got, sizeof got - 1, 0);
    }
    assert_true(spawn_say(r, STR("two\n"))); /* its input is open still */
    while (strcmp(got, "one\ntwo\n") != 0 && test_now_ms() < end) {
        loop_turn(f->loop, 20);
        (void)!pread(fd, got, sizeof got - 1, 0);
    }
    assert_string_equal(got, "one\ntwo\n");
    assert_int_equal(f->calls, 0);
    spawn_stop(r, 5000);
    wait_calls(f, 1);
    assert_string_equal(f->how, "signal 15");
    close(fd);
    unlink(path);
}

static void a_program_that_does_not_read_is_told_so_much(void **state)
{
    struct fixture *f = *state;
    const char *more[] = {"sleep 60", NULL};
    struct spawn *r = spawner_run(
        f->spawner,
        &(struct spawn_order){.command = SHELL, .more = more, .max_output = 10, .talks = true},
        on_done, f);
    char *big = xcalloc(1, 1 << 20);
    size_t n = 0;

    while (n < 200 && spawn_say(r, str_make(big, 1 << 20)))
        n++;
    assert_int_equal(n, SPAWN_UNREAD_BYTES >> 20);
    free(big);
    spawn_stop(r, 5000);
    wait_calls(f, 1);
}

UNIT(net_test_spawner)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(input_goes_in_and_output_comes_back),
        T(a_program_that_is_talked_to_prints_into_a_file),
        T(a_program_that_does_not_read_is_told_so_much),
        T(a_program_that_fails_says_how),
        T(a_program_that_does_not_exist_is_told),
        T(output_is_bounded_and_read_to_its_end),
        T(large_input_that_nobody_reads_does_no_harm),
        T(a_program_whose_time_is_up_is_ended),
        T(a_cancelled_run_never_calls_back_and_its_program_ends),
        T(our_own_variables_are_kept_from_it),
        T(only_the_commands_it_was_told_of_are_run),
        T(a_spawner_that_learns_runs_what_it_was_taught),
        T(lines_of_a_long_program_are_told_and_it_can_be_asked_to_end),
        T(too_much_at_once_is_refused),
        cmocka_unit_test(a_confined_server_still_has_programs_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
