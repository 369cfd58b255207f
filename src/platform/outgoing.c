/* outgoing.c - design.  (outgoing.h has the picture, sender.h the contract.)
 *
 * A record is written when the action arrives.  If the request leaves at once, the record says
 * "trying" from the start, so that a send costs two writes.  An action that has to wait says
 * "waiting" and is written again before it leaves, so that a crash leaves few unknown records.
 * Where a second request changes nothing (TWICE_IS_ONE), the record never says "trying".
 *
 * The number in a record's key is the store's boot number and a counter, so no two processes write
 * the same record.  Records that ended as UNKNOWN or SENT are kept for a day or the retention,
 * whichever is shorter: operators see the unknown ones, gateways refer to the sent ones by name. */
#include "platform/outgoing.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/frame.h"
#include "core/journal.h"
#include "platform/prompts.h"
#include "platform/sender_priv.h"
#include "platform/stream.h"
#include "store/store.h"

enum { KEPT_MAX = 4096, SWEEP_MS = 600000 };
#define KEPT_MS (24 * 3600 * 1000ll)

/* The words of records, and what operators read. */
static const char *const names[] = {
    [OUTGOING_NEW] = "waiting",        [OUTGOING_FETCHING] = "fetching",
    [OUTGOING_WAITING] = "waiting",    [OUTGOING_RECORDING] = "waiting",
    [OUTGOING_HELD] = "waiting",       [OUTGOING_TRYING] = "trying",
    [OUTGOING_TRYING_ONCE] = "trying", [OUTGOING_LOOKING] = "trying",
    [OUTGOING_ENDING] = "waiting",     [OUTGOING_UNKNOWN] = "unknown",
    [OUTGOING_SENT] = "sent",          NULL,
};

const char *outgoing_state_name(enum outgoing_state s)
{
    return names[s];
}

/* ---- the record ---- */

#define FIELD(member, called, ...) RECORD_FIELD(struct outgoing_entry, member, called, __VA_ARGS__)
static const struct record_field outgoing_fields[] = {
    FIELD(platform, "platform", RECORD_KEY | RECORD_NEEDED),
    FIELD(bot, "bot", RECORD_KEY | RECORD_NEEDED),
    FIELD(name, "number", RECORD_KEY | RECORD_NEEDED),
    FIELD(from.tenant, "tenant", 0),
    FIELD(from.instance, "instance", 0),
    FIELD(from.request_id, "request", 0),
    FIELD(from.life, "life", 0),
    RECORD_FIELD_(struct outgoing_entry, from.said, "said", RECORD_BYTES, 0),
    FIELD(op_name, "op", RECORD_NEEDED),
    FIELD(chat, "chat", 0),
    FIELD(lane, "lane", 0),
    FIELD(asked_ms, "at", 0),
    FIELD(state, "state", RECORD_NEEDED, .words = names),
    FIELD(tried_ms, "tried", 0),
    FIELD(twice, "twice", 0, .max = TWICE_IS_SEEN),
    FIELD(attempts, "attempts", 0),
    FIELD(part, "part", 0),
    FIELD(n_parts, "parts", 0),
    FIELD(first_id, "first", 0, .max = sizeof((struct outgoing *)0)->first_id - 1),
    FIELD(why, "why", 0),
    FIELD(edit, "edit", 0),
    FIELD(told, "told", 0),
    FIELD(from.trace, "trace", 0),
    FIELD(action, "action", 0),
    FIELD(file, "file", 0),
};
const struct record_form outgoing_form =
    RECORD_FORM("outgoing", struct outgoing_entry, outgoing_fields, .lossy = true);

void outgoing_write_action(const struct action *a, struct buf *ret_action, struct buf *ret_file)
{
    struct jw w = jw_begin(ret_action), f = jw_begin(ret_file);

    frame_write_action(&w, a);
    if (a->file == NULL)
        return;
    jw_obj(&f);
    jw_kstr(&f, "path", str_of(a->file->path));
    jw_kstr(&f, "type", a->file->type);
    jw_kstr(&f, "name", a->file->name);
    jw_kstr_opt(&f, "url", a->file->url);
    jw_ki64(&f, "size", (int64_t)a->file->size);
    jw_end_obj(&f);
}

