/* admin.h - shared by the operations of the operator: manage.c, admin_list.c, admin_change.c,
 * and by the dashboard. */
#pragma once
#include "http/op.h"
#include "relay/relay.h"

/* Sets c->tenant and c->instance.  An empty @tenant: the only one that has the instance.  False:
 * the instance is unknown or ambiguous, and the error has been sent. */
bool admin_name_instance(struct op_call *c, struct str tenant, struct str instance);
void admin_time(struct jw *w, const char *key, int64_t ms); /* unix ms, or null for never */

/* The argument `after` of a list, and the member "next" of its answer.  A cursor names a row
 * that may be another tenant's, so a tenant's dashboard gets it sealed and can use no other.
 * False: the caller may not have this cursor, and the error has been sent. */
#define ADMIN_GONE "What the next page begins behind is gone; begin again."
bool admin_read_cursor(struct op_call *c, struct buf *ret);
void admin_write_cursor(struct op_call *c, struct jw *w, struct str cursor);

/* What `status` says of an instance, of the store and of the bots; the first writes only members.
 * @tenant: only bots of this tenant; absent: all. */
void admin_write_instance(struct jw *w, const struct instance_view *v);
void admin_write_store(struct front *f, struct jw *w);
void admin_write_platforms(struct front *f, struct jw *w, struct str tenant);
/* An instance that has a gateway and never connected, so that the relay does not know it. */
struct instance_view admin_view_unmet(const struct front *f, struct str tenant,
                                      struct str instance);

/* The arguments of admin_name_instance(). */
#define INSTANCE_ARGS(place) \
    {"tenant", place, OP_TEXT, .what = "Whose; needed where several tenants have the instance."}, \
    { \
        "instance", place, OP_TEXT, .what = "Which instance." \
    }
