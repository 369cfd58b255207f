/* inbound.c - takes messages, and passes them to the host one after the other in each chat.
 * (irc_priv.h has the calls.)
 *
 *      line --batch?--> irc_in_take() --> queue of its chat --first--> host_accept() --safe--> next
 *                            '-- the chat's history is being read --> later --irc_in_filled()--'
 *
 * IRC has no acknowledgement.  Where the server keeps a history, a chat's cursor moves on only when
 * a message is safe, and what is lost in a crash is read again.  Elsewhere a message is in memory
 * until it is safe.  A message that cannot be stored now keeps its place, and those behind it wait.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/mem.h"
#include "platform/irc/irc_priv.h"
#include "platform/recent.h"

enum {
    MAX_CHATS = 16384,
    MAX_OWN = 8192,
    MAX_QUEUED = 8192, /* of all chats */
    MAX_BATCHES = 32,
    MAX_MULTI_BYTES = 65536,
    MAX_MULTI_LINES = 1000,
    FIRST_RETRY_MS = 500,
    MAX_RETRY_MS = 30000,
    RETRIES_ARE_A_PROBLEM = 5,
    PROOF_MS = 2000, /* a proof of who has a nick is believed for so long */
    WHOIS_MS = 15000,
};

/* ---- chats ---- */

static void heard_free(struct irc *i, struct irc_heard *h)
{
    i->in.n_queued--;
    list_remove(&h->link);
    arena_done(&h->arena);
    free(h);
}

static void chat_free(struct lru *l, void *entry)
{
    struct irc *i = container_of(l, struct irc, in.chats);
    struct irc_chat *c = entry;

    list_remove(&c->dirty);
    list_each (&c->queue, it, nxt)
        heard_free(i, list_entry(it, struct irc_heard, link));
    list_each (&c->later, it, nxt)
        heard_free(i, list_entry(it, struct irc_heard, link));
}

/* The person who was silent for longest goes, with the cursor on disk.  Channels stay. */
static void make_room(struct irc *i)
{
    list_each (&i->in.chats.by_age, it, nxt) {
        struct irc_chat *c = container_of(it, struct irc_chat, lru.age);
        if (!irc_is_nick(c->lru.key))
            continue;
        irc_past_forget(i, c);
        lru_drop(&i->in.chats, c);
        return;
    }
}

struct irc_chat *irc_chat_use(struct irc *i, struct str target)
{
    if (lru_is_full(&i->in.chats) && lru_find(&i->in.chats, target) == NULL)
        make_room(i);
    struct irc_chat *c = lru_use(&i->in.chats, target, sizeof *c);

    if (c->queue.next == NULL) { /* new */
        list_init(&c->queue);
        list_init(&c->later);
        snprintf(c->peer, sizeof c->peer, "%.*s", STR_FMT(target));
    }
    return c;
}

void irc_own_add(struct irc *i, struct str msgid)
{
    if (msgid.n > 0)
        lru_use(&i->in.own, msgid, sizeof(struct irc_own));
}

/* ---- whose nick is it? ----
 *
 * Answers to a direct message go to a nick, which somebody else may have taken meanwhile.  So a
 * chat remembers the account of the person whose messages an instance gets.  If the last proof
 * is old, the server is asked (WHOIS) before something is sent. */

static void on_target(void *ctx, struct str tenant, struct str instance)
{
    *(bool *)ctx = true;
}

static void note_holder(struct irc *i, struct irc_chat *c, const struct irc_out *out)
{
    bool heard = false, was_here = c->account[0] != '\0';

    host_each_target(i->base.host, &out->ev, on_target, &heard);
    if (heard)
        snprintf(c->account, sizeof c->account, "%.*s", STR_FMT(out->account));
    c->stranger = was_here && !str_eq(str_of(c->account), out->account);
    c->asked_ms = irc_now_ms(i);
    c->asking = c->asked = false;
}

