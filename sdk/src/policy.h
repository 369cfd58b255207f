/* policy.h - declaring the relevance policy: POST /relay/policy, once per platform. */
#pragma once

struct bhgw;

/* Declare gw->opt.policy for every platform of the identities but "relay", which is none.  Blocks,
 * at most connect_timeout_ms per platform; without the lock.  False: somebody did not take it, and
 * that is in the log.  Nothing to declare is true. */
bool gwc_policy_declare(struct bhgw *gw);
