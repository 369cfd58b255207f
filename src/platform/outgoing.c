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
#include "base/json.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/frame.h"
#include "platform/outcomes.h"
#include "platform/sender_priv.h"
#include "store/store.h"

#define NS "outgoing"
enum { KEPT_MAX = 4096, SWEEP_MS = 600000, SAID_DIGITS = 32 };
#define KEPT_MS (24 * 3600 * 1000ll)

static const char *const names[] = {
    [OUTGOING_NEW] = "waiting",        [OUTGOING_FETCHING] = "fetching",
    [OUTGOING_WAITING] = "waiting",    [OUTGOING_RECORDING] = "waiting",
    [OUTGOING_HELD] = "waiting",       [OUTGOING_TRYING] = "trying",
    [OUTGOING_TRYING_ONCE] = "trying", [OUTGOING_LOOKING] = "trying",
    [OUTGOING_ENDING] = "waiting",     [OUTGOING_UNKNOWN] = "unknown",
    [OUTGOING_SENT] = "sent",
};

const char *outgoing_state_name(enum outgoing_state s)
{
    return names[s];
}

/* ---- writing a record ---- */

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

static void write_number(struct jw *w, const char *key, int64_t v)
{
    if (v != 0)
        jw_ki64(w, key, v);
}

static void write_text(struct jw *w, const char *key, struct str s)
{
    if (s.n > 0)
        jw_kstr(w, key, s);
}

/* Writes @json or, if it is empty, the member @key of @doc. */
static void write_raw(struct jw *w, const char *key, struct str json, struct json doc)
{
    struct json read = json_get(doc, key);

    if (json.n == 0 && json_type(read) == JSON_ABSENT)
        return;
    jw_key(w, key);
    if (json.n > 0)
        jw_raw(w, json);
    else
        jw_value(w, read);
}

static void write_entry(struct buf *out, const struct outgoing_entry *e)
{
    struct jw w = jw_begin(out);
    char said[SAID_DIGITS + 1] = "";

    if (action_is_said(&e->from))
        snprintf(said, sizeof said, "%016" PRIx64 "%016" PRIx64, e->from.said.hi, e->from.said.lo);
    jw_obj(&w);
    jw_kstr_opt(&w, "tenant", e->from.tenant);
    jw_kstr_opt(&w, "instance", e->from.instance);
    jw_kstr_opt(&w, "request", e->from.request_id);
    jw_ki64(&w, "life", e->from.life);
    write_text(&w, "said", str_of(said));
    jw_kstr(&w, "op", str_of(action_op_name(e->op)));
    jw_kstr_opt(&w, "chat", e->chat);
    write_text(&w, "lane", e->lane);
    jw_ki64(&w, "at", e->asked_ms);
    jw_kstr(&w, "state", str_of(names[e->state]));
    write_number(&w, "tried", e->tried_ms);
    write_number(&w, "twice", e->twice);
    write_number(&w, "attempts", e->attempts);
    write_number(&w, "part", e->part);
    write_number(&w, "parts", e->n_parts);
    write_text(&w, "first", e->first_id);
    write_text(&w, "why", e->why);
    jw_kstr_opt(&w, "edit", e->edit);
    if (e->told)
        jw_kbool(&w, "told", true);
    write_raw(&w, "action", e->action, e->doc);
    write_raw(&w, "file", e->file, e->doc);
    jw_end_obj(&w);
}

static void entry_of(const struct outgoing *o, struct outgoing_entry *ret)
{
    *ret = (struct outgoing_entry){.number = o->record.number,
                                   .from = o->from,
                                   .op = o->op,
                                   .state = o->record.state,
                                   .twice = o->twice,
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
                                   .action = o->action,
                                   .file = o->file};
}

/* ---- reading a record ---- */

static int64_t read_number(struct json doc, const char *key)
{
    int64_t v = 0;

    return json_as_i64(json_get(doc, key), &v) && v > 0 ? v : 0;
}

static uint32_t read_small(struct json doc, const char *key)
{
    int64_t v = read_number(doc, key);

    return v <= UINT32_MAX ? (uint32_t)v : 0;
}

static uint64_t read_hex(const char *p)
{
    uint64_t v = 0;

    for (int i = 0; i < SAID_DIGITS / 2; i++)
        v = v << 4 | (unsigned)(hex_value(p[i]) & 15);
    return v;
}

