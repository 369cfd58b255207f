/* inbound.c - reads the folder and delivers its mails, in the order of their UIDs.
 *
 *      CLOSED --connect--> OPENING --selected--> LISTING --> [letters] --all done--> RESTING
 *         ^--lost: after a pause--- any                 ^------ news, poll -----------'
 *
 *      a letter:  LISTED -> FETCHING -> PARSING (thread) -> LOOKING -> READY -> ACCEPTING -> done
 *                              '--the server refuses--> WITHHELD: fetched again after a pause
 *
 * A few letters are fetched ahead; the first one alone is delivered, so the order is the folder's.
 * The cursor (UIDVALIDITY, UID) is written after the letter's event is on disk.  A crash in between
 * fetches the letter again: its event id is the same, and so is its record (email_mail), so it is
 * not delivered twice.
 *
 * A server that refuses to give a mail may be ill, or the mail may be.  The letter is passed over
 * once the server gave other mails meanwhile, or after MAX_REFUSALS; `why` shows it as refused.
 *
 * The first start only notes the end of the folder.  When UIDVALIDITY has changed, all UIDs mean
 * other mails: the whole folder is listed, mails of earlier days are passed over, and the others
 * are compared by Message-ID. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/journal.h"
#include "media/media.h"
#include "platform/email/email_priv.h"

enum {
    AHEAD = 4,                /* letters between FETCHING and READY */
    AHEAD_BYTES = 8 << 20,    /* of them together, beyond the first */
    LIST_MAX = 4096,          /* letters in memory */
    LIST_STEP = 256,          /* UIDs of one listing of a long folder */
    BUSY_IS_A_PROBLEM = 3,    /* times that the relay could not take a letter */
    RETRY_MS = 2000,          /* of a letter that the relay cannot take now */
    MAX_PAUSE_MS = 60000,     /* between attempts to connect */
    REFUSALS = 5,             /* of a letter, while the server gives others: the letter is ill */
    MAX_REFUSALS = 60,        /* of a letter: about an hour */
    OVERLAP_MS = 2 * 86400000 /* after a change of UIDVALIDITY: what is older was done with */
};

static const char too_large[] = "it is larger than 36 MiB";
static const char withheld[] = "the mail server refuses to give it";
static const char own_mail[] = "it is a mail of this bot";

enum letter_state { LISTED, FETCHING, WITHHELD, PARSING, LOOKING, READY, ACCEPTING };

struct letter_in {
    struct list link;
    struct email *e; /* borrowed; NULL: dropped, and freed by its thread */
    enum letter_state state;
    uint32_t uid;
    uint64_t size;
    int64_t date_ms;
    struct buf bytes; /* owned; the mail until it is parsed */
    struct mail mail;
    struct buf key; /* owned; what the mail is known by: key_add() */
    struct mail_rules rules;
    struct work work;
    struct email_look *look; /* owned */
    bool known;              /* an agent got it before */
    bool wanted;             /* an agent gets it, or bellhop itself does: a command */
    struct accept_id accept;
};

static void step(struct email *e);

/* ---- letters ---- */

static bool is_busy(const struct letter_in *l)
{
    return l->state != LISTED;
}

static void letter_free(struct letter_in *l)
{
    struct email *e = l->e;

    if (e != NULL) {
        if (is_busy(l)) {
            e->in.n_busy--;
            e->in.busy_bytes -= l->size;
        }
        e->in.n_letters--;
        if (l->state == ACCEPTING)
            host_accept_cancel(e->base.host, l->accept);
        email_look_cancel(&l->look);
        list_remove(&l->link);
    }
    l->e = NULL;
    if (l->state == PARSING)
        return; /* on_parsed() frees it */
    buf_done(&l->bytes);
    buf_done(&l->key);
    mail_done(&l->mail);
    free(l);
}

static void drop_letters(struct email *e)
{
    list_each (&e->in.letters, it, nxt)
        letter_free(list_entry(it, struct letter_in, link));
}

