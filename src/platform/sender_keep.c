/* sender_keep.c - what is kept of things on their way out, and how it goes on.  (sender.h has the
 * contract, outgoing_entry.h the picture.)
 *
 * A record is written when something is asked for.  It says "trying" at once when it will leave at
 * once, so that a send costs two writes; what has to wait says "waiting" and is written again
 * before it leaves, so that a crash finds few whose end nobody knows.  Where twice is once nothing
 * need be said. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/log.h"
#include "platform/sender_priv.h"

enum { KEPT_MAX = 4096, SWEEP_MS = 600000 };
#define KEPT_MS (24 * 3600 * 1000ll)

/* ---- one record ---- */

void outgoing_entry_of(const struct outgoing *o, struct outgoing_entry *ret)
{
    *ret = (struct outgoing_entry){.number = o->record.number,
                                   .from = o->from,
                                   .op = o->op,
                                   .state = (enum outgoing_state)o->on_disk,
                                   .twice = (enum outgoing_twice)o->twice,
                                   .asked_ms = o->asked_ms,
                                   .tried_ms = o->tried_ms,
                                   .attempts = o->attempts,
                                   .part = (uint32_t)o->at,
                                   .n_parts = (uint32_t)o->n_parts,
                                   .chat = o->chat,
                                   .lane = o->lane,
                                   .first_id = str_of(o->first_id),
                                   .why = str_of(o->why),
                                   .edit = str_of(o->edit),
                                   .hash = o->hash,
                                   .action = o->action,
                                   .file = o->file};
}

void outgoing_note(struct outgoing *o, enum outgoing_state state, bool wait)
{
    struct outgoing_entry e;

    if (state == OUTGOING_TRYING && !o->maybe)
        o->tried_ms = sender_wall_ms(o->sender);
    o->on_disk = (uint8_t)state;
    o->part_on_disk = (uint32_t)o->at;
    outgoing_entry_of(o, &e);
    outgoing_log_put(o->sender->log, &o->record, &e, wait ? outgoing_on_recorded : NULL);
}

bool outgoing_needs_note(const struct outgoing *o)
{
    if (o->record.log == NULL || o->twice == TWICE_IS_ONE)
        return false;
    return o->on_disk != OUTGOING_TRYING ||
           (o->twice != TWICE_IS_KEYED && o->part_on_disk != o->at);
}

static void forget_number(struct outgoing *o)
{
    struct sender *s = o->sender;

    map_del(&s->by_number, sender_number_key(&o->record.number));
    if (o->hash.n > 0 && map_get(&s->revived, o->hash) == o)
        map_del(&s->revived, o->hash);
}

/* ---- what has ended and is kept ---- */

static struct outgoing_left *left_new(uint64_t number, struct str value)
{
    struct outgoing_left *l = xcalloc(1, sizeof *l + value.n + 1);

    l->number = number;
    l->n = value.n;
    memcpy(l->value, value.p, value.n);
    list_init(&l->link);
    return l;
}

void sender_unkeep(struct sender *s, struct outgoing_left *l)
{
    list_remove(&l->link);
    map_del(&s->kept_by_number, sender_number_key(&l->number));
    s->n.kept_unknown -= l->e.state == OUTGOING_UNKNOWN;
}

static void kept_add(struct sender *s, struct outgoing_left *l, enum outgoing_state state)
{
    l->e = (struct outgoing_entry){.state = state};
    list_append(&s->kept, &l->link);
    map_put(&s->kept_by_number, sender_number_key(&l->number), l);
    s->n.kept_unknown += state == OUTGOING_UNKNOWN;
    if (!timer_is_set(&s->sweep))
        timer_set(s->env->clock, &s->sweep, SWEEP_MS);
    if (map_count(&s->kept_by_number) <= KEPT_MAX)
        return;
    l = list_first(&s->kept, struct outgoing_left, link);
    sender_unkeep(s, l);
    outgoing_log_delete(s->log, l->number);
    free(l);
}

static int64_t kept_ms(const struct sender *s)
{
    int64_t retention_ms = s->env->retention_ms;

    return retention_ms > 0 && retention_ms < KEPT_MS ? retention_ms : KEPT_MS;
}

static void on_sweep(struct timer *t)
{
    struct sender *s = container_of(t, struct sender, sweep);

    list_each (&s->kept, it, nxt) {
        struct outgoing_left *l = list_entry(it, struct outgoing_left, link);
        if (l->since_ms + kept_ms(s) > sender_wall_ms(s))
            break;
        sender_unkeep(s, l);
        outgoing_log_delete(s->log, l->number);
        free(l);
    }
    if (!list_is_empty(&s->kept))
        timer_set(s->env->clock, &s->sweep, SWEEP_MS);
}

void sender_keep(struct sender *s, const struct outgoing_entry *e)
{
    struct outgoing_record rec = {0};
    struct buf value = BUF_INIT;

    outgoing_entry_write(&value, e);
    struct outgoing_left *l = left_new(e->number, buf_str(&value));
    l->since_ms = sender_wall_ms(s);
    kept_add(s, l, e->state);
    outgoing_log_put(s->log, &rec, e, NULL);
    buf_done(&value);
}