void irc_whois_line(struct irc *i, const struct irc_line *l, int numeric)
{
    struct irc_in in = irc_in_of(i);
    BUF_LOCAL key = BUF_INIT;

    irc_fold_add(&key, in.fold, irc_param(l, 1));
    struct irc_chat *c = lru_find(&i->in.chats, buf_str(&key));
    if (c == NULL || !c->asking)
        return;
    if (numeric == 330) {
        c->same = str_eq_ci(irc_param(l, 2), str_of(c->account));
        return;
    }
    c->asking = false;
    c->asked_ms = irc_now_ms(i);
    c->stranger = numeric == 318 && !c->same; /* 401: nobody has it, as the send will tell */
}

enum irc_holder irc_holder(const struct irc *i, const struct irc_chat *c)
{
    if (c == NULL || c->account[0] == '\0')
        return IRC_RIGHTFUL;
    if (c->asked_ms == 0 || irc_now_ms(i) - c->asked_ms >= (c->asking ? WHOIS_MS : PROOF_MS))
        return IRC_STALE;
    return c->asking ? IRC_ASKED : c->stranger ? IRC_STRANGER : IRC_RIGHTFUL;
}

void irc_holder_ask(struct irc *i, struct irc_chat *c)
{
    BUF_LOCAL line = BUF_INIT;

    c->asking = c->asked = true;
    c->same = false;
    c->asked_ms = irc_now_ms(i);
    buf_printf(&line, "WHOIS %s\r\n", c->peer);
    irc_link_send(i->link, buf_str(&line), 1);
}

void irc_nick_left(struct irc *i, struct str nick)
{
    struct irc_in in = irc_in_of(i);
    BUF_LOCAL key = BUF_INIT;

    irc_fold_add(&key, in.fold, nick);
    struct irc_chat *c = lru_find(&i->in.chats, buf_str(&key));
    if (c != NULL && !c->asking) /* an answer that is still to come knows of it */
        c->asked_ms = 0;
}

/* ---- telling the host ---- */

struct irc_turn { /* of a chat */
    uint64_t number;
    char target[IRC_NAME_MAX + 1];
};

static void go(struct irc *i, struct irc_chat *c);

static void end_first(struct irc *i, struct irc_chat *c)
{
    struct irc_heard *h = list_first(&c->queue, struct irc_heard, link);
    char msgid[IRC_MSGID_MAX + 1];
    int64_t at_ms = h->at_ms;

    snprintf(msgid, sizeof msgid, "%.*s", STR_FMT(h->msgid));
    c->busy = false;
    c->n_queue--;
    heard_free(i, h);
    irc_past_done(i, c, str_of(msgid), at_ms);
}

static void on_safe(struct platform *p, void *with, enum bh_err err)
{
    const struct irc_turn *t = with;
    struct irc *i = irc_of(p);
    struct irc_chat *c = lru_find(&i->in.chats, str_of(t->target));

    if (c == NULL || !c->busy || c->turn != t->number)
        return;
    if (err != BH_BUSY && err != BH_UNAVAILABLE) {
        if (i->in.failures >= RETRIES_ARE_A_PROBLEM)
            platform_set_problem(p, NULL);
        i->in.failures = 0;
        end_first(i, c);
        go(i, c);
        return;
    }
    c->busy = false;
    if (timer_is_set(&i->in.retry))
        return;
    if (++i->in.failures == RETRIES_ARE_A_PROBLEM)
        platform_set_problem(p, err == BH_BUSY
                                    ? "Messages wait in memory because a mailbox is full: start "
                                      "its agent, or purge it (bellhop mailbox list)."
                                    : "Messages wait in memory because the store cannot take "
                                      "them.");
    timer_set(p->env->clock, &i->in.retry,
              clock_backoff_ms(i->in.failures, FIRST_RETRY_MS, MAX_RETRY_MS));
}

