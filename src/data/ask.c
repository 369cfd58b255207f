/* ask.c - parses a query.  (ask.h has the contract.) */
#include "data/ask.h"
#include <math.h>

#define DEFAULT_LIMIT 10
#define MAX_KEYS 32 /* named in an UnsupportedFilterError */

static const struct str supported[] = {{"domain_tags", 11}};

void data_query_error(struct fault *f, const char *why)
{
    fault_set(f, FAULT_QUERY, "%s", why);
    fault_field(f, "connector_type", STR("data_store"));
    fault_field(f, "mode", STR("fts"));
}

static bool bad(struct fault *f, const char *why)
{
    data_query_error(f, why);
    return false;
}

static bool given(struct json v)
{
    return json_type(v) != JSON_ABSENT && json_type(v) != JSON_NULL;
}

static bool is_known(struct str key)
{
    static const char *const base[] = {"query", "limit", "mode", "permissive_filters"};

    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++)
        if (str_eq(key, str_of(base[i])))
            return true;
    return str_eq(key, supported[0]);
}

/* Refuses unknown filters: ignoring one would return entries that the caller meant to exclude. */
static bool only_known(struct json filters, struct fault *f)
{
    struct str unknown[MAX_KEYS];
    size_t n = 0;
    struct buf names = BUF_INIT;

    if (json_as_bool(json_get(filters, "permissive_filters"), false))
        return true;
    for (struct json_iter it = {0}; n < MAX_KEYS && json_next(filters, &it);)
        if (!is_known(it.key))
            unknown[n++] = it.key;
    if (n == 0)
        return true;
    for (size_t i = 0; i < n; i++)
        buf_printf(&names, "%s%.*s", i > 0 ? ", " : "",
                   (int)(unknown[i].n < 60 ? unknown[i].n : 60), unknown[i].p);
    fault_set(f, FAULT_UNSUPPORTED_FILTER,
              "filters that this store does not have: %s; it has: domain_tags", buf_z(&names));
    fault_field_list(f, "unsupportedKeys", unknown, n);
    fault_field_list(f, "supportedKeys", supported, 1);
    fault_field(f, "substrate", STR("BellhopDataStore"));
    fault_field(f, "opKind", STR("$"));
    fault_field(
        f, "remediation",
        STR("Leave the filters out, or set permissive_filters to true to have them ignored."));
    buf_done(&names);
    return false;
}

static bool read_mode(struct json v, struct fault *f)
{
    struct str mode = json_as_str(v);

    if (json_type(v) == JSON_ABSENT || str_eq(mode, STR("fts")))
        return true;
    fault_set(f, FAULT_QUERY, "mode '%.*s' is not supported; this store has: fts",
              (int)(mode.n < 60 ? mode.n : 60), mode.p != NULL ? mode.p : "");
    fault_field(f, "connector_type", STR("data_store"));
    fault_field(f, "mode", mode.p != NULL ? mode : STR(""));
    return false;
}

static bool read_limit(struct json v, uint64_t *ret, struct fault *f)
{
    double d;

    *ret = DEFAULT_LIMIT;
    if (!given(v))
        return true;
    if (!json_as_f64(v, &d) || !(d > 0 && d < 1e15))
        return bad(f, "`limit` is a number above 0");
    *ret = (uint64_t)ceil(d);
    return true;
}

static bool add_tag(struct json v, struct arena *arena, struct data_ask *a)
{
    struct str tag = json_as_str(v);

    if (tag.n == 0 || a->n_tags == DATA_MAX_TAGS)
        return false;
    a->tags[a->n_tags++] = arena_str(arena, tag);
    return true;
}

static bool read_tags(struct json v, struct arena *arena, struct data_ask *a, struct fault *f)
{
    static const char what[] = "`domain_tags` is a text, or a list of 1 to 64 texts, none empty";

    a->n_tags = 0;
    if (json_type(v) == JSON_ABSENT)
        return true;
    if (json_type(v) != JSON_ARRAY)
        return add_tag(v, arena, a) || bad(f, what);
    for (struct json_iter it = {0}; json_next(v, &it);)
        if (!add_tag(it.value, arena, a))
            return bad(f, what);
    return a->n_tags > 0 || bad(f, what);
}

static bool read_query(struct json v, struct arena *arena, struct data_ask *a, struct fault *f)
{
    struct str query = json_as_str(v);
    struct buf match = BUF_INIT;

    if ((given(v) && query.p == NULL) || query.n > DATA_MAX_QUERY)
        return bad(f, "`query` is a text of at most 8 KiB");
    a->kind = fts_match_text(query, &match);
    a->match = arena_str(arena, buf_str(&match));
    buf_done(&match);
    return true;
}

bool data_ask_read(struct json filters, struct arena *arena, struct data_ask *ret_a,
                   struct fault *ret_fault)
{
    if (!json_is_object(filters))
        return bad(ret_fault, "a query is an object");
    return only_known(filters, ret_fault) && read_mode(json_get(filters, "mode"), ret_fault) &&
           read_limit(json_get(filters, "limit"), &ret_a->limit, ret_fault) &&
           read_tags(json_get(filters, "domain_tags"), arena, ret_a, ret_fault) &&
           read_query(json_get(filters, "query"), arena, ret_a, ret_fault);
}
