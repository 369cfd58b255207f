/* post.h - into an agent's mailbox. */
#pragma once
#include "core/accept.h"

struct recipient;
struct payload;

/* As relay_deliver(): @done when it is on disk.  @may_wake: a sleeper is rung for it. */
struct accept_id post_payload(struct recipient *a, const struct payload *p, bool may_wake,
                              int64_t *ret_known_ms, accepted_cb *done, void *ctx);

/* Is anybody there to take mail now?  NULL: yes; else a phrase that says where it waits. */
const char *post_waits(struct recipient *a);
