/* poll.c - design.  (telegram_priv.h has the contract.)
 *
 *      WHO --getMe--> HOOK --deleteWebhook--> FETCH --updates--> DELIVER
 *                       |                       ^----- all accepted ---'
 *                       '--setWebhook--> LISTEN <--timer, getWebhookInfo--> CHECK --gone--> HOOK
 *      every state but DELIVER --trouble--> REST --timer--> the state it came from (or WHO, HOOK)
 *
 * Telegram forgets an update when the next getUpdates asks for a higher one, so FETCH is entered
 * only when every update of the batch was accepted: delivered, on disk, or nobody's.  Inside a
 * batch, updates of one chat go one after the other, so that one that must wait holds back what
 * follows it in its chat and nothing else.  What is accepted but not confirmed when we die comes
 * again and is found to be a duplicate by its event id.
 *
 * The offset is kept on disk with its time: after a week without updates Telegram may continue with
 * any number, so an old offset is worse than none. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/rand.h"
#include "platform/telegram/telegram_priv.h"
#include "store/store.h"

#define POLL_S 50 /* the longest Telegram waits */
#define CALL_MS 15000
#define MAX_REST_MS 60000
#define REVOKED_REST_MS 60000
#define FIRST_CHECK_MS 30000
#define CHECK_MS 300000
#define OFFSET_VALID_MS ((int64_t)6 * 86400 * 1000)
#define QUICK_MS 1000     /* an empty answer that came sooner was not waited for: */
#define QUICK_REST_MS 300 /* that server knows no long polling, so we pace ourselves */

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

static void ask_who(struct telegram *t);
static void set_up(struct telegram *t);
static void fetch(struct telegram *t);
static void check_webhook(struct telegram *t);

/* The only place that writes the state. */
static void enter(struct telegram *t, enum tg_state next)
{
    assert(states[t->poll.state].next & 1u << next);
    log_debug(&t->log, "%s -> %s", states[t->poll.state].name, states[next].name);
    t->poll.state = next;
}

const char *tg_state_name(const struct telegram *t)
{
    return states[t->poll.state].name;
}

/* ---- trouble ---- */

/* 1, 2, 4 ... s, at most @max_ms, shaken by a quarter. */
int64_t tg_backoff_ms(struct telegram *t, int64_t max_ms)
{
    unsigned n = t->poll.failures < 10 ? t->poll.failures : 10;
    int64_t ms = (int64_t)500 << n;

    if (ms > max_ms)
        ms = max_ms;
    return ms - ms / 4 + (int64_t)rand_below(t->env->rand, (uint64_t)ms / 2 + 1);
}

static void rest(struct telegram *t, int64_t ms, enum tg_state back_to)
{
    t->poll.back_to = back_to;
    enter(t, TG_REST);
    timer_set(t->env->clock, &t->poll.timer, ms);
}

static void on_conflict(struct telegram *t, const struct tg_answer *a)
{
    bool webhook = strstr(a->why, "webhook") != NULL;

    tg_set_problem(t,
                   webhook
                       ? "A webhook was set for this bot by somebody else, so Telegram refuses to "
                         "be polled: set mode: webhook, or stop whoever sets it (409)."
                       : "Another program polls Telegram with this bot's token, and only one may: "
                         "stop it, or give bellhop a bot of its own (409).");
    rest(t, tg_backoff_ms(t, MAX_REST_MS), webhook ? TG_HOOK : TG_FETCH);
}

/* Decide how long to wait after an answer that is none, and where to go on. */
static void trouble(struct telegram *t, const struct tg_answer *a)
{
    enum tg_state from = t->poll.state;
    char text[200];

    t->poll.failures++;
    if (a->outcome == TG_LATER) {
        rest(t, a->retry_after_ms, from);
    } else if (a->code == 401 || a->code == 404) {
        tg_set_problem(t,
                       "Telegram does not know this token (revoked, or mistyped): ask @BotFather "
                       "for it and put it into the configuration.");
        rest(t, REVOKED_REST_MS, TG_WHO);
    } else if (a->code == 409) {
        on_conflict(t, a);
    } else {
        const char *what = from == TG_HOOK && t->secret != NULL ? "setWebhook: " : "";
        snprintf(text, sizeof text, "Telegram %s: %s%.120s",
                 a->outcome == TG_REFUSED ? "refuses" : "cannot be reached", what, a->why);
        if (a->outcome == TG_REFUSED || t->poll.failures >= 2)
            tg_set_problem(t, text);
        rest(t, tg_backoff_ms(t, MAX_REST_MS), from);
    }
    log_debug(&t->log, "%s failed: code=%d %s", states[from].name, a->code, a->why);
}

static void all_well(struct telegram *t)
{
    t->poll.failures = 0;
    tg_set_problem(t, NULL);
}

/* ---- who we are ---- */