static struct outgoing_entry entry_named(const struct sender *s, uint64_t number)
{
    struct outgoing_entry e = {.platform = str_of(s->p->ops->name),
                               .bot = str_of(s->p->bot),
                               .number = number};

    hex_u64(number, e.name);
    return e;
}

static void entry_of(const struct outgoing *o, struct outgoing_entry *ret)
{
    *ret = entry_named(o->sender, o->record.number);
    ret->from = o->from;
    ret->op = o->op;
    ret->op_name = str_of(action_op_name(o->op));
    ret->state = o->record.state;
    ret->twice = o->twice;
    ret->asked_ms = o->asked_ms;
    ret->tried_ms = o->tried_ms;
    ret->attempts = o->attempts;
    ret->part = (uint32_t)o->at;
    ret->n_parts = (uint32_t)o->n_parts;
    ret->chat = o->chat;
    ret->lane = o->lane;
    ret->first_id = o->first_id[0] != '\0' ? str_of(o->first_id) : STR_NULL;
    ret->why = o->why[0] != '\0' ? str_of(o->why) : STR_NULL;
    ret->edit = str_of(o->edit);
    ret->action.text = o->action;
    ret->file.text = o->file;
}

bool outgoing_left_read(struct sender *s, struct outgoing_left *l)
{
    struct outgoing_entry e = entry_named(s, l->number);
    BUF_LOCAL key = BUF_INIT;

    record_write(&outgoing_form, NULL, &e, &key, NULL);
    bool ok =
        record_read(s->reader, &outgoing_form, buf_str(&key), str_make(l->value, l->n), &l->e);
    l->e.platform = e.platform; /* not of the freed key */
    l->e.bot = e.bot;
    l->e.number = l->number;
    l->e.op = action_op_parse(l->e.op_name);
    if (l->e.state == OUTGOING_NEW) /* the first state of that name */
        l->e.state = OUTGOING_WAITING;
    return ok;
}

void outgoing_left_action(const struct outgoing_left *l, struct action *ret,
                          struct action_file *file, struct buf *path)
{
    struct json f = l->e.file.value;

    *ret = (struct action){.deadline_ms = l->deadline_ms, .left = l};
    frame_read_action(l->e.action.value, ret);
    if (ret->op == ACTION_EDIT) /* its gateway may not live to replace it */
        ret->content = action_without_cursor(ret->content);
    if (json_as_i64(json_get(l->e.action.value, "draft_id"), &ret->draft_id) ||
        ret->op == ACTION_DRAFT)
        ret->final = true; /* only final drafts have records */
    if (!json_is_object(f))
        return;
    buf_add_str(path, json_str(f, "path"));
    *file = (struct action_file){.path = buf_z(path),
                                 .type = json_str(f, "type"),
                                 .name = json_str(f, "name"),
                                 .url = json_str(f, "url")};
    json_as_u64(json_get(f, "size"), &file->size);
    ret->file = file;
}

/* ---- the row in the store ---- */

void outgoing_delete(struct sender *s, uint64_t number)
{
    struct outgoing_entry e = entry_named(s, number);

    record_delete_like(s->env->store, &outgoing_form, &e);
}

uint64_t outgoing_keep_action(struct sender *s, uint64_t number, const struct action_from *from,
                              const struct action *a)
{
    BUF_LOCAL action = BUF_INIT, file = BUF_INIT;
    struct outgoing_entry e = entry_named(s, number != 0 ? number : host_number(s->p->host));

    outgoing_write_action(a, &action, &file);
    e.from = *from;
    e.op_name = str_of(action_op_name(a->op));
    e.state = OUTGOING_WAITING;
    e.twice = a->op == ACTION_EDIT || a->op == ACTION_DRAFT ? TWICE_IS_ONE : TWICE_IS_TWO;
    e.asked_ms = sender_wall_ms(s);
    e.chat = a->chat_id;
    e.lane = STR("");
    e.action.text = buf_str(&action);
    record_put(s->env->store, &outgoing_form, NULL, &e, false, NULL, NULL);
    return e.number;
}

void sender_keep(struct sender *s, const struct action_from *from, const struct action *a)
{
    outgoing_keep_action(s, 0, from, a);
}

