/* journal.c - design.  (journal.h has the contract.)
 *
 * A record is a head {u16 bytes, u8 kind, u8 variant, i64 time}, then fixed members, then texts
 * with a length byte each.  The trace of an event or action is the last text, and is left out where
 * there is none.  Records lie back to back in the payload of a block and never cross its
 * end.  A length of zero ends a block.  The blocks in memory are a ring: block b is at b modulo
 * JOURNAL_BLOCKS. */
#include "core/journal.h"
#include <assert.h>
#include <stdlib.h>
#include "base/err.h"
#include "base/mem.h"
#include "core/event.h"

enum {
    HEAD_BYTES = 12,
    PAYLOAD = JOURNAL_BLOCK - JOURNAL_HEAD,
    VERDICT_MOST = 9 + 3 * (JOURNAL_TEXT + 1),
    EVENT_MOST = HEAD_BYTES + 8 + 8 * (JOURNAL_TEXT + 1), /* and its verdicts */
    STEP_MOST = HEAD_BYTES + 12 + JOURNAL_TEXT + 1,
    ACTION_MOST = HEAD_BYTES + 21 + 11 * (JOURNAL_TEXT + 1),
};
_Static_assert((int)(EVENT_MOST + JOURNAL_VERDICTS * VERDICT_MOST) < (int)PAYLOAD, "u16 holds it");

struct block {
    size_t used; /* bytes of the payload */
    char payload[PAYLOAD];
};

struct journal {
    struct block *blocks[JOURNAL_BLOCKS]; /* owned; NULL: not needed yet */
    struct block *at;                     /* the open block; borrowed; NULL: none yet */
    uint64_t first, open; /* numbers of the oldest block in memory, and the newest */
    uint64_t taken_block; /* everything before here was taken: journal_take() */
    size_t taken;
    uint64_t dropped, thinned;
    struct bucket_level strangers;
    bool fresh; /* on_fresh() was called */
    void (*on_fresh)(void *ctx, bool urgent);
    void *fresh_ctx;
    struct list watches; /* journal_watch.link */
    size_t n_watches;
};

struct journal *journal_new(void)
{
    struct journal *j = xcalloc(1, sizeof *j);

    list_init(&j->watches);
    return j;
}

void journal_free(struct journal *j)
{
    if (j == NULL)
        return;
    list_each (&j->watches, it, nxt)
        journal_unwatch(list_entry(it, struct journal_watch, link));
    for (size_t i = 0; i < JOURNAL_BLOCKS; i++)
        free(j->blocks[i]);
    free(j);
}

void journal_begin_at(struct journal *j, uint64_t block)
{
    assert(j->blocks[j->open % JOURNAL_BLOCKS] == NULL);
    j->first = j->open = j->taken_block = block;
}

uint64_t journal_thinned(const struct journal *j)
{
    return j->thinned;
}

uint64_t journal_dropped(const struct journal *j)
{
    return j->dropped;
}

/* ---- writing ---- */

#define PUT(at, v) (memcpy(at, &(v), sizeof(v)), (at) += sizeof(v))

static void put_text(char **at, struct str s)
{
    size_t n = s.n < JOURNAL_TEXT ? s.n : JOURNAL_TEXT;

    *(*at)++ = (char)(unsigned char)n;
    if (n > 0)
        memcpy(*at, s.p, n);
    *at += n;
}

static void open_next(struct journal *j)
{
    j->open += j->at != NULL;
    if (j->open - j->first == JOURNAL_BLOCKS)
        j->first++;
    if (j->taken_block < j->first) {
        j->dropped += j->first - j->taken_block;
        j->taken_block = j->first;
        j->taken = 0;
    }
    struct block **at = &j->blocks[j->open % JOURNAL_BLOCKS];
    if (*at == NULL)
        *at = xmalloc(sizeof **at);
    if (j->at != NULL && j->on_fresh != NULL)
        j->on_fresh(j->fresh_ctx, true);
    j->at = *at;
    j->at->used = 0;
}