static void take_me(struct telegram *t, struct json me)
{
    struct str name = json_str(me, "username");

    json_as_i64(json_get(me, "id"), &t->me.id);
    t->reads_all = json_as_bool(json_get(me, "can_read_all_group_messages"), false);
    if (name.n < sizeof t->me.username) {
        memcpy(t->me.username, name.p != NULL ? name.p : "", name.n);
        t->me.username[name.n] = '\0';
    }
    log_info(&t->log, "we are @%s: id=%" PRId64 " reads_all_group_messages=%d", t->me.username,
             t->me.id, t->reads_all);
}

static void on_me(void *ctx, const struct http_result *r)
{
    struct telegram *t = ctx;
    struct tg_answer a;

    t->poll.call = NULL;
    tg_answer_read(t, t->poll.parser, r, &a);
    if (a.outcome != TG_OK) {
        trouble(t, &a);
        return;
    }
    take_me(t, a.result);
    enter(t, TG_HOOK);
    set_up(t);
}

static void ask_who(struct telegram *t)
{
    t->poll.call = tg_call(t, "getMe", STR("{}"), CALL_MS, on_me, t);
}

/* ---- webhook or not ---- */

#define UPDATES \
    "\"message\",\"edited_message\",\"channel_post\",\"edited_channel_post\",\"callback_query\""

static void updates_wanted(const struct telegram *t, struct jw *w)
{
    jw_key(w, "allowed_updates");
    jw_raw(w, t->reactions ? STR("[" UPDATES ",\"message_reaction\"]") : STR("[" UPDATES "]"));
}

static void on_set_up(void *ctx, const struct http_result *r)
{
    struct telegram *t = ctx;
    struct tg_answer a;

    t->poll.call = NULL;
    tg_answer_read(t, t->poll.parser, r, &a);
    if (a.outcome != TG_OK) {
        trouble(t, &a);
        return;
    }
    if (t->secret != NULL) {
        all_well(t);
        enter(t, TG_LISTEN);
        timer_set(t->env->clock, &t->poll.timer, FIRST_CHECK_MS);
        log_info(&t->log, "webhook registered: %s/webhooks/telegram/%s", t->env->public_url,
                 t->base.bot);
    } else {
        enter(t, TG_FETCH);
        fetch(t);
    }
}

static void add_webhook_url(struct telegram *t, struct buf *out)
{
    buf_printf(out, "%s/webhooks/telegram/", t->env->public_url);
    percent_encode(out, str_of(t->base.bot));
}

static void set_up(struct telegram *t)
{
    struct buf body = BUF_INIT, url = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (t->secret == NULL) {
        t->poll.call = tg_call(t, "deleteWebhook", STR("{}"), CALL_MS, on_set_up, t);
        return;
    }
    if (t->env->public_url == NULL) { /* the operator registers it */
        all_well(t);
        enter(t, TG_LISTEN);
        log_info(&t->log, "public_url is not set: register the webhook by hand");
        return;
    }
    add_webhook_url(t, &url);
    jw_obj(&w);
    jw_kstr(&w, "url", buf_str(&url));
    jw_kstr(&w, "secret_token", str_of(t->secret));
    updates_wanted(t, &w);
    jw_end_obj(&w);
    t->poll.call = tg_call(t, "setWebhook", buf_str(&body), CALL_MS, on_set_up, t);
    buf_wipe(&body);
    buf_done(&url);
}

/* ---- is the webhook still ours, and does it work? ---- */

static void judge_webhook(struct telegram *t, struct json info)
{
    struct str why = json_str(info, "last_error_message");
    int64_t at_s = 0, pending = 0;
    char text[200];

    json_as_i64(json_get(info, "last_error_date"), &at_s);
    json_as_i64(json_get(info, "pending_update_count"), &pending);
    if (pending > 0 && at_s * 1000 > clock_wall_ms(t->env->clock) - CHECK_MS) {
        snprintf(text, sizeof text, "Telegram cannot deliver to the webhook: %.*s",
                 (int)(why.n < 120 ? why.n : 120), why.p != NULL ? why.p : "");
        tg_set_problem(t, text);
    } else {
        tg_set_problem(t, NULL);
    }
}

static void on_webhook_info(void *ctx, const struct http_result *r)
{
    struct telegram *t = ctx;
    struct tg_answer a;
    struct buf ours = BUF_INIT;

    t->poll.call = NULL;
    tg_answer_read(t, t->poll.parser, r, &a);
    if (a.outcome != TG_OK) {
        trouble(t, &a);
        return;
    }
    add_webhook_url(t, &ours);
    bool still = str_eq(json_str(a.result, "url"), buf_str(&ours));
    buf_done(&ours);
    t->poll.failures = 0;
    if (!still) {
        log_warn(&t->log, "somebody took our webhook away; registering it again");
        enter(t, TG_HOOK);
        set_up(t);
        return;
    }
    judge_webhook(t, a.result);
    enter(t, TG_LISTEN);
    timer_set(t->env->clock, &t->poll.timer, CHECK_MS);
}

static void check_webhook(struct telegram *t)
{
    t->poll.call = tg_call(t, "getWebhookInfo", STR("{}"), CALL_MS, on_webhook_info, t);
}

