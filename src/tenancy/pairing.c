/* pairing.c - design.  (pairing.h has the contract.)
 *
 * Everything is in memory.  The people of a bot are in one list in order of their last message, so
 * whoever goes first is at its front.  An entry is found by its id, a keyed hash of platform, bot
 * and user, which says nothing about the person.
 *
 *      dirty      entries whose record is older than memory, and gone: records to be deleted
 *      writing    what the one write under way contains; after a failure it is dirty again
 *
 * Deletions go first, so the records on disk never exceed twice the bound of the queue.
 *
 * A decision holds its entry until it ends: a held entry is neither pushed out nor written behind,
 * so a late write cannot undo the decision. */
#include "tenancy/pairing_priv.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/mem.h"
#include "core/event.h"
#include "store/store.h"

#define SWEEP_MS 600000 /* between two looks for people who are too old */
#define COUNT_MS 600000 /* a count is written again after this time at the earliest */
#define RECEIPTS_MS 3600000

/* ---- configuration, record ---- */

#define AT(member) offsetof(struct pairing_settings, member)
static const struct config_key keys[] = {
    {"pairing.keep", CFG_DURATION, CFG_RELOAD, AT(keep_ms), "30d", .max = 3650 * INT64_C(86400000),
     .what = "How long a person who wrote to a bot and is linked to nobody stays in the list of "
             "`bellhop pairing`, counted from the last message; `retention` counts if it is "
             "shorter. 0: nobody is listed."},
    {"pairing.receipt", CFG_BOOL, CFG_RELOAD, AT(receipt), "false",
     .what = "Answer people who are linked to nobody in their direct chat, at most once a day and "
             "60 times an hour per bot. Blocked and denied people get no answer."},
    {"pairing.receipt_text", CFG_TEXT, CFG_RELOAD, AT(receipt_text),
     "Nobody here knows you yet, so your message was not read. The operator of this bot sees that "
     "you wrote and can let you in.",
     .what = "What they are answered."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct pairing_settings *s = settings;

    return s->receipt_text == NULL || strlen(s->receipt_text) <= GRANT_REPLY_MAX ||
           bh_why(ret_why, "pairing.receipt_text: expected at most %d bytes", GRANT_REPLY_MAX);
}

const struct config_section pairing_config = {.keys = keys,
                                              .size = sizeof(struct pairing_settings),
                                              .check = check};

static const char *const states[] = {"waiting", "denied", "blocked", NULL};

const char *pairing_state_word(enum pairing_state s)
{
    return states[s];
}

static const struct record_field fields[] = {
    NAME_FIELD(struct pairing_record, platform, RECORD_KEY),
    NAME_FIELD(struct pairing_record, bot, RECORD_KEY),
    ID_FIELD(struct pairing_record, user, RECORD_KEY),
    RECORD_FIELD(struct pairing_record, state, "state", 0, .words = states),
    RECORD_FIELD(struct pairing_record, name, "name", 0, .max = PAIRING_NAME_MAX),
    RECORD_FIELD(struct pairing_record, chat, "chat", 0, .max = GRANT_ID_MAX),
    RECORD_FIELD(struct pairing_record, type, "type", 0, .max = CHAT_TYPE_MAX),
    RECORD_FIELD(struct pairing_record, messages, "n", 0),
    RECORD_FIELD(struct pairing_record, first_ms, "first", 0),
    RECORD_FIELD(struct pairing_record, last_ms, "last", 0),
    RECORD_FIELD(struct pairing_record, told_ms, "told", 0),
    RECORD_FIELD(struct pairing_record, decided_ms, "decided", 0),
};
const struct record_form pairing_form =
    RECORD_FORM("pairing", struct pairing_record, fields, .lossy = true);

struct pairing_record stranger_record(const struct stranger *e)
{
    return (struct pairing_record){.platform = e->of->platform,
                                   .bot = e->of->bot,
                                   .user = str_of(e->user),
                                   .name = str_of(e->name),
                                   .chat = str_of(e->chat),
                                   .type = str_of(e->type),
                                   .state = e->state,
                                   .messages = e->messages,
                                   .first_ms = e->first_ms,
                                   .last_ms = e->last_ms,
                                   .told_ms = e->told_ms,
                                   .decided_ms = e->decided_ms};
}

/* ---- entries ---- */

int64_t pairing_now(const struct pairing *p)
{
    return clock_wall_ms(p->env.clock);
}

uint64_t stranger_id(const struct pairing *p, struct str platform, struct str bot, struct str user)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, bot, user);

    return key.p != NULL ? hash64(&p->env.store->dedup_key, key) : 0;
}

