/* tools_skills.c - skill_*: the skill store as tools.  There is no tool that deletes.
 *
 * skill_list is plain SkillMeta: what a runtime computes from the bodies (category, gate,
 * footprint) is the runtime's business. */
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/mem.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "http/front.h"
#include "http/tools.h"
#include "skills/skills.h"

/* ---- what the tools of the stores share ---- */

static void drop(void *mine)
{
    struct tool_call *t = mine;

    skills_cancel(&t->skills);
    data_cancel(&t->data);
    dispatch_cancel(&t->dispatch);
    free(t);
}

struct tool_call *tool_call_new(struct mcp_call *c)
{
    struct tool_call *t = xcalloc(1, sizeof *t);

    t->c = c;
    mcp_call_keep(c, t, drop);
    return t;
}

struct mcp_call *tool_call_end(struct tool_call *t)
{
    struct mcp_call *c = t->c;

    free(t);
    return c;
}

bool tool_text(struct mcp_call *c, struct json args, const char *name, struct str *ret)
{
    *ret = json_str(args, name);
    if (!str_is_empty(*ret))
        return true;
    mcp_refuse(c, FAULT_INVALID, "%s must be a text that is not empty", name);
    return false;
}

/* ---- skill_list ---- */

static const char *const filter_keys[] = {"status", "type",         "tag",   "author",
                                          "since",  "name_pattern", "limit", "offset"};

static bool is_filter_key(struct str key)
{
    for (size_t i = 0; i < ARRAY_LEN(filter_keys); i++)
        if (str_eq(key, str_of(filter_keys[i])))
            return true;
    return false;
}

/* A filter nobody applies would look like one that matched everything. */
static bool knows_filter(struct mcp_call *c, struct json filter)
{
    for (struct json_iter it = {0}; json_is_object(filter) && json_next(filter, &it);)
        if (!is_filter_key(it.key) && !str_eq(it.key, STR("if_none_match"))) {
            mcp_refuse(c, FAULT_QUERY,
                       "skill_list has no filter \"%.*s\"; there are status, type, tag, author, "
                       "since, name_pattern, limit and offset",
                       STR_FMT(it.key));
            return false;
        }
    return true;
}

static void on_list(void *ctx, const struct skills_answer *a)
{
    struct mcp_call *c = tool_call_end(ctx);
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    if (a->fault.cls != FAULT_NONE) {
        mcp_fail(c, &a->fault);
        return;
    }
    jw_obj(&w);
    if (a->not_modified) {
        jw_kbool(&w, "not_modified", true);
    } else {
        jw_key(&w, "skills");
        jw_raw(&w, a->json);
    }
    jw_kstr(&w, "catalog_version", a->token);
    jw_end_obj(&w);
    mcp_answer(c, buf_str(&out));
    buf_done(&out);
}

static void skill_list(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct json nested = json_get(args, "filter");
    struct json filter = json_is_object(nested) ? nested : args;
    struct skills_filter q = {0};
    struct fault fault = {0};
    struct arena arena = ARENA_INIT;

    if (!knows_filter(c, filter)) {
        ;
    } else if (!skills_filter_from_json(filter, &arena, &q, &fault)) {
        mcp_fail(c, &fault);
    } else {
        struct tool_call *t = tool_call_new(c);
        q.if_none_match = json_str(args, "if_none_match");
        t->skills = skills_query(f->skills, &mcp_call_who(c)->caller, &q, on_list, t);
    }
    fault_done(&fault);
    arena_done(&arena);
}

/* ---- the others ---- */

/* The store's own JSON is the answer. */
static void on_json(void *ctx, const struct skills_answer *a)
{
    struct mcp_call *c = tool_call_end(ctx);

    if (a->fault.cls != FAULT_NONE)
        mcp_fail(c, &a->fault);
    else
        mcp_answer(c, a->json);
}

/* SkillSource, and its status where readers look for it first. */
static void on_read(void *ctx, const struct skills_answer *a)
{
    struct mcp_call *c = tool_call_end(ctx);
    struct buf out = BUF_INIT;

    if (a->fault.cls != FAULT_NONE) {
        mcp_fail(c, &a->fault);
        return;
    }
    buf_printf(&out, "{\"status\":\"%s\",", skill_status_name(a->status));
    buf_add_str(&out, str_skip(a->json, 1));
    mcp_answer(c, buf_str(&out));
    buf_done(&out);
}

static void skill_read(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct str name;

    if (!tool_text(c, args, "name", &name))
        return;
    struct tool_call *t = tool_call_new(c);
    t->skills = skills_load(f->skills, &mcp_call_who(c)->caller, name, json_str(args, "version"),
                            on_read, t);
}

