/* ops_skills.c - the SkillStore contract: /v1/skills, and the tools skill_*.
 *
 * The store answers with ready JSON, so a handler only names the call.  No tool deletes a skill.
 * skill_list has plain SkillMeta: what a runtime computes from the bodies (category, gate,
 * footprint) stays with the runtime. */
#include "base/jw.h"
#include "http/op.h"
#include "skills/skills.h"

#define STATUSES "Draft|Approved|Disabled"

static void on_answer(void *ctx, const struct skills_answer *a)
{
    struct op_call *c = ctx;

    c->skills = NULL;
    if (a->fault.cls != FAULT_NONE)
        op_fail(c, &a->fault);
    else
        op_answer_long(c, a->json, a->file, STR_NULL);
}

/* ---- the catalog ---- */

static void on_catalog(void *ctx, const struct skills_answer *a)
{
    struct op_call *c = ctx;
    struct jw w = op_begin(c);

    c->skills = NULL;
    if (a->fault.cls != FAULT_NONE) {
        op_fail(c, &a->fault);
    } else if (op_is_tool(c)) {
        jw_obj(&w);
        if (a->not_modified) {
            jw_kbool(&w, "not_modified", true);
        } else {
            jw_kraw(&w, "skills", a->json);
        }
        jw_kstr(&w, "catalog_version", a->token);
        jw_end_obj(&w);
        op_end(c);
    } else if (a->not_modified) {
        op_answer_status(c, 304, STR_NULL, a->token);
    } else {
        op_answer_long(c, a->json, a->file, a->token);
    }
}

static void query(struct op_call *c)
{
    const struct op_value *status = op_value(c, "status"), *tags = op_value(c, "tag");
    const struct op_value *since = op_value(c, "since"), *limit = op_value(c, "limit");
    struct skills_filter f = {.by_status = status->given,
                              .type = op_text(c, "type"),
                              .tags = tags->texts,
                              .n_tags = tags->n_texts,
                              .author = op_text(c, "author"),
                              .by_since = since->given,
                              .since = since->number,
                              .name_pattern = op_text(c, "name_pattern"),
                              .by_limit = limit->given,
                              .limit = (uint64_t)limit->number,
                              .offset = (uint64_t)op_value(c, "offset")->number};
    enum skill_status s;
    struct str etags = op_text(c, "If-None-Match"), etag;

    if (str_split(&etags, ',', &etag)) { /* the first, without quotes and weak mark */
        etag = str_trim(etag);
        if (str_starts(etag, STR("W/")))
            etag = str_skip(etag, 2);
        if (etag.n >= 2 && etag.p[0] == '"' && etag.p[etag.n - 1] == '"')
            etag = str_make(etag.p + 1, etag.n - 2);
        f.if_none_match = etag;
    }
    for (size_t i = 0; i < status->n_texts; i++)
        if (skill_status_parse(status->texts[i], &s))
            f.statuses |= 1u << s;
    c->skills = skills_query(c->f->skills, &c->caller, &f, on_catalog, c);
}

static void manifest(struct op_call *c)
{
    struct jw w = op_begin(c);

    skills_manifest(c->f->skills, &w);
    op_end(c);
}

static void version(struct op_call *c)
{
    c->skills = skills_version(c->f->skills, &c->caller, on_answer, c);
}

/* ---- one skill ---- */

/* For tools: puts the status first. */
static void on_loaded(void *ctx, const struct skills_answer *a)
{
    struct op_call *c = ctx;

    if (a->fault.cls != FAULT_NONE || !op_is_tool(c)) {
        on_answer(c, a);
        return;
    }
    c->skills = NULL;
    buf_printf(&c->out, "{\"status\":\"%s\",", skill_status_name(a->status));
    buf_add_str(&c->out, str_skip(a->json, 1));
    op_end(c);
}

static void load(struct op_call *c)
{
    c->skills = skills_load(c->f->skills, &c->caller, op_text(c, "name"), op_text(c, "version"),
                            on_loaded, c);
}

static void metadata(struct op_call *c)
{
    c->skills = skills_metadata(c->f->skills, &c->caller, op_text(c, "name"), on_answer, c);
}