/* ---- the offset ---- */

static void keep_offset(struct telegram *t)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    buf_printf(&key, "%s\x1f%s\x1foffset", t->base.bot, t->token_id);
    buf_printf(&value, "%" PRId64 " %" PRId64, t->poll.offset, clock_wall_ms(t->env->clock));
    struct store_kv item = {.verb = KV_PUT,
                            .ns = "telegram",
                            .key = buf_str(&key),
                            .value = buf_str(&value)};
    store_put(t->env->store, &item, 1, false, NULL, NULL);
    buf_done(&key);
    buf_done(&value);
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct telegram *t = ctx;
    struct buf mine = BUF_INIT;
    struct str offset;

    tg_chats_load(t, key, value);
    buf_printf(&mine, "%s\x1f%s\x1foffset", t->base.bot, t->token_id);
    if (str_eq(key, buf_str(&mine)) && str_split(&value, ' ', &offset) &&
        !(str_to_i64(offset, &t->poll.offset) && str_to_i64(value, &t->poll.heard_ms)))
        t->poll.offset = t->poll.heard_ms = 0;
    buf_done(&mine);
}

/* ---- polling ---- */

static void on_updates(void *ctx, const struct http_result *r)
{
    struct telegram *t = ctx;
    struct tg_answer a;

    t->poll.call = NULL;
    tg_answer_read(t, t->poll.parser, r, &a);
    if (a.outcome != TG_OK) {
        trouble(t, &a);
        return;
    }
    all_well(t);
    t->base.last_event_ms = clock_wall_ms(t->env->clock);
    tg_batch_fill(t, a.result);
    if (t->poll.n_batch == 0 && json_count(a.result) > 0) { /* not one of them is an update */
        a = (struct tg_answer){.outcome = TG_REFUSED, .why = "getUpdates brings what is no update"};
        trouble(t, &a);
        return;
    }
    if (t->poll.n_batch == 0) {
        if (clock_now_ms(t->env->clock) - t->poll.asked_ms < QUICK_MS)
            rest(t, QUICK_REST_MS, TG_FETCH);
        else
            fetch(t);
        return;
    }
    enter(t, TG_DELIVER);
    tg_batch_deliver(t);
}

/* A process that is stopped cannot hang up, so Telegram has to: before the next one asks. */
static int64_t longest_wait_s(const struct telegram *t)
{
    int64_t s = t->env->alone_ms != NULL ? t->env->alone_ms(t->env->alone_ctx) / 1000 : POLL_S;

    return s < POLL_S ? s : POLL_S;
}

static void fetch(struct telegram *t)
{
    int64_t wait_s = longest_wait_s(t);
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    bool fresh = clock_wall_ms(t->env->clock) - t->poll.heard_ms < OFFSET_VALID_MS;

    assert(t->poll.call == NULL);
    t->poll.asked_ms = clock_now_ms(t->env->clock);
    jw_obj(&w);
    if (t->poll.offset > 0 && fresh)
        jw_ki64(&w, "offset", t->poll.offset);
    jw_ki64(&w, "timeout", wait_s);
    updates_wanted(t, &w);
    jw_end_obj(&w);
    t->poll.call = tg_call(t, "getUpdates", buf_str(&body), (wait_s + 15) * 1000, on_updates, t);
    buf_done(&body);
}

void tg_batch_done(struct telegram *t)
{
    t->poll.offset = t->poll.batch[t->poll.n_batch - 1].id + 1;
    t->poll.failures = 0;
    t->poll.n_batch = 0;
    tg_set_problem(t, NULL);
    keep_offset(t);
    enter(t, TG_FETCH);
    fetch(t);
}

/* ---- life ---- */

static void on_timer(struct timer *timer)
{
    struct telegram *t = container_of(timer, struct telegram, poll.timer);
    struct tg_poll *p = &t->poll;

    if (p->state == TG_DELIVER) {
        tg_batch_again(t);
        return;
    }
    enter(t, p->state == TG_LISTEN ? TG_CHECK : p->back_to);
    if (p->state == TG_WHO)
        ask_who(t);
    else if (p->state == TG_HOOK)
        set_up(t);
    else if (p->state == TG_CHECK)
        check_webhook(t);
    else
        fetch(t);
}

void tg_poll_start(struct telegram *t)
{
    struct store *store = t->env->store;
    struct buf mine = BUF_INIT;

    t->poll.parser = json_parser_new();
    timer_init(&t->poll.timer, on_timer);
    buf_printf(&mine, "%s\x1f%s\x1f", t->base.bot, t->token_id);
    if (store->ops->load_under(store, "telegram", buf_str(&mine), on_record, t) != BH_OK)
        log_warn(&t->log, "the offset cannot be read; duplicates are dropped by their ids");
    buf_done(&mine);
    ask_who(t);
}

void tg_poll_stop(struct telegram *t)
{
    http_cancel(&t->poll.call);
    timer_stop(t->env->clock, &t->poll.timer);
    json_parser_free(t->poll.parser);
}
