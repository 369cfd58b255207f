/* request.h - the table of requests that wait for an answer.
 *
 * replies.c reports what agents do in the chats of the relay, and what they post as replies: with a
 * key and a correlation_id, or to the request's own reply URL.  A reply URL ends with a capability:
 * the request's number and a random secret.  The URL is good until a final reply, or until the
 * request is forgotten.  The table borrows the calls.
 *
 * Mail that waits names the URLs, so they outlive a restart.  A record in the namespace "asked",
 * key tenant \x1f number, has what a reply needs, and a hash of the capability.  After a restart
 * such a request is late: a reply is kept, with nobody to take it. */
#pragma once
#include "base/str.h"

struct asked;
struct asking;
struct dispatch;
struct reply;
struct dispatch_who;

void asked_open(struct dispatch *d); /* makes d->asked; blocks while it reads the records */
/* From now on calls end because bellhop stops: their URLs stay good. */
void asked_stop(struct asked *t);
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

/* The request of a reply URL.  NULL: there is none, or its answer is complete. */
struct asking *asked_by_url(struct dispatch *d, struct str capability);
/* Forgets the late requests of a tenant; their records are gone. */
void asked_forget(struct asked *t, struct str tenant);
/* The oldest request with this correlation_id whose answer is not complete, among the agents that
 * @who may answer for; @agent absent: any of them.  NULL: none. */
struct asking *asked_by_correlation(struct dispatch *d, const struct dispatch_who *who,
                                    struct str correlation_id, struct str agent);
/* Sets tenant, agent, session, correlation_id and dispatch_id of @ret, borrowed from @w. */
void asked_describe(const struct asking *w, struct reply *ret);
bool asked_is_late(const struct asking *w); /* its caller was told that the time is over */
