/* history.c - reads what came while the bot was away, and keeps how far each chat was read.
 * (irc_priv.h has the calls.)
 *
 *      live --> CHATHISTORY TARGETS: who wrote to the bot?, page by page --> a fill for each person
 *      joined --> fill: CHATHISTORY AFTER <the last message>, page by page, until a page is empty
 *      a send whose echo was lost --> CHATHISTORY LATEST: is it there?
 *
 * One request at a time.  Until a chat is filled, what comes live waits behind its history.  The
 * cursor of a chat (irc_cursor) moves on when a message is safe, and is written a second later:
 * what a crash leaves behind is read twice, and the host drops the duplicates.  If the connection
 * ends in the middle, the live messages that wait are dropped: the history has them, too.
 *
 *      irc_cursor   bot US target -> msgid, time, account; target "*": the network's newest time
 *      irc_sts     bot US host   -> port, until: secure connections only */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/irc/irc_priv.h"
#include "store/erasure.h"

enum {
    PAGE = 100,
    LOOK_PAGE = 200,
    MAX_TARGETS = 100,
    MAX_ASKED = 4096,
    ANSWER_MS = 20000,
    SAVE_MS = 1000,
    ENOUGH = 1000, /* messages of a chat that wait: the next page is read later */
};
#define KEPT_MS (30 * 86400000ll) /* the cursor of a person who was silent for so long goes */

static const struct record_field cursor_fields[] = {
    RECORD_FIELD(struct irc_cursor, bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct irc_cursor, target, "target", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct irc_cursor, msgid, "msgid", 0, .max = IRC_MSGID_MAX),
    RECORD_FIELD(struct irc_cursor, account, "account", 0, .max = IRC_NAME_MAX),
    RECORD_FIELD(struct irc_cursor, at_ms, "at", 0),
};
const struct record_form irc_cursor_form =
    RECORD_FORM("irc_place", struct irc_cursor, cursor_fields, .lossy = true);

static const struct record_field sts_fields[] = {
    RECORD_FIELD(struct irc_sts, bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct irc_sts, host, "host", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct irc_sts, until_ms, "until", 0),
    RECORD_FIELD(struct irc_sts, for_ms, "for", 0),
    RECORD_FIELD(struct irc_sts, port, "port", 0, .max = 65535),
};
const struct record_form irc_sts_form =
    RECORD_FORM("irc_sts", struct irc_sts, sts_fields, .lossy = true);

const struct record_form *const irc_records[] = {&irc_cursor_form, &irc_sts_form, NULL};

/* ---- cursors ---- */

static bool keeps_history(const struct irc *i)
{
    const struct irc_server *s = i->live ? irc_link_server(i->link) : &i->was;

    return (s->caps & IRC_HISTORY) != 0;
}

static void put_cursor(struct irc *i, struct str target, struct str msgid, const char *account,
                       int64_t at_ms)
{
    const struct irc_cursor p = {.bot = str_of(i->base.bot),
                                 .target = target,
                                 .msgid = msgid,
                                 .account = str_of(account),
                                 .at_ms = at_ms};

    record_put(i->base.env->store, &irc_cursor_form, NULL, &p, false, NULL, NULL);
}

void irc_past_forget(struct irc *i, const struct irc_chat *c)
{
    const struct irc_cursor p = {.bot = str_of(i->base.bot), .target = c->lru.key};

    if (c->kept)
        record_delete_like(i->base.env->store, &irc_cursor_form, &p);
}

static void save(struct irc *i)
{
    while (!list_is_empty(&i->past.dirty)) {
        struct irc_chat *c = list_first(&i->past.dirty, struct irc_chat, dirty);
        list_remove(&c->dirty);
        put_cursor(i, c->lru.key, str_of(c->msgid), c->account, c->at_ms);
    }
    if (i->past.seen_ms > i->past.saved_ms) {
        i->past.saved_ms = i->past.seen_ms;
        put_cursor(i, STR("*"), STR_NULL, NULL, i->past.seen_ms);
    }
}

static void on_save(struct timer *t)
{
    save(container_of(t, struct irc, past.save));
}

