/* inbound.c - receives Telegram's updates, by polling or webhook, and passes them to host_accept().
 * (telegram_priv.h has the calls.)
 *
 *      WHO --getMe--> HOOK --deleteWebhook--> FETCH --updates--> DELIVER
 *                       |                       ^----- all accepted ---'
 *                       '--setWebhook--> LISTEN <--timer, getWebhookInfo--> CHECK --gone--> HOOK
 *      WHO, HOOK, FETCH, CHECK --failure--> REST --timer--> the same state (or WHO, HOOK)
 *
 *      one update of a batch:  WAITING --> ACCEPTING --accepted--> DONE
 *                                 ^--- timer --- RETRY <--busy---'
 *
 * Telegram deletes an update when the next getUpdates names a higher offset.  So the next request
 * waits until every update of the batch is done: stored, ignored or refused.  Updates of one chat
 * are accepted in order, so a retry delays its own chat only.  If the process dies before it
 * confirms a stored update, Telegram sends the update again and the host drops the duplicate.
 *
 * The offset is stored with the time.  After a week without updates Telegram may restart the
 * numbers, so an offset older than six days is not sent.
 *
 * A webhook carries the registered secret in a header; a request without it is refused unread.  The
 * answer is 200 once the event is stored, and 503 otherwise, so that Telegram retries.  Telegram
 * sends the updates of one chat in order. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/rand.h"
#include "net/http_server.h"
#include "platform/recent.h"
#include "platform/telegram/telegram_priv.h"
#include "store/store.h"

#define POLL_S 40     /* long polling: Telegram answers after this time at the latest */
#define BEAT_MS 44500 /* so much later without an answer, the bot is deaf */
#define CALL_MS 15000
#define MAX_REST_MS 60000
#define REVOKED_REST_MS 60000
#define FIRST_CHECK_MS 30000
#define CHECK_MS 300000
#define OFFSET_VALID_MS ((int64_t)6 * 86400 * 1000)
#define QUICK_MS 1000     /* an empty answer within this time: a server without long polling */
#define QUICK_REST_MS 300 /* the pause between requests to such a server */
#define MAX_RETRY_MS 30000
#define RETRIES_ARE_A_PROBLEM 5

/* ---- one update ---- */

/* "/new_chat now" becomes "/new-chat now": Telegram's command names have no dashes. */
static void restore_name(struct telegram *t, struct event *ev)
{
    struct str rest = ev->text, word;

    if (t->commands == NULL || !str_eq(ev->message_type, STR("command")) ||
        !str_starts(rest, STR("/")))
        return;
    size_t n = 1;
    while (n < rest.n && rest.p[n] != ' ' && rest.p[n] != '\n')
        n++;
    word = str_make(rest.p + 1, n - 1);
    struct str name = tg_command_name(t, word);
    if (str_eq(name, word))
        return;
    char *text = arena_alloc(&t->arena, rest.n); /* both names have the same length */
    memcpy(text, rest.p, rest.n);
    memcpy(text + 1, name.p, name.n);
    ev->text = str_make(text, rest.n);
}

/* Adds the earlier messages of the group or topic that platform/recent.h has kept. */
static void add_context(struct telegram *t, struct event *ev)
{
    if (t->recent == NULL || str_eq(ev->chat_type, STR("dm")) || str_starts(ev->text, STR("/")))
        return;
    BUF_LOCAL place = BUF_INIT;
    buf_printf(&place, "%.*s %.*s", STR_FMT(ev->chat_id), STR_FMT(ev->thread_id));
    recent_retain(t->recent, t->base.env->retention_ms);
    struct event shown = *ev;
    if (ev->text.n == 0 && ev->n_media > 0)
        shown.text = STR("[photo]"); /* the context of later messages has no files */
    recent_join(t->recent, buf_str(&place), ev, &shown, &t->arena);
}

struct accepting { /* an update that the host has */
    tg_accepted_fn *done;
    uint64_t tag;
};

static void on_accepted(struct platform *p, void *with, enum bh_err err)
{
    const struct accepting *a = with;

    telegram_of(p)->n.again += err != BH_OK;
    a->done(telegram_of(p), a->tag, err);
}

static void accept_event(struct telegram *t, const struct event *ev, tg_accepted_fn *done,
                         uint64_t tag)
{
    await_event(&t->base, &(struct webhook_delivery){.ev = ev}, &(struct accepting){done, tag},
                sizeof(struct accepting), on_accepted);
}

