/* The promises of data/data.h, one test each. */
#include "data/rig.h"
#include "base/limits.h"
#include "store/jobs.h"
#include <dirent.h>

static int setup(void **state)
{
    *state = rig_new();
    return 0;
}

static int teardown(void **state)
{
    rig_free(*state);
    return 0;
}

static void rig_reopen(struct rig *r)
{
    data_close(r->ds);
    rig_open(r);
}

static void pass_time(struct rig *r, int64_t seconds)
{
    struct clock *c = loop_clock(r->loop);
    clock_set(c, clock_now_ms(c), clock_wall_ms(c) + seconds * 1000);
}

static void what_is_written_is_found_by_whatever_is_asked_next(void **state)
{
    struct rig *r = *state;
    char id[64];

    assert_string_equal(found(r, "{\"query\":\"hello\"}"), "");
    assert_int_equal(write_entry(r, "{\"content\":\"Hello world\\nmore\",\"tags\":[\"a\"]}"),
                     FAULT_NONE);
    strcpy(id, r->id);
    assert_true(str_eq(json_str(rig_json(r), "id"), str_of(id)));
    assert_true(get_as(r, &tester, id));
    assert_str(json_str(rig_json(r), "detail"), "Hello world\nmore");
    assert_string_equal(found(r, "{\"query\":\"HELLO\"}"), "Hello world");
    assert_string_equal(found(r, "{}"), "Hello world");
    assert_string_equal(found(r, "{\"domain_tags\":\"a\"}"), "Hello world");
    for (size_t i = 0; id[i] != '\0'; i++) /* ids in capitals are the same ids */
        if (id[i] >= 'a' && id[i] <= 'f')
            id[i] = (char)(id[i] - 32);
    assert_true(get_as(r, &tester, id));
}

static void a_miss_is_null_and_no_error(void **state)
{
    struct rig *r = *state;
    static const char *ids[] = {"", "x", "00000000-0000-4000-8000-000000000000",
                                "00000000-0000-4000-8000-00000000000g",
                                "0000000000000-4000-8000-000000000000"};

    for (int written = 0; written < 2; written++) {
        for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
            assert_false(get_as(r, &tester, ids[i]));
            assert_string_equal(buf_z(&r->json), "null");
        }
        assert_int_equal(write_entry(r, "{\"content\":\"x\"}"), FAULT_NONE);
    }
}

static void the_newest_come_first_when_nothing_is_looked_for(void **state)
{
    struct rig *r = *state;

    write_entry(r, "{\"content\":\"one\",\"tags\":[\"a\",\"b\"]}");
    write_entry(r, "{\"content\":\"two\",\"tags\":[\"b\"]}");
    write_entry(r, "{\"content\":\"three\"}");
    write_entry(r, "{\"content\":\"four\",\"tags\":[\"a\"]}");
    assert_string_equal(found(r, "{\"query\":\" \"}"), "four|three|two|one");
    assert_string_equal(found(r, "{\"limit\":2}"), "four|three");
    assert_string_equal(found(r, "{\"domain_tags\":\"b\"}"), "two|one");
    assert_string_equal(found(r, "{\"domain_tags\":[\"a\",\"b\"]}"), "four|two|one");
    assert_string_equal(found(r, "{\"domain_tags\":[\"a\",\"b\"],\"limit\":2}"), "four|two");
    assert_string_equal(found(r, "{\"domain_tags\":[\"c\"]}"), "");
    assert_int_equal(json_type(json_get(rig_json(r), "score")), JSON_ABSENT);
}

static void better_matches_come_first(void **state)
{
    struct rig *r = *state;

    write_entry(r, "{\"content\":\"a long text in which apple is said once among many words\"}");
    write_entry(r, "{\"content\":\"apple apple apple\"}");
    write_entry(r, "{\"content\":\"pear\"}");
    assert_string_equal(
        found(r, "{\"query\":\"apple\"}"),
        "apple apple apple|a long text in which apple is said once among many words");
    assert_string_equal(found(r, "{\"query\":\"apple\",\"limit\":1}"), "apple apple apple");
    assert_string_equal(found(r, "{\"query\":\"raw:apple OR pear\",\"limit\":9}"),
                        "pear|apple apple apple|a long text in which apple is said once among many "
                        "words");
}

