/* host.c - design.  (host.h has the contract.)
 *
 * Adapters get the state of the whole route, because several instances may serve one chat.
 *
 * The media_ask of a file encodes the handle of the waiting event and the file's index.  So no
 * state is needed until the download starts. */
#include "host/host.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/uncleared.h"
#include "media/media.h"
#include "media/media_fetch.h"
#include "media/media_write.h"
#include "platform/manifest.h"
#include "platform/sender.h"
#include "relay/in/inside.h"
#include "relay/relay.h"
#include "store/store.h"
#include "tenancy/rights.h"

struct fetch_in {        /* a pending download of a waiting event's file */
    struct list link;    /* host->fetches */
    struct relay *relay; /* borrowed */
    struct handle id;
    size_t file;
    struct media_fetch *fetch; /* owned */
    /* of host_media_bytes() */
    struct media_write *writer; /* owned */
    struct str left;            /* bytes that are not written yet; the adapter's */
    void (*release)(void *ctx); /* NULL: the bytes were released */
    void *ctx;
};

struct open_bot {
    struct outlet outlet;
    struct platform *p; /* owned until host_close_platforms() */
    struct buf key;     /* platform \x1f bot */
    struct buf hook;    /* platform \x1f id \x1f host in lower case */
};

struct host {
    struct outside outside;
    const struct host_env *env; /* borrowed */
    struct facts *facts;        /* borrowed */
    struct relay *relay;        /* borrowed */
    struct list fetches;        /* struct fetch_in, owned */
    struct media *media;        /* borrowed; NULL: none */
    struct open_bot **open;     /* owned, with the bots; in order of opening */
    size_t n_open;
    struct map bots;   /* platform \x1f bot -> struct open_bot */
    struct map hooks;  /* hook -> struct open_bot */
    struct map firsts; /* platform -> the struct open_bot that was opened first */
    bool wants_news;   /* some platform has instance_changed() */
    const struct outlet
        *mail; /* borrowed; chats that are on no platform; NULL: nobody serves them */
    host_act_cb *mail_act;
    void *mail_ctx;
    struct host_watch *watch;    /* borrowed; NULL: none */
    uint64_t numbers;            /* the last number of host_number() */
    struct manifests *manifests; /* owned; NULL until platforms are opened */
};

static struct host *host_of(struct outside *o)
{
    return container_of(o, struct host, outside);
}

/* ---- relay -> platform ---- */

static struct open_bot *find_bot(const struct host *h, struct str platform, struct str bot)
{
    BH_UNCLEARED char room[GATE_KEY_MAX];

    if (str_is_empty(bot))
        return map_get(&h->firsts, platform);
    struct str key = gate_key(room, platform, bot, STR_NULL);
    return key.p != NULL ? map_get(&h->bots, key) : NULL;
}

struct platform *host_platform(const struct host *h, struct str platform, struct str bot)
{
    struct open_bot *b = find_bot(h, platform, bot);

    return b != NULL ? b->p : NULL;
}

static void add_hook(struct buf *out, struct str platform, struct str id, struct str host)
{
    buf_add_str(out, platform);
    buf_add_c(out, '\x1f');
    buf_add_str(out, id); /* a stranger's bytes: printf would end it at a NUL */
    buf_add_c(out, '\x1f');
    for (size_t i = 0; i < host.n; i++) /* a client may write it in any case */
        buf_add_c(out, host.p[i] >= 'A' && host.p[i] <= 'Z' ? (char)(host.p[i] + 32) : host.p[i]);
}

struct platform *host_webhook(const struct host *h, struct str platform, struct str id,
                              struct str host)
{
    BUF_LOCAL hook = BUF_INIT;

    add_hook(&hook, platform, id, host);
    struct open_bot *b = map_get(&h->hooks, buf_str(&hook));
    if (b == NULL) {
        buf_reset(&hook);
        add_hook(&hook, platform, id, STR_NULL);
        b = map_get(&h->hooks, buf_str(&hook));
    }
    return b != NULL ? b->p : NULL;
}

