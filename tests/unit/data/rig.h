/* rig.h - a data store in a directory of its own, and calls that wait for their answer. */
#pragma once
#include "unit.h"
#include <ftw.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/mem.h"
#include "data/data.h"
#include "net/loop.h"
#include "store/pg_server.h"

struct rig {
    struct loop *loop;
    struct data *ds;
    char dir[64];
    struct data_config cfg;
    struct json_parser *parser;
    struct buf json, fault; /* of the last answer */
    char id[64];
    struct data_answer got; /* its pointers are void, see above */
    bool answered;
};

static const struct caller tester = {.tenant = {"acme", 4}, .identity = {"tester", 6}};

static inline int rm_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    return remove(path);
}

static inline void rig_open(struct rig *r)
{
    char why[256] = "";

    if (data_open(r->loop, &r->cfg, &r->ds, why) != BH_OK)
        fail_msg("data_open: %s", why);
}

/* Another node, in a directory of its own; its database is that of the others.  @epoch 0: no
 * database, the files have the entries. */
static inline struct rig *rig_node(uint64_t epoch)
{
    struct rig *r = xcalloc(1, sizeof *r);

    r->loop = loop_new();
    r->parser = json_parser_new();
    snprintf(r->dir, sizeof r->dir, "/tmp/bellhop-data-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    r->cfg = (struct data_config){.dir = r->dir, .url = epoch > 0 ? pg_url : NULL, .epoch = epoch};
    rig_open(r);
    return r;
}

static inline struct rig *rig_new(void)
{
    return rig_node(0);
}

/* Databases are for tests with pg_setup(). */
static inline void rig_empty_database(void)
{
    const char *argv[] = {"psql",    "-q",       "-h", pg_dir, "-U",
                          "bellhop", "postgres", "-c", NULL,   NULL};

    argv[8] = "DROP SCHEMA IF EXISTS bellhop CASCADE";
    assert_int_equal(pg_run(argv), 0);
}

static inline void rig_free(struct rig *r)
{
    data_close(r->ds);
    loop_free(r->loop);
    json_parser_free(r->parser);
    buf_done(&r->json);
    buf_done(&r->fault);
    nftw(r->dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
    free(r);
}

static inline void on_answer(void *ctx, const struct data_answer *a)
{
    struct rig *r = ctx;
    struct jw w = jw_begin(&r->fault);

    assert_false(r->answered);
    r->answered = true;
    r->got = *a;
    buf_reset(&r->json);
    buf_reset(&r->fault);
    buf_add_str(&r->json, a->json);
    snprintf(r->id, sizeof r->id, "%.*s", (int)a->id.n, a->id.p != NULL ? a->id.p : "");
    if (a->fault.cls != FAULT_NONE)
        fault_json(&a->fault, &w);
}

static inline enum fault_class rig_wait(struct rig *r, struct data_request *call)
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

static inline enum fault_class write_as(struct rig *r, const struct caller *who, const char *entry)
{
    struct json_parser *p = json_parser_new();
    struct json doc;

    assert_true(json_parse(p, str_of(entry), &doc));
    struct data_request *c = data_write(r->ds, who, doc, on_answer, r);
    json_parser_free(p); /* nothing of it is needed any more */
    return rig_wait(r, c);
}

static inline enum fault_class write_entry(struct rig *r, const char *entry)
{
    return write_as(r, &tester, entry);
}

static inline enum fault_class query_as(struct rig *r, const struct caller *who,
                                        const char *filters)
{
    struct json_parser *p = json_parser_new();
    struct json doc;

    assert_true(json_parse(p, str_of(filters), &doc));
    struct data_request *c = data_query(r->ds, who, doc, on_answer, r);
    json_parser_free(p);
    return rig_wait(r, c);
}

static inline enum fault_class query(struct rig *r, const char *filters)
{
    return query_as(r, &tester, filters);
}

/* True: there is such an entry; its JSON is in the rig. */
static inline bool get_as(struct rig *r, const struct caller *who, const char *id)
{
    assert_int_equal(rig_wait(r, data_get(r->ds, who, str_of(id), on_answer, r)), FAULT_NONE);
    assert_int_equal(r->got.count, json_is_object(rig_json(r)));
    return r->got.count == 1;
}

/* The summaries a query finds, joined by '|'; valid until the next call. */
static inline const char *found(struct rig *r, const char *filters)
{
    static char text[8192];
    size_t n = 0;

    if (query(r, filters) != FAULT_NONE)
        fail_msg("%s: %s", filters, buf_z(&r->fault));
    text[0] = '\0';
    for (struct json_iter it = {0}; json_next(rig_json(r), &it);) {
        struct str s = json_str(it.value, "summary");
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", n > 0 ? "|" : "", STR_FMT(s));
    }
    return text;
}
