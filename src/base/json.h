/* json.h - reads JSON (a C interface to simdjson).
 *
 * A parser owns the document it parsed last: every value and every str taken from it is borrowed
 * until the next json_parse() on that parser.  Strings are unescaped, valid UTF-8.  Documents
 * deeper than JSON_MAX_DEPTH (an empty array or object adds no level) and integers beyond 64 bits
 * are refused.  The caller limits the length.
 *
 *      struct json doc;
 *      if (!json_parse(p, bytes, &doc)) ...
 *      struct str type = json_str(doc, "type");      // absent or not a string: STR_NULL
 *
 * Getters never abort: a value of the wrong type counts as absent. */
#pragma once
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define JSON_MAX_DEPTH 64

struct json { /* one value; pass by value; a zeroed one is JSON_ABSENT */
    const void *doc;
    size_t at;
};

enum json_type {
    JSON_ABSENT,
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

struct json_parser *json_parser_new(void);
void json_parser_free(struct json_parser *p); /* NULL is fine */

/* False: not JSON, not UTF-8, or too deep; json_error() says which, for a log line. */
bool json_parse(struct json_parser *p, struct str bytes, struct json *ret_doc);
const char *json_error(const struct json_parser *p);

enum json_type json_type(struct json v);
struct json json_get(struct json object, const char *key); /* absent when not an object */
struct str json_as_str(struct json v);                     /* STR_NULL unless a string */
bool json_as_bool(struct json v, bool otherwise);
bool json_as_i64(struct json v, int64_t *ret_i);  /* integers only, in range */
bool json_as_u64(struct json v, uint64_t *ret_u); /* integers only, in range */
bool json_as_f64(struct json v, double *ret_f);
size_t json_count(struct json array_or_object);

/* Iterates over an array or an object in order; start with a zeroed iterator.
 *      for (struct json_iter it = {0}; json_next(array, &it);) use(it.value); */
struct json_iter {
    struct json value;
    struct str key; /* objects only */
    size_t next;    /* private */
    bool started;   /* private */
};
bool json_next(struct json array_or_object, struct json_iter *it);

static inline bool json_is_object(struct json v)
{
    return json_type(v) == JSON_OBJECT;
}
static inline struct str json_str(struct json object, const char *key)
{
    return json_as_str(json_get(object, key));
}
static inline int64_t json_i64(struct json object, const char *key, int64_t otherwise)
{
    json_as_i64(json_get(object, key), &otherwise);
    return otherwise;
}

#ifdef __cplusplus
}
#endif
