/* backfill.c - reads the messages that a lost session missed, from each channel's cursor on: its
 * newest stored message.  (discord_priv.h has the calls.)
 *
 *      session lost --> every cursor gets a gap --> channel read over REST --> gap closed
 *
 * Discord does not replay the events of a session that it ended.  Messages after the cursor may
 * then be missing: the gap.  They are read over REST, oldest first, and stored one after the other.
 * New messages of the channel are deferred meanwhile (inbound.c), so the channel's order is kept.
 * The host drops a message that comes both ways by its id.
 *
 * Cursors and gaps are kept in the store.  A gap is closed once the channel has been read, or
 * Discord's last_message_id shows nothing new.  A channel that cannot be read any more loses its
 * cursor. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"
#include "store/store.h"

enum { MAX_CURSORS = 10000, MAX_BATCH = 500 };
enum { PAGE = 100, MAX_MESSAGES = 500, MAX_BACKFILLS = 4, AGAIN_MS = 5000 };

struct backfill {
    struct list link;
    struct discord *d; /* borrowed */
    uint64_t channel_id, guild_id;
    uint64_t after; /* messages up to this one are stored */
    unsigned total;
    struct outgoing *call;      /* reads a page; NULL: the page is being stored */
    struct json_parser *parser; /* owned; the page */
    struct buf page;            /* owned; the answer, an array of messages */
    size_t at;                  /* messages of the page stored so far, from its end */
    uint64_t message_id;        /* of the message being stored */
    struct accept_id accept;    /* of that message */
    bool waiting;               /* the host is storing that message */
    struct timer retry;
};

/* ---- cursors: the newest stored message of each channel ---- */

struct cursor_record {
    struct str bot;
    uint64_t channel_id, guild_id, last, gap;
};
static const struct record_field cursor_fields[] = {
    RECORD_FIELD(struct cursor_record, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct cursor_record, channel_id, "channel", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct cursor_record, guild_id, "guild", 0),
    RECORD_FIELD(struct cursor_record, last, "last", 0),
    RECORD_FIELD(struct cursor_record, gap, "gap", 0),
};
const struct record_form discord_cursor_form =
    RECORD_FORM("discord_cursor", struct cursor_record, cursor_fields, .lossy = true);

static struct cursor_record cursor_record(const struct discord *d, const struct discord_cursor *s)
{
    return (struct cursor_record){str_of(d->base.bot), s->channel_id, s->guild_id, s->last, s->gap};
}

static void cursor_free(struct discord *d, struct discord_cursor *s)
{
    map_del(&d->cursors, id_key(&s->channel_id));
    list_remove(&s->lru);
    free(s);
}

static void cursor_forget(struct discord *d, struct discord_cursor *s)
{
    struct cursor_record r = cursor_record(d, s);

    record_delete_like(d->env->store, &discord_cursor_form, &r);
    cursor_free(d, s);
}

static struct discord_cursor *cursor_get(struct discord *d, uint64_t channel_id)
{
    struct discord_cursor *s = map_get(&d->cursors, id_key(&channel_id));

    if (s == NULL) {
        struct discord_cursor *old = list_first(&d->cursors_lru, struct discord_cursor, lru);
        if (map_count(&d->cursors) >= MAX_CURSORS && !old->filling)
            cursor_forget(d, old);
        s = xcalloc(1, sizeof *s);
        s->channel_id = channel_id;
        list_init(&s->lru);
        map_put(&d->cursors, id_key(&s->channel_id), s);
    }
    list_move(&s->lru, &d->cursors_lru);
    return s;
}

void discord_cursor_advance(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                            uint64_t message_id)
{
    struct discord_cursor *s = cursor_get(d, channel_id);

    if (guild_id != 0)
        s->guild_id = guild_id;
    if (message_id <= s->last)
        return;
    s->last = message_id;
    s->dirty = true;
}

/* The dirty cursors are the most recently used. */
void discord_cursors_save(struct discord *d)
{
    int n = 0;

    for (struct list *it = d->cursors_lru.prev; it != &d->cursors_lru && n < MAX_BATCH;
         it = it->prev) {
        struct discord_cursor *s = list_entry(it, struct discord_cursor, lru);
        if (!s->dirty)
            continue;
        struct cursor_record r = cursor_record(d, s);
        record_put(d->env->store, &discord_cursor_form, NULL, &r, false, NULL, NULL);
        s->dirty = false;
        n++;
    }
}

