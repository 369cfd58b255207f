/* v1_skills.c - /v1/skills: the SkillStore contract over HTTP.
 *
 * The store answers with ready JSON, so a handler only names the call and the answer's shape. */
#include <stdio.h>
#include "base/mem.h"
#include "edge/form.h"
#include "http/v1.h"
#include "skills/skills.h"
#include "tenancy/keys.h"

static void on_answer(void *ctx, const struct skills_answer *a)
{
    struct v1_call *c = ctx;

    c->skills = NULL;
    if (a->fault.cls != FAULT_NONE)
        v1_fault(c->f, c->id, &a->fault);
    else
        v1_answer_long(c->f, c->id, NULL, a->json, a->file);
    v1_call_free(c);
}

void v1_skills_load(struct v1_request *r)
{
    struct buf version = BUF_INIT;
    bool old = http_query(r->req, "version", &version);
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));

    c->skills = skills_load(r->f->skills, &r->who.caller, r->args[0],
                            old ? buf_str(&version) : STR_NULL, on_answer, c);
    buf_done(&version);
}

void v1_skills_metadata(struct v1_request *r)
{
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));

    c->skills = skills_metadata(r->f->skills, &r->who.caller, r->args[0], on_answer, c);
}

void v1_skills_versions(struct v1_request *r)
{
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));

    c->skills = skills_versions(r->f->skills, &r->who.caller, r->args[0], on_answer, c);
}

void v1_skills_dependents(struct v1_request *r)
{
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));

    c->skills = skills_dependents(r->f->skills, &r->who.caller, r->args[0], on_answer, c);
}

void v1_skills_version(struct v1_request *r)
{
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));

    c->skills = skills_version(r->f->skills, &r->who.caller, on_answer, c);
}

void v1_skills_manifest(struct v1_request *r)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    skills_manifest(r->f->skills, &w);
    v1_answer(r->f, http_req_id(r->req), 200, NULL, buf_str(&body));
    buf_done(&body);
}

/* ---- the catalog ---- */

/* The token inside If-None-Match: quoted or not, weak or not; of a list the first. */
static struct str token_of(struct str header)
{
    struct str rest = header, first;

    if (!str_split(&rest, ',', &first))
        return STR_NULL;
    first = str_trim(first);
    if (str_starts(first, STR("W/")))
        first = str_skip(first, 2);
    if (first.n >= 2 && first.p[0] == '"' && first.p[first.n - 1] == '"')
        first = str_make(first.p + 1, first.n - 2);
    return first;
}

static bool read_status(struct v1_request *r, struct str word, struct skills_filter *f)
{
    enum skill_status s;

    f->by_status = true;
    if (!skill_status_parse(word, &s)) {
        v1_bad(r, FAULT_QUERY, "status must be Draft, Approved or Disabled, not \"%.*s\"",
               STR_FMT(word));
        return false;
    }
    f->statuses |= 1u << s;
    return true;
}

static bool read_number(struct v1_request *r, const char *name, struct str text, uint64_t *ret)
{
    if (str_to_u64(text, ret))
        return true;
    v1_bad(r, FAULT_QUERY, "%s must be a whole number, not \"%.*s\"", name, STR_FMT(text));
    return false;
}

static bool read_param(struct v1_request *r, struct form_pair p, struct skills_filter *f,
                       struct str *tags)
{
    uint64_t since;

    if (str_eq(p.name, STR("status")))
        return read_status(r, p.value, f);
    if (str_eq(p.name, STR("tag")))
        tags[f->n_tags++] = p.value;
    else if (str_eq(p.name, STR("type")))
        f->type = p.value;
    else if (str_eq(p.name, STR("author")))
        f->author = p.value;
    else if (str_eq(p.name, STR("name_pattern")))
        f->name_pattern = p.value;
    else if (str_eq(p.name, STR("limit")))
        return f->by_limit = true, read_number(r, "limit", p.value, &f->limit);
    else if (str_eq(p.name, STR("offset")))
        return read_number(r, "offset", p.value, &f->offset);
    else if (str_eq(p.name, STR("since"))) {
        if (!read_number(r, "since", p.value, &since))
            return false;
        f->by_since = true;
        f->since = (int64_t)(since > INT64_MAX ? INT64_MAX : since);
    }
    return true; /* others are not for this store */
}