struct stranger *stranger_find(const struct pairing *p, uint64_t id)
{
    return map_get(&p->by_id, str_make(&id, sizeof id));
}

static struct queue *queue_get(struct pairing *p, struct str platform, struct str bot)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, bot, STR_NULL);
    struct queue *q = key.p != NULL ? map_get(&p->queues, key) : NULL;

    if (q != NULL || key.p == NULL)
        return q;
    q = xcalloc(1, sizeof *q + key.n);
    memcpy(q->bytes, key.p, key.n);
    q->key = str_make(q->bytes, key.n);
    q->platform = str_make(q->bytes, platform.n);
    q->bot = str_make(q->bytes + platform.n + 1, bot.n);
    list_init(&q->people);
    list_init(&q->blocked);
    list_append(&p->by_age, &q->link);
    map_put(&p->queues, q->key, q);
    return q;
}

/* True for a sequence that a page or a terminal must not see in a name: controls, and marks that
 * change the direction of the text around them. */
static bool is_unsafe(struct str seq)
{
    unsigned char a = (unsigned char)seq.p[0];

    if (seq.n == 1)
        return a < ' ' || a == 0x7f;
    if (seq.n == 2)
        return a == 0xc2 && (unsigned char)seq.p[1] < 0xa0;
    unsigned char c = (unsigned char)seq.p[2];
    if (seq.n == 3 && memcmp(seq.p, "\xe2\x80", 2) == 0)
        return c == 0x8e || c == 0x8f || (c >= 0xa8 && c <= 0xae);
    return seq.n == 3 && memcmp(seq.p, "\xe2\x81", 2) == 0 && c >= 0xa6 && c <= 0xa9;
}

static void set_name(struct stranger *e, struct str name)
{
    size_t n = 0;

    while (name.n > 0) {
        size_t seq = utf8_seq_bytes(name);
        bool bad = seq == 0 || is_unsafe(str_make(name.p, seq));
        if (n + (bad ? 1 : seq) > PAIRING_NAME_MAX)
            break;
        if (bad)
            e->name[n++] = ' ';
        else
            memcpy(e->name + n, name.p, seq);
        n += bad ? 0 : seq;
        name = str_skip(name, seq != 0 ? seq : 1);
    }
    e->name[n] = '\0';
}

static void set_chat(struct stranger *e, struct str type, struct str chat)
{
    bool direct = str_eq(type, STR("dm"));

    if (e->chat != NULL && !direct)
        return; /* the direct chat is where the person is answered */
    snprintf(e->type, sizeof e->type, "%.*s", STR_FMT(utf8_head(type, CHAT_TYPE_MAX)));
    if (direct && grant_id_ok(chat) && !str_eq(chat, str_of(e->chat))) {
        free(e->chat);
        e->chat = str_dup(chat);
    }
}

static struct stranger *stranger_new(struct pairing *p, struct queue *q, uint64_t id,
                                     struct str user)
{
    struct stranger *e = xcalloc(1, sizeof *e + user.n + 1);

    e->of = q;
    e->id = id;
    memcpy(e->user, user.p, user.n);
    map_put(&p->by_id, str_make(&e->id, sizeof e->id), e);
    return e;
}

static void leave_list(struct pairing *p, struct stranger *e)
{
    if (!list_is_linked(&e->link))
        return;
    list_remove(&e->link);
    p->in_state[e->state]--;
    e->of->n_waiting -= e->state == PAIRING_WAITING;
    if (e->state == PAIRING_BLOCKED) {
        e->of->n_blocked--;
    } else {
        e->of->n_people--;
        p->n_people--;
    }
}

