/* carry.h - actions that carry a file: first the file, then the action.
 *
 * `source_url` names a file that the tenant may read here, or one at a public address, which is
 * fetched first.  A foreign address that looks like one of ours is never asked: the newer gateways
 * send their credential to whatever looks so.
 *
 *      send_media --ours--> act()
 *                 --public--> media_fetch --there--> act()   '--not there--> a failure, in words
 */
#pragma once
#include "platform/platform.h"

struct carries;
struct media;

struct carries *carries_new(const struct host_env *env, struct media *media); /* borrowed */
void carries_free(struct carries *c);                                         /* NULL is fine */

/* Calls p->ops->act() with a file, now or later, or reports why not. */
void carry_act(struct carries *c, struct platform *p, struct action_id id,
               const struct action_from *from, const struct action *a);
/* True: a file that the same instance sends to @a's chat is being fetched, and @a, a text, follows
 * it: people read both in the order they were said in. */
bool carry_waits(struct carries *c, struct platform *p, struct action_id id,
                 const struct action_from *from, const struct action *a);
/* @p closes: whoever waits is told. */
void carry_drop(struct carries *c, struct platform *p);
