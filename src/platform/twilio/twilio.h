/* twilio.h - connects SMS and WhatsApp through Twilio: webhooks in, REST out.
 *
 * The bot is the number that people write to ("+15550100"), or a messaging service ("MG...").  The
 * route key of an event is the person's number; if it has no route, the bot's route applies.
 * docs/platforms/twilio.md describes the set-up. */
#pragma once
#include "platform/platform.h"

struct twilio_settings {
    struct platform_settings base; /* first */
    char *account_sid, *auth_token;
    char *plane; /* "inbound" or "passthrough"; NULL: inbound */
};
extern const struct config_section twilio_config;
extern const struct platform_ops twilio_ops;