/* Sets the state and puts the entry to the end of its list. */
void stranger_enter(struct pairing *p, struct stranger *e, enum pairing_state state)
{
    leave_list(p, e);
    e->state = state;
    p->in_state[state]++;
    e->of->n_waiting += state == PAIRING_WAITING;
    list_append(state == PAIRING_BLOCKED ? &e->of->blocked : &e->of->people, &e->link);
    if (state == PAIRING_BLOCKED) {
        e->of->n_blocked++;
    } else {
        e->of->n_people++;
        p->n_people++;
    }
}

void stranger_drop(struct pairing *p, struct stranger *e)
{
    leave_list(p, e);
    list_remove(&e->dirty);
    map_del(&p->by_id, str_make(&e->id, sizeof e->id));
    free(e->chat);
    free(e);
}

static void want_write(struct pairing *p)
{
    if (!timer_is_set(&p->write) && !p->is_writing)
        timer_set(p->env.clock, &p->write, PAIRING_WRITE_MS);
}

/* Drops the entry; its record, if it has one, is deleted later. */
void stranger_push_out(struct pairing *p, struct stranger *e)
{
    if (e->written_ms != 0) {
        BUF_LOCAL key = BUF_INIT;
        struct pairing_record r = stranger_record(e);
        record_write(&pairing_form, NULL, &r, &key, NULL);
        struct stranger_gone *g = xcalloc(1, sizeof *g + key.n);
        g->id = e->id;
        g->n = key.n;
        memcpy(g->key, key.p, key.n);
        list_append(&p->gone, &g->link);
        want_write(p);
    }
    stranger_drop(p, e);
}

/* The one that was silent for longest, and that no decision holds; NULL: none. */
static struct stranger *strangers_oldest(const struct queue *q)
{
    for (struct list *it = q->people.next; it != &q->people; it = it->next) {
        struct stranger *e = list_entry(it, struct stranger, link);
        if (!e->held)
            return e;
    }
    return NULL;
}

/* Makes room for one more person of @q.  False: every entry is held. */
bool strangers_make_room(struct pairing *p, struct queue *q)
{
    struct queue *from = q->n_people >= PAIRING_BOT_MAX ? q : NULL;

    if (from == NULL && p->n_people >= PAIRING_MAX) {
        from = q;
        list_each (&p->by_age, it, nxt) {
            struct queue *other = list_entry(it, struct queue, link);
            if (other->n_people > from->n_people)
                from = other;
        }
    }
    if (from == NULL)
        return true;
    struct stranger *e = strangers_oldest(from);
    if (e != NULL)
        stranger_push_out(p, e);
    p->n.pushed_out += e != NULL;
    return e != NULL;
}

/* ---- writing behind ---- */

static void want_record(struct pairing *p, struct stranger *e)
{
    if (!list_is_linked(&e->dirty))
        list_append(&p->dirty, &e->dirty);
    want_write(p);
}

static void on_written(void *ctx, enum bh_err err)
{
    struct pairing *p = ctx;

    p->is_writing = false;
    list_each (&p->writing, it, nxt) {
        struct stranger *e = list_entry(it, struct stranger, dirty);
        list_remove(it);
        if (err != BH_OK)
            list_append(&p->dirty, &e->dirty);
    }
    list_each (&p->deleting, at, after) {
        list_remove(at);
        if (err != BH_OK)
            list_append(&p->gone, at);
        else
            free(list_entry(at, struct stranger_gone, link));
    }
    if (!list_is_empty(&p->dirty) || !list_is_empty(&p->gone))
        want_write(p);
}