/* ---- people's reactions to the bot's messages ----
 *
 * Telegram does not tell the author of the message that got the reaction.  So t->sent keeps the
 * bot's last messages, and reactions to other messages are ignored. */

void tg_reactions_sent(struct telegram *t, struct str chat, int64_t message, int64_t thread)
{
    int64_t id;

    if (!t->base.settings->reactions || !str_to_i64(chat, &id))
        return;
    size_t at = t->n_sent++ % ARRAY_LEN(t->sent);
    t->sent[at].chat = id;
    t->sent[at].message = message;
    t->sent[at].thread = thread;
}

static bool is_ours(const struct telegram *t, struct json reaction, int64_t *ret_thread)
{
    int64_t chat, message;

    if (!json_as_i64(json_get(json_get(reaction, "chat"), "id"), &chat) ||
        !json_as_i64(json_get(reaction, "message_id"), &message))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(t->sent); i++)
        if (t->sent[i].message == message && t->sent[i].chat == chat && message != 0) {
            *ret_thread = t->sent[i].thread;
            return true;
        }
    return false;
}

static bool accept_reaction(struct telegram *t, struct json update, tg_accepted_fn *done,
                            uint64_t tag)
{
    struct event ev;
    int64_t thread = 0;

    if (!t->base.settings->reactions ||
        !is_ours(t, json_get(update, "message_reaction"), &thread) ||
        !tg_normalize_reaction(update, str_of(t->base.bot), thread, &t->arena, &ev)) {
        t->base.n.ignored++;
        return false;
    }
    ev.former_key = tg_chat_before(t, ev.chat_id);
    accept_event(t, &ev, done, tag);
    return true;
}

/* A service message tells the name of a new topic, or the new name of a topic. */
static void learn_topic(struct telegram *t, struct json message)
{
    struct json made = json_get(message, "forum_topic_created");
    struct json renamed = json_get(message, "forum_topic_edited"); /* no name: another icon */
    int64_t chat, topic;
    char id[24];

    if (!json_as_i64(json_get(json_get(message, "chat"), "id"), &chat) ||
        !json_as_i64(json_get(message, "message_thread_id"), &topic))
        return;
    snprintf(id, sizeof id, "%" PRId64, chat);
    tg_topic_named(t, str_of(id), topic, json_str(json_is_object(renamed) ? renamed : made, "name"),
                   false);
}

static bool accept_update(struct telegram *t, struct json update, tg_accepted_fn *done,
                          uint64_t tag)
{
    struct event ev;
    const char *why;
    int64_t from, to;
    char was[24], is[24];

    t->n.updates++;
    t->poll.heard_ms = clock_wall_ms(t->base.env->clock);
    t->base.last_event_ms = t->poll.heard_ms;
    if (tg_migration(update, &from, &to)) {
        snprintf(was, sizeof was, "%" PRId64, from);
        snprintf(is, sizeof is, "%" PRId64, to);
        tg_chat_moved(t, str_of(was), str_of(is));
    }
    learn_topic(t, json_get(update, "message"));
    if (json_is_object(json_get(update, "callback_query")))
        return tg_accept_press(t, update, done, tag);
    arena_reset(&t->arena);
    if (json_is_object(json_get(update, "message_reaction")))
        return accept_reaction(t, update, done, tag);
    if (!tg_normalize(update, &t->me, str_of(t->base.bot), &t->arena, &ev, &why)) {
        t->base.n.ignored++;
        log_debug(&t->base.log, "update ignored: %s", why);
        return false;
    }
    restore_name(t, &ev);
    ev.former_key = tg_chat_before(t, ev.chat_id); /* set if the group became a supergroup */
    add_context(t, &ev);
    accept_event(t, &ev, done, tag);
    return true;
}

/* ---- states ---- */

#define B(state) (1u << TG_##state)
static const struct {
    const char *name;
    unsigned next; /* bit set of states that may follow */
} states[] = {
    [TG_WHO] = {"asking who we are", B(HOOK) | B(REST)},
    [TG_HOOK] = {"setting up", B(FETCH) | B(LISTEN) | B(REST)},
    [TG_FETCH] = {"polling", B(DELIVER) | B(FETCH) | B(REST)},
    [TG_DELIVER] = {"delivering", B(FETCH)},
    [TG_LISTEN] = {"listening", B(CHECK)},
    [TG_CHECK] = {"checking the webhook", B(LISTEN) | B(HOOK) | B(REST)},
    [TG_REST] = {"waiting to try again", B(WHO) | B(HOOK) | B(FETCH) | B(CHECK)},
};

