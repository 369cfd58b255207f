/* request.h - requests that wait for an answer in a chat of the relay. */
#pragma once
#include "base/buf.h"
#include "base/str.h"

struct asked;
struct dispatch;

struct asked *asked_new(void);
void asked_free(struct asked *t); /* NULL is fine; the calls are gone already */

/* An agent said @content in @chat_id.  True when that answers a request: the one whose message
 * @reply_to names, else the oldest of that chat; its correlation_id and dispatch_id are appended,
 * and whoever waits is answered when the turn ends. */
bool asked_answer(struct dispatch *d, struct str tenant, struct str chat_id, struct str reply_to,
                  struct str content, struct buf *ret_correlation, struct buf *ret_dispatch);
