/* bus.h - news between bellhop processes: "gateway revoked", "facts changed", interrupts.
 *
 * Delivery is best effort and never inside publish(): whatever must not be lost is in the store,
 * the bus only says that somebody should look.  A publisher hears its own messages too, once, also
 * while the others cannot be reached, so one process and many run the same code. */
#pragma once
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

struct bus;
struct clock;
struct config_section;
struct loop;
typedef void bus_cb(void *ctx, struct str topic, struct str message);
typedef void bus_lost_cb(void *ctx);

struct bus_ops {
    const char *name;
    void (*publish)(struct bus *b, struct str topic, struct str message); /* both copied */
    /* Exact topic.  @topic is a literal or outlives the bus. */
    void (*subscribe)(struct bus *b, const char *topic, bus_cb *cb, void *ctx);
    /* What others publish is not heard just now: look into the store instead. */
    bool (*is_deaf)(const struct bus *b);
    /* @cb runs whenever messages of others may have been missed: when we hear again after having
     * been deaf. */
    void (*on_lost)(struct bus *b, bus_lost_cb *cb, void *ctx);
    void (*close)(struct bus *b); /* no callback runs after this */
    /* Whose news these are, the same for all processes on one store: others that use the same
     * server and prefix by mistake are not heard.  Before the first publish(); NULL: there are no
     * others. */
    void (*belong)(struct bus *b, uint32_t whose);
};
struct bus {
    const struct bus_ops *ops;
};

struct bus_settings { /* from the config, owned by it */
    char *kind;       /* "local", "redis" */
    char *url;
    char *prefix; /* of every channel: two clusters on one server must not hear each other */
    char *ca;     /* PEM file for rediss://; NULL: the system's authorities */
};
extern const struct config_section bus_config;

struct bus *bus_local_new(struct clock *clock); /* in-process: callbacks run when the turn ends */
/* The one that is configured.  A server that cannot be reached is tried again and again, and until
 * then this process hears itself.  BH_MALFORMED: the address is none; @ret_why has 256 bytes. */
enum bh_err bus_open(struct loop *loop, const struct bus_settings *settings, struct bus **ret_b,
                     char *ret_why) BH_MUST_USE;

static inline void bus_publish(struct bus *b, struct str topic, struct str message)
{
    b->ops->publish(b, topic, message);
}
static inline void bus_subscribe(struct bus *b, const char *topic, bus_cb *cb, void *ctx)
{
    b->ops->subscribe(b, topic, cb, ctx);
}
static inline void bus_belong(struct bus *b, uint32_t whose)
{
    if (b->ops->belong != NULL)
        b->ops->belong(b, whose);
}
static inline bool bus_is_deaf(const struct bus *b)
{
    return b->ops->is_deaf(b);
}
static inline void bus_on_lost(struct bus *b, bus_lost_cb *cb, void *ctx)
{
    b->ops->on_lost(b, cb, ctx);
}