static http_done_cb on_answer;
static void set_up(struct telegram *t);
static void fetch(struct telegram *t);

/* The only place that writes the state. */
static void enter(struct telegram *t, enum tg_state next)
{
    assert(states[t->poll.state].next & 1u << next);
    log_debug(&t->base.log, "%s -> %s", states[t->poll.state].name, states[next].name);
    t->poll.state = next;
}

const char *tg_state_name(struct platform *p)
{
    return states[telegram_of(p)->poll.state].name;
}

/* Exponential backoff: 1, 2, 4 ... s up to @max_ms, with jitter of a quarter. */
static int64_t backoff_ms(struct telegram *t, int64_t max_ms)
{
    unsigned n = t->poll.failures < 10 ? t->poll.failures : 10;
    int64_t ms = (int64_t)500 << n;

    if (ms > max_ms)
        ms = max_ms;
    return ms - ms / 4 + (int64_t)rand_below(t->base.env->rand, (uint64_t)ms / 2 + 1);
}

/* ---- a batch: the updates of one getUpdates ---- */

/* The chat that the update belongs to; a press names the message with the button.  0: no chat. */
static int64_t chat_of(struct json update)
{
    int64_t id = 0;

    for (struct json_iter it = {0}; json_next(update, &it);) {
        struct json pressed = json_get(it.value, "message");
        struct json chat = json_get(json_is_object(pressed) ? pressed : it.value, "chat");
        if (json_as_i64(json_get(chat, "id"), &id))
            break;
    }
    return id;
}

