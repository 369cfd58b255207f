/* The promises of skills/skills.h, one test each, on every backend. */
#include "skills/rig.h"
#include "skills/text.h"

static const char *backend;

static int setup(void **state)
{
    *state = rig_new(backend, NULL);
    return 0;
}

static int teardown(void **state)
{
    rig_free(*state);
    return 0;
}

#define HELLO "# Skill: hello\n# Status: Draft\n# Description: says hello\n\nrun:\n    emit()\n"

static void an_empty_store_lists_nothing(void **state)
{
    struct rig *r = *state;

    assert_string_equal(names(r, "{}"), "");
    assert_string_equal(token(r), "empty");
    assert_int_equal(json_type(rig_json(r)), JSON_OBJECT);
}

static void a_draft_comes_back_byte_for_byte(void **state)
{
    struct rig *r = *state;
    const char *bytes =
        "\xef\xbb\xbf# Skill: x\r\n# Status: draft \r\n\xf0\x9f\x98\x80\ttext\r\n\r\n";

    assert_int_equal(store(r, "x", bytes, NULL), FAULT_NONE);
    assert_true(r->got.created);
    assert_int_equal(strlen(r->hash), 64);
    assert_memory_equal(r->version, r->hash, 12);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), bytes);
    assert_str(json_str(rig_json(r), "source"), bytes);
    assert_int_equal(store_as(r, &tester, "nul", str_make("a\0b", 3), NULL), FAULT_NONE);
    assert_int_equal(load(r, "nul"), FAULT_NONE);
    assert_int_equal(r->source.n, 3);
    assert_int_equal(store(r, "none", "", NULL), FAULT_NONE);
    assert_int_equal(load(r, "none"), FAULT_NONE);
    assert_int_equal(r->source.n, 0);
}

static void a_miss_is_skill_not_found_everywhere(void **state)
{
    struct rig *r = *state;
    static const char *missing[] = {"no", "", "../x", "a/b", ".index", "x.skill.md"};

    assert_int_equal(store(r, "x", HELLO, NULL), FAULT_NONE);
    for (size_t i = 0; i < ARRAY_LEN(missing); i++) {
        assert_int_equal(load(r, missing[i]), FAULT_SKILL_NOT_FOUND);
        assert_str(json_str(rig_fault(r), "skill_name"), missing[i]);
        assert_str(json_str(rig_fault(r), "connector_type"), "skill_store");
        assert_int_equal(metadata(r, missing[i]), FAULT_SKILL_NOT_FOUND);
        assert_int_equal(versions(r, missing[i]), FAULT_SKILL_NOT_FOUND);
        assert_int_equal(set_status(r, missing[i], "Draft"), FAULT_SKILL_NOT_FOUND);
        assert_int_equal(delete (r, missing[i]), FAULT_SKILL_NOT_FOUND);
        assert_true(str_starts(json_str(rig_fault(r), "error"), STR("Skill not found:")));
    }
}

static void an_unknown_version_is_another_error(void **state)
{
    struct rig *r = *state;

    assert_int_equal(store(r, "x", HELLO, NULL), FAULT_NONE);
    assert_int_equal(load_as(r, &tester, "x", "000000000000"), FAULT_VERSION_NOT_FOUND);
    assert_str(json_str(rig_fault(r), "version"), "000000000000");
    assert_int_equal(load_as(r, &tester, "x", ""), FAULT_VERSION_NOT_FOUND);
    assert_int_equal(load_as(r, &tester, "y", "000000000000"), FAULT_SKILL_NOT_FOUND);
}

static void old_versions_keep_their_bytes(void **state)
{
    struct rig *r = *state;
    char first[32], second[32];

    assert_int_equal(store(r, "x", "one", NULL), FAULT_NONE);
    strcpy(first, r->version);
    assert_int_equal(store(r, "x", "two", NULL), FAULT_NONE);
    strcpy(second, r->version);
    assert_false(r->got.created);
    assert_int_equal(store(r, "x", "two", NULL), FAULT_NONE);
    assert_int_equal(store(r, "x", "three", NULL), FAULT_NONE);
    assert_int_equal(load_as(r, &tester, "x", first), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "one");
    assert_str(json_str(rig_json(r), "version"), first);
    assert_int_equal(load_as(r, &tester, "x", second), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "two");
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "three");
}

