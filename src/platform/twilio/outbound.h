/* outbound.h - was a message sent whose answer was lost?  Pure.
 *
 * Twilio has no idempotency key: I-Twilio-Idempotency-Token is a header of its own webhooks.
 * But Twilio lists the messages it has taken.  A message of that list is the one that was tried
 * if it goes to the same person from the same sender, has the same text, was made by a program,
 * not before the try (by Twilio's clock), and is not known already. */
#pragma once
#include "base/str.h"

struct json;

enum { TWILIO_SIDS = 256, TWILIO_SID_CHARS = 34 };

struct twilio_sids { /* of the newest known messages; zeroed at first */
    char all[TWILIO_SIDS][TWILIO_SID_CHARS + 1];
    unsigned n; /* in all */
};
void twilio_sids_add(struct twilio_sids *s, struct str sid); /* ignores a sid of another form */
bool twilio_sids_have(const struct twilio_sids *s, struct str sid);

struct twilio_sought {               /* borrowed */
    struct str to, from;             /* absent @from: a messaging service chooses it */
    struct str body;                 /* of this part */
    bool media;                      /* it has a file */
    int64_t since_s;                 /* unix time, Twilio's: when it was tried */
    struct str first_id;             /* of an earlier part of the same; may be empty */
    const struct twilio_sids *known; /* other messages */
};
/* The newest match in @list (the answer of Messages.json); empty: none.  No message leaves for a
 * person before the one before it has ended, so no other match is newer. */
struct str twilio_find(struct json list, const struct twilio_sought *q);

/* Reads "Thu, 24 Aug 2023 05:01:45 +0000", or GMT.  False: not a date. */
bool twilio_date(struct str text, int64_t *ret_s);