/* Adds a letter in order of UIDs; listings come in order, so nearly always at the end. */
static void letter_add(struct email *e, uint32_t uid, uint64_t size, int64_t date_ms)
{
    struct list *at = e->in.letters.prev;

    while (at != &e->in.letters && list_entry(at, struct letter_in, link)->uid > uid)
        at = at->prev;
    if (at != &e->in.letters && list_entry(at, struct letter_in, link)->uid == uid)
        return;
    struct letter_in *l = xcalloc(1, sizeof *l);
    *l = (struct letter_in){.e = e, .uid = uid, .size = size, .date_ms = date_ms};
    list_add_before(at->next, &l->link);
    e->in.n_letters++;
}

/* ---- the cursor ---- */

static void write_cursor(struct email *e)
{
    /* Urgent: a crash right after a delivery would repeat it, with the same id. */
    record_put(e->base.env->store, &email_cursor_form, NULL, &e->in.cursor, true, NULL, NULL);
}

/* The Message-ID; without one the same mail has the same text. */
static void key_add(const struct mail *m, struct buf *out)
{
    if (m->message_id != NULL)
        buf_add_z(out, m->message_id);
    else
        buf_printf(out, "%" PRId64 "\n%s\n%s", m->date_ms, m->subject != NULL ? m->subject : "",
                   m->text != NULL ? m->text : "");
}

/* The relay got the letter: it is never taken again, and answers find its thread. */
static void write_mail(struct email *e, const struct letter_in *l)
{
    const struct mail *m = &l->mail;
    struct str chat = str_of(m->from), id = str_of(m->message_id), root = str_of(m->root);

    email_mail_put(e, EMAIL_MAIL, chat, buf_str(&l->key),
                   (struct email_mail){.root = root, .taken = true});
    if (id.n == 0)
        return;
    email_mail_put(e, EMAIL_THREAD, chat, root,
                   (struct email_mail){.root = root, .subject = str_of(m->subject), .last = id});
}

/* The first letter is done with. */
static void finish(struct email *e, struct letter_in *l, bool taken)
{
    if (taken) {
        write_mail(e, l);
        if (l->wanted)
            imap_seen(e->in.imap, l->uid);
    }
    e->in.cursor.uid = l->uid;
    if (l->date_ms > e->in.cursor.last_ms)
        e->in.cursor.last_ms = l->date_ms;
    write_cursor(e);
    l->state = l->state == ACCEPTING ? READY : l->state; /* nothing to cancel */
    if (taken && l->mail.n_files > 0)
        email_shelve(e, l->uid, &l->mail);
    letter_free(l);
}

/* ---- delivering ---- */

static void write_event(struct email *e, struct letter_in *l, struct event *ev,
                        struct event_media *media, struct buf *room)
{
    const struct mail *m = &l->mail;
    char hash[EMAIL_HASH_CHARS + 1];
    size_t refs[EVENT_MAX_MEDIA] = {0}, ends[EVENT_MAX_MEDIA] = {0};

    mail_event(m, ev);
    struct str from = ev->chat_id;
    ev->bot = str_of(e->base.bot);
    email_mail_hash(e, hash, EMAIL_MAIL, from, buf_str(&l->key));
    buf_add_z(room, hash);
    for (size_t i = 0; i < m->n_files; i++) {
        refs[i] = room->n;
        buf_printf(room, "%" PRIu64 ".%u.%zu", e->in.cursor.uidvalidity, l->uid, i);
        ends[i] = room->n;
    }
    ev->event_id = str_make(room->p, EMAIL_HASH_CHARS);
    if (m->message_id == NULL)
        ev->message_id = ev->event_id;
    ev->replies_to_bot = email_is_own_id(e, ev->reply_to_message_id);
    ev->media = media;
    for (size_t i = 0; i < m->n_files; i++) {
        struct str type = str_of(m->files[i].type), kind = platform_message_type(type, false);
        if (i == 0)
            ev->message_type = kind;
        media[ev->n_media++] =
            (struct event_media){.ref = str_make(room->p + refs[i], ends[i] - refs[i]),
                                 .type = type,
                                 .name = str_of(m->files[i].name),
                                 .kind = str_of(media_kind_of_type(type)),
                                 .size = m->files[i].bytes.n};
    }
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct letter_in *l = ctx;
    struct email *e = l->e;

