/* ask.c - parses a query.  (ask.h has the contract.) */
#include "data/ask.h"
#include <math.h>
#include <stdio.h>

#define DEFAULT_LIMIT 10
#define MAX_KEYS 32 /* named in an UnsupportedFilterError */

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
    for (size_t i = 0; i < N_DATA_FIELDS; i++)
        if (str_eq(key, str_of(data_fields[i].name)))
            return true;
    return false;
}

/* Refuses unknown filters: ignoring one would return entries that the caller meant to exclude. */
static bool only_known(struct json filters, struct fault *f)
{
    struct str unknown[MAX_KEYS], supported[N_DATA_FIELDS];
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
    buf_add_z(&names, "; it has: ");
    for (size_t i = 0; i < N_DATA_FIELDS; i++) {
        supported[i] = str_of(data_fields[i].name);
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", data_fields[i].name);
    }
    fault_set(f, FAULT_UNSUPPORTED_FILTER, "filters that this store does not have: %s",
              buf_z(&names));
    fault_field_list(f, "unsupportedKeys", unknown, n);
    fault_field_list(f, "supportedKeys", supported, N_DATA_FIELDS);
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

static bool add_value(struct json v, unsigned field, struct arena *arena, struct data_filter *to)
{
    struct str value = json_as_str(v);

    if (value.n == 0 || to->n == DATA_MAX_VALUES)
        return false;
    to->marks[to->n++] = data_mark(arena, field, value);
    return true;
}

static bool read_values(struct json v, unsigned field, struct arena *arena, struct data_filter *to)
{
    if (json_type(v) != JSON_ARRAY)
        return add_value(v, field, arena, to);
    for (struct json_iter it = {0}; json_next(v, &it);)
        if (!add_value(it.value, field, arena, to))
            return false;
    return to->n > 0;
}

static bool read_filters(struct json filters, struct arena *arena, struct data_ask *a,
                         struct fault *f)
{
    char why[120];

    a->n_filters = 0;
    for (unsigned i = 0; i < N_DATA_FIELDS; i++) {
        struct data_filter *to = &a->filters[a->n_filters];
        struct json v = json_get(filters, data_fields[i].name);
        if (json_type(v) == JSON_ABSENT)
            continue;
        to->n = 0;
        to->without = i == DATA_PINNED && !json_as_bool(v, false);
        if (i == DATA_PINNED && json_type(v) != JSON_BOOL)
            return bad(f, "`pinned` is true or false");
        if (i == DATA_PINNED)
            to->marks[to->n++] = data_mark(arena, i, STR(""));
        else if (!read_values(v, i, arena, to)) {
            snprintf(why, sizeof why, "`%s` is a text, or a list of 1 to %d texts, none empty",
                     data_fields[i].name, DATA_MAX_VALUES);
            return bad(f, why);
        }
        a->n_filters++;
    }
    return true;
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
           read_filters(filters, arena, ret_a, ret_fault) &&
           read_query(json_get(filters, "query"), arena, ret_a, ret_fault);
}
