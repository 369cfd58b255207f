/* Promises of http/v1.h that need no server: paths, and the document that describes them. */
#include "unit.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "http/openapi.h"
#include "http/v1.h"

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
        struct str args[V1_ARGS_MAX] = {{"", 0}, {"", 0}};
        bool got = v1_match(cases[i].pattern, str_of(cases[i].path), &arena, args);
        if (got != (cases[i].arg != NULL))
            fail_msg("%s against %s", cases[i].path, cases[i].pattern);
        if (got)
            assert_str(args[0], cases[i].arg);
    }
    arena_done(&arena);
}

static struct json described(struct json paths, const char *pattern, const char *method)
{
    char lower[8] = "";
    for (size_t i = 0; method[i] != '\0'; i++)
        lower[i] = (char)(method[i] | 32);
    return json_get(json_get(paths, pattern), lower);
}

static bool is_route(struct str pattern, struct str method)
{
    for (const struct v1_route *r = v1_routes; r->method != NULL; r++)
        if (str_eq(str_of(r->pattern), pattern) && str_eq_ci(str_of(r->method), method))
            return true;
    return false;
}

static void the_document_says_what_the_table_says(void **state)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    assert_string_equal(http_assets[0].name, "openapi.json");
    assert_true(json_parse(parser, http_assets[0].bytes, &doc));
    assert_str(json_str(doc, "openapi"), "3.1.0");
    struct json paths = json_get(doc, "paths");
    for (const struct v1_route *r = v1_routes; r->method != NULL; r++) {
        struct json op = described(paths, r->pattern, r->method);
        if (!json_is_object(op))
            fail_msg("%s %s is not described", r->method, r->pattern);
        bool open = json_type(json_get(op, "security")) == JSON_ARRAY &&
                    json_count(json_get(op, "security")) == 0;
        assert_int_equal(open, r->open);
        assert_false(str_is_empty(json_str(op, "operationId")));
        assert_true(json_count(json_get(op, "responses")) > 0);
    }
    for (struct json_iter p = {0}; json_next(paths, &p);)
        for (struct json_iter m = {0}; json_next(p.value, &m);)
            if (!str_eq(m.key, STR("parameters")) && !is_route(p.key, m.key))
                fail_msg("%.*s %.*s is no route", STR_FMT(m.key), STR_FMT(p.key));
    json_parser_free(parser);
}

UNIT(http_test_v1)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_is_decoded_on_its_own),
        cmocka_unit_test(the_document_says_what_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