    if (err != BH_BUSY && err != BH_UNAVAILABLE) {
        if (err != BH_OK)
            log_warn(&e->base.log, "dropped a mail: uid=%u reason=%s", l->uid, bh_err_word(err));
        e->in.busy_times = 0;
        finish(e, l, err == BH_OK);
        email_well(e);
        step(e);
        return;
    }
    l->state = READY;
    if (++e->in.busy_times == BUSY_IS_A_PROBLEM)
        platform_set_problem(&e->base, err == BH_BUSY
                                           ? "Mails wait in the folder because a mailbox is full: "
                                             "start its agent, or purge it (bellhop mailbox list)."
                                           : "Mails wait in the folder because the store cannot "
                                             "take them.");
    timer_set(e->base.env->clock, &e->in.again, RETRY_MS);
}

static void on_target(void *ctx, struct str tenant, struct str instance)
{
    ((struct letter_in *)ctx)->wanted = true;
}

static void accept_letter(struct email *e, struct letter_in *l)
{
    struct event_media media[EVENT_MAX_MEDIA] = {0};
    const struct prompt_option *option = NULL;
    BUF_LOCAL room = BUF_INIT;
    struct event ev;

    write_event(e, l, &ev, media, &room);
    struct prompt *q = ev.n_media == 0 ? prompts_numbered(e->base.prompts, &ev, &option) : NULL;
    l->state = ACCEPTING;
    l->wanted = q != NULL || str_starts(ev.text, STR("/"));
    host_each_target(e->base.host, &ev, on_target, l);
    if (q != NULL && prompt_may_answer(q, &ev))
        l->accept = prompts_accept(q, option, &ev, on_accepted, l);
    else
        l->accept = host_accept(e->base.host, &e->base, &ev, on_accepted, l);
}

static void refuse_letter(struct email *e, struct letter_in *l, const char *why)
{
    struct event_media media[EVENT_MAX_MEDIA] = {0};
    BUF_LOCAL room = BUF_INIT;
    struct event ev;

    write_event(e, l, &ev, media, &room);
    host_refused(e->base.host, &ev, why);
    e->n.refused++;
    log_debug(&e->base.log, "a mail is refused: from=%s reason=%s", ev.chat_id.p, why);
    finish(e, l, false);
}

/* ---- mails that came back ---- */

static void on_bounced(void *ctx, const struct email_mail *sent)
{
    struct letter_in *l = ctx;
    struct email *e = l->e;

    l->look = NULL;
    if (sent != NULL) {
        e->n.bounced++;
        log_warn(&e->base.log, "a mail came back: action=%" PRIu64 " reason=%s", sent->number,
                 l->mail.bounced_why);
        journal_action(e->base.env->journal,
                       &(struct journal_outcome){.platform = STR("email"),
                                                 .how = "refused",
                                                 .bot = str_of(e->base.bot),
                                                 .tenant = sent->tenant,
                                                 .instance = sent->instance,
                                                 .request = sent->request,
                                                 .chat = sent->chat,
                                                 .message_id = str_of(l->mail.bounced_id),
                                                 .why = str_of(l->mail.bounced_why),
                                                 .op = ACTION_SEND,
                                                 .number = sent->number,
                                                 .asked_ms = sent->at_ms,
                                                 .ended_ms = clock_wall_ms(e->base.env->clock),
                                                 .attempts = 1});
    }
    l->state = READY;
    finish(e, l, false);
    step(e);
}

/* In a folder that was made anew: is the letter from before the first start, or older than what is
 * remembered of mails?  It may have been stored again with a new date. */
