/* Promises of http/op.h that need no server: paths, arguments, and what is described from them. */
#include "unit.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "http/op.h"

static void a_segment_is_decoded_on_its_own(void **state)
{
    static const struct {
        const char *pattern, *path, *arg; /* NULL: no match */
    } cases[] = {
        {"/v1/skills", "/v1/skills", ""},
        {"/v1/skills", "/v1/skills/", NULL},
        {"/v1/skills", "/v1/skill", NULL},
        {"/v1/skills/{name}", "/v1/skills/a", "a"},
        {"/v1/skills/{name}", "/v1/skills/", NULL},
        {"/v1/skills/{name}", "/v1/skills/a/b", NULL},
        {"/v1/skills/{name}", "/v1/skills/a%2Fb", "a/b"},
        {"/v1/skills/{name}", "/v1/skills/a%40s+%20%C3%A9", "a@s+ \xc3\xa9"},
        {"/v1/skills/{name}", "/v1/skills/a%2", NULL},
        {"/v1/skills/{name}", "/v1/skills/a%zz", NULL},
        {"/v1/skills/{name}", "/v1/skills/%", NULL},
        {"/v1/skills/{name}", "/v1/skills/a%00b", NULL},
        {"/v1/skills/{name}", "/v1/skills/%ff", NULL},
        {"/v1/skills/{name}", "/v1/skills:version", NULL},
        {"/v1/skills:version", "/v1/skills:version", ""},
        {"/v1/skills/{name}/versions", "/v1/skills/metadata/versions", "metadata"},
        {"/v1/skills/{name}/versions", "/v1/skills/versions", NULL},
        {"/v1/skills/{name}/versions", "/v1/skills/x/versions/", NULL},
    };
    struct arena arena = ARENA_INIT;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str args[OP_PATH_MAX] = {{"", 0}, {"", 0}};
        bool got = op_match(cases[i].pattern, str_of(cases[i].path), &arena, args);
        if (got != (cases[i].arg != NULL))
            fail_msg("%s against %s", cases[i].path, cases[i].pattern);
        if (got)
            assert_str(args[0], cases[i].arg);
    }
    arena_done(&arena);
}

static struct json described(struct json paths, const struct op *op)
{
    char lower[8] = "";
    for (size_t i = 0; op->method[i] != '\0'; i++)
        lower[i] = (char)(op->method[i] | 32);
    return json_get(json_get(paths, op->path), lower);
}

static size_t count_args(const struct op *op, enum op_in in)
{
    size_t n = 0;
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        n += a->in == in;
    return n;
}

static void the_document_has_every_operation_with_its_arguments(void **state)
{
    struct json_parser *parser = json_parser_new();
    struct buf text = BUF_INIT;
    struct json doc;
    size_t n_ops = 0, n_described = 0;
    op_openapi(&text);
    assert_true(json_parse(parser, buf_str(&text), &doc));
    assert_str(json_str(doc, "openapi"), "3.1.0");
    struct json paths = json_get(doc, "paths");
    for (const struct op_family *f = op_families; f->name != NULL; f++)
        for (const struct op *op = f->ops; op->name != NULL; op++) {
            if (op->path == NULL || !str_starts(str_of(op->path), STR("/v1/")))
                continue;
            n_ops++;
            struct json one = described(paths, op);
            if (!json_is_object(one))
                fail_msg("%s %s is not described", op->method, op->path);
            assert_str(json_str(one, "operationId"), op->name);
            assert_str(json_as_str(json_get(one, "summary")), op->summary);
            assert_int_equal(json_type(json_get(one, "security")) == JSON_ARRAY,
                             op->may != MAY_KEY && op->may != MAY_ADMIN && op->may != MAY_INSTANCE);
            assert_true(json_count(json_get(one, "responses")) > 0);
            assert_true(json_count(json_get(one, "parameters")) >= count_args(op, IN_PATH) +
                                                                       count_args(op, IN_QUERY) +
                                                                       count_args(op, IN_HEADER));
            struct json body =
                json_get(json_get(json_get(one, "requestBody"), "content"), "application/json");
            assert_int_equal(json_count(json_get(json_get(body, "schema"), "properties")),
                             count_args(op, IN_BODY));
        }
    for (struct json_iter p = {0}; json_next(paths, &p);)
        n_described += json_count(p.value);
    assert_int_equal(n_described, n_ops);
    json_parser_free(parser);
    buf_done(&text);
}