/* Submits at most PAIRING_WRITE_MAX records, deletions first.  False: there is nothing to write. */
static bool write_some(struct pairing *p)
{
    struct store_kv items[PAIRING_WRITE_MAX];
    struct { /* where its key and value are in @bytes */
        size_t key, value, end;
    } at[PAIRING_WRITE_MAX];
    BUF_LOCAL bytes = BUF_INIT;
    size_t n = 0, n_gone = 0;

    list_each (&p->gone, it, nxt) {
        struct stranger_gone *g = list_entry(it, struct stranger_gone, link);
        struct stranger *again = stranger_find(p, g->id);
        if (n == PAIRING_WRITE_MAX)
            break;
        if (again != NULL) { /* a receipt or a decision may have written the record anew */
            again->written_ms += again->written_ms == 0;
            list_remove(it);
            free(g);
            continue;
        }
        items[n++] =
            (struct store_kv){KV_DELETE, pairing_form.ns, str_make(g->key, g->n), STR_NULL};
        list_move(it, &p->deleting);
    }
    n_gone = n;
    list_each (&p->dirty, one, next) {
        struct stranger *e = list_entry(one, struct stranger, dirty);
        if (n == PAIRING_WRITE_MAX)
            break;
        list_remove(one);
        if (e->held)
            continue; /* the decision writes it */
        struct pairing_record r = stranger_record(e);
        BUF_LOCAL key = BUF_INIT, value = BUF_INIT;
        record_write(&pairing_form, NULL, &r, &key, &value);
        at[n].key = bytes.n;
        buf_add_str(&bytes, buf_str(&key));
        at[n].value = bytes.n;
        buf_add_str(&bytes, buf_str(&value));
        at[n++].end = bytes.n;
        e->written_ms = pairing_now(p);
        e->counted = false;
        list_append(&p->writing, &e->dirty);
    }
    for (size_t i = n_gone; i < n; i++) /* @bytes does not move any more */
        items[i] = (struct store_kv){KV_PUT, pairing_form.ns,
                                     str_make(bytes.p + at[i].key, at[i].value - at[i].key),
                                     str_make(bytes.p + at[i].value, at[i].end - at[i].value)};
    if (n == 0)
        return false;
    p->n.writes++;
    store_put(p->env.store, items, n, false, on_written, p);
    return true;
}

static void on_write(struct timer *t)
{
    struct pairing *p = container_of(t, struct pairing, write);

    if (!p->is_writing)
        p->is_writing = write_some(p);
}

void pairing_flush(struct pairing *p)
{
    void *v;

    if (p == NULL)
        return;
    for (size_t pos = 0; map_next(&p->by_id, &pos, &v);) {
        struct stranger *e = v;
        if (e->counted && !list_is_linked(&e->dirty))
            list_append(&p->dirty, &e->dirty);
    }
    while (write_some(p))
        p->is_writing = true;
}

/* ---- a person wrote ---- */

struct stranger_receipt { /* waits until it is on disk that the person was told */
    struct list link;
    struct pairing *p;
    uint64_t id;
    struct str platform, bot, chat, message, thread; /* in bytes */
    char bytes[];
};

static void on_receipt_kept(void *ctx, enum bh_err err)
{
    struct stranger_receipt *r = ctx;
    struct stranger *e = stranger_find(r->p, r->id);
    const struct event place = {.platform = r->platform,
                                .bot = r->bot,
                                .chat_id = r->chat,
                                .message_id = r->message,
                                .thread_id = r->thread};

    if (err == BH_OK && r->p->tell != NULL) {
        r->p->n.receipts++;
        r->p->tell(r->p->tell_ctx, &place, str_of(r->p->env.settings->receipt_text));
    } else if (err != BH_OK && e != NULL) {
        e->told_ms = 0;
    }
    list_remove(&r->link);
    free(r);
}

static bool may_tell(const struct pairing *p, struct stranger *e, const struct event *ev)
{
    const struct pairing_settings *s = p->env.settings;
    int64_t now_ms = clock_now_ms(p->env.clock);
    struct queue *q = e->of;

    if (!s->receipt || s->receipt_text == NULL || p->tell == NULL || e->state != PAIRING_WAITING ||
        e->held || !str_eq(ev->chat_type, STR("dm")) ||
        (e->told_ms != 0 && pairing_now(p) - e->told_ms < PAIRING_TOLD_MS))
        return false;
    if (q->receipts == 0 || now_ms - q->receipts_from_ms >= RECEIPTS_MS) {
        q->receipts_from_ms = now_ms;
        q->receipts = 0;
    }
    return q->receipts < PAIRING_RECEIPTS_MAX;
}

