/* form.h - application/x-www-form-urlencoded, read and written. */
#pragma once
#include "base/buf.h"

#define FORM_MAX 256 /* parameters */

struct form_pair {
    struct str name, value;
};
struct form {
    struct form_pair pairs[FORM_MAX]; /* in the order they came */
    size_t n;
    struct buf bytes; /* owned; what the pairs point at */
};

/* False: too many parameters, a broken %-escape, a NUL, or not UTF-8.  @f starts zeroed and may be
 * used again and again. */
bool form_parse(struct form *f, struct str text);
void form_done(struct form *f);

struct str form_get(const struct form *f, const char *name); /* the first; STR_NULL: absent */
void form_sort(struct form *f);                              /* by name, then by value; bytewise */
bool form_has_twins(const struct form *f); /* sorted: the same parameter with the same value */

/* Append "name=value", with "&" before it when @out is not empty. */
void form_add(struct buf *out, const char *name, struct str value);
void form_add_str(struct buf *out, struct str name, struct str value);