bool host_manages(const struct host *h, struct grant_who who, struct grant_place at)
{
    const struct gate_instance *me = grant_instance(h->facts, who);

    for (size_t i = 0; me != NULL && i < h->n_open; i++) {
        struct platform *p = h->open[i]->p;
        struct gate_eyes e = gate_eyes_of(me, at.platform, str_of(p->bot));
        const struct right_at on = {who, at.platform, str_of(p->bot)};
        if (p->ops->manages == NULL || !str_eq(str_of(p->ops->name), at.platform) ||
            !rights_may_use(h->facts, &on))
            continue;
        for (const struct gate_link *l; (l = gate_next_eye(&e)) != NULL;)
            if (p->ops->manages(p, at.guild, at.channel, l->user))
                return true;
    }
    return false;
}

struct str host_only_bot(const struct host *h, struct str platform)
{
    const struct open_bot *first = map_get(&h->firsts, platform);

    return first != NULL && first->outlet.alone ? str_of(first->outlet.bot) : STR_NULL;
}

static const struct outlet *outside_find(struct outside *o, struct str platform, struct str bot)
{
    struct host *h = host_of(o);
    struct open_bot *b = find_bot(h, platform, bot);

    if (b == NULL && h->mail != NULL && str_is_empty(bot) &&
        str_eq(platform, str_of(h->mail->platform)))
        return h->mail;
    if (b == NULL && h->watch != NULL && h->watch->missing(h->watch, platform, bot))
        b = find_bot(h, platform, bot);
    return b != NULL ? &b->outlet : NULL;
}

static void outside_act(struct outside *o, const struct outlet *to, struct action_id id,
                        const struct action_from *from, const struct action *a)
{
    struct host *h = host_of(o);
    struct platform *p;

    if (to == h->mail) {
        h->mail_act(h->mail_ctx, id, from, a);
        return;
    }
    p = container_of(to, const struct open_bot, outlet)->p;
    if (p->sender != NULL)
        sender_submit(p->sender, id, from, a);
    else
        p->ops->act(p, id, from, a);
}

static void outside_gone(struct outside *o, struct str tenant, struct str instance)
{
    struct host *h = host_of(o);

    for (size_t i = 0; i < h->n_open; i++)
        if (h->open[i]->p->sender != NULL)
            sender_forget(h->open[i]->p->sender, tenant, instance);
}

static enum gate_sight outside_sees(struct outside *o, const struct outlet *at,
                                    const struct event *ev, struct str user)
{
    struct platform *p = container_of(at, const struct open_bot, outlet)->p;

    return p->ops->sees(p, ev, user);
}

static struct str outside_home(struct outside *o, struct str platform, struct str bot,
                               struct str chat_id, char room[32])
{
    struct host *h = host_of(o);
    struct str home = STR_NULL;

    for (size_t i = 0; i < h->n_open && home.n == 0; i++) {
        struct platform *p = h->open[i]->p;
        if (p->ops->home != NULL && (platform.n == 0 || str_eq(platform, str_of(p->ops->name))) &&
            (bot.n == 0 || str_eq(bot, str_of(p->bot))))
            home = p->ops->home(p, chat_id, room);
    }
    return home;
}

static void tell_bot(struct host *h, struct open_bot *b)
{
    if (b->p->ops->instance_changed != NULL)
        b->p->ops->instance_changed(b->p, host_route_state(h, b->p, str_of(b->outlet.bot)));
}

static void outside_holds(struct outside *o, struct str media_id, struct str tenant,
                          struct str instance, uint64_t row)
{
    struct host *h = host_of(o);
    const struct media_file *f = h->media != NULL ? media_find(h->media, media_id) : NULL;

    if (f != NULL)
        media_hold(h->media, f, tenant, instance, row);
}

/* A bot shows the state of the route whose key is the bot's name, or "*". */
static void tell_route(void *ctx, const struct route *r)
{
    struct host *h = ctx;
    struct open_bot *one = find_bot(h, str_of(r->platform), str_of(r->key));

    if (one != NULL)
        tell_bot(h, one);
    for (size_t i = 0; i < h->n_open && strcmp(r->key, "*") == 0; i++)
        if (strcmp(h->open[i]->outlet.platform, r->platform) == 0)
            tell_bot(h, h->open[i]);
}

void host_facts_changed(struct host *h)
{
    if (h->manifests != NULL)
        manifests_look(h->manifests);
}

