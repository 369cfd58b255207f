/* replies.h - stores the messages of agents until programs read them with dispatch_replies().
 *
 * One record per reply is in the namespace "reply", key tenant \x1f agent \x1f cursor.  Cursors
 * only grow.
 *
 * Three bounds hold: the newest dispatch.replies of an agent, limits.reply_bytes of each agent and
 * of all, and the age `retention`.  Reading does not delete.  A sweep over all records counts them
 * at start and then every hour (store/sweep.h).  Until the first sweep has ended, at most an eighth
 * of limits.reply_bytes is accepted. */
#pragma once
#include "base/str.h"
#include "store/store.h"

#define REPLY_CURSOR_CHARS 16

struct dispatch;

struct reply { /* a record; borrowed for the call; absent members are unknown */
    struct str tenant, agent, content, session, correlation_id, in_reply_to, dispatch_id;
    struct str cursor, of; /* reply_keep() sets them: in the key, and the same in the value */
    int64_t sent_at_ms;    /* and this */
};

struct replies *replies_new(struct dispatch *d);
void replies_free(struct replies *t); /* NULL is fine */

/* Stores a reply; @done runs when it is on disk.  @ret_cursor is filled before the call returns,
 * NUL-terminated.  Returns NULL when there is no room; then @done does not run. */
struct store_put *reply_keep(struct dispatch *d, struct reply *r,
                             char ret_cursor[REPLY_CURSOR_CHARS + 1], store_put_cb *done,
                             void *ctx);
