/* space.h - white space and line ends as programs in JavaScript see them.
 *
 * The agent contracts are defined by regular expressions of that language: its \s is wider than
 * ASCII, and its lines end at four different characters. */
#pragma once
#include "base/str.h"

/* Bytes of the white space character @s starts with: TAB LF VT FF CR SPACE, U+00A0, U+1680,
 * U+2000-200A, U+2028, U+2029, U+202F, U+205F, U+3000, U+FEFF.  0: none. */
size_t space_bytes(struct str s);
size_t space_run(struct str s);          /* all of them at the start */
size_t eol_bytes(struct str s);          /* the same of LF CR U+2028 U+2029 */
struct str space_trim(struct str s);     /* off both ends */
struct str space_trim_end(struct str s); /* off the end */
