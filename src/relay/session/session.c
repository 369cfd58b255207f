/* session.c - design.  (session.h has the contract and the picture.)
 *
 * One timer per session serves every deadline: it is armed for the nearest and checks all of them
 * when it fires.
 *
 * One handler per frame type.  The WebSocket upgrade has authenticated the gateway; no frame
 * changes its identity.  A closing session still processes acks: each ack saves a duplicate. */
#include "relay/session/session.h"
#include <assert.h>
#include <stdlib.h>
#include "base/observers.h"
#include "base/uncleared.h"
#include "relay/heart.h"
#include "relay/in/inside.h"
#include "relay/in/commands.h"
#include "relay/log_limit.h"
#include "relay/mailbox/mailbox.h"
#include "relay/out/requests.h"
#include "relay/session/pump.h"
#include "relay/sleep/instance.h"
#include "relay/sleep/sleep.h"
#include "store/store.h"
#include "tenancy/facts.h"

#define B(state) (1u << SESSION_##state)
static const struct {
    const char *name;
    unsigned next; /* bit set of states that may follow */
} states[] = {
    [SESSION_NEW] = {"new", B(RECEIVING) | B(ASLEEP) | B(CLOSING)},
    [SESSION_RECEIVING] = {"receiving", B(MUTE) | B(DEAF) | B(ASLEEP) | B(OLD) | B(CLOSING)},
    [SESSION_MUTE] = {"mute", B(RECEIVING) | B(DEAF) | B(ASLEEP) | B(OLD) | B(CLOSING)},
    [SESSION_DEAF] = {"deaf", B(RECEIVING) | B(ASLEEP) | B(OLD) | B(CLOSING)},
    [SESSION_ASLEEP] = {"asleep", B(RECEIVING) | B(CLOSING)},
    [SESSION_OLD] = {"old", B(RECEIVING) | B(ASLEEP) | B(CLOSING)},
    [SESSION_CLOSING] = {"closing", 0},
};

#define DROPS_MS 3000 /* an older Hermes has started 1.0 to 1.6 s after it dialled */
#define RECEIVERS (B(RECEIVING) | B(MUTE) | B(DEAF))

struct sessions {
    struct list by_age;
    uint32_t newest;  /* number of the newest session */
    uint32_t met;     /* how often a session has become a receiver by its hello */
    struct map acked; /* ids of gateways that have acked; keys and values owned */
    struct log_limit log_malformed;
};

struct sessions *sessions_new(void)
{
    struct sessions *t = xcalloc(1, sizeof *t);

    list_init(&t->by_age);
    return t;
}

struct list *sessions_by_age(struct relay *r)
{
    return &r->sessions->by_age;
}

uint32_t session_newest(const struct relay *r)
{
    return r->sessions->newest;
}

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct session *s = container_of(log, const struct session, log);

    buf_printf(out, "session=%u gateway=%s instance=%.*s ", s->number, s->gw->id,
               STR_FMT(instance_id(s->inst)));
}

void session_enter(struct session *s, enum session_state next)
{
    assert((states[s->state].next & (1u << next)) != 0);
    log_debug(&s->log, "%s -> %s", states[s->state].name, states[next].name);
    bool kept = (RECEIVERS & 1u << s->state) != 0, keep = (RECEIVERS & 1u << next) != 0;
    s->state = (uint8_t)next;
    instance_touch(s->inst);
    if (next == SESSION_CLOSING && s->inst->relay->draining)
        keep = kept; /* the next process shall have the socket as it is */
    if (kept != keep && s->wire->ops->keep != NULL)
        s->wire->ops->keep(s->wire, keep, (uint64_t)s->inst->relay->life << 32 | s->inst->met_no);
}

static int64_t now_ms(const struct session *s)
{
    return clock_now_ms(s->inst->relay->env.clock);
}

/* ---- acking ----
 *
 * A gateway that is slow to answer must not be mistaken for a gateway that never acks.  The proof
 * is: answers to ANSWERS_PROVE different deliveries, ANSWER_AGE_MS without an ack, and no ack from
 * any socket of the gateway since the start.  A gateway that acks does so long before that. */

enum {
    ANSWER_AGE_MS = 5000,
    ANSWERS_PROVE = 2,
};

static bool has_acked(const struct session *s)
{
    return s->acking.acked || map_get(&s->inst->relay->sessions->acked, str_of(s->gw->id)) != NULL;
}