static bool is_past(const struct email *e, const struct mail *m)
{
    int64_t kept_ms = clock_wall_ms(e->base.env->clock) - EMAIL_KEPT_MS + OVERLAP_MS;
    int64_t first_ms = e->in.cursor.since_ms - OVERLAP_MS;

    return e->in.cursor.anew && m->date_ms > 0 && (m->date_ms < first_ms || m->date_ms < kept_ms);
}

/* Begins to deliver the first letter, or is done with it at once. */
static void deliver(struct email *e, struct letter_in *l)
{
    const struct mail *m = &l->mail;

    if (m->is_bounce && email_is_own_id(e, str_of(m->bounced_id))) {
        l->state = LOOKING;
        l->look = email_look(e, EMAIL_MAIL, STR(""), str_of(m->bounced_id), on_bounced, l);
    } else if (l->known) {
        e->n.known++;
        finish(e, l, false);
    } else if (m->refused != NULL || m->is_bounce) {
        refuse_letter(e, l,
                      m->is_bounce ? "it is a report about a mail of somebody else" : m->refused);
    } else if (email_is_own_id(e, str_of(m->message_id))) {
        refuse_letter(e, l, own_mail);
    } else if (is_past(e, m)) {
        finish(e, l, false);
    } else {
        accept_letter(e, l);
    }
}

/* ---- fetching ahead ---- */

/* Nobody has written to the bot in this thread before: what the letter quotes is new to the agent,
 * as when the bot is added to a conversation. */
static void on_thread(void *ctx, const struct email_mail *m)
{
    struct letter_in *l = ctx;

    l->look = NULL;
    if (m == NULL) {
        free(l->mail.text);
        l->mail.text = l->mail.whole;
        l->mail.whole = NULL;
    }
    l->state = READY;
    step(l->e);
}

/* The record of the thread's first mail, as the letter names it, may name an earlier one. */
static void on_root(void *ctx, const struct email_mail *m)
{
    struct letter_in *l = ctx;

    l->look = NULL;
    if (m != NULL && m->root.n > 0 && !str_eq(m->root, str_of(l->mail.root))) {
        free(l->mail.root);
        l->mail.root = str_dup(m->root);
    }
    if (m == NULL && l->mail.whole != NULL) {
        l->look = email_look(l->e, EMAIL_THREAD, str_of(l->mail.from), str_of(l->mail.root),
                             on_thread, l);
        return;
    }
    l->state = READY;
    step(l->e);
}

static void on_looked(void *ctx, const struct email_mail *m)
{
    struct letter_in *l = ctx;

    l->look = NULL;
    l->known = m != NULL && m->taken;
    if (l->known || l->mail.is_first) {
        l->state = READY;
        step(l->e);
        return;
    }
    l->look = email_look(l->e, EMAIL_MAIL, str_of(l->mail.from), str_of(l->mail.root), on_root, l);
}

static void parse(struct work *w)
{
    struct letter_in *l = container_of(w, struct letter_in, work);

    mail_read(&l->mail, buf_str(&l->bytes), &l->rules);
}

static void on_parsed(struct work *w)
{
    struct letter_in *l = container_of(w, struct letter_in, work);
    struct email *e = l->e;

    l->state = READY;
    buf_done(&l->bytes);
    if (e == NULL || w->dropped) {
        if (e == NULL)
            letter_free(l);
        return;
    }
    key_add(&l->mail, &l->key);
    if (l->mail.refused == NULL && !l->mail.is_bounce) {
        l->state = LOOKING;
        l->look = email_look(e, EMAIL_MAIL, str_of(l->mail.from), buf_str(&l->key), on_looked, l);
        return;
    }
    step(e);
}

void email_rules(const struct email *e, struct mail_rules *ret)
{
    *ret = (struct mail_rules){.bot = str_of(e->address),
                               .own = e->own,
                               .n_own = ARRAY_LEN(e->own),
                               .authserv_id = str_of(e->cfg->authserv_id),
                               .suffixes = e->suffixes,
                               .allow_lists = e->cfg->allow_lists};
}

static struct letter_in *find_fetching(struct email *e, uint32_t uid)
{
    size_t n = 0;

