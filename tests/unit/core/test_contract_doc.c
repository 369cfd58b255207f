/* docs/contract.md says what contract.h lists; test_contract.c proves that the lists are what the
 * program writes and reads.  A table is found by the heading above it. */
#include "core/vectors.h"
#include "core/contract.h"
#include "core/descriptor.h"
#include "core/event.h"

static struct buf page;

static int setup(void **state)
{
    (void)state;
    slurp(DOCS "/contract.md", &page);
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    buf_done(&page);
    return 0;
}

/* The rows of one table, top to bottom. */
struct table {
    struct str rest;  /* the page from the next row on */
    struct str row;   /* what is left of the current row */
    const char *name; /* of its heading, for messages */
};

/* Stands before the first row of the table under @heading, such as "### Event fields". */
static struct table table_open(const char *heading)
{
    struct table t = {.rest = buf_str(&page), .name = heading};
    struct str line;

    while (str_split(&t.rest, '\n', &line))
        if (str_eq(line, str_of(heading)))
            break;
    while (str_split(&t.rest, '\n', &line))
        if (str_starts(line, STR("|---")))
            return t;
        else if (str_starts(line, STR("#")))
            break;
    fail_msg("no table under \"%s\"", heading);
    return t;
}

static bool table_row(struct table *t)
{
    struct str line, before;

    if (!str_split(&t->rest, '\n', &line) || !str_starts(line, STR("|")))
        return false;
    t->row = line;
    return str_split(&t->row, '|', &before);
}

static struct str raw_cell(struct table *t)
{
    struct str c = STR_NULL;
    assert_true(str_split(&t->row, '|', &c));
    return str_trim(c);
}

/* The next cell of the row without the backticks around it, if there are any. */
static struct str cell(struct table *t)
{
    struct str c = raw_cell(t);
    bool quoted = c.n >= 2 && c.p[0] == '`' && c.p[c.n - 1] == '`';
    return quoted ? str_make(c.p + 1, c.n - 2) : c;
}

static void assert_cell(struct table *t, const char *want)
{
    struct str got = cell(t);
    if (!str_eq(got, str_of(want)))
        fail_msg("%s: the page says \"%.*s\", the program \"%s\"", t->name, STR_FMT(got), want);
}

static void assert_more(struct table *t, const char *next)
{
    if (!table_row(t))
        fail_msg("%s: the page lacks %s", t->name, next);
}

static void assert_end(struct table *t)
{
    if (table_row(t))
        fail_msg("%s: the page has too much: %.*s", t->name, STR_FMT(t->row));
}

static void assert_fields(const char *heading, const struct contract_field *f)
{
    struct table t = table_open(heading);

    for (; f->name != NULL; f++) {
        assert_more(&t, f->name);
        assert_cell(&t, f->name);
        assert_cell(&t, f->type);
        assert_cell(&t, f->required ? "always" : "optional");
    }
    assert_end(&t);
}

static void field_tables_are_the_listed_fields(void **state)
{
    assert_fields("### Descriptor fields", contract_descriptor_fields);
    assert_fields("### Event fields", contract_event_fields);
    assert_fields("### Source fields", contract_source_fields);
    assert_fields("### Quoted message fields", contract_reply_to_fields);
    assert_fields("### Action fields", contract_action_fields);
    assert_fields("### Metadata fields", contract_metadata_fields);
    assert_fields("### Result fields", contract_result_fields);
    assert_fields("### Chat info fields", contract_chat_info_fields);
}

/* `requestId`, `action`, `platform`? */
static const char *field_list(struct buf *out, const struct contract_field *f)
{
    buf_reset(out);
    if (f->name == NULL)
        return "–";
    for (; f->name != NULL; f++)
        buf_printf(out, "%s`%s`%s", out->n > 0 ? ", " : "", f->name, f->required ? "" : "?");
    return buf_z(out);
}

