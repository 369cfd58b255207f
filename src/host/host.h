/* host.h - the open platforms, and the wiring between them and the relay.
 *
 *      platform --host_accept()--> relay
 *      relay --outside--> sender --> platform --host_result()--> relay
 *
 * The server builds the host before the relay, because the relay is handed the outside, and calls
 * host_set_relay() afterwards.  What adapters call (host_*) is declared in platform/platform.h.
 */
#pragma once
#include "platform/platform.h"

struct facts;
struct outlet;
struct outside;
struct relay;

/* @env and @facts are borrowed for the life of the host. */
struct host *host_new(const struct host_env *env, struct facts *facts);
void host_set_relay(struct host *h, struct relay *r); /* NULL: the relay is gone */
/* Files can be sent and received from now on: after the relay, before platforms are opened.  NULL:
 * the media goes. */
struct media;
void host_set_media(struct host *h, struct media *m);
struct outside *host_outside(struct host *h); /* borrowed */

/* Open one bot; @cfg is borrowed as long as the host lives.  @ret_why has 256 bytes. */
enum bh_err host_open_platform(struct host *h, const struct platform_settings *cfg,
                               char *ret_why) BH_MUST_USE;
void host_close_platforms(struct host *h); /* newest first */
void host_free(struct host *h);            /* closes what is open */

/* Serves chats that are on no platform (the agents' mail): @act performs actions there and answers
 * with relay_result().  @outlet and @ctx are borrowed until host_set_mail(NULL). */
typedef void host_act_cb(void *ctx, struct action_id id, const struct action_from *from,
                         const struct action *a);
void host_set_mail(struct host *h, const struct outlet *outlet, host_act_cb *act, void *ctx);

/* Does an outbox still need the file that it holds under @row (SENDER_FILE_ROW)? */
bool host_outbox_holds(const struct host *h, uint64_t row);

/* May @user manage this channel, as far as a bot of the platform can tell? */
bool host_manages(const struct host *h, struct str platform, struct str guild, struct str channel,
                  struct str user);
struct platform *host_platform(const struct host *h, struct str platform, struct str bot);