void irc_past_done(struct irc *i, struct irc_chat *c, struct str msgid, int64_t at_ms)
{
    if (msgid.n > 0)
        snprintf(c->msgid, sizeof c->msgid, "%.*s", STR_FMT(msgid));
    if (at_ms > c->at_ms)
        c->at_ms = at_ms;
    if (!keeps_history(i) && c->account[0] == '\0')
        return;
    /* A page that was asked for may still bring earlier direct messages. */
    if (i->in.n_queued == 0 && list_is_empty(&i->past.asked) && at_ms > i->past.seen_ms)
        i->past.seen_ms = at_ms;
    if (!list_is_linked(&c->dirty))
        list_append(&i->past.dirty, &c->dirty);
    if (!c->kept) /* without any cursor a crash would lose all that comes next */
        save(i);
    else if (!timer_is_set(&i->past.save))
        timer_set(i->base.env->clock, &i->past.save, SAVE_MS);
    c->kept = true;
}

/* ---- asking ---- */

static struct irc_asked *first(const struct irc *i)
{
    return list_is_empty(&i->past.asked) ? NULL
                                         : list_first(&i->past.asked, struct irc_asked, link);
}

static struct irc_chat *chat_of(struct irc *i, const struct irc_asked *a)
{
    return lru_find(&i->in.chats, str_of(a->target));
}

static size_t page_of(const struct irc *i, size_t want)
{
    size_t most = irc_link_server(i->link)->history_max;

    return most > 0 && most < want ? most : want;
}

static void write_fill(struct irc *i, const struct irc_asked *a, const struct irc_chat *c,
                       struct buf *out)
{
    const struct irc_server *s = irc_link_server(i->link);
    bool by_id = a->last_id[0] != '\0' && s->history_by_id && !c->by_time;

    buf_printf(out, "CHATHISTORY AFTER %s ", c->peer);
    if (by_id)
        buf_printf(out, "msgid=%s", a->last_id);
    else {
        buf_add_z(out, "timestamp=");
        irc_time_add(out, a->last_ms > 0 ? a->last_ms - 1 : 0);
    }
    buf_printf(out, " %zu\r\n", page_of(i, PAGE));
}

static void ask_next(struct irc *i)
{
    struct irc_asked *a = first(i);
    BUF_LOCAL line = BUF_INIT;

    if (a == NULL || a->sent || !i->live)
        return;
    const struct irc_chat *c = chat_of(i, a);
    if (a->what == IRC_ASK_FILL && c != NULL && c->n_queue > ENOUGH)
        return; /* irc_past_tick() comes back */
    if (irc_has(i, IRC_LABELS)) {
        a->label = irc_label(i);
        buf_printf(&line, "@label=bh%" PRIu64 " ", a->label);
    }
    if (a->what == IRC_ASK_FILL && c != NULL) {
        write_fill(i, a, c, &line);
    } else if (a->what == IRC_ASK_TARGETS) {
        buf_add_z(&line, "CHATHISTORY TARGETS timestamp=");
        irc_time_add(&line, a->last_ms - a->further); /* others may be of the same time */
        buf_add_z(&line, " timestamp=");
        irc_time_add(&line, clock_wall_ms(i->base.env->clock) + 86400000);
        buf_printf(&line, " %zu\r\n", page_of(i, MAX_TARGETS));
    } else {
        buf_printf(&line, "CHATHISTORY LATEST %s * %zu\r\n", a->target, page_of(i, LOOK_PAGE));
    }
    a->sent = true;
    a->n = 0;
    a->sent_ms = irc_now_ms(i);
    a->number = irc_link_send(i->link, buf_str(&line), 1);
}

static struct irc_asked *ask(struct irc *i, int what, struct str target)
{
    struct irc_asked *a = xcalloc(1, sizeof *a);

    a->what = what;
    snprintf(a->target, sizeof a->target, "%.*s", STR_FMT(target));
    list_append(&i->past.asked, &a->link);
    i->past.n_asked++;
    return a;
}

static void asked_free(struct irc *i, struct irc_asked *a)
{
    i->past.n_asked--;
    list_remove(&a->link);
    free(a);
}

void irc_past_fill(struct irc *i, struct irc_chat *c)
{
    if (!irc_has(i, IRC_HISTORY | IRC_BATCH) || i->past.n_asked >= MAX_ASKED) {
        irc_in_filled(i, c);
        return;
    }
    c->filling = true;
    struct irc_asked *a = ask(i, IRC_ASK_FILL, c->lru.key);
    memcpy(a->last_id, c->msgid, sizeof a->last_id);
    a->last_ms = c->at_ms;
    ask_next(i);
}

void irc_past_look(struct irc *i, struct outgoing *o, struct str target)
{
    struct irc_asked *a = ask(i, IRC_ASK_LOOK, target);

    a->out = o;
    ask_next(i);
}

