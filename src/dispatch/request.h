/* request.h - the table of requests that wait for an answer in a chat of the relay.
 *
 * replies.c reports what agents do in these chats.  The table borrows the calls. */
#pragma once
#include "base/str.h"

struct asking;
struct dispatch;
struct reply;

struct asked *asked_new(void);
void asked_free(struct asked *t); /* NULL is fine; calls_free() comes first */

/* The request that a message of an agent in @chat_id belongs to: the one whose message @reply_to
 * names, or, when @reply_to is empty, the oldest of the chat whose turn is not over.  Sets the
 * correlation_id and dispatch_id of @ret, borrowed from the request.  NULL: none. */
struct asking *asked_find(struct dispatch *d, struct str tenant, struct str chat_id,
                          struct str reply_to, struct reply *ret);
/* The message is part of the request's answer; turn.h has the rest. */
void asked_say(struct asking *w, struct str message_id, struct str content, bool final);
void asked_edit(struct dispatch *d, struct str tenant, struct str chat_id, struct str message_id,
                struct str content, bool final);
void asked_typing(struct dispatch *d, struct str tenant, struct str chat_id);
