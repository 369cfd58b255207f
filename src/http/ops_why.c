/* ops_why.c - what became of messages and actions, and who changed what: `bellhop why`, `bellhop
 * trace`, `bellhop audit`.
 *
 * The journal (core/journal.h, store/journal_disk.h) has the records; this file writes them as
 * JSON.  Without a journal on disk the answers come from the newest records in memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "http/admin.h"
#include "net/loop.h"
#include "relay/relay.h"
#include "store/journal_disk.h"

/* ---- records as JSON ---- */

static void write_pos(struct jw *w, const char *key, uint64_t pos)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIx64, pos);
    jw_kstr(w, key, str_of(text));
}

static void write_delivery(struct jw *w, uint64_t delivery)
{
    char text[24];

    if (delivery == 0)
        return;
    snprintf(text, sizeof text, "%" PRIu64, delivery);
    jw_kstr(w, "delivery", str_of(text));
}

static bool is_received(const struct journal_verdict *v)
{
    return v->fate == JOURNAL_ACCEPTED || v->fate == JOURNAL_EDITED;
}

static void write_verdict(struct jw *w, const struct journal_verdict *v)
{
    const char *words = gate_word_sentence(v->reason);

    jw_obj(w);
    jw_kstr(w, "tenant", v->tenant);
    jw_kstr(w, "instance", v->instance);
    jw_kbool(w, "received", is_received(v));
    jw_kstr(w, "reason", v->reason);
    jw_kstr(w, "words", words != NULL ? str_of(words) : v->reason);
    jw_kstr(w, "fate", str_of(journal_fate_word(v->fate)));
    write_delivery(w, v->delivery);
    jw_end_obj(w);
}

static void write_step(struct jw *w, const struct journal_record *rec)
{
    jw_obj(w);
    jw_ki64(w, "at", rec->at_ms);
    jw_kstr(w, "what", str_of(journal_what_word(rec->what)));
    jw_kstr(w, "words", rec->words.n > 0 ? rec->words : str_of(journal_what_sentence(rec->what)));
    write_delivery(w, rec->delivery);
    if (rec->attempts > 0)
        jw_ki64(w, "attempts", rec->attempts);
    jw_end_obj(w);
}

/* A tenant's dashboard shows only what its own instances received; @tenant absent: everything. */
static bool may_see(const struct journal_verdict *v, struct str tenant)
{
    return tenant.p == NULL || (str_eq(v->tenant, tenant) && is_received(v));
}

static void write_event(struct jw *w, uint64_t pos, const struct journal_record *rec,
                        const struct journal_found *found, struct str tenant)
{
    size_t n_seen = 0;

    for (size_t i = 0; i < rec->n_verdicts; i++)
        n_seen += may_see(&rec->verdicts[i], tenant);
    if (tenant.p != NULL && n_seen == 0)
        return;
    jw_obj(w);
    write_pos(w, "id", pos);
    jw_ki64(w, "at", rec->at_ms);
    jw_kstr(w, "platform", rec->platform);
    jw_kstr(w, "bot", rec->bot);
    jw_kstr(w, "messageId", rec->message_id);
    jw_kstr(w, "chatId", rec->chat_id);
    jw_kstr(w, "chatType", rec->chat_type);
    jw_kstr(w, "userId", rec->user_id);
    if (rec->trace.n > 0)
        jw_kstr(w, "traceparent", rec->trace);
    jw_kstr(w, "consumed", rec->note == JOURNAL_CONSUMED ? rec->words : STR_NULL);
    if (rec->note == JOURNAL_REFUSED)
        jw_kstr(w, "refused", rec->words);
    jw_ki64(w, "candidates", tenant.p == NULL ? rec->n_candidates : (int64_t)n_seen);
    jw_karr(w, "verdicts");
    for (size_t i = 0; i < rec->n_verdicts; i++)
        if (may_see(&rec->verdicts[i], tenant))
            write_verdict(w, &rec->verdicts[i]);
    jw_end_arr(w);
    jw_karr(w, "steps");
    for (size_t k = 0; k < found->n_steps; k++)
        for (size_t i = 0; i < rec->n_verdicts; i++)
            if (found->steps[k].rec.delivery == rec->verdicts[i].delivery &&
                may_see(&rec->verdicts[i], tenant))
                write_step(w, &found->steps[k].rec);
    jw_end_arr(w);
    jw_end_obj(w);
}

