/* hold.c - design.  (discord_priv.h has the calls.)
 *
 * After a resume Discord does not tell again which channels there are, so the first message of a
 * guild may come from a channel we cannot tell from a thread.  Its messages then wait, in order,
 * while the guild (or that one channel) is asked for; other channels go on.  A channel whose missed
 * messages are being fetched holds its new ones in the same way.
 *
 * What cannot be learned in time is done without: a message delivered under its channel's id alone
 * is better than one that never comes. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum { MAX_HELD_BYTES = 32 << 20, LOAD_PATIENCE_MS = 60000 };

enum hold_for { FOR_NOTHING, FOR_GUILD, FOR_CHANNEL, FOR_BACKFILL };

struct held_message {
    struct list link;
    struct discord_pending *p; /* borrowed from its shard */
    struct buf text;           /* owned; the message */
};

struct hold {
    uint64_t channel_id, guild_id;
    struct discord *d; /* borrowed */
    struct list messages;
    enum hold_for what;
    bool lenient;          /* asking was in vain */
    bool running;          /* hold_run() is on the stack */
    struct outgoing *call; /* for the channel; NULL: none */
};

struct load { /* a guild being asked for */
    uint64_t guild_id;
    struct discord *d; /* borrowed */
    struct outgoing *call;
    int step;
};

static void hold_run(struct hold *h);

/* ---- life ---- */

static void held_free(struct discord *d, struct held_message *m)
{
    list_remove(&m->link);
    d->held_bytes -= m->text.n;
    buf_done(&m->text);
    free(m);
}

static struct hold *hold_get(struct discord *d, uint64_t channel_id)
{
    struct hold *h = map_get(&d->holds, id_key(&channel_id));

    if (h != NULL)
        return h;
    h = xcalloc(1, sizeof *h);
    h->channel_id = channel_id;
    h->d = d;
    list_init(&h->messages);
    map_put(&d->holds, id_key(&h->channel_id), h);
    return h;
}

static void hold_free(struct hold *h)
{
    list_each (&h->messages, it, nxt)
        held_free(h->d, list_entry(it, struct held_message, link));
    sender_cancel(&h->call);
    map_del(&h->d->holds, id_key(&h->channel_id));
    free(h);
}

bool discord_hold_has(const struct discord *d, uint64_t channel_id)
{
    return map_count(&d->holds) > 0 && map_get(&d->holds, id_key(&channel_id)) != NULL;
}

void discord_hold_push(struct discord *d, struct json message, struct discord_pending *p)
{
    struct hold *h = hold_get(d, p->channel_id);
    struct held_message *m = xcalloc(1, sizeof *m);
    struct jw w = jw_begin(&m->text);

    list_init(&m->link);
    jw_value(&w, message);
    d->held_bytes += m->text.n;
    if (d->held_bytes > MAX_HELD_BYTES) {
        held_free(d, m);
        discord_pending_failed(p);
        return;
    }
    m->p = p;
    list_append(&h->messages, &m->link);
}

/* ---- asking ---- */

static uint64_t first_seq(const struct hold *h)
{
    return list_is_empty(&h->messages)
               ? 0
               : list_first(&h->messages, struct held_message, link)->p->seq;
}

/* The hold for this guild that has waited longest. */
static struct hold *next_hold_of(const struct discord *d, uint64_t guild_id)
{
    struct hold *best = NULL;
    void *v;

    for (size_t at = 0; map_next(&d->holds, &at, &v);) {
        struct hold *h = v;
        if (h->what == FOR_GUILD && h->guild_id == guild_id && !h->running &&
            (best == NULL || first_seq(h) < first_seq(best)))
            best = h;
    }
    return best;
}

static void run_holds_of(struct discord *d, uint64_t guild_id, bool lenient)
{
    struct hold *h;

    while ((h = next_hold_of(d, guild_id)) != NULL) {
        h->what = FOR_NOTHING;
        h->lenient = lenient;
        hold_run(h);
    }
}

static void load_free(struct load *l)
{
    sender_cancel(&l->call);
    map_del(&l->d->loads, id_key(&l->guild_id));
    free(l);
}

static void load_end(struct load *l, bool known)
{
    struct discord *d = l->d;
    uint64_t guild_id = l->guild_id;

    load_free(l);
    if (known)
        dcache_guild_loaded(d->cache, guild_id);
    const struct dcache_guild *g = dcache_guild(d->cache, guild_id); /* it may be full */
    run_holds_of(d, guild_id, g == NULL || !g->loaded);
}

static const char *const load_paths[] = {"", "/channels", "/threads/active"};
static const char *const load_routes[] = {"guild", "guild channels", "guild threads"};

static void load_next(struct load *l);

static void on_loaded(void *ctx, const struct discord_told *t)
{
    struct load *l = ctx;
    struct json list = t->answer.body;

    l->call = NULL;
    if (t->end != SENDER_DONE) {
        log_warn(&l->d->log, "guild %llu cannot be read: %s", (unsigned long long)l->guild_id,
                 t->why);
        load_end(l, false);
        return;
    }
    if (l->step == 0)
        dcache_put_guild(l->d->cache, t->answer.body);
    if (l->step == 2)
        list = json_get(t->answer.body, "threads");
    if (l->step > 0)
        for (struct json_iter it = {0}; json_next(list, &it);)
            dcache_put_channel(l->d->cache, it.value, l->guild_id);
    if (++l->step == (int)ARRAY_LEN(load_paths))
        load_end(l, true);
    else
        load_next(l);
}