/* Earlier messages of the channel, as context. */
static void add_context(struct irc *i, struct event *ev, struct arena *arena)
{
    if (i->in.recent == NULL || str_eq(ev->chat_type, STR("dm")))
        return;
    if (ev->edit.set) {
        recent_edit(i->in.recent, ev->chat_id, ev->message_id, STR_NULL);
        return;
    }
    if (str_starts(ev->text, STR("/")))
        return;
    recent_retain(i->in.recent, i->base.env->retention_ms);
    recent_join(i->in.recent, ev->chat_id, ev, NULL, arena);
}

static void refuse_link(struct irc *i, struct irc_chat *c, const struct irc_heard *h)
{
    i->n.unproven++;
    host_refused(i->base.host, &h->ev, "its author is not logged in to an account");
    irc_out_tell(i, str_of(c->peer),
                 "Log in to your account on this network first (NickServ, or SASL in your client): "
                 "without an account anybody could take your nick. Then send /link again.");
}

/* Tells the host what is next in @c. */
static void go(struct irc *i, struct irc_chat *c)
{
    while (!c->busy && !list_is_empty(&c->queue)) {
        struct irc_heard *h = list_first(&c->queue, struct irc_heard, link);
        struct webhook_delivery x = {.ev = &h->ev};
        struct irc_turn t = {.number = ++c->turn};
        if (h->unproven_link) {
            refuse_link(i, c, h);
            end_first(i, c);
            continue;
        }
        snprintf(t.target, sizeof t.target, "%.*s", STR_FMT(c->lru.key));
        if (!h->tried)
            add_context(i, &h->ev, &h->arena);
        h->tried = true;
        x.prompt = prompts_answered(i->base.prompts, &h->ev, STR_NULL, &x.option);
        c->busy = true;
        await_event(&i->base, &x, &t, sizeof t, on_safe);
    }
}

static void on_retry(struct timer *t)
{
    struct irc *i = container_of(t, struct irc, in.retry);

    list_each (&i->in.chats.by_age, it, nxt)
        go(i, container_of(it, struct irc_chat, lru.age));
}

/* ---- messages ---- */

/* The event id of a message without a msgid.  From a history it has to be the same every time. */
static struct str make_id(struct irc *i, const struct irc_line *l, bool past, char ret[24])
{
    uint64_t n;

    if (past) {
        BUF_LOCAL text = BUF_INIT;
        struct str time = irc_tag(l, STR("time"), &i->arena);
        buf_printf(&text, "%.*s %.*s %.*s %.*s", STR_FMT(time), STR_FMT(l->source),
                   STR_FMT(irc_param(l, 0)), STR_FMT(irc_param(l, 1)));
        n = hash64(&i->base.env->store->dedup_key, buf_str(&text));
    } else {
        n = host_number(i->base.host);
    }
    snprintf(ret, 24, "%c%016" PRIx64, past ? 'h' : 'n', n);
    return str_of(ret);
}

bool irc_in_made(struct str id)
{
    bool made = id.n == 17 && (id.p[0] == 'h' || id.p[0] == 'n');

    for (size_t k = 1; made && k < id.n; k++)
        made = hex_value(id.p[k]) >= 0;
    return made;
}

static void overflow(struct irc *i, struct irc_chat *c)
{
    if (i->n.dropped++ % 1000 == 0)
        log_warn(&i->base.log, "too many messages wait to be stored: %s",
                 irc_has(i, IRC_HISTORY) ? "the rest is read from the history later"
                                         : "the newest are dropped");
    c->gap = irc_has(i, IRC_HISTORY);
    i->in.gaps |= c->gap;
}