static void raw_syntax_is_wrong_also_where_nothing_was_ever_written(void **state)
{
    struct rig *r = *state;

    assert_int_equal(query(r, "{\"query\":\"raw:\\\"\"}"), FAULT_QUERY);
    assert_int_equal(query(r, "{\"query\":\"raw:apple OR pear\"}"), FAULT_NONE);
    assert_int_equal(r->got.count, 0);
    write_entry(r, "{\"content\":\"apple\"}");
    assert_int_equal(query(r, "{\"query\":\"raw:\\\"\"}"), FAULT_QUERY);
}

static void a_tenant_has_so_many_bytes(void **state)
{
    struct rig *r = *state;
    struct limit_settings s = limit_defaults;
    char entry[20000];
    int n = 0;

    s.of[LIMIT_DATA_BYTES].each = 300000;
    r->cfg.ledger = ledger_new(&s);
    rig_reopen(r);
    snprintf(entry, sizeof entry, "{\"content\":\"%015000d\"}", 7);
    while (n < 100000 && write_as(r, &tester, entry) == FAULT_NONE)
        n++;
    assert_int_equal(write_as(r, &tester, entry), FAULT_BUSY);
    assert_true(n >= 5);
    assert_int_equal(query(r, "{\"query\":\"\"}"), FAULT_NONE);
    ledger_free(r->cfg.ledger);
    r->cfg.ledger = NULL;
    rig_reopen(r);
}

static void ten_are_found_unless_told(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 15; i++)
        write_entry(r, "{\"content\":\"same\"}");
    assert_int_equal(query(r, "{\"query\":\"same\"}"), FAULT_NONE);
    assert_int_equal(r->got.count, 10);
    assert_int_equal(query(r, "{\"query\":\"same\",\"limit\":12}"), FAULT_NONE);
    assert_int_equal(r->got.count, 12);
    assert_int_equal(query(r, "{\"query\":\"same\",\"limit\":1000000}"), FAULT_NONE);
    assert_int_equal(r->got.count, 15);
    assert_int_equal(query(r, "{\"limit\":0.5}"), FAULT_NONE);
    assert_int_equal(r->got.count, 1);
}

static void queries_of_the_wrong_kind_are_refused(void **state)
{
    struct rig *r = *state;
    static const char *bad[] = {"[]",
                                "3",
                                "{\"query\":3}",
                                "{\"limit\":0}",
                                "{\"limit\":-1}",
                                "{\"limit\":\"5\"}",
                                "{\"mode\":\"semantic\"}",
                                "{\"mode\":null}",
                                "{\"domain_tags\":{}}",
                                "{\"domain_tags\":null}",
                                "{\"domain_tags\":[\"a\",\"\"],\"permissive_filters\":true}"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(query(r, bad[i]), FAULT_QUERY);
        assert_str(json_str(rig_fault(r), "class"), "QueryError");
        assert_str(json_str(rig_fault(r), "connector_type"), "data_store");
    }
    assert_int_equal(query(r, "{\"color\":\"x\",\"vault\":\"x\",\"size\":3}"),
                     FAULT_UNSUPPORTED_FILTER);
    assert_int_equal(json_count(json_get(rig_fault(r), "unsupportedKeys")), 2);
    assert_int_equal(json_count(json_get(rig_fault(r), "supportedKeys")), 8);
    assert_int_equal(query(r, "{\"color\":\"x\",\"permissive_filters\":true}"), FAULT_NONE);
    assert_int_equal(query(r, "{\"color\":\"x\",\"permissive_filters\":1}"),
                     FAULT_UNSUPPORTED_FILTER);
}

