/* backfill.c - design.  (discord_priv.h has the calls.)
 *
 * When a session is lost, Discord will not replay what it had not delivered.  Every channel we know
 * a newest message of is then marked: messages after that one may have been missed.  They are read
 * through REST, oldest first and one at a time, each handed over before the next, while new
 * messages of the channel wait in a hold; so the channel's order is kept.  A message that comes
 * both ways is dropped by its id.
 *
 * A mark is kept across restarts.  It goes when the channel has been read, when Discord says that
 * nothing happened there, or when it cannot be read any more. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum { PAGE = 100, MAX_MESSAGES = 500, MAX_BACKFILLS = 4, AGAIN_MS = 5000 };

struct backfill {
    struct list link;
    struct discord *d; /* borrowed */
    uint64_t channel_id, guild_id;
    uint64_t after; /* read from here on */
    unsigned total;
    struct outgoing *call;      /* NULL: handing over */
    struct json_parser *parser; /* owned; the page */
    struct buf page;            /* owned; the answer, NULL-terminated array of messages */
    size_t at;                  /* messages of the page handed over so far, from its end */
    uint64_t message_id;        /* the one under way */
    struct accept_id accept;    /* of that one */
    bool waiting;               /* host_accept() has it */
    struct timer retry;
};

static void ask_page(struct backfill *b);
static void hand_over(struct backfill *b);

bool discord_shard_has(const struct discord_shard *s, uint64_t guild_id)
{
    unsigned id = dgateway_shard(s->gateway);

    return guild_id == 0 ? id == 0 : (guild_id >> 22) % s->d->n_shards == id;
}

void discord_backfill_mark(struct discord *d, const struct discord_shard *s)
{
    void *v;

    for (size_t at = 0; map_next(&d->seen, &at, &v);) {
        struct discord_bookmark *seen = v;
        if (seen->last == 0 || !discord_shard_has(s, seen->guild_id))
            continue;
        seen->again =
            seen->filling; /* what is being read now ends before the next session begins */
        if (seen->gap != 0)
            continue;
        seen->gap = seen->last;
        seen->dirty = true;
    }
}

static void clear_mark(struct discord_bookmark *s)
{
    s->gap = s->again ? s->last : 0;
    s->dirty = true;
    s->filling = s->again = false;
}

/* ---- one channel ---- */

static void backfill_free(struct backfill *b)
{
    timer_stop(b->d->env->clock, &b->retry);
    sender_cancel(&b->call);
    list_remove(&b->link);
    json_parser_free(b->parser);
    buf_done(&b->page);
    free(b);
}

static void backfill_end(struct backfill *b, bool readable)
{
    struct discord *d = b->d;
    uint64_t channel_id = b->channel_id;
    struct discord_bookmark *s = map_get(&d->seen, id_key(&channel_id));

    log_info(&d->log, "channel %" PRIu64 ": read %u missed messages", channel_id, b->total);
    d->backfills--;
    backfill_free(b);
    if (s != NULL && readable)
        clear_mark(s);
    else if (s != NULL)
        discord_bookmark_forget(d, s);
    discord_hold_release(d, channel_id);
    discord_backfill_soon(d, 0);
}

static void on_retry(struct timer *t)
{
    struct backfill *b = container_of(t, struct backfill, retry);

    if (b->page.n > 0)
        hand_over(b);
    else
        ask_page(b);
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct backfill *b = ctx;

    b->waiting = false;
    if (err == BH_BUSY || err == BH_UNAVAILABLE || err == BH_UNKNOWN) {
        timer_set(b->d->env->clock, &b->retry, AGAIN_MS);
        return;
    }
    discord_bookmark_note(b->d, b->guild_id, b->channel_id, b->message_id);
    b->after = b->message_id;
    b->at++;
    hand_over(b);
}

/* The page lists the newest first: take it from the end. */
static void hand_over(struct backfill *b)
{
    struct discord *d = b->d;
    char guild[24] = "";
    struct json doc;

    if (!json_parse(b->parser, buf_str(&b->page), &doc) || json_type(doc) != JSON_ARRAY) {
        backfill_end(b, true);
        return;
    }
    size_t n = json_count(doc);
    if (b->guild_id != 0)
        snprintf(guild, sizeof guild, "%" PRIu64, b->guild_id);
    while (b->at < n) {
        struct json_iter it = {0};
        for (size_t i = 0; i < n - b->at; i++)
            json_next(doc, &it);
        b->message_id = json_snowflake(it.value, "id");
        struct discord_taker taker = {.done = on_accepted, .ctx = b};
        if (discord_events_try(d, it.value, guild[0] != '\0' ? str_of(guild) : STR_NULL, &taker) ==
            DISCORD_EVENT) {
            b->accept = taker.accept;
            b->waiting = true;
            return;
        }
        if (b->message_id > b->after)
            b->after = b->message_id;
        b->at++;
    }
    b->total += (unsigned)n;
    buf_reset(&b->page);
    if (n < PAGE || b->total >= MAX_MESSAGES) {
        if (b->total >= MAX_MESSAGES)
            log_warn(&d->log,
                     "channel %" PRIu64 ": more than %d messages were missed, the rest "
                     "stays unread",
                     b->channel_id, MAX_MESSAGES);
        backfill_end(b, true);
        return;
    }
    ask_page(b);
}