void outgoing_note(struct outgoing *o, enum outgoing_state state, bool wait)
{
    struct store *store = o->sender->env->store;
    struct outgoing_entry e;

    if (state == OUTGOING_TRYING && o->maybe_ms == 0)
        o->tried_ms = sender_wall_ms(o->sender);
    o->record.state = state;
    o->record.part = (uint32_t)o->at;
    entry_of(o, &e);
    if (!wait) { /* the callback of an earlier write still runs */
        record_put(store, &outgoing_form, NULL, &e, false, NULL, NULL);
        return;
    }
    store_put_cancel(&o->record.put); /* writes are ordered: the later one covers the earlier */
    o->record.put = record_put(store, &outgoing_form, NULL, &e, true, outgoing_recorded, o);
}

bool outgoing_needs_note(const struct outgoing *o)
{
    if (!outgoing_has_record(o) || o->twice == TWICE_IS_ONE)
        return false;
    return o->record.state != OUTGOING_TRYING ||
           (o->twice != TWICE_IS_KEYED && o->record.part != o->at);
}

void outgoing_leave_record(struct outgoing *o)
{
    store_put_cancel(&o->record.put);
    map_del(&o->sender->by_number, sender_number_key(&o->record.number));
    o->record.number = 0;
}

static struct outgoing_left *left_new(uint64_t number, struct str value)
{
    struct outgoing_left *l = xcalloc(1, sizeof *l + value.n + 1);

    l->number = number;
    l->n = value.n;
    l->durable = true;
    memcpy(l->value, value.p, value.n);
    return l;
}

struct outgoing_left *outgoing_to_left(struct outgoing *o)
{
    BUF_LOCAL value = BUF_INIT;
    struct outgoing_entry e;

    entry_of(o, &e);
    record_write(&outgoing_form, NULL, &e, NULL, &value);
    struct outgoing_left *l = left_new(e.number, buf_str(&value));
    l->durable = o->record.durable;
    l->deadline_ms = o->deadline_ms;
    outgoing_leave_record(o);
    return l;
}

/* ---- records that ended as UNKNOWN or SENT ---- */

static struct outgoing_left *find_kept(const struct sender *s, uint64_t number)
{
    return map_get(&s->kept_by_number, sender_number_key(&number));
}

static void kept_remove(struct sender *s, struct outgoing_left *l)
{
    list_remove(&l->link);
    map_del(&s->kept_by_number, sender_number_key(&l->number));
    s->n.kept_unknown -= l->e.state == OUTGOING_UNKNOWN;
}

static void kept_delete(struct sender *s, struct outgoing_left *l)
{
    kept_remove(s, l);
    outgoing_delete(s, l->number);
    free(l);
}

static void kept_add(struct sender *s, struct outgoing_left *l, enum outgoing_state state)
{
    l->e = (struct outgoing_entry){.state = state};
    list_append(&s->kept, &l->link);
    map_put(&s->kept_by_number, sender_number_key(&l->number), l);
    s->n.kept_unknown += state == OUTGOING_UNKNOWN;
    if (!timer_is_set(&s->sweep))
        timer_set(s->env->clock, &s->sweep, SWEEP_MS);
    if (map_count(&s->kept_by_number) > KEPT_MAX)
        kept_delete(s, list_first(&s->kept, struct outgoing_left, link));
}

static void on_sweep(struct timer *t)
{
    struct sender *s = container_of(t, struct sender, sweep);
    int64_t retention_ms = s->env->retention_ms;
    int64_t keep_ms = retention_ms > 0 && retention_ms < KEPT_MS ? retention_ms : KEPT_MS;

    list_each (&s->kept, it, nxt) {
        struct outgoing_left *l = list_entry(it, struct outgoing_left, link);
        if (l->since_ms + keep_ms > sender_wall_ms(s))
            break;
        kept_delete(s, l);
    }
    if (!list_is_empty(&s->kept))
        timer_set(s->env->clock, &s->sweep, SWEEP_MS);
}

/* @done runs once the record is on disk; NULL: nobody waits. */
static struct store_put *keep_told(struct sender *s, const struct outgoing_entry *e,
                                   store_put_cb *done, void *ctx)
{
    BUF_LOCAL value = BUF_INIT;

    record_write(&outgoing_form, NULL, e, NULL, &value);
    struct outgoing_left *l = left_new(e->number, buf_str(&value));
    l->since_ms = sender_wall_ms(s);
    kept_add(s, l, e->state);
    return record_put(s->env->store, &outgoing_form, NULL, e, done != NULL, done, ctx);
}

