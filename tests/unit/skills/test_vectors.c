/* Skill bodies as the runtime's own stores keep them: every vector, every backend.
 *
 * Where those two stores differ, the better one was chosen: verbatim bodies (the sqlite column)
 * that say their status, locked authors, kept statuses for bodies that say none (the filesystem
 * column), and a body that says what metadata.status says. */
#include "skills/rig.h"
#undef assert_str
#include "core/vectors.h"
#include "skills/text.h"

static const char *backends[] = {"sqlite", "filesystem", "postgres"};

static struct json vector_file(struct json_parser *p)
{
    struct buf bytes = BUF_INIT;
    struct json doc;

    slurp(VECTORS "/skill_hash.json", &bytes);
    assert_true(json_parse(p, buf_str(&bytes), &doc));
    buf_done(&bytes);
    return doc;
}

static struct caller who; /* every case in a namespace of its own */

static enum fault_class store_case(struct rig *r, struct str source, struct json m)
{
    struct skills_write w = {.name = STR("hello"), .source = source, .metadata = m};

    return rig_wait(r, skills_store(r->sk, &who, &w, on_answer, r));
}

static void check_state(struct rig *r, struct json want, struct json c)
{
    struct json got, meta;

    assert_int_equal(load_as(r, &who, "hello", NULL), FAULT_NONE);
    got = rig_json(r);
    meta = json_get(got, "metadata");
    assert_same(json_str(got, "source"), json_str(want, "body"));
    assert_same(json_str(got, "content_hash"), json_str(want, "content_hash"));
    assert_same(json_str(got, "version"), json_str(want, "version"));
    assert_same(json_str(meta, "content_hash"), json_str(want, "content_hash"));
    assert_same(json_str(meta, "status"), json_str(want, "status"));
    assert_same(json_str(meta, "author"), STR("tester"));
    if (json_type(json_get(want, "description")) == JSON_NULL)
        assert_int_equal(json_type(json_get(meta, "description")), JSON_ABSENT);
    else
        assert_same(json_str(meta, "description"), json_str(want, "description"));
    static const char *lists[] = {"vars", "returns", "tags"};
    for (size_t i = 0; i < 3; i++) {
        struct json list = json_get(i < 2 ? want : json_get(c, "parsed"), lists[i]);
        struct json have = json_get(meta, lists[i]);
        assert_int_equal(json_count(have), json_count(list));
        struct json_iter a = {0}, b = {0};
        while (json_next(have, &a) && json_next(list, &b))
            assert_same(json_as_str(a.value), json_as_str(b.value));
    }
}

/* The body and hash this case must have when metadata.status moves a first write. */
static struct json moved_by_metadata(struct json cases, struct json c)
{
    bool approve = str_eq(json_str(json_get(c, "metadata"), "status"), STR("Approved"));

    for (struct json_iter it = {0}; json_next(cases, &it);)
        if (str_eq(json_str(it.value, "name"),
                   approve ? STR("draft to approved") : STR("approved to draft")))
            return json_get(it.value, "filesystem");
    fail_msg("no such vector");
    return cases;
}

static void run_case(struct rig *r, struct json doc, struct json c)
{
    struct str op = json_str(c, "op"), name = json_str(c, "name");
    struct json want = json_get(c, "filesystem");
    enum fault_class cls;

    print_message("%s: %.*s\n", r->cfg.backend, STR_FMT(name));
    if (str_eq(op, STR("store"))) {
        want = json_get(c, "sqlite");
        if (json_str(json_get(c, "metadata"), "status").p != NULL)
            want = moved_by_metadata(json_get(doc, "cases"), c);
        cls = store_case(r, json_str(c, "source"), json_get(c, "metadata"));
    } else if (str_eq(op, STR("overwrite"))) {
        assert_int_equal(store_case(r, json_str(c, "first"), json_get(c, "first_metadata")),
                         FAULT_NONE);
        cls = store_case(r, json_str(c, "source"), json_get(c, "metadata"));
        enum skill_status says;
        if (cls == FAULT_NONE && json_str(json_get(c, "metadata"), "status").p == NULL &&
            skill_status_read(json_str(c, "source"), &says, NULL))
            want = json_get(c, "sqlite");
    } else {
        assert_int_equal(store_case(r, json_str(c, "source"), (struct json){0}), FAULT_NONE);
        cls = rig_wait(r, skills_update_status(r->sk, &who, STR("hello"), json_str(c, "to"),
                                               on_answer, r));
    }
    struct str throws = json_str(want, "throws");
    if (throws.p != NULL) {
        assert_int_not_equal(cls, FAULT_NONE);
        if (!str_eq(throws, STR("Error")))
            assert_same(str_of(fault_class_name(cls)), throws);
        else
            assert_null(fault_class_name(cls));
    } else {
        assert_int_equal(cls, FAULT_NONE);
        assert_same(str_of(r->hash), json_str(want, "content_hash"));
        assert_same(str_of(skill_status_name(r->got.status)), json_str(want, "returned_status"));
        struct str previous = json_str(want, "previous_status");
        if (previous.p != NULL && str_eq(op, STR("update_status")))
            assert_same(json_str(rig_json(r), "previous_status"), previous);
        check_state(r, want, c);
    }
}

static size_t run_all(const char *backend, struct json doc, bool secured)
{
    struct arena arena = ARENA_INIT;
    struct str pem = arena_str(&arena, json_str(json_get(doc, "signing"), "public_key_pem"));
    struct rig *r = rig_new(backend, secured ? pem.p : NULL);
    size_t n = 0;

    for (struct json_iter it = {0}; json_next(json_get(doc, "cases"), &it);) {
        char ns[16];
        if (str_eq(json_str(it.value, "op"), STR("force_draft")) ||
            json_as_bool(json_get(it.value, "secured"), false) != secured)
            continue;
        snprintf(ns, sizeof ns, "case-%zu", n++);
        who = tester;
        who.ns = str_of(ns);
        run_case(r, doc, it.value);
    }
    rig_free(r);
    arena_done(&arena);
    return n;
}

static void every_vector_holds(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json doc = vector_file(p);
    size_t n = 0;

    for (size_t b = 0; b < ARRAY_LEN(backends); b++)
        n += run_all(backends[b], doc, false) + run_all(backends[b], doc, true);
    assert_int_equal(n, ARRAY_LEN(backends) * (json_count(json_get(doc, "cases")) - 6));
    json_parser_free(p);
}

static void every_forced_draft_holds(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json doc = vector_file(p);
    size_t n = 0;

    for (struct json_iter it = {0}; json_next(json_get(doc, "cases"), &it);) {
        struct buf out = BUF_INIT;
        if (!str_eq(json_str(it.value, "op"), STR("force_draft")))
            continue;
        skill_force_draft(json_str(it.value, "source"), &out);
        assert_same(buf_str(&out), json_str(it.value, "body"));
        buf_done(&out);
        n++;
    }
    assert_int_equal(n, 6);
    json_parser_free(p);
}

UNIT(skills_test_vectors)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_forced_draft_holds),
        cmocka_unit_test(every_vector_holds),
    };
    return cmocka_run_group_tests(tests, pg_setup, pg_teardown);
}
