/* track.c - design.  (track.h has the contract.)
 *
 * The end of a delivery that waited is a receipt named after its row, in the hour when the delivery
 * was queued; "answered" is one named after the delivery, in the same hour.  So a search reads one
 * or two keys, and all of them expire together.
 *
 * dispatch_delivery() knows only an id.  The relay's deduplication keys say for which agents a
 * delivery with this id came, and when; that time leads to the receipt and to its sender. */
#include "dispatch/track.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/map.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"

enum { CANDIDATES = 16 };
#define REMOVED "it was removed from the mailbox before the agent got it"

struct track {
    uint64_t row; /* the key in tracks->rows */
    int64_t queued_ms, sent_ms, taken_ms;
    bool waits; /* its receipt says so: the end is written */
    bool parked;
};

struct tracks {
    struct dispatch *d; /* borrowed */
    struct map rows;    /* row -> track, owned */
};

static struct str key_of(const uint64_t *row)
{
    return str_make((const char *)row, sizeof *row);
}

static struct track *find(const struct tracks *p, uint64_t row)
{
    return map_get(&p->rows, key_of(&row));
}

void track_drop(struct tracks *p, uint64_t row)
{
    free(map_del(&p->rows, key_of(&row)));
}

static struct track *add(struct tracks *p, uint64_t row, int64_t queued_ms)
{
    struct track *t;

    if (row == 0 || map_count(&p->rows) >= TRACKS_MAX)
        return NULL;
    t = xcalloc(1, sizeof *t);
    *t = (struct track){.row = row, .queued_ms = queued_ms};
    free(map_put(&p->rows, key_of(&t->row), t));
    return t;
}

void track_begin(struct tracks *p, uint64_t row, int64_t queued_ms)
{
    add(p, row, queued_ms);
}

static void row_name(uint64_t row, char text[17], struct receipt_name *ret)
{
    snprintf(text, 17, "%016llx", (unsigned long long)row);
    *ret = (struct receipt_name){STR(""), STR(""), STR("ended"), str_of(text)};
}

/* Writes how a delivery that waited has ended. */
static void write_end(struct tracks *p, const struct track *t, const char *state, struct str why)
{
    struct buf json = BUF_INIT;
    struct jw w = jw_begin(&json);
    struct receipt_name name;
    char row[17];

    jw_obj(&w);
    jw_kstr(&w, "state", str_of(state));
    if (t->sent_ms != 0)
        jw_ki64(&w, "delivered_at", t->sent_ms);
    if (t->taken_ms != 0)
        jw_ki64(&w, "acknowledged_at", t->taken_ms);
    jw_kstr_opt(&w, "reason", why);
    jw_end_obj(&w);
    row_name(t->row, row, &name);
    receipt_write(p->d, &name, t->queued_ms, buf_str(&json), KV_PUT, NULL, NULL);
    buf_done(&json);
}

static void on_parcel(void *ctx, uint64_t row, enum parcel_news news, struct str why)
{
    struct tracks *p = ctx;
    struct track *t = find(p, row);
    int64_t now_ms = clock_wall_ms(p->d->env.clock);

    if (t == NULL)
        return;
    switch (news) {
    case PARCEL_SENT:
        t->parked = false;
        if (t->sent_ms == 0)
            t->sent_ms = now_ms;
        return;
    case PARCEL_PARKED:
        t->parked = true;
        write_end(p, t, "refused", why);
        return;
    case PARCEL_TAKEN:
        t->taken_ms = now_ms;
        if (!t->waits)
            return; /* its receipt is not written yet, and gets the times */
        write_end(p, t, "acknowledged", STR_NULL);
        break;
    case PARCEL_REMOVED:
        write_end(p, t, "refused", STR(REMOVED));
        break;
    }
    track_drop(p, row);
}