static void every_write_is_in_the_history(void **state)
{
    struct rig *r = *state;

    assert_int_equal(store(r, "x", HELLO, NULL), FAULT_NONE);
    assert_int_equal(store(r, "x", HELLO, NULL), FAULT_NONE);
    assert_int_equal(set_status(r, "x", "Approved"), FAULT_NONE);
    assert_int_equal(set_status(r, "x", "Draft"), FAULT_NONE);
    assert_int_equal(versions(r, "x"), FAULT_NONE);
    assert_int_equal(r->got.count, 4);
    static const char *statuses[] = {"Draft", "Draft", "Approved", "Draft"};
    static const char *previous[] = {NULL, NULL, "Draft", "Approved"};
    size_t i = 0;
    struct str hash = {0};
    for (struct json_iter it = {0}; json_next(rig_json(r), &it); i++) {
        assert_str(json_str(it.value, "status"), statuses[i]);
        assert_true(str_eq(json_str(it.value, "previous_status"), str_of(previous[i])));
        assert_str(json_str(it.value, "changed_by"), "tester");
        assert_str(json_str(it.value, "name"), "x");
        if (i == 0)
            hash = json_str(it.value, "content_hash");
        assert_int_equal(str_eq(json_str(it.value, "content_hash"), hash), i != 2);
    }
}

static void a_status_moves_with_its_body(void **state)
{
    struct rig *r = *state;

    assert_int_equal(store(r, "x", HELLO, NULL), FAULT_NONE);
    assert_int_equal(set_status(r, "x", "Approved"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "previous_status"), "Draft");
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_non_null(strstr(buf_z(&r->source), "# Status: Approved\n"));
    assert_string_equal(names(r, "{\"status\":\"Approved\"}"), "x");
    assert_string_equal(names(r, "{\"status\":\"Draft\"}"), "");
    assert_int_equal(set_status(r, "x", "approved"), FAULT_INVALID);
    assert_int_equal(set_status(r, "x", ""), FAULT_INVALID);
    assert_null(json_str(rig_fault(r), "class").p);
    assert_int_equal(versions(r, "x"), FAULT_NONE);
    assert_int_equal(r->got.count, 2);
}

static void a_body_is_kept_as_it_is_handed_over(void **state)
{
    struct rig *r = *state;

    assert_int_equal(store(r, "x", "# Skill: x\n# Status: Approved\nv1\n", NULL), FAULT_NONE);
    assert_int_equal(store(r, "x", "# Skill: x\n# Status:  approved \r\n\nv2\n", NULL), FAULT_NONE);
    assert_int_equal(r->got.status, SKILL_APPROVED);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "# Skill: x\n# Status:  approved \r\n\nv2\n");
    assert_int_equal(store(r, "x", "# Status: Draft\n\n\nv3\n", NULL), FAULT_NONE);
    assert_int_equal(r->got.status, SKILL_DRAFT);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "# Status: Draft\n\n\nv3\n");
    assert_int_equal(store(r, "x", "# Status: Disabled\n", NULL), FAULT_NONE);
    assert_int_equal(store(r, "x", "# Status: Approved\nv5\n", NULL), FAULT_NONE);
    assert_int_equal(r->got.status, SKILL_APPROVED);
}

static void a_body_without_a_status_keeps_the_status_unless_told(void **state)
{
    struct rig *r = *state;

    assert_int_equal(store(r, "x", "# Skill: x\n# Status: Approved\nv1\n", NULL), FAULT_NONE);
    assert_int_equal(store(r, "x", "# Skill: x\nv2\n", NULL), FAULT_NONE);
    assert_int_equal(r->got.status, SKILL_APPROVED);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "# Skill: x\n# Status: Approved\nv2\n");
    assert_int_equal(store(r, "x", "# Skill: x\nv3\n", "{\"status\":\"Disabled\"}"), FAULT_NONE);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "# Skill: x\n# Status: Disabled\nv3\n");
    assert_int_equal(store(r, "x", "# Skill: x\nv4\n", "{\"status\":\"Published\"}"),
                     FAULT_INVALID);
}

