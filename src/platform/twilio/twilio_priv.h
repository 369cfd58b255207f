/* twilio_priv.h - struct twilio, one bot, and the calls between the files of the Twilio adapter.
 *
 *      twilio.c    settings, open, close, check, status; built on platform/texts.h
 *      inbound.c   signed requests -> events -> the host
 *      outbound.c  writes requests to Twilio and reads the answers */
#pragma once
#include "platform/twilio/inbound.h"
#include "platform/twilio/outbound.h"
#include "platform/twilio/twilio.h"
#include "platform/texts.h"

struct twilio {
    struct platform base;              /* first */
    const struct twilio_settings *cfg; /* borrowed; holds the auth token */
    struct buf auth;                   /* secret: the Authorization line */
    bool passthrough;
    struct form form;
    struct twilio_out out;
    struct twilio_sids known;
};

static inline struct twilio *twilio_of(struct platform *p)
{
    return container_of(p, struct twilio, base);
}

bool twilio_http(struct platform *p, struct http_req *req);
extern const struct sender_ops twilio_sender;
const char *twilio_no_file(struct platform *p, const struct attachment *a);
