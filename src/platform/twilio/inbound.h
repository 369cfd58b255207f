/* inbound.h - checks the signatures of Twilio's webhooks and turns messages into events.  Pure.
 *
 *      chat_id, user_id   the sender: "+15551234567", "whatsapp:+15551234567"
 *      chat_type          dm; a number has no groups
 *      route_key          the bot; twilio_http() then sets the sender
 *
 * Twilio signs the URL that it calls.  For a form the parameters follow, sorted by name; for other
 * bodies the URL contains a hash of the body.  Some of Twilio's servers sign the port in the URL
 * and some do not, so both are tried.
 */
#pragma once
#include "core/event.h"
#include "edge/form.h"
#include "platform/await.h"

/* ---- signatures ---- */

struct twilio_request {
    struct str url;    /* that Twilio calls, with its query */
    struct form *form; /* is sorted; NULL: the body is not a form */
    struct str body;   /* when there is no form */
    struct str signature;
};
bool twilio_signature_ok(struct str auth_token, const struct twilio_request *q);

/* The signature as Twilio writes it, in base64. */
void twilio_signature(struct str auth_token, struct str url, const struct form *sorted,
                      struct buf *out);
/* Appends @url without its port, or with the default port of its scheme if it has none. */
void twilio_other_url(struct str url, struct buf *out);

/* ---- a message becomes an event ---- */

struct twilio_out { /* an event and the memory of its text and files */
    struct event ev;
    struct buf text;
    struct event_media media[EVENT_MAX_MEDIA];
};

/* Messages of an account other than @account_sid are malformed.  strs of the event are borrowed
 * from the form, the arguments and @out.  @out starts zeroed and may be reused. */
enum webhook_verdict twilio_normalize(const struct form *f, struct str bot, struct str account_sid,
                                      struct twilio_out *out);
void twilio_out_done(struct twilio_out *out);

/* True for a number or a short code, also after "whatsapp:" or another channel. */
bool twilio_address_ok(struct str address);
