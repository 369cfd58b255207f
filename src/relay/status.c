/* status.c - what can be seen of the relay from outside: counters, and instances one by one. */
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/session/session.h"
#include "tenancy/facts.h"

const struct relay_counters *relay_counters(const struct relay *r)
{
    return &r->n;
}

const char *relay_state_name(enum relay_state s)
{
    static const char *const names[] = {[RELAY_NONE] = "none",
                                        [RELAY_NEVER] = "never",
                                        [RELAY_ASLEEP] = "asleep",
                                        [RELAY_AWAY] = "away",
                                        [RELAY_LIVE] = "live"};

    return names[s];
}

enum relay_state relay_state(struct relay *r, struct str tenant, struct str instance)
{
    const struct instance *i = instance_find(r, tenant, instance);

    return i != NULL ? instance_state(i) : RELAY_NEVER;
}

static size_t count_sessions(const struct instance *i)
{
    size_t n = 0;

    for (const struct list *it = i->sessions.next; it != &i->sessions; it = it->next)
        n++;
    return n;
}

static int64_t oldest_ms(const struct instance *i)
{
    for (uint32_t at = 0; at < i->mb.n; at++)
        if ((mailbox_at(&i->mb, at)->flags & SLOT_GONE) == 0)
            return (int64_t)mailbox_at(&i->mb, at)->at_s * 1000;
    return 0;
}

static void view(struct instance *i, struct instance_view *ret)
{
    const struct facts *facts = i->relay->env.facts;
    const struct gateway *gw = facts_newest_gateway(facts, instance_tenant(i), instance_id(i));

    *ret = (struct instance_view){
        .tenant = instance_tenant(i),
        .instance = instance_id(i),
        .state = relay_state_name(instance_state(i)),
        .sessions = count_sessions(i),
        .entries = mailbox_entries(&i->mb),
        .bytes = mailbox_bytes(&i->mb),
        .unacked = i->receiver != NULL ? flight_rows(i->receiver->flight) : 0,
        .parked = i->mb.parked,
        .oldest_ms = oldest_ms(i),
        .last_inbound_ms = i->last_inbound_ms,
        .last_outbound_ms = i->last_outbound_ms,
        .asleep_since_ms = i->sleep.asleep ? i->sleep.since_ms : 0,
        .last_poke_ms = i->wake.last_wall_ms,
        .wake_url = facts_wake_url(facts, instance_tenant(i), instance_id(i)) != NULL,
        .last_poke_problem = i->wake.problem,
        .display_name = gw != NULL ? gw->display_name : NULL,
    };
}

bool relay_next_instance(struct relay *r, uint32_t *pos, struct instance_view *ret)
{
    struct instance *i = instance_after(r, *pos);

    if (i == NULL)
        return false;
    *pos = i->box;
    view(i, ret);
    return true;
}

void relay_tally(struct relay *r, struct relay_tally *ret)
{
    *ret = (struct relay_tally){0};
    list_each (instances_by_age(r), it, nxt) {
        const struct instance *i = list_entry(it, struct instance, link);
        int64_t oldest = oldest_ms(i);
        ret->in_state[instance_state(i)]++;
        ret->sessions += count_sessions(i);
        ret->entries += mailbox_entries(&i->mb);
        ret->bytes += mailbox_bytes(&i->mb);
        ret->unacked += i->receiver != NULL ? flight_rows(i->receiver->flight) : 0;
        ret->parked += i->mb.parked;
        if (oldest != 0 && (ret->oldest_ms == 0 || oldest < ret->oldest_ms))
            ret->oldest_ms = oldest;
    }
}

bool relay_instance(struct relay *r, struct str tenant, struct str instance,
                    struct instance_view *ret)
{
    struct instance *i = instance_find(r, tenant, instance);

    if (i != NULL)
        view(i, ret);
    return i != NULL;
}