/* Every "$ref" names a schema that is there. */
static void every_type_that_is_named_is_described(void **state)
{
    struct json_parser *parser = json_parser_new();
    struct buf text = BUF_INIT;
    struct json doc;
    op_openapi(&text);
    assert_true(json_parse(parser, buf_str(&text), &doc));
    struct json schemas = json_get(json_get(doc, "components"), "schemas");
    static const char ref[] = "\"$ref\":\"#/components/schemas/";
    size_t n = 0;
    for (const char *at = buf_z(&text); (at = strstr(at, ref)) != NULL; n++) {
        char name[64] = "";
        at += sizeof ref - 1;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "\""), at);
        if (!json_is_object(json_get(schemas, name)))
            fail_msg("there is no schema %s", name);
    }
    assert_true(n > 10);
    /* a word that is misspelt would be a constant */
    for (struct json_iter s = {0}; json_next(schemas, &s);)
        assert_str(json_str(s.value, "type"), "object");
    json_parser_free(parser);
    buf_done(&text);
}

static void a_declaration_is_whole(void **state)
{
    for (const struct op_family *f = op_families; f->name != NULL; f++)
        for (const struct op *op = f->ops; op->name != NULL; op++) {
            size_t n_path = 0, n_args = 0;
            assert_ptr_equal(op_find(op->name), op); /* one operation, one name */
            assert_true(op->run != NULL && op->summary != NULL);
            assert_true(op->path != NULL || op->tool != NULL);
            assert_true(op->tool == NULL || (op->title != NULL && op->tool_what != NULL));
            for (const char *p = op->path; p != NULL && (p = strchr(p, '{')) != NULL; p++)
                n_path++;
            assert_int_equal(count_args(op, IN_PATH), n_path);
            for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++, n_args++)
                assert_non_null(a->what);
            assert_true(n_args <= OP_ARGS_MAX);
        }
}

static void a_tools_schema_has_its_arguments(void **state)
{
    struct json_parser *parser = json_parser_new();
    struct buf text = BUF_INIT;
    struct json doc;
    op_tool_schema(op_find("setSkillStatus"), &text);
    assert_string_equal(
        buf_z(&text),
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"description\":\"The "
        "skill's name.\"},\"new_state\":{\"enum\":[\"Draft\",\"Approved\",\"Disabled\"],"
        "\"description\":\"The new status.\"}},\"required\":[\"name\",\"new_state\"]}");
    buf_reset(&text);
    op_tool_schema(op_find("querySkills"), &text);
    assert_true(json_parse(parser, buf_str(&text), &doc));
    struct json properties = json_get(doc, "properties");
    struct json nested = json_get(json_get(properties, "filter"), "properties");
    assert_int_equal(json_count(properties), 10); /* eight filters, filter and if_none_match */
    assert_int_equal(json_count(nested), 8);
    assert_true(json_is_object(json_get(properties, "if_none_match")));
    json_parser_free(parser);
    buf_done(&text);
}

/* ---- arguments ---- */

static size_t index_of(const struct op *op, const char *name)
{
    for (size_t i = 0;; i++)
        if (strcmp(op->args[i].name, name) == 0)
            return i;
}

static void an_argument_is_typed_and_checked(void **state)
{
    static const struct {
        const char *op, *arg, *text, *why; /* NULL: fine */
    } cases[] = {
        {"querySkills", "limit", "5", NULL},
        {"querySkills", "limit", "-1", "limit must be a whole number, not \"-1\""},
        {"querySkills", "since", "x", "since must be a whole number, not \"x\""},
        {"querySkills", "status", "Draft", NULL},
        {"querySkills", "status", "draft",
         "status must be Draft, Approved or Disabled, not \"draft\""},
        {"querySkills", "type", "data", NULL},
        {"querySkills", "type", "other", "type must be procedural or data, not \"other\""},
        {"agentReplies", "limit", "1", NULL},
        {"agentReplies", "limit", "0", "limit must be a number above 0."},
        {"agentReplies", "limit", "x", "limit must be a number above 0."},
    };
    struct arena arena = ARENA_INIT;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct op *op = op_find(cases[i].op);
        struct op_args args = {.arena = &arena};
        struct fault fault = {0};
        bool ok =
            op_read_text(op, index_of(op, cases[i].arg), str_of(cases[i].text), &args, &fault);
        assert_int_equal(ok, cases[i].why == NULL);
        if (!ok) {
            assert_string_equal(buf_z(&fault.message), cases[i].why);
            assert_int_equal(fault.cls, op->misuse != 0 ? op->misuse : FAULT_INVALID);
        }
        fault_done(&fault);
    }
    arena_done(&arena);
}