static void a_key_for_one_agent_approves_nothing(void **state)
{
    struct rig *r = *state;
    struct caller bound = tester;
    static const char *changed[] = {"# Skill: x\n# Status: Approved\nv2\n", "# Skill: x\nv2\n"};

    bound.agent = STR("helper");
    for (size_t i = 0; i < ARRAY_LEN(changed); i++) {
        assert_int_equal(store(r, "x", "# Skill: x\n# Status: Approved\nv1\n", NULL), FAULT_NONE);
        assert_int_equal(store_as(r, &bound, "x", STR("# Skill: x\n# Status: Approved\nv1\n"),
                                  NULL),
                         FAULT_NONE);
        assert_int_equal(r->got.status, SKILL_APPROVED); /* nothing has changed */
        for (int times = 0; times < 2; times++) {
            assert_int_equal(store_as(r, &bound, "x", str_of(changed[i]), NULL), FAULT_NONE);
            assert_int_equal(r->got.status, SKILL_DRAFT);
            assert_int_equal(load(r, "x"), FAULT_NONE);
            assert_int_equal(skill_status_of(buf_str(&r->source)), SKILL_DRAFT);
        }
    }
    assert_int_equal(store_as(r, &bound, "x", STR("v3"), "{\"status\":\"Approved\"}"), FAULT_NONE);
    assert_int_equal(r->got.status, SKILL_DRAFT);
    assert_int_equal(store_as(r, &bound, "new", STR("# Status: Approved\n"), NULL), FAULT_NONE);
    assert_int_equal(r->got.status, SKILL_DRAFT);
    assert_int_equal(rig_wait(r, skills_update_status(r->sk, &bound, STR("x"), STR("Approved"),
                                                      on_answer, r)),
                     FAULT_APPROVAL_REJECTED);
    assert_int_equal(rig_wait(r, skills_update_status(r->sk, &bound, STR("x"), STR("Disabled"),
                                                      on_answer, r)),
                     FAULT_NONE);
}

static void the_body_is_believed_wherever_its_status_stands(void **state)
{
    struct rig *r = *state;

    assert_int_equal(store(r, "x", "  # Status: Approved\n# Skill: x\n", "{\"status\":\"Draft\"}"),
                     FAULT_NONE);
    assert_int_equal(r->got.status, SKILL_DRAFT);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_true(str_starts(buf_str(&r->source), STR("# Status: Draft\n")));
}

static void the_first_author_stays(void **state)
{
    struct rig *r = *state;
    struct caller mallory = {.tenant = tester.tenant, .identity = STR("mallory")};
    struct caller ann = {.tenant = tester.tenant, .identity = STR("ann")};

    assert_int_equal(store(r, "x", "one", "{\"author\":\"ann\"}"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "changed_by"), "ann");
    assert_int_equal(store(r, "x", "two", NULL), FAULT_NONE); /* silent: kept */
    assert_int_equal(store(r, "x", "three", "{\"author\":\"bob\"}"), FAULT_STORAGE_CONFLICT);
    assert_non_null(json_str(rig_fault(r), "reason").p);
    assert_int_equal(store_as(r, &mallory, "x", STR("four"), NULL), FAULT_STORAGE_CONFLICT);
    assert_int_equal(store_as(r, &mallory, "x", STR("four"), "{\"author\":\"ann\"}"),
                     FAULT_STORAGE_CONFLICT);
    assert_int_equal(store_as(r, &ann, "x", STR("five"), NULL), FAULT_NONE);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "five");
    assert_str(json_str(json_get(rig_json(r), "metadata"), "author"), "ann");
    assert_int_equal(versions(r, "x"), FAULT_NONE);
    assert_int_equal(r->got.count, 3);
}

static void without_attest_the_author_is_the_key(void **state)
{
    struct rig *r = *state;
    struct caller ann = {.tenant = tester.tenant, .identity = STR("ann")};

    assert_int_equal(store_as(r, &ann, "x", STR("one"), "{\"author\":\"the boss\"}"), FAULT_NONE);
    assert_int_equal(metadata(r, "x"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "author"), "ann");
}

static void names_are_restricted(void **state)
{
    struct rig *r = *state;
    static const char *bad[] = {"", ".x", "-x", "_x", "a b", "a/b", "../etc", "ä", "a\n", "a%"};
    char longest[202];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(store(r, bad[i], "x", NULL), FAULT_STORAGE_CONFLICT);
    memset(longest, 'n', sizeof longest);
    longest[201] = '\0';
    assert_int_equal(store(r, longest, "x", NULL), FAULT_STORAGE_CONFLICT);
    longest[200] = '\0';
    assert_int_equal(store(r, longest, "x", NULL), FAULT_NONE);
    assert_int_equal(load(r, longest), FAULT_NONE);
    assert_int_equal(store(r, "A.b-c_9", "x", NULL), FAULT_NONE);
}

