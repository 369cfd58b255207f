/* json_mend.h - reads JSON in which an escaped surrogate pair may have been cut in half.
 *
 * A program in Python or JavaScript that cuts a text inside an emoji writes half a pair, such as
 * "\ud83d" alone.  That is no Unicode, and json_parse() refuses the whole document.  But its sender
 * waits for an answer, or goes on without knowing that the text is lost.  So each half becomes
 * U+FFFD.  A document without halves costs nothing more. */
#pragma once
#include "base/json.h"

/* Like json_parse(). */
bool json_parse_mended(struct json_parser *p, struct str bytes, struct json *ret_doc);