static void assert_frames(const char *heading, bool to_gateway)
{
    struct table t = table_open(heading);
    struct buf want = BUF_INIT;

    for (const struct contract_frame *f = contract_frames; f->type != NULL; f++) {
        if (f->to_gateway != to_gateway)
            continue;
        assert_more(&t, f->type);
        assert_cell(&t, f->type);
        struct str list = str_of(field_list(&want, f->fields)), got = raw_cell(&t);
        if (!str_eq(got, list))
            fail_msg("%s: the page says \"%.*s\", the program \"%.*s\"", f->type, STR_FMT(got),
                     STR_FMT(list));
    }
    assert_end(&t);
    buf_done(&want);
}

static void frame_tables_are_the_listed_frames(void **state)
{
    assert_frames("### Frames from a gateway", false);
    assert_frames("### Frames to a gateway", true);
}

static void the_operations_are_the_listed_ones(void **state)
{
    struct table t = table_open("### Operations");

    for (const char *const *op = contract_ops; *op != NULL; op++) {
        assert_more(&t, *op);
        assert_cell(&t, *op);
    }
    assert_end(&t);
}

static void the_error_words_are_the_ones_senders_use(void **state)
{
    struct table t = table_open("### Error words");

    for (const struct contract_error *e = contract_errors; e->prefix != NULL; e++) {
        assert_more(&t, e->prefix);
        assert_cell(&t, e->prefix);
        assert_cell(&t, e->effect);
    }
    assert_end(&t);
}

static void the_close_codes_are_the_listed_ones(void **state)
{
    struct table t = table_open("## Close codes");
    char code[12];

    for (const struct contract_close *c = contract_closes; c->code != 0; c++) {
        if (c > contract_closes && c[-1].code == c->code)
            continue; /* another reason for the same code */
        snprintf(code, sizeof code, "%d", c->code);
        assert_more(&t, code);
        assert_cell(&t, code);
        assert_cell(&t, c->terminal ? "no" : "yes");
    }
    assert_end(&t);
}

static void the_limits_are_the_numbers_in_the_program(void **state)
{
    struct table t = table_open("## Limits and timers");
    char value[24];

    for (const struct contract_limit *l = contract_limits; l->name != NULL; l++) {
        snprintf(value, sizeof value, "%lld", (long long)l->value);
        assert_more(&t, l->name);
        assert_cell(&t, l->name);
        assert_cell(&t, value);
    }
    assert_end(&t);
}

/* Every key of @object has its row. */
static void assert_written(const char *heading, struct json object)
{
    for (struct json_iter it = {0}; json_next(object, &it);) {
        struct table t = table_open(heading);
        bool found = false;
        while (!found && table_row(&t))
            found = str_eq(cell(&t), it.key);
        if (!found)
            fail_msg("%s: %.*s is written but not on the page", heading, STR_FMT(it.key));
    }
}

/* Once without the lists in between: what leaves the program is on the page. */
static void whatever_is_written_is_on_the_page(void **state)
{
    struct json_parser *p = json_parser_new();
    struct buf out = BUF_INIT;
    struct json doc;
    struct event ev = {.bot = STR("b"), .scope_id = STR("s"), .reply_to.set = true};

    event_write(&out, &ev);
    assert_true(json_parse(p, buf_str(&out), &doc));
    assert_written("### Event fields", doc);
    assert_written("### Source fields", json_get(doc, "source"));
    buf_reset(&out);
    descriptor_write(&out, &descriptor_relay);
    assert_true(json_parse(p, buf_str(&out), &doc));
    assert_written("### Descriptor fields", doc);
    buf_done(&out);
    json_parser_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(field_tables_are_the_listed_fields),
        cmocka_unit_test(frame_tables_are_the_listed_frames),
        cmocka_unit_test(the_operations_are_the_listed_ones),
        cmocka_unit_test(the_error_words_are_the_ones_senders_use),
        cmocka_unit_test(the_close_codes_are_the_listed_ones),
        cmocka_unit_test(the_limits_are_the_numbers_in_the_program),
        cmocka_unit_test(whatever_is_written_is_on_the_page),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