static void a_delete_leaves_nothing(void **state)
{
    struct rig *r = *state;

    assert_int_equal(store(r, "x", "one", "{\"author\":\"ann\"}"), FAULT_NONE);
    assert_int_equal(store(r, "y", "other", NULL), FAULT_NONE);
    assert_int_equal(delete (r, "x"), FAULT_NONE);
    assert_int_equal(load(r, "x"), FAULT_SKILL_NOT_FOUND);
    assert_int_equal(versions(r, "x"), FAULT_SKILL_NOT_FOUND);
    assert_int_equal(delete (r, "x"), FAULT_SKILL_NOT_FOUND);
    assert_string_equal(names(r, "{}"), "y");
    assert_int_equal(store(r, "x", "two", "{\"author\":\"bob\"}"), FAULT_NONE); /* free at once */
    assert_true(r->got.created);
    assert_int_equal(versions(r, "x"), FAULT_NONE);
    assert_int_equal(r->got.count, 1);
}

static void only_its_author_and_who_may_name_others_delete_a_skill(void **state)
{
    struct rig *r = *state;
    struct caller other = tester, operator= tester;

    other.identity = STR("somebody");
    other.attest = false;
    operator.identity = STR("operator");
    operator.attest = true;
    assert_int_equal(store(r, "x", "one", NULL), FAULT_NONE);
    assert_int_equal(rig_wait(r, skills_delete(r->sk, &other, STR("no"), STR("no"), false,
                                               on_answer, r)),
                     FAULT_SKILL_NOT_FOUND);
    assert_int_equal(rig_wait(r, skills_delete(r->sk, &other, STR("x"), STR("x"), false, on_answer,
                                               r)),
                     FAULT_REFUSED);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_int_equal(rig_wait(r, skills_delete(r->sk, &operator, STR("x"), STR("x"), false,
                                               on_answer, r)),
                     FAULT_NONE);
    assert_int_equal(load(r, "x"), FAULT_SKILL_NOT_FOUND);
}

static enum fault_class delete_as(struct rig *r, const struct caller *who, const char *name,
                                  const char *confirm, bool force)
{
    return rig_wait(r,
                    skills_delete(r->sk, who, str_of(name), str_of(confirm), force, on_answer, r));
}

static void existence_is_asked_before_permission(void **state)
{
    struct rig *r = *state;
    struct caller bound = tester;

    bound.agent = STR("helper");
    assert_int_equal(store(r, "x", "one", NULL), FAULT_NONE);
    assert_int_equal(delete_as(r, &bound, "no", NULL, false), FAULT_SKILL_NOT_FOUND);
    assert_int_equal(delete_as(r, &bound, "x", "x", true), FAULT_REFUSED);
    assert_int_equal(load(r, "x"), FAULT_NONE);
}

static void a_delete_wants_the_name_repeated_and_nobody_who_depends_on_it(void **state)
{
    struct rig *r = *state;

    assert_int_equal(store(r, "x", "one", NULL), FAULT_NONE);
    assert_int_equal(store(r, "y", "execute_skill(skill_name=\"x\")\n", NULL), FAULT_NONE);
    assert_int_equal(store(r, "z", "inline(skill=\"x\")\n", NULL), FAULT_NONE);
    assert_int_equal(delete_as(r, &tester, "x", NULL, true), FAULT_CONFIRM_REQUIRED);
    assert_int_equal(delete_as(r, &tester, "x", "y", true), FAULT_CONFIRM_REQUIRED);
    assert_int_equal(delete_as(r, &tester, "x", "x", false), FAULT_HAS_DEPENDENTS);
    struct json names = json_get(rig_fault(r), "dependents");
    assert_int_equal(json_count(names), 2);
    for (struct json_iter it = {0}; json_next(names, &it);)
        assert_true(str_eq(json_as_str(it.value), STR("y")) ||
                    str_eq(json_as_str(it.value), STR("z")));
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_int_equal(delete_as(r, &tester, "x", "x", true), FAULT_NONE);
    assert_int_equal(delete_as(r, &tester, "y", "y", false), FAULT_NONE);
    assert_int_equal(load(r, "x"), FAULT_SKILL_NOT_FOUND);
}

static void a_new_skill_can_be_insisted_on(void **state)
{
    struct rig *r = *state;
    struct skills_write w = {.name = STR("x"), .source = STR("two"), .only_new = true};

    assert_int_equal(rig_wait(r, skills_store(r->sk, &tester, &w, on_answer, r)), FAULT_NONE);
    assert_int_equal(rig_wait(r, skills_store(r->sk, &tester, &w, on_answer, r)),
                     FAULT_STORAGE_CONFLICT);
    w = (struct skills_write){.name = STR("x"),
                              .source = STR("# Status: Approved v3:abc\n"),
                              .force_draft = true};
    assert_int_equal(rig_wait(r, skills_store(r->sk, &tester, &w, on_answer, r)), FAULT_NONE);
    assert_int_equal(r->got.status, SKILL_DRAFT);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "# Status: Draft\n");
}