static void keep(struct sender *s, const struct outgoing_entry *e)
{
    keep_told(s, e, NULL, NULL);
}

struct store_put *outgoing_keep_sealed(struct sender *s, const struct action_from *from,
                                       struct hash128 said, struct str chat, struct str message,
                                       store_put_cb *done, void *ctx)
{
    struct outgoing_entry e = entry_named(s, host_number(s->p->host));

    e.from = *from;
    e.from.said = said;
    e.op_name = str_of(action_op_name(ACTION_DRAFT));
    e.state = OUTGOING_SENT;
    e.told = true;
    e.asked_ms = sender_wall_ms(s);
    e.chat = chat;
    e.lane = STR("");
    e.first_id = message;
    return keep_told(s, &e, done, ctx);
}

void outgoing_settle(struct outgoing *o, enum sender_end end, const char *why)
{
    bool named = o->waiter == WAITER_QUEUED && o->op != ACTION_EDIT;
    bool sent = end == SENDER_DONE && (named || o->seals) && o->first_id[0] != '\0';
    struct outgoing_entry e;

    if (!outgoing_has_record(o))
        return;
    if (!sent && (!outgoing_is_unsure(o, end) || o->waiter == WAITER_NOBODY)) {
        outgoing_delete(o->sender, o->record.number);
        outgoing_leave_record(o);
        return;
    }
    entry_of(o, &e);
    e.state = sent ? OUTGOING_SENT : OUTGOING_UNKNOWN;
    e.told = true;
    e.why = str_of(why);
    if (sent) { /* only its name is looked up later: drop the text */
        e.action = e.file = (struct record_json){0};
        e.edit = STR_NULL;
        if (!o->seals)
            e.from.said = (struct hash128){0};
    }
    keep(o->sender, &e);
    outgoing_leave_record(o);
}

/* ---- records of an earlier process ---- */

/* The current part may have arrived, and a second request would be a second message. */
static bool was_in_the_middle(const struct sender *s, const struct outgoing_entry *e)
{
    return e->state == OUTGOING_TRYING &&
           (e->twice == TWICE_IS_TWO || json_type(e->action.value) == JSON_ABSENT ||
            (e->twice == TWICE_IS_KEYED && sender_wall_ms(s) - e->tried_ms >= s->ops->key_ms));
}

static void note_outcome(struct sender *s, const struct outgoing_entry *e, const char *how,
                         int64_t ended_ms, bool queued)
{
    journal_action(s->env->journal,
                   &(struct journal_outcome){.platform = str_of(s->p->ops->name),
                                             .how = how,
                                             .bot = str_of(s->p->bot),
                                             .tenant = e->from.tenant,
                                             .instance = e->from.instance,
                                             .request = e->from.request_id,
                                             .chat = e->chat,
                                             .message_id = e->first_id,
                                             .why = e->why.p != NULL ? e->why : STR(""),
                                             .op = e->op,
                                             .number = e->number,
                                             .asked_ms = e->asked_ms,
                                             .ended_ms = ended_ms,
                                             .attempts = e->attempts,
                                             .queued = queued,
                                             .trace = e->from.trace});
}

void outgoing_note_end(const struct outgoing *o, enum sender_end end, const char *why)
{
    struct outgoing_entry e;

    entry_of(o, &e);
    e.first_id = str_of(o->first_id);
    e.why = end != SENDER_DONE ? str_of(why) : STR_NULL;
    note_outcome(o->sender, &e,
                 end == SENDER_DONE           ? "done"
                 : outgoing_is_unsure(o, end) ? "unknown"
                 : end == SENDER_REFUSED      ? "refused"
                                              : "failed",
                 sender_wall_ms(o->sender), o->waiter == WAITER_QUEUED);
}

