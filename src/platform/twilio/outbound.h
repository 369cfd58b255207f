/* outbound.h - finds a message in Twilio's list when the answer to its request was lost.  Pure.
 *
 * Twilio has no idempotency key: I-Twilio-Idempotency-Token is a header of its own webhooks.  So
 * the sender never retries such a message, but looks it up in Twilio's list of messages.  A message
 * of the list is the one that was sent if all of these hold:
 *
 *      recipient, sender and text are the same, and both or neither have a file
 *      it is outbound, and was created after the request by Twilio's clock
 *      its sid is not that of another known message */
#pragma once
#include "base/str.h"

struct json;

enum { TWILIO_SIDS = 256, TWILIO_SID_CHARS = 34 };

struct twilio_sids { /* a ring of the newest known messages; starts zeroed */
    char all[TWILIO_SIDS][TWILIO_SID_CHARS + 1];
    unsigned n; /* added so far */
};
void twilio_sids_add(struct twilio_sids *s, struct str sid); /* ignores an empty or too long sid */
bool twilio_sids_have(const struct twilio_sids *s, struct str sid);

struct twilio_sought {               /* borrowed */
    struct str to, from;             /* absent @from: a messaging service, which chooses it */
    struct str body;                 /* the text of this part */
    bool media;                      /* the message has a file */
    int64_t since_s;                 /* unix time of the request, by Twilio's clock */
    struct str first_id;             /* sid of the first part of the same text; may be empty */
    const struct twilio_sids *known; /* sids of other messages */
};
/* The sid of the newest match in @list (the answer of Messages.json); empty: none.  Messages to one
 * person are sent one after the other, so the newest match is the right one. */
struct str twilio_find(struct json list, const struct twilio_sought *q);