static int by_id(const void *a, const void *b)
{
    const struct tg_update *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* True while an earlier update of the same chat is not done. */
static bool must_wait(const struct tg_poll *p, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (p->batch[k].mark != TG_DONE && p->batch[k].chat == p->batch[i].chat)
            return true;
    return false;
}

struct offset_record {
    struct str bot, token;
    int64_t offset, heard_ms;
};
static const struct record_field offset_fields[] = {
    RECORD_FIELD(struct offset_record, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct offset_record, token, "token", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct offset_record, offset, "offset", 0),
    RECORD_FIELD(struct offset_record, heard_ms, "heard", 0),
};
const struct record_form tg_offset_form =
    RECORD_FORM("telegram_offset", struct offset_record, offset_fields, .lossy = true);

static void batch_deliver(struct telegram *t);

static void on_batch_accepted(struct telegram *t, uint64_t tag, enum bh_err err)
{
    struct tg_poll *p = &t->poll;
    size_t i = (uint32_t)tag;

    if (tag >> 32 != p->generation || i >= p->n_batch)
        return;
    if (err == BH_BUSY || err == BH_UNAVAILABLE) {
        p->batch[i].mark = TG_RETRY;
        if (timer_is_set(&p->timer))
            return;
        if (++p->failures == RETRIES_ARE_A_PROBLEM)
            platform_set_problem(&t->base, err == BH_BUSY
                                               ? "Messages wait at Telegram because a mailbox is "
                                                 "full: start its "
                                                 "agent, or purge it (bellhop mailbox list)."
                                               : "Messages wait at Telegram because the store "
                                                 "cannot take them.");
        timer_set(t->base.env->clock, &p->timer, backoff_ms(t, MAX_RETRY_MS));
        return;
    }
    if (err != BH_OK)
        log_warn(&t->base.log, "dropped an update: %s", bh_err_word(err));
    p->batch[i].mark = TG_DONE;
    batch_deliver(t);
}

static void batch_deliver(struct telegram *t)
{
    struct tg_poll *p = &t->poll;
    size_t done = 0;

    for (size_t i = 0; i < p->n_batch; i++) {
        struct tg_update *u = &p->batch[i];
        uint64_t tag = (uint64_t)p->generation << 32 | i;
        if (u->mark == TG_WAITING && !must_wait(p, i))
            u->mark = accept_update(t, u->update, on_batch_accepted, tag) ? TG_ACCEPTING : TG_DONE;
        done += u->mark == TG_DONE;
    }
    if (done == p->n_batch) {
        t->poll.offset = t->poll.batch[t->poll.n_batch - 1].id + 1;
        t->poll.failures = 0;
        t->poll.n_batch = 0;
        platform_set_problem(&t->base, NULL);
        struct offset_record r = {str_of(t->base.bot), str_of(t->token_id), t->poll.offset,
                                  clock_wall_ms(t->base.env->clock)};
        record_put(t->base.env->store, &tg_offset_form, NULL, &r, false, NULL, NULL);
        enter(t, TG_FETCH);
        fetch(t);
    }
}

/* ---- failures ---- */

static void rest(struct telegram *t, int64_t ms, enum tg_state back_to)
{
    t->poll.back_to = back_to;
    enter(t, TG_REST);
    timer_set(t->base.env->clock, &t->poll.timer, ms);
}

/* Decides how long to rest after a failed request, and which state follows. */
static void failed(struct telegram *t, const struct tg_answer *a)
{
    enum tg_state from = t->poll.state;
    char text[200];

    t->poll.failures++;
    if (a->outcome == TG_LATER) {
        rest(t, a->retry_after_ms, from);
    } else if (a->code == 401 || a->code == 404) {
        platform_set_problem(&t->base, "Telegram does not know this token (revoked, or "
                                       "mistyped): ask @BotFather "
                                       "for it and put it into the configuration.");
        rest(t, REVOKED_REST_MS, TG_WHO);
    } else if (a->code == 409) {
        bool webhook = strstr(a->why, "webhook") != NULL;
        platform_set_problem(&t->base,
                             webhook
                                 ? "A webhook was set for this bot by somebody else, so Telegram "
                                   "refuses to "
                                   "be polled: set mode: webhook, or stop whoever sets it (409)."
                                 : "Another program polls Telegram with this bot's token, and only "
                                   "one may: "
                                   "stop it, or give bellhop a bot of its own (409).");
        rest(t, backoff_ms(t, MAX_REST_MS), webhook ? TG_HOOK : TG_FETCH);
    } else {
        const char *what = from == TG_HOOK && t->secret != NULL ? "setWebhook: " : "";
        snprintf(text, sizeof text, "Telegram %s: %s%.120s",
                 a->outcome == TG_REFUSED ? "refuses" : "cannot be reached", what, a->why);
        if (a->outcome == TG_REFUSED || t->poll.failures >= 2)
            platform_set_problem(&t->base, text);
        rest(t, backoff_ms(t, MAX_REST_MS), from);
    }
    log_debug(&t->base.log, "%s failed: code=%d %s", states[from].name, a->code, a->why);
}

static void recovered(struct telegram *t)
{
    t->poll.failures = 0;
    platform_set_problem(&t->base, NULL);
}

/* ---- getMe ---- */

static void got_me(struct telegram *t, struct json me)
{
    struct str name = json_str(me, "username");

    json_as_i64(json_get(me, "id"), &t->me.id);
    t->reads_all = json_as_bool(json_get(me, "can_read_all_group_messages"), false);
    if (name.n < sizeof t->me.username) {
        memcpy(t->me.username, name.p != NULL ? name.p : "", name.n);
        t->me.username[name.n] = '\0';
    }
    log_info(&t->base.log, "the bot is @%s: id=%" PRId64 " reads_all_group_messages=%d",
             t->me.username, t->me.id, t->reads_all);
    enter(t, TG_HOOK);
    set_up(t);
}

static void ask_who(struct telegram *t)
{
    t->poll.call = tg_call(t, "getMe", STR("{}"), CALL_MS, on_answer, t);
}

/* ---- registering or deleting the webhook ---- */

#define UPDATES \
    "\"message\",\"edited_message\",\"channel_post\",\"edited_channel_post\"," \
    "\"callback_query\""

static void updates_wanted(const struct telegram *t, struct jw *w)
{
    jw_kraw(w, "allowed_updates",
            t->base.settings->reactions ? STR("[" UPDATES ",\"message_reaction\"]")
                                        : STR("[" UPDATES "]"));
}

static void got_set_up(struct telegram *t, struct json result)
{
    if (t->secret != NULL) {
        recovered(t);
        enter(t, TG_LISTEN);
        timer_set(t->base.env->clock, &t->poll.timer, FIRST_CHECK_MS);
        BUF_LOCAL url = BUF_INIT;
        platform_webhook_url(&t->base, &url);
        log_info(&t->base.log, "webhook registered: %s", buf_z(&url));
    } else {
        enter(t, TG_FETCH);
        fetch(t);
    }
}

static void set_up(struct telegram *t)
{
    BUF_LOCAL url = BUF_INIT;
    BUF_SECRET body = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (t->secret == NULL) {
        t->poll.call = tg_call(t, "deleteWebhook", STR("{}"), CALL_MS, on_answer, t);
        return;
    }
    if (!platform_webhook_url(&t->base, &url)) { /* the operator registers it */
        recovered(t);
        enter(t, TG_LISTEN);
        log_info(&t->base.log,
                 "neither host nor public_url is set: register the webhook with Telegram by hand");
        return;
    }
    jw_obj(&w);
    jw_kstr(&w, "url", buf_str(&url));
    jw_kstr(&w, "secret_token", str_of(t->secret));
    updates_wanted(t, &w);
    jw_end_obj(&w);
    t->poll.call = tg_call(t, "setWebhook", buf_str(&body), CALL_MS, on_answer, t);
}

/* ---- checking the webhook ---- */

static void got_webhook_info(struct telegram *t, struct json info)
{
    BUF_LOCAL ours = BUF_INIT;

    platform_webhook_url(&t->base, &ours);
    t->poll.failures = 0;
    if (!str_eq(json_str(info, "url"), buf_str(&ours))) {
        log_warn(&t->base.log, "the webhook of this bot was changed by another program; "
                               "registering it again");
        enter(t, TG_HOOK);
        set_up(t);
        return;
    }
    struct str why = json_str(info, "last_error_message");
    char text[200];
    if (json_i64(info, "pending_update_count", 0) > 0 &&
        json_i64(info, "last_error_date", 0) * 1000 >
            clock_wall_ms(t->base.env->clock) - CHECK_MS) {
        snprintf(text, sizeof text, "Telegram cannot deliver to the webhook: %.*s",
                 (int)(why.n < 120 ? why.n : 120), why.p != NULL ? why.p : "");
        platform_set_problem(&t->base, text);
    } else {
        platform_set_problem(&t->base, NULL);
    }
    enter(t, TG_LISTEN);
    timer_set(t->base.env->clock, &t->poll.timer, CHECK_MS);
}

/* ---- polling ---- */

static void got_updates(struct telegram *t, struct json updates)
{
    struct tg_poll *p = &t->poll;

    recovered(t);
    t->base.last_event_ms = clock_wall_ms(t->base.env->clock);
    platform_beat(&t->base, t->base.last_event_ms, BEAT_MS);
    p->n_batch = 0;
    p->generation++;
    for (struct json_iter it = {0}; p->n_batch < TG_BATCH && json_next(updates, &it);) {
        struct tg_update u = {.update = it.value, .chat = chat_of(it.value)};
        if (json_as_i64(json_get(it.value, "update_id"), &u.id))
            p->batch[p->n_batch++] = u;
    }
    if (p->n_batch > 1)
        qsort(p->batch, p->n_batch, sizeof p->batch[0], by_id);
    if (t->poll.n_batch == 0 && json_count(updates) > 0) { /* no element is an update */
        failed(t,
               &(struct tg_answer){.outcome = TG_REFUSED,
                                   .why = "getUpdates answers with something other than updates"});
        return;
    }
    if (t->poll.n_batch == 0) {
        if (clock_now_ms(t->base.env->clock) - t->poll.asked_ms < QUICK_MS)
            rest(t, QUICK_REST_MS, TG_FETCH);
        else
            fetch(t);
        return;
    }
    enter(t, TG_DELIVER);
    batch_deliver(t);
}

static void fetch(struct telegram *t)
{
    /* A process that is paused cannot close its connection, and only one process may poll.  So
     * the request ends at Telegram before another process may take over the bot. */
    int64_t wait_s = t->base.env->alone_ms != NULL
                         ? t->base.env->alone_ms(t->base.env->alone_ctx) / 1000
                         : POLL_S;
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);
    bool fresh = clock_wall_ms(t->base.env->clock) - t->poll.heard_ms < OFFSET_VALID_MS;

    assert(t->poll.call == NULL);
    wait_s = wait_s < POLL_S ? wait_s : POLL_S;
    t->poll.asked_ms = clock_now_ms(t->base.env->clock);
    jw_obj(&w);
    if (t->poll.offset > 0 && fresh)
        jw_ki64(&w, "offset", t->poll.offset);
    jw_ki64(&w, "timeout", wait_s);
    updates_wanted(t, &w);
    jw_end_obj(&w);
    t->poll.call = tg_call(t, "getUpdates", buf_str(&body), (wait_s + 15) * 1000, on_answer, t);
}

