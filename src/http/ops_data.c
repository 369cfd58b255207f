/* ops_data.c - the DataStore contract: /v1/data, and the tools data_*. */
#include "base/jw.h"
#include "data/data.h"
#include "http/op.h"

static void on_answer(void *ctx, const struct data_answer *a)
{
    struct op_call *c = ctx;

    c->data = NULL;
    if (a->fault.cls != FAULT_NONE)
        op_fail(c, &a->fault);
    else
        op_answer_long(c, a->json, a->file, STR_NULL);
}

/* Tools get only the id and the time: the model has the content it just wrote. */
static void on_written(void *ctx, const struct data_answer *a)
{
    struct op_call *c = ctx;
    struct jw w = op_begin(c);

    if (a->fault.cls != FAULT_NONE || !op_is_tool(c)) {
        on_answer(c, a);
        return;
    }
    c->data = NULL;
    jw_obj(&w);
    jw_kstr(&w, "id", a->id);
    jw_ki64(&w, "created_at", a->created_at);
    jw_end_obj(&w);
    op_end(c);
}

static void write_entry(struct op_call *c)
{
    c->data = data_write(c->f->data, &c->caller, op_body(c), on_written, c);
}

static void query(struct op_call *c)
{
    c->data = data_query(c->f->data, &c->caller, op_body(c), on_answer, c);
}

static void on_got(void *ctx, const struct data_answer *a)
{
    struct op_call *c = ctx;

    if (a->fault.cls != FAULT_NONE || a->count > 0) {
        on_answer(c, a);
        return;
    }
    c->data = NULL;
    op_answer_missing(c, "There is no such entry.");
}

static void get(struct op_call *c)
{
    c->data = data_get(c->f->data, &c->caller, op_text(c, "id"), on_got, c);
}

static void manifest(struct op_call *c)
{
    struct jw w = op_begin(c);

    data_manifest(&w);
    op_end(c);
}

#define FILTER(field, says) \
    { \
        field, IN_BODY, OP_TEXTS, .flags = OP_UNCHECKED, .what = says \
    }

const struct op ops_data[] = {
    {"getData", "GET", "/v1/data/{id}", MAY_KEY, get, "One entry.",
     .args = (const struct op_arg[]){{"id", IN_PATH, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED,
                                      .what = "What writeData answered."},
                                     {0}},
     .answer = "PortableData",
     .answer_what = "The entry. No such entry is 404 with class null; tools get null.",
     .tool = "data_read", .title = "Read an entry",
     .tool_what = "One entry of the data store by its id; null when there is none.",
     .reads_only = true},
    {"queryData", "POST", "/v1/data/query", MAY_KEY, query,
     "Find entries by their words, the best match first.",
     .args =
         (const struct op_arg[]){{"query", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED | OP_REQUIRED,
                                  .what = "All of these words. None: the newest entries first."},
                                 {"limit", IN_BODY, OP_WHOLE, .flags = OP_UNCHECKED, .min = 1,
                                  .initial = "10", .what = "At most so many."},
                                 {"mode", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED, .one_of = "fts",
                                  .what = "Full text."},
                                 FILTER("domain_tags", "Any of these tags."),
                                 FILTER("recipients", "For any of these."),
                                 FILTER("vault", "In any of these vaults."),
                                 FILTER("agent_id", "From any of these agents."),
                                 FILTER("thread_status", "Of any of these statuses."),
                                 FILTER("payload_type", "Of any of these types."),
                                 FILTER("knowledge_type", "Of any of these types."),
                                 {"pinned", IN_BODY, OP_BOOL, .flags = OP_UNCHECKED,
                                  .what = "Pinned or not."},
                                 {"permissive_filters", IN_BODY, OP_BOOL, .flags = OP_UNCHECKED,
                                  .what = "Ignore filters this store does not have."},
                                 {0}},
     .answer = "[PortableData]", .answer_what = "What was found.",
     .faults = OP_FAULT(QUERY) | OP_FAULT(UNSUPPORTED_FILTER) | OP_FAULT(TIMEOUT),
     .tool = "data_query", .title = "Search entries",
     .tool_what =
         "Entries that contain all the words, the best match first; without words the newest "
         "first. Filters take one text or any of a list, and all of them must match. A query that "
         "begins with raw: is SQLite FTS5 syntax.",
     .tool_wraps = "items", .reads_only = true},
    {"writeData", "POST", "/v1/data", MAY_KEY, write_entry, "Keep an entry.",
     .args =
         (const struct op_arg[]){{"content", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED | OP_REQUIRED,
                                  .what = "The text; its first line is its summary."},
                                 {"tags", IN_BODY, OP_OTHER, .flags = OP_UNCHECKED,
                                  .schema = "[text]", .what = "Found by domain_tags."},
                                 {"recipients", IN_BODY, OP_OTHER, .flags = OP_UNCHECKED,
                                  .schema = "[text]", .what = "Whom it is for."},
                                 {"expires_at", IN_BODY, OP_OTHER, .flags = OP_UNCHECKED,
                                  .schema = "number|null", .what = "Unix seconds; none: for ever."},
                                 {"metadata", IN_BODY, OP_OBJECT, .flags = OP_UNCHECKED,
                                  .what = "Anything; the fields of PortableData move to the top."},
                                 {0}},
     .answer = "PortableData", .answer_what = "The entry with its id.", .faults = OP_FAULT(INVALID),
     .tool = "data_write", .title = "Write an entry",
     .tool_what = "Keep a text: its first line is its summary. It stays until expires_at (unix "
                  "seconds); without one, or with null, for ever."},
    {"dataManifest", "GET", "/v1/data:manifest", MAY_KEY, manifest,
     "Describe this store, and the filters that it honours.", .answer = "Manifest",
     .answer_what = "The manifest."},
    {0},
};
