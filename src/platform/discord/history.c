/* history.c - reads earlier messages of a channel over REST: those that a lost session missed, and
 * those before a message, as context for agents.  (discord_priv.h has the calls.)
 *
 *      session lost --> every cursor gets a gap --> channel read over REST --> gap closed
 *
 * Discord does not replay the events of a session that it ended.  Messages after the channel's
 * cursor, its newest stored message, may then be missing: the gap.  They are read oldest first, and
 * stored one after the other.  New messages of the channel are deferred meanwhile (inbound.c), so
 * the channel's order is kept.  The host drops a message that comes both ways by its id.
 *
 * Cursors and gaps are kept in the store.  A gap is closed once the channel has been read, or
 * Discord's last_message_id shows nothing new.  A channel that cannot be read any more loses its
 * cursor.
 *
 * Every message of a guild is noted in platform/recent.h, so the context is nearly always in
 * memory.  After a start, or when a lost session missed messages, the channel is read once:
 *
 *      ops->context() --recent does not reach back--> one page of history --> recent --> answers
 *
 * The context leaves out the bot's own messages, and those that the same person addressed to the
 * bot: the agent has seen both.  Where the bot may not read the history, or the request fails, the
 * event is delivered without a context and with context_error. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"
#include "platform/recent.h"
#include "store/erasure.h"
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

static const struct record_field cursor_fields[] = {
    RECORD_FIELD(struct discord_cursor, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct discord_cursor, channel_id, "channel", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct discord_cursor, guild_id, "guild", 0),
    RECORD_FIELD(struct discord_cursor, user_id, "user", 0),
    RECORD_FIELD(struct discord_cursor, last, "last", 0),
    RECORD_FIELD(struct discord_cursor, gap, "gap", 0),
};
const struct record_form discord_cursor_form =
    RECORD_FORM("discord_cursor", struct discord_cursor, cursor_fields, .lossy = true);

static void cursor_free(struct discord *d, struct discord_cursor *s)
{
    map_del(&d->cursors, id_key(&s->channel_id));
    list_remove(&s->lru);
    free(s);
}

static void cursor_forget(struct discord *d, struct discord_cursor *s)
{
    record_delete_like(d->base.env->store, &discord_cursor_form, s);
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
        s->bot = str_of(d->base.bot);
        s->channel_id = channel_id;
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

/* Discord names neither author nor recipient of a message that was deleted. */
void discord_cursor_person(struct discord *d, uint64_t channel_id, uint64_t user_id)
{
    struct discord_cursor *s = cursor_get(d, channel_id);

    s->dirty |= s->user_id != user_id;
    s->user_id = user_id;
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
        record_put(d->base.env->store, &discord_cursor_form, NULL, s, false, NULL, NULL);
        s->dirty = false;
        n++;
    }
}

static bool on_cursor(void *ctx, struct str key, void *thing)
{
    const struct discord_cursor *r = thing;
    struct discord_cursor *s = cursor_get(ctx, r->channel_id);

    s->guild_id = r->guild_id;
    s->user_id = r->user_id;
    s->last = r->last;
    s->gap = r->gap;
    return true;
}

static bool discord_shard_has(const struct discord_shard *s, uint64_t guild_id)
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

/* ---- the missed messages of one channel ---- */

static void ask_page(struct backfill *b);
static void hand_over(struct backfill *b);

static void backfill_free(struct backfill *b)
{
    timer_stop(b->d->base.env->clock, &b->retry);
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

    log_info(&d->base.log, "channel %" PRIu64 ": read %u missed messages", channel_id, b->total);
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
        timer_set(b->d->base.env->clock, &b->retry, AGAIN_MS);
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
            log_warn(&d->base.log,
                     "channel %" PRIu64 ": more than %d messages were missed, the rest "
                     "stays unread",
                     b->channel_id, MAX_MESSAGES);
        backfill_end(b, true);
        return;
    }
    ask_page(b);
}

