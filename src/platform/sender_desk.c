/* sender_desk.c - whoever asks about what waits: gateways by its name, operators by its number.
 * (sender.h has the contract.) */
#include <stdlib.h>
#include "base/json.h"
#include "platform/sender_priv.h"

static struct outgoing *find(const struct sender *s, uint64_t number)
{
    return map_get(&s->by_number, sender_number_key(&number));
}

static struct outgoing_left *find_kept(const struct sender *s, uint64_t number)
{
    return map_get(&s->kept_by_number, sender_number_key(&number));
}

/* ---- gateways ---- */

static bool number_of(struct str name, uint64_t *ret)
{
    struct str head = STR("queued:");

    return str_starts(name, head) && str_to_u64(str_skip(name, head.n), ret);
}

static bool read_kept(struct sender *s, const struct outgoing_left *l, struct outgoing_entry *ret)
{
    struct json doc;

    return json_parse(s->parser, str_make(l->value, l->n), &doc) &&
           outgoing_entry_read(doc, l->number, ret);
}

enum sender_named sender_named(struct sender *s, struct str name, char ret_id[128])
{
    struct outgoing_entry e;
    uint64_t number;

    if (!number_of(name, &number))
        return SENDER_NAMED_NONE;
    if (find(s, number) != NULL)
        return SENDER_NAMED_WAITS;
    const struct outgoing_left *l = find_kept(s, number);
    if (l == NULL || !read_kept(s, l, &e) || e.first_id.n == 0 || e.first_id.n >= 128)
        return SENDER_NAMED_NONE;
    memcpy(ret_id, e.first_id.p, e.first_id.n);
    ret_id[e.first_id.n] = '\0';
    return SENDER_NAMED_SENT;
}

void sender_edit_later(struct sender *s, struct action_id id, const struct action *a)
{
    uint64_t number;
    struct outgoing *o = number_of(a->message_id, &number) ? find(s, number) : NULL;

    if (o == NULL || !str_eq(o->chat, a->chat_id)) {
        host_fail(s->p->host, id, "there is no such message to edit");
        return;
    }
    free(o->edit);
    o->edit = str_dup(a->content);
    outgoing_note(o, (enum outgoing_state)o->on_disk, false);
    host_result(s->p->host, id, &(struct action_result){.success = true, .queued = true});
}

/* ---- operators ---- */

static void view_live(const struct outgoing *o, sender_view_cb *cb, void *ctx)
{
    struct outgoing_view v = {0};
    int64_t next_ms = outbox_next_ms(&o->item);

    outgoing_entry_of(o, &v.e);
    v.e.state = o->call != NULL ? OUTGOING_TRYING : OUTGOING_WAITING;
    if (next_ms > 0)
        v.next_ms = sender_wall_ms(o->sender) + next_ms - sender_now_ms(o->sender);
    cb(ctx, &v);
}

static void view_kept(struct sender *s, const struct outgoing_left *l, sender_view_cb *cb,
                      void *ctx)
{
    struct outgoing_view v = {0};

    if (read_kept(s, l, &v.e) && v.e.state == OUTGOING_UNKNOWN)
        cb(ctx, &v);
}

static void view_list(const struct list *all, sender_view_cb *cb, void *ctx)
{
    for (const struct list *it = all->next; it != all; it = it->next) {
        const struct outgoing *o = list_entry(it, const struct outgoing, link);
        if (o->record.log != NULL)
            view_live(o, cb, ctx);
    }
}

void sender_each(struct sender *s, uint64_t number, sender_view_cb *cb, void *ctx)
{
    if (number != 0) {
        const struct outgoing *o = find(s, number);
        const struct outgoing_left *l = find_kept(s, number);
        if (o != NULL)
            view_live(o, cb, ctx);
        else if (l != NULL)
            view_kept(s, l, cb, ctx);
        return;
    }
    list_each (&s->kept, it, nxt)
        view_kept(s, list_entry(it, struct outgoing_left, link), cb, ctx);
    view_list(&s->held, cb, ctx);
    view_list(&s->all, cb, ctx);
}

enum bh_err sender_retry(struct sender *s, uint64_t number)
{
    struct outgoing *o = find(s, number);
    struct outgoing_left *l = find_kept(s, number);

    if (o != NULL) {
        if (outbox_is_running(&o->item))
            return BH_BUSY;
        outbox_hurry(s->box, &o->item);
        return BH_OK;
    }
    if (l == NULL || l->e.state != OUTGOING_UNKNOWN)
        return BH_REFUSED;
    sender_unkeep(s, l);
    return sender_revive_one(s, l) ? BH_OK : BH_REFUSED;
}

/* It waits, and does so no longer. */
static void end_waiting(struct outgoing *o, const char *why)
{
    if (o->queued)
        outbox_remove(o->sender->box, &o->item);
    o->queued = false;
    o->maybe = false;
    outgoing_end_with(o, SENDER_REFUSED, why);
}

enum bh_err sender_drop(struct sender *s, uint64_t number)
{
    struct outgoing *o = find(s, number);
    struct outgoing_left *l = find_kept(s, number);

    if (o != NULL && outbox_is_running(&o->item))
        return BH_BUSY;
    if (o != NULL) {
        end_waiting(o, "an operator took it out of the outbox");
        return BH_OK;
    }
    if (l == NULL || l->e.state != OUTGOING_UNKNOWN)
        return BH_REFUSED;
    sender_unkeep(s, l);
    outgoing_log_delete(s->log, number);
    free(l);
    return BH_OK;
}

/* ---- those who are no more ---- */

struct whose {
    struct str tenant, instance, chat; /* absent: any */
};

static bool is_of(const struct whose *w, const struct outgoing_entry *e)
{
    return (w->tenant.p == NULL || str_eq(w->tenant, e->from.tenant)) &&
           (w->instance.p == NULL || str_eq(w->instance, e->from.instance)) &&
           (w->chat.p == NULL || str_eq(w->chat, e->chat));
}

static void forget_live(struct list *all, const struct whose *w)
{
    list_each (all, it, nxt) {
        struct outgoing *o = list_entry(it, struct outgoing, link);
        struct outgoing_entry e;
        outgoing_entry_of(o, &e);
        if (!o->is_action || !is_of(w, &e))
            continue;
        o->cancelled = true;
        if (o->queued && !outbox_is_running(&o->item))
            end_waiting(o, "");
    }
}

static void forget_left(struct sender *s, struct list *all, const struct whose *w)
{
    list_each (all, it, nxt) {
        struct outgoing_left *l = list_entry(it, struct outgoing_left, link);
        struct outgoing_entry e;
        if (!read_kept(s, l, &e) || !is_of(w, &e))
            continue;
        if (all == &s->kept)
            sender_unkeep(s, l);
        list_remove(&l->link);
        outgoing_log_delete(s->log, l->number);
        free(l);
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
