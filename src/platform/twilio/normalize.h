/* normalize.h - a message of Twilio's form becomes an event.
 *
 *      chat_id, user_id   the sender: "+15551234567", "whatsapp:+15551234567"
 *      chat_type          dm; a number has no groups
 *      route_key          the bot
 *
 * Pure. */
#pragma once
#include "core/event.h"
#include "edge/form.h"

struct twilio_out { /* owned: what had to be put together */
    struct event ev;
    struct buf text;
    struct event_media media[EVENT_MAX_MEDIA];
};

enum twilio_verdict {
    TWILIO_EVENT,
    TWILIO_IGNORED,   /* signed and well, but nothing anybody said: a status, an empty message */
    TWILIO_MALFORMED, /* not a message */
};
/* @account_sid: whose messages these must be.  strs of the event are borrowed from the form, the
 * arguments and @out, which starts zeroed and may be used again. */
enum twilio_verdict twilio_normalize(const struct form *f, struct str bot, struct str account_sid,
                                     struct twilio_out *out);
void twilio_out_done(struct twilio_out *out);

/* An address messages can go to: a number, a short code, or one behind "whatsapp:" and the like. */
bool twilio_address_ok(struct str address);
