/* forms.h - the forms of all records that the program keeps in its store.
 *
 * A change of the master key goes over this list, and so does the fuzz target of records.  A module
 * with a new form adds the form to its own list, or its list to forms.c. */
#pragma once
#include "store/record.h"

enum { FORMS_MAX = 64 };

/* Ends with NULL. */
void forms_list(const struct record_form *ret[FORMS_MAX]);