static void keep_outgoing(struct outgoing *o, enum outgoing_state state, const char *why)
{
    struct outgoing_entry e;

    outgoing_entry_of(o, &e);
    e.state = state;
    e.told = true;
    e.why = str_of(why);
    if (state == OUTGOING_SENT)
        e.action = e.file = e.edit = e.hash = STR_NULL; /* its name is all that is asked for */
    sender_keep(o->sender, &e);
    outgoing_log_leave(&o->record);
}

void outgoing_settle(struct outgoing *o, const struct sender_verdict *v)
{
    if (o->record.log == NULL)
        return;
    forget_number(o);
    if (v->end == SENDER_DONE && o->answered && o->first_id[0] != '\0')
        keep_outgoing(o, OUTGOING_SENT, "");
    else if (outgoing_is_unsure(o, v->end) && !o->cancelled)
        keep_outgoing(o, OUTGOING_UNKNOWN, v->why);
    else
        outgoing_log_end(&o->record);
}

/* ---- telling that it waits ---- */

void outgoing_tell_queued(struct outgoing *o)
{
    char name[32];
    bool named = o->op != ACTION_EDIT && o->op != ACTION_THREAD_RENAME;

    snprintf(name, sizeof name, "queued:%llu", (unsigned long long)o->record.number);
    host_result(o->sender->p->host, o->id,
                &(struct action_result){.success = true,
                                        .queued = true,
                                        .message_id = named ? str_of(name) : STR_NULL});
    o->answered = true;
    o->sender->n.queued++;
}

void outgoing_stop(struct outgoing *o)
{
    bool out = o->call != NULL || o->maybe;

    forget_number(o);
    if (!o->recorded) {
        if (!o->cancelled)
            host_fail(o->sender->p->host, o->id, ACTION_ERROR_TRANSIENT "bellhop is stopping");
        outgoing_log_end(&o->record);
    } else if (out && (o->twice == TWICE_IS_TWO || o->twice == TWICE_IS_SEEN)) {
        if (!o->cancelled && !o->answered)
            host_fail(o->sender->p->host, o->id,
                      ACTION_ERROR_UNKNOWN "bellhop was stopped; it may have been delivered");
        /* Whoever missed that is told after the next start, and what is found there is done. */
    } else {
        if (!o->cancelled && !o->answered)
            outgoing_tell_queued(o);
        if (!out)
            outgoing_note(o, OUTGOING_WAITING, false);
    }
    outgoing_log_leave(&o->record);
    outgoing_release(o);
}

/* ---- what an earlier process left ---- */

static bool read_left(struct sender *s, struct outgoing_left *l)
{
    struct json doc;

    return json_parse(s->parser, str_make(l->value, l->n), &doc) &&
           outgoing_entry_read(doc, l->number, &l->e);
}

static bool was_in_the_middle(const struct sender *s, const struct outgoing_entry *e)
{
    if (e->state != OUTGOING_TRYING)
        return false;
    return e->twice == TWICE_IS_TWO || json_type(json_get(e->doc, "action")) == JSON_ABSENT ||
           (e->twice == TWICE_IS_KEYED &&
            sender_wall_ms(s) - e->tried_ms >= (s->ops->key_ms > 0 ? s->ops->key_ms : 0));
}

/* @e became unknown at @ended_ms (0: now). */
static void note_unknown(struct sender *s, const struct outgoing_entry *e, int64_t ended_ms)
{
    char *why = str_dup(e->why.p != NULL ? e->why : STR(""));

    host_ended(s->p->host, &(struct host_end){.p = s->p,
                                              .from = &e->from,
                                              .op = e->op,
                                              .chat = e->chat,
                                              .message_id = e->first_id,
                                              .number = e->number,
                                              .how = "unknown",
                                              .why = why,
                                              .asked_ms = e->asked_ms,
                                              .ended_ms = ended_ms,
                                              .attempts = e->attempts});
    free(why);
}

/* Nobody knows how it ended: whoever waits is told, and whoever asks again.  @fresh: nobody has
 * noted that yet. */
static void found_unknown(struct sender *s, struct outgoing_left *l, bool fresh)
{
    const struct outgoing_entry *e = &l->e;
    int64_t ago_ms = sender_wall_ms(s) - (e->tried_ms > 0 ? e->tried_ms : e->asked_ms);

    if (!e->told && (fresh || ago_ms < OUTGOING_KNOWN_MS)) {
        host_cut_off(s->p->host, &e->from,
                     ACTION_ERROR_UNKNOWN
                     "bellhop restarted while this was being sent; it may have been delivered");
        outgoing_log_cut_off(s->log, e->hash, e->number, fresh ? 0 : ago_ms);
        s->n.cut_off++;
    }
    if (fresh) {
        struct outgoing_entry now = *e;
        now.state = OUTGOING_UNKNOWN;
        now.why = STR("bellhop restarted while this was being sent");
        now.attempts++; /* the one that was under way */
        sender_keep(s, &now);
        note_unknown(s, &now, 0);
        free(l);
        return;
    }
    l->since_ms = e->tried_ms > 0 ? e->tried_ms : e->asked_ms;
    note_unknown(s, e, l->since_ms);
    kept_add(s, l, e->state);
}

