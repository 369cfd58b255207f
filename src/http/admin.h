/* admin.h - shared by the operations of the operator: manage.c, admin_list.c, admin_change.c. */
#pragma once
#include "http/op.h"

/* Sets c->tenant and c->instance.  An empty @tenant: the only one that has the instance.  False:
 * the instance is unknown or ambiguous, and the error has been sent. */
bool admin_name_instance(struct op_call *c, struct str tenant, struct str instance);
void admin_time(struct jw *w, const char *key, int64_t ms); /* unix ms, or null for never */

/* The arguments of admin_name_instance(). */
#define INSTANCE_ARGS(place) \
    {"tenant", place, OP_TEXT, .what = "Whose; needed where several tenants have the instance."}, \
    { \
        "instance", place, OP_TEXT, .what = "Which instance." \
    }