void irc_past_drop(struct irc *i, const struct outgoing *o)
{
    list_each (&i->past.asked, it, nxt) {
        struct irc_asked *a = list_entry(it, struct irc_asked, link);
        if (a->out == o)
            a->out = NULL;
    }
}

/* Between the start of the connection and the answer to TARGETS nobody knows whose history is to be
 * read first. */
bool irc_past_holds(const struct irc *i)
{
    for (const struct list *it = i->past.asked.next; it != &i->past.asked; it = it->next)
        if (list_entry(it, const struct irc_asked, link)->what == IRC_ASK_TARGETS)
            return true;
    return false;
}

void irc_past_live(struct irc *i)
{
    if (!irc_has(i, IRC_HISTORY | IRC_BATCH))
        return;
    if (i->past.seen_ms == 0) { /* the first time: what people wrote before is not for the bot */
        i->past.seen_ms = clock_wall_ms(i->base.env->clock);
        save(i);
        return;
    }
    struct irc_asked *a = ask(i, IRC_ASK_TARGETS, STR(""));
    a->last_ms = i->past.seen_ms;
    ask_next(i);
}

void irc_past_joined(struct irc *i, struct str channel, int64_t at_ms)
{
    struct irc_in in = irc_in_of(i);
    BUF_LOCAL key = BUF_INIT;

    irc_fold_add(&key, in.fold, channel);
    struct irc_chat *c = irc_chat_use(i, buf_str(&key));
    snprintf(c->peer, sizeof c->peer, "%.*s", STR_FMT(channel));
    if (c->filling)
        return;
    if (c->at_ms > 0 || c->msgid[0] != '\0')
        irc_past_fill(i, c);
    else /* the first time: what was said before is not for the bot */
        irc_past_done(i, c, STR_NULL, at_ms);
}

/* ---- answers ---- */

bool irc_past_is_ours(struct irc *i, uint64_t label, struct str target)
{
    const struct irc_asked *a = first(i);
    struct irc_in in = irc_in_of(i);

    if (a == NULL || !a->sent)
        return false;
    if (a->label != 0)
        return a->label == label;
    return target.p == NULL ? a->what == IRC_ASK_TARGETS
                            : irc_eq(in.fold, target, str_of(a->target));
}

static void take_target(struct irc *i, const struct irc_line *l)
{
    struct str name = irc_param(l, 1);
    struct irc_in in = irc_in_of(i);
    BUF_LOCAL key = BUF_INIT;

    if (!irc_is(l, "CHATHISTORY") || !str_eq_ci(irc_param(l, 0), STR("TARGETS")) ||
        !irc_is_nick(name) || irc_is_channel(name, in.chantypes))
        return;
    irc_fold_add(&key, in.fold, name);
    struct irc_chat *c = irc_chat_use(i, buf_str(&key));
    snprintf(c->peer, sizeof c->peer, "%.*s", STR_FMT(name));
    if (c->at_ms == 0)
        c->at_ms = i->past.seen_ms;
    c->filling = c->named = true;
}

void irc_past_line(struct irc *i, const struct irc_line *l)
{
    struct irc_asked *a = first(i);

    if (a == NULL)
        return;
    a->n++;
    if (a->what == IRC_ASK_TARGETS) { /* ordered by the time of their latest message */
        int64_t latest_ms = irc_time_ms(irc_param(l, 2));
        if (latest_ms > a->last_ms) {
            a->moved = true;
            a->last_ms = latest_ms;
        }
        take_target(i, l);
        return;
    }
    if (a->what == IRC_ASK_LOOK) {
        if (a->out != NULL)
            irc_out_past(i, a->out, l);
        return;
    }
    struct str msgid = irc_msgid(l, STR("msgid"), &i->arena);
    int64_t at_ms = irc_time_ms(irc_tag(l, STR("time"), &i->arena));
    bool context = irc_is_context(l, &i->arena);
    if (msgid.n > 0 && !context) {
        a->moved |= !str_eq(msgid, str_of(a->last_id));
        snprintf(a->last_id, sizeof a->last_id, "%.*s", STR_FMT(msgid));
    }
    if (at_ms > a->last_ms && !context) {
        a->moved = true;
        a->last_ms = at_ms;
    }
    i->n.filled += irc_in_take(i, l, true);
}

