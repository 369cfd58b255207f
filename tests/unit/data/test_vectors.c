/* Entries and queries as the runtime's own data store has them: data_write.json and fts_query.json.
 *
 * Ours differs where the contract says so: curated fields stand at the top level, filters count on
 * blank queries too, and malformed filters are refused. */
#include "data/rig.h"
#undef assert_str
#include "core/vectors.h"
#include "data/fts.h"

static enum fault_class write_json(struct rig *r, struct json entry)
{
    return rig_wait(r, data_write(r->ds, &tester, entry, on_answer, r));
}

static void same_json(struct json got, struct json want)
{
    struct buf a = BUF_INIT, b = BUF_INIT;
    struct jw wa = jw_begin(&a), wb = jw_begin(&b);

    jw_value(&wa, got);
    jw_value(&wb, want);
    assert_same(buf_str(&a), buf_str(&b));
    buf_done(&a);
    buf_done(&b);
}

/* @key wherever the vector has it: at the top or in its metadata. */
static struct json wanted(struct json stored, const char *key)
{
    struct json v = json_get(stored, key);
    return json_type(v) != JSON_ABSENT ? v : json_get(json_get(stored, "metadata"), key);
}

static bool is_curated(struct str key)
{
    return str_eq(key, STR("recipients")) || str_eq(key, STR("expires_at")) ||
           str_eq(key, STR("vault"));
}

static void check_entry(struct json got, struct json stored)
{
    static const char *fields[] = {"summary",    "detail",     "domain_tags",
                                   "recipients", "expires_at", "vault"};

    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        struct json want = wanted(stored, fields[i]);
        assert_int_equal(json_type(json_get(got, fields[i])), json_type(want));
        if (json_type(want) != JSON_ABSENT)
            same_json(json_get(got, fields[i]), want);
    }
    for (struct json_iter it = {0}; json_next(json_get(stored, "metadata"), &it);) {
        struct str key = it.key;
        char name[64];
        snprintf(name, sizeof name, "%.*s", STR_FMT(key));
        struct json have = json_get(json_get(got, "metadata"), name);
        assert_int_equal(json_type(have), is_curated(key) ? JSON_ABSENT : json_type(it.value));
    }
    assert_same(json_str(got, "agent_id"), STR("tester"));
    assert_int_equal(json_type(json_get(got, "score")), JSON_ABSENT);
}

static void every_write_vector_holds(void **state)
{
    struct rig *r = rig_new();
    struct json_parser *p = json_parser_new();
    struct json cases = load_vectors(p, VECTORS "/data_write.json");
    size_t n = 0;

    for (struct json_iter it = {0}; json_next(cases, &it); n++) {
        struct str name = json_str(it.value, "name");
        struct json stored = json_get(it.value, "stored");
        char id[64];
        int64_t created = 0, expires = INT64_MAX;
        print_message("%.*s\n", STR_FMT(name));
        assert_int_equal(write_json(r, json_get(it.value, "entry")), FAULT_NONE);
        check_entry(rig_json(r), stored);
        assert_true(json_as_i64(json_get(rig_json(r), "created_at"), &created));
        assert_true(created > 1600000000 && created < 20000000000);
        assert_int_equal(strlen(r->id), 36);
        assert_int_equal(r->id[14], '4');
        strcpy(id, r->id);
        json_as_i64(wanted(stored, "expires_at"), &expires);
        assert_int_equal(get_as(r, &tester, id), expires > created);
        if (expires > created)
            check_entry(rig_json(r), stored);
    }
    assert_int_equal(n, json_count(cases));
    json_parser_free(p);
    rig_free(r);
}

/* ---- queries ---- */

static void seed(struct rig *r, struct json corpus)
{
    for (struct json_iter it = {0}; json_next(corpus, &it);) {
        struct buf entry = BUF_INIT;
        struct jw w = jw_begin(&entry);
        struct json_parser *p = json_parser_new();
        struct json doc;
        jw_obj(&w);
        jw_kstr(&w, "content", json_str(it.value, "detail"));
        if (json_type(json_get(it.value, "domain_tags")) == JSON_ARRAY) {
            jw_key(&w, "tags");
            jw_value(&w, json_get(it.value, "domain_tags"));
        }
        jw_key(&w, "metadata");
        jw_obj(&w);
        jw_kstr(&w, "vector", json_str(it.value, "id"));
        jw_end_obj(&w);
        jw_end_obj(&w);
        assert_true(json_parse(p, buf_str(&entry), &doc));
        assert_int_equal(write_json(r, doc), FAULT_NONE);
        json_parser_free(p);
        buf_done(&entry);
    }
}

static enum fault_class ask(struct rig *r, struct str text, struct json filters, struct str mode)
{
    struct buf q = BUF_INIT;
    struct jw w = jw_begin(&q);
    struct json_parser *p = json_parser_new();
    struct json doc;

    jw_obj(&w);
    jw_kstr(&w, "query", text);
    jw_ki64(&w, "limit", 50);
    jw_kstr(&w, "mode", mode);
    for (struct json_iter it = {0}; json_next(filters, &it);) {
        jw_key_str(&w, it.key);
        jw_value(&w, it.value);
    }
    jw_end_obj(&w);
    assert_true(json_parse(p, buf_str(&q), &doc));
    enum fault_class cls = rig_wait(r, data_query(r->ds, &tester, doc, on_answer, r));
    json_parser_free(p);
    buf_done(&q);
    return cls;
}

static bool has_id(struct json list, struct str id)
{
    for (struct json_iter it = {0}; json_next(list, &it);)
        if (str_eq(json_as_str(it.value), id))
            return true;
    return false;
}

static struct str vector_id(struct json entry)
{
    return json_str(json_get(entry, "metadata"), "vector");
}

