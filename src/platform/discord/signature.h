/* signature.h - is this request really from Discord, and is it from now?
 *
 * Discord signs timestamp and body, as they are, with Ed25519; the public key is in the Developer
 * Portal.  The time is part of what is signed, so a request kept for later is refused by it. */
#pragma once
#include "base/buf.h"

#define DISCORD_SIG_WINDOW_MS 300000 /* how far the timestamp may be from our clock, either way */

struct discord_sig;

/* @public_key: 64 hex digits.  NULL: it is not a key. */
struct discord_sig *discord_sig_new(struct str public_key);
void discord_sig_free(struct discord_sig *s); /* NULL is fine */

/* Could it be right, at a glance? */
bool discord_sig_is_plausible(struct str timestamp, struct str signature, int64_t wall_ms);
/* @timestamp and @signature are the headers X-Signature-Timestamp and X-Signature-Ed25519. */
bool discord_sig_ok(struct discord_sig *s, struct str timestamp, struct str signature,
                    struct str body, int64_t wall_ms);