static void write_action(struct jw *w, const struct journal_record *rec)
{
    char number[24];

    snprintf(number, sizeof number, "%" PRIu64, rec->number);
    jw_obj(w);
    jw_kstr(w, "id", str_of(number));
    jw_kstr(w, "request", rec->request);
    jw_kstr(w, "tenant", rec->tenant);
    jw_kstr(w, "instance", rec->instance);
    jw_kstr(w, "platform", rec->platform);
    jw_kstr(w, "bot", rec->bot);
    jw_kstr(w, "chat_id", rec->chat_id);
    jw_kstr(w, "op", rec->op);
    jw_kstr(w, "ended", rec->how);
    jw_kstr(w, "reason", rec->words.n > 0 ? rec->words : STR(""));
    jw_kstr(w, "message_id", rec->message_id.n > 0 ? rec->message_id : STR_NULL);
    jw_kbool(w, "queued", rec->queued);
    if (rec->trace.n > 0)
        jw_kstr(w, "traceparent", rec->trace);
    jw_ki64(w, "attempts", rec->attempts);
    jw_ki64(w, "asked", rec->asked_ms);
    jw_ki64(w, "at", rec->at_ms);
    jw_end_obj(w);
}

/* ---- why ---- */

static struct journal_query query_of(const struct op_call *c)
{
    return (struct journal_query){.platform = op_text(c, "platform"),
                                  .message = op_text(c, "message"),
                                  .person = op_text(c, "person"),
                                  .chat = op_text(c, "chat"),
                                  .tenant = op_text(c, "tenant"),
                                  .instance = op_text(c, "instance"),
                                  .action = op_text(c, "action"),
                                  .trace = op_text(c, "traceparent"),
                                  .delivery = (uint64_t)op_number(c, "delivery", 0),
                                  .by_tenant = c->for_tenant};
}

static void on_found(void *ctx, const struct journal_found *found)
{
    struct op_call *c = ctx;
    struct jw w = op_begin(c);

    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(c->f->loop)));
    jw_karr(&w, "decisions");
    for (size_t i = 0; i < found->n_hits; i++)
        if (found->hits[i].rec.kind == JOURNAL_EVENT)
            write_event(&w, found->hits[i].pos, &found->hits[i].rec, found, str_of(c->tenant));
    jw_end_arr(&w);
    jw_karr(&w, "actions");
    for (size_t i = 0; i < found->n_hits; i++)
        if (found->hits[i].rec.kind == JOURNAL_ACTION)
            write_action(&w, &found->hits[i].rec);
    jw_end_arr(&w);
    if (found->next != 0)
        write_pos(&w, "next", found->next);
    jw_end_obj(&w);
    op_end(c);
}

struct in_memory { /* a search of what the journal has in memory */
    struct journal_query q;
    uint64_t before;
    size_t limit;
    struct journal_hit *hits, *steps;
    size_t n_hits, n_steps, max_steps;
};

static bool on_record(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    struct in_memory *m = ctx;

    if (rec->kind == JOURNAL_STEP && m->n_steps < m->max_steps)
        m->steps[m->max_steps - ++m->n_steps] = (struct journal_hit){pos, *rec};
    if (rec->kind != JOURNAL_STEP && (m->before == 0 || pos < m->before) &&
        journal_matches(rec, &m->q))
        m->hits[m->n_hits++] = (struct journal_hit){pos, *rec};
    return m->n_hits < m->limit;
}

static void find_in_memory(struct op_call *c, const struct journal_query *q, uint64_t before,
                           size_t limit)
{
    struct in_memory m = {.q = *q, .before = before, .limit = limit, .max_steps = 4096};

    m.hits = xcalloc(limit, sizeof *m.hits);
    m.steps = xcalloc(m.max_steps, sizeof *m.steps);
    journal_each(relay_journal(c->f->relay), on_record, &m);
    bool more = m.n_hits == limit;
    on_found(c, &(struct journal_found){.hits = m.hits,
                                        .n_hits = m.n_hits,
                                        .steps = m.steps + m.max_steps - m.n_steps,
                                        .n_steps = m.n_steps,
                                        .next = more ? m.hits[limit - 1].pos : 0});
    free(m.hits);
    free(m.steps);
}

