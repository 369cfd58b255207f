/* whatsapp.h - connects a number of the WhatsApp Cloud API: webhooks in, Graph API out.
 *
 * The bot is the phone number's id at Meta ("106540352242922"), not the number itself.  The route
 * key of an event is the person; if the person has no route, the bot's route applies.
 * docs/platforms/whatsapp.md describes the set-up. */
#pragma once
#include "platform/platform.h"

struct whatsapp_settings {
    struct platform_settings base; /* first */
    char *token, *app_secret, *verify_token;
    char *graph_version;
    struct {
        char *name, *language;
    } template; /* sent after the window has closed; NULL: none */
};
extern const struct config_section whatsapp_config;
extern const struct platform_ops whatsapp_ops;