    list_each (&e->in.letters, it, nxt) {
        struct letter_in *l = list_entry(it, struct letter_in, link);
        if (l->uid == uid)
            return l->state == FETCHING ? l : NULL;
        if (++n > AHEAD)
            return NULL;
    }
    return NULL;
}

void email_well(struct email *e)
{
    if (e->in.open && e->in.busy_times < BUSY_IS_A_PROBLEM && e->in.withheld.uid == 0 &&
        !e->smtp_denied && e->oauth.failures == 0)
        platform_set_problem(&e->base, NULL);
}

static void withheld_end(struct email *e)
{
    if (e->in.withheld.uid == 0)
        return;
    e->in.withheld.uid = 0;
    email_well(e);
}

/* The server refused to give the first letter: opens the connection again after a pause, or passes
 * the letter over. */
static void retry_withheld(struct email *e, struct letter_in *l)
{
    int64_t pause_ms = RETRY_MS;
    char text[256];

    if (e->in.withheld.uid != l->uid) {
        e->in.withheld.uid = l->uid;
        e->in.withheld.times = 0;
        e->in.withheld.others = false;
    }
    unsigned times = ++e->in.withheld.times;
    if (times >= MAX_REFUSALS || (times >= REFUSALS && e->in.withheld.others)) {
        log_warn(&e->base.log, "the mail server refuses to give the mail with UID %u: passed over",
                 l->uid);
        l->state = READY;
        l->mail.refused = withheld;
        withheld_end(e);
        return;
    }
    for (unsigned i = 1; i < times && pause_ms < MAX_PAUSE_MS; i++)
        pause_ms *= 2;
    if (times > 1) {
        snprintf(text, sizeof text,
                 "IMAP at %.80s: the server refuses to give the mail with UID %u; mails behind it "
                 "wait: look into the server's log, or delete the mail",
                 e->cfg->imap.host, l->uid);
        platform_set_problem(&e->base, text);
    }
    e->in.reopen = true;
    timer_set(e->base.env->clock, &e->in.again, pause_ms < MAX_PAUSE_MS ? pause_ms : MAX_PAUSE_MS);
}

static void on_mail(void *ctx, uint32_t uid, struct buf *body, enum imap_missing why)
{
    struct email *e = ctx;
    struct letter_in *l = find_fetching(e, uid);

    if (l == NULL) {
        email_files_came(e, uid, body);
        return;
    }
    if (body == NULL) { /* nobody is told of a mail that was deleted meanwhile */
        l->state = why == IMAP_WITHHELD ? WITHHELD : READY;
        l->mail.refused = why == IMAP_TOO_LONG ? too_large : NULL;
        l->known = why == IMAP_GONE;
        step(e);
        return;
    }
    if (uid == e->in.withheld.uid)
        withheld_end(e);
    else
        e->in.withheld.others = true;
    l->bytes = *body;
    *body = BUF_INIT;
    l->state = PARSING;
    l->work = (struct work){.run = parse, .done = on_parsed};
    email_rules(e, &l->rules);
    if (work_start(e->thread, &l->work) != BH_OK) {
        l->state = FETCHING; /* no thread now: the connection is opened again later */
        e->in.reopen = true;
        timer_set(e->base.env->clock, &e->in.again, RETRY_MS);
    }
}

static void fetch_ahead(struct email *e)
{
    list_each (&e->in.letters, it, nxt) {
        struct letter_in *l = list_entry(it, struct letter_in, link);
        if (is_busy(l))
            continue;
        if (e->in.n_busy >= AHEAD || (e->in.n_busy > 0 && e->in.busy_bytes + l->size > AHEAD_BYTES))
            return;
        e->in.n_busy++;
        e->in.busy_bytes += l->size;
        l->state = l->size > MAIL_MAX_BYTES ? READY : FETCHING;
        if (l->state == READY)
            l->mail.refused = too_large;
        else
            imap_fetch(e->in.imap, l->uid);
    }
}

/* ---- the folder ---- */