static void on_answer(void *ctx, const struct http_result *r)
{
    static void (*const next[])(struct telegram * t, struct json result) = {
        [TG_WHO] = got_me,
        [TG_HOOK] = got_set_up,
        [TG_FETCH] = got_updates,
        [TG_CHECK] = got_webhook_info,
    };
    struct telegram *t = ctx;
    struct tg_answer a;

    t->poll.call = NULL;
    tg_answer_read(t, t->base.parser, r, &a);
    if (a.outcome != TG_OK)
        failed(t, &a);
    else
        next[t->poll.state](t, a.result);
}

/* ---- life ---- */

static bool on_offset(void *ctx, struct str key, void *thing)
{
    struct telegram *t = ctx;
    const struct offset_record *r = thing;

    if (str_eq(r->token, str_of(t->token_id))) {
        t->poll.offset = r->offset;
        t->poll.heard_ms = r->heard_ms;
    }
    return true;
}

static void on_timer(struct timer *timer)
{
    struct telegram *t = container_of(timer, struct telegram, poll.timer);
    struct tg_poll *p = &t->poll;

    if (p->state == TG_DELIVER) {
        for (size_t i = 0; i < p->n_batch; i++)
            if (p->batch[i].mark == TG_RETRY)
                p->batch[i].mark = TG_WAITING;
        batch_deliver(t);
        return;
    }
    enter(t, p->state == TG_LISTEN ? TG_CHECK : p->back_to);
    if (p->state == TG_WHO)
        ask_who(t);
    else if (p->state == TG_HOOK)
        set_up(t);
    else if (p->state == TG_CHECK)
        t->poll.call = tg_call(t, "getWebhookInfo", STR("{}"), CALL_MS, on_answer, t);
    else
        fetch(t);
}