static bool read_pos(const struct op_call *c, const char *name, uint64_t *ret)
{
    struct str text = op_text(c, name);
    uint64_t v = 0;

    for (size_t i = 0; i < text.n; i++) {
        if (i == 16 || hex_value(text.p[i]) < 0)
            return false;
        v = v << 4 | (uint64_t)hex_value(text.p[i]);
    }
    *ret = v;
    return true;
}

static void why(struct op_call *c)
{
    struct journal_query q = query_of(c);
    size_t limit = (size_t)op_number(c, "limit", 20);
    uint64_t before;

    if (c->for_tenant)
        c->tenant = str_dup(q.tenant);
    if (!read_pos(c, "after", &before))
        op_error(c, 400, "malformed", "after is not the next of an earlier page.");
    else if (c->f->journal == NULL)
        find_in_memory(c, &q, before, limit);
    else if (!journal_disk_find(c->f->journal, &q, before, limit, on_found, c))
        op_error(c, 503, "busy", "Too many searches wait already; try again in a second.");
}

/* ---- trace: the same, as it happens ---- */

enum { TRACE_MOST = 500, TRACE_BATCH_MS = 20, TRACE_WAIT_MS = 20000 };

struct tracing { /* a trace that waits for the next record; op_keep() */
    struct op_call *c;
    struct journal_watch watch;
    struct timer timer;
    struct arena arena; /* the query's texts */
    uint64_t after;
    /* while it collects */
    struct journal_hit *hits; /* newest first */
    size_t n, cap;
    uint64_t deliveries[JOURNAL_WATCHED];
    size_t n_deliveries;
};

static bool is_followed(const struct tracing *t, uint64_t delivery)
{
    for (size_t i = 0; i < t->n_deliveries; i++)
        if (t->deliveries[i] == delivery)
            return true;
    return false;
}

/* True when a tenant's dashboard may see the event at all. */
static bool event_is_seen(const struct journal_record *rec, struct str tenant)
{
    for (size_t i = 0; i < rec->n_verdicts; i++)
        if (may_see(&rec->verdicts[i], tenant))
            return true;
    return tenant.p == NULL;
}

/* Finds the deliveries whose steps belong to the trace, older ones too. */
static bool on_named(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    struct tracing *t = ctx;

    (void)pos;
    for (size_t i = 0; rec->kind == JOURNAL_EVENT && i < rec->n_verdicts; i++)
        if (rec->verdicts[i].delivery != 0 && t->n_deliveries < JOURNAL_WATCHED &&
            may_see(&rec->verdicts[i], str_of(t->c->tenant)) &&
            journal_matches(rec, &t->watch.query))
            t->deliveries[t->n_deliveries++] = rec->verdicts[i].delivery;
    return t->n_deliveries < JOURNAL_WATCHED;
}

static bool on_fresh(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    struct tracing *t = ctx;

    if (pos < t->after)
        return false;
    if (rec->kind == JOURNAL_EVENT && !event_is_seen(rec, str_of(t->c->tenant)))
        return true;
    if (rec->kind == JOURNAL_STEP ? is_followed(t, rec->delivery)
                                  : journal_matches(rec, &t->watch.query)) {
        t->hits = xgrow(t->hits, t->n, &t->cap, sizeof *t->hits);
        t->hits[t->n++] = (struct journal_hit){pos, *rec};
    }
    return true;
}

static void write_record(struct jw *w, const struct journal_hit *hit, struct str tenant)
{
    static const char *const kinds[] = {
        [JOURNAL_EVENT] = "event", [JOURNAL_STEP] = "step", [JOURNAL_ACTION] = "action"};
    static const struct journal_found nothing = {0};

    jw_obj(w);
    jw_kstr(w, "kind", str_of(kinds[hit->rec.kind]));
    jw_key(w, kinds[hit->rec.kind]);
    if (hit->rec.kind == JOURNAL_EVENT)
        write_event(w, hit->pos, &hit->rec, &nothing, tenant);
    else if (hit->rec.kind == JOURNAL_STEP)
        write_step(w, &hit->rec);
    else
        write_action(w, &hit->rec);
    jw_end_obj(w);
}

