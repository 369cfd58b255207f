/* inbound.h - what Twilio sends: is the request signed, and which event is it?  Pure.
 *
 * Twilio signs the address it was told to call, followed by the parameters of a form sorted by
 * name, or with the hash of any other body in the address.  Twilio's servers differ about the port
 * in that address, so the signature is tried with and without.
 *
 *      chat_id, user_id   the sender: "+15551234567", "whatsapp:+15551234567"
 *      chat_type          dm; a number has no groups
 *      route_key          the bot
 */
#pragma once
#include "core/event.h"
#include "edge/form.h"

/* ---- signatures ---- */

struct twilio_request {
    struct str url;    /* what Twilio was told to call, with its query */
    struct form *form; /* gets sorted; NULL: another kind of body */
    struct str body;   /* when there is no form */
    struct str signature;
};
bool twilio_signature_ok(struct str auth_token, const struct twilio_request *q);

/* The signature as Twilio writes it, in base64. */
void twilio_signature(struct str auth_token, struct str url, const struct form *sorted,
                      struct buf *out);
/* @url with the port of its scheme when it has none, without its port when it has one. */
void twilio_other_url(struct str url, struct buf *out);

/* ---- a message becomes an event ---- */

struct twilio_out { /* owned: what had to be put together */
    struct event ev;
    struct buf text;
    struct event_media media[EVENT_MAX_MEDIA];
};

enum twilio_verdict {
    TWILIO_EVENT,
    TWILIO_IGNORED,   /* signed, but nobody said anything: a status, an empty message */
    TWILIO_MALFORMED, /* not a message */
};
/* @account_sid: whose messages these must be.  strs of the event are borrowed from the form, the
 * arguments and @out, which starts zeroed and may be used again. */
enum twilio_verdict twilio_normalize(const struct form *f, struct str bot, struct str account_sid,
                                     struct twilio_out *out);
void twilio_out_done(struct twilio_out *out);

/* Can messages go to @address: a number, a short code, or one behind "whatsapp:" and the like? */
bool twilio_address_ok(struct str address);
