/* bus.h - news between bellhop processes: "gateway revoked", "facts changed", interrupts.
 *
 * Delivery is best effort and never inside publish(): whatever must not be lost is in the store,
 * the bus only says that somebody should look.  A publisher hears its own messages too, so one
 * process and many run the same code. */
#pragma once
#include "base/str.h"

struct bus;
struct clock;
struct config_section;
typedef void bus_cb(void *ctx, struct str topic, struct str message);

struct bus_ops {
    const char *name;
    void (*publish)(struct bus *b, struct str topic, struct str message); /* both copied */
    /* Exact topic.  @topic is a literal or outlives the bus. */
    void (*subscribe)(struct bus *b, const char *topic, bus_cb *cb, void *ctx);
    void (*close)(struct bus *b); /* no callback runs after this */
};
struct bus {
    const struct bus_ops *ops;
};

struct bus_settings { /* from the config, owned by it */
    char *kind;       /* "local" */
    char *url;
};
extern const struct config_section bus_config;

struct bus *bus_local_new(struct clock *clock); /* in-process: callbacks run when the turn ends */

static inline void bus_publish(struct bus *b, struct str topic, struct str message)
{
    b->ops->publish(b, topic, message);
}
static inline void bus_subscribe(struct bus *b, const char *topic, bus_cb *cb, void *ctx)
{
    b->ops->subscribe(b, topic, cb, ctx);
}
