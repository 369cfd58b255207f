/* admin.h - status and mailbox commands for operators.
 *
 * relay.h declares the calls: status of instances, `bellhop mailbox` (show, purge, take, redrive),
 * and the removal of one person's mail.  This header has only struct shows, the pending reads. */
#pragma once

struct relay;
struct shows;

struct shows *shows_new(void);
void shows_free(struct shows *t); /* NULL is fine; the store must be closed */
