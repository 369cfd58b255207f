/* manifest.h - the commands that gateways announce, put together for each bot.
 *
 * A newer gateway names its commands when it says hello.  They are for every bot it was added or
 * provisioned for, and kept (namespace "manifest", key the gateway's id, value when it announced
 * any for the first time, a blank, the commands), so that a restart of ours unregisters nothing.
 * Of two gateways with a command of one name the one that announced first keeps its words.  What a
 * gateway leaves out next time, and all of a revoked one, goes.
 *
 *      hello --> manifests_hear() --changed--> a moment later, for every bot: ops->set_commands()
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

#define MANIFEST_DEBOUNCE_MS 2000
#define MANIFEST_COMMANDS 100       /* of one bot: what Discord and Telegram take */
#define MANIFEST_BYTES (64u * 1024) /* of one gateway's */
#define MANIFEST_GATEWAYS 1024      /* that are listened to */

struct clock;
struct facts;
struct host;
struct manifests;
struct store;

/* Reads what was announced before: blocks.  @facts and the others are borrowed. */
struct manifests *manifests_open(struct host *h, struct clock *clock, struct store *store,
                                 struct facts *facts);
void manifests_close(struct manifests *ms); /* NULL is fine */

/* @manifest is [{name, description, options?}]; entries that no platform would take are
 * left out. */
void manifests_hear(struct manifests *ms, struct str gateway, struct json manifest);
/* Something about gateways or bots changed: look again, soon. */
void manifests_look(struct manifests *ms);
