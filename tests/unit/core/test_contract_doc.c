/* docs/contract.md says what wire_lists.h lists; test_contract.c proves that the lists are what the
 * program writes and reads.  Every table is checked, and then proven to be checked: see page.h. */
#include "page.h"
#include "base/mem.h"
#include "core/wire_lists.h"
#include "core/descriptor.h"
#include "core/event.h"
#include "core/frame.h"

static void check_fields(const char *heading, const struct contract_field *f)
{
    struct table t = table_open(heading);

    for (; f->name != NULL && next_row(&t, f->name); f++) {
        check_cell(&t, f->name);
        check_cell(&t, f->type);
        check_cell(&t, f->required ? "always" : "optional");
    }
    check_end(&t);
}

static void fields(void)
{
    check_fields("### Descriptor fields", contract_descriptor_fields);
    check_fields("### Event fields", contract_event_fields);
    check_fields("### Source fields", contract_source_fields);
    check_fields("### Media fields", contract_media_fields);
    check_fields("### Context fields", contract_context_fields);
    check_fields("### Context source fields", contract_said_source_fields);
    check_fields("### Quoted message fields", contract_reply_to_fields);
    check_fields("### Prompt response fields", contract_prompt_response_fields);
    check_fields("### Forward fields", contract_forward_fields);
    check_fields("### Action fields", contract_action_fields);
    check_fields("### Metadata fields", contract_metadata_fields);
    check_fields("### Result fields", contract_result_fields);
    check_fields("### Chat info fields", contract_chat_info_fields);
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

static void check_frames(const char *heading, bool to_gateway)
{
    struct table t = table_open(heading);
    struct buf want = BUF_INIT;

    for (const struct contract_frame *f = contract_frames; f->type != NULL; f++) {
        if (f->to_gateway != to_gateway || !next_row(&t, f->type))
            continue;
        check_cell(&t, f->type);
        agree(&t, raw_cell(&t), str_of(field_list(&want, f->fields)));
    }
    check_end(&t);
    buf_done(&want);
}

static void frames(void)
{
    check_frames("### Frames from a gateway", false);
    check_frames("### Frames to a gateway", true);
}

static void operations(void)
{
    struct table t = table_open("### Operations");

    for (const char *const *op = contract_ops; *op != NULL && next_row(&t, *op); op++)
        check_cell(&t, *op);
    check_end(&t);
}

static void errors(void)
{
    struct table t = table_open("### Error words");

    for (const struct contract_error *e = contract_errors;
         e->prefix != NULL && next_row(&t, e->prefix); e++) {
        check_cell(&t, e->prefix);
        check_cell(&t, e->effect);
    }
    check_end(&t);
}

static void closes(void)
{
    struct table t = table_open("## Close codes");
    char code[12];

    for (const struct contract_close *c = contract_closes; c->code != 0; c++) {
        if (c > contract_closes && c[-1].code == c->code)
            continue; /* another reason for the same code */
        snprintf(code, sizeof code, "%d", c->code);
        if (!next_row(&t, code))
            break;
        check_cell(&t, code);
        check_cell(&t, c->terminal ? "no" : "yes");
    }
    check_end(&t);
}

static void limits(void)
{
    struct table t = table_open("## Limits and timers");
    char value[24];

    for (const struct contract_limit *l = contract_limits; l->name != NULL && next_row(&t, l->name);
         l++) {
        snprintf(value, sizeof value, "%lld", (long long)l->value);
        check_cell(&t, l->name);
        check_cell(&t, value);
    }
    check_end(&t);
}

/* The version in force, and the released gateways it was read from. */
static void version(void)
{
    static const char *const checked[][2] = {
        {"ViloForge/hermes-agent", "c93b9f905"},
        {"digitable-lol/digit", "a041526ef"},
    };
    struct table t = table_open("### Checked against");
    char number[12];

    snprintf(number, sizeof number, "%d", DESCRIPTOR_CONTRACT_VERSION);
    for (size_t i = 0; i < 2 && next_row(&t, checked[i][0]); i++) {
        check_cell(&t, checked[i][0]);
        check_cell(&t, checked[i][1]);
        check_cell(&t, number);
    }
    check_end(&t);
}

static page_check *const checks[] = {fields, frames, operations, errors, closes, limits, version};

static void every_pinned_table_is_what_the_program_has(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(checks); i++)
        page_agrees(checks[i]);
}

static void a_changed_cell_of_any_pinned_table_is_noticed(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(checks); i++)
        page_prove(checks[i]);
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
    buf_reset(&out);
    frame_write_forward(&out, &(struct forward){STR("p"), STR("b"), STR("GET"), STR("/")});
    assert_true(json_parse(p, buf_str(&out), &doc));
    assert_written("### Forward fields", doc);
    buf_done(&out);
    json_parser_free(p);
}

UNIT(core_test_contract_doc)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pinned_table_is_what_the_program_has),
        cmocka_unit_test(a_changed_cell_of_any_pinned_table_is_noticed),
        cmocka_unit_test(whatever_is_written_is_on_the_page),
    };
    return cmocka_run_group_tests(tests, page_open, page_close);
}
