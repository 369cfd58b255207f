/* host.h - opens the bots, and connects their platform adapters to the relay.
 *
 *      platform --host_accept()--> relay
 *      relay --outside--> sender --> platform --host_result()--> relay
 *
 * The server creates the host before the relay, because the relay needs host_outside(), and calls
 * host_set_relay() afterwards.  platform/platform.h declares the host_*() calls for adapters.  The
 * host owns the open bots.  It never queues or retries events and actions.
 */
#pragma once
#include "platform/platform.h"
#include "tenancy/grants.h"

struct outlet;
struct relay;

/* @env and @facts are borrowed for the life of the host. */
struct host *host_new(const struct host_env *env, struct facts *facts);
void host_set_relay(struct host *h, struct relay *r); /* NULL: before the relay is freed */
/* Enables files and context for waiting events.  Call after host_set_relay() and before opening
 * platforms; call with NULL before freeing the media and the host. */
void host_set_media(struct host *h, struct media *m);
struct outside *host_outside(struct host *h); /* borrowed */

/* Opens one bot; @cfg is borrowed for the life of the host.  @ret_why has 256 bytes. */
enum bh_err host_open_platform(struct host *h, const struct platform_settings *cfg,
                               char *ret_why) BH_MUST_USE;
/* The same with other ops than those of the platform: testbots.h.  @ops is borrowed. */
enum bh_err host_open_ops(struct host *h, const struct platform_ops *ops,
                          const struct platform_settings *cfg, char *ret_why) BH_MUST_USE;
void host_close_platforms(struct host *h); /* newest first */
void host_free(struct host *h);            /* closes open platforms; NULL is fine */

/* Sets the outlet of the agents' mail, whose chats are on no platform.  @act performs its actions
 * and answers with relay_result().  @outlet and @ctx are borrowed until the next call; NULL removes
 * the outlet. */
typedef void host_act_cb(void *ctx, struct action_id id, const struct action_from *from,
                         const struct action *a);
void host_set_mail(struct host *h, const struct outlet *outlet, host_act_cb *act, void *ctx);

/* Watches what gateways do, for testbots.h.  @w is borrowed for the life of the host. */
struct host_watch {
    /* No open bot has this name, which a gateway or an event gave.  True: there is one now. */
    bool (*missing)(struct host_watch *w, struct str platform, struct str bot);
    void (*acked)(struct host_watch *w, struct str tenant, struct str instance,
                  struct str buffer_id);
    void (*changed)(struct host_watch *w, struct str tenant, struct str instance,
                    const char *state);
};
void host_set_watch(struct host *h, struct host_watch *w);

/* A route or a gateway changed: the menus of the bots are merged again soon. */
void host_facts_changed(struct host *h);

/* True while the outbox of an open bot needs the file it holds under @row (SENDER_FILE_ROW). */
bool host_outbox_holds(const struct host *h, uint64_t row);

/* True when an open bot knows that a person, linked to the instance on that bot, may manage the
 * place. */
bool host_manages(const struct host *h, struct grant_who who, struct grant_place at);
/* The only open bot of a platform; absent: there is none, or there are several. */
struct str host_only_bot(const struct host *h, struct str platform);
struct platform *host_platform(const struct host *h, struct str platform, struct str bot);
/* The bot whose webhooks come under @id (platform_id()) by this host name: the bot that is bound to
 * the name, else the one that is bound to none.  NULL: there is none. */
struct platform *host_webhook(const struct host *h, struct str platform, struct str id,
                              struct str host);