/* CHATHISTORY TARGETS ended: the chats that it named are filled, and the others need no fill. */
static void targets_ended(struct irc *i)
{
    struct list *all = &i->in.chats.by_age;

    if (map_count(&i->in.chats.map) == 0)
        return;
    list_each (all, it, nxt) {
        struct irc_chat *c = container_of(it, struct irc_chat, lru.age);
        if (!c->filling || memchr("#&+!", c->lru.key.p[0], 4) != NULL)
            continue;
        if (c->named)
            irc_past_fill(i, c);
        else
            irc_in_filled(i, c);
        c->named = false;
    }
}

static void drop_later(struct irc *i, struct irc_chat *c)
{
    c->filling = c->named = false;
    irc_in_drop_later(i, c);
}

static void finish_first(struct irc *i, bool answered)
{
    struct irc_asked *a = list_first(&i->past.asked, struct irc_asked, link);
    struct irc_chat *c = chat_of(i, a);
    struct outgoing *out = a->out;
    int what = a->what;

    asked_free(i, a);
    if (what == IRC_ASK_TARGETS)
        targets_ended(i);
    else if (what == IRC_ASK_LOOK && out != NULL)
        irc_out_looked(i, out, answered);
    else if (what == IRC_ASK_FILL && c != NULL && c->gap)
        drop_later(i, c); /* it is read again once the queue is empty */
    else if (what == IRC_ASK_FILL && c != NULL)
        irc_in_filled(i, c);
    ask_next(i);
}

void irc_past_ended(struct irc *i)
{
    struct irc_asked *a = first(i);

    if (a == NULL || !a->sent)
        return;
    const struct irc_chat *c = chat_of(i, a);
    bool chats = a->what == IRC_ASK_TARGETS && a->n >= page_of(i, MAX_TARGETS);
    bool said = a->what == IRC_ASK_FILL && a->n > 0 && c != NULL && !c->gap;
    if (!a->moved || !(chats || said)) {
        finish_first(i, true);
        return;
    }
    a->sent = a->moved = false;
    a->further = true;
    ask_next(i);
}

bool irc_past_failed(struct irc *i, const struct irc_line *l)
{
    struct irc_asked *a = first(i);

    if (!irc_is(l, "FAIL") || !str_eq_ci(irc_param(l, 0), STR("CHATHISTORY")))
        return false;
    if (a == NULL || !a->sent || (a->label != 0 && a->label != irc_label_of(i, l)))
        return true;
    struct irc_chat *c = a->what == IRC_ASK_FILL ? chat_of(i, a) : NULL;
    if (c != NULL && !c->by_time && a->last_id[0] != '\0' && a->last_ms > 0) {
        c->by_time = true; /* the server does not know the message any more */
        a->sent = false;
        ask_next(i);
        return true;
    }
    if (a->what == IRC_ASK_FILL)
        log_warn(&i->base.log, "the server does not tell what was said in %s meanwhile", a->target);
    finish_first(i, false);
    return true;
}

/* Reads dropped messages from the history, once the messages before them are safe. */
static void fill_gaps(struct irc *i)
{
    i->in.gaps = false;
    list_each (&i->in.chats.by_age, it, nxt) {
        struct irc_chat *c = container_of(it, struct irc_chat, lru.age);
        bool now = c->gap && c->n_queue == 0 && !c->filling;
        i->in.gaps |= c->gap && !now;
        if (now) {
            c->gap = false;
            irc_past_fill(i, c);
        }
    }
}

void irc_past_tick(struct irc *i)
{
    struct irc_asked *a = first(i);

    if (i->in.gaps)
        fill_gaps(i);
    if (a != NULL && a->sent && irc_link_sent(i->link) < a->number)
        a->sent_ms = irc_now_ms(i); /* flood control still holds it */
    if (a != NULL && a->sent && irc_now_ms(i) - a->sent_ms > ANSWER_MS)
        finish_first(i, false);
    else
        ask_next(i);
}

void irc_past_lost(struct irc *i)
{
    list_each (&i->past.asked, it, nxt)
        asked_free(i, list_entry(it, struct irc_asked, link)); /* sends are told by outbound.c */
    if (map_count(&i->in.chats.map) == 0)
        return;
    list_each (&i->in.chats.by_age, it, nxt) {
        struct irc_chat *c = container_of(it, struct irc_chat, lru.age);
        if (c->filling)
            drop_later(i, c);
        c->by_time = c->asking = false;
        c->asked_ms = 0; /* who has a nick has to be proven again */
    }
}

