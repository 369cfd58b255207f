/* sanitize.h - removes the credentials from a platform's JSON.
 *
 * Adapters call it before a gateway gets a webhook's body.
 *
 * A field named like a credential ("token", "..._token", "secret", ...) is left out, at any depth.
 * Every other string that contains such a value becomes "", and a field with the value in its name
 * is left out.  The values of credentials shorter than SANITIZE_MIN_SECRET are not searched for
 * elsewhere, because a "1" is everywhere. */
#pragma once
#include "base/json.h"
#include "base/jw.h"

#define SANITIZE_MAX_SECRETS 32
#define SANITIZE_MIN_SECRET 8 /* bytes */

/* Writes @v without credentials.  False: it has more than SANITIZE_MAX_SECRETS of them, and nothing
 * was written. */
bool sanitize_json(struct jw *w, struct json v) BH_MUST_USE;
bool sanitize_names_credential(struct str key);