static void list_next(struct email *e)
{
    uint32_t from = e->in.listed + 1;
    bool far = e->in.uidnext > 0 && e->in.uidnext > from && e->in.uidnext - from > LIST_STEP;

    e->in.listing = true;
    e->in.to = far || e->in.overflow ? from + LIST_STEP - 1 : 0;
    e->in.overflow = false;
    imap_list(e->in.imap, from, e->in.to);
}

static bool is_listed(const struct email *e)
{
    return e->in.uidnext == 0 || e->in.listed + 1 >= e->in.uidnext;
}

/* Does what can be done now. */
static void step(struct email *e)
{
    bool more = e->in.open && !e->in.listing;

    while (more) {
        struct letter_in *l;
        fetch_ahead(e);
        if (list_is_empty(&e->in.letters))
            break;
        l = list_first(&e->in.letters, struct letter_in, link);
        if (l->state == WITHHELD && !timer_is_set(&e->in.again))
            retry_withheld(e, l);
        more = l->state == READY && !timer_is_set(&e->in.again);
        if (more)
            deliver(e, l);
    }
    if (!more || e->in.listing)
        return;
    if (!is_listed(e)) {
        list_next(e);
        return;
    }
    if (e->in.cursor.anew) {
        e->in.cursor.anew = false;
        e->in.cursor.uid = e->in.listed;
        write_cursor(e);
    }
    withheld_end(e); /* it may have been deleted */
    imap_rest(e->in.imap);
}

static void on_item(void *ctx, uint32_t uid, uint64_t size, int64_t date_ms)
{
    struct email *e = ctx;

    if (!e->in.listing)
        return;
    if (!e->in.has_place) { /* the first start: the last mail */
        if (uid > e->in.cursor.uid)
            e->in.cursor.uid = uid;
        if (date_ms > e->in.cursor.since_ms)
            e->in.cursor.since_ms = date_ms;
        return;
    }
    if (uid <= e->in.listed || (e->in.to != 0 && uid > e->in.to))
        return;
    if (e->in.cursor.anew && date_ms > 0 &&
        (date_ms <= e->in.cursor.since_ms || date_ms < e->in.cursor.last_ms - OVERLAP_MS))
        return;
    if (e->in.n_letters >= LIST_MAX)
        e->in.overflow = true;
    else
        letter_add(e, uid, size, date_ms);
}

static void on_listed(void *ctx)
{
    struct email *e = ctx;

    e->in.listing = false;
    e->in.heard_ms = clock_now_ms(e->base.env->clock);
    if (!e->in.has_place) {
        e->in.has_place = true;
        if (e->in.cursor.since_ms == 0)
            e->in.cursor.since_ms = clock_wall_ms(e->base.env->clock) - 600000;
        e->in.cursor.last_ms = e->in.cursor.since_ms;
        e->in.listed = (uint32_t)e->in.cursor.uid;
        write_cursor(e);
        log_info(&e->base.log, "the first start: older mail is not answered: uid=%" PRIu64,
                 e->in.cursor.uid);
        list_next(e); /* what came meanwhile */
        return;
    }
    if (e->in.overflow) { /* list fewer of them, from the start */
        drop_letters(e);
        list_next(e);
        return;
    }
    uint32_t last = list_is_empty(&e->in.letters)
                        ? e->in.listed
                        : list_entry(e->in.letters.prev, struct letter_in, link)->uid;
    e->in.listed = e->in.to != 0 ? e->in.to : last;
    if (e->in.to == 0)
        e->in.uidnext = 0; /* the end of the folder was seen */
    step(e);
}

