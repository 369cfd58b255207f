/* manifest.h - the commands that gateways announce, merged for each bot.
 *
 *      hello --> manifests_hear() --changed--> a moment later, for every bot: ops->set_commands()
 *
 * A newer gateway names its commands in its hello.  The commands belong to every bot that the
 * gateway was added or provisioned for, and are stored, so a restart unregisters nothing.  Of two
 * gateways that announce the same name, the one that announced first keeps its description.  A
 * command that a gateway no longer announces goes, and so do all commands of a revoked gateway.
 *
 * Namespace "manifest", key the gateway's id, value the time of its first announcement, a blank,
 * the commands.  The host owns one struct manifests for all bots.
 */
#pragma once
#include "base/json.h"
#include "base/str.h"

#define MANIFEST_DEBOUNCE_MS 2000
#define MANIFEST_COMMANDS 100       /* of one bot: Discord and Telegram take no more */
#define MANIFEST_BYTES (64u * 1024) /* of one gateway's */
#define MANIFEST_GATEWAYS 1024      /* the commands of more gateways are not registered */

struct host;
struct manifests;

/* Reads what was announced before: blocks.  @h is borrowed. */
struct manifests *manifests_open(struct host *h);
void manifests_close(struct manifests *ms); /* NULL is fine */

/* @manifest is [{name, description, options?}]; entries that no platform takes are skipped. */
void manifests_hear(struct manifests *ms, struct str gateway, struct json manifest);
/* A gateway or a bot changed: merge again, soon. */
void manifests_look(struct manifests *ms);
