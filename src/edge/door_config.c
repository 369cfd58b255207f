/* door_config.c - `webhooks:` in the configuration. */
#include "base/config.h"
#include "edge/door.h"

#define AT(member) offsetof(struct door_limits, member)

static const struct config_key keys[] = {
    {"webhooks.refused_per_source", CFG_NUMBER, CFG_RELOAD, AT(refusals), "50", .max = 1000000,
     .what = "Webhooks with a wrong signature that one address may send per second (ten times that "
             "at once) before it is told to wait; 0 is no limit."},
    {"webhooks.requests_per_bot", CFG_NUMBER, CFG_RELOAD, AT(requests), "2000", .max = 1000000,
     .what = "Webhooks per second (twice that at once) whose signature is looked at, per bot; 0 is "
             "no limit."},
    {0},
};
const struct config_section door_config = {.keys = keys, .size = sizeof(struct door_limits)};