static void tell(struct pairing *p, struct stranger *e, const struct event *ev)
{
    const struct str from[] = {ev->platform, ev->bot, ev->chat_id, ev->message_id, ev->thread_id};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(from); i++)
        n += from[i].n;
    struct stranger_receipt *r = xcalloc(1, sizeof *r + n);
    char *at = r->bytes;
    r->p = p;
    r->id = e->id;
    list_append(&p->receipts, &r->link);
    r->platform = str_pack(&at, from[0]);
    r->bot = str_pack(&at, from[1]);
    r->chat = str_pack(&at, from[2]);
    r->message = str_pack(&at, from[3]);
    r->thread = str_pack(&at, from[4]);
    e->of->receipts++;
    e->told_ms = e->written_ms = pairing_now(p);
    e->counted = false;
    struct pairing_record rec = stranger_record(e);
    record_put(p->env.store, &pairing_form, NULL, &rec, true, on_receipt_kept, r);
}

/* True when a link of the person counts on the bot. */
static bool is_linked(const struct pairing *p, struct str platform, struct str bot, struct str user)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, user, STR_NULL);
    const struct gate_link *l =
        key.p != NULL ? map_get(&facts_gate(p->env.facts)->authors, key) : NULL;

    for (int n = 0; l != NULL && n < GATE_LINKS; n++, l = l->next)
        if (gate_counts_on(l, bot))
            return true;
    return false;
}

void pairing_wrote(struct pairing *p, const struct event *ev, bool addressed)
{
    struct str name = ev->user_display_name.n > 0 ? ev->user_display_name : ev->user_name;
    int64_t now_ms = pairing_now(p);

    if (p->env.settings->keep_ms <= 0 || ev->author_is_bot || ev->author_unproven ||
        (!addressed && !str_eq(ev->chat_type, STR("dm"))) || !grant_id_ok(ev->user_id) ||
        !facts_name_ok(ev->platform) || !facts_name_ok(ev->bot))
        return;
    uint64_t id = stranger_id(p, ev->platform, ev->bot, ev->user_id);
    struct stranger *e = id != 0 ? stranger_find(p, id) : NULL;
    if (id == 0 || (e != NULL && e->state == PAIRING_BLOCKED) ||
        is_linked(p, ev->platform, ev->bot, ev->user_id))
        return;
    if (e == NULL) {
        struct queue *q = queue_get(p, ev->platform, ev->bot);
        if (q == NULL || !strangers_make_room(p, q))
            return;
        e = stranger_new(p, q, id, ev->user_id);
        e->first_ms = now_ms;
    }
    p->n.messages++;
    bool late = e->state == PAIRING_DENIED && now_ms - e->decided_ms >= PAIRING_DENIED_MS;
    stranger_enter(p, e, late ? PAIRING_WAITING : e->state);
    e->messages += e->messages < UINT32_MAX;
    e->last_ms = now_ms;
    e->counted = true;
    set_name(e, name);
    set_chat(e, ev->chat_type, ev->chat_id);
    if (may_tell(p, e, ev))
        tell(p, e, ev);
    else if (e->written_ms == 0 || now_ms - e->written_ms >= COUNT_MS || late)
        want_record(p, e);
}

void pairing_on_tell(struct pairing *p, pairing_tell_cb *cb, void *ctx)
{
    p->tell = cb;
    p->tell_ctx = ctx;
}

/* ---- forgetting ---- */

/* A link was made without the queue: by a code, or by an operator. */
bool stranger_has_link(const struct pairing *p, const struct stranger *e)
{
    return is_linked(p, e->of->platform, e->of->bot, str_of(e->user));
}

static void on_sweep(struct timer *t)
{
    struct pairing *p = container_of(t, struct pairing, sweep);
    int64_t keep_ms = p->env.settings->keep_ms, retention_ms = *p->env.retention_ms;

    if (retention_ms > 0 && retention_ms < keep_ms)
        keep_ms = retention_ms;
    int64_t before_ms = pairing_now(p) - keep_ms;
    list_each (&p->by_age, it, nxt) {
        struct queue *q = list_entry(it, struct queue, link);
        list_each (&q->people, at, after) {
            struct stranger *e = list_entry(at, struct stranger, link);
            if (!e->held && (e->last_ms < before_ms || stranger_has_link(p, e)))
                stranger_push_out(p, e);
        }
    }
    timer_set(p->env.clock, t, SWEEP_MS);
}