static void first_ack(struct session *s)
{
    struct relay *r = s->inst->relay;

    s->acking.acked = true;
    if (s->acking.never || s->gw->ackless)
        facts_gateway_set_ackless(r->env.facts, str_of(s->gw->id), false);
    s->acking.never = false;
    if (map_get(&r->sessions->acked, str_of(s->gw->id)) == NULL) {
        char *id = xstrdup(s->gw->id);
        map_put(&r->sessions->acked, str_of(id), id);
    }
}

static void stop_waiting(struct session *s)
{
    log_info(&s->log,
             "this gateway never acknowledges: deliveries are settled once it has read them");
    s->acking.never = true;
    facts_gateway_set_ackless(s->inst->relay->env.facts, str_of(s->gw->id), true);
    if (s->flight == NULL)
        return;
    pump_soften(s, s->sent_id);
    s->ack_since_ms = now_ms(s);
}

/* True when this answer completes the proof that the gateway never acks (see above). */
static bool proves(struct session *s, struct str reply_to)
{
    struct acking_signs *a = &s->acking;

    if (a->never || has_acked(s) || flight_rows(s->flight) < ANSWERS_PROVE ||
        now_ms(s) - s->ack_since_ms < ANSWER_AGE_MS)
        return false;
    uint32_t hash = (uint32_t)hash64(&s->inst->relay->env.store->dedup_key, reply_to);
    if (a->answers > 0 && hash == a->answer_hash)
        return false;
    a->answer_hash = hash;
    return ++a->answers >= ANSWERS_PROVE;
}

static void acks_late(struct session *s)
{
    s->late_acks = true;
    first_ack(s); /* it does ack */
    if (s->state == SESSION_DEAF)
        session_alive(s, true);
}

/* Detects a gateway that answers deliveries without acking them. */
static void look_for_acks(struct session *s, const struct action *a)
{
    s->acking.spoke = true;
    if (a->op != ACTION_SEND || a->reply_to.n == 0)
        return;
    if (s->state == SESSION_DEAF && !s->acking.never && !has_acked(s)) { /* slow, not dead */
        stop_waiting(s);
        session_alive(s, true);
    } else if (proves(s, a->reply_to)) {
        stop_waiting(s);
    }
}

/* ---- pings, pongs and deadlines ---- */

void session_ping(struct session *s)
{
    if (s->ping_no == s->pong_no)
        s->quiet_since_ms = now_ms(s);
    s->wire->ops->ping(s->wire, ++s->ping_no);
}

static int64_t settle_ms(const struct session *s)
{
    int64_t given = s->inst->relay->lim.settle_ms;

    return s->gw->drops && given < DROPS_MS ? DROPS_MS : given;
}

bool session_settles(const struct session *s)
{
    return !s->gw->newer && !s->inside && s->state == SESSION_RECEIVING &&
           now_ms(s) - s->since_ms < settle_ms(s);
}

void session_arm(struct session *s)
{
    const struct relay_limits *lim = &s->inst->relay->lim;
    int64_t now = now_ms(s), due = s->next_ping_ms, far = 3 * lim->ack_patience_ms;
    int64_t deadlines[] = {due, due, due, due};

    if (s->inside || s->state == SESSION_CLOSING)
        return; /* inside there is no socket to ping, and no ack deadline */
    if (s->ping_no != s->pong_no)
        deadlines[0] =
            s->quiet_since_ms + (s->state == SESSION_RECEIVING ? lim->pong_patience_ms : far);
    if (flight_count(s->flight) > 0 && !s->late_acks && s->state != SESSION_OLD &&
        s->state != SESSION_ASLEEP)
        deadlines[1] = s->ack_since_ms + (s->state == SESSION_DEAF ? far : lim->ack_patience_ms);
    if (s->state == SESSION_OLD || s->state == SESSION_NEW)
        deadlines[2] = s->since_ms + lim->old_socket_ms;
    if (session_settles(s))
        deadlines[3] = s->since_ms + settle_ms(s);
    for (size_t k = 0; k < ARRAY_LEN(deadlines); k++)
        due = deadlines[k] < due ? deadlines[k] : due;
    if (!timer_is_set(&s->tick) || due < timer_due_ms(s->inst->relay->env.clock, &s->tick))
        timer_set(s->inst->relay->env.clock, &s->tick, due - now);
}