bool track_note(struct tracks *p, bool waits, struct delivered_facts *facts)
{
    struct track *t = find(p, facts->row);

    if (t == NULL)
        return false;
    facts->sent_ms = t->sent_ms;
    facts->taken_ms = t->taken_ms;
    if (!waits && facts->taken_ms == 0)
        facts->taken_ms = clock_wall_ms(p->d->env.clock);
    t->waits = waits && t->taken_ms == 0;
    if (!t->waits)
        track_drop(p, facts->row);
    return waits;
}

void track_recall(struct tracks *p, const struct delivered_facts *facts)
{
    struct track *t;

    if (facts->taken_ms != 0 || facts->row == 0 || find(p, facts->row) != NULL ||
        facts->row >> 40 == p->d->env.store->boot)
        return;
    t = add(p, facts->row, facts->queued_ms);
    if (t == NULL)
        return;
    t->sent_ms = facts->sent_ms;
    t->waits = true;
}

/* ---- answered ---- */

static int64_t known_ms(struct dispatch *d, struct str tenant, struct str instance,
                        struct str agent, const char *kind, struct str dispatch_id)
{
    struct buf id = BUF_INIT;

    payload_event_id(&id, agent, kind, dispatch_id);
    struct event ev = {.platform = STR("relay"), .event_id = buf_str(&id)};
    int64_t at_ms = relay_known_ms(d->env.relay, tenant, instance, &ev);
    buf_done(&id);
    return at_ms;
}

static const char *const kinds[] = {"augment", "template"};

void track_answered(struct dispatch *d, struct str tenant, struct str agent, struct str dispatch_id)
{
    struct recipient *a = str_is_empty(dispatch_id) || dispatch_id.n > DISPATCH_ID_MAX
                              ? NULL
                              : agents_find(d->agents, tenant, agent);
    char json[64];

    for (size_t i = 0; a != NULL && i < ARRAY_LEN(kinds); i++) {
        int64_t at_ms = known_ms(d, tenant, str_of(a->instance), agent, kinds[i], dispatch_id);
        struct receipt_name name = {tenant, agent, STR("answered"), dispatch_id};
        if (at_ms <= 0)
            continue;
        snprintf(json, sizeof json, "{\"answered_at\":%lld}",
                 (long long)clock_wall_ms(d->env.clock));
        receipt_write(d, &name, at_ms, str_of(json), KV_INSERT, NULL, NULL);
        return;
    }
}

/* ---- the call ---- */

struct track_of {
    char *agent, *instance; /* owned */
    const char *kind;
    int64_t at_ms;
};

struct looking {
    struct dispatch_call call;
    struct buf id, by;
    bool operator;
    struct track_of of[CANDIDATES]; /* newest first */
    size_t n, at;
    struct delivered_facts facts;
    struct buf ended;    /* the receipt of its end; empty: none */
    bool tracked, waits; /* when its line was found: it had a track; it was in the mailbox */
};

static void looking_free(struct dispatch_call *c)
{
    struct looking *w = container_of(c, struct looking, call);

    for (size_t i = 0; i < w->n; i++) {
        free(w->of[i].agent);
        free(w->of[i].instance);
    }
    buf_done(&w->id);
    buf_done(&w->by);
    buf_done(&w->ended);
}

static struct receipt_name name_of(const struct looking *w, const char *word)
{
    const struct track_of *c = &w->of[w->at];

    return (struct receipt_name){str_of(w->call.tenant), str_of(c->agent),
                                 str_of(word != NULL ? word : c->kind), buf_str(&w->id)};
}

/* Inserts by time; the oldest is dropped when there are too many. */
static void consider(struct looking *w, struct str agent, struct str instance, struct str kind)
{
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        int64_t at_ms = kind.p == NULL || str_eq(kind, str_of(kinds[k]))
                            ? known_ms(w->call.d, str_of(w->call.tenant), instance, agent, kinds[k],
                                       buf_str(&w->id))
                            : 0;
        size_t at = 0;
        while (at < w->n && w->of[at].at_ms >= at_ms)
            at++;
        if (at_ms <= 0 || at == CANDIDATES)
            continue;
        if (w->n == CANDIDATES) {
            w->n--;
            free(w->of[w->n].agent);
            free(w->of[w->n].instance);
        }
        memmove(&w->of[at + 1], &w->of[at], (w->n - at) * sizeof w->of[0]);
        w->of[at] = (struct track_of){str_dup(agent), str_dup(instance), kinds[k], at_ms};
        w->n++;
    }
}

