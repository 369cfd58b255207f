/* matrix.h - connects a Matrix user: by sync with a token, or as an application service.
 *
 * The bot is its user id ("@desk:example.org").  The chat is the room, the thread its root event.
 * The route key of an event is the room; if it has no route, the bot's route applies.
 * docs/platforms/matrix.md describes the set-up. */
#pragma once
#include "platform/platform.h"

struct matrix_settings {
    struct platform_settings base; /* first; api_base is the homeserver */
    char *token;                   /* NULL: an application service */
    struct {
        char *as_token, *hs_token; /* NULL: a token */
        char *namespace;           /* regular expression of user ids; NULL: the bot alone */
    } service;
    uint32_t rate; /* messages a minute that the homeserver allows; 0: no limit */
};
extern const struct config_section matrix_config;
extern const struct platform_ops matrix_ops;
