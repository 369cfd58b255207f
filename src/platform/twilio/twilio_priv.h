/* twilio_priv.h - the parts of the Twilio adapter, for its own files only.
 *
 *      twilio.c   open, close, status                webhook.c  signed requests -> host_accept()
 *      send.c     what a request to Twilio looks like and what its answer means
 *      signature.c, normalize.c know nothing of these. */
#pragma once
#include "base/log.h"
#include "platform/await.h"
#include "platform/courier.h"
#include "platform/twilio/normalize.h"

struct twilio {
    struct platform base;
    struct log log;
    const struct host_env *env;        /* borrowed */
    const struct config_platform *cfg; /* borrowed; holds the auth token */
    char *api_base;                    /* owned */
    bool passthrough;
    struct awaits awaits;
    struct form form;
    struct twilio_out out;
    struct json_parser *parser; /* owned */
    struct courier *courier;    /* owned */
    char problem[256];          /* base.problem points here, or is NULL */
    struct {
        uint64_t events, ignored, refused;
    } n;
};

void twilio_http(struct platform *p, struct http_req *req);

extern const struct courier_ops twilio_courier;
void twilio_set_problem(struct twilio *t, const char *sentence); /* NULL: all is well */