static void write_answer(struct looking *w, int64_t answered_ms)
{
    struct dispatch *d = w->call.d;
    const struct track_of *c = &w->of[w->at];
    const struct track *t = find(d->tracks, w->facts.row);
    int64_t sent_ms = w->facts.sent_ms, taken_ms = w->facts.taken_ms;
    struct jw j = jw_begin(&w->call.json);
    struct str reason = STR_NULL;
    struct json ended = {0};
    const char *state = "acknowledged";

    if (t != NULL && !t->parked && t->taken_ms == 0) {
        sent_ms = t->sent_ms;
        state = sent_ms != 0 ? "delivered" : "queued";
    } else if (t != NULL && t->taken_ms != 0) {
        sent_ms = t->sent_ms;
        taken_ms = t->taken_ms;
    } else if (w->ended.n > 0 && json_parse(d->json, buf_str(&w->ended), &ended)) {
        json_as_i64(json_get(ended, "delivered_at"), &sent_ms);
        json_as_i64(json_get(ended, "acknowledged_at"), &taken_ms);
        reason = json_str(ended, "reason");
        if (str_eq(json_str(ended, "state"), STR("refused")))
            state = "refused";
    } else if (taken_ms == 0 && w->waits) {
        state = sent_ms != 0 ? "delivered" : "queued";
    } else if (taken_ms == 0 && w->tracked) {
        state = "refused"; /* an ack would have been noted */
        reason = STR(REMOVED);
    }
    jw_obj(&j);
    jw_kstr(&j, "delivery_id", buf_str(&w->id));
    jw_kstr(&j, "agent_id", str_of(c->agent));
    jw_kstr(&j, "dispatch_id", buf_str(&w->id));
    jw_kstr(&j, "kind", str_of(c->kind));
    jw_kstr(&j, "state", str_of(answered_ms != 0 ? "answered" : state));
    jw_ki64(&j, "queued_at", w->facts.queued_ms);
    if (sent_ms != 0 || taken_ms != 0)
        jw_ki64(&j, "delivered_at", sent_ms != 0 ? sent_ms : taken_ms);
    if (taken_ms != 0)
        jw_ki64(&j, "acknowledged_at", taken_ms);
    if (answered_ms != 0)
        jw_ki64(&j, "answered_at", answered_ms);
    jw_kstr_opt(&j, "reason", reason);
    jw_end_obj(&j);
}

static void on_answered(void *ctx, struct str json, const struct delivered_facts *facts)
{
    struct looking *w = ctx;
    struct json doc;
    int64_t at_ms = 0;

    w->call.look = NULL;
    if (json.p != NULL && json_parse(w->call.d->json, json, &doc))
        json_as_i64(json_get(doc, "answered_at"), &at_ms);
    write_answer(w, at_ms);
    call_end(&w->call);
}

static void look_for_answer(struct looking *w)
{
    struct receipt_name name = name_of(w, "answered");

    w->call.look = receipt_find(w->call.d, &name, w->of[w->at].at_ms, on_answered, w);
}

static void on_ended(void *ctx, struct str json, const struct delivered_facts *facts)
{
    struct looking *w = ctx;

    w->call.look = NULL;
    buf_add_str(&w->ended, json);
    look_for_answer(w);
}

/* True when the delivery of @facts is the caller's. */
static bool take_facts(struct looking *w, const struct delivered_facts *facts)
{
    if (facts == NULL || !(w->operator|| str_eq(str_of(facts->by), buf_str(&w->by))))
        return false;
    w->facts = *facts;
    return true;
}