static void outside_changed(struct outside *o, struct str tenant, struct str instance,
                            const char *state)
{
    struct host *h = host_of(o);

    host_facts_changed(h); /* a gateway may have been revoked */
    if (h->wants_news)
        facts_each_route_to(h->facts, tenant, instance, tell_route, h);
    if (h->watch != NULL)
        h->watch->changed(h->watch, tenant, instance, state);
}

static void outside_acked(struct outside *o, struct str tenant, struct str instance,
                          struct str buffer_id)
{
    struct host_watch *w = host_of(o)->watch;

    w->acked(w, tenant, instance, buffer_id);
}

void host_set_watch(struct host *h, struct host_watch *w)
{
    h->watch = w;
    h->outside.acked = outside_acked; /* set here, so that an ack costs nothing without a watch */
}

static void outside_announced(struct outside *o, struct str gateway, struct json manifest)
{
    struct host *h = host_of(o);

    if (h->manifests != NULL)
        manifests_hear(h->manifests, gateway, manifest);
}

/* ---- files and context of waiting events ---- */

static struct handle waiting_of(struct media_ask ask)
{
    return (struct handle){ask.index / EVENT_MAX_MEDIA, ask.generation};
}

static void fetch_free(struct fetch_in *x)
{
    media_fetch_cancel(&x->fetch);
    media_abort(&x->writer);
    if (x->release != NULL)
        x->release(x->ctx);
    list_remove(&x->link);
    free(x);
}

static void outside_fetch(struct outside *o, struct handle id, size_t file, const struct event *ev,
                          struct str tenant)
{
    struct platform *p = host_platform(host_of(o), ev->platform, ev->bot);
    const struct media_ask ask = {(uint32_t)(id.index * EVENT_MAX_MEDIA + file), id.generation};

    if (p != NULL && p->ops->media_where != NULL)
        p->ops->media_where(p, ask, ev->media[file].ref);
    else
        relay_file_lost(host_of(o)->relay, id, file, "its platform cannot be asked for it");
}

static void on_fetched(void *ctx, const struct media_file *f, const char *why)
{
    struct fetch_in *x = ctx;
    struct fetch_in told = *x;

    x->fetch = NULL;
    x->writer = NULL;
    fetch_free(x);
    if (f == NULL)
        relay_file_lost(told.relay, told.id, told.file, why);
    else
        relay_file_here(told.relay, told.id, told.file,
                        &(struct relay_file){str_of(f->id), str_of(f->type), f->size});
}

/* The download of the file that @ask names; NULL: no event waits for it any more. */
static struct fetch_in *fetch_new(struct host *h, struct media_ask ask,
                                  const struct event_media **ret_m, struct str *ret_tenant,
                                  struct str *ret_stranger)
{
    struct handle id = waiting_of(ask);
    size_t file = ask.index % EVENT_MAX_MEDIA;

    *ret_m = h->media != NULL && h->relay != NULL
                 ? relay_wanted_file(h->relay, id, file, ret_tenant, ret_stranger)
                 : NULL;
    if (*ret_m == NULL)
        return NULL;
    struct fetch_in *x = xcalloc(1, sizeof *x);
    *x = (struct fetch_in){.relay = h->relay, .id = id, .file = file};
    list_append(&h->fetches, &x->link);
    return x;
}

void host_media_at(struct host *h, struct media_ask ask, const struct media_at *at)
{
    struct str tenant, stranger;
    const struct event_media *m;
    struct fetch_in *x = fetch_new(h, ask, &m, &tenant, &stranger);

    if (x == NULL)
        return;
    BUF_SECRET url = BUF_INIT;
    buf_add_str(&url, at->url);
    struct media_source src = {.url = buf_z(&url),
                               .headers = at->headers,
                               .trusted = !at->foreign,
                               .redirects = at->redirects,
                               .tenant = tenant,
                               .stranger = stranger,
                               .type = m->type,
                               .name = m->name};
    x->fetch = media_fetch(h->media, &src, on_fetched, x);
}

static void on_room(void *ctx)
{
    struct fetch_in *x = ctx;
    struct str piece = str_make(x->left.p, x->left.n < 262144 ? x->left.n : 262144);

    x->left = str_skip(x->left, piece.n);
    if (piece.n > 0)
        media_add(x->writer, piece);
    else
        media_end(x->writer);
}

static void on_written(void *ctx, enum bh_err err, const struct media_file *f)
{
    on_fetched(ctx, f, err == BH_BUSY ? "there is no room for it" : "it could not be stored");
}

