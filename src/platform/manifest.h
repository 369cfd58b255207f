/* manifest.h - merges the commands that gateways announce, and registers them for each bot.
 *
 *      hello --> manifests_hear() --changed, debounced--> for every bot: ops->set_commands()
 *
 * Newer gateways announce commands in their hello.  The commands belong to every bot that an
 * operator gave to the gateway (tenancy/rights.h); a bot that a gateway only named while
 * provisioning shows none of them.  They are stored, so a restart unregisters nothing.  Of two
 * gateways that announce the same name, the one that announced first keeps its description.
 * Commands that a gateway no longer announces are unregistered, and so are all commands of a
 * revoked gateway.
 *
 * The host owns one struct manifests for all bots.
 */
#pragma once
#include "base/json.h"
#include "base/str.h"

#define MANIFEST_DEBOUNCE_MS 2000
#define MANIFEST_COMMANDS 100       /* of one bot: Discord and Telegram take no more */
#define MANIFEST_BYTES (64u * 1024) /* of one gateway's commands */
#define MANIFEST_GATEWAYS 1024      /* the commands of more gateways are not registered */

struct host;
extern const struct record_form manifest_form;

/* Reads the stored commands: blocks.  @h is borrowed. */
struct manifests *manifests_open(struct host *h);
void manifests_close(struct manifests *ms); /* NULL is fine */

/* Takes the announcement of a gateway: [{name, description, options?}].  Entries that no platform
 * accepts are skipped. */
void manifests_hear(struct manifests *ms, struct str gateway, struct json manifest);
/* Merges again after MANIFEST_DEBOUNCE_MS.  Called when a gateway or a bot changed. */
void manifests_look(struct manifests *ms);
