/* percent.h - bytes as %XX, as URLs and forms have them. */
#pragma once
#include "base/buf.h"

/* Append @s with everything but letters, digits, "-", "_", "." and "~" escaped. */
void percent_encode(struct buf *out, struct str s);
/* Append @s with its escapes resolved.  False: some were broken, and are there as they stood. */
bool percent_decode(struct buf *out, struct str s);
bool percent_decode_form(struct buf *out, struct str s); /* the same, and "+" is a space */