/* Keeps the record as UNKNOWN and tells its gateway.  @fresh: an earlier start did not do so. */
static void found_unknown(struct sender *s, struct outgoing_left *l, bool fresh)
{
    const struct outgoing_entry *e = &l->e;
    int64_t since_ms = e->tried_ms > 0 ? e->tried_ms : e->asked_ms;

    if (!e->told && (fresh || sender_wall_ms(s) - since_ms < SENDER_KNOWN_MS)) {
        host_cut_off(s->p->host, &e->from,
                     ACTION_ERROR_UNKNOWN
                     "bellhop restarted while this was being sent; it may have been delivered");
        s->n.cut_off++;
    }
    if (json_type(json_get(e->action.value, "draft_id")) != JSON_ABSENT)
        streams_found_sealed(s->streams, e->from.said, STR(""));
    if (fresh) {
        struct outgoing_entry now = *e;
        now.state = OUTGOING_UNKNOWN;
        now.why = STR("bellhop restarted while this was being sent");
        now.attempts++; /* the request that was in flight */
        keep(s, &now);
        note_outcome(s, &now, "unknown", sender_wall_ms(s), false);
        free(l);
        return;
    }
    l->since_ms = since_ms; /* the start that found it fresh told the journal */
    kept_add(s, l, OUTGOING_UNKNOWN);
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct sender *s = ctx;
    char hex[17] = "", *end;

    if (key.n < 16)
        return;
    memcpy(hex, key.p + key.n - 16, 16);
    uint64_t number = strtoull(hex, &end, 16);
    if (*end != '\0')
        return;
    struct outgoing_left *l = left_new(number, value);
    if (!outgoing_left_read(s, l)) {
        log_warn(&s->p->log, "%s, and is deleted", record_why(s->reader));
        outgoing_delete(s, number);
        free(l);
    } else if (l->e.state == OUTGOING_UNKNOWN) {
        found_unknown(s, l, false);
    } else if (l->e.state == OUTGOING_SENT) {
        if (action_is_said(&l->e.from))
            streams_found_sealed(s->streams, l->e.from.said, l->e.first_id);
        l->since_ms = l->e.asked_ms;
        kept_add(s, l, OUTGOING_SENT);
    } else if (was_in_the_middle(s, &l->e)) {
        found_unknown(s, l, true);
    } else {
        bool seals = json_type(json_get(l->e.action.value, "draft_id")) != JSON_ABSENT;
        if (l->e.op == ACTION_DRAFT && action_is_said(&l->e.from))
            streams_found_open(s->streams, l->e.from.said,
                               json_str(l->e.action.value, "message_id"));
        else if (seals && action_is_said(&l->e.from)) /* until it is known how it ends */
            streams_found_sealed(s->streams, l->e.from.said, STR(""));
        list_append(&s->left, &l->link);
        timer_set(s->env->clock, &s->revive, 0);
    }
}

void outgoing_take_over(struct outgoing *o, const struct outgoing_left *left)
{
    const struct outgoing_entry *e = &left->e;
    struct sender *s = o->sender;

    assert(left == s->taking);
    s->taking->taken = true;
    o->record = (struct outgoing_record){.number = left->number,
                                         .state = e->state,
                                         .part = e->part,
                                         .durable = left->durable};
    map_put(&s->by_number, sender_number_key(&o->record.number), o);
    o->asked_ms = e->asked_ms;
    o->tried_ms = e->tried_ms;
    o->attempts = e->attempts;
    o->at = e->part;
    if (e->state == OUTGOING_TRYING) {
        int64_t ms = sender_now_ms(s) - (sender_wall_ms(s) - e->tried_ms);
        o->maybe_ms = ms != 0 ? ms : 1;
    }
    if (e->first_id.n < sizeof o->first_id)
        memcpy(o->first_id, e->first_id.p != NULL ? e->first_id.p : "", e->first_id.n);
    if (e->edit.p != NULL)
        o->edit = str_dup(e->edit);
    if (e->state == OUTGOING_UNKNOWN)
        o->asked_ms = sender_wall_ms(s); /* an operator's retry: its age starts again */
    if (e->state == OUTGOING_UNKNOWN || !left->durable)
        outgoing_note(o, OUTGOING_WAITING, !left->durable);
}

/* Gives the record to the platform if its instance still exists; else deletes the record. */
static bool revive_one(struct sender *s, struct outgoing_left *l)
{
    struct action_id id;

    if (outgoing_left_read(s, l) &&
        host_revive(s->p->host, s->p, &l->e.from, l->e.op, l->e.chat, &id)) {
        bool taken = sender_take_left(s, l, id, false, NULL, STR_NULL);
        s->n.revived += taken;
        return taken;
    }
    outgoing_delete(s, l->number);
    free(l);
    return false;
}

