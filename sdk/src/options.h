/* options.h - options given by the application, checked and owned. */
#pragma once
#include "bellhop/gateway.h"

#define PLATFORM_RELAY "relay" /* what an identity without a platform is called */

/* NULL: *@to owns a complete copy.  Else a sentence saying what is wrong, and *@to is untouched. */
const char *gwc_options_copy(struct bhgw_options *to, const struct bhgw_options *from);
void gwc_options_done(struct bhgw_options *o);