static void a_body_too_long_or_no_text_is_refused(void **state)
{
    struct rig *r = *state;
    char *long_body = xmalloc((1u << 20) + 1);

    memset(long_body, 'x', (1u << 20) + 1);
    assert_int_equal(store_as(r, &tester, "x", str_make(long_body, (1u << 20) + 1), NULL),
                     FAULT_STORAGE_CONFLICT);
    assert_int_equal(store_as(r, &tester, "x", str_make(long_body, 1u << 20), NULL), FAULT_NONE);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_int_equal(r->source.n, 1u << 20);
    assert_int_equal(store(r, "y", "\xff\xfe", NULL), FAULT_INVALID);
    free(long_body);
}

static void metadata_of_the_wrong_kind_is_refused(void **state)
{
    struct rig *r = *state;
    static const char *bad[] = {"[]",
                                "3",
                                "{\"author\":3}",
                                "{\"status\":\"draft\"}",
                                "{\"type\":\"prose\"}",
                                "{\"metadata_bag\":[]}",
                                "{\"description\":{}}"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(store(r, "x", "x", bad[i]), FAULT_INVALID);
    assert_int_equal(load(r, "x"), FAULT_SKILL_NOT_FOUND);
}

static void filters_are_all_honoured(void **state)
{
    struct rig *r = *state;

    store(r, "alpha", "# Status: Approved\n# Type: data\n",
          "{\"author\":\"ann\",\"metadata_bag\":{\"tags\":[\"ops\",\"daily\"],\"n\":1}}");
    store(r, "beta", "# Status: Draft\n",
          "{\"author\":\"bob\",\"metadata_bag\":{\"tags\":[\"ops\"]}}");
    store(r, "Gamma.1", "# Status: Disabled\n# Tags: ops\n", "{\"author\":\"ann\"}");
    store(r, "delta-2", "", "{\"author\":\"ann\",\"type\":\"data\"}");
    assert_string_equal(names(r, "{}"), "Gamma.1,alpha,beta,delta-2"); /* bytewise */
    assert_string_equal(names(r, "{\"status\":\"Approved\"}"), "alpha");
    assert_string_equal(names(r, "{\"status\":[\"Approved\",\"Disabled\"]}"), "Gamma.1,alpha");
    assert_string_equal(names(r, "{\"status\":[]}"), "");
    assert_string_equal(names(r, "{\"type\":\"data\"}"), "alpha,delta-2");
    assert_string_equal(names(r, "{\"type\":\"procedural\"}"), "Gamma.1,beta");
    assert_string_equal(names(r, "{\"tag\":\"ops\"}"), "alpha,beta"); /* not the header */
    assert_string_equal(names(r, "{\"tag\":[\"ops\",\"daily\"]}"), "alpha");
    assert_string_equal(names(r, "{\"tag\":\"Ops\"}"), "");
    assert_string_equal(names(r, "{\"author\":\"ann\"}"), "Gamma.1,alpha,delta-2");
    assert_string_equal(names(r, "{\"author\":\"an\"}"), "");
    assert_string_equal(names(r, "{\"name_pattern\":\"a\"}"), "Gamma.1,alpha,beta,delta-2");
    assert_string_equal(names(r, "{\"name_pattern\":\"^[a-z]+$\"}"), "alpha,beta");
    assert_string_equal(names(r, "{\"name_pattern\":\"(ta|1)\"}"), "Gamma.1,beta,delta-2");
    assert_string_equal(names(r, "{\"name_pattern\":\"ta\",\"limit\":1,\"offset\":1}"), "delta-2");
    assert_string_equal(names(r, "{\"limit\":2}"), "Gamma.1,alpha");
    assert_string_equal(names(r, "{\"offset\":3}"), "delta-2");
    assert_string_equal(names(r, "{\"offset\":9}"), "");
    assert_string_equal(names(r, "{\"limit\":0}"), "");
    assert_string_equal(names(r, "{\"since\":0,\"unknown\":1}"), "Gamma.1,alpha,beta,delta-2");
    assert_string_equal(names(r, "{\"since\":99999999999}"), "");
    assert_string_equal(names(r, "{\"author\":\"ann\",\"status\":\"Draft\",\"type\":\"data\"}"),
                        "delta-2");
}

static void a_pattern_that_is_none_is_a_query_error(void **state)
{
    struct rig *r = *state;

    assert_int_equal(query_as(r, &tester, "{\"name_pattern\":\"(\"}"), FAULT_QUERY);
    assert_str(json_str(rig_fault(r), "class"), "QueryError");
    assert_int_equal(query_as(r, &tester, "{\"name_pattern\":\"(?=x)\"}"), FAULT_QUERY);
    assert_int_equal(query_as(r, &tester, "{\"name_pattern\":\"\"}"), FAULT_NONE);
}

static void the_metadata_says_what_the_body_says(void **state)
{
    struct rig *r = *state;
    const char *body = "# Skill: x\n# Description: d1\n# Tags: A, b ,\xc3\x84\n# tags: b, c\n"
                       "# VARS: X, Y=1, U=https://a,https://b, Z=[1,2]\n# Returns: R, S=1, T\n";

    assert_int_equal(store(r, "x", body, "{\"metadata_bag\":{\"k\":[1,{\"z\":null}]}}"),
                     FAULT_NONE);
    assert_int_equal(metadata(r, "x"), FAULT_NONE);
    assert_non_null(strstr(buf_z(&r->json), "\"tags\":[\"a\",\"b\",\"\xc3\xa4\",\"c\"]"));
    assert_non_null(strstr(buf_z(&r->json), "\"vars\":[\"X\",\"Y\",\"U\",\"Z\"]"));
    assert_non_null(strstr(buf_z(&r->json), "\"returns\":[\"R\",\"T\"]"));
    assert_non_null(strstr(buf_z(&r->json), "\"metadata_bag\":{\"k\":[1,{\"z\":null}]}"));
    assert_str(json_str(rig_json(r), "description"), "d1");
    assert_str(json_str(rig_json(r), "type"), "procedural");
    assert_int_equal(store(r, "x", "# Description: d2\n", "{\"description\":\"mine\"}"),
                     FAULT_NONE);
    assert_int_equal(set_status(r, "x", "Disabled"), FAULT_NONE);
    assert_int_equal(metadata(r, "x"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "description"), "mine");
    assert_non_null(strstr(buf_z(&r->json), "\"metadata_bag\"")); /* kept when not said again */
    assert_int_equal(store(r, "x", "# Description: d3\n", "{\"metadata_bag\":{}}"), FAULT_NONE);
    assert_int_equal(metadata(r, "x"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "description"), "d3");
    assert_null(strstr(buf_z(&r->json), "\"metadata_bag\""));
}

static void the_token_moves_with_every_change_and_only_then(void **state)
{
    struct rig *r = *state;
    char seen[8][32];
    size_t n = 0;

    strcpy(seen[n++], token(r));
    store(r, "x", "# Status: Draft\none\n", NULL);
    strcpy(seen[n++], token(r));
    store(r, "x", "# Status: Draft\ntwo\n", NULL); /* the status is the same */
    strcpy(seen[n++], token(r));
    set_status(r, "x", "Approved");
    strcpy(seen[n++], token(r));
    store(r, "y", "", NULL);
    strcpy(seen[n++], token(r));
    store(r, "y", "", "{\"metadata_bag\":{\"tags\":[\"t\"]}}");
    strcpy(seen[n++], token(r));
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(seen[i], seen[j]);
    assert_string_equal(token(r), seen[n - 1]);
    load(r, "x");
    store(r, "z z", "bad name", NULL);
    set_status(r, "x", "nonsense");
    assert_string_equal(token(r), seen[n - 1]);
    delete (r, "y");
    assert_string_equal(token(r), seen[3]);
    delete (r, "x");
    assert_string_equal(token(r), "empty");
    store(r, "x", "# Status: Draft\none\n", NULL);
    assert_string_equal(token(r), seen[1]); /* equal content, equal token */
    assert_int_equal(strlen(seen[1]), 16);
}

static void an_unchanged_catalog_is_not_sent_again(void **state)
{
    struct rig *r = *state;
    char filter[64], other[64];

    store(r, "x", "one", NULL);
    snprintf(filter, sizeof filter, "{\"if_none_match\":\"%s\"}", token(r));
    assert_int_equal(query_as(r, &tester, filter), FAULT_NONE);
    assert_true(r->got.not_modified);
    assert_int_equal(r->json.n, 0);
    snprintf(other, sizeof other, "{\"if_none_match\":\"%s\",\"x\":1}", "0123456789abcdef");
    assert_int_equal(query_as(r, &tester, other), FAULT_NONE);
    assert_false(r->got.not_modified);
    assert_int_equal(r->got.count, 1);
    set_status(r, "x", "Disabled");
    assert_int_equal(query_as(r, &tester, filter), FAULT_NONE);
    assert_false(r->got.not_modified);
}

static void tenants_and_namespaces_never_meet(void **state)
{
    struct rig *r = *state;
    struct caller all[] = {
        tester,
        {.tenant = STR("acme"), .ns = STR("ns-1"), .identity = STR("a"), .attest = true},
        {.tenant = STR("acme.x"), .identity = STR("a"), .attest = true},
        {.tenant = STR("../acme/@ns-1"), .identity = STR("a"), .attest = true},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char body[8];
        snprintf(body, sizeof body, "v%zu", i);
        assert_int_equal(load_as(r, &all[i], "same", NULL), FAULT_SKILL_NOT_FOUND);
        assert_int_equal(query_as(r, &all[i], "{}"), FAULT_NONE);
        assert_int_equal(r->got.count, 0);
        assert_int_equal(store_as(r, &all[i], "same", str_of(body), NULL), FAULT_NONE);
        assert_true(r->got.created);
    }
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_int_equal(load_as(r, &all[i], "same", NULL), FAULT_NONE);
        assert_int_equal(r->source.p[1], '0' + (char)i);
        assert_int_equal(query_as(r, &all[i], "{}"), FAULT_NONE);
        assert_int_equal(r->got.count, 1);
    }
    struct caller bad = {.tenant = STR("acme"), .ns = STR("../x")};
    assert_int_equal(load_as(r, &bad, "same", NULL), FAULT_INVALID);
}