void host_media_bytes(struct host *h, struct media_ask ask, struct str bytes,
                      void (*release)(void *ctx), void *ctx)
{
    static const struct media_write_ops ops = {.room = on_room, .done = on_written};
    struct str tenant, stranger;
    enum bh_err err = BH_REFUSED;
    const struct event_media *m;
    struct fetch_in *x = fetch_new(h, ask, &m, &tenant, &stranger);

    if (x == NULL) {
        release(ctx);
        return;
    }
    x->left = bytes;
    x->release = release;
    x->ctx = ctx;
    x->writer = media_begin(h->media,
                            &(struct media_spec){.tenant = tenant,
                                                 .type = m->type,
                                                 .name = m->name,
                                                 .expected = bytes.n,
                                                 .stranger = stranger},
                            &ops, x, &err);
    if (x->writer == NULL)
        on_fetched(x, NULL, err == BH_REFUSED ? MEDIA_OFF : "there is no room for it");
}

void host_media_gone(struct host *h, struct media_ask ask, const char *why)
{
    if (h->relay != NULL)
        relay_file_lost(h->relay, waiting_of(ask), ask.index % EVENT_MAX_MEDIA, why);
}

static void outside_context(struct outside *o, struct handle id, const struct event *ev)
{
    struct platform *p = host_platform(host_of(o), ev->platform, ev->bot);

    if (p != NULL && p->ops->context != NULL)
        p->ops->context(p, (struct context_ask){id.index, id.generation}, ev);
    else
        relay_context(host_of(o)->relay, id, NULL, 0, true);
}

static void outside_drop(struct outside *o, struct handle id)
{
    list_each (&host_of(o)->fetches, it, nxt) {
        struct fetch_in *x = list_entry(it, struct fetch_in, link);
        if (x->id.index == id.index && x->id.generation == id.generation)
            fetch_free(x);
    }
}

static int64_t outside_wait_ms(struct outside *o)
{
    struct host *h = host_of(o);

    return h->media != NULL ? media_wait_ms(h->media) : 0;
}

/* ---- making it ---- */

struct host *host_new(const struct host_env *env, struct facts *facts)
{
    struct host *h = xcalloc(1, sizeof *h);

    h->outside = (struct outside){.find = outside_find,
                                  .act = outside_act,
                                  .sees = outside_sees,
                                  .home = outside_home,
                                  .holds = outside_holds,
                                  .drop = outside_drop,
                                  .wait_ms = outside_wait_ms,
                                  .gone = outside_gone,
                                  .announced = outside_announced,
                                  .changed = outside_changed};
    h->env = env;
    h->facts = facts;
    list_init(&h->fetches);
    return h;
}

void host_set_relay(struct host *h, struct relay *r)
{
    h->relay = r;
}

/* ---- files ---- */

void host_set_media(struct host *h, struct media *m)
{
    list_each (&h->fetches, it, nxt)
        fetch_free(list_entry(it, struct fetch_in, link));
    h->media = m;
    h->outside.fetch = m != NULL ? outside_fetch : NULL;
    h->outside.context = m != NULL ? outside_context : NULL;
}

void host_sight(struct host *h, struct platform *p, struct str guild)
{
    if (h->relay != NULL)
        relay_sight(h->relay, str_of(p->ops->name), str_of(p->bot), guild);
}

void host_context(struct host *h, struct context_ask ask, const struct event_said *said, size_t n,
                  bool failed)
{
    if (h->relay != NULL)
        relay_context(h->relay, (struct handle){ask.index, ask.generation}, said, n, failed);
}

/* ---- opening and closing ---- */

struct outside *host_outside(struct host *h)
{
    return &h->outside;
}

void host_set_mail(struct host *h, const struct outlet *outlet, host_act_cb *act, void *ctx)
{
    h->mail = outlet;
    h->mail_act = act;
    h->mail_ctx = ctx;
}

enum bh_err host_open_platform(struct host *h, const struct platform_settings *cfg, char *ret_why)
{
    const struct platform_ops *ops = platform_find(str_of(cfg->platform));

