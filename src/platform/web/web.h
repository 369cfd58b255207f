/* web.h - serves bellhop's own chat page as a platform; it needs no account anywhere.
 *
 *      GET  /chat, /chat/<bot>               the page
 *      GET  /chat/assets/<name>              scripts, styles and images of the page
 *      POST /chat/<bot>/api/message          {"text", "files"?, "client_id"?, "name"?} -> {"id"}
 *      GET  /chat/<bot>/api/events           server-sent events: message, edit, interrupt, typing,
 *                                            state, pressed, reset, rest
 *      GET  /chat/<bot>/api/history          ?before=<id>&limit=<n> -> {"messages", ...}
 *      POST /chat/<bot>/api/name             {"name"}
 *      POST /chat/<bot>/api/press            {"prompt", "option"}
 *
 * /chat/api/... is the API of the first web bot.  http/media_route.c serves .../api/file.
 *
 * A visitor holds a random token, in the cookie bellhop_visitor (people) or in the header
 * X-Bellhop-Visitor (programs); see visitor.h.  A visitor has one chat with each bot.  The route
 * key is the bot's name.
 */
#pragma once
#include "platform/platform.h"

struct web_settings {
    struct platform_settings base; /* first */
    char *title;                   /* of the page; NULL: the bot's name */
    uint32_t history;              /* messages kept per chat; 0: none */
};
extern const struct config_section web_config;
extern const struct platform_ops web_ops;