static void on_page(void *ctx, const struct discord_told *t)
{
    struct backfill *b = ctx;
    struct jw w;

    b->call = NULL;
    if (t->end == SENDER_DONE) {
        buf_reset(&b->page);
        w = jw_begin(&b->page);
        jw_value(&w, t->answer.body);
        b->at = 0;
        hand_over(b);
        return;
    }
    if (t->end == SENDER_REFUSED) { /* gone, or not for us any more */
        backfill_end(b, false);
        return;
    }
    log_warn(&b->d->log, "channel %" PRIu64 ": missed messages cannot be read yet: %s",
             b->channel_id, t->why);
    timer_set(b->d->env->clock, &b->retry, AGAIN_MS);
}

static void ask_page(struct backfill *b)
{
    char path[128];

    snprintf(path, sizeof path, "/channels/%" PRIu64 "/messages?limit=%d&after=%" PRIu64,
             b->channel_id, PAGE, b->after);
    b->call = discord_ask(b->d,
                          &(struct discord_question){.route = "read",
                                                     .major = b->channel_id,
                                                     .path = str_of(path),
                                                     .lane = STR("backfill"),
                                                     .patience_ms = 60000},
                          on_page, b);
}

void discord_backfill_channel(struct discord *d, struct discord_bookmark *s)
{
    struct backfill *b = xcalloc(1, sizeof *b);

    s->filling = true;
    b->d = d;
    b->channel_id = s->channel_id;
    b->guild_id = s->guild_id;
    b->after = s->gap;
    b->parser = json_parser_new();
    list_init(&b->link);
    list_append(&d->filling, &b->link);
    timer_init(&b->retry, on_retry);
    d->backfills++;
    discord_hold_for_backfill(d, b->channel_id);
    ask_page(b);
}

/* ---- all of them ---- */

/* Only behind a new session: reading earlier would leave out what comes before it begins. */
static bool is_live(const struct discord *d, const struct discord_bookmark *s)
{
    for (unsigned i = 0; i < d->n_shards; i++)
        if (discord_shard_has(&d->shards[i], s->guild_id))
            return dgateway_state(d->shards[i].gateway) == DGATEWAY_LIVE;
    return false;
}

static void on_backfill_timer(struct timer *t)
{
    struct discord *d = container_of(t, struct discord, backfill_timer);
    void *v;

    for (size_t at = 0; d->backfills < MAX_BACKFILLS && map_next(&d->seen, &at, &v);) {
        struct discord_bookmark *s = v;
        if (s->gap != 0 && !s->filling && is_live(d, s))
            discord_backfill_channel(d, s);
    }
}

void discord_backfill_init(struct discord *d)
{
    timer_init(&d->backfill_timer, on_backfill_timer);
    list_init(&d->filling);
}

void discord_backfill_soon(struct discord *d, int64_t after_ms)
{
    if (!timer_is_set(&d->backfill_timer) || after_ms > 0)
        timer_set(d->env->clock, &d->backfill_timer, after_ms);
}

void discord_backfill_guild_known(struct discord *d, uint64_t guild_id)
{
    void *v;

    for (size_t at = 0; map_next(&d->seen, &at, &v);) {
        struct discord_bookmark *s = v;
        if (s->gap == 0 || s->filling || s->guild_id != guild_id)
            continue;
        const struct dcache_channel *ch = dcache_channel(d->cache, s->channel_id);
        if (ch != NULL && ch->last_message_id != 0 && ch->last_message_id <= s->gap)
            clear_mark(s);
    }
}

void discord_backfill_done(struct discord *d)
{
    timer_stop(d->env->clock, &d->backfill_timer);
    list_each (&d->filling, it, nxt) {
        struct backfill *b = list_entry(it, struct backfill, link);
        if (b->waiting)
            host_accept_cancel(d->base.host, b->accept);
        backfill_free(b);
    }
}
