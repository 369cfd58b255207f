/* inside.c - agents that live in this program.  (inside.h has the contract.)
 *
 * relay_deliver() is in accept.c, beside the other ways in. */
#include "relay/in/inside.h"
#include "base/hash.h"
#include "relay/mailbox/delivery.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "store/store.h"

struct session *session_open_inside(struct relay *r, const struct gateway *gw, struct wire *wire)
{
    struct session *s = session_open(r, gw, wire);

    if (s == NULL)
        return NULL;
    s->inside = true;
    timer_stop(r->env.clock, &s->tick);
    return s;
}

bool session_failed(struct session *s, struct str buffer_id, struct str why, bool park)
{
    struct instance *i = s->inst;
    struct relay *r = i->relay;
    uint64_t tag = hash64(&r->env.store->dedup_key, buffer_id);
    uint64_t id = sent_ids_take(&i->sent, tag);
    struct slot *slot = id != 0 ? mailbox_find(&i->mb, id) : NULL;

    if (slot == NULL)
        return true; /* purged meanwhile: there is nothing to try again */
    if (slot->attempts < SLOT_MAX_ATTEMPTS)
        slot->attempts++;
    if (!park && slot->attempts < r->lim.max_attempts) {
        sent_ids_add(&i->sent, &i->mb, tag, id);
        delivery_mark(i, slot, STR_NULL);
        return false;
    }
    session_park(s, slot, why);
    pump_want(i);
    return true;
}
