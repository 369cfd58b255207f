/* Promises of base/log.h.  Standard error is a pipe while a line is written. */
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/json.h"
#include "base/log.h"

static char line[65536];
static int pipe_fd[2], saved_stderr;

static void capture(void)
{
    assert_int_equal(pipe2(pipe_fd, O_NONBLOCK), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(pipe_fd[1], STDERR_FILENO);
}

static void release(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(pipe_fd[1]);
    ssize_t n = read(pipe_fd[0], line, sizeof line - 1);
    line[n > 0 ? n : 0] = '\0';
    close(pipe_fd[0]);
}

static void add_prefix(const struct log *log, struct buf *out)
{
    buf_add_z(out, "session=41 instance=acme ");
}
static const struct log ctx = {add_prefix};

static void a_text_line_has_time_level_context_and_message(void **state)
{
    int year, month, day, hour, minute, second, ms, end = 0;

    log_setup(LOG_INFO, false);
    capture();
    log_info(&ctx, "caught up: events=%d", 12);
    release();
    assert_int_equal(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &year, &month, &day, &hour,
                            &minute, &second, &ms, &end),
                     7);
    assert_int_equal(end, 24);
    assert_string_equal(line + end, " info session=41 instance=acme caught up: events=12\n");
}

static void a_null_context_is_fine(void **state)
{
    log_setup(LOG_INFO, false);
    capture();
    log_error(NULL, "gone");
    release();
    assert_string_equal(line + 24, " error gone\n");
}

static void a_message_cannot_forge_a_line(void **state)
{
    log_setup(LOG_INFO, false);
    capture();
    log_warn(NULL, "name=%s", "x\n2026 error fake\x1b[31m");
    release();
    assert_string_equal(line + 24, " warn name=x\\x0a2026 error fake\\x1b[31m\n");
}

static void a_json_line_is_one_valid_object(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json doc;

    log_setup(LOG_INFO, true);
    capture();
    log_warn(&ctx, "quote \" newline \n bad \xff");
    release();
    assert_true(json_parse(p, str_of(line), &doc));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    assert_str(json_str(doc, "level"), "warn");
    assert_str(json_str(doc, "context"), "session=41 instance=acme");
    assert_str(json_str(doc, "msg"), "quote \" newline \n bad \xef\xbf\xbd");
    assert_int_equal(json_str(doc, "time").n, 24);
    json_parser_free(p);
}

static void a_json_line_has_its_words_as_fields_and_the_first_counts(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json doc, fields;

    log_setup(LOG_INFO, true);
    capture();
    log_warn(&ctx, "delivery parked: delivery=77 name=%s Bad=1 =x a=b=c empty=",
             "evil instance=forged level=error time=0");
    release();
    assert_true(json_parse(p, str_of(line), &doc));
    fields = json_get(doc, "fields");
    assert_str(json_str(fields, "delivery"), "77");
    assert_str(json_str(fields, "instance"), "acme"); /* of the context, not the stranger's */
    assert_str(json_str(fields, "a"), "b=c");
    assert_str(json_str(fields, "empty"), "");
    assert_int_equal(json_type(json_get(fields, "Bad")), JSON_ABSENT);
    assert_str(json_str(doc, "level"), "warn");
    assert_int_equal(json_str(doc, "time").n, 24);
    json_parser_free(p);
}

static void levels_below_the_chosen_one_are_silent(void **state)
{
    log_setup(LOG_WARN, false);
    capture();
    log_info(NULL, "no");
    log_debug(NULL, "no");
    log_warn(NULL, "yes");
    release();
    assert_string_equal(line + 24, " warn yes\n");
    assert_true(log_enabled(LOG_ERROR) && !log_enabled(LOG_INFO));
    log_setup(LOG_DEBUG, false);
    capture();
    log_debug(NULL, "state");
    release();
    assert_string_equal(line + 24, " debug state\n");
}

static void an_endless_message_is_cut_and_still_ends_its_line(void **state)
{
    static char text[100000];

    memset(text, 'x', sizeof text - 1);
    log_setup(LOG_INFO, false);
    capture();
    log_info(NULL, "%s", text);
    release();
    assert_true(strlen(line) > 1000 && strlen(line) < 4096);
    assert_int_equal(line[strlen(line) - 1], '\n');
}

static void a_reader_that_stops_loses_lines_and_is_told_how_many(void **state)
{
    static char page[4096];

    log_setup(LOG_INFO, false);
    capture();
    while (write(pipe_fd[1], page, sizeof page) > 0)
        ;
    fcntl(pipe_fd[1], F_SETFL, 0); /* as a pipe from a shell: writing would wait */
    for (int i = 0; i < 3; i++)
        log_info(NULL, "nobody reads this");
    while (read(pipe_fd[0], page, sizeof page) > 0)
        ;
    log_info(NULL, "here you are");
    release();
    assert_string_equal(strchr(line, ' '),
                        strstr(line, " warn nobody read the log: lines lost=3\n"));
    assert_non_null(strstr(line, " info here you are\n"));
    assert_null(strstr(line, "nobody reads this"));
}

static void logging_leaves_errno_alone(void **state)
{
    log_setup(LOG_INFO, false);
    capture();
    errno = ENOENT;
    log_info(NULL, "failed: %m");
    assert_int_equal(errno, ENOENT);
    release();
    assert_string_equal(line + 24, " info failed: No such file or directory\n");
}

static void level_words_parse_and_others_do_not(void **state)
{
    enum log_level level = LOG_ERROR;

    assert_true(log_level_parse(STR("debug"), &level) && level == LOG_DEBUG);
    assert_true(log_level_parse(STR("error"), &level) && level == LOG_ERROR);
    assert_true(log_level_parse(STR("warn"), &level) && level == LOG_WARN);
    assert_true(log_level_parse(STR("info"), &level) && level == LOG_INFO);
    assert_false(log_level_parse(STR("loud"), &level));
    assert_false(log_level_parse(STR(""), &level));
    assert_false(log_level_parse(STR("INFO"), &level));
    assert_int_equal(level, LOG_INFO);
}

UNIT(base_test_log)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_line_has_time_level_context_and_message),
        cmocka_unit_test(a_null_context_is_fine),
        cmocka_unit_test(a_message_cannot_forge_a_line),
        cmocka_unit_test(a_json_line_is_one_valid_object),
        cmocka_unit_test(a_json_line_has_its_words_as_fields_and_the_first_counts),
        cmocka_unit_test(levels_below_the_chosen_one_are_silent),
        cmocka_unit_test(an_endless_message_is_cut_and_still_ends_its_line),
        cmocka_unit_test(a_reader_that_stops_loses_lines_and_is_told_how_many),
        cmocka_unit_test(logging_leaves_errno_alone),
        cmocka_unit_test(level_words_parse_and_others_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
