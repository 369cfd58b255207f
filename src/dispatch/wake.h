/* wake.h - ringing an agent from inside: what dispatch_wake() does, for schedules. */
#pragma once
#include "dispatch/dispatch.h"

struct recipient;

/* At once; one wake per @key, however often. */
struct dispatch_call *wake_agent(struct dispatch *d, struct recipient *a, struct str session,
                                 struct str context, struct str key, dispatch_cb *done,
                                 void *ctx) BH_MUST_USE;