static void versions(struct op_call *c)
{
    c->skills = skills_versions(c->f->skills, &c->caller, op_text(c, "name"), on_answer, c);
}

static void dependents(struct op_call *c)
{
    c->skills = skills_dependents(c->f->skills, &c->caller, op_text(c, "name"), on_answer, c);
}

/* ---- changes ---- */

static void store(struct op_call *c)
{
    struct skills_write w = {.name = op_text(c, "name"),
                             .source = op_text(c, "source"),
                             .metadata = op_value(c, "metadata")->json,
                             .only_new = op_is_tool(c)
                                             ? !op_value(c, "overwrite")->flag
                                             : str_eq(op_text(c, "If-None-Match"), STR("*"))};

    c->skills = skills_store(c->f->skills, &c->caller, &w, on_answer, c);
}

static void set_status(struct op_call *c)
{
    struct str status = op_text(c, "status");

    c->skills = skills_update_status(c->f->skills, &c->caller, op_text(c, "name"),
                                     status.p != NULL ? status : STR(""), on_answer, c);
}

static void on_deleted(void *ctx, const struct skills_answer *a)
{
    struct op_call *c = ctx;

    c->skills = NULL;
    if (a->fault.cls != FAULT_NONE)
        op_fail(c, &a->fault);
    else
        op_answer_status(c, 204, STR_NULL, STR_NULL);
}

static void delete_skill(struct op_call *c)
{
    c->skills = skills_delete(c->f->skills, &c->caller, op_text(c, "name"), op_text(c, "confirm"),
                              op_flag(c, "force"), on_deleted, c);
}

/* ---- the table ---- */

#define NAME \
    { \
        "name", IN_PATH, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED, .what = "The skill's name." \
    }

