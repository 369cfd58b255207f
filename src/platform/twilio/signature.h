/* signature.h - is this request from Twilio?
 *
 * Twilio signs the address it was given, as it was given, followed by the parameters of a form in
 * the order of their names, or with the hash of any other body in the address.  Its servers are not
 * of one mind about the port in that address, so it is tried with and without. */
#pragma once
#include "base/buf.h"

struct form;

struct twilio_request {
    struct str url;    /* what Twilio was told to call, with its query */
    struct form *form; /* gets sorted; NULL: another kind of body */
    struct str body;   /* when there is no form */
    struct str signature;
};
bool twilio_signature_ok(struct str auth_token, const struct twilio_request *q);

/* The base64 text Twilio would have sent. */
void twilio_signature(struct str auth_token, struct str url, const struct form *sorted,
                      struct buf *out);
/* @url with the port of its scheme when it has none, without its port when it has one. */
void twilio_other_url(struct str url, struct buf *out);
