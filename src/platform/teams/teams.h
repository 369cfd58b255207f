/* teams.h - connects bots of Microsoft Teams: the Bot Framework's webhooks in, its connector out.
 *
 * The bot is the app's id in Microsoft Entra.  The route key of an event is the
 * organisation's Entra tenant, for a personal chat "dm:<person>".  docs/platforms/teams.md
 * describes the set-up. */
#pragma once
#include "platform/platform.h"

struct teams_settings {
    struct platform_settings base; /* first */
    /* `tenant` is taken: platform_settings.tenant makes a bot one tenant's of bellhop. */
    char *entra_tenant;
    char *app_password;
    char *certificate; /* path of a PEM file: private key and certificate; NULL: app_password */
};
extern const struct config_section teams_config;
extern const struct platform_ops teams_ops;
