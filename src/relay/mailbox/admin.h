/* admin.h - what operators see of the relay and do with mailboxes.
 *
 * The calls are in relay.h: status of instances, `bellhop mailbox` (show, purge, take, redrive),
 * and the removal of what one person wrote.  This header has only the reads under way. */
#pragma once

struct relay;
struct shows;

struct shows *shows_new(void);
void shows_free(struct shows *t); /* NULL is fine; the store holds none of the reads any more */