/* The head of a record of at most @most bytes, in the open block or in a new one. */
static char *begin(struct journal *j, size_t most, enum journal_kind kind, uint8_t variant,
                   int64_t at_ms)
{
    if (j->at == NULL || j->at->used + most > PAYLOAD)
        open_next(j);
    char *p = j->at->payload + j->at->used;
    p[2] = (char)kind;
    p[3] = (char)variant;
    memcpy(p + 4, &at_ms, sizeof at_ms);
    return p;
}

static void tell_watches(struct journal *j, struct str bytes);

static void end(struct journal *j, char *p, const char *at)
{
    uint16_t n = (uint16_t)(at - p);

    memcpy(p, &n, sizeof n);
    j->at->used += n;
    if (!j->fresh && j->on_fresh != NULL) {
        j->fresh = true;
        j->on_fresh(j->fresh_ctx, false);
    }
    if (j->n_watches != 0)
        tell_watches(j, str_make(p, n));
}

/* Recipients come first: they must not be the ones that are left out. */
static size_t put_verdicts(char **at, const struct gate_verdict *verdicts,
                           const struct journal_copy *copies, size_t n)
{
    size_t kept = 0;

    for (int yes = 1; yes >= 0; yes--)
        for (size_t i = 0; i < n && kept < JOURNAL_VERDICTS; i++) {
            const struct gate_verdict *v = &verdicts[i];
            if (gate_is_yes(v->reason) != (yes == 1))
                continue;
            *(*at)++ = (char)copies[i].fate;
            PUT(*at, copies[i].delivery);
            put_text(at, str_of(gate_reason_word(v->reason)));
            put_text(at, v->to->tenant);
            put_text(at, v->to->instance);
            kept++;
        }
    return kept;
}

void journal_event(struct journal *j, int64_t at_ms, const struct event *ev, enum journal_note note,
                   const char *words, const struct gate_verdict *verdicts,
                   const struct journal_copy *copies, size_t n)
{
    bool received = note == JOURNAL_CONSUMED;
    uint16_t candidates = (uint16_t)(n < UINT16_MAX ? n : UINT16_MAX);

    for (size_t i = 0; i < n && !received; i++)
        received = gate_is_yes(verdicts[i].reason);
    if (!received &&
        !bucket_take(&j->strangers, at_ms, JOURNAL_STRANGERS, JOURNAL_STRANGERS_ONCE)) {
        j->thinned++;
        return;
    }
    size_t most = EVENT_MOST + VERDICT_MOST * (n < JOURNAL_VERDICTS ? n : JOURNAL_VERDICTS);
    char *p = begin(j, most, JOURNAL_EVENT, (uint8_t)note, at_ms), *at = p + HEAD_BYTES;
    PUT(at, candidates);
    char *count = at++;
    put_text(&at, ev->platform);
    put_text(&at, ev->bot);
    put_text(&at, str_is_empty(ev->message_id) ? ev->event_id : ev->message_id);
    put_text(&at, ev->chat_id);
    put_text(&at, ev->chat_type);
    put_text(&at, ev->user_id);
    put_text(&at, str_of(words));
    *count = (char)put_verdicts(&at, verdicts, copies, n);
    if (ev->trace.n > 0)
        put_text(&at, ev->trace);
    end(j, p, at);
}

void journal_step(struct journal *j, int64_t at_ms, enum journal_what what, uint64_t delivery,
                  uint32_t attempts, struct str words)
{
    char *p = begin(j, STEP_MOST, JOURNAL_STEP, (uint8_t)what, at_ms), *at = p + HEAD_BYTES;

    PUT(at, delivery);
    PUT(at, attempts);
    if (words.n == 0)
        *at++ = 0; /* nearly always, and this is the hot path */
    else
        put_text(&at, words);
    end(j, p, at);
}