/* Answers with the records since @after, oldest first; the cursor is behind the last one. */
static void trace_answer(struct tracing *t)
{
    struct op_call *c = t->c;
    struct journal *j = relay_journal(c->f->relay);
    struct jw w = op_begin(c);
    size_t first;

    journal_each(j, on_named, t);
    journal_each(j, on_fresh, t);
    first = t->n > TRACE_MOST ? t->n - TRACE_MOST : 0;
    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(c->f->loop)));
    jw_karr(&w, "records");
    for (size_t i = t->n; i-- > first;)
        write_record(&w, &t->hits[i], str_of(c->tenant));
    jw_end_arr(&w);
    write_pos(&w, "after", first > 0 ? t->hits[first].pos + 1 : journal_end(j));
    jw_end_obj(&w);
    op_end(c); /* drops @t */
}

static void on_trace_time(struct timer *timer)
{
    trace_answer(container_of(timer, struct tracing, timer));
}

static void on_watched(void *ctx, const struct journal_record *rec)
{
    struct tracing *t = ctx;

    (void)rec;
    timer_set(loop_clock(t->c->f->loop), &t->timer, TRACE_BATCH_MS);
    journal_unwatch(&t->watch);
}

static void trace_drop(void *mine)
{
    struct tracing *t = mine;

    journal_unwatch(&t->watch);
    timer_stop(loop_clock(t->c->f->loop), &t->timer);
    arena_done(&t->arena);
    free(t->hits);
    free(t);
}

static void trace(struct op_call *c)
{
    struct journal *j = relay_journal(c->f->relay);
    struct tracing *t = xcalloc(1, sizeof *t);
    struct journal_query *q = &t->watch.query;
    struct str *texts[] = {&q->platform, &q->person, &q->chat, &q->tenant, &q->instance};
    int64_t wait_ms = op_number(c, "wait", 0);

    t->c = c;
    if (c->for_tenant)
        c->tenant = str_dup(op_text(c, "tenant"));
    op_keep(c, t, trace_drop);
    c->may_end = true;
    timer_init(&t->timer, on_trace_time);
    *q = (struct journal_query){.platform = op_text(c, "platform"),
                                .person = op_text(c, "person"),
                                .chat = op_text(c, "chat"),
                                .tenant = op_text(c, "tenant"),
                                .instance = op_text(c, "instance"),
                                .by_tenant = c->for_tenant};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        *texts[i] = arena_str(&t->arena, *texts[i]);
    t->watch.cb = on_watched;
    t->watch.ctx = t;
    if (!read_pos(c, "after", &t->after)) {
        op_error(c, 400, "malformed", "after is not the after of an earlier answer.");
        return;
    }
    if (t->after == 0)
        t->after = journal_end(j);
    journal_each(j, on_named, t);
    journal_each(j, on_fresh, t);
    bool waits = t->n == 0 && wait_ms > 0;
    t->n = t->n_deliveries = 0;
    if (!waits)
        trace_answer(t);
    else if (!journal_watch(j, &t->watch))
        op_error(c, 503, "busy", "Too many traces run already; end one of them.");
    else
        timer_set(loop_clock(c->f->loop), &t->timer,
                  wait_ms < TRACE_WAIT_MS ? wait_ms : TRACE_WAIT_MS);
}

/* ---- slow ---- */

enum { SLOW_MOST = 50 };

static void on_slowest(void *ctx, struct str tenant, struct str instance, uint64_t delivery,
                       int64_t at_ms, int64_t took_ms)
{
    struct jw *w = ctx;

    jw_obj(w);
    jw_kstr(w, "tenant", tenant);
    jw_kstr(w, "instance", instance);
    write_delivery(w, delivery);
    jw_ki64(w, "at", at_ms);
    jw_ki64(w, "ms", took_ms);
    jw_end_obj(w);
}