static void fail_unknown(struct looking *w)
{
    fault_set(&w->call.fault, FAULT_NOT_FOUND,
              "There is no delivery '%.*s' of yours within the last day.",
              STR_FMT(buf_str(&w->id)));
}

static void look_at(struct looking *w);

static void on_line(void *ctx, struct str json, const struct delivered_facts *facts)
{
    struct looking *w = ctx;
    const struct track *t;
    struct receipt_name name;
    char row[17];

    w->call.look = NULL;
    if (!take_facts(w, facts)) {
        if (++w->at < w->n) {
            look_at(w);
        } else {
            fail_unknown(w);
            call_end(&w->call);
        }
        return;
    }
    t = find(w->call.d->tracks, w->facts.row);
    w->tracked = t != NULL;
    w->waits = relay_waits(w->call.d->env.relay, str_of(w->call.tenant),
                           str_of(w->of[w->at].instance), w->facts.row);
    if (w->facts.taken_ms != 0 || (t != NULL && !t->parked && w->waits)) {
        look_for_answer(w);
        return;
    }
    if (!w->waits)
        track_drop(w->call.d->tracks, w->facts.row); /* it ended before the start of this process */
    row_name(w->facts.row, row, &name);
    w->call.look = receipt_find(w->call.d, &name, w->facts.queued_ms, on_ended, w);
}

static void look_at(struct looking *w)
{
    struct dispatch *d = w->call.d;
    struct receipt_name name = name_of(w, NULL);
    if (take_facts(w, delivery_under_way(d, &name)))
        look_for_answer(w);
    else
        w->call.look = delivered_find(d, &name, w->of[w->at].at_ms, on_line, w);
}

/* @agent absent: any that the key may use. */
static bool is_meant(const struct dispatch_who *who, struct str agent, struct str called)
{
    return (agent.p == NULL || str_eq(agent, called)) &&
           (who->caller.agent.p == NULL || str_eq(who->caller.agent, called));
}

struct dispatch_call *dispatch_delivery(struct dispatch *d, const struct dispatch_who *who,
                                        struct str id, struct str agent, struct str kind,
                                        dispatch_cb *done, void *ctx)
{
    struct looking *w = call_new(d, sizeof *w, looking_free, done, ctx);
    struct buf instance = BUF_INIT;

    w->call.tenant = str_dup(who->caller.tenant);
    w->operator= who->caller.key_id.p == NULL;
    buf_add_str(&w->id, id);
    buf_add_str(&w->by, who->caller.key_id);
    list_each (&d->agents->configs, it, nxt) {
        const struct agent_config *c = list_entry(it, struct agent_config, link);
        struct str called = str_of(c->s.id);
        if (c->of_gateway || !is_meant(who, agent, called) ||
            !agent_config_is_for(d->agents, c, who->caller.tenant))
            continue;
        buf_reset(&instance);
        agent_instance(c, &instance);
        consider(w, called, buf_str(&instance), kind);
    }
    struct str *names;
    size_t n = dispatch_gateways(d, who->caller.tenant, &names);
    for (size_t i = 0; i < n; i++)
        if (is_meant(who, agent, names[i]))
            consider(w, names[i], names[i], kind);
    free(names);
    buf_done(&instance);
    if (w->n > 0) {
        look_at(w);
    } else {
        fail_unknown(w);
        call_end_later(&w->call);
    }
    return &w->call;
}

/* ---- life ---- */

struct tracks *tracks_new(struct dispatch *d)
{
    struct tracks *p = xcalloc(1, sizeof *p);

    p->d = d;
    relay_watch_parcels(d->env.relay, on_parcel, p);
    return p;
}

void tracks_free(struct tracks *p)
{
    if (p == NULL)
        return;
    relay_watch_parcels(p->d->env.relay, NULL, NULL);
    map_done_all(&p->rows);
    free(p);
}