static bool on_cursor(void *ctx, struct str key, void *thing)
{
    const struct cursor_record *r = thing;
    struct discord_cursor *s = cursor_get(ctx, r->channel_id);

    (void)key;
    s->guild_id = r->guild_id;
    s->last = r->last;
    s->gap = r->gap;
    return true;
}

enum bh_err discord_cursors_load(struct discord *d, char *ret_why)
{
    struct cursor_record own = {.bot = str_of(d->base.bot)};

    list_init(&d->cursors_lru);
    return record_load_like(d->env->store, &discord_cursor_form, &own, 1, on_cursor, d, ret_why);
}

void discord_cursors_done(struct discord *d)
{
    void *v;

    for (size_t at = 0; map_next(&d->cursors, &at, &v);)
        cursor_free(d, v);
    map_done(&d->cursors);
}

bool discord_shard_has(const struct discord_shard *s, uint64_t guild_id)
{
    unsigned id = dsocket_shard(s->socket);

    return guild_id == 0 ? id == 0 : (guild_id >> 22) % s->d->n_shards == id;
}

void discord_backfill_mark(struct discord *d, const struct discord_shard *s)
{
    void *v;

    for (size_t at = 0; map_next(&d->cursors, &at, &v);) {
        struct discord_cursor *seen = v;
        if (seen->last == 0 || !discord_shard_has(s, seen->guild_id))
            continue;
        seen->again = seen->filling; /* the running backfill may end before the next session */
        if (seen->gap != 0)
            continue;
        seen->gap = seen->last;
        seen->dirty = true;
    }
}

static void close_gap(struct discord_cursor *s)
{
    s->gap = s->again ? s->last : 0;
    s->dirty = true;
    s->filling = s->again = false;
}

/* ---- one channel ---- */

static void ask_page(struct backfill *b);
static void hand_over(struct backfill *b);

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
    struct discord_cursor *s = map_get(&d->cursors, id_key(&channel_id));

    log_info(&d->log, "channel %" PRIu64 ": read %u missed messages", channel_id, b->total);
    d->backfills--;
    backfill_free(b);
    if (s != NULL && readable)
        close_gap(s);
    else if (s != NULL)
        cursor_forget(d, s);
    discord_undefer_channel(d, channel_id);
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
    discord_cursor_advance(b->d, b->guild_id, b->channel_id, b->message_id);
    b->after = b->message_id;
    b->at++;
    hand_over(b);
}

/* The page lists the newest first: store from its end. */
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
        if (discord_accept_message(d, it.value, guild[0] != '\0' ? str_of(guild) : STR_NULL,
                                   &taker) == DISCORD_EVENT) {
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
    if (t->end == SENDER_REFUSED) { /* the channel is gone, or the bot may not read it */
        backfill_end(b, false);
        return;
    }
    log_warn(&b->d->log,
             "channel %" PRIu64 ": its missed messages cannot be read, trying again: %s",
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

void discord_backfill_channel(struct discord *d, struct discord_cursor *s)
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
    discord_defer_channel(d, b->channel_id);
    ask_page(b);
}

/* ---- all channels ---- */

/* A backfill waits until the new session is live: a message between its last page and the start of
 * the session would be missed. */
static bool is_live(const struct discord *d, const struct discord_cursor *s)
{
    for (unsigned i = 0; i < d->n_shards; i++)
        if (discord_shard_has(&d->shards[i], s->guild_id))
            return dsocket_state(d->shards[i].socket) == DSOCKET_LIVE;
    return false;
}

static void on_backfill_timer(struct timer *t)
{
    struct discord *d = container_of(t, struct discord, backfill_timer);
    void *v;

    for (size_t at = 0; d->backfills < MAX_BACKFILLS && map_next(&d->cursors, &at, &v);) {
        struct discord_cursor *s = v;
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

    for (size_t at = 0; map_next(&d->cursors, &at, &v);) {
        struct discord_cursor *s = v;
        if (s->gap == 0 || s->filling || s->guild_id != guild_id)
            continue;
        const struct dcache_channel *ch = dcache_channel(d->cache, s->channel_id);
        if (ch != NULL && ch->last_message_id != 0 && ch->last_message_id <= s->gap)
            close_gap(s);
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
