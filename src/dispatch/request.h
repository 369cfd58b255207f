/* request.h - the table of requests that wait for an answer in a chat of the relay.
 *
 * replies.c calls asked_answer() for every message an agent sends.  The table borrows the calls. */
#pragma once
#include "base/buf.h"
#include "base/str.h"

struct dispatch;

struct asked *asked_new(void);
void asked_free(struct asked *t); /* NULL is fine; calls_free() comes first */

/* An agent sent @content to @chat_id.  True when it answers a request: the request whose message
 * @reply_to names, or, when @reply_to is empty, the oldest of the chat.  The request's ids are
 * appended to @ret_correlation and @ret_dispatch.  Its caller is answered later. */
bool asked_answer(struct dispatch *d, struct str tenant, struct str chat_id, struct str reply_to,
                  struct str content, struct buf *ret_correlation, struct buf *ret_dispatch);