void records_revive(struct sender *s)
{
    size_t n = 0;

    timer_stop(s->env->clock, &s->revive);
    while (!list_is_empty(&s->left)) {
        struct outgoing_left *l = list_first(&s->left, struct outgoing_left, link);
        list_remove(&l->link);
        n += revive_one(s, l);
    }
    if (n > 0)
        log_info(&s->p->log, "going on with what was waiting: messages=%zu", n);
}

static void on_revive(struct timer *t)
{
    records_revive(container_of(t, struct sender, revive));
}

/* ---- lookups by number, for gateways and operators ---- */

static struct outgoing *find(const struct sender *s, uint64_t number)
{
    return map_get(&s->by_number, sender_number_key(&number));
}

static bool number_of(struct str name, uint64_t *ret)
{
    struct str head = STR(SENDER_QUEUED_PREFIX);

    return str_starts(name, head) && str_to_u64(str_skip(name, head.n), ret);
}

enum sender_named sender_named(struct sender *s, struct str name, char ret_id[128])
{
    uint64_t number;

    if (!number_of(name, &number))
        return SENDER_NAMED_NONE;
    if (find(s, number) != NULL)
        return SENDER_NAMED_WAITS;
    struct outgoing_left *l = find_kept(s, number);
    enum outgoing_state state = l != NULL ? l->e.state : OUTGOING_NEW;
    bool sent =
        l != NULL && outgoing_left_read(s, l) && l->e.first_id.n > 0 && l->e.first_id.n < 128;
    if (sent) {
        memcpy(ret_id, l->e.first_id.p, l->e.first_id.n);
        ret_id[l->e.first_id.n] = '\0';
    }
    if (l != NULL)
        l->e = (struct outgoing_entry){.state = state}; /* it borrowed from the shared parser */
    return sent ? SENDER_NAMED_SENT : SENDER_NAMED_NONE;
}

/* Ends the unknown record @l, of which the platform told the truth. */
static void settle_kept(struct sender *s, struct outgoing_left *l, const struct sender_verdict *v)
{
    struct outgoing_entry e = l->e;
    bool done = v->end == SENDER_DONE, whole = done && e.part + 1 >= e.n_parts;
    char why[256];

    snprintf(why, sizeof why, "%s", v->why);
    if (done && !whole)
        snprintf(why, sizeof why, "only %u of %u parts were delivered", e.part + 1, e.n_parts);
    e.why = str_of(whole ? "" : why);
    if (done && str_is_empty(e.first_id))
        e.first_id = str_of(v->message_id);
    note_outcome(s, &e, whole ? "done" : done ? "failed" : "refused", sender_wall_ms(s), false);
    if (e.op == ACTION_PROMPT && s->p->prompts != NULL && whole)
        prompts_shown(s->p->prompts, &e.from, e.lane, json_str(e.action.value, "prompt_id"),
                      str_of(v->message_id));
    else if (e.op == ACTION_PROMPT && s->p->prompts != NULL && !done)
        prompts_drop(s->p->prompts, &e.from, e.lane, json_str(e.action.value, "prompt_id"));
    log_info(&s->p->log, "settled what was unknown: id=%" PRIu64 " delivered=%d", l->number, done);
    l->e = (struct outgoing_entry){.state = OUTGOING_UNKNOWN};
    kept_delete(s, l);
}

/* ---- an action that had seemed done ---- */

struct late_refusal {
    uint64_t number;
    struct arena arena; /* of the texts of @x */
    struct journal_outcome x;
    bool found;
};

static bool on_ended(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    struct late_refusal *l = ctx;

    if (rec->kind != JOURNAL_ACTION || rec->number != l->number)
        return true;
    l->found = true;
    l->x = (struct journal_outcome){.platform = arena_str(&l->arena, rec->platform),
                                    .how = "refused",
                                    .bot = arena_str(&l->arena, rec->bot),
                                    .tenant = arena_str(&l->arena, rec->tenant),
                                    .instance = arena_str(&l->arena, rec->instance),
                                    .request = arena_str(&l->arena, rec->request),
                                    .chat = arena_str(&l->arena, rec->chat_id),
                                    .message_id = arena_str(&l->arena, rec->message_id),
                                    .op = action_op_parse(rec->op),
                                    .number = rec->number,
                                    .asked_ms = rec->asked_ms,
                                    .attempts = rec->attempts,
                                    .queued = rec->queued,
                                    .trace = arena_str(&l->arena, rec->trace)};
    return false;
}

