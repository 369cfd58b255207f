/* regex.h - matches untrusted regular expressions in linear time (a C interface to RE2).
 *
 * RE2 has no look-around and no back references.  Patterns that use them are refused, and so are
 * patterns that need more than REGEX_MAX_BYTES of memory. */
#pragma once
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define REGEX_MAX_BYTES ((size_t)1 << 20)
#define REGEX_MAX_PATTERN 1000

/* NULL: @ret_why, 256 bytes, says what is wrong with the pattern. */
struct regex *regex_new(struct str pattern, char *ret_why);
void regex_free(struct regex *re); /* NULL is fine */
/* True: the pattern matches anywhere in @text, which should be valid UTF-8. */
bool regex_found(const struct regex *re, struct str text);

#ifdef __cplusplus
}
#endif
