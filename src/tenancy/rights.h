/* rights.h - says why an instance may use a bot: the only place that turns records into rights.
 *
 *      a person    linked to the instance through this bot
 *      a scope     gives the place to the instance
 *      a route     an operator's route gives the place, or the whole bot, to the instance
 *      a bot       an operator added the gateway for this bot, or the bot belongs to the tenant
 *
 * An operator or a person gave each of these records.  A pair that a gateway asserted while
 * provisioning or in a hello gives no right.  A bot may belong to one tenant (`tenant:` in
 * `platforms:`): for instances of another tenant every function here returns false on that bot.
 *
 * core/gate.h asks the same records for deliveries.  relay/out/guard.h asks for actions and adds
 * what the platform knows (who sees a chat).  host/host.h asks for command menus.
 */
#pragma once
#include "tenancy/grants.h"

struct right_at { /* an instance, on a bot */
    struct grant_who who;
    struct str platform, bot;
};

/* Makes a bot one tenant's own; an empty @tenant makes it everybody's.  The server calls it from
 * its configuration before the bot is opened, and nothing is stored. */
void rights_bot_belongs(struct facts *f, struct str platform, struct str bot, struct str tenant);
/* The tenant that the bot belongs to; absent: it serves every tenant. */
struct str rights_tenant_of(const struct facts *f, struct str platform, struct str bot);
/* True unless the bot belongs to another tenant. */
bool rights_may_use(const struct facts *f, const struct right_at *at);

/* The person is linked to the instance, and the link counts on this bot: never that of an id that
 * proves nobody (user_id_unproven()). */
bool right_by_person(const struct facts *f, const struct right_at *at, struct str user);
/* A scope gives the channel, or its guild, to the instance: grant_holds(). */
bool right_by_scope(const struct facts *f, const struct right_at *at, struct str guild,
                    struct str channel);
/* The operator's route that applies to a place of this bot leads to the instance.  @key is the
 * route key of the place, @former its previous one. */
bool right_by_route(const struct facts *f, const struct right_at *at, struct str key,
                    struct str former);
/* As right_by_route(), and the route is open: the instance hears everybody in the place. */
bool right_by_open(const struct facts *f, const struct right_at *at, struct str key,
                   struct str former);
/* An operator routed exactly this key to the instance or its tenant. */
bool right_by_key(const struct facts *f, const struct right_at *at, struct str key);
/* An operator gave the bot to the instance: its newest gateway was added for the bot, a route of
 * the whole bot leads to the instance, or the bot belongs to its tenant. */
bool right_by_bot(const struct facts *f, const struct right_at *at);
/* The commands of @g appear in the menu of this bot, which every user of the bot sees.  Only an
 * operator gives this right.  A gateway that was added for bots has exactly these; any other has
 * the bots that it named, while an operator's route or the bot's tenant gives the bot to it. */
bool right_to_menu(const struct facts *f, const struct gateway *g, struct str platform,
                   struct str bot);