void tg_inbound_start(struct telegram *t)
{
    struct offset_record own = {.bot = str_of(t->base.bot)};
    char why[256];

    timer_init(&t->poll.timer, on_timer);
    if (record_load_like(t->base.env->store, &tg_offset_form, &own, 1, on_offset, t, why) !=
            BH_OK ||
        tg_chats_load(t, why) != BH_OK)
        log_warn(&t->base.log, "%s; repeated updates are dropped by their ids", why);
    ask_who(t);
}

void tg_inbound_stop(struct telegram *t)
{
    http_cancel(&t->poll.call);
    timer_stop(t->base.env->clock, &t->poll.timer);
}

/* ---- webhooks ---- */

static void on_webhook_accepted(struct telegram *t, uint64_t tag, enum bh_err err)
{
    struct http_id id = {.index = (uint32_t)(tag >> 32), .generation = (uint32_t)tag};

    if (err == BH_OK)
        http_answer(t->base.env->server, id,
                    &(struct http_answer){.status = 200, .body = STR("{}")});
    else
        http_answer_error(t->base.env->server, id, 503, bh_err_word(err),
                          "Not now: send it again later.");
}

bool tg_webhook(struct platform *p, struct http_req *req)
{
    struct telegram *t = telegram_of(p);
    struct http_id id = http_req_id(req);
    struct json update;

    if (t->secret == NULL || /* this bot polls */
        !webhook_shows(http_header(req, "X-Telegram-Bot-Api-Secret-Token"), t->secret)) {
        p->n.refused++;
        return false;
    }
    if (!str_eq(http_method(req), STR("POST"))) {
        http_answer_error(t->base.env->server, id, 405, "method_not_allowed",
                          "Updates are POSTed.");
        return true;
    }
    if (!json_parse(t->base.parser, http_body(req), &update) || !json_is_object(update)) {
        p->n.malformed++;
        http_answer_error(t->base.env->server, id, 400, "malformed", "An update is a JSON object.");
        return true;
    }
    uint64_t tag = (uint64_t)id.index << 32 | id.generation;
    if (!accept_update(t, update, on_webhook_accepted, tag))
        on_webhook_accepted(t, tag, BH_OK);
    return true;
}