static void on_page(void *ctx, const struct sender_verdict *v)
{
    struct backfill *b = ctx;
    struct jw w;

    b->call = NULL;
    if (v->end == SENDER_DONE) {
        buf_reset(&b->page);
        w = jw_begin(&b->page);
        jw_value(&w, v->answer);
        b->at = 0;
        hand_over(b);
        return;
    }
    if (v->end == SENDER_REFUSED) { /* the channel is gone, or the bot may not read it */
        backfill_end(b, false);
        return;
    }
    log_warn(&b->d->base.log,
             "channel %" PRIu64 ": its missed messages cannot be read, trying again: %s",
             b->channel_id, v->why);
    timer_set(b->d->base.env->clock, &b->retry, AGAIN_MS);
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
    list_append(&d->filling, &b->link);
    timer_init(&b->retry, on_retry);
    d->backfills++;
    discord_defer_channel(d, b->channel_id);
    ask_page(b);
}

/* ---- the missed messages of all channels ---- */

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

void discord_backfill_soon(struct discord *d, int64_t after_ms)
{
    if (!timer_is_set(&d->backfill_timer) || after_ms > 0)
        timer_set(d->base.env->clock, &d->backfill_timer, after_ms);
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

/* ---- context ---- */

enum { CONTEXT_MS = 3000, PLACE_CHARS = 48, LOOK_EDITS = 256 };

struct look_back {     /* one channel that is being read */
    struct list link;  /* d->looking */
    struct discord *d; /* borrowed */
    struct list asks;  /* struct look_ask, owned */
    struct list edits; /* struct look_edit, owned, in order: changes since the request */
    size_t n_edits;
    struct outgoing *call;
    struct timer known; /* armed: the context is in memory, no request needed */
    uint64_t guild_id, channel_id;
    char before[24];
    bool stale; /* a session was lost since the request: the page may miss messages */
};

struct look_edit {
    struct list link;
    struct str message_id, text; /* point behind this struct; an empty text deletes */
    char bytes[];
};

struct look_ask { /* an event that waits for the page */
    struct list link;
    struct context_ask ask;
    char message[24], user[24];
};

static struct str place_of(char room[PLACE_CHARS], uint64_t guild_id, uint64_t channel_id)
{
    snprintf(room, PLACE_CHARS, "%" PRIu64 " %" PRIu64, guild_id, channel_id);
    return str_of(room);
}

/* Lacks the bot the permission to read the history?  Discord then answers with an empty list. */
static bool is_blind(struct discord *d, uint64_t guild_id, uint64_t channel_id)
{
    const struct dcache_channel *ch = dcache_channel(d->cache, channel_id);
    uint64_t bot = snowflake(str_of(d->bot_user));

    if (ch == NULL || dcache_member(d->cache, guild_id, bot) == NULL)
        return false;
    uint64_t place = discord_channel_is_thread(ch->type) ? ch->parent_id : ch->id;
    return (dcache_permissions(d->cache, guild_id, place, bot) & PERM_READ_MESSAGE_HISTORY) == 0;
}

void discord_context_add(struct discord *d)
{
    struct event *ev = &d->norm.ev;
    char room[PLACE_CHARS];

    if (d->recent == NULL || d->norm.guild_id == 0 || str_starts(ev->text, STR("/")))
        return;
    struct str place = place_of(room, d->norm.guild_id, d->norm.channel_id);
    recent_retain(d->recent, d->base.env->retention_ms);
    if (is_blind(d, d->norm.guild_id, d->norm.channel_id)) {
        ev->context_error = true;
    } else if (recent_reaches_back(d->recent, place)) {
        ev->context = d->said;
        ev->n_context = recent_before(d->recent, place, ev, d->said);
    } else {
        ev->wants_context = true;
    }
}

void discord_context_note(struct discord *d, const struct discord_normalize_out *n)
{
    char room[PLACE_CHARS];

    if (d->recent != NULL && n->guild_id != 0)
        recent_note(d->recent, place_of(room, n->guild_id, n->channel_id), &n->ev);
}

/* Changes the message in memory.  A page that is being read may have the old text, so a lookup of
 * the channel keeps the change until the page is here. */
static void context_change(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                           struct str message_id, struct str text)
{
    char room[PLACE_CHARS];

    recent_edit(d->recent, place_of(room, guild_id, channel_id), message_id, text);
    list_each (&d->looking, it, nxt) {
        struct look_back *l = list_entry(it, struct look_back, link);
        if (l->channel_id != channel_id || l->call == NULL || l->n_edits++ >= LOOK_EDITS)
            continue;
        struct look_edit *e = xcalloc(1, sizeof *e + message_id.n + text.n);
        char *at = e->bytes;
        e->message_id = str_pack(&at, message_id);
        e->text = str_pack(&at, text);
        list_init(&e->link);
        list_append(&l->edits, &e->link);
    }
}

void discord_context_edited(struct discord *d)
{
    const struct discord_normalize_out *n = &d->norm;

    if (d->recent != NULL && n->guild_id != 0)
        context_change(d, n->guild_id, n->channel_id, n->ev.message_id, n->ev.text);
}

struct str discord_context_deleted(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                                   struct str message_id, char ret_user[24])
{
    char room[PLACE_CHARS];

    if (d->recent == NULL || guild_id == 0)
        return STR_NULL;
    struct str place = place_of(room, guild_id, channel_id);
    struct str user = recent_author(d->recent, place, message_id);
    if (user.n > 0 && user.n < 24) {
        memcpy(ret_user, user.p, user.n);
        user.p = ret_user;
    } else {
        user = STR_NULL;
    }
    context_change(d, guild_id, channel_id, message_id, STR_NULL);
    return user;
}

static bool is_of_shard(void *ctx, struct str place)
{
    struct str guild;

    str_split(&place, ' ', &guild);
    return discord_shard_has(ctx, snowflake(guild));
}

void discord_context_gap(struct discord *d, struct discord_shard *s)
{
    if (d->recent != NULL)
        recent_gap(d->recent, is_of_shard, s);
    list_each (&d->looking, it, nxt) {
        struct look_back *l = list_entry(it, struct look_back, link);
        l->stale |= discord_shard_has(s, l->guild_id);
    }
}

static void look_free(struct look_back *l)
{
    timer_stop(l->d->base.env->clock, &l->known);
    sender_cancel(&l->call);
    list_each (&l->asks, it, nxt)
        free(list_entry(it, struct look_ask, link));
    list_each (&l->edits, it, nxt)
        free(list_entry(it, struct look_edit, link));
    list_remove(&l->link);
    free(l);
}

static void answer_all(struct look_back *l, bool known)
{
    struct discord *d = l->d;
    char room[PLACE_CHARS];
    struct str place = place_of(room, l->guild_id, l->channel_id);

    list_remove(&l->link); /* a later ops->context() starts a new lookup */
    list_each (&l->asks, it, nxt) {
        const struct look_ask *a = list_entry(it, struct look_ask, link);
        struct event ev = {.message_id = str_of(a->message), .user_id = str_of(a->user)};
        size_t n = known ? recent_before(d->recent, place, &ev, d->said) : 0;
        host_context(d->base.host, a->ask, d->said, n, !known);
    }
    look_free(l);
}

static void on_known(struct timer *t)
{
    answer_all(container_of(t, struct look_back, known), true);
}

static bool is_this(void *ctx, struct str place)
{
    return str_eq(place, *(struct str *)ctx);
}

static void on_context_page(void *ctx, const struct sender_verdict *v)
{
    struct look_back *l = ctx;
    struct discord *d = l->d;
    bool good = v->end == SENDER_DONE && json_type(v->answer) == JSON_ARRAY;

    l->call = NULL;
    if (good && json_count(v->answer) == 0 && is_blind(d, l->guild_id, l->channel_id))
        good = false;
    good &= l->n_edits <= LOOK_EDITS; /* else the page has texts that were changed or deleted */
    if (good) {
        char room[PLACE_CHARS], guild[24];
        struct str place = place_of(room, l->guild_id, l->channel_id);
        snprintf(guild, sizeof guild, "%" PRIu64, l->guild_id);
        recent_refill(d->recent, place, str_of(l->before));
        for (struct json_iter it = {0}; json_next(v->answer, &it);)
            if (discord_normalize_for(d, it.value, str_of(guild), true) == DISCORD_EVENT)
                recent_note(d->recent, place, &d->norm.ev);
        list_each (&l->edits, it, nxt) {
            const struct look_edit *e = list_entry(it, struct look_edit, link);
            recent_edit(d->recent, place, e->message_id, e->text);
        }
        if (l->stale)
            recent_gap(d->recent, is_this, &place);
    } else
        log_debug(&d->base.log, "what was said before cannot be read: %s",
                  v->why != NULL ? v->why : "");
    answer_all(l, good);
}

static struct look_back *look_at(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                                 struct str before)
{
    struct look_back *l = xcalloc(1, sizeof *l);
    char path[128], lane[48], room[PLACE_CHARS];

    *l = (struct look_back){.d = d, .guild_id = guild_id, .channel_id = channel_id};
    snprintf(l->before, sizeof l->before, "%.*s", STR_FMT(before));
    list_init(&l->asks);
    list_init(&l->edits);
    timer_init(&l->known, on_known);
    list_append(&d->looking, &l->link);
    if (recent_reaches_back(d->recent, place_of(room, guild_id, channel_id))) {
        timer_set(d->base.env->clock, &l->known, 0); /* another lookup has read it meanwhile */
        return l;
    }
    snprintf(path, sizeof path, "/channels/%" PRIu64 "/messages?limit=%u&before=%s", channel_id,
             d->cfg->context, l->before);
    snprintf(lane, sizeof lane, "context %" PRIu64, channel_id);
    l->call = discord_ask(d,
                          &(struct discord_question){.route = "read",
                                                     .major = channel_id,
                                                     .path = str_of(path),
                                                     .lane = str_of(lane),
                                                     .patience_ms = CONTEXT_MS},
                          on_context_page, l);
    return l;
}

void discord_context(struct platform *p, struct context_ask ask, const struct event *ev)
{
    struct discord *d = discord_of(p);
    uint64_t channel_id = snowflake(str_is_empty(ev->thread_id) ? ev->chat_id : ev->thread_id);
    struct look_ask *a = xcalloc(1, sizeof *a);
    struct look_back *at = NULL;

    a->ask = ask;
    snprintf(a->message, sizeof a->message, "%.*s", STR_FMT(ev->message_id));
    snprintf(a->user, sizeof a->user, "%.*s", STR_FMT(ev->user_id));
    list_each (&d->looking, it, nxt) {
        struct look_back *l = list_entry(it, struct look_back, link);
        if (l->channel_id == channel_id)
            at = l;
    }
    if (at == NULL)
        at = look_at(d, snowflake(ev->scope_id), channel_id, ev->message_id);
    list_append(&at->asks, &a->link);
}

/* ---- erasing ---- */

static bool is_of_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);
    struct str bot = erase_part(&key);
    uint64_t user_id;

    if (!str_eq(s->platform, STR("discord")) || !json_as_u64(json_get(doc, "user"), &user_id) ||
        user_id != snowflake(s->user))
        return false;
    erasure_chat(e, bot, key, true);
    return true;
}