bool sender_was_cut_off(struct sender *s, struct str what)
{
    uint64_t number;

    if (!outgoing_log_was_cut_off(s->log, what, &number))
        return false;
    struct outgoing_left *l = map_get(&s->kept_by_number, sender_number_key(&number));
    if (l != NULL && read_left(s, l)) {
        struct outgoing_entry e = l->e;
        sender_unkeep(s, l);
        e.told = true;
        sender_keep(s, &e);
        free(l);
    }
    return true;
}

void sender_on_found(void *ctx, uint64_t number, struct str value)
{
    struct sender *s = ctx;
    struct outgoing_left *l = left_new(number, value);

    if (!read_left(s, l)) {
        outgoing_log_delete(s->log, number);
        free(l);
    } else if (l->e.state == OUTGOING_UNKNOWN) {
        found_unknown(s, l, false);
    } else if (l->e.state == OUTGOING_SENT) {
        l->since_ms = l->e.asked_ms;
        kept_add(s, l, OUTGOING_SENT);
    } else if (was_in_the_middle(s, &l->e)) {
        found_unknown(s, l, true);
    } else {
        list_append(&s->left, &l->link);
        timer_set(s->env->clock, &s->revive, 0);
    }
}

/* ---- going on ---- */

void outgoing_take_over(struct outgoing *o, const struct outgoing_left *left)
{
    const struct outgoing_entry *e = &left->e;
    struct sender *s = o->sender;

    assert(left == s->taking);
    s->taking->taken = true;
    o->record = (struct outgoing_record){.log = s->log, .number = left->number};
    o->recorded = true;
    o->asked_ms = e->asked_ms;
    o->tried_ms = e->tried_ms;
    o->attempts = e->attempts;
    o->at = e->part;
    o->on_disk = (uint8_t)e->state;
    o->part_on_disk = e->part;
    o->maybe = e->state == OUTGOING_TRYING;
    o->maybe_ms = sender_now_ms(s) - (sender_wall_ms(s) - e->tried_ms);
    if (e->first_id.n < sizeof o->first_id)
        memcpy(o->first_id, e->first_id.p != NULL ? e->first_id.p : "", e->first_id.n);
    if (e->edit.p != NULL)
        o->edit = str_dup(e->edit);
    s->n.revived++;
    if (o->hash.n > 0) {
        map_del(&s->revived, o->hash); /* first: the key is borrowed from the value */
        map_put(&s->revived, o->hash, o);
    }
    if (e->state != OUTGOING_UNKNOWN)
        return;
    o->asked_ms = sender_wall_ms(s); /* an operator's wish: as if it were asked for now */
    outgoing_note(o, OUTGOING_WAITING, false);
}

bool sender_revive_one(struct sender *s, struct outgoing_left *l)
{
    struct buf path = BUF_INIT;
    struct action_file file;
    struct action_id id;
    struct action a;
    bool taken = false;

    if (read_left(s, l) && host_revive(s->p->host, s->p, &l->e.from, l->e.op, l->e.chat, &id)) {
        outgoing_entry_revive(&l->e, &a, &file, &path);
        a.left = l;
        a.deadline_ms = 0;
        s->taking = l;
        s->p->ops->act(s->p, id, &l->e.from, &a);
        s->taking = NULL;
        taken = l->taken;
    }
    if (!taken)
        outgoing_log_delete(s->log, l->number);
    buf_done(&path);
    free(l);
    return taken;
}

void sender_revive(struct sender *s)
{
    size_t n = 0;

    timer_stop(s->env->clock, &s->revive);
    while (!list_is_empty(&s->left)) {
        struct outgoing_left *l = list_first(&s->left, struct outgoing_left, link);
        list_remove(&l->link);
        n += sender_revive_one(s, l);
    }
    if (n > 0)
        log_info(NULL, "platform=%s bot=%s going on with what was waiting: messages=%zu",
                 s->p->ops->name, s->p->bot, n);
}

static void on_revive(struct timer *t)
{
    sender_revive(container_of(t, struct sender, revive));
}

/* ---- life ---- */

void sender_keep_init(struct sender *s)
{
    list_init(&s->left);
    list_init(&s->kept);
    timer_init(&s->revive, on_revive);
    timer_init(&s->sweep, on_sweep);
    s->parser = json_parser_new();
}

void sender_keep_done(struct sender *s)
{
    timer_stop(s->env->clock, &s->revive);
    timer_stop(s->env->clock, &s->sweep);
    list_each (&s->left, it, nxt)
        free(list_entry(it, struct outgoing_left, link));
    list_each (&s->kept, kept, next)
        free(list_entry(kept, struct outgoing_left, link));
    map_done(&s->by_number);
    map_done(&s->revived);
    map_done(&s->kept_by_number);
    json_parser_free(s->parser);
}
