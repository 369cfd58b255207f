/* forms.h - lists the forms of all records in the store.
 *
 * A change of the master key seals the records of this list; the fuzz target of records reads each
 * form.  A module adds a new form to its own list; a new list is added to forms.c. */
#pragma once
#include "store/record.h"

enum { FORMS_MAX = 64 };

/* Ends with NULL. */
void forms_list(const struct record_form *ret[FORMS_MAX]);
