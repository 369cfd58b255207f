/* proof.h - decides whether the claims of a signed token let a request speak for Teams.
 *
 *      issuer                                           the claims must have
 *      https://api.botframework.com                     aud: the bot; serviceurl: the request's
 *      https://sts.windows.net/<tenant>/                aud: the Bot Framework, or the bot;
 *      https://login.microsoftonline.com/<tenant>/v2.0  appid, azp: the bot; tid: the tenant
 *
 * auth.c calls it once the signature is verified.  Pure: no clock, no network.
 *
 * Any app of a tenant can get a token for any audience, so a token of the tenant counts only if it
 * was issued to this bot itself (appid of a v1 token, azp of a v2 token).
 */
#pragma once
#include "base/json.h"

#define TEAMS_CONNECTOR_ISSUER "https://api.botframework.com"
#define TEAMS_AUDIENCE "https://api.botframework.com"

enum teams_issuer {
    TEAMS_ISSUER_NONE, /* not one of those above */
    TEAMS_ISSUER_CONNECTOR,
    TEAMS_ISSUER_TENANT,
};

struct teams_self {
    struct str app;    /* the bot's app id */
    struct str tenant; /* the configured Entra tenant; absent: tokens of tenants are refused */
};

/* Whose token is it?  Reads claims that nobody verified yet. */
enum teams_issuer teams_issuer_of(struct json claims, const struct teams_self *self);
/* What is wrong with the verified claims, a sentence for the log; NULL: nothing.  @service_url is
 * that of the activity. */
const char *teams_claims_wrong(struct json claims, enum teams_issuer by,
                               const struct teams_self *self, struct str service_url);

/* May the bot's token go to @url?  Only to hosts of Teams, and to that of @api_base, the configured
 * address; absent: none is. */
bool teams_is_own_url(struct str url, struct str api_base);
bool teams_is_guid(struct str s); /* 8-4-4-4-12 hex digits */
