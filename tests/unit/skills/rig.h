/* rig.h - a skill store in a directory of its own, and calls that wait for their answer. */
#pragma once
#include "unit.h"
#include <ftw.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "net/loop.h"
#include "skills/skills.h"
#include "store/pg_server.h"

struct rig {
    struct loop *loop;
    struct skills *sk;
    char dir[64];
    char path[96];
    struct skills_config cfg;
    struct json_parser *parser; /* of the last answer's JSON */
    struct buf json, source;    /* copies of the last answer */
    struct buf fault;           /* the error object, empty: none */
    char token[32], version[32], hash[80];
    struct skills_answer got; /* its pointers are void, see above */
    bool answered;
};

static const struct caller tester = {.tenant = {"acme", 4},
                                     .identity = {"tester", 6},
                                     .attest = true};

static inline int rm_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    return remove(path);
}

static inline void rm_all(const char *dir)
{
    nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void rig_open(struct rig *r)
{
    char why[256] = "";

    if (skills_open(r->loop, &r->cfg, &r->sk, why) != BH_OK)
        fail_msg("skills_open: %s", why);
}

/* Databases are for tests with pg_setup(); each rig finds an empty one. */
static inline void rig_empty_database(void)
{
    const char *argv[] = {"psql",    "-q",       "-h", pg_dir, "-U",
                          "bellhop", "postgres", "-c", NULL,   NULL};

    argv[8] = "DROP SCHEMA IF EXISTS bellhop CASCADE";
    assert_int_equal(pg_run(argv), 0);
}

static inline struct rig *rig_new(const char *backend, const char *approval_key)
{
    struct rig *r = xcalloc(1, sizeof *r);

    r->loop = loop_new();
    r->parser = json_parser_new();
    snprintf(r->dir, sizeof r->dir, "/tmp/bellhop-skills-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->path, sizeof r->path, "%s/%s", r->dir,
             strcmp(backend, "filesystem") == 0 ? "skills" : "skills.db");
    if (strcmp(backend, "postgres") == 0)
        rig_empty_database();
    r->cfg = (struct skills_config){.backend = backend,
                                    .path = r->path,
                                    .url = pg_url,
                                    .approval_key = approval_key};
    rig_open(r);
    return r;
}

static inline void rig_reopen(struct rig *r)
{
    skills_close(r->sk);
    rig_open(r);
}

static inline void rig_free(struct rig *r)
{
    skills_close(r->sk);
    loop_free(r->loop);
    json_parser_free(r->parser);
    buf_done(&r->json);
    buf_done(&r->source);
    buf_done(&r->fault);
    rm_all(r->dir);
    free(r);
}

static inline void keep(char *to, size_t n, struct str s)
{
    snprintf(to, n, "%.*s", (int)s.n, s.p != NULL ? s.p : "");
}

static inline void on_answer(void *ctx, const struct skills_answer *a)
{
    struct rig *r = ctx;
    struct jw w = jw_begin(&r->fault);

    assert_false(r->answered);
    r->answered = true;
    r->got = *a;
    buf_reset(&r->json);
    buf_reset(&r->source);
    buf_reset(&r->fault);
    buf_add_str(&r->json, a->json);
    buf_add_str(&r->source, a->source);
    keep(r->token, sizeof r->token, a->token);
    keep(r->version, sizeof r->version, a->version);
    keep(r->hash, sizeof r->hash, a->content_hash);
    if (a->fault.cls != FAULT_NONE)
        fault_json(&a->fault, &w);
}

/* Wait for @call; the class of the answer. */
static inline enum fault_class rig_wait(struct rig *r, struct skills_request *call)
{
    assert_non_null(call);
    while (!r->answered)
        loop_turn(r->loop, 1000);
    r->answered = false;
    return r->got.fault.cls;
}

static inline struct json rig_json(struct rig *r)
{
    struct json doc = {0};

    if (!json_parse(r->parser, buf_str(&r->json), &doc))
        fail_msg("not JSON: %s", buf_z(&r->json));
    return doc;
}

static inline struct json rig_fault(struct rig *r)
{
    struct json doc = {0};

    if (!json_parse(r->parser, buf_str(&r->fault), &doc))
        fail_msg("not JSON: %s", buf_z(&r->fault));
    return doc;
}

static inline enum fault_class store_as(struct rig *r, const struct caller *who, const char *name,
                                        struct str source, const char *metadata)
{
    struct json_parser *p = json_parser_new();
    struct json m = {0};
    struct skills_write w = {.name = str_of(name), .source = source};

    if (metadata != NULL)
        assert_true(json_parse(p, str_of(metadata), &m));
    w.metadata = m;
    enum fault_class cls = rig_wait(r, skills_store(r->sk, who, &w, on_answer, r));
    json_parser_free(p);
    return cls;
}

static inline enum fault_class store(struct rig *r, const char *name, const char *source,
                                     const char *metadata)
{
    return store_as(r, &tester, name, str_of(source), metadata);
}

static inline enum fault_class load_as(struct rig *r, const struct caller *who, const char *name,
                                       const char *version)
{
    return rig_wait(r, skills_load(r->sk, who, str_of(name), str_of(version), on_answer, r));
}

static inline enum fault_class load(struct rig *r, const char *name)
{
    return load_as(r, &tester, name, NULL);
}

static inline enum fault_class metadata(struct rig *r, const char *name)
{
    return rig_wait(r, skills_metadata(r->sk, &tester, str_of(name), on_answer, r));
}

static inline enum fault_class versions(struct rig *r, const char *name)
{
    return rig_wait(r, skills_versions(r->sk, &tester, str_of(name), on_answer, r));
}

static inline enum fault_class set_status(struct rig *r, const char *name, const char *status)
{
    return rig_wait(r, skills_update_status(r->sk, &tester, str_of(name), str_of(status), on_answer,
                                            r));
}

static inline enum fault_class delete (struct rig *r, const char *name) {
    return rig_wait(r,
                    skills_delete(r->sk, &tester, str_of(name), str_of(name), true, on_answer, r));
}

static inline struct str *texts_of(struct json v, struct arena *arena, size_t *ret_n)
{
    struct str *all = arena_alloc(arena, (json_count(v) + 1) * sizeof *all);

    *ret_n = 0;
    if (json_type(v) == JSON_STRING)
        all[(*ret_n)++] = json_as_str(v);
    for (struct json_iter it = {0}; json_type(v) == JSON_ARRAY && json_next(v, &it);)
        all[(*ret_n)++] = json_as_str(it.value);
    return all;
}

/* {status?: word | [word], tag?: text | [text], and the other members of the filter} */
static inline struct skills_filter filter_of(struct json doc, struct arena *arena)
{
    struct json status = json_get(doc, "status");
    struct skills_filter f = {.type = json_str(doc, "type"),
                              .author = json_str(doc, "author"),
                              .name_pattern = json_str(doc, "name_pattern"),
                              .if_none_match = json_str(doc, "if_none_match")};
    size_t n;
    const struct str *words = texts_of(status, arena, &n);

    f.by_status = json_type(status) != JSON_ABSENT;
    for (size_t i = 0; i < n; i++) {
        enum skill_status s;
        assert_true(skill_status_parse(words[i], &s));
        f.statuses |= 1u << s;
    }
    f.tags = texts_of(json_get(doc, "tag"), arena, &f.n_tags);
    f.by_since = json_as_i64(json_get(doc, "since"), &f.since);
    f.by_limit = json_as_u64(json_get(doc, "limit"), &f.limit);
    json_as_u64(json_get(doc, "offset"), &f.offset);
    return f;
}

static inline enum fault_class query_as(struct rig *r, const struct caller *who, const char *filter)
{
    struct json_parser *p = json_parser_new();
    struct arena arena = ARENA_INIT;
    struct json doc;

    assert_true(json_parse(p, str_of(filter), &doc));
    struct skills_filter f = filter_of(doc, &arena);
    enum fault_class cls = rig_wait(r, skills_query(r->sk, who, &f, on_answer, r));
    arena_done(&arena);
    json_parser_free(p);
    return cls;
}

/* The names a query gives, joined by commas; valid until the next call. */
static inline const char *names(struct rig *r, const char *filter)
{
    static char text[4096];
    size_t n = 0;

    assert_int_equal(query_as(r, &tester, filter), FAULT_NONE);
    text[0] = '\0';
    for (struct json_iter it = {0}; json_next(rig_json(r), &it);) {
        struct str name = json_str(it.value, "name");
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", n > 0 ? "," : "", STR_FMT(name));
    }
    return text;
}

static inline const char *token(struct rig *r)
{
    assert_int_equal(rig_wait(r, skills_version(r->sk, &tester, on_answer, r)), FAULT_NONE);
    return r->token;
}