void journal_action(struct journal *j, const struct journal_outcome *x)
{
    if (j == NULL)
        return;
    char *p = begin(j, ACTION_MOST, JOURNAL_ACTION, x->queued, x->ended_ms), *at = p + HEAD_BYTES;
    PUT(at, x->number);
    PUT(at, x->asked_ms);
    PUT(at, x->attempts);
    put_text(&at, x->platform);
    put_text(&at, x->bot);
    put_text(&at, x->chat);
    put_text(&at, x->message_id);
    put_text(&at, x->tenant);
    put_text(&at, x->instance);
    put_text(&at, x->request);
    put_text(&at, str_of(action_op_name(x->op)));
    put_text(&at, str_of(x->how));
    put_text(&at, x->why);
    if (x->trace.n > 0)
        put_text(&at, x->trace);
    end(j, p, at);
}

/* ---- reading ---- */

static bool get(struct str *from, void *to, size_t n)
{
    if (from->n < n)
        return false;
    memcpy(to, from->p, n);
    *from = str_skip(*from, n);
    return true;
}

static bool get_text(struct str *from, struct str *ret)
{
    uint8_t n;

    if (!get(from, &n, 1) || from->n < n)
        return false;
    *ret = str_make(from->p, n);
    *from = str_skip(*from, n);
    return true;
}

static bool read_event(struct str s, uint8_t variant, struct journal_record *r)
{
    uint16_t candidates;
    uint8_t n, fate;

    if (variant > JOURNAL_REFUSED || !get(&s, &candidates, sizeof candidates) || !get(&s, &n, 1) ||
        n > JOURNAL_VERDICTS || !get_text(&s, &r->platform) || !get_text(&s, &r->bot) ||
        !get_text(&s, &r->message_id) || !get_text(&s, &r->chat_id) ||
        !get_text(&s, &r->chat_type) || !get_text(&s, &r->user_id) || !get_text(&s, &r->words))
        return false;
    r->note = (enum journal_note)variant;
    r->n_candidates = candidates;
    for (size_t i = 0; i < n; i++) {
        struct journal_verdict v = {0};
        if (!get(&s, &fate, 1) || fate > JOURNAL_EDITED ||
            !get(&s, &v.delivery, sizeof v.delivery) || !get_text(&s, &v.reason) ||
            !get_text(&s, &v.tenant) || !get_text(&s, &v.instance))
            return false;
        v.fate = (enum journal_fate)fate;
        if (v.tenant.n > 0 && v.tenant.p[0] != '\0') /* else: blanked with its tenant */
            r->verdicts[r->n_verdicts++] = v;
    }
    return (s.n == 0 || get_text(&s, &r->trace)) && s.n == 0;
}

static bool read_step(struct str s, uint8_t variant, struct journal_record *r)
{
    r->what = (enum journal_what)variant;
    return variant >= JOURNAL_SENT && variant <= JOURNAL_LOST &&
           get(&s, &r->delivery, sizeof r->delivery) && get(&s, &r->attempts, sizeof r->attempts) &&
           get_text(&s, &r->words) && s.n == 0;
}

static bool read_action(struct str s, uint8_t variant, struct journal_record *r)
{
    r->queued = variant == 1;
    return variant <= 1 && get(&s, &r->number, sizeof r->number) &&
           get(&s, &r->asked_ms, sizeof r->asked_ms) && get(&s, &r->attempts, sizeof r->attempts) &&
           get_text(&s, &r->platform) && get_text(&s, &r->bot) && get_text(&s, &r->chat_id) &&
           get_text(&s, &r->message_id) && get_text(&s, &r->tenant) && get_text(&s, &r->instance) &&
           get_text(&s, &r->request) && get_text(&s, &r->op) && get_text(&s, &r->how) &&
           get_text(&s, &r->words) && (s.n == 0 || get_text(&s, &r->trace)) && s.n == 0;
}