static void dependents_are_found(void **state)
{
    struct rig *r = *state;

    store(r, "a.b", "$ execute_skill(name=\"a.b\")\n", NULL);
    store(r, "one", "run:\n    $ execute_skill(x=1, name = \"a.b\") -> R\n", NULL);
    store(r, "two", "inline(skill=\"a.b\")\n", NULL);
    store(r, "three", "execute_skill(name=\"aXb\") a.b\n", NULL);
    assert_int_equal(rig_wait(r, skills_dependents(r->sk, &tester, STR("a.b"), on_answer, r)),
                     FAULT_NONE);
    assert_string_equal(buf_z(&r->json), "[\"one\",\"two\"]");
    assert_int_equal(r->got.count, 2);
    assert_int_equal(rig_wait(r, skills_dependents(r->sk, &tester, STR("no"), on_answer, r)),
                     FAULT_NONE);
    assert_string_equal(buf_z(&r->json), "[]");
}

static void everything_survives_a_restart(void **state)
{
    struct rig *r = *state;
    char before[32];

    store(r, "x", "one", "{\"author\":\"ann\",\"metadata_bag\":{\"tags\":[\"t\"]}}");
    store(r, "x", "two", NULL);
    set_status(r, "x", "Approved");
    strcpy(before, token(r));
    rig_reopen(r);
    assert_string_equal(token(r), before);
    assert_string_equal(names(r, "{\"tag\":\"t\",\"author\":\"ann\"}"), "x");
    assert_int_equal(versions(r, "x"), FAULT_NONE);
    assert_int_equal(r->got.count, 3);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "# Status: Approved\ntwo");
}