/* ---- life ---- */

static bool on_cursor(void *ctx, struct str key, void *thing)
{
    struct irc *i = ctx;
    const struct irc_cursor *p = thing;
    bool old = p->at_ms < clock_wall_ms(i->base.env->clock) - KEPT_MS;

    if (str_eq(p->target, STR("*"))) {
        i->past.seen_ms = i->past.saved_ms = p->at_ms;
    } else if (old && irc_is_nick(p->target)) {
        record_delete(i->base.env->store, &irc_cursor_form, key);
    } else if (p->target.n <= IRC_NAME_MAX) {
        struct irc_chat *c = irc_chat_use(i, p->target);
        snprintf(c->msgid, sizeof c->msgid, "%.*s", STR_FMT(p->msgid));
        snprintf(c->account, sizeof c->account, "%.*s", STR_FMT(p->account));
        c->at_ms = p->at_ms;
        c->kept = true;
    }
    return true;
}

static bool on_sts(void *ctx, struct str key, void *thing)
{
    struct irc *i = ctx;
    const struct irc_sts *s = thing;

    if (str_eq_ci(s->host, str_of(i->host))) {
        i->sts.until_ms = s->until_ms;
        i->sts.for_ms = s->for_ms;
        i->sts.port = (uint16_t)s->port;
    }
    return true;
}

void irc_sts_put(struct irc *i)
{
    const struct irc_sts s = {.bot = str_of(i->base.bot),
                              .host = str_of(i->host),
                              .until_ms = i->sts.until_ms,
                              .for_ms = i->sts.for_ms,
                              .port = i->sts.port};

    record_put(i->base.env->store, &irc_sts_form, NULL, &s, false, NULL, NULL);
}

enum bh_err irc_past_open(struct irc *i, char *ret_why)
{
    const struct irc_cursor like = {.bot = str_of(i->base.bot)};
    const struct irc_sts sts = {.bot = str_of(i->base.bot)};

    list_init(&i->past.asked);
    list_init(&i->past.dirty);
    timer_init(&i->past.save, on_save);
    enum bh_err err =
        record_load_like(i->base.env->store, &irc_cursor_form, &like, 1, on_cursor, i, ret_why);
    return err != BH_OK
               ? err
               : record_load_like(i->base.env->store, &irc_sts_form, &sts, 1, on_sts, i, ret_why);
}

void irc_past_close(struct irc *i)
{
    if (i->past.asked.next == NULL)
        return; /* it was never opened */
    if (timer_is_set(&i->past.save))
        save(i);
    timer_stop(i->base.env->clock, &i->past.save);
    list_each (&i->past.asked, it, nxt)
        asked_free(i, list_entry(it, struct irc_asked, link));
}

/* ---- erasing ---- */

/* The chat of a record: "nick@network". */
static void add_chat(struct buf *out, struct str bot, struct str target)
{
    ptrdiff_t at = str_find(bot, '@');

    buf_printf(out, "%.*s%.*s", STR_FMT(target), STR_FMT(str_skip(bot, at > 0 ? (size_t)at : 0)));
}

static bool is_of_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);
    struct str bot = erase_part(&key), target = erase_part(&key), of;
    ptrdiff_t at = str_find(bot, '@');
    bool nick = str_starts(s->user, STR("?"));
    struct str user = nick ? str_skip(s->user, 1) : s->user;
    BUF_LOCAL chat = BUF_INIT;

    if (at <= 0 || !str_eq(s->platform, STR("irc")) || !irc_is_nick(target) ||
        !irc_target_of(user, str_skip(bot, (size_t)at + 1), &of) ||
        (!str_eq_ci(of, target) && (nick || !str_eq_ci(of, json_str(doc, "account")))))
        return false;
    add_chat(&chat, bot, target);
    erasure_chat(e, bot, buf_str(&chat), true);
    return true;
}

static bool is_of_tenant(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    struct str bot = erase_part(&key), target = erase_part(&key);
    BUF_LOCAL chat = BUF_INIT;

    add_chat(&chat, bot, target);
    return irc_is_nick(target) && erasure_owns_chat(e, bot, buf_str(&chat));
}

static const struct erase_records of_tenant[] = {{"irc_place", "people", is_of_tenant}, {0}};
static const struct erase_records of_person[] = {{"irc_place", "people", is_of_person}, {0}};
const struct eraser irc_eraser = {.of_tenant = of_tenant, .of_person = of_person};