bool journal_read(struct str *bytes, struct journal_record *ret)
{
    uint16_t n;

    if (bytes->n < HEAD_BYTES)
        return false;
    memcpy(&n, bytes->p, sizeof n);
    if (n < HEAD_BYTES || n > bytes->n)
        return false;
    uint8_t kind = (uint8_t)bytes->p[2], variant = (uint8_t)bytes->p[3];
    struct str body = str_make(bytes->p + HEAD_BYTES, n - (size_t)HEAD_BYTES);
    *ret = (struct journal_record){.kind = (enum journal_kind)kind};
    memcpy(&ret->at_ms, bytes->p + 4, sizeof ret->at_ms);
    *bytes = str_skip(*bytes, n);
    switch (kind) {
    case JOURNAL_GONE:
        return true;
    case JOURNAL_EVENT:
        return read_event(body, variant, ret);
    case JOURNAL_STEP:
        return read_step(body, variant, ret);
    case JOURNAL_ACTION:
        return read_action(body, variant, ret);
    default:
        return false;
    }
}

void journal_each(const struct journal *j, journal_cb *cb, void *ctx)
{
    uint16_t *lengths = xmalloc(PAYLOAD / HEAD_BYTES * sizeof *lengths);
    struct journal_record rec;
    bool more = true;

    for (uint64_t b = j->open + 1; more && b-- > j->first;) {
        const struct block *blk = j->blocks[b % JOURNAL_BLOCKS];
        size_t n = 0, used = 0;
        for (; blk != NULL && used < blk->used; used += lengths[n++])
            memcpy(&lengths[n], blk->payload + used, sizeof lengths[n]);
        while (more && n-- > 0) {
            used -= lengths[n];
            struct str bytes = str_make(blk->payload + used, lengths[n]);
            if (journal_read(&bytes, &rec) && rec.kind != JOURNAL_GONE)
                more = cb(ctx, b * JOURNAL_BLOCK + JOURNAL_HEAD + used, &rec);
        }
    }
    free(lengths);
}

uint64_t journal_end(const struct journal *j)
{
    return j->open * JOURNAL_BLOCK + JOURNAL_HEAD + (j->at != NULL ? j->at->used : 0);
}

/* ---- matching ---- */

static bool is(struct str wanted, struct str text)
{
    if (wanted.n > JOURNAL_TEXT)
        wanted.n = JOURNAL_TEXT;
    return wanted.n == 0 || str_eq(wanted, text);
}

static bool event_matches(const struct journal_record *rec, const struct journal_query *q)
{
    bool whose = q->tenant.n == 0 && q->instance.n == 0 && q->delivery == 0;

    if (q->action.n > 0 || !is(q->platform, rec->platform) || !is(q->message, rec->message_id) ||
        !is(q->person, rec->user_id) || !is(q->chat, rec->chat_id) ||
        !is(journal_trace_id(q->trace), journal_trace_id(rec->trace)))
        return false;
    for (size_t i = 0; i < rec->n_verdicts && !whose; i++) {
        const struct journal_verdict *v = &rec->verdicts[i];
        whose = is(q->tenant, v->tenant) && is(q->instance, v->instance) &&
                (q->delivery == 0 || q->delivery == v->delivery);
    }
    return whose;
}

static bool action_matches(const struct journal_record *rec, const struct journal_query *q)
{
    struct str head = STR("queued:"), id = q->action;
    uint64_t number = 0;

    if (q->delivery != 0 || !is(q->platform, rec->platform) || !is(q->message, rec->message_id) ||
        !is(q->chat, rec->chat_id) || !is(q->tenant, rec->tenant) ||
        !is(q->instance, rec->instance) || !is(q->person, rec->chat_id) ||
        !is(journal_trace_id(q->trace), journal_trace_id(rec->trace)))
        return false;
    if (id.n == 0 || is(id, rec->request))
        return true;
    return str_to_u64(str_starts(id, head) ? str_skip(id, head.n) : id, &number) && number != 0 &&
           number == rec->number;
}

