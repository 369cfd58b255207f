/* percent.h - percent-encoding (%XX), as in URLs and forms. */
#pragma once
#include "base/buf.h"

/* Appends @s with everything but letters, digits, "-", "_", "." and "~" escaped. */
void percent_encode(struct buf *out, struct str s);
/* Appends @s decoded.  False: some escapes were malformed; they are appended unchanged. */
bool percent_decode(struct buf *out, struct str s);
bool percent_decode_form(struct buf *out, struct str s); /* also decodes "+" to a space */