static void every_stored_field_is_a_filter(void **state)
{
    struct rig *r = *state;
    static const char *entries[] = {
        "{\"content\":\"word one\",\"tags\":[\"x\"],\"recipients\":[\"ann\",\"bob\"],\"metadata\":{"
        "\"vault\":\"main\",\"thread_status\":\"open\",\"pinned\":true,\"payload_type\":\"note\"}}",
        "{\"content\":\"word two\",\"recipients\":[\"bob\"],\"metadata\":{\"vault\":\"side\","
        "\"thread_status\":\"closed\",\"pinned\":false,\"knowledge_type\":\"fact\","
        "\"agent_id\":\"carol\"}}",
        "{\"content\":\"word three\",\"tags\":[\"main\"],\"metadata\":{\"vault\":\"main\"}}",
    };
    static const struct {
        const char *filters, *newest;
    } cases[] = {
        {"\"vault\":\"main\"", "word three|word one"},
        {"\"vault\":[\"side\",\"main\"]", "word three|word two|word one"},
        {"\"vault\":\"mai\"", ""},
        {"\"vault\":\"MAIN\"", ""},
        {"\"domain_tags\":\"main\"", "word three"},
        {"\"recipients\":\"bob\"", "word two|word one"},
        {"\"recipients\":[\"ann\",\"zoe\"]", "word one"},
        {"\"agent_id\":\"carol\"", "word two"},
        {"\"agent_id\":\"tester\"", "word three|word one"},
        {"\"thread_status\":\"open\"", "word one"},
        {"\"thread_status\":[\"open\",\"closed\"]", "word two|word one"},
        {"\"payload_type\":\"note\"", "word one"},
        {"\"knowledge_type\":\"fact\"", "word two"},
        {"\"pinned\":true", "word one"},
        {"\"pinned\":false", "word three|word two"},
        {"\"pinned\":false,\"vault\":\"main\"", "word three"},
        {"\"pinned\":true,\"vault\":\"side\"", ""},
        {"\"recipients\":\"bob\",\"vault\":\"main\",\"agent_id\":\"tester\"", "word one"},
        {"\"pinned\":false,\"limit\":1", "word three"},
        {"\"recipients\":\"bob\",\"vault\":[\"main\",\"side\"],\"limit\":1", "word two"},
    };
    static const char *bad[] = {"\"vault\":\"\"",    "\"vault\":5",         "\"recipients\":[]",
                                "\"agent_id\":null", "\"pinned\":\"true\"", "\"pinned\":1"};
    struct caller runtime = tester;
    struct buf q = BUF_INIT;

    runtime.attest = true;
    for (size_t i = 0; i < ARRAY_LEN(entries); i++)
        assert_int_equal(write_as(r, &runtime, entries[i]), FAULT_NONE);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        print_message("%s\n", cases[i].filters);
        buf_reset(&q);
        buf_printf(&q, "{%s}", cases[i].filters);
        assert_string_equal(found(r, buf_z(&q)), cases[i].newest);
        size_t n = r->got.count;
        buf_reset(&q);
        buf_printf(&q, "{\"query\":\"word\",%s}", cases[i].filters);
        assert_int_equal(query(r, buf_z(&q)), FAULT_NONE);
        assert_int_equal(r->got.count, n); /* the same entries, by their score */
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        buf_reset(&q);
        buf_printf(&q, "{%s}", bad[i]);
        assert_int_equal(query(r, buf_z(&q)), FAULT_QUERY);
    }
    buf_done(&q);
}

static void entries_of_the_wrong_kind_are_refused(void **state)
{
    struct rig *r = *state;
    static const char *bad[] = {"[]",
                                "{}",
                                "{\"content\":3}",
                                "{\"content\":\"x\",\"tags\":\"a\"}",
                                "{\"content\":\"x\",\"tags\":[3]}",
                                "{\"content\":\"x\",\"recipients\":{}}",
                                "{\"content\":\"x\",\"expires_at\":\"soon\"}",
                                "{\"content\":\"x\",\"metadata\":[]}",
                                "{\"content\":\"x\",\"metadata\":{\"pinned\":\"yes\"}}",
                                "{\"content\":\"x\",\"metadata\":{\"confidence\":\"high\"}}",
                                "{\"content\":\"x\",\"metadata\":{\"vault\":3}}"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(write_entry(r, bad[i]), FAULT_INVALID);
    assert_string_equal(found(r, "{}"), "");
}

static void curated_fields_stand_at_the_top_level_only(void **state)
{
    struct rig *r = *state;
    static const char *fields[] = {"thread_status", "pinned",         "confidence", "domain_tags",
                                   "payload_type",  "knowledge_type", "recipients", "expires_at",
                                   "created_at",    "agent_id",       "vault"};

    assert_int_equal(
        write_entry(r, "{\"content\":\"x\",\"metadata\":{\"thread_status\":\"open\",\"pinned\":"
                       "true,\"confidence\":0.5,\"domain_tags\":[\"t\"],\"payload_type\":\"p\","
                       "\"knowledge_type\":\"k\",\"recipients\":[\"ann\"],\"expires_at\":"
                       "99999999999,\"created_at\":5,\"agent_id\":\"forged\",\"vault\":\"v\","
                       "\"own\":{\"vault\":1}}}"),
        FAULT_NONE);
    char id[64];
    strcpy(id, r->id);
    assert_true(get_as(r, &tester, id));
    struct json got = rig_json(r), metadata = json_get(got, "metadata");
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        assert_int_not_equal(json_type(json_get(got, fields[i])), JSON_ABSENT);
        assert_int_equal(json_type(json_get(metadata, fields[i])), JSON_ABSENT);
    }
    assert_int_equal(json_count(metadata), 1);
    assert_str(json_str(got, "agent_id"), "tester"); /* the key's own */
    int64_t created = 0;
    assert_true(json_as_i64(json_get(got, "created_at"), &created) && created > 1600000000);
    assert_string_equal(found(r, "{\"domain_tags\":\"t\"}"), "x"); /* a tag like any other */
    struct caller trusted = tester;
    trusted.attest = true;
    write_as(r, &trusted, "{\"content\":\"x\",\"metadata\":{\"agent_id\":\"ann\"}}");
    assert_str(json_str(rig_json(r), "agent_id"), "ann");
}