static void on_selected(void *ctx, const struct imap_folder *f)
{
    struct email *e = ctx;
    struct email_cursor *cursor = &e->in.cursor;

    e->in.open = true;
    e->in.failures = 0;
    e->in.heard_ms = clock_now_ms(e->base.env->clock);
    e->in.uidnext = f->uidnext;
    email_well(e);
    if (!e->in.has_place) {
        cursor->uidvalidity = f->uidvalidity;
        cursor->uid = f->uidnext > 0 ? f->uidnext - 1 : 0;
        e->in.listing = true;
        imap_list(e->in.imap, UINT32_MAX, 0); /* the last mail alone */
        return;
    }
    if (cursor->uidvalidity != f->uidvalidity) {
        log_warn(&e->base.log,
                 "the folder was made anew (UIDVALIDITY %" PRIu64
                 " is now %u): its mails are compared by Message-ID",
                 cursor->uidvalidity, f->uidvalidity);
        cursor->uidvalidity = f->uidvalidity;
        cursor->uid = 0;
        cursor->anew = true;
        email_files_anew(e);
    }
    e->in.listed = (uint32_t)cursor->uid;
    email_files_connected(e);
    list_next(e);
}

static void on_news(void *ctx)
{
    struct email *e = ctx;

    if (e->in.open && !e->in.listing && list_is_empty(&e->in.letters)) {
        e->in.uidnext = 0;
        list_next(e);
    }
}

static void disconnect(struct email *e)
{
    drop_letters(e);
    imap_free(e->in.imap);
    e->in.imap = NULL;
    e->in.open = e->in.listing = e->in.overflow = false;
}

static void on_closed(void *ctx, const char *why, bool denied)
{
    struct email *e = ctx;
    int64_t pause_ms = 500;
    char text[256];

    for (unsigned i = 0; i < e->in.failures && pause_ms < MAX_PAUSE_MS; i++)
        pause_ms *= 2;
    e->in.failures++;
    if (denied && e->cfg->oauth.token_url != NULL)
        email_oauth_refused(e);
    if (denied)
        snprintf(text, sizeof text,
                 "the IMAP server refuses the login of %.80s: check `imap.user` and %s",
                 e->cfg->imap.user,
                 e->cfg->oauth.token_url != NULL ? "`oauth`" : "`imap.password`");
    else
        snprintf(text, sizeof text, "IMAP at %.80s: %.140s", e->cfg->imap.host, why);
    disconnect(e);                    /* frees @why */
    if (denied || e->in.failures > 1) /* one lost connection is no news */
        platform_set_problem(&e->base, text);
    else
        log_info(&e->base.log, "connecting again: %s", text);
    if (denied && pause_ms < 10000)
        pause_ms = 10000; /* servers lock out those who try too often */
    pause_ms = pause_ms < MAX_PAUSE_MS ? pause_ms : MAX_PAUSE_MS;
    timer_set(e->base.env->clock, &e->in.again,
              pause_ms + (int64_t)rand_below(e->base.env->rand, (uint64_t)pause_ms / 4 + 1));
}

void email_in_connect(struct email *e)
{
    static const struct imap_handlers handlers = {on_selected, on_item, on_listed,
                                                  on_mail,     on_news, on_closed};
    struct imap_options opt = {.folder = e->cfg->folder != NULL ? e->cfg->folder : "INBOX",
                               .poll_ms = e->cfg->poll_ms,
                               .max_body = MAIL_MAX_BYTES};

    if (e->in.imap != NULL || timer_is_set(&e->in.again) ||
        (e->cfg->oauth.token_url != NULL && email_oauth_token(e) == NULL))
        return;
    email_login(e, &e->cfg->imap, false, &opt.login);
    e->n.connects++;
    e->in.imap = imap_open(e->base.env->loop, &opt, &handlers, e);
}

/* Time to connect, or to deliver a letter that the relay could not take. */
static void on_again(struct timer *t)
{
    struct email *e = container_of(t, struct email, in.again);

    if (e->in.reopen) { /* a mail could not be parsed for want of a thread */
        e->in.reopen = false;
        disconnect(e);
        email_in_connect(e);
    } else if (e->in.imap == NULL) {
        email_in_connect(e);
    } else {
        step(e);
    }
}

void email_in_open(struct email *e)
{
    list_init(&e->in.letters);
    timer_init(&e->in.again, on_again);
    timer_set(e->base.env->clock, &e->in.again, 0);
}

void email_in_close(struct email *e)
{
    timer_stop(e->base.env->clock, &e->in.again);
    disconnect(e);
}
