/* form.h - parses and writes application/x-www-form-urlencoded.
 *
 * Adapters parse webhooks and write requests with it. */
#pragma once
#include "base/buf.h"

#define FORM_MAX 256 /* parameters */

struct form_pair {
    struct str name, value;
};
struct form {
    struct form_pair pairs[FORM_MAX]; /* in the order of the text, until form_sort() */
    size_t n;
    struct buf bytes; /* owned; the pairs point into it */
};

/* False: too many parameters, a broken %-escape, a NUL, or not UTF-8.  @f is zeroed before the
 * first call and may be reused. */
bool form_parse(struct form *f, struct str text);
void form_done(struct form *f);

struct str form_get(const struct form *f, const char *name); /* the first match; STR_NULL: absent */
void form_sort(struct form *f);                              /* by name, then by value; bytewise */
bool form_has_twins(const struct form *f); /* a name and value occur twice; @f is sorted */

/* Appends "name=value", after a "&" unless @out is empty. */
void form_add(struct buf *out, const char *name, struct str value);
void form_add_str(struct buf *out, struct str name, struct str value);
