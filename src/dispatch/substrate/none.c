/* none.c - agents that nobody carries anything to: what is delivered stays in the mailbox. */
#include "dispatch/agent.h"
#include "dispatch/substrate.h"

static const struct config_key keys[] = {{0}};
static const struct config_section config = {.keys = keys,
                                             .size = sizeof(struct agent_settings),
                                             .name = "none"};

const struct substrate_ops substrate_none = {.name = "none", .config = &config};
