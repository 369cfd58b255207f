/* limits.c - what an operator may set of struct relay_limits. */
#include "base/config.h"
#include "relay/relay.h"

#define AT(member) offsetof(struct relay_limits, member)

static const struct config_key delivery_keys[] = {
    {"delivery.window", CFG_NUMBER, CFG_RELOAD, AT(window), "8", .min = 1, .max = 64,
     .what = "Unacknowledged WebSocket messages per socket. Gateways stop reading at 16."},
    {"delivery.live_acks", CFG_BOOL, CFG_RELOAD, AT(live_acks), "true",
     .what = "Put a `bufferId` on every delivery, so that live ones are acknowledged too. Off, a "
             "delivery counts as taken when the gateway's socket answered a ping behind it: "
             "weaker, a gateway that crashes just then loses it."},
    {"delivery.max_mailbox_bytes", CFG_BYTES, CFG_RELOAD, AT(max_mailbox_bytes), "1GiB",
     .min = 1 << 16, .what = "Waiting bytes per instance; past it events are refused as busy."},
    {"delivery.max_attempts", CFG_NUMBER, CFG_RELOAD, AT(max_attempts), "10", .min = 1,
     .max = 1000000, .what = "Times a delivery is sent before it is parked with its reason."},
    {"delivery.ack_patience", CFG_DURATION, CFG_RELOAD, AT(ack_patience_ms), "90s", .min = 1000,
     .max = 3600000,
     .what = "A gateway that acknowledges nothing for this long is treated as away."},
    {"delivery.dedup", CFG_DURATION, CFG_RELOAD, AT(dedup_ms), "24h", .min = 60000,
     .max = 180 * INT64_C(86400000),
     .what = "How long a platform's event id is remembered against repeats."},
    {"wake.cooldown", CFG_DURATION, CFG_RELOAD, AT(wake_cooldown_ms), "30s", .min = 100,
     .max = 86400000, .what = "At most one poke per instance in this time."},
    {0},
};
const struct config_section relay_config = {.keys = delivery_keys,
                                            .size = sizeof(struct relay_limits),
                                            .defaults = &relay_limits_default};

static const struct config_key rate_keys[] = {
    {"limits.instance_actions", CFG_NUMBER, CFG_RELOAD, AT(instance_actions), "200", .max = 1000000,
     .what = "Actions per second of one instance, five times that at once; 0 is no limit."},
    {"limits.tenant_actions", CFG_NUMBER, CFG_RELOAD, AT(tenant_actions), "1000", .max = 1000000,
     .what = "The same for all instances of a tenant together."},
    {"limits.instance_chats", CFG_NUMBER, CFG_RELOAD, AT(max_instance_chats), "1000000", .min = 1,
     .max = 100000000,
     .what = "Chats remembered of one instance; past it those it heard nothing from for longest "
             "are forgotten, and it may not write there before it hears from them again."},
    {0},
};
const struct config_section relay_rate_config = {.keys = rate_keys, .into = &relay_config};