static void what_has_expired_is_gone(void **state)
{
    struct rig *r = *state;
    char entry[160], ids[3][64];
    int64_t now = clock_wall_ms(loop_clock(r->loop)) / 1000;

    write_entry(r, "{\"content\":\"word forever\",\"expires_at\":null,\"tags\":[\"t\"]}");
    strcpy(ids[0], r->id);
    snprintf(entry, sizeof entry,
             "{\"content\":\"word later\",\"expires_at\":%lld,\"tags\":[\"t\"]}",
             (long long)now + 1000);
    write_entry(r, entry);
    strcpy(ids[1], r->id);
    snprintf(entry, sizeof entry,
             "{\"content\":\"word soon\",\"expires_at\":%lld,\"tags\":[\"t\"]}",
             (long long)now + 100);
    write_entry(r, entry);
    strcpy(ids[2], r->id);
    assert_string_equal(found(r, "{\"query\":\"word\"}"), "word forever|word later|word soon");
    pass_time(r, 200);
    assert_string_equal(found(r, "{\"query\":\"word\",\"limit\":2}"), "word forever|word later");
    pass_time(r, 200);
    assert_string_equal(found(r, "{\"domain_tags\":\"t\",\"limit\":2}"), "word later|word forever");
    pass_time(r, 2000);
    assert_string_equal(found(r, "{}"), "word forever");
    pass_time(r, 2000);
    assert_false(get_as(r, &tester, ids[2]));
    assert_true(get_as(r, &tester, ids[0]));
}

static int calls;
static void count_call(void *ctx, const struct data_answer *a)
{
    calls++;
}

/* @n times the same entry, in few transactions. */
static void write_many(struct rig *r, const char *entry, int n)
{
    struct json_parser *p = json_parser_new();
    struct json doc;

    assert_true(json_parse(p, str_of(entry), &doc));
    calls = 0;
    for (int i = 0; i < n; i++)
        assert_non_null(data_write(r->ds, &tester, doc, count_call, NULL));
    json_parser_free(p);
    while (calls < n)
        loop_turn(r->loop, 1000);
}

static void what_has_expired_is_forgotten_in_time(void **state)
{
    struct rig *r = *state;
    struct db_jobs_stats before, after;

    write_many(r, "{\"content\":\"gone\",\"expires_at\":5,\"tags\":[\"t\"]}", 1200);
    write_entry(r, "{\"content\":\"gone but here\"}");
    data_stats(r->ds, &before);
    assert_string_equal(found(r, "{\"query\":\"gone\",\"limit\":1}"), "gone but here");
    do { /* three transactions forget them, then nothing is left to do */
        loop_turn(r->loop, 100);
        data_stats(r->ds, &after);
    } while (after.waiting > 0);
    assert_true(after.commits >= before.commits + 3);
    data_stats(r->ds, &before);
    assert_string_equal(found(r, "{\"query\":\"gone\",\"limit\":1}"), "gone but here");
    loop_turn(r->loop, 0);
    data_stats(r->ds, &after);
    assert_int_equal(after.commits, before.commits);
}