static void check_found(struct rig *r, struct json ids, bool in_order)
{
    struct json got = rig_json(r);
    struct json_iter want = {0};
    double before = -1e300;

    assert_int_equal(json_count(got), json_count(ids));
    for (struct json_iter it = {0}; json_next(got, &it);) {
        double score = 0;
        assert_true(json_next(ids, &want));
        if (in_order)
            assert_same(vector_id(it.value), json_as_str(want.value));
        assert_true(has_id(ids, vector_id(it.value)));
        assert_int_equal(json_as_f64(json_get(it.value, "score"), &score), !in_order);
        assert_true(in_order || (score < 0 && score >= before));
        before = score;
    }
}

static struct json query_file(struct json_parser *p)
{
    struct buf bytes = BUF_INIT;
    struct json doc;

    slurp(VECTORS "/fts_query.json", &bytes);
    assert_true(json_parse(p, buf_str(&bytes), &doc));
    buf_done(&bytes);
    return doc;
}

static void every_query_vector_holds(void **state)
{
    struct rig *r = rig_new();
    struct json_parser *p = json_parser_new();
    struct json doc = query_file(p);
    size_t n = 0;

    seed(r, json_get(doc, "corpus"));
    for (struct json_iter it = {0}; json_next(json_get(doc, "cases"), &it); n++) {
        struct str text = json_str(it.value, "query"), path = json_str(it.value, "path");
        struct buf match = BUF_INIT;
        print_message("query \"%.*s\"\n", STR_FMT(text));
        enum fts_kind kind = fts_match_text(text, &match);
        assert_int_equal(kind, str_eq(path, STR("recency")) ? FTS_BLANK
                               : str_eq(path, STR("raw"))   ? FTS_RAW
                                                            : FTS_PHRASE);
        if (kind != FTS_BLANK)
            assert_same(buf_str(&match), json_str(it.value, "match"));
        buf_done(&match);
        enum fault_class cls = ask(r, text, (struct json){0}, STR("fts"));
        if (json_str(it.value, "throws").p != NULL) {
            assert_int_equal(cls, FAULT_QUERY);
            assert_same(json_str(rig_fault(r), "error"), json_str(it.value, "throws"));
            assert_same(json_str(rig_fault(r), "class"), STR("QueryError"));
            continue;
        }
        assert_int_equal(cls, FAULT_NONE);
        check_found(r, json_get(it.value, "result_ids"), kind == FTS_BLANK);
    }
    assert_int_equal(n, 43);
    json_parser_free(p);
    rig_free(r);
}

/* Of a filter the bundled store ignores, ours refuses what is no filter at all. */
static bool is_malformed(struct json filters)
{
    struct json v = json_get(filters, "domain_tags");

    if (json_type(v) == JSON_ABSENT)
        return false;
    if (json_type(v) != JSON_ARRAY)
        return json_as_str(v).n == 0;
    for (struct json_iter it = {0}; json_next(v, &it);)
        if (json_as_str(it.value).n == 0)
            return true;
    return json_count(v) == 0;
}

static void check_tagged(struct rig *r, struct json corpus, struct json filters)
{
    struct json want = json_get(filters, "domain_tags");
    size_t expected = 0;

    for (struct json_iter it = {0}; json_next(corpus, &it);) {
        bool hit = false;
        for (struct json_iter t = {0}; json_next(json_get(it.value, "domain_tags"), &t);)
            hit |= json_type(want) == JSON_ARRAY ? has_id(want, json_as_str(t.value))
                                                 : str_eq(json_as_str(want), json_as_str(t.value));
        expected += hit;
    }
    assert_int_equal(json_count(rig_json(r)), expected);
}

static void every_filter_vector_holds(void **state)
{
    struct rig *r = rig_new();
    struct json_parser *p = json_parser_new();
    struct json doc = query_file(p), corpus = json_get(doc, "corpus");
    size_t refused = 0, vaults = 0, blank = 0;

    seed(r, corpus);
    for (struct json_iter it = {0}; json_next(json_get(doc, "filter_cases"), &it);) {
        struct json c = it.value, filters = json_get(c, "filters");
        struct str mode = json_str(c, "mode"), text = json_str(c, "query");
        bool strict = str_eq(json_str(c, "via"), STR("bridge")), known = true;
        if (mode.p != NULL) {
            assert_int_equal(ask(r, STR("deploy"), filters, mode), FAULT_QUERY);
            assert_same(json_str(rig_fault(r), "mode"), mode);
            continue;
        }
        for (struct json_iter f = {0}; json_next(filters, &f);)
            known &= str_eq(f.key, STR("domain_tags")) || str_eq(f.key, STR("permissive_filters"));
        if (!strict && !known)
            continue; /* the store behind the bridge does not look; ours is both in one */
        enum fault_class cls = ask(r, text, filters, STR("fts"));
        if (json_str(filters, "vault").p != NULL) { /* which ours can filter by */
            assert_int_equal(cls, FAULT_NONE);
            assert_int_equal(json_count(rig_json(r)), 0);
            vaults++;
        } else if (is_malformed(filters)) {
            assert_int_equal(cls, FAULT_QUERY);
            refused++;
        } else if (text.n == 0) {
            assert_int_equal(cls, FAULT_NONE);
            check_tagged(r, corpus, filters);
            blank++;
        } else {
            assert_int_equal(cls, FAULT_NONE);
            check_found(r, json_get(c, "result_ids"), false);
        }
    }
    assert_true(refused > 10 && vaults == 3 && blank > 3);
    json_parser_free(p);
    rig_free(r);
}

UNIT(data_test_vectors)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_write_vector_holds),
        cmocka_unit_test(every_query_vector_holds),
        cmocka_unit_test(every_filter_vector_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