static void become_away(struct session *s, enum session_state next, const char *why)
{
    s->inst->relay->n.sessions_away++;
    log_info(&s->log, "away: %s", why);
    session_enter(s, next);
    delivery_drop_kept(s->inst);
    fetch_drop(s->inst);
    wake_want(s->inst);
}

static void check_acks(struct session *s, int64_t now)
{
    const struct relay_limits *lim = &s->inst->relay->lim;
    int64_t silent_ms = now - s->ack_since_ms;

    if (flight_count(s->flight) == 0 || s->late_acks || silent_ms < lim->ack_patience_ms)
        return;
    if (s->state == SESSION_DEAF && silent_ms >= 3 * lim->ack_patience_ms)
        session_close(s, CLOSE_NO_ACKS);
    else if (s->state == SESSION_RECEIVING && s->acking.spoke && !s->acking.never && !has_acked(s))
        stop_waiting(s); /* the gateway turns out never to ack */
    else if (s->state == SESSION_RECEIVING || s->state == SESSION_MUTE)
        become_away(s, SESSION_DEAF, "acknowledges nothing");
}

static void on_tick(struct timer *t)
{
    struct session *s = container_of(t, struct session, tick);
    const struct relay_limits *lim = &s->inst->relay->lim;
    int64_t now = now_ms(s), quiet_ms = s->ping_no != s->pong_no ? now - s->quiet_since_ms : 0;

    if (quiet_ms >= 3 * lim->ack_patience_ms)
        session_close(s, CLOSE_NO_PONGS);
    else if (s->state == SESSION_RECEIVING && quiet_ms >= lim->pong_patience_ms)
        become_away(s, SESSION_MUTE, "answers no ping");
    if (s->state != SESSION_CLOSING)
        check_acks(s, now);
    if (s->state == SESSION_OLD && now - s->since_ms >= lim->old_socket_ms)
        session_close(s, CLOSE_REPLACED);
    if (s->state == SESSION_NEW && now - s->since_ms >= lim->old_socket_ms)
        session_close(s, CLOSE_NO_HELLO);
    if (s->state == SESSION_CLOSING)
        return;
    if (s->state == SESSION_RECEIVING && settle_ms(s) > 0)
        pump_want(s->inst); /* session_settles() may have held it back */
    if (now >= s->next_ping_ms) {
        session_ping(s);
        s->next_ping_ms = now + lim->ping_ms;
        if (flight_count(s->flight) == 0) { /* only a busy session needs this memory */
            free(s->flight);
            s->flight = NULL;
        }
        mailbox_trim(&s->inst->mb);
        if (mailbox_entries(&s->inst->mb) == 0)
            sent_ids_done(&s->inst->sent);
    }
    session_arm(s);
}

void session_alive(struct session *s, bool acked)
{
    if (s == s->inst->receiver && s->inst->unread != NULL)
        interrupt_read(s->inst);
    if (acked)
        s->ack_since_ms = now_ms(s);
    if (s->state != SESSION_MUTE && !(acked && s->state == SESSION_DEAF))
        return;
    log_info(&s->log, "responds again");
    session_enter(s, SESSION_RECEIVING);
    wake_stop(s->inst);
    pump_want(s->inst);
}

void session_pong(struct session *s, uint32_t number)
{
    if (number > s->ping_no || number <= s->pong_no)
        return; /* not one of ours, or an old one */
    s->pong_no = number;
    s->quiet_since_ms = now_ms(s);
    pump_ponged(s, number);
    requests_read(s);
    if (s->late_acks && number > s->late_ping) { /* it has read all that was sent */
        s->late_bytes = 0;
        if (s->flight != NULL)
            s->flight->solo = false; /* and has survived the suspect */
        pump_want(s->inst);
    }
    session_alive(s, false);
}

/* ---- questions ---- */

