/* sanitize.h - a platform's JSON without the credentials in it.
 *
 * What stands under the name of a credential ("token", "..._token", "secret", ...) is left out, at
 * any depth, and so is every other string that contains one of those values, wherever it hides: in
 * a text, in an address, as a key.  What is left is written anew.  Values too short to be a
 * credential are left out where they stand, but not searched for: a "1" is everywhere. */
#pragma once
#include "base/json.h"
#include "base/jw.h"

#define SANITIZE_MAX_SECRETS 32
#define SANITIZE_MIN_SECRET 8 /* bytes */

/* False: it holds more credentials than anything sensible does; nothing was written. */
bool sanitize_json(struct jw *w, struct json v) BH_MUST_USE;
bool sanitize_names_credential(struct str key);