bool outgoing_left_read(struct sender *s, struct outgoing_left *l)
{
    struct json doc;

    if (!json_parse(s->parser, str_make(l->value, l->n), &doc) || !json_is_object(doc))
        return false;
    struct str state = json_str(doc, "state"), said = json_str(doc, "said");
    uint32_t twice = read_small(doc, "twice");
    l->e = (struct outgoing_entry){.number = l->number,
                                   .from = {.tenant = json_str(doc, "tenant"),
                                            .instance = json_str(doc, "instance"),
                                            .request_id = json_str(doc, "request"),
                                            .life = read_small(doc, "life")},
                                   .op = action_op_parse(json_str(doc, "op")),
                                   .state = str_eq(state, STR("waiting"))   ? OUTGOING_WAITING
                                            : str_eq(state, STR("unknown")) ? OUTGOING_UNKNOWN
                                            : str_eq(state, STR("sent"))    ? OUTGOING_SENT
                                                                            : OUTGOING_TRYING,
                                   .twice = twice <= TWICE_IS_SEEN ? (enum outgoing_twice)twice
                                                                   : TWICE_IS_TWO,
                                   .asked_ms = read_number(doc, "at"),
                                   .tried_ms = read_number(doc, "tried"),
                                   .attempts = read_small(doc, "attempts"),
                                   .part = read_small(doc, "part"),
                                   .n_parts = read_small(doc, "parts"),
                                   .told = json_as_bool(json_get(doc, "told"), false),
                                   .chat = json_str(doc, "chat"),
                                   .lane = json_str(doc, "lane"),
                                   .first_id = json_str(doc, "first"),
                                   .why = json_str(doc, "why"),
                                   .edit = json_str(doc, "edit"),
                                   .doc = doc};
    if (said.n == SAID_DIGITS)
        l->e.from.said =
            (struct hash128){.hi = read_hex(said.p), .lo = read_hex(said.p + SAID_DIGITS / 2)};
    return true;
}

void outgoing_left_action(const struct outgoing_left *l, struct action *ret,
                          struct action_file *file, struct buf *path)
{
    struct json f = json_get(l->e.doc, "file");

    *ret = (struct action){.deadline_ms = l->deadline_ms, .left = l};
    frame_read_action(l->e.doc, ret);
    if (!json_is_object(f))
        return;
    buf_add_str(path, json_str(f, "path"));
    *file = (struct action_file){.path = buf_z(path),
                                 .type = json_str(f, "type"),
                                 .name = json_str(f, "name"),
                                 .url = json_str(f, "url"),
                                 .size = (uint64_t)read_number(f, "size")};
    ret->file = file;
}

/* ---- the row in the store ---- */

static void write_key(const struct sender *s, uint64_t number, struct buf *out)
{
    buf_printf(out, "%s\x1f%s\x1f%016" PRIx64, s->p->ops->name, s->p->bot, number);
}

/* @done NULL: no callback; the callback of an earlier write still runs. */
static struct store_put *put_entry(struct sender *s, const struct outgoing_entry *e,
                                   store_put_cb *done, void *ctx)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    write_key(s, e->number, &key);
    write_entry(&value, e);
    struct store_kv item = {.verb = KV_PUT,
                            .ns = NS,
                            .key = buf_str(&key),
                            .value = buf_str(&value)};
    struct store_put *put = store_put(s->env->store, &item, 1, done != NULL, done, ctx);
    buf_done(&key);
    buf_done(&value);
    return put;
}

void outgoing_delete(struct sender *s, uint64_t number)
{
    struct buf key = BUF_INIT;

    write_key(s, number, &key);
    struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = buf_str(&key)};
    store_put(s->env->store, &item, 1, false, NULL, NULL);
    buf_done(&key);
}

static void on_written(void *ctx, enum bh_err err)
{
    struct outgoing *o = ctx;

    o->record.put = NULL;
    outgoing_recorded(o, err);
}

void outgoing_note(struct outgoing *o, enum outgoing_state state, bool wait)
{
    struct outgoing_entry e;

    if (state == OUTGOING_TRYING && o->maybe_ms == 0)
        o->tried_ms = sender_wall_ms(o->sender);
    o->record.state = state;
    o->record.part = (uint32_t)o->at;
    entry_of(o, &e);
    if (wait) {
        store_put_cancel(&o->record.put); /* writes are ordered: the later one covers the earlier */
        o->record.put = put_entry(o->sender, &e, on_written, o);
    } else {
        put_entry(o->sender, &e, NULL, NULL);
    }
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
    list_init(&l->link);
    return l;
}

struct outgoing_left *outgoing_to_left(struct outgoing *o)
{
    struct buf value = BUF_INIT;
    struct outgoing_entry e;

