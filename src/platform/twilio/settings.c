/* settings.c - what an operator writes about a Twilio bot. */
#include <stdio.h>
#include "base/config.h"
#include "platform/twilio/twilio.h"

#define AT(member) offsetof(struct twilio_settings, member)

static const struct config_key keys[] = {
    {"account_sid", CFG_TEXT, CFG_RESTART, AT(account_sid), .what = "Account SID."},
    {"auth_token", CFG_SECRET, CFG_RESTART, AT(auth_token), .what = "Auth token."},
    {"plane", CFG_CHOICE, CFG_RESTART, AT(plane), NULL, "inbound|passthrough",
     .what = "`inbound` or `passthrough`."},
    {"api_base", CFG_TEXT, CFG_RESTART, AT(api_base),
     .what = "Another API server than the platform's own."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct twilio_settings *s = settings;

    if (s->account_sid == NULL || s->auth_token == NULL) {
        snprintf(ret_why, 256, "a twilio platform needs `account_sid` and `auth_token`");
        return false;
    }
    for (const char *p = s->account_sid; *p != '\0'; p++)
        if (!((*p >= '0' && *p <= '9') || ((*p | 32) >= 'a' && (*p | 32) <= 'z'))) {
            snprintf(ret_why, 256, "`account_sid` is no SID: letters and digits only");
            return false;
        }
    return true;
}

const struct config_section twilio_config = {.name = "twilio",
                                             .keys = keys,
                                             .size = sizeof(struct twilio_settings),
                                             .check = check};