static double score_of(struct rig *r, const struct caller *who)
{
    double score = 0;

    assert_int_equal(query_as(r, who, "{\"query\":\"apple\",\"limit\":1}"), FAULT_NONE);
    struct json_iter it = {0};
    assert_true(json_next(rig_json(r), &it));
    assert_true(json_as_f64(json_get(it.value, "score"), &score));
    return score;
}

static void tenants_and_namespaces_never_meet(void **state)
{
    struct rig *r = *state;
    struct caller all[] = {
        tester,
        {.tenant = STR("acme"), .ns = STR("data"), .identity = STR("a")},
        {.tenant = STR("other"), .identity = STR("a")},
        {.tenant = STR("../acme"), .identity = STR("a")},
    };
    char ids[4][64];

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_int_equal(query_as(r, &all[i], "{}"), FAULT_NONE);
        assert_int_equal(r->got.count, 0);
        write_as(r, &all[i], "{\"content\":\"apple pie\"}");
        strcpy(ids[i], r->id);
        write_as(r, &all[i], "{\"content\":\"pear\"}");
    }
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        for (size_t j = 0; j < ARRAY_LEN(all); j++)
            assert_int_equal(get_as(r, &all[i], ids[j]), i == j);
    /* A word that becomes common with one tenant keeps its worth with the others. */
    double before = score_of(r, &tester);
    for (int i = 0; i < 50; i++)
        write_as(r, &all[2], "{\"content\":\"apple\"}");
    assert_true(score_of(r, &tester) == before);
    assert_true(score_of(r, &all[1]) == before);
    assert_true(score_of(r, &all[2]) != before);
    struct caller bad = {.tenant = STR("acme"), .ns = STR("a/b")};
    assert_int_equal(query_as(r, &bad, "{}"), FAULT_INVALID);
}

static size_t files_below(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);

    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void asking_a_store_that_is_not_there_makes_no_file(void **state)
{
    struct rig *r = *state;
    struct caller nobody = {.tenant = STR("nobody"), .ns = STR("n")};

    assert_int_equal(query_as(r, &nobody, "{}"), FAULT_NONE);
    assert_false(get_as(r, &nobody, "00000000-0000-4000-8000-000000000000"));
    assert_int_equal(files_below(r->dir), 0);
}

static void many_stores_need_few_open_files(void **state)
{
    struct rig *r = *state;
    struct db_jobs_stats stats;

    r->cfg.max_open = 4;
    rig_reopen(r);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 25; i++) {
            char tenant[16], entry[64];
            snprintf(tenant, sizeof tenant, "t%d", i);
            struct caller who = {.tenant = str_of(tenant), .identity = STR("a")};
            snprintf(entry, sizeof entry, "{\"content\":\"mine %d\"}", i);
            assert_int_equal(write_as(r, &who, entry), FAULT_NONE);
            assert_int_equal(query_as(r, &who, "{\"query\":\"mine\"}"), FAULT_NONE);
            assert_int_equal(r->got.count, round + 1);
        }
    data_stats(r->ds, &stats);
    assert_true(stats.open <= 4 * 4);
}

static void everything_survives_a_restart(void **state)
{
    struct rig *r = *state;

    write_entry(r, "{\"content\":\"kept\",\"tags\":[\"t\"]}");
    rig_reopen(r);
    assert_string_equal(found(r, "{\"query\":\"kept\",\"domain_tags\":\"t\"}"), "kept");
}

/* ---- calls ---- */

static void a_cancelled_call_is_never_answered(void **state)
{
    struct rig *r = *state;
    struct data_request *c = data_get(r->ds, &tester, STR("x"), count_call, NULL);

    calls = 0;
    data_cancel(&c);
    assert_null(c);
    for (int i = 0; i < 10; i++)
        found(r, "{}");
    assert_int_equal(calls, 0);
}