bool journal_matches(const struct journal_record *rec, const struct journal_query *q)
{
    if (rec->kind == JOURNAL_EVENT)
        return event_matches(rec, q);
    if (rec->kind == JOURNAL_ACTION)
        return action_matches(rec, q);
    return rec->kind == JOURNAL_STEP && q->delivery != 0 && q->delivery == rec->delivery;
}

/* ---- the way to disk ---- */

bool journal_take(struct journal *j, uint64_t *ret_block, size_t *ret_offset, struct str *ret_bytes)
{
    const struct block *b = j->blocks[j->taken_block % JOURNAL_BLOCKS];

    while (b != NULL && j->taken == b->used && j->taken_block < j->open) {
        j->taken_block++;
        j->taken = 0;
        b = j->blocks[j->taken_block % JOURNAL_BLOCKS];
    }
    if (b == NULL || j->taken == b->used) {
        j->fresh = false;
        return false;
    }
    *ret_block = j->taken_block;
    *ret_offset = JOURNAL_HEAD + j->taken;
    *ret_bytes = str_make(b->payload + j->taken, b->used - j->taken);
    j->taken = b->used;
    return true;
}

void journal_on_fresh(struct journal *j, void (*cb)(void *ctx, bool urgent), void *ctx)
{
    j->on_fresh = cb;
    j->fresh_ctx = ctx;
}

/* ---- erasing ---- */

/* Overwrites the names of @tenant in the verdicts of an event.  True: another tenant is left. */
static bool blank_verdicts(struct journal_record *rec, struct str tenant, size_t *ret_n)
{
    bool others = false;

    for (size_t i = 0; i < rec->n_verdicts; i++) {
        struct journal_verdict *v = &rec->verdicts[i];
        if (!str_eq(v->tenant, tenant)) {
            others = true;
            continue;
        }
        memset((char *)(uintptr_t)v->instance.p, 0, v->instance.n);
        memset((char *)(uintptr_t)v->tenant.p, 0, v->tenant.n);
        ++*ret_n;
    }
    return others;
}

/* True when the whole record goes; @ret_n counts what was blanked inside one that stays. */
static bool goes(struct journal_record *rec, const struct journal_subject *s, bool only_count,
                 size_t *ret_n)
{
    bool of_tenant = false;

    if (s->tenant.n == 0)
        return rec->kind != JOURNAL_STEP && str_eq(rec->platform, s->platform) &&
               (str_eq(rec->user_id, s->user) || str_eq(rec->chat_id, s->user));
    if (rec->kind == JOURNAL_ACTION)
        return str_eq(rec->tenant, s->tenant);
    for (size_t i = 0; i < rec->n_verdicts; i++)
        of_tenant |= str_eq(rec->verdicts[i].tenant, s->tenant);
    if (!of_tenant || only_count)
        return of_tenant;
    return !blank_verdicts(rec, s->tenant, ret_n);
}

size_t journal_blank(char *bytes, size_t n, const struct journal_subject *s, bool only_count)
{
    struct str rest = str_make(bytes, n), before = rest;
    struct journal_record rec;
    size_t gone = 0;

    for (; journal_read(&rest, &rec); before = rest) {
        size_t inside = 0;
        if (rec.kind == JOURNAL_GONE || !goes(&rec, s, only_count, &inside)) {
            gone += inside != 0;
            continue;
        }
        gone++;
        char *p = bytes + (before.p - bytes);
        if (!only_count)
            memset(p + 2, 0, before.n - rest.n - 2);
    }
    return gone;
}

size_t journal_forget(struct journal *j, const struct journal_subject *s, bool only_count)
{
    size_t n = 0;

    for (uint64_t b = j->first; b <= j->open; b++)
        if (j->blocks[b % JOURNAL_BLOCKS] != NULL)
            n += journal_blank(j->blocks[b % JOURNAL_BLOCKS]->payload,
                               j->blocks[b % JOURNAL_BLOCKS]->used, s, only_count);
    return n;
}