    assert(ops != NULL); /* the configuration accepts only platforms of this build */
    const struct platform like = {.bot = cfg->bot, .hook_host = cfg->host};
    BUF_LOCAL hook = BUF_INIT;
    add_hook(&hook, str_of(cfg->platform), platform_id(&like), str_of(cfg->host));
    if (map_get(&h->hooks, buf_str(&hook)) != NULL) {
        snprintf(ret_why, 256, "another %s bot has this id and this host", cfg->platform);
        return BH_MALFORMED;
    }
    return host_open_ops(h, ops, cfg, ret_why);
}

enum bh_err host_open_ops(struct host *h, const struct platform_ops *ops,
                          const struct platform_settings *cfg, char *ret_why)
{
    struct platform *p = NULL;

    rights_bot_belongs(h->facts, str_of(cfg->platform), str_of(cfg->bot), str_of(cfg->tenant));
    enum bh_err err = platform_open(ops, cfg, h, &p, ret_why);
    if (err != BH_OK)
        return err;
    struct open_bot *b = xcalloc(1, sizeof *b);
    b->p = p;
    b->outlet =
        (struct outlet){.platform = ops->name,
                        .bot = p->bot,
                        .descriptor = p->descriptor != NULL ? p->descriptor : ops->descriptor,
                        .secret_chats = ops->secret_chats,
                        .ids_per_chat = ops->ids_per_chat,
                        .has_outbox = p->sender != NULL && sender_requests(p->sender),
                        .knows_sight = ops->sees != NULL};
    struct open_bot *first = find_bot(h, str_of(ops->name), STR_NULL);
    b->outlet.alone = first == NULL;
    if (first != NULL)
        first->outlet.alone = false;
    h->open = xrealloc(h->open, (h->n_open + 1) * sizeof(struct open_bot *));
    h->open[h->n_open++] = b;
    buf_printf(&b->key, "%s\x1f%s", ops->name, p->bot);
    map_put(&h->bots, buf_str(&b->key), b);
    add_hook(&b->hook, str_of(ops->name), platform_id(p), str_of(p->hook_host));
    map_put(&h->hooks, buf_str(&b->hook), b);
    if (first == NULL)
        map_put(&h->firsts, str_of(ops->name), b);
    h->wants_news |= ops->instance_changed != NULL;
    if (h->manifests == NULL)
        h->manifests = manifests_open(h);
    if (h->relay != NULL)
        relay_bot_opened(h->relay, str_of(ops->name), str_of(p->bot));
    return BH_OK;
}

void host_close_platforms(struct host *h)
{
    manifests_close(h->manifests);
    h->manifests = NULL;
    while (h->n_open > 0) {
        struct open_bot *b = h->open[--h->n_open];
        map_del(&h->bots, buf_str(&b->key));
        map_del(&h->hooks, buf_str(&b->hook));
        if (map_get(&h->firsts, str_of(b->outlet.platform)) == b)
            map_del(&h->firsts, str_of(b->outlet.platform));
        if (h->relay != NULL)
            relay_bot_closed(h->relay, str_of(b->outlet.platform), str_of(b->outlet.bot));
        platform_close(b->p);
        buf_done(&b->key);
        buf_done(&b->hook);
        free(b);
    }
}

void host_free(struct host *h)
{
    if (h == NULL)
        return;
    host_close_platforms(h);
    assert(list_is_empty(&h->fetches)); /* the caller has called host_set_media() with NULL */
    map_done(&h->bots);
    map_done(&h->hooks);
    map_done(&h->firsts);
    free(h->open);
    free(h);
}

size_t host_n_platforms(const struct host *h)
{
    return h->n_open;
}

struct platform *host_nth_platform(const struct host *h, size_t n)
{
    return h->open[n]->p;
}

/* ---- platform -> relay ---- */

const struct host_env *host_env(struct host *h)
{
    return h->env;
}

struct accept_id host_accept(struct host *h, struct platform *p, const struct event *ev,
                             accepted_cb *done, void *ctx)
{
    assert(h->relay != NULL); /* platforms open after the relay and close before it */
    platform_heard(p, clock_wall_ms(h->env->clock));
    p->n.events++;
    if (p->debounce_ms == 0 && p->trace.n == 0)
        return relay_accept(h->relay, ev, done, ctx);
    struct event more = *ev;
    more.burst_ms = p->debounce_ms;
    more.trace = p->trace;
    return relay_accept(h->relay, &more, done, ctx);
}