/* ---- calls ---- */

static int calls;
static void count_call(void *ctx, const struct skills_answer *a)
{
    calls++;
}

static void a_cancelled_call_is_never_answered(void **state)
{
    struct rig *r = *state;
    struct skills_request *c = skills_load(r->sk, &tester, STR("x"), STR_NULL, count_call, NULL);

    calls = 0;
    skills_cancel(&c);
    assert_null(c);
    skills_cancel(&c);
    for (int i = 0; i < 20; i++) { /* a write behind it on each thread: it must have passed */
        store(r, "y", "y", NULL);
        load(r, "y");
    }
    assert_int_equal(calls, 0);
}

static void an_answer_never_comes_inside_the_call(void **state)
{
    struct rig *r = *state;

    calls = 0;
    struct skills_write w = {.name = STR("bad name"), .source = STR("")};
    struct skills_request *c = skills_store(r->sk, &tester, &w, count_call, NULL);
    assert_non_null(c);
    assert_int_equal(calls, 0);
    while (calls == 0)
        loop_turn(r->loop, 1000);
    assert_int_equal(calls, 1);
}

static void writes_take_effect_in_the_order_of_the_calls(void **state)
{
    struct rig *r = *state;
    char body[16];
    struct skills_request *c = NULL;

    calls = 0;
    for (int i = 0; i < 50; i++) {
        snprintf(body, sizeof body, "v%d", i);
        struct skills_write w = {.name = STR("x"), .source = str_of(body)};
        c = skills_store(r->sk, &tester, &w, count_call, NULL);
    }
    assert_non_null(c);
    while (calls < 50)
        loop_turn(r->loop, 1000);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "v49");
    assert_int_equal(versions(r, "x"), FAULT_NONE);
    assert_int_equal(r->got.count, 50);
}