static const struct erase_records of_person[] = {
    {.ns = "discord_cursor", .word = "people", .is = is_of_person},
    {0},
};
const struct eraser discord_eraser = {.of_person = of_person};

void discord_forget_chat(struct platform *p, struct str chat)
{
    uint64_t channel_id = snowflake(chat);
    struct discord_cursor *s = map_get(&discord_of(p)->cursors, id_key(&channel_id));

    if (s != NULL)
        s->user_id = 0;
}

/* ---- life ---- */

enum bh_err discord_history_open(struct discord *d, char *ret_why)
{
    struct discord_cursor own = {.bot = str_of(d->base.bot)};

    timer_init(&d->backfill_timer, on_backfill_timer);
    list_init(&d->filling);
    list_init(&d->cursors_lru);
    list_init(&d->looking);
    d->recent = d->cfg->context > 0 ? recent_new(d->base.env->clock, d->cfg->context) : NULL;
    return record_load_like(d->base.env->store, &discord_cursor_form, &own, 1, on_cursor, d,
                            ret_why);
}

void discord_history_close(struct discord *d)
{
    void *v;

    if (d->looking.next == NULL)
        return; /* not opened */
    timer_stop(d->base.env->clock, &d->backfill_timer);
    list_each (&d->filling, it, nxt) {
        struct backfill *b = list_entry(it, struct backfill, link);
        if (b->waiting)
            host_accept_cancel(d->base.host, b->accept);
        backfill_free(b);
    }
    for (size_t at = 0; map_next(&d->cursors, &at, &v);)
        cursor_free(d, v);
    map_done(&d->cursors);
    list_each (&d->looking, it, nxt)
        look_free(list_entry(it, struct look_back, link));
    recent_free(d->recent);
}