static void skill_write(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct skills_write w = {.source = json_str(args, "source"),
                             .only_new = !json_as_bool(json_get(args, "overwrite"), false)};

    if (!tool_text(c, args, "name", &w.name))
        return;
    if (w.source.p == NULL) {
        mcp_refuse(c, FAULT_INVALID, "source must be a text");
        return;
    }
    struct tool_call *t = tool_call_new(c);
    t->skills = skills_store(f->skills, &mcp_call_who(c)->caller, &w, on_json, t);
}

static void skill_status(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct str name, state;

    if (!tool_text(c, args, "name", &name) || !tool_text(c, args, "new_state", &state))
        return;
    struct tool_call *t = tool_call_new(c);
    t->skills = skills_update_status(f->skills, &mcp_call_who(c)->caller, name, state, on_json, t);
}

static void on_versions(void *ctx, const struct skills_answer *a)
{
    struct mcp_call *c = tool_call_end(ctx);
    struct buf out = BUF_INIT;

    if (a->fault.cls != FAULT_NONE) {
        mcp_fail(c, &a->fault);
        return;
    }
    buf_printf(&out, "{\"versions\":%.*s}", STR_FMT(a->json));
    mcp_answer(c, buf_str(&out));
    buf_done(&out);
}

static void skill_versions(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct str name;

    if (!tool_text(c, args, "name", &name))
        return;
    struct tool_call *t = tool_call_new(c);
    t->skills = skills_versions(f->skills, &mcp_call_who(c)->caller, name, on_versions, t);
}

/* ---- the table ---- */

#define STATUSES "[\"Draft\",\"Approved\",\"Disabled\"]"
#define NAME "\"name\":{\"type\":\"string\",\"description\":\"The skill's name\"}"
#define FILTERS \
    "\"status\":{\"description\":\"One status or several\",\"anyOf\":[{\"enum\":" STATUSES "}," \
    "{\"type\":\"array\",\"items\":{\"enum\":" STATUSES "}}]}," \
    "\"type\":{\"enum\":[\"procedural\",\"data\"]}," \
    "\"tag\":{\"description\":\"All of these\",\"anyOf\":[{\"type\":\"string\"}," \
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]}," \
    "\"author\":{\"type\":\"string\"}," \
    "\"since\":{\"type\":\"integer\",\"description\":\"Changed since, unix seconds\"}," \
    "\"name_pattern\":{\"type\":\"string\",\"description\":\"A regular expression, found " \
    "anywhere " \
    "in the name\"}," \
    "\"limit\":{\"type\":\"integer\",\"minimum\":0}," \
    "\"offset\":{\"type\":\"integer\",\"minimum\":0}"

const struct mcp_tool tools_skills[] = {
    {.name = "skill_list",
     .title = "List skills",
     .description =
         "The skills there are: name, status, version, author, description, tags. Pass the "
         "catalog_version of an earlier answer to the same question as if_none_match to learn "
         "cheaply that nothing has changed.",
     .input_schema =
         "{\"type\":\"object\",\"properties\":{" FILTERS
         ",\"filter\":{\"type\":\"object\",\"description\":\"The same filters in one object\","
         "\"properties\":{" FILTERS "}},\"if_none_match\":{\"type\":\"string\"}}}",
     .reads_only = true,
     .call = skill_list},
    {.name = "skill_read",
     .title = "Read a skill",
     .description = "The whole text of a skill, with its metadata; an older one by its version.",
     .input_schema = "{\"type\":\"object\",\"properties\":{" NAME
                     ",\"version\":{\"type\":\"string\"}},\"required\":[\"name\"]}",
     .reads_only = true,
     .call = skill_read},
    {.name = "skill_write",
     .title = "Write a skill",
     .description =
         "Store a skill under a name. An existing one is replaced only with overwrite: true; it "
         "keeps its status and its author, and its older versions can still be read.",
     .input_schema = "{\"type\":\"object\",\"properties\":{" NAME
                     ",\"source\":{\"type\":\"string\",\"description\":\"The whole text\"},"
                     "\"overwrite\":{\"type\":\"boolean\",\"default\":false}},"
                     "\"required\":[\"name\",\"source\"]}",
     .call = skill_write},
    {.name = "skill_status",
     .title = "Change a skill's status",
     .description = "Draft, Approved or Disabled. The status line in the text follows.",
     .input_schema =
         "{\"type\":\"object\",\"properties\":{" NAME ",\"new_state\":{\"enum\":" STATUSES
         "}},\"required\":[\"name\",\"new_state\"]}",
     .call = skill_status},
    {.name = "skill_versions",
     .title = "History of a skill",
     .description = "Every write and status change of a skill, oldest first.",
     .input_schema = "{\"type\":\"object\",\"properties\":{" NAME "},\"required\":[\"name\"]}",
     .reads_only = true,
     .call = skill_versions},
};
const size_t n_tools_skills = ARRAY_LEN(tools_skills);