/* ---- start and end ---- */

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct pairing *p = ctx;
    const struct pairing_record *r = thing;

    if (!facts_name_ok(r->platform) || !facts_name_ok(r->bot) || !grant_id_ok(r->user))
        return false;
    struct queue *q = queue_get(p, r->platform, r->bot);
    uint64_t id = stranger_id(p, r->platform, r->bot, r->user);
    if (q == NULL || id == 0 || stranger_find(p, id) != NULL)
        return false;
    struct stranger *e = stranger_new(p, q, id, r->user);
    e->state = r->state;
    e->messages = r->messages;
    e->first_ms = r->first_ms;
    e->last_ms = r->last_ms;
    e->told_ms = r->told_ms;
    e->decided_ms = r->decided_ms;
    e->written_ms = r->last_ms != 0 ? r->last_ms : 1;
    set_name(e, r->name);
    e->chat = str_dup_opt(r->chat);
    snprintf(e->type, sizeof e->type, "%.*s", STR_FMT(r->type));
    return true;
}

static int by_last(const void *a, const void *b)
{
    const struct stranger *x = *(struct stranger *const *)a, *y = *(struct stranger *const *)b;

    if (x->last_ms != y->last_ms)
        return x->last_ms < y->last_ms ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Records come in the order of their keys.  A crash during a flood may leave more of them than the
 * queue holds: the oldest go. */
static void line_up(struct pairing *p)
{
    size_t n = map_count(&p->by_id), i = 0;
    struct stranger **all = xcalloc(n + 1, sizeof *all);
    void *v;

    for (size_t pos = 0; map_next(&p->by_id, &pos, &v);)
        all[i++] = v;
    if (n > 0)
        qsort(all, n, sizeof *all, by_last);
    for (i = 0; i < n; i++) {
        if (all[i]->state != PAIRING_BLOCKED)
            strangers_make_room(p, all[i]->of);
        stranger_enter(p, all[i], all[i]->state);
    }
    free(all);
}

enum bh_err pairing_open(const struct pairing_env *env, struct pairing **ret, char *ret_why)
{
    struct pairing *p = xcalloc(1, sizeof *p);

    p->env = *env;
    list_init(&p->by_age);
    list_init(&p->dirty);
    list_init(&p->writing);
    list_init(&p->gone);
    list_init(&p->deleting);
    list_init(&p->deciding);
    list_init(&p->receipts);
    timer_init(&p->write, on_write);
    timer_init(&p->sweep, on_sweep);
    enum bh_err err = record_load(env->store, &pairing_form, NULL, STR_NULL, on_record, p, ret_why);
    if (err != BH_OK) {
        pairing_free(p);
        return err;
    }
    line_up(p);
    p->n.pushed_out = 0;
    timer_set(env->clock, &p->sweep, SWEEP_MS);
    *ret = p;
    return BH_OK;
}

void pairing_free(struct pairing *p)
{
    void *v;

    if (p == NULL)
        return;
    timer_stop(p->env.clock, &p->write);
    timer_stop(p->env.clock, &p->sweep);
    for (size_t pos = 0; map_next(&p->by_id, &pos, &v);) {
        free(((struct stranger *)v)->chat);
        free(v);
    }
    map_done(&p->by_id);
    map_done_all(&p->queues);
    struct list *const gone[] = {&p->gone, &p->deleting};
    for (size_t i = 0; i < ARRAY_LEN(gone); i++)
        list_each (gone[i], it, nxt)
            free(list_entry(it, struct stranger_gone, link));
    list_each (&p->deciding, it, nxt)
        free(list_entry(it, struct deciding, link));
    list_each (&p->receipts, at, after)
        free(list_entry(at, struct stranger_receipt, link));
    free(p);
}
