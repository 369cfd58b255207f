/* sanitize.h - removes the credentials from a platform's JSON.
 *
 * A value under the name of a credential ("token", "..._token", "secret", ...) is left out, at any
 * depth.  So is every other string that contains one of those values: in a text, in an address, as
 * a key.  The rest is written anew.  Values too short to be a credential are left out in place but
 * not searched for: a "1" is everywhere. */
#pragma once
#include "base/json.h"
#include "base/jw.h"

#define SANITIZE_MAX_SECRETS 32
#define SANITIZE_MIN_SECRET 8 /* bytes */

/* False: more than SANITIZE_MAX_SECRETS credentials; nothing was written. */
bool sanitize_json(struct jw *w, struct json v) BH_MUST_USE;
bool sanitize_names_credential(struct str key);