static void load_next(struct load *l)
{
    char path[64], lane[32];

    snprintf(path, sizeof path, "/guilds/%llu%s", (unsigned long long)l->guild_id,
             load_paths[l->step]);
    snprintf(lane, sizeof lane, "guild %llu", (unsigned long long)l->guild_id);
    l->call = discord_ask(l->d,
                          &(struct discord_question){.route = load_routes[l->step],
                                                     .major = l->guild_id,
                                                     .path = str_of(path),
                                                     .lane = str_of(lane),
                                                     .patience_ms = LOAD_PATIENCE_MS},
                          on_loaded, l);
}

static void load_guild(struct discord *d, uint64_t guild_id)
{
    if (map_get(&d->loads, id_key(&guild_id)) != NULL)
        return;
    struct load *l = xcalloc(1, sizeof *l);
    l->d = d;
    l->guild_id = guild_id;
    map_put(&d->loads, id_key(&l->guild_id), l);
    load_next(l);
}

static void on_channel(void *ctx, const struct discord_told *t)
{
    struct hold *h = ctx;

    h->call = NULL;
    if (t->end == SENDER_DONE)
        dcache_put_channel(h->d->cache, t->answer.body, 0);
    h->lenient = t->end != SENDER_DONE || dcache_channel(h->d->cache, h->channel_id) == NULL;
    if (h->what != FOR_CHANNEL)
        return; /* it waits for something else by now */
    h->what = FOR_NOTHING;
    hold_run(h);
}

static void load_channel(struct hold *h)
{
    char path[64];

    if (h->call != NULL)
        return;
    snprintf(path, sizeof path, "/channels/%llu", (unsigned long long)h->channel_id);
    h->call = discord_ask(h->d,
                          &(struct discord_question){.route = "channel",
                                                     .major = h->channel_id,
                                                     .path = str_of(path),
                                                     .lane = STR("channels"),
                                                     .patience_ms = LOAD_PATIENCE_MS},
                          on_channel, h);
}

void discord_hold_need(struct discord *d, uint64_t channel_id, uint64_t guild_id,
                       enum discord_verdict what)
{
    struct hold *h = hold_get(d, channel_id);

    h->guild_id = guild_id;
    h->what = what == DISCORD_NEED_GUILD ? FOR_GUILD : FOR_CHANNEL;
    if (h->what == FOR_GUILD)
        load_guild(d, guild_id);
    else
        load_channel(h);
}

/* ---- going on ---- */

/* Deliver what waits, in order, until something is needed again or nothing is left. */
static void hold_run(struct hold *h)
{
    struct discord *d = h->d;

    h->running = true;
    while (!list_is_empty(&h->messages)) {
        struct held_message *m = list_first(&h->messages, struct held_message, link);
        struct discord_pending *p = m->p;
        struct json doc;

        if (!json_parse(d->parser, buf_str(&m->text), &doc)) {
            held_free(d, m);
            discord_pending_done(p);
            continue;
        }
        enum discord_verdict v = discord_pending_try(p, doc, h->lenient);
        if (v == DISCORD_NEED_GUILD || v == DISCORD_NEED_CHANNEL) {
            h->running = false;
            discord_hold_need(d, h->channel_id, p->guild_id, v);
            return;
        }
        held_free(d, m);
        if (v != DISCORD_EVENT)
            discord_pending_done(p);
    }
    hold_free(h);
}

void discord_hold_for_backfill(struct discord *d, uint64_t channel_id)
{
    hold_get(d, channel_id)->what = FOR_BACKFILL;
}

void discord_hold_release(struct discord *d, uint64_t channel_id)
{
    struct hold *h = map_get(&d->holds, id_key(&channel_id));

    if (h == NULL || h->what != FOR_BACKFILL)
        return;
    h->what = FOR_NOTHING;
    hold_run(h);
}

void discord_hold_guild_known(struct discord *d, uint64_t guild_id)
{
    const struct dcache_guild *g = dcache_guild(d->cache, guild_id);
    struct load *l = map_get(&d->loads, id_key(&guild_id));

    if (g == NULL || !g->loaded)
        return;
    if (l != NULL)
        load_free(l);
    run_holds_of(d, guild_id, false);
}

void discord_hold_forget_shard(struct discord *d, const struct discord_shard *s)
{
    void *v;

    for (size_t at = 0; map_next(&d->holds, &at, &v);) {
        struct hold *h = v;
        list_each (&h->messages, it, nxt) {
            struct held_message *m = list_entry(it, struct held_message, link);
            if (m->p->shard == s)
                held_free(d, m);
        }
    }
}

void discord_hold_done(struct discord *d)
{
    void *v;

    for (size_t at = 0; map_next(&d->holds, &at, &v);)
        hold_free(v);
    for (size_t at = 0; map_next(&d->loads, &at, &v);)
        load_free(v);
    map_done(&d->holds);
    map_done(&d->loads);
}