bool irc_in_take(struct irc *i, const struct irc_line *l, bool past)
{
    struct irc_in in = irc_in_of(i);
    struct irc_out out;
    char id[24];
    enum irc_verdict v = irc_normalize(l, &in, make_id(i, l, past, id), &i->arena, &out);

    bool said = out.msgid.n > 0 && lru_find(&i->in.own, out.msgid) != NULL; /* under another nick */
    if (v == IRC_OWN || said) {
        irc_own_add(i, out.msgid);
        return false;
    }
    bool about_own = out.reacted.n > 0 && lru_find(&i->in.own, out.reacted) != NULL;
    if (v == IRC_IGNORED || (out.reacted.n > 0 && !about_own)) {
        i->base.n.ignored++;
        return false;
    }
    struct irc_chat *c = irc_chat_use(i, out.target);
    snprintf(c->peer, sizeof c->peer, "%.*s", STR_FMT(out.peer));
    if (i->in.n_queued >= MAX_QUEUED || c->gap) {
        overflow(i, c);
        return true;
    }
    if (str_eq(out.ev.chat_type, STR("dm")) && !past && in.has_accounts && !out.ev.edit.set)
        note_holder(i, c, &out);
    out.ev.replies_to_bot = out.ev.reply_to_message_id.n > 0 &&
                            lru_find(&i->in.own, out.ev.reply_to_message_id) != NULL;
    struct irc_heard *h = xcalloc(1, sizeof *h);
    event_copy(&out.ev, &h->arena, &h->ev);
    if (!irc_is_context(l, &i->arena)) {
        h->msgid = arena_str(&h->arena, out.msgid);
        h->at_ms = irc_time_ms(irc_tag(l, STR("time"), &i->arena));
    }
    h->unproven_link = out.wants_link && !out.proven;
    i->in.n_queued++;
    bool held = str_eq(h->ev.chat_type, STR("dm")) && irc_past_holds(i);
    if ((c->filling || held) && !past) {
        c->filling = true;
        list_append(&c->later, &h->link);
        return true;
    }
    list_append(&c->queue, &h->link);
    c->n_queue++;
    go(i, c);
    return true;
}

void irc_in_drop_later(struct irc *i, struct irc_chat *c)
{
    list_each (&c->later, it, nxt)
        heard_free(i, list_entry(it, struct irc_heard, link));
}

void irc_in_filled(struct irc *i, struct irc_chat *c)
{
    c->filling = false;
    while (!list_is_empty(&c->later)) {
        list_move(c->later.next, &c->queue);
        c->n_queue++;
    }
    go(i, c);
}

/* ---- batches ---- */

static struct irc_batch *find_batch(struct irc *i, struct str name)
{
    if (name.n == 0)
        return NULL;
    list_each (&i->in.batches, it, nxt) {
        struct irc_batch *b = list_entry(it, struct irc_batch, link);
        if (str_eq(str_of(b->name), name))
            return b;
    }
    return NULL;
}

static void batch_free(struct irc *i, struct irc_batch *b)
{
    i->in.n_batches--;
    list_remove(&b->link);
    buf_done(&b->head);
    free(b);
}

uint64_t irc_label_of(struct irc *i, const struct irc_line *l)
{
    struct str label = irc_tag(l, STR("label"), &i->arena);
    const struct irc_batch *b;
    uint64_t n = 0;

    if (str_starts(label, STR("bh")) && str_to_u64(str_skip(label, 2), &n))
        return n;
    b = find_batch(i, irc_tag(l, STR("batch"), &i->arena));
    return b != NULL ? b->label : 0;
}

static void open_batch(struct irc *i, const struct irc_line *l, struct str name)
{
    struct str type = irc_param(l, 1), target = irc_param(l, 2);
    struct str around = irc_tag(l, STR("batch"), &i->arena);

    if (name.n == 0 || name.n > 63 || around.n > 63 || i->in.n_batches >= MAX_BATCHES ||
        find_batch(i, name) != NULL) {
        i->base.n.malformed++;
        return;
    }
    struct irc_batch *b = xcalloc(1, sizeof *b);
    snprintf(b->name, sizeof b->name, "%.*s", STR_FMT(name));
    snprintf(b->around, sizeof b->around, "%.*s", STR_FMT(around));
    b->label = irc_label_of(i, l);
    if (str_eq(type, STR("draft/multiline"))) {
        b->type = IRC_BATCH_MULTI;
        irc_head_add(&b->head, l, STR("PRIVMSG"), target);
    } else if (str_eq(type, STR("chathistory"))) {
        b->type = IRC_BATCH_HISTORY;
        b->ours = irc_past_is_ours(i, b->label, target);
    } else if (str_eq(type, STR("draft/chathistory-targets"))) {
        b->type = IRC_BATCH_TARGETS;
        b->ours = irc_past_is_ours(i, b->label, STR_NULL);
    }
    list_append(&i->in.batches, &b->link);
    i->in.n_batches++;
}