/* A search for what waits longest goes through all instances, SLOW_STEP per turn.  Instances live
 * as long as the relay, so their names stay valid from turn to turn. */
enum { SLOW_STEP = 2048 };

struct slow_search {
    struct op_call *c; /* borrowed */
    struct timer turn;
    uint32_t pos;
    struct instance_view oldest[SLOW_MOST];
    size_t n;
};

static void slow_drop(void *mine)
{
    struct slow_search *s = mine;

    timer_stop(loop_clock(s->c->f->loop), &s->turn);
    free(s);
}

static void slow_consider(struct slow_search *s, const struct instance_view *v)
{
    if (v->oldest_ms == 0 || (s->n == SLOW_MOST && v->oldest_ms >= s->oldest[s->n - 1].oldest_ms))
        return;
    size_t at = s->n < SLOW_MOST ? s->n++ : s->n - 1;
    for (; at > 0 && s->oldest[at - 1].oldest_ms > v->oldest_ms; at--)
        s->oldest[at] = s->oldest[at - 1];
    s->oldest[at] = *v;
}

static void slow_tell(struct slow_search *s)
{
    struct op_call *c = s->c;
    int64_t now_ms = clock_wall_ms(loop_clock(c->f->loop));
    struct jw w = op_begin(c);

    jw_obj(&w);
    jw_ki64(&w, "now", now_ms);
    jw_karr(&w, "unacked");
    for (size_t i = 0; i < s->n; i++) {
        const struct instance_view *v = &s->oldest[i];
        jw_obj(&w);
        jw_kstr(&w, "tenant", v->tenant);
        jw_kstr(&w, "instance", v->instance);
        jw_kstr(&w, "state", str_of(v->state));
        jw_ki64(&w, "at", v->oldest_ms);
        jw_ki64(&w, "ageMs", now_ms - v->oldest_ms);
        jw_ki64(&w, "waiting", (int64_t)v->entries);
        jw_ki64(&w, "unacked", (int64_t)v->unacked);
        jw_ki64(&w, "parked", (int64_t)v->parked);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_karr(&w, "slowest");
    relay_each_slowest(c->f->relay, on_slowest, &w);
    jw_end_arr(&w);
    jw_end_obj(&w);
    op_end(c);
}

static void on_slow_turn(struct timer *t)
{
    struct slow_search *s = container_of(t, struct slow_search, turn);
    struct instance_view v;
    bool more = true;

    for (int n = 0; n < SLOW_STEP && more; n++)
        if ((more = relay_next_instance(s->c->f->relay, &s->pos, &v)))
            slow_consider(s, &v);
    if (more)
        timer_set(loop_clock(s->c->f->loop), t, 0);
    else
        slow_tell(s);
}

static void slow(struct op_call *c)
{
    struct slow_search *s = xcalloc(1, sizeof *s);

    s->c = c;
    timer_init(&s->turn, on_slow_turn);
    op_keep(c, s, slow_drop);
    c->may_end = true;
    on_slow_turn(&s->turn);
}

/* ---- the audit log ---- */

static void on_read(void *ctx, enum bh_err err)
{
    op_done(ctx, err, "The store does not answer.");
}

static void list_audit(struct op_call *c)
{
    struct audit_filter filter = {.since_ms = op_number(c, "since", 0),
                                  .until_ms = op_number(c, "until", 0),
                                  .tenant = op_text(c, "tenant"),
                                  .before = (uint64_t)op_number(c, "after", 0),
                                  .limit = (size_t)op_number(c, "limit", 100)};

    audit_list(c->f->audit, &filter, &c->out, on_read, c);
}

static void verify_audit(struct op_call *c)
{
    audit_verify(c->f->audit, op_text(c, "expect"), &c->out, on_read, c);
}

/* ---- the table ---- */

const struct op ops_why[] = {
    {"why", "GET", "/admin/why", MAY_OPERATOR, why,
     "Who received a message and why, and what became of it and of actions, newest first.",
     .tenant_view = true,
     .args =
         (const struct op_arg[]){{"platform", IN_QUERY, OP_TEXT, .what = "Of the message."},
                                 {"message", IN_QUERY, OP_TEXT, .what = "Its id; else the newest."},
                                 {"person", IN_QUERY, OP_TEXT, .what = "The author's user id."},
                                 {"chat", IN_QUERY, OP_TEXT, .what = "The chat's id."},
                                 INSTANCE_ARGS(IN_QUERY),
                                 {"delivery", IN_QUERY, OP_WHOLE, .min = 1, .max = INT64_MAX,
                                  .what = "The number of a delivery, as a mailbox lists it."},
                                 {"action", IN_QUERY, OP_TEXT, .what = "An action instead."},
                                 {"traceparent", IN_QUERY, OP_TEXT,
                                  .what = "A W3C trace, or the 32 digits of its id."},
                                 {"after", IN_QUERY, OP_TEXT, .what = "next of the last page."},
                                 {"limit", IN_QUERY, OP_WHOLE, .min = 1, .max = JOURNAL_LIMIT,
                                  .initial = "20", .what = "At most so many."},
                                 {0}},
     .answer = "{now: whole, decisions: [object], actions: [object], next?: text}",
     .answer_what = "The newest first, each message with the steps of its deliveries.",
     .errors = "malformed (400), busy (503)"},
    {"trace", "GET", "/admin/trace", MAY_OPERATOR, trace,
     "What happens to the messages and actions of a person, a chat or an instance, as it happens.",
     .tenant_view = true,
     .args = (const struct op_arg[]){{"platform", IN_QUERY, OP_TEXT, .what = "There only."},
                                     {"person", IN_QUERY, OP_TEXT, .what = "The author's user id."},
                                     {"chat", IN_QUERY, OP_TEXT, .what = "The chat's id."},
                                     INSTANCE_ARGS(IN_QUERY),
                                     {"after", IN_QUERY, OP_TEXT,
                                      .what = "after of the last answer; else from now on."},
                                     {"wait", IN_QUERY, OP_WHOLE, .max = TRACE_WAIT_MS,
                                      .what = "Wait so many milliseconds for the first record."},
                                     {0}},
     .answer = "{now: whole, records: [object], after: text}",
     .answer_what = "The oldest first; pass after back to go on without a gap.",
     .errors = "malformed (400), busy (503)"},
    {"slow", "GET", "/admin/slow", MAY_OPERATOR, slow,
     "The instances whose mail has waited longest, and the slowest deliveries of two hours.",
     .answer = "{now: whole, unacked: [object], slowest: [object]}",
     .answer_what = "At most 50 and 64 of them."},
    {"audit", "GET", "/admin/audit", MAY_OPERATOR, list_audit,
     "The log of changes: who, what, from where, before and after; newest first.",
     .args =
         (const struct op_arg[]){
             {"since", IN_QUERY, OP_WHOLE, .max = INT64_MAX, .what = "From this time, unix ms."},
             {"until", IN_QUERY, OP_WHOLE, .max = INT64_MAX, .what = "Up to this time."},
             {"tenant", IN_QUERY, OP_TEXT, .what = "Changes of this tenant's facts."},
             {"after", IN_QUERY, OP_WHOLE, .max = INT64_MAX, .what = "next of the last page."},
             {"limit", IN_QUERY, OP_WHOLE, .min = 1, .max = 1000, .initial = "100",
              .what = "At most so many."},
             {0}},
     .answer = "{entries: [object], next?: whole}",
     .answer_what = "Secrets are redacted; the hash chains an entry to the one before it.",
     .errors = "unavailable (503)"},
    {"verifyAudit", "GET", "/admin/audit/verify", MAY_OPERATOR, verify_audit,
     "Read the whole log of changes and check its chain.",
     .args = (const struct op_arg[]){{"expect", IN_QUERY, OP_TEXT,
                                      .what = "The head of an earlier check, which must be in it."},
                                     {0}},
     .answer = "{ok: bool, entries: whole, first: whole, head: text, redacted: whole, cut?: text, "
               "problem?: text}",
     .answer_what = "head is the number and hash of the newest entry, cut those of the newest one "
                    "that audit.keep or audit.max_size deleted.",
     .errors = "unavailable (503)"},
    {0},
};
