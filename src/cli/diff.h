/* diff.h - prints a unified diff of two texts, for `bellhop skill`. */
#pragma once
#include <stdio.h>
#include "base/str.h"

/* Prints nothing when the texts are equal.  When thousands of lines differ on both sides, the old
 * lines are shown as replaced by the new ones, without a search for common lines. */
void diff_print(FILE *out, const char *a_name, struct str a, const char *b_name, struct str b);
