/* space.h - white space and line ends as defined by JavaScript.
 *
 * The agent contracts are defined by JavaScript regular expressions: \s includes more than ASCII,
 * and a line can end with four different characters. */
#pragma once
#include "base/str.h"

/* Bytes of the white space character @s starts with: TAB LF VT FF CR SPACE, U+00A0, U+1680,
 * U+2000-200A, U+2028, U+2029, U+202F, U+205F, U+3000, U+FEFF.  0: none. */
size_t space_bytes(struct str s);
size_t space_run(struct str s);          /* bytes of all white space at the start */
size_t eol_bytes(struct str s);          /* bytes of the LF, CR, U+2028 or U+2029 at the start */
struct str space_trim(struct str s);     /* removes white space at both ends */
struct str space_trim_end(struct str s); /* removes white space at the end */
