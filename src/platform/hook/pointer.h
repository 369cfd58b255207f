/* pointer.h - finds values in a JSON document by JSON pointers (RFC 6901), and conditions on them.
 * Pure.
 *
 *      "/actor/id"              the member "id" of the member "actor"
 *      "/messages/0/text"       the first of an array
 *      "/a~1b/~0"               the member "~" of the member "a/b"
 *      "/object/content/text"   where "content" is a text that is JSON itself: a step into such a
 *                               text goes on inside it, once in a pointer
 *
 *      "/actor/bot"             a condition: there, and neither false, null, 0 nor ""
 *      "/type=Create"           it is "Create"
 *      "/type!=Create"          it is not; also if it is not there
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"

#define POINTER_MAX_BYTES 512
#define POINTER_MAX_STEPS 32

/* NULL, or what is wrong with a pointer or a condition, as the end of a sentence. */
const char *pointer_wrong(struct str pointer);
const char *condition_wrong(struct str condition);

struct pointer_in {            /* a document to look into */
    struct json doc;           /* borrowed */
    struct json_parser *inner; /* borrowed; reads a text that is JSON: each lookup reuses it */
};
/* The value at @pointer, which pointer_wrong() has checked; absent: there is none.  A value inside
 * of a text is valid until the next lookup. */
struct json pointer_get(const struct pointer_in *in, struct str pointer);
/* Appends the text or the whole number at @pointer.  False: there is neither. */
bool pointer_text(const struct pointer_in *in, struct str pointer, struct buf *out);
/* Is @condition, which condition_wrong() has checked, true? */
bool condition_holds(const struct pointer_in *in, struct str condition);