/* Adds a second outcome; the first was true when it was noted.  Only recent actions are found. */
static void note_refused_later(struct sender *s, uint64_t number, const char *why)
{
    struct late_refusal l = {.number = number};

    if (s->env->journal != NULL)
        journal_each(s->env->journal, on_ended, &l);
    l.x.why = str_of(why);
    l.x.ended_ms = sender_wall_ms(s);
    if (l.found)
        journal_action(s->env->journal, &l.x);
    arena_done(&l.arena);
}

bool sender_settle(struct sender *s, uint64_t number, size_t part, const struct sender_verdict *v)
{
    struct outgoing *o = find(s, number);
    struct outgoing_left *l = find_kept(s, number);

    if (o != NULL && o->at == part) {
        if (o->item.lane != NULL && o->maybe_ms != 0 && !outbox_is_running(&o->item))
            outbox_hurry(s->box, &o->item);
        return true;
    }
    if (l != NULL && l->e.state == OUTGOING_UNKNOWN) {
        if (outgoing_left_read(s, l) && l->e.part == part)
            settle_kept(s, l, v);
        else
            l->e = (struct outgoing_entry){.state = OUTGOING_UNKNOWN};
    } else if (v->end == SENDER_REFUSED) {
        note_refused_later(s, number, v->why);
    }
    return false;
}

bool sender_edit_later(struct sender *s, const struct action *a)
{
    uint64_t number;
    struct outgoing *o = number_of(a->message_id, &number) ? find(s, number) : NULL;

    if (o == NULL || !str_eq(o->chat, a->chat_id))
        return false;
    free(o->edit);
    o->edit = str_dup(a->content);
    outgoing_note(o, o->record.state, false);
    return true;
}

static void view_live(const struct outgoing *o, sender_view_cb *cb, void *ctx)
{
    struct outgoing_view v = {0};
    int64_t next_ms = outbox_next_ms(&o->item);

    if (!outgoing_has_record(o))
        return;
    entry_of(o, &v.e);
    v.e.state = o->state == OUTGOING_FETCHING        ? OUTGOING_FETCHING
                : o->call != NULL || o->transmitting ? OUTGOING_TRYING
                                                     : OUTGOING_WAITING;
    if (next_ms > 0)
        v.next_ms = sender_wall_ms(o->sender) + next_ms - sender_now_ms(o->sender);
    cb(ctx, &v);
}

static void view_kept(struct sender *s, struct outgoing_left *l, sender_view_cb *cb, void *ctx)
{
    enum outgoing_state state = l->e.state;

    if (state == OUTGOING_UNKNOWN && outgoing_left_read(s, l))
        cb(ctx, &(struct outgoing_view){.e = l->e});
    l->e = (struct outgoing_entry){.state = state};
}

void sender_each(struct sender *s, uint64_t number, sender_view_cb *cb, void *ctx)
{
    struct list *live[] = {&s->held, &s->all};
    struct outgoing *o = number != 0 ? find(s, number) : NULL;
    struct outgoing_left *l = number != 0 ? find_kept(s, number) : NULL;

    if (o != NULL)
        view_live(o, cb, ctx);
    else if (l != NULL)
        view_kept(s, l, cb, ctx);
    if (number != 0)
        return;
    list_each (&s->kept, it, nxt)
        view_kept(s, list_entry(it, struct outgoing_left, link), cb, ctx);
    for (size_t i = 0; i < ARRAY_LEN(live); i++)
        list_each (live[i], it, nxt)
            view_live(list_entry(it, struct outgoing, link), cb, ctx);
}

/* Retries or drops the record @number. */
static enum bh_err change(struct sender *s, uint64_t number, bool retry)
{
    struct outgoing *o = find(s, number);
    struct outgoing_left *l = find_kept(s, number);

    if (o != NULL && outbox_is_running(&o->item))
        return BH_BUSY;
    if (o != NULL && retry)
        outbox_hurry(s->box, &o->item);
    else if (o != NULL) {
        streams_drop(o);
        outgoing_take_out(o, "an operator took it out of the outbox");
    }
    if (o != NULL)
        return BH_OK;
    if (l == NULL || l->e.state != OUTGOING_UNKNOWN)
        return BH_REFUSED;
    if (!retry) {
        kept_delete(s, l);
        return BH_OK;
    }
    kept_remove(s, l);
    return revive_one(s, l) ? BH_OK : BH_REFUSED;
}