static void an_argument_in_json_is_typed_and_checked(void **state)
{
    static const struct {
        const char *op, *arg, *json;
        bool ok;
    } cases[] = {
        {"querySkills", "status", "\"Draft\"", true},
        {"querySkills", "status", "[\"Draft\",\"Disabled\"]", true},
        {"querySkills", "status", "[\"Draft\",5]", false},
        {"querySkills", "status", "[]", true},
        {"querySkills", "status", "null", true},
        {"querySkills", "tag", "{}", false},
        {"querySkills", "limit", "2.0", true},
        {"querySkills", "limit", "2.5", false},
        {"querySkills", "limit", "-2", false},
        {"querySkills", "limit", "1e300", false},
        {"querySkills", "since", "-2.5", true},
        {"querySkills", "author", "5", false},
        {"storeSkill", "overwrite", "true", true},
        {"storeSkill", "overwrite", "1", false},
        {"storeSkill", "metadata", "{}", true},
        {"storeSkill", "metadata", "[]", false},
        {"storeSkill", "source", "\"\"", true},
        {"storeSkill", "name", "\"\"", false},
        {"readChats", "limit", "200", true},
        {"readChats", "limit", "201", false},
        {"setPrincipal", "allow", "[\"ann\"]", true},
        {"setPrincipal", "allow", "\"ann\"", false}, /* a list, never one text */
        {"setPrincipal", "allow", "[1]", false},
        {"setPrincipal", "mode", "\"any\"", true},
        {"setPrincipal", "mode", "\"all\"", false},
        {"makeToken", "ttlMs", "-1", false},
        {"addGateway", "open", "\"yes\"", false},
        {"deliver", "kind", "7", true}, /* the module says what is wrong with it */
    };
    struct json_parser *parser = json_parser_new();
    struct arena arena = ARENA_INIT;
    struct json doc;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct op *op = op_find(cases[i].op);
        struct op_args args = {.arena = &arena};
        struct fault fault = {0};
        assert_true(json_parse(parser, str_of(cases[i].json), &doc));
        if (op_read_json(op, index_of(op, cases[i].arg), doc, &args, &fault) != cases[i].ok)
            fail_msg("%s %s: %s", cases[i].op, cases[i].arg, cases[i].json);
        fault_done(&fault);
    }
    json_parser_free(parser);
    arena_done(&arena);
}

static void a_client_sends_what_is_declared(void **state)
{
    struct buf path = BUF_INIT, body = BUF_INIT;
    char why[256] = "";
    const struct op_given query[] = {{"status", STR("Draft, Approved")},
                                     {"author", STR("a b")},
                                     {"tag", STR_NULL}};
    assert_true(op_request(op_find("querySkills"), query, 3, &path, &body, why));
    assert_string_equal(buf_z(&path), "/v1/skills?status=Draft&status=Approved&author=a%20b");
    assert_int_equal(body.n, 0);
    buf_reset(&path);
    const struct op_given found[] = {{"query", STR("two words")},
                                     {"limit", STR("5")},
                                     {"domain_tags", STR("a,b")}};
    assert_true(op_request(op_find("queryData"), found, 3, &path, &body, why));
    assert_string_equal(buf_z(&path), "/v1/data/query");
    assert_string_equal(buf_z(&body),
                        "{\"query\":\"two words\",\"limit\":5,\"domain_tags\":[\"a\",\"b\"]}");
    buf_reset(&path);
    buf_reset(&body);
    const struct op_given deep[] = {{"name", STR("a/b")}, {"version", STR("1")}};
    assert_true(op_request(op_find("loadSkill"), deep, 2, &path, &body, why));
    assert_string_equal(buf_z(&path), "/v1/skills/a%2Fb?version=1");
    const struct op_given wrong[] = {{"limit", STR("x")}};
    assert_false(op_request(op_find("queryData"), wrong, 1, &path, &body, why));
    buf_done(&path);
    buf_done(&body);
}

static void the_page_of_the_api_is_what_the_program_prints(void **state)
{
    struct buf out = BUF_INIT, page = BUF_INIT;
    FILE *f = fopen(DOCS "/api.md", "re");
    char piece[4096];
    assert_non_null(f);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(&page, piece, n);
    fclose(f);
    op_reference(&out);
    if (!str_ends(buf_str(&page), buf_str(&out)))
        fail_msg("docs/api.md: replace what follows its first section with: "
                 "bellhop help api");
    buf_done(&out);
    buf_done(&page);
}

UNIT(http_test_op)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_is_decoded_on_its_own),
        cmocka_unit_test(a_declaration_is_whole),
        cmocka_unit_test(an_argument_is_typed_and_checked),
        cmocka_unit_test(an_argument_in_json_is_typed_and_checked),
        cmocka_unit_test(a_client_sends_what_is_declared),
        cmocka_unit_test(the_document_has_every_operation_with_its_arguments),
        cmocka_unit_test(every_type_that_is_named_is_described),
        cmocka_unit_test(a_tools_schema_has_its_arguments),
        cmocka_unit_test(the_page_of_the_api_is_what_the_program_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
