/* twilio.h - SMS and WhatsApp through Twilio: webhooks in, REST out.
 *
 * The bot is the number people write to ("+15550100"), or a messaging service ("MG...").  A person
 * is routed by their own number where that is routed, else by the bot.  docs/platforms/twilio.md
 * tells the whole way. */
#pragma once
#include "platform/platform.h"

struct twilio_settings {
    struct platform_settings base; /* first */
    char *account_sid, *auth_token;
    char *plane;    /* "inbound" or "passthrough"; NULL: inbound */
    char *api_base; /* NULL: Twilio's own */
};
extern const struct config_section twilio_config;
extern const struct platform_ops twilio_ops;
