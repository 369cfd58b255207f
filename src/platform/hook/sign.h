/* sign.h - HMAC signatures of requests, as many services make them: over a template, in a header.
 * Pure. */
#pragma once
#include "platform/hook/hook.h"
#include "platform/hook/template.h"

#define HOOK_WINDOW_MS 300000  /* between the timestamp of a request and the clock */
#define HOOK_MAX_SIGNATURES 16 /* in one header */

/* The key that the configured secret stands for.  False: it is not in its encoding, or empty. */
bool hook_key(const struct hook_sign *s, struct buf *ret_key);
/* Appends the value of the signature's header: the prefix, and the signature in its encoding.
 * False: the template names a header that is not there. */
bool hook_signature(const struct hook_sign *s, struct str key, const struct template_values *v,
                    struct buf *out);
/* Does @shown, the value of the signature's header, hold a signature of @v?  It may hold several,
 * divided by blanks, each with the prefix.  The window of a timestamp is checked too. */
bool hook_signature_ok(const struct hook_sign *s, struct str key, const struct template_values *v,
                       struct str shown, int64_t wall_ms);
