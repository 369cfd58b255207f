/* hook.h - a door for services without an adapter of their own: signed webhooks in, HTTP out.
 *
 *      webhook --verify--> JSON --map: pointers--> event
 *      action --send: templates--> request
 *
 * The bot is a name of the operator's.  The configuration has the whole format; no code is needed.
 * On the wire to gateways the platform is called "webhook" (core/event.h).  docs/platforms/hook.md
 * describes the set-up, and examples/hook has formats of real services. */
#pragma once
#include "platform/platform.h"

enum hook_hmac { HOOK_SHA256, HOOK_SHA1, HOOK_TOKEN, HOOK_NONE };
enum hook_encoding { HOOK_HEX, HOOK_BASE64, HOOK_AS_TEXT };

struct hook_sign {                 /* `verify` and `send.sign`; texts are owned by the config */
    int hmac;                      /* enum hook_hmac */
    int encoding, secret_encoding; /* enum hook_encoding */
    char *header, *secret, *prefix, *timestamp_header;
    char *covers; /* `signed`: a template */
};

struct hook_settings {
    struct platform_settings base; /* first */
    struct hook_sign verify;
    struct { /* JSON pointers */
        char *text, *names, *chat_id, *chat_name, *user_id, *user_name, *event_id, *message_id;
        char *thread_id, *reply_to;
        char **skip_if; /* conditions */
    } map;
    int chat_type; /* 0: group, 1: dm */
    struct {
        char *url, *headers, *body, *secret; /* headers and body: JSON */
        char *message_id;                    /* a JSON pointer into the answer */
        uint32_t max_length, per_second;
        bool allow_private;
        struct hook_sign sign; /* without a header: requests are not signed */
    } send;
};
extern const struct config_section hook_config;
extern const struct platform_ops hook_ops;