static void closing_writes_what_was_asked_for_and_answers_nobody(void **state)
{
    struct rig *r = *state;
    struct skills_write w = {.name = STR("x"), .source = STR("late")};

    calls = 0;
    struct skills_request *c = skills_store(r->sk, &tester, &w, count_call, NULL);
    assert_non_null(c);
    rig_reopen(r);
    loop_turn(r->loop, 0);
    assert_int_equal(calls, 0);
    assert_int_equal(load(r, "x"), FAULT_NONE);
}

static int busy;
static void count_busy(void *ctx, const struct skills_answer *a)
{
    calls++;
    busy += a->fault.cls == FAULT_BUSY;
}

static void too_many_calls_are_told_so(void **state)
{
    struct rig *r = *state;

    r->cfg.max_waiting = 12; /* a tenant has a quarter */
    rig_reopen(r);
    calls = busy = 0;
    for (int i = 0; i < 6; i++)
        assert_non_null(skills_version(r->sk, &tester, count_busy, NULL));
    while (calls < 6)
        loop_turn(r->loop, 1000);
    assert_int_equal(busy, 3);
    assert_string_equal(token(r), "empty"); /* there is room again */
}

static void an_answer_too_long_is_an_error_not_a_torn_list(void **state)
{
    struct rig *r = *state;

    r->cfg.max_answer_bytes = 2000;
    rig_reopen(r);
    for (int i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof name, "s%d", i);
        store(r, name, "x", NULL);
    }
    assert_int_equal(query_as(r, &tester, "{}"), FAULT_QUERY);
    assert_int_equal(query_as(r, &tester, "{\"limit\":3}"), FAULT_NONE);
    assert_int_equal(r->got.count, 3);
}

static void the_manifest_is_the_contracts(void **state)
{
    struct rig *r = *state;
    struct jw w = jw_begin(&r->json);

    buf_reset(&r->json);
    skills_manifest(r->sk, &w);
    assert_str(json_str(json_get(rig_json(r), "manifest"), "kind"), backend);
    assert_non_null(json_str(rig_json(r), "capabilities_version").p);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(skills_test_skills)
{
    const struct CMUnitTest tests[] = {
        T(an_empty_store_lists_nothing),
        T(a_draft_comes_back_byte_for_byte),
        T(a_miss_is_skill_not_found_everywhere),
        T(an_unknown_version_is_another_error),
        T(old_versions_keep_their_bytes),
        T(every_write_is_in_the_history),
        T(a_status_moves_with_its_body),
        T(a_body_is_kept_as_it_is_handed_over),
        T(a_body_without_a_status_keeps_the_status_unless_told),
        T(a_key_for_one_agent_approves_nothing),
        T(the_body_is_believed_wherever_its_status_stands),
        T(the_first_author_stays),
        T(without_attest_the_author_is_the_key),
        T(names_are_restricted),
        T(a_delete_leaves_nothing),
        T(only_its_author_and_who_may_name_others_delete_a_skill),
        T(existence_is_asked_before_permission),
        T(a_delete_wants_the_name_repeated_and_nobody_who_depends_on_it),
        T(a_new_skill_can_be_insisted_on),
        T(a_body_too_long_or_no_text_is_refused),
        T(metadata_of_the_wrong_kind_is_refused),
        T(filters_are_all_honoured),
        T(a_pattern_that_is_none_is_a_query_error),
        T(the_metadata_says_what_the_body_says),
        T(the_token_moves_with_every_change_and_only_then),
        T(an_unchanged_catalog_is_not_sent_again),
        T(tenants_and_namespaces_never_meet),
        T(dependents_are_found),
        T(everything_survives_a_restart),
        T(a_cancelled_call_is_never_answered),
        T(an_answer_never_comes_inside_the_call),
        T(writes_take_effect_in_the_order_of_the_calls),
        T(closing_writes_what_was_asked_for_and_answers_nobody),
        T(too_many_calls_are_told_so),
        T(an_answer_too_long_is_an_error_not_a_torn_list),
        T(the_manifest_is_the_contracts),
    };
    int failed = 0;

    backend = "sqlite";
    failed += cmocka_run_group_tests_name("sqlite", tests, NULL, NULL);
    backend = "filesystem";
    failed += cmocka_run_group_tests_name("filesystem", tests, NULL, NULL);
    backend = "postgres";
    failed += cmocka_run_group_tests_name("postgres", tests, pg_setup, pg_teardown);
    return failed;
}