/* ---- watching ---- */

bool journal_watch(struct journal *j, struct journal_watch *w)
{
    size_t of_tenant = 0;

    list_each (&j->watches, it, nxt) {
        const struct journal_watch *other = list_entry(it, struct journal_watch, link);
        of_tenant += other->query.by_tenant && str_eq(other->query.tenant, w->query.tenant);
    }
    if (j->n_watches == JOURNAL_WATCHES ||
        (w->query.by_tenant && of_tenant >= JOURNAL_WATCHES / JOURNAL_SHARE))
        return false;
    list_append(&j->watches, &w->link);
    w->deliveries = xcalloc(JOURNAL_WATCHED, sizeof *w->deliveries);
    w->n = 0;
    w->journal = j;
    j->n_watches++;
    return true;
}

void journal_unwatch(struct journal_watch *w)
{
    if (w->journal == NULL)
        return;
    list_remove(&w->link);
    w->journal->n_watches--;
    free(w->deliveries);
    w->deliveries = NULL;
    w->journal = NULL;
}

static bool follows(const struct journal_watch *w, uint64_t delivery)
{
    uint32_t n = w->n < JOURNAL_WATCHED ? w->n : JOURNAL_WATCHED;

    for (uint32_t i = 0; i < n; i++)
        if (w->deliveries[i] == delivery)
            return true;
    return false;
}

static void tell_watches(struct journal *j, struct str bytes)
{
    struct journal_record rec;

    if (!journal_read(&bytes, &rec))
        return;
    list_each (&j->watches, it, nxt) {
        struct journal_watch *w = list_entry(it, struct journal_watch, link);
        if (rec.kind == JOURNAL_STEP ? !follows(w, rec.delivery)
                                     : !journal_matches(&rec, &w->query))
            continue;
        for (size_t i = 0; i < rec.n_verdicts; i++)
            if (rec.verdicts[i].delivery != 0 && !follows(w, rec.verdicts[i].delivery))
                w->deliveries[w->n++ % JOURNAL_WATCHED] = rec.verdicts[i].delivery;
        w->cb(w->ctx, &rec);
    }
}

/* ---- words ---- */

static const struct {
    const char *word, *sentence;
} whats[] = {
    [JOURNAL_SENT] = {"sent", "sent to the gateway"},
    [JOURNAL_RESENT] = {"resent", "sent again on a new socket"},
    [JOURNAL_ACKED] = {"acked", "acknowledged by the gateway"},
    [JOURNAL_SETTLED] = {"settled", "settled without an ack of its own"},
    [JOURNAL_PARKED] = {"parked", "set aside after too many attempts"},
    [JOURNAL_REDRIVEN] = {"redriven", "put back in line"},
    [JOURNAL_PURGED] = {"purged", "deleted before it was acknowledged"},
    [JOURNAL_LOST] = {"lost", "not written: the platform was asked to send it again"},
};

const char *journal_what_word(enum journal_what w)
{
    return w >= JOURNAL_SENT && w <= JOURNAL_LOST ? whats[w].word : "?";
}

const char *journal_what_sentence(enum journal_what w)
{
    return w >= JOURNAL_SENT && w <= JOURNAL_LOST ? whats[w].sentence : "?";
}

const char *journal_fate_word(enum journal_fate f)
{
    static const char *const words[] = {[JOURNAL_NONE] = "none",
                                        [JOURNAL_ACCEPTED] = "accepted",
                                        [JOURNAL_DUPLICATE] = "duplicate",
                                        [JOURNAL_BUSY] = "busy",
                                        [JOURNAL_EDITED] = "edited"};

    return f <= JOURNAL_EDITED ? words[f] : "?";
}