    entry_of(o, &e);
    write_entry(&value, &e);
    struct outgoing_left *l = left_new(e.number, buf_str(&value));
    l->durable = o->record.durable;
    l->deadline_ms = o->deadline_ms;
    buf_done(&value);
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

static void keep(struct sender *s, const struct outgoing_entry *e)
{
    struct buf value = BUF_INIT;

    write_entry(&value, e);
    struct outgoing_left *l = left_new(e->number, buf_str(&value));
    l->since_ms = sender_wall_ms(s);
    kept_add(s, l, e->state);
    put_entry(s, e, NULL, NULL);
    buf_done(&value);
}

void outgoing_settle(struct outgoing *o, enum sender_end end, const char *why)
{
    bool sent = end == SENDER_DONE && o->waiter == WAITER_QUEUED && o->first_id[0] != '\0';
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
        e.action = e.file = e.edit = STR_NULL;
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
           (e->twice == TWICE_IS_TWO || json_type(json_get(e->doc, "action")) == JSON_ABSENT ||
            (e->twice == TWICE_IS_KEYED && sender_wall_ms(s) - e->tried_ms >= s->ops->key_ms));
}

/* Notes the outcome of @e, which became unknown at @ended_ms (0: now). */
static void note_unknown(struct sender *s, const struct outgoing_entry *e, int64_t ended_ms)
{
    char *why = str_dup(e->why.p != NULL ? e->why : STR(""));

    outcomes_note(s->env->outcomes,
                  &(struct outcome){.platform = s->p->ops->name,
                                    .bot = s->p->bot,
                                    .from = &e->from,
                                    .op = e->op,
                                    .chat = e->chat,
                                    .message_id = e->first_id,
                                    .number = e->number,
                                    .how = "unknown",
                                    .why = why,
                                    .asked_ms = e->asked_ms,
                                    .ended_ms = ended_ms > 0 ? ended_ms : sender_wall_ms(s),
                                    .attempts = e->attempts});
    free(why);
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
    if (fresh) {
        struct outgoing_entry now = *e;
        now.state = OUTGOING_UNKNOWN;
        now.why = STR("bellhop restarted while this was being sent");
        now.attempts++; /* the request that was in flight */
        keep(s, &now);
        note_unknown(s, &now, 0);
        free(l);
        return;
    }
    l->since_ms = since_ms;
    note_unknown(s, e, since_ms);
    kept_add(s, l, OUTGOING_UNKNOWN);
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct sender *s = ctx;
    struct str rest = key, platform, bot;
    char hex[17] = "", *end;

    if (!str_split(&rest, '\x1f', &platform) || !str_split(&rest, '\x1f', &bot) ||
        !str_eq(platform, str_of(s->p->ops->name)) || !str_eq(bot, str_of(s->p->bot)) ||
        rest.n != 16)
        return;
    memcpy(hex, rest.p, 16);
    uint64_t number = strtoull(hex, &end, 16);
    if (*end != '\0')
        return;
    struct outgoing_left *l = left_new(number, value);
    if (!outgoing_left_read(s, l)) {
        outgoing_delete(s, number);
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
        log_info(NULL, "platform=%s bot=%s going on with what was waiting: messages=%zu",
                 s->p->ops->name, s->p->bot, n);
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
    v.e.state = o->state == OUTGOING_FETCHING ? OUTGOING_FETCHING
                : o->call != NULL             ? OUTGOING_TRYING
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

enum bh_err sender_retry(struct sender *s, uint64_t number)
{
    struct outgoing *o = find(s, number);
    struct outgoing_left *l = find_kept(s, number);

    if (o != NULL && outbox_is_running(&o->item))
        return BH_BUSY;
    if (o != NULL) {
        outbox_hurry(s->box, &o->item);
        return BH_OK;
    }
    if (l == NULL || l->e.state != OUTGOING_UNKNOWN)
        return BH_REFUSED;
    kept_remove(s, l);
    return revive_one(s, l) ? BH_OK : BH_REFUSED;
}

enum bh_err sender_drop(struct sender *s, uint64_t number)
{
    struct outgoing *o = find(s, number);
    struct outgoing_left *l = find_kept(s, number);

    if (o != NULL && outbox_is_running(&o->item))
        return BH_BUSY;
    if (o != NULL) {
        outgoing_take_out(o, "an operator took it out of the outbox");
        return BH_OK;
    }
    if (l == NULL || l->e.state != OUTGOING_UNKNOWN)
        return BH_REFUSED;
    kept_delete(s, l);
    return BH_OK;
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
    struct buf own = BUF_INIT;

    list_init(&s->left);
    list_init(&s->kept);
    timer_init(&s->revive, on_revive);
    timer_init(&s->sweep, on_sweep);
    s->parser = json_parser_new();
    buf_printf(&own, "%s\x1f%s\x1f", s->p->ops->name, s->p->bot);
    enum bh_err err = store->ops->load_records(store, NS, buf_str(&own), on_record, s);
    buf_done(&own);
    if (err != BH_OK)
        snprintf(ret_why, 256, "the store cannot be read");
    else if (s->n.cut_off > 0)
        log_warn(NULL, "platform=%s bot=%s this was being sent when bellhop stopped: unknown=%zu",
                 s->p->ops->name, s->p->bot, s->n.cut_off);
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
    json_parser_free(s->parser);
}
