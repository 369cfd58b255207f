/* jw.h - writes JSON into a buffer.
 *
 * The writer places commas and colons.  Output is compact.  Control characters, quotes and
 * backslashes are escaped, and invalid UTF-8 becomes U+FFFD, so the output is valid JSON for any
 * input.
 *
 *      struct jw w = jw_begin(&out);
 *      jw_obj(&w);
 *        jw_key(&w, "type"); jw_str(&w, STR("hello"));
 *        jw_kstr(&w, "name", name);               // key + string, null when absent
 *      jw_end_obj(&w);
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"

struct jw {
    struct buf *out; /* borrowed */
    bool comma;      /* the next value needs one before it */
};

static inline struct jw jw_begin(struct buf *out)
{
    return (struct jw){.out = out};
}
void jw_obj(struct jw *w);
void jw_end_obj(struct jw *w);
void jw_arr(struct jw *w);
void jw_end_arr(struct jw *w);
void jw_key(struct jw *w, const char *key);         /* a trusted literal: not escaped */
void jw_key_str(struct jw *w, struct str key);      /* any bytes: escaped */
void jw_str(struct jw *w, struct str s);            /* absent (NULL pointer) writes null */
void jw_hex(struct jw *w, const void *p, size_t n); /* bytes as a string of hex digits */
void jw_bool(struct jw *w, bool b);
void jw_i64(struct jw *w, int64_t v);
void jw_u64(struct jw *w, uint64_t v);
void jw_f64(struct jw *w, double v);
void jw_null(struct jw *w);
void jw_raw(struct jw *w, struct str json); /* one whole JSON value, trusted */
void jw_value(struct jw *w, struct json v); /* copy a parsed value */

/* Key and value in one call; the _opt form writes nothing when the string is absent. */
void jw_kstr(struct jw *w, const char *key, struct str s);
void jw_kstr_opt(struct jw *w, const char *key, struct str s);
void jw_kbool(struct jw *w, const char *key, bool b);
void jw_ki64(struct jw *w, const char *key, int64_t v);
void jw_kobj(struct jw *w, const char *key); /* begins an object: jw_end_obj() */
void jw_karr(struct jw *w, const char *key); /* begins an array: jw_end_arr() */
void jw_kraw(struct jw *w, const char *key, struct str json);
void jw_kvalue(struct jw *w, const char *key, struct json v);
