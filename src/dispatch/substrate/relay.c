/* relay.c - the substrates without a courier: "relay", where the relay delivers to the agent's
 * gateway, and "none", where mail stays in the mailbox. */
#include "dispatch/agent.h"
#include "dispatch/substrate.h"

static const struct config_key keys[] = {
    {"instance", CFG_TEXT, CFG_RELOAD, offsetof(struct agent_settings, instance),
     .what = "The instance whose gateway gets the deliveries; the default is the agent's id."},
    {0},
};
static const struct config_section config = {.keys = keys,
                                             .size = sizeof(struct agent_settings),
                                             .name = "relay"};

const struct substrate_ops substrate_relay = {.name = "relay",
                                              .config = &config,
                                              .can = SUBSTRATE_RINGS | SUBSTRATE_ANSWERS |
                                                     SUBSTRATE_RELAYED};

static const struct config_key none_keys[] = {{0}};
static const struct config_section none_config = {.keys = none_keys,
                                                  .size = sizeof(struct agent_settings),
                                                  .name = "none"};

const struct substrate_ops substrate_none = {.name = "none", .config = &none_config};
