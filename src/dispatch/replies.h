/* replies.h - what agents say, kept until it is read: never lost for want of a platform.
 *
 * A record per reply in the namespace "reply", key tenant \x1f agent \x1f cursor; cursors grow for
 * ever.
 *
 * Kept are the newest dispatch.replies of an agent, at most limits.reply_bytes of it and of all,
 * none older than `retention`.  A pass over all records counts them, at the start and every hour
 * (store/sweep.h); until the first pass is over an eighth of what is allowed is kept anew. */
#pragma once
#include "base/str.h"
#include "store/store.h"

#define REPLY_CURSOR_CHARS 16

struct dispatch;
struct replies;

struct reply { /* borrowed for the call; absent: not known */
    struct str tenant, agent;
    struct str content;
    struct str session, correlation_id, in_reply_to, dispatch_id;
};

struct replies *replies_new(struct dispatch *d);
void replies_free(struct replies *t); /* NULL is fine */

/* @done when it is on disk.  @ret_cursor is filled before the call returns, with a NUL.  NULL:
 * there is no room for it, and @done does not run. */
struct store_put *reply_keep(struct dispatch *d, const struct reply *r,
                             char ret_cursor[REPLY_CURSOR_CHARS + 1], store_put_cb *done,
                             void *ctx);