static void closing_answers_nobody(void **state)
{
    struct rig *r = *state;
    struct json_parser *p = json_parser_new();
    struct json doc;

    calls = 0;
    assert_true(json_parse(p, STR("{\"content\":\"late\"}"), &doc));
    assert_non_null(data_write(r->ds, &tester, doc, count_call, NULL));
    json_parser_free(p);
    rig_reopen(r);
    loop_turn(r->loop, 0);
    assert_int_equal(calls, 0);
    assert_string_equal(found(r, "{\"query\":\"late\"}"), "late");
}

static void a_query_that_takes_too_long_is_given_up(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 2; i++)
        write_many(r, "{\"content\":\"common words are found in every one of these\"}", 2500);
    r->cfg.max_query_ms = 1;
    rig_reopen(r);
    assert_int_equal(query(r, "{\"query\":\"common words\",\"limit\":10000}"), FAULT_TIMEOUT);
    assert_str(json_str(rig_fault(r), "class"), "TimeoutError");
    r->cfg.max_query_ms = 0;
    rig_reopen(r);
    assert_int_equal(query(r, "{\"query\":\"common words\",\"limit\":10000}"), FAULT_NONE);
    assert_int_equal(r->got.count, 5000);
}

static void an_answer_too_long_is_an_error_not_a_torn_list(void **state)
{
    struct rig *r = *state;

    r->cfg.max_answer_bytes = 1000;
    rig_reopen(r);
    for (int i = 0; i < 9; i++)
        write_entry(r, "{\"content\":\"two hundred bytes or so of JSON are needed for each one\"}");
    assert_int_equal(query(r, "{}"), FAULT_QUERY);
    assert_int_equal(query(r, "{\"limit\":2}"), FAULT_NONE);
}

static void the_manifest_is_truthful(void **state)
{
    struct rig *r = *state;
    struct jw w = jw_begin(&r->json);

    buf_reset(&r->json);
    data_manifest(&w);
    struct json m = json_get(rig_json(r), "manifest");
    assert_str(json_str(m, "kind"), "sqlite-fts");
    assert_str(json_str(m, "score_range"), "unbounded");
    assert_int_equal(json_type(json_get(m, "regexp_fallback_active")), JSON_BOOL);
    assert_int_equal(json_count(json_get(m, "supported_filters")), 8);
    assert_int_equal(json_count(json_get(m, "supported_modes")), 1);
}

/* ---- several nodes ---- */

static int setup_shared(void **state)
{
    rig_empty_database();
    *state = rig_node(1);
    return 0;
}

static const char fruit[] = "{\"content\":\"%s\",\"tags\":[\"fruit\"]}";

static void keep(struct rig *r, const char *what)
{
    char entry[128];

    snprintf(entry, sizeof entry, fruit, what);
    assert_int_equal(write_entry(r, entry), FAULT_NONE);
}

static void the_next_node_finds_everything_and_the_last_one_adds_nothing(void **state)
{
    struct rig *north = *state;

    keep(north, "apple");
    keep(north, "pear");
    struct rig *south = rig_node(2);
    assert_string_equal(found(south, "{\"query\":\"apple\"}"), "apple");
    assert_string_equal(found(south, "{\"domain_tags\":\"fruit\"}"), "pear|apple");
    /* The north has lost its lease and does not know. */
    assert_int_equal(write_entry(north, "{\"content\":\"ghost\"}"), FAULT_UNAVAILABLE);
    assert_string_equal(found(north, "{\"query\":\"ghost\"}"), "");
    keep(south, "plum");
    data_close(north->ds);
    north->cfg.epoch = 3;
    rig_open(north); /* it takes over again, with old files */
    assert_string_equal(found(north, "{\"domain_tags\":\"fruit\"}"), "plum|pear|apple");
    assert_string_equal(found(north, "{\"query\":\"plum\"}"), "plum");
    keep(north, "cherry");
    assert_string_equal(found(north, "{}"), "cherry|plum|pear|apple");
    assert_int_equal(write_entry(south, "{\"content\":\"ghost\"}"), FAULT_UNAVAILABLE);
    rig_free(south);
}

static void a_later_node_is_not_locked_out_by_an_earlier_one(void **state)
{
    struct rig *north = *state;
    struct rig *south = rig_node(7);
    char why[256];
    struct data *ds;

    data_close(north->ds);
    assert_int_equal(data_open(north->loop, &north->cfg, &ds, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "another node serves"));
    keep(south, "apple");
    north->cfg.epoch = 7;
    rig_open(north); /* the same lease again: a restart */
    rig_free(south);
}