enum bh_err sender_retry(struct sender *s, uint64_t number)
{
    return change(s, number, true);
}

enum bh_err sender_drop(struct sender *s, uint64_t number)
{
    return change(s, number, false);
}

bool sender_holds(const struct sender *s, uint64_t number)
{
    const struct outgoing_left *l = find_kept(s, number);

    if (find(s, number) != NULL || (l != NULL && l->e.state == OUTGOING_UNKNOWN))
        return true;
    for (const struct list *it = s->left.next; it != &s->left; it = it->next)
        if (list_entry(it, const struct outgoing_left, link)->number == number)
            return true;
    return false;
}

/* ---- deleting the records of an instance, a tenant or a chat ---- */

struct whose {
    struct str tenant, instance, chat; /* absent: any */
};

static bool is_of(const struct whose *w, const struct action_from *from, struct str chat)
{
    return (w->tenant.p == NULL || str_eq(w->tenant, from->tenant)) &&
           (w->instance.p == NULL || str_eq(w->instance, from->instance)) &&
           (w->chat.p == NULL || str_eq(w->chat, chat));
}

static void forget_live(struct list *all, const struct whose *w)
{
    list_each (all, it, nxt) {
        struct outgoing *o = list_entry(it, struct outgoing, link);
        if (o->op == ACTION_UNKNOWN || !is_of(w, &o->from, o->chat))
            continue;
        o->waiter = WAITER_NOBODY;
        if (o->state == OUTGOING_WAITING || o->state == OUTGOING_FETCHING)
            outgoing_take_out(o, "");
    }
}

static void forget_left(struct sender *s, struct list *all, const struct whose *w)
{
    list_each (all, it, nxt) {
        struct outgoing_left *l = list_entry(it, struct outgoing_left, link);
        enum outgoing_state state = l->e.state;
        bool goes = outgoing_left_read(s, l) && is_of(w, &l->e.from, l->e.chat);

        l->e = (struct outgoing_entry){.state = state};
        if (goes && all == &s->kept) {
            kept_delete(s, l);
        } else if (goes) {
            list_remove(&l->link);
            outgoing_delete(s, l->number);
            free(l);
        }
    }
}

static void forget(struct sender *s, const struct whose *w)
{
    streams_forget(s->streams, w->tenant, w->instance, w->chat);
    forget_live(&s->all, w);
    forget_live(&s->held, w);
    forget_left(s, &s->kept, w);
    forget_left(s, &s->left, w);
}

void sender_forget(struct sender *s, struct str tenant, struct str instance)
{
    forget(s, &(struct whose){.tenant = tenant, .instance = instance});
}

void sender_forget_chat(struct sender *s, struct str chat)
{
    forget(s, &(struct whose){.chat = chat});
}

/* ---- life ---- */

enum bh_err records_open(struct sender *s, char *ret_why)
{
    struct store *store = s->env->store;
    struct outgoing_entry like = entry_named(s, 0);
    BUF_LOCAL own = BUF_INIT;

    list_init(&s->left);
    list_init(&s->kept);
    timer_init(&s->revive, on_revive);
    timer_init(&s->sweep, on_sweep);
    s->reader = record_reader_new(NULL);
    record_write_prefix(&outgoing_form, &like, 2, &own);
    enum bh_err err =
        store->ops->load_records(store, outgoing_form.ns, buf_str(&own), on_record, s);
    if (err != BH_OK)
        snprintf(ret_why, 256, "the store cannot be read");
    else if (s->n.cut_off > 0)
        log_warn(&s->p->log, "this was being sent when bellhop stopped: unknown=%zu", s->n.cut_off);
    return err;
}

void records_close(struct sender *s)
{
    timer_stop(s->env->clock, &s->revive);
    timer_stop(s->env->clock, &s->sweep);
    list_each (&s->left, it, nxt)
        free(list_entry(it, struct outgoing_left, link));
    list_each (&s->kept, it, nxt)
        free(list_entry(it, struct outgoing_left, link));
    map_done(&s->by_number);
    map_done(&s->kept_by_number);
    record_reader_free(s->reader);
}
