/* ground.h - what connects an instance to a chat it was delivered something from.
 *
 * That something came from there once is no right for good: it lasts as long as what gave it.
 *
 *      the person   who wrote there is still linked to the instance
 *      the place    lies in a scope the instance still holds, and its people can see it
 *      the route    an operator's route of the place, or of its bot, still leads to the instance
 *
 * Nothing is remembered of the answer: links, scopes and routes are asked each time, so a right
 * ends with the change that ends it, and a restart makes no difference.  What has to be remembered
 * to ask is kept with the chat (chats.h): the person, and what the place was called by.
 */
#pragma once
#include "base/json.h"
#include "base/str.h"

struct buf;
struct event;
struct jw;
struct known_chat;

/* What @ev says of its chat; @owner: its author is linked to the instance.  @bot is the one it came
 * through last (empty: none), @before what was known (absent: nothing).  True: *@out has become the
 * new one, which differs from @before. */
bool ground_of(const struct event *ev, bool owner, struct str bot, struct str before,
               struct buf *out);

/* In the chat's record; one from before there was any reads as none: false, *@out is not
 * touched. */
void ground_write(struct jw *w, struct str ground); /* absent: nothing is written */
bool ground_read(struct json doc, struct buf *out);

/* Did something come through @bot, before its present one? */
bool ground_has_bot(const struct known_chat *c, struct str bot);
/* Is the instance still connected with the chat? */
bool ground_holds(const struct known_chat *c);