size_t again_seek(const struct again *a, uint64_t id)
{
    size_t low = a->at, high = a->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (a->ids[mid] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool session_has_sent(const struct session *s, uint64_t id)
{
    if (id > s->sent_id)
        return false;
    if (s->again == NULL)
        return true;
    size_t k = again_seek(s->again, id);
    return k == s->again->n || s->again->ids[k] != id;
}

bool session_anyone_has(const struct instance *i, uint64_t id)
{
    for (const struct list *it = i->sessions.next; it != &i->sessions; it = it->next) {
        const struct session *s = list_entry(it, struct session, by_inst);
        if (s->state != SESSION_CLOSING && session_has_sent(s, id))
            return true;
    }
    return false;
}

void session_forget_all(struct instance *i, uint64_t id)
{
    list_each (&i->sessions, it, nxt) {
        struct session *s = list_entry(it, struct session, by_inst);
        bool message_done = session_has_sent(s, id) && flight_forget(s->flight, id);
        if ((message_done || s->late_acks) && s == i->receiver)
            pump_want(i);
    }
}

/* ---- receiving ---- */

static void take_over(struct session *s)
{
    struct instance *i = s->inst;

    assert(i->receiver == NULL);
    i->receiver = s;
    interrupt_read(i); /* unread interrupts of another socket do not count here */
    s->ack_since_ms = now_ms(s);
    session_enter(s, SESSION_RECEIVING);
    wake_stop(i);
    requests_adopt(s);
    pump_want(i);
    session_arm(s);
}

void session_receive(struct session *s)
{
    struct instance *i = s->inst;
    struct session *was = i->receiver;

    assert(was != s);
    fetch_drop(i);
    if (was != NULL && was->pulls) {
        session_close(was, CLOSE_REPLACED);
    } else if (was != NULL) {
        pump_lost(was);
        session_enter(was, was->sleep_owed ? SESSION_ASLEEP : SESSION_OLD);
        was->since_ms = now_ms(s);
        session_arm(was);
        i->receiver = NULL;
    }
    list_move(&s->by_inst, &i->sessions);
    i->met_no = ++s->inst->relay->sessions->met;
    instance_seen(i);
    wake_stop(i);
    sleep_end(s);
    take_over(s);
    log_info(&s->log, "connected: waiting=%u parked=%u", mailbox_waiting(&i->mb), i->mb.parked);
}

/* Closes OLD sockets once a sleeping instance has no receiver.  OLD sockets do not take over while
 * the instance sleeps; a client that is still connected through one reconnects and wakes it. */
static void close_older(struct instance *i)
{
    if (i->closing_older)
        return; /* the outer call closes them all: avoids recursion with thousands of sockets */
    i->closing_older = true;
    list_each (&i->sessions, it, nxt) {
        struct session *s = list_entry(it, struct session, by_inst);
        if (s->state == SESSION_OLD)
            session_close(s, CLOSE_FELL_ASLEEP);
    }
    i->closing_older = false;
}

/* Detaches @s from its instance.  Runs once per session, whatever the reason of the close. */
static void leave(struct session *s, bool planned)
{
    struct instance *i = s->inst;
    struct relay *r = i->relay;
    struct session *heir = NULL;

    timer_stop(r->env.clock, &s->tick);
    sleep_leave(s);
    if (!planned && !s->sleep_acked && !s->inside && !r->draining)
        pump_lost(s);
    session_enter(s, SESSION_CLOSING);
    requests_orphan(s);
    if (i->receiver == s) {
        i->receiver = NULL;
        fetch_drop(i);
        for (struct list *it = i->sessions.prev; it != &i->sessions && heir == NULL; it = it->prev)
            if (list_entry(it, struct session, by_inst)->state == SESSION_OLD)
                heir = list_entry(it, struct session, by_inst);
    }
    if (heir != NULL && !i->sleep.asleep && !r->draining)
        take_over(heir);
    delivery_socket_lost(i);
    if (i->receiver == NULL) {
        delivery_drop_kept(i);
        wake_redialling(i);
        if (i->sleep.asleep)
            close_older(i);
    }
}

/* ---- opening and closing ---- */

struct session *session_open(struct relay *r, const struct gateway *gw, struct wire *wire)
{
    struct instance *i =
        r->draining ? NULL : instance_get(r, str_of(gw->tenant), str_of(gw->instance));
    struct session *s;

    if (i == NULL)
        return NULL;
    life_follow(i, life_now(r, instance_tenant(i), instance_id(i)));
    s = xcalloc(1, sizeof *s);
    *s = (struct session){.log = {log_prefix}, .inst = i, .wire = wire, .gw = gw};
    s->number = ++r->sessions->newest;
    s->acking.never = gw->ackless;
    s->since_ms = clock_now_ms(r->env.clock);
    s->next_ping_ms = s->since_ms + r->lim.ping_ms;
    list_init(&s->by_inst);
    list_init(&s->by_age);
    list_init(&s->requests);
    list_append(&i->sessions, &s->by_inst);
    list_append(&r->sessions->by_age, &s->by_age);
    timer_init(&s->tick, on_tick);
    session_arm(s);
    r->n.sessions_opened++;
    return s;
}

void session_close(struct session *s, enum close_reason why)
{
    if (s->state == SESSION_CLOSING)
        return;
    log_info(&s->log, "closing: code=%d reason=%s", contract_closes[why].code,
             contract_closes[why].text);
    leave(s, contract_closes[why].terminal);
    s->wire->ops->close(s->wire, why);
}

static void free_line(struct session *s)
{
    if (s->line == NULL)
        return;
    buf_done(s->line);
    free(s->line);
    s->line = NULL;
}

static void session_free(struct session *s)
{
    list_remove(&s->by_inst);
    list_remove(&s->by_age);
    if (list_is_empty(&s->inst->sessions))
        sent_ids_done(&s->inst->sent); /* no socket is left that could ack */
    free_line(s);
    free(s->flight);
    free(s->again);
    free(s->personas);
    free(s);
}

void session_closed(struct session *s, int code)
{
    log_info(&s->log, "closed: code=%d state=%s unacked=%llu", code, states[s->state].name,
             (unsigned long long)flight_rows(s->flight));
    struct instance *i = s->inst;
    bool was_met = s->state != SESSION_NEW;

    if (s->state != SESSION_CLOSING)
        leave(s, false);
    session_free(s);
    if (was_met)
        mail_changed(i->relay, i); /* others may read it now */
}

void sessions_free(struct relay *r)
{
    list_each (&r->sessions->by_age, it, nxt) {
        struct session *s = list_entry(it, struct session, by_age);
        timer_stop(r->env.clock, &s->tick);
        session_free(s);
    }
    void *id;
    for (size_t pos = 0; map_next(&r->sessions->acked, &pos, &id);)
        free(id);
    map_done(&r->sessions->acked);
    free(r->sessions);
}

void session_parted(struct session *s)
{
    if (s->state != SESSION_CLOSING)
        leave(s, true);
}

/* ---- revocation ---- */

/* Normally the revoked gateway's sockets are in the list of its instance.  If the gateway id has
 * been reissued meanwhile, maybe to another instance, all sessions are checked. */
static void on_revoked(void *ctx, struct str id)
{
    struct relay *r = ctx;
    const struct gateway *g = facts_gateway(r->env.facts, id);
    struct instance *i = g != NULL && g->revoked_ms != 0
                             ? instance_find(r, str_of(g->tenant), str_of(g->instance))
                             : NULL;

    list_each (i != NULL ? &i->sessions : &r->sessions->by_age, it, nxt) {
        struct session *s = i != NULL ? list_entry(it, struct session, by_inst)
                                      : list_entry(it, struct session, by_age);
        if (s->gw == g)
            session_close(s, CLOSE_REVOKED);
    }
}

void sessions_listen(struct relay *r)
{
    observers_add(r->env.observers, "revoked", on_revoked, r);
}

/* ---- agents inside this program: inside.h ---- */

struct session *session_open_inside(struct relay *r, const struct gateway *gw, struct wire *wire)
{
    struct session *s = session_open(r, gw, wire);

    if (s == NULL)
        return NULL;
    s->inside = true;
    timer_stop(r->env.clock, &s->tick);
    return s;
}

struct session *session_open_pulling(struct relay *r, const struct gateway *gw, struct wire *wire)
{
    struct session *s = session_open_inside(r, gw, wire);

    if (s == NULL)
        return NULL;
    s->pulls = true;
    if (!gw->newer)
        facts_gateway_is_newer(r->env.facts, str_of(gw->id)); /* it takes everything there is */
    session_receive(s);
    return s;
}

/* ---- personas ----
 *
 * One string per session, "platform \x1f bot \x1e" per identity: most sockets have one or two. */

enum { NAME_MAX_BYTES = 128 };

static bool name_ok(struct str s)
{
    return s.n <= NAME_MAX_BYTES && str_find(s, '\x1e') < 0 && str_find(s, '\x1f') < 0 &&
           (s.n == 0 || memchr(s.p, '\0', s.n) == NULL);
}

static bool next_persona(struct str *rest, struct str *ret_platform, struct str *ret_bot)
{
    struct str pair;

    if (!str_split(rest, '\x1e', &pair) || pair.n == 0)
        return false;
    str_split(&pair, '\x1f', ret_platform);
    *ret_bot = pair;
    return true;
}

bool persona_find(const struct session *s, struct str platform, struct str bot, struct str *ret_bot)
{
    struct str rest = str_of(s->personas), p, b;

    while (next_persona(&rest, &p, &b)) {
        if (str_eq(p, platform) && (bot.n == 0 || str_eq(b, bot))) {
            *ret_bot = b;
            return true;
        }
    }
    return false;
}

bool persona_default(const struct session *s, struct str *ret_platform, struct str *ret_bot)
{
    struct str rest = str_of(s->personas);

    return next_persona(&rest, ret_platform, ret_bot);
}

void persona_add(struct session *s, struct str platform, struct str bot)
{
    struct str rest = str_of(s->personas), p, b;
    struct buf out = BUF_INIT;
    size_t n = 0;

    if (platform.n == 0 || !name_ok(platform) || !name_ok(bot))
        return;
    for (; next_persona(&rest, &p, &b); n++)
        if (str_eq(p, platform) && str_eq(b, bot))
            return;
    if (n >= PERSONA_MAX)
        return;
    buf_add_str(&out, str_of(s->personas));
    buf_add_str(&out, platform);
    buf_add_c(&out, '\x1f');
    buf_add_str(&out, bot);
    buf_add_c(&out, '\x1e');
    free(s->personas);
    s->personas = buf_take(&out);
}

/* ---- frames ---- */

enum {
    MALFORMED_MAX = 10,
    MALFORMED_WINDOW_MS = 60000,
};

static void on_unknown(struct session *s, const struct frame *f)
{
    s->inst->relay->n.frames_unknown++;
}

static void on_malformed(struct session *s, const struct frame *f)
{
    struct relay *r = s->inst->relay;
    int64_t now = now_ms(s);
    uint64_t skipped;

    r->n.frames_malformed++;
    if (s->malformed == 0 || now - s->malformed_since_ms > MALFORMED_WINDOW_MS) {
        s->malformed = 0;
        s->malformed_since_ms = now;
    }
    s->malformed++;
    if (log_limit_passes(&r->sessions->log_malformed, now, &skipped))
        log_warn(&s->log, "malformed frame: %s more=%llu", f->why, (unsigned long long)skipped);
    if (s->malformed >= MALFORMED_MAX)
        session_close(s, CLOSE_MALFORMED);
}

/* ---- hello ---- */

/* Records that the gateway is of the newer generation.  Older gateways send one hello without a
 * manifest, and only sends that name neither an identity nor a person. */
static void is_newer(struct session *s)
{
    if (!s->gw->newer)
        facts_gateway_is_newer(s->inst->relay->env.facts, str_of(s->gw->id));
}

/* The end of a turn is marked as Hermes marks it, and nothing shows a newer one. */
static void is_older_hermes(struct session *s)
{
    if (s->gw->newer || s->gw->drops)
        return;
    facts_gateway_drops(s->inst->relay->env.facts, str_of(s->gw->id));
    session_arm(s); /* this socket may be young */
}

/* An unconfigured client names the platform "relay": it means the one it was added for. */
static void name_meant(const struct session *s, struct str *platform, struct str *bot)
{
    if (bot->n == 0 && s->gw->platform != NULL && str_eq(*platform, STR("relay"))) {
        *platform = str_of(s->gw->platform);
        *bot = str_of(s->gw->bot);
    }
}

static void on_hello(struct session *s, const struct frame *f)
{
    struct outside *outside = s->inst->relay->env.outside;
    struct str platform = f->platform, bot = f->bot, known;

    name_meant(s, &platform, &bot);
    if (f->manifest.doc != NULL || (s->personas != NULL && !persona_find(s, platform, bot, &known)))
        is_newer(s);
    persona_add(s, platform, bot);
    if (f->late_acks)
        acks_late(s);
    if (f->manifest.doc != NULL && outside->announced != NULL && !s->inside)
        outside->announced(outside, str_of(s->gw->id), f->manifest);
    const struct outlet *at = outside->find(outside, platform, bot);
    if (at == NULL && bot.n != 0)
        at = outside->find(outside, platform, STR_NULL);
    descriptor_write_frame(s->wire->ops->send_begin(s->wire),
                           at != NULL ? at->descriptor : &descriptor_relay, s->gw->newer);
    s->wire->ops->send_end(s->wire);
    if (s->state == SESSION_NEW || s->state == SESSION_ASLEEP)
        session_receive(s);
    else if (s->sleep_owed)
        sleep_end(s); /* the gateway stays after all */
}

/* ---- acks ---- */

void session_acked(struct session *s, struct str buffer_id)
{
    if (!s->acking.acked)
        first_ack(s);
    session_alive(s, true);
    pump_acked(s, buffer_id);
}

static void on_ack(struct session *s, const struct frame *f)
{
    if (f->buffer_id.n == 0)
        on_unknown(s, f);
    else
        session_acked(s, f->buffer_id);
}

/* ---- the rest ---- */

static void on_outbound(struct session *s, const struct frame *f)
{
    const struct action *a = &f->action;

    if (a->platform.n != 0 || a->user_id.n != 0 || a->op == ACTION_TYPING || a->op == ACTION_EDIT)
        is_newer(s);
    else if (json_as_bool(json_get(a->metadata, "notify"), false))
        is_older_hermes(s);
    if (flight_count(s->flight) > 0 && !s->late_acks)
        look_for_acks(s, a);
    requests_start(s, f);
}

static void on_going_idle(struct session *s, const struct frame *f)
{
    sleep_begin(s);
}

static void (*const handlers[])(struct session *s, const struct frame *f) = {
    [FRAME_HELLO] = on_hello,
    [FRAME_OUTBOUND] = on_outbound,
    [FRAME_INTERRUPT] = interrupt_from_gateway,
    [FRAME_GOING_IDLE] = on_going_idle,
    [FRAME_INBOUND_ACK] = on_ack,
    [FRAME_UNKNOWN] = on_unknown,
    [FRAME_MALFORMED] = on_malformed,
};

static void on_line(struct session *s, struct str line)
{
    BH_UNCLEARED struct frame f;
    struct str id;

    line = str_trim(line);
    if (line.n == 0)
        return;
    if (frame_is_ack(line, &id)) { /* nearly every line, and this is the hot path */
        session_acked(s, id);
        return;
    }
    frame_read(s->inst->relay->json, line, &f);
    if (s->state != SESSION_CLOSING || f.type == FRAME_INBOUND_ACK)
        handlers[f.type](s, &f);
}

/* Whole lines in @bytes are not copied.  Only the end of an unfinished one is kept, max_frame bytes
 * at most. */
size_t session_data(struct session *s, struct str bytes)
{
    const char *end;

    while (bytes.n != 0) {
        end = memchr(bytes.p, '\n', bytes.n);
        struct str piece = str_make(bytes.p, end != NULL ? (size_t)(end - bytes.p) : bytes.n);
        bytes = str_skip(bytes, end != NULL ? piece.n + 1 : piece.n);
        if (s->skips_line) {
            s->skips_line = end == NULL;
        } else if ((s->line != NULL ? s->line->n : 0) + piece.n > s->inst->relay->lim.max_frame) {
            s->skips_line = end == NULL;
            free_line(s);
            session_close(s, CLOSE_TOO_LARGE);
        } else if (end != NULL && s->line == NULL) {
            on_line(s, piece);
        } else {
            if (s->line == NULL)
                s->line = xcalloc(1, sizeof *s->line);
            buf_add_str(s->line, piece);
            if (end != NULL)
                on_line(s, buf_str(s->line));
            if (end != NULL)
                free_line(s);
        }
    }
    return s->line != NULL ? s->line->cap : 0;
}

/* ---- a socket that the previous process had ---- */

struct session *session_resume(struct relay *r, const struct gateway *gw, struct wire *wire,
                               const struct session_past *past)
{
    struct session *s = session_open(r, gw, wire);
    struct str rest = past->personas, platform, bot;

    if (s == NULL)
        return NULL;
    while (next_persona(&rest, &platform, &bot)) {
        name_meant(s, &platform, &bot);
        persona_add(s, platform, bot);
    }
    if (past->acked)
        first_ack(s);
    if (past->late_acks)
        acks_late(s);
    requests_tell_lost(s, past->asked, past->n_asked);
    uint32_t was = past->rank >> 32 == r->life ? (uint32_t)past->rank : 0;
    bool in_order = pump_resume(s, past->rows, past->n_rows);
    bool replaced = s->inst->met_no > was; /* the gateway has dialled again since */
    if (in_order && !replaced) {
        session_receive(s);
    } else {
        s->counted_id = s->sent_id; /* no attempt: we close it */
        session_close(s, replaced ? CLOSE_REPLACED : CLOSE_TRY_LATER);
    }
    return s;
}