/* @f points into @form and @tags from here on. */
static bool read_filter(struct v1_request *r, struct form *form, struct skills_filter *f)
{
    struct str query = http_raw_query(r->req);
    struct str *tags = arena_alloc(r->arena, FORM_MAX * sizeof *tags);

    if (query.p != NULL && !form_parse(form, query)) {
        v1_bad(r, FAULT_QUERY, "The query string cannot be read.");
        return false;
    }
    f->tags = tags;
    for (size_t i = 0; i < form->n; i++)
        if (!read_param(r, form->pairs[i], f, tags))
            return false;
    f->if_none_match = token_of(http_header(r->req, "If-None-Match"));
    return true;
}

static void on_catalog(void *ctx, const struct skills_answer *a)
{
    struct v1_call *c = ctx;
    struct buf etag = BUF_INIT;

    c->skills = NULL;
    if (a->fault.cls != FAULT_NONE) {
        v1_fault(c->f, c->id, &a->fault);
    } else {
        buf_printf(&etag, "ETag: \"%.*s\"\r\n", STR_FMT(a->token));
        if (a->not_modified)
            v1_answer(c->f, c->id, 304, buf_z(&etag), STR_NULL);
        else
            v1_answer_long(c->f, c->id, buf_z(&etag), a->json, a->file);
    }
    buf_done(&etag);
    v1_call_free(c);
}

void v1_skills_query(struct v1_request *r)
{
    struct form form = {0};
    struct skills_filter filter = {0};

    if (read_filter(r, &form, &filter)) {
        struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
        c->skills = skills_query(r->f->skills, &r->who.caller, &filter, on_catalog, c);
    }
    form_done(&form);
}

/* ---- changes ---- */

void v1_skills_store(struct v1_request *r)
{
    struct json doc;
    struct json_parser *parser = v1_body(r, &doc);

    if (parser == NULL)
        return;
    struct json source = json_get(doc, "source"), metadata = json_get(doc, "metadata");
    enum json_type t = json_type(metadata);
    if (json_type(source) != JSON_STRING) {
        v1_bad(r, FAULT_INVALID, "source must be a text.");
    } else if (t != JSON_ABSENT && t != JSON_NULL && t != JSON_OBJECT) {
        v1_bad(r, FAULT_INVALID, "metadata must be an object.");
    } else {
        struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
        struct skills_write w = {.name = r->args[0],
                                 .source = json_as_str(source),
                                 .metadata = metadata,
                                 .only_new =
                                     str_eq(http_header(r->req, "If-None-Match"), STR("*"))};
        c->skills = skills_store(r->f->skills, &r->who.caller, &w, on_answer, c);
    }
    json_parser_free(parser);
}

void v1_skills_status(struct v1_request *r)
{
    struct json doc;
    struct json_parser *parser = v1_body(r, &doc);

    if (parser == NULL)
        return;
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    struct str status = json_str(doc, "status");
    c->skills = skills_update_status(r->f->skills, &r->who.caller, r->args[0],
                                     status.p != NULL ? status : STR(""), on_answer, c);
    json_parser_free(parser);
}

static void on_deleted(void *ctx, const struct skills_answer *a)
{
    struct v1_call *c = ctx;

    c->skills = NULL;
    if (a->fault.cls != FAULT_NONE)
        v1_fault(c->f, c->id, &a->fault);
    else
        v1_answer(c->f, c->id, 204, NULL, STR_NULL);
    v1_call_free(c);
}

/* A key that is bound to one agent may not. */
void v1_skills_delete(struct v1_request *r)
{
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    bool may = r->who.key == NULL || r->who.key->agent == NULL;

    c->skills = skills_delete(r->f->skills, &r->who.caller, r->args[0], may, on_deleted, c);
}
