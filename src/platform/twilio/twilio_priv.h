/* twilio_priv.h - the parts of the Twilio adapter, for its own files only.
 *
 *      twilio.c    what makes it one of the webhook bots     webhook.c  signed requests -> host
 *      send.c      what a request to Twilio looks like and what its answer means
 *      signature.c, normalize.c, found.c know nothing of these. */
#pragma once
#include "platform/twilio/found.h"
#include "platform/twilio/normalize.h"
#include "platform/twilio/twilio.h"
#include "platform/webhook_bot.h"

struct twilio {
    struct webhook_bot bot;            /* first */
    const struct twilio_settings *cfg; /* borrowed; holds the auth token */
    struct buf auth;                   /* secret: the Authorization line */
    bool passthrough;
    struct form form;
    struct twilio_out out;
    struct twilio_sids known;
};

static inline struct twilio *twilio_of(struct platform *p)
{
    return container_of(webhook_bot_of(p), struct twilio, bot);
}

bool twilio_http(struct platform *p, struct http_req *req);
extern const struct sender_ops twilio_sender;
const char *twilio_no_file(struct webhook_bot *b, const struct attachment *a);
