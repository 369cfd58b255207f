/* The promises of net/program.h, with /bin/sh as the program. */
#include <signal.h>
#include <unistd.h>
#include "unit.h"
#include "net/program.h"
#include "base/buf.h"
#include "net/loop.h"

struct rig {
    struct loop *loop;
    struct program *prog;
    struct buf lines; /* each ends in '|' */
    struct buf errors;
    bool ended, well;
};

static void on_line(void *ctx, struct str line)
{
    struct rig *r = ctx;

    buf_printf(&r->lines, "%.*s|", STR_FMT(line));
}

static void on_ended(void *ctx, bool well, const char *how)
{
    struct rig *r = ctx;

    assert_non_null(how);
    r->ended = true;
    r->well = well;
}

static void on_complaint(void *ctx, struct str line)
{
    struct rig *r = ctx;

    buf_printf(&r->errors, "%.*s|", STR_FMT(line));
}

static const struct program_ops with_errors = {.line = on_line,
                                               .ended = on_ended,
                                               .complaint = on_complaint};
static const struct program_ops ops = {.line = on_line, .ended = on_ended};

static void start_with(struct rig *r, const struct program_ops *how, const char *script)
{
    char sh[] = "sh", c[] = "-c", *text = strdup(script), *argv[] = {sh, c, text, NULL};
    char why[256];

    *r = (struct rig){.loop = loop_new()};
    r->prog = program_start(r->loop, &(struct program_order){argv, environ, 0}, how, r, why);
    assert_non_null(r->prog);
    free(text);
}

static void start(struct rig *r, const char *script)
{
    start_with(r, &ops, script);
}

static void run_until_ended(struct rig *r)
{
    for (int i = 0; i < 1000 && !r->ended; i++)
        loop_turn(r->loop, 20);
    assert_true(r->ended);
}

static void finish(struct rig *r)
{
    program_free(r->prog);
    loop_free(r->loop);
    buf_done(&r->lines);
    buf_done(&r->errors);
}

static void lines_come_whole_and_all_before_the_end(void **state)
{
    struct rig r;

    (void)state;
    start(&r, "printf one; sleep 0.05; printf ' two\\nthree\\nno newline'");
    run_until_ended(&r);
    assert_true(r.well);
    assert_string_equal(buf_z(&r.lines), "one two|three|no newline|");
    finish(&r);
}

static void a_line_that_was_not_read_is_not_taken(void **state)
{
    struct rig r;

    (void)state;
    start(&r, "read a; echo got $a; exit 3");
    uint64_t first = program_write(r.prog, STR("x\n"));
    uint64_t second = program_write(r.prog, STR("yyyy\n"));
    run_until_ended(&r);
    assert_false(r.well);
    assert_string_equal(buf_z(&r.lines), "got x|");
    assert_true(program_read(r.prog) >= first && program_read(r.prog) < second);
    finish(&r);
}

static void the_end_of_its_input_ends_a_reader(void **state)
{
    struct rig r;

    (void)state;
    start(&r, "while read a; do echo $a; done; echo bye");
    program_write(r.prog, STR("hello\n"));
    while (r.lines.n == 0)
        loop_turn(r.loop, 20);
    program_end(r.prog);
    run_until_ended(&r);
    assert_true(r.well);
    assert_string_equal(buf_z(&r.lines), "hello|bye|");
    finish(&r);
}

static void a_signal_reaches_what_it_started(void **state)
{
    struct rig r;

    (void)state;
    /* Python, because a shell that is about to fork may swallow an interrupt. */
    start(&r, "exec python3 -c 'import subprocess as s; p = s.Popen([\"sleep\", \"60\"]); "
              "print(\"on\", flush=True); p.wait(); print(\"never\")' 2>/dev/null");
    while (r.lines.n == 0)
        loop_turn(r.loop, 20);
    program_signal(r.prog, SIGINT);
    run_until_ended(&r);
    assert_false(r.well);
    assert_string_equal(buf_z(&r.lines), "on|");
    finish(&r);
}

static void a_line_that_is_too_long_is_dropped_and_the_next_is_not(void **state)
{
    struct rig r;

    (void)state;
    start(&r, "head -c 1200000 /dev/zero | tr '\\0' x; echo; echo after");
    run_until_ended(&r);
    assert_string_equal(buf_z(&r.lines), "after|");
    finish(&r);
}

static void lines_of_stderr_come_too_and_are_cut(void **state)
{
    struct rig r;

    (void)state;
    start_with(&r, &with_errors,
               "echo out; echo bad >&2; head -c 5000 /dev/zero | tr '\\0' x >&2; echo >&2; "
               "printf end >&2");
    run_until_ended(&r);
    assert_string_equal(buf_z(&r.lines), "out|");
    assert_true(str_starts(buf_str(&r.errors), STR("bad|xxx")));
    assert_true(str_ends(buf_str(&r.errors), STR("xx|end|")));
    assert_int_equal(r.errors.n, strlen("bad|") + PROGRAM_MAX_ERROR + strlen("|end|"));
    finish(&r);
}

static void a_program_that_never_reads_is_killed(void **state)
{
    static const char block[1 << 20];
    struct rig r;

    (void)state;
    start(&r, "exec sleep 60");
    for (size_t i = 0; i < PROGRAM_MAX_UNSENT / sizeof block + 2; i++)
        program_write(r.prog, str_make(block, sizeof block));
    run_until_ended(&r);
    assert_false(r.well);
    finish(&r);
}

static void a_program_that_is_not_there_says_so(void **state)
{
    char name[] = "/no/such/program", *argv[] = {name, NULL};
    struct loop *loop = loop_new();
    char why[256];

    (void)state;
    assert_null(program_start(loop, &(struct program_order){argv, environ, 0}, &ops, NULL, why));
    assert_string_equal(why, "/no/such/program: No such file or directory");
    assert_true(program_exists("sh") && program_exists("/bin/sh"));
    assert_false(program_exists("/no/such/program") || program_exists("no-such-program"));
    loop_free(loop);
}

UNIT(net_test_program)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_whole_and_all_before_the_end),
        cmocka_unit_test(a_line_that_was_not_read_is_not_taken),
        cmocka_unit_test(the_end_of_its_input_ends_a_reader),
        cmocka_unit_test(a_signal_reaches_what_it_started),
        cmocka_unit_test(a_line_that_is_too_long_is_dropped_and_the_next_is_not),
        cmocka_unit_test(lines_of_stderr_come_too_and_are_cut),
        cmocka_unit_test(a_program_that_never_reads_is_killed),
        cmocka_unit_test(a_program_that_is_not_there_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
