/* filter.c - a query's filter from JSON.  (skills.h has the contract.) */
#include <math.h>
#include <stdio.h>
#include "base/arena.h"
#include "skills/skills.h"

#define MAX_TAGS 64

static bool bad(struct fault *f, const char *what)
{
    fault_set(f, FAULT_QUERY, "%s", what);
    fault_field(f, "connector_type", STR("skill_store"));
    return false;
}

static bool given(struct json v)
{
    return json_type(v) != JSON_ABSENT && json_type(v) != JSON_NULL;
}

static bool add_status(struct json word, struct skills_filter *f)
{
    enum skill_status s;

    if (!skill_status_parse(json_as_str(word), &s))
        return false;
    f->statuses |= 1u << s;
    return true;
}

static bool read_status(struct json v, struct skills_filter *f, struct fault *fault)
{
    static const char what[] = "`status` is Draft, Approved or Disabled, or a list of these";

    if (!given(v))
        return true;
    f->by_status = true;
    if (json_type(v) != JSON_ARRAY)
        return add_status(v, f) || bad(fault, what);
    for (struct json_iter it = {0}; json_next(v, &it);)
        if (!add_status(it.value, f))
            return bad(fault, what);
    return true;
}

static bool read_tags(struct json v, struct arena *arena, struct skills_filter *f,
                      struct fault *fault)
{
    static const char what[] = "`tag` is a text or a list of at most 64 texts";
    struct str *tags;
    size_t n = json_type(v) == JSON_ARRAY ? json_count(v) : 1;

    if (!given(v))
        return true;
    if (n > MAX_TAGS)
        return bad(fault, what);
    tags = arena_alloc(arena, (n + 1) * sizeof *tags);
    f->tags = tags;
    if (json_type(v) != JSON_ARRAY)
        tags[f->n_tags++] = json_as_str(v);
    for (struct json_iter it = {0}; json_type(v) == JSON_ARRAY && json_next(v, &it);)
        tags[f->n_tags++] = json_as_str(it.value);
    for (size_t i = 0; i < n; i++)
        if (tags[i].p == NULL)
            return bad(fault, what);
    return true;
}

static bool read_text(struct json filter, const char *key, struct str *ret, struct fault *fault)
{
    struct json v = json_get(filter, key);
    char what[64];

    *ret = json_as_str(v);
    if (!given(v) || ret->p != NULL)
        return true;
    snprintf(what, sizeof what, "`%s` is a text", key);
    return bad(fault, what);
}

static bool read_count(struct json v, const char *what, uint64_t *ret, struct fault *fault)
{
    double d;

    if (!given(v) || json_as_u64(v, ret))
        return true;
    if (json_as_f64(v, &d) && d >= 0 && d < 9e18 && d == floor(d)) {
        *ret = (uint64_t)d;
        return true;
    }
    return bad(fault, what);
}

bool skills_filter_from_json(struct json filter, struct arena *arena, struct skills_filter *ret_f,
                             struct fault *ret_fault)
{
    struct json since = json_get(filter, "since"), limit = json_get(filter, "limit");
    double d;

    *ret_f = (struct skills_filter){.by_limit = given(limit), .by_since = given(since)};
    if (given(filter) && !json_is_object(filter))
        return bad(ret_fault, "the filter is an object");
    if (!read_status(json_get(filter, "status"), ret_f, ret_fault) ||
        !read_tags(json_get(filter, "tag"), arena, ret_f, ret_fault) ||
        !read_text(filter, "type", &ret_f->type, ret_fault) ||
        !read_text(filter, "author", &ret_f->author, ret_fault) ||
        !read_text(filter, "name_pattern", &ret_f->name_pattern, ret_fault) ||
        !read_text(filter, "if_none_match", &ret_f->if_none_match, ret_fault) ||
        !read_count(limit, "`limit` is a whole number", &ret_f->limit, ret_fault) ||
        !read_count(json_get(filter, "offset"), "`offset` is a whole number", &ret_f->offset,
                    ret_fault))
        return false;
    if (ret_f->type.p != NULL && !str_eq(ret_f->type, STR("procedural")) &&
        !str_eq(ret_f->type, STR("data")))
        return bad(ret_fault, "`type` is procedural or data");
    if (!ret_f->by_since)
        return true;
    if (!json_as_f64(since, &d) || !(d > -9e15 && d < 9e15))
        return bad(ret_fault, "`since` is a time in seconds");
    ret_f->since = (int64_t)ceil(d);
    return true;
}
