/* found.h - is a message there whose answer was lost?  Pure.
 *
 * Twilio has no key that would make a repeated request the same message: I-Twilio-Idempotency-Token
 * is a header of its own webhooks.  But it lists what it has taken.  A message of that list is ours
 * when it goes to the same person from the same sender, says the same, was made by a program, not
 * before we tried (by Twilio's clock), and is none we know already.
 */
#pragma once
#include "base/str.h"

struct json;

enum { TWILIO_SIDS = 256, TWILIO_SID_CHARS = 34 };

struct twilio_sids { /* of the newest messages Twilio told us; zeroed at first */
    char all[TWILIO_SIDS][TWILIO_SID_CHARS + 1];
    unsigned n; /* in all */
};
void twilio_sids_add(struct twilio_sids *s, struct str sid); /* what is none is left out */
bool twilio_sids_have(const struct twilio_sids *s, struct str sid);

struct twilio_sought {               /* borrowed */
    struct str to, from;             /* absent @from: a messaging service chooses it */
    struct str body;                 /* of this part */
    bool media;                      /* it has a file */
    int64_t since_s;                 /* unix time, Twilio's: when it was tried */
    struct str first_id;             /* of an earlier part of the same; may be empty */
    const struct twilio_sids *known; /* these are others */
};
/* The newest of @list (the answer of Messages.json, newest first) that is it; empty: none is.
 * Nothing leaves for a person before the one before it has ended, so none is newer than it. */
struct str twilio_find(struct json list, const struct twilio_sought *q);

/* "Thu, 24 Aug 2023 05:01:45 +0000", or GMT; false: it is none. */
bool twilio_date(struct str text, int64_t *ret_s);