const struct op ops_skills[] = {
    {"querySkills", "GET", "/v1/skills", MAY_KEY, query, "The catalog, in byte order of the names.",
     .args =
         (const struct op_arg[]){
             {"status", IN_QUERY, OP_TEXTS, .one_of = STATUSES, .what = "Any of these."},
             {"type", IN_QUERY, OP_TEXT, .one_of = "procedural|data", .what = "Of this type."},
             {"tag", IN_QUERY, OP_TEXTS, .what = "All of these are in metadata_bag.tags."},
             {"author", IN_QUERY, OP_TEXT, .what = "By this author."},
             {"since", IN_QUERY, OP_SECONDS, .what = "Changed since, unix seconds."},
             {"name_pattern", IN_QUERY, OP_TEXT,
              .what = "A regular expression (RE2), found anywhere in the name."},
             {"limit", IN_QUERY, OP_WHOLE, .what = "At most so many, after all filters."},
             {"offset", IN_QUERY, OP_WHOLE,
              .what = "Without the first so many, after all filters."},
             {"If-None-Match", IN_HEADER, OP_TEXT, .tool = "if_none_match",
              .what = "The change token of an earlier answer to the same question."},
             {0}},
     .answer = "[SkillMeta]",
     .answer_what = "What matches. ETag is the change token of the whole store; 304 when it is the "
                    "one of If-None-Match.",
     .faults = OP_FAULT(QUERY), .misuse = FAULT_QUERY, .tool = "skill_list", .title = "List skills",
     .tool_what =
         "The skills there are: name, status, version, author, description, tags. Pass the "
         "catalog_version of an earlier answer to the same question as if_none_match to learn "
         "cheaply that nothing has changed.",
     .filters = "filter", .reads_only = true},
    {"skillsManifest", "GET", "/v1/skills:manifest", MAY_KEY, manifest, "Describe this store.",
     .answer = "Manifest", .answer_what = "The manifest."},
    {"skillsVersion", "GET", "/v1/skills:version", MAY_KEY, version, "The change token.",
     .answer = "{version: text}",
     .answer_what = "The token changes with every change of the store."},
    {"loadSkill", "GET", "/v1/skills/{name}", MAY_KEY, load, "A skill with its text.",
     .args = (const struct op_arg[]){NAME,
                                     {"version", IN_QUERY, OP_TEXT, .what = "An older version."},
                                     {0}},
     .answer = "SkillSource", .answer_what = "The skill.",
     .faults = OP_FAULT(SKILL_NOT_FOUND) | OP_FAULT(VERSION_NOT_FOUND), .tool = "skill_read",
     .title = "Read a skill",
     .tool_what = "The whole text of a skill, with its metadata; an older one by its version.",
     .reads_only = true},
    {"storeSkill", "PUT", "/v1/skills/{name}", MAY_KEY, store,
     "Write a skill. `If-None-Match: *` refuses to replace one.",
     .args =
         (const struct op_arg[]){
             NAME,
             {"source", IN_BODY, OP_TEXT, .flags = OP_REQUIRED, .what = "The whole text."},
             {"metadata", IN_BODY, OP_OBJECT,
              .schema = "{author?: text, status?: " STATUSES
                        ", type?: procedural|data, description?: text, metadata_bag?: object}",
              .what = "What the text does not say itself.", .tool = ""},
             {"If-None-Match", IN_HEADER, OP_TEXT, .what = "* refuses to replace a skill."},
             {"overwrite", IN_TOOL, OP_BOOL, .what = "Replace an existing skill.",
              .initial = "false"},
             {0}},
     .answer = "VersionInfo", .answer_what = "What was written.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(STORAGE_CONFLICT) | OP_FAULT(APPROVAL_REJECTED),
     .tool = "skill_write", .title = "Write a skill",
     .tool_what =
         "Store a skill under a name. An existing one is replaced only with overwrite: true; it "
         "keeps its author, and its older versions can still be read. The text's own status line "
         "is its status; without one it keeps the status it had."},
    {"setSkillStatus", "PATCH", "/v1/skills/{name}", MAY_KEY, set_status,
     "Change the status; the text follows.",
     .args = (const struct op_arg[]){NAME,
                                     {"status", IN_BODY, OP_TEXT,
                                      .flags = OP_REQUIRED | OP_UNCHECKED, .one_of = STATUSES,
                                      .what = "The new status.", .tool = "new_state"},
                                     {0}},
     .answer = "VersionInfo", .answer_what = "What was written, with previous_status.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(SKILL_NOT_FOUND) | OP_FAULT(APPROVAL_REJECTED),
     .tool = "skill_status", .title = "Change a skill's status",
     .tool_what = "Draft, Approved or Disabled. The status line in the text follows."},
    {"deleteSkill", "DELETE", "/v1/skills/{name}", MAY_KEY, delete_skill,
     "Delete a skill and its history. A key that is bound to one agent may not.",
     .args = (const struct op_arg[]){NAME,
                                     {"confirm", IN_QUERY, OP_TEXT,
                                      .what = "The skill's name once more; required."},
                                     {"force", IN_QUERY, OP_BOOL,
                                      .what = "Delete it although other skills refer to it.",
                                      .initial = "false"},
                                     {0}},
     .answer_what = "The skill is gone, the name is free.",
     .faults = OP_FAULT(SKILL_NOT_FOUND) | OP_FAULT(REFUSED) | OP_FAULT(CONFIRM_REQUIRED) |
               OP_FAULT(HAS_DEPENDENTS)},
    {"skillMetadata", "GET", "/v1/skills/{name}/metadata", MAY_KEY, metadata,
     "A skill without its text.", .args = (const struct op_arg[]){NAME, {0}}, .answer = "SkillMeta",
     .answer_what = "The metadata.", .faults = OP_FAULT(SKILL_NOT_FOUND)},
    {"skillVersions", "GET", "/v1/skills/{name}/versions", MAY_KEY, versions,
     "Every write and status change, oldest first.", .args = (const struct op_arg[]){NAME, {0}},
     .answer = "[VersionInfo]", .answer_what = "The history.", .faults = OP_FAULT(SKILL_NOT_FOUND),
     .tool = "skill_versions", .title = "History of a skill",
     .tool_what = "Every write and status change of a skill, oldest first.",
     .tool_wraps = "versions", .reads_only = true},
    {"skillDependents", "GET", "/v1/skills/{name}/dependents", MAY_KEY, dependents,
     "The skills whose text names this one.", .args = (const struct op_arg[]){NAME, {0}},
     .answer = "[text]", .answer_what = "Their names."},
    {0},
};