struct accept_id host_passthrough(struct host *h, struct platform *p, const struct event *ev,
                                  struct str forward_json, accepted_cb *done, void *ctx)
{
    assert(h->relay != NULL);
    platform_heard(p, clock_wall_ms(h->env->clock));
    struct event traced = *ev;
    traced.trace = p->trace;
    return relay_take_in(h->relay, &traced, forward_json, done, ctx);
}

void host_accept_cancel(struct host *h, struct accept_id id)
{
    if (h->relay != NULL)
        relay_accept_cancel(h->relay, id);
}

void host_refused(struct host *h, const struct event *ev, const char *why)
{
    if (h->relay != NULL)
        relay_refused(h->relay, ev, why);
}

void host_each_target(struct host *h, const struct event *ev, target_cb *cb, void *ctx)
{
    if (h->relay != NULL)
        relay_each_target(h->relay, ev, cb, ctx);
}

void host_result(struct host *h, struct action_id id, const struct action_result *r)
{
    if (h->relay != NULL)
        relay_result(h->relay, id, r);
}

void host_fail(struct host *h, struct action_id id, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    host_result(h, id, &(struct action_result){.error = str_of(text)});
}

void host_cut_off(struct host *h, const struct action_from *from, const char *error)
{
    if (h->relay != NULL)
        relay_cut_off(h->relay, from, str_of(error));
}

bool host_revive(struct host *h, struct platform *p, const struct action_from *from,
                 enum action_op op, struct str chat, struct action_id *ret_id)
{
    return h->relay != NULL &&
           relay_revive(h->relay, from, str_of(p->ops->name), str_of(p->bot), op, chat, ret_id);
}

enum gate_sight host_may_act(struct host *h, struct platform *p, const struct action_from *from,
                             const struct action_place *place)
{
    return h->relay != NULL
               ? relay_may_act(h->relay, from, str_of(p->ops->name), str_of(p->bot), place)
               : GATE_SIGHT_UNKNOWN;
}

bool host_had_event(struct host *h, struct platform *p, const struct action_from *from,
                    struct str event_id)
{
    const struct event ev = {.platform = str_of(p->ops->name),
                             .bot = str_of(p->bot),
                             .event_id = event_id};

    return h->relay != NULL && relay_known_ms(h->relay, from->tenant, from->instance, &ev) != 0;
}

bool host_has_instance(const struct host *h, struct str tenant, struct str instance)
{
    const struct gate_instance *in = grant_instance(h->facts, (struct grant_who){tenant, instance});

    return in != NULL && !in->gone;
}

/* ---- the outbox ---- */

uint64_t host_number(struct host *h)
{
    return h->env->store->boot << 40 | ++h->numbers;
}

bool host_outbox_holds(const struct host *h, uint64_t row)
{
    for (size_t i = 0; i < h->n_open; i++)
        if (h->open[i]->p->sender != NULL &&
            sender_holds(h->open[i]->p->sender, row & ~SENDER_FILE_ROW))
            return true;
    return false;
}

enum host_announcer host_announcer(struct host *h, struct str gateway, const struct platform *p)
{
    const struct gateway *gw = facts_gateway(h->facts, gateway);

    if (gw == NULL || gw->revoked_ms != 0)
        return ANNOUNCER_GONE;
    return p != NULL && right_to_menu(h->facts, gw, str_of(p->ops->name), str_of(p->bot))
               ? ANNOUNCER_OWN
               : ANNOUNCER_OTHER;
}

struct best_state {
    const struct host *host;
    const struct platform *p;
    enum relay_state best;
};

static void on_target(void *ctx, struct str tenant, struct str instance)
{
    struct best_state *b = ctx;
    struct relay *relay = b->host->relay;
    const struct right_at at = {{tenant, instance}, str_of(b->p->ops->name), str_of(b->p->bot)};
    enum relay_state s = relay != NULL ? relay_state(relay, tenant, instance) : RELAY_NEVER;

    if (s > b->best && rights_may_use(b->host->facts, &at))
        b->best = s;
}

const char *host_route_state(struct host *h, struct platform *p, struct str route_key)
{
    struct best_state b = {.host = h, .p = p};

    facts_each_target(h->facts, str_of(p->ops->name), route_key, on_target, &b);
    return relay_state_name(b.best);
}