/* A message, alone or put together, that is part of @around or of none. */
static void take_message(struct irc *i, const struct irc_line *l, const struct irc_batch *around,
                         uint64_t label)
{
    struct irc_in in = irc_in_of(i);
    bool history = around != NULL && around->type == IRC_BATCH_HISTORY;

    if (history && around->ours)
        irc_past_line(i, l);
    else if (irc_eq(in.fold, l->nick, in.nick) && !history)
        irc_out_own(i, l, label);
    else
        irc_in_take(i, l, history);
}

static void close_batch(struct irc *i, struct irc_batch *b)
{
    struct irc_line l;

    if (b->type == IRC_BATCH_MULTI && b->n_lines > 0 && irc_parse(buf_str(&b->head), &l))
        take_message(i, &l, find_batch(i, str_of(b->around)), b->label);
    bool ended = b->ours;
    batch_free(i, b);
    if (ended)
        irc_past_ended(i);
}

static void add_to_multi(struct irc *i, struct irc_batch *b, const struct irc_line *l)
{
    bool joins = irc_tag(l, STR("draft/multiline-concat"), &i->arena).p != NULL;
    struct str text = irc_param(l, 1);

    if (b->n_lines >= MAX_MULTI_LINES || b->head.n + text.n > MAX_MULTI_BYTES)
        return; /* the rest is cut off */
    if (b->n_lines++ > 0 && !joins)
        buf_add_c(&b->head, '\n');
    buf_add_str(&b->head, text);
}

void irc_in_line(struct irc *i, const struct irc_line *l)
{
    struct str name = irc_param(l, 0);
    bool text = irc_is(l, "PRIVMSG");

    arena_reset(&i->arena);
    if (irc_is(l, "BATCH")) {
        struct irc_batch *b = find_batch(i, str_skip(name, 1));
        if (name.n > 1 && name.p[0] == '+')
            open_batch(i, l, str_skip(name, 1));
        else if (name.n > 1 && name.p[0] == '-' && b != NULL)
            close_batch(i, b);
        return;
    }
    struct irc_batch *b = find_batch(i, irc_tag(l, STR("batch"), &i->arena));
    bool message = text || irc_is(l, "TAGMSG") || irc_is(l, "REDACT");
    if (b != NULL && b->ours && (b->type == IRC_BATCH_TARGETS || !message))
        irc_past_line(i, l); /* of joins and such the place in the history counts */
    else if (b != NULL && b->type == IRC_BATCH_MULTI && text)
        add_to_multi(i, b, l);
    else if (message)
        take_message(i, l, b, irc_label_of(i, l));
}

/* ---- life ---- */

void irc_in_open(struct irc *i)
{
    i->in.chats = (struct lru){.max = MAX_CHATS, .free = chat_free};
    i->in.own = (struct lru){.max = MAX_OWN};
    list_init(&i->in.batches);
    timer_init(&i->in.retry, on_retry);
    if (i->cfg->context > 0)
        i->in.recent = recent_new(i->base.env->clock, i->cfg->context);
}

/* A batch that was cut off is not complete, and dropped. */
void irc_in_lost(struct irc *i)
{
    list_each (&i->in.batches, it, nxt)
        batch_free(i, list_entry(it, struct irc_batch, link));
}

void irc_in_close(struct irc *i)
{
    timer_stop(i->base.env->clock, &i->in.retry);
    if (i->in.batches.next != NULL)
        irc_in_lost(i);
    lru_done(&i->in.chats);
    lru_done(&i->in.own);
    recent_free(i->in.recent);
}