static void files_newer_than_a_restored_database_are_built_again(void **state)
{
    struct rig *r = *state;
    const char *argv[] = {"psql",    "-q",       "-h", pg_dir, "-U",
                          "bellhop", "postgres", "-c", NULL,   NULL};

    keep(r, "apple");
    keep(r, "pear");
    keep(r, "plum");
    data_close(r->ds);
    argv[8] = "DELETE FROM bellhop.data_entry WHERE n > 1; UPDATE bellhop.data_store SET last = 1";
    assert_int_equal(pg_run(argv), 0);
    rig_open(r);
    assert_string_equal(found(r, "{}"), "apple");
    assert_string_equal(found(r, "{\"query\":\"plum\"}"), "");
    keep(r, "cherry");
    assert_string_equal(found(r, "{\"domain_tags\":\"fruit\"}"), "cherry|apple");
}

static void files_that_are_lost_are_built_again(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 600; i++) { /* more than one page */
        char word[32];
        snprintf(word, sizeof word, "word%d", i);
        keep(r, word);
    }
    data_close(r->ds);
    nftw(r->dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
    rig_open(r);
    assert_string_equal(found(r, "{\"limit\":2}"), "word599|word598");
    assert_int_equal(query(r, "{\"domain_tags\":\"fruit\",\"limit\":1000}"), FAULT_NONE);
    assert_int_equal(r->got.count, 600);
    assert_string_equal(found(r, "{\"query\":\"word0\"}"), "word0");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define P(f) cmocka_unit_test_setup_teardown(f, setup_shared, teardown)

UNIT(data_test_data)
{
    const struct CMUnitTest tests[] = {
        T(what_is_written_is_found_by_whatever_is_asked_next),
        T(a_miss_is_null_and_no_error),
        T(the_newest_come_first_when_nothing_is_looked_for),
        T(better_matches_come_first),
        T(raw_syntax_is_wrong_also_where_nothing_was_ever_written),
        T(a_tenant_has_so_many_bytes),
        T(ten_are_found_unless_told),
        T(queries_of_the_wrong_kind_are_refused),
        T(every_stored_field_is_a_filter),
        T(entries_of_the_wrong_kind_are_refused),
        T(curated_fields_stand_at_the_top_level_only),
        T(what_has_expired_is_gone),
        T(what_has_expired_is_forgotten_in_time),
        T(tenants_and_namespaces_never_meet),
        T(asking_a_store_that_is_not_there_makes_no_file),
        T(many_stores_need_few_open_files),
        T(everything_survives_a_restart),
        T(a_cancelled_call_is_never_answered),
        T(closing_answers_nobody),
        T(a_query_that_takes_too_long_is_given_up),
        T(an_answer_too_long_is_an_error_not_a_torn_list),
        T(the_manifest_is_truthful),
        P(what_is_written_is_found_by_whatever_is_asked_next),
        P(a_miss_is_null_and_no_error),
        P(the_newest_come_first_when_nothing_is_looked_for),
        P(better_matches_come_first),
        P(raw_syntax_is_wrong_also_where_nothing_was_ever_written),
        P(ten_are_found_unless_told),
        P(queries_of_the_wrong_kind_are_refused),
        P(every_stored_field_is_a_filter),
        P(entries_of_the_wrong_kind_are_refused),
        P(curated_fields_stand_at_the_top_level_only),
        P(what_has_expired_is_gone),
        P(what_has_expired_is_forgotten_in_time),
        P(tenants_and_namespaces_never_meet),
        P(asking_a_store_that_is_not_there_makes_no_file),
        P(many_stores_need_few_open_files),
        P(everything_survives_a_restart),
        P(a_cancelled_call_is_never_answered),
        P(closing_answers_nobody),
        P(a_query_that_takes_too_long_is_given_up),
        P(an_answer_too_long_is_an_error_not_a_torn_list),
        P(the_next_node_finds_everything_and_the_last_one_adds_nothing),
        P(a_later_node_is_not_locked_out_by_an_earlier_one),
        P(files_newer_than_a_restored_database_are_built_again),
        P(files_that_are_lost_are_built_again),
    };
    return cmocka_run_group_tests(tests, pg_setup, pg_teardown);
}
