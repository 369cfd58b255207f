/* diff.h - two texts, line by line, as a unified diff. */
#pragma once
#include <stdio.h>
#include "base/str.h"

/* Prints nothing when they are equal.  Where thousands of lines differ on both sides the old ones
 * are shown as replaced by the new ones. */
void diff_print(FILE *out, const char *a_name, struct str a, const char *b_name, struct str b);
