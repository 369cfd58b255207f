/* testbots.c - design.  (testbots.h has the contract.)
 *
 * An ack names a delivery by its bufferId only.  A person's message always has an event id, and the
 * id of its delivery follows from it, so remember() keeps the message under that id.  At most
 * TESTBOTS_KEPT messages are remembered, the oldest goes first. */
#include "testbots/testbots.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/regex.h"
#include "core/gate.h"
#include "edge/vault.h"
#include "host/host.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "store/store.h"
#include "tenancy/facts.h"

const char testbots_kinds[] = "ack|sleep|send|edit|typing|follow_up|get_chat_info|send_media|"
                              "prompt|react|thread_create|thread_rename";

#define DEFAULT_PLATFORM "discord"
#define DEFAULT_BOT "bot"

struct kind { /* the ops of one platform's test bots */
    struct list link;
    struct testbots *all; /* borrowed */
    struct platform_ops ops;
    struct descriptor descriptor;
    bool routed; /* its open route to the instance was made; an operator may have removed it */
    char name[64];
};

struct testbot {
    struct platform base; /* first */
    struct testbots *all; /* borrowed */
    struct list link;     /* testbots->bots */
};

struct thing { /* what a gateway did */
    struct list link;
    char *kind, *text; /* owned; @text is "" where there is none */
    struct buf json;
};

struct heard { /* what a person wrote */
    struct list link;
    char id[DELIVERY_ID_CHARS + 1]; /* of its delivery to the instance */
    struct arena arena;
    struct event ev;
};

struct saying {       /* waits for the route of its platform */
    struct list link; /* testbots->sayings */
    struct testbots *t;
    struct platform *p;
    struct kind *kind;
    struct arena arena;
    struct event ev;
    accepted_cb *done;
    void *ctx;
};

struct testbots {
    struct host_watch watch;
    struct host *host;   /* borrowed, as the next three */
    struct facts *facts; /* borrowed */
    struct str tenant, instance;
    struct list kinds, bots, things, heard, sayings; /* owned, oldest first */
    struct map heard_by_id;                          /* borrowed from @heard */
    size_t n_bots, n_things, n_heard, bytes;
    uint64_t number;      /* of messages, both ways */
    char made[32];        /* testbots_message_id() */
    bool asleep;          /* the instance, when it changed last */
    struct testbot *last; /* that a gateway named; borrowed; NULL: none */
};

/* ---- what came ---- */

static void thing_free(struct testbots *t, struct thing *x)
{
    t->n_things--;
    t->bytes -= x->json.n;
    list_remove(&x->link);
    buf_done(&x->json);
    free(x->kind);
    free(x->text);
    free(x);
}

/* Begins an object with what all things have. */
static struct jw thing_begin(struct testbots *t, struct thing **ret, const char *kind,
                             struct str text)
{
    struct thing *x = xcalloc(1, sizeof *x);
    struct jw w = jw_begin(&x->json);

    x->kind = xstrdup(kind);
    x->text = str_dup(text.p != NULL ? text : STR(""));
    *ret = x;
    jw_obj(&w);
    jw_kstr(&w, "kind", str_of(kind));
    jw_ki64(&w, "at", clock_wall_ms(host_env(t->host)->clock));
    return w;
}

static void thing_end(struct testbots *t, struct thing *x, struct jw *w)
{
    jw_end_obj(w);
    t->n_things++;
    t->bytes += x->json.n;
    list_append(&t->things, &x->link);
    while (t->n_things > TESTBOTS_KEPT || (t->bytes > TESTBOTS_BYTES && t->n_things > 1))
        thing_free(t, list_first(&t->things, struct thing, link));
}

bool testbots_take(struct testbots *t, struct str what, const struct regex *match, struct buf *out)
{
    list_each (&t->things, it, nxt) {
        struct thing *x = list_entry(it, struct thing, link);
        if (!str_eq(str_of(x->kind), what) ||
            (match != NULL && !regex_found(match, str_of(x->text)) &&
             !regex_found(match, buf_str(&x->json))))
            continue;
        buf_add_str(out, buf_str(&x->json));
        thing_free(t, x);
        return true;
    }
    return false;
}

/* ---- acks and sleeps ---- */

static void heard_free(struct testbots *t, struct heard *s)
{
    t->n_heard--;
    if (map_get(&t->heard_by_id, str_of(s->id)) == s)
        map_del(&t->heard_by_id, str_of(s->id));
    list_remove(&s->link);
    arena_done(&s->arena);
    free(s);
}

static void remember(struct testbots *t, const struct event *ev)
{
    struct heard *s = xcalloc(1, sizeof *s);
    struct hash128 id;

    delivery_id_of(ev, &host_env(t->host)->store->dedup_key, t->tenant, t->instance, &id);
    delivery_id_format(id, s->id);
    event_copy(ev, &s->arena, &s->ev);
    list_append(&t->heard, &s->link);
    map_put(&t->heard_by_id, str_of(s->id), s);
    if (++t->n_heard > TESTBOTS_KEPT)
        heard_free(t, list_first(&t->heard, struct heard, link));
}

static void write_instance(struct jw *w, struct str tenant, struct str instance)
{
    jw_kstr(w, "tenant", tenant);
    jw_kstr(w, "instance", instance);
}

static void on_acked(struct host_watch *watch, struct str tenant, struct str instance,
                     struct str buffer_id)
{
    struct testbots *t = container_of(watch, struct testbots, watch);
    const struct heard *s = map_get(&t->heard_by_id, buffer_id);
    struct thing *x;
    struct jw w = thing_begin(t, &x, "ack", s != NULL ? s->ev.text : STR_NULL);

    jw_kstr(&w, "bufferId", buffer_id);
    write_instance(&w, tenant, instance);
    if (s != NULL) {
        jw_kstr(&w, "platform", s->ev.platform);
        jw_kstr(&w, "bot", s->ev.bot);
        jw_kstr(&w, "chat_id", s->ev.chat_id);
        jw_kstr(&w, "message_id", s->ev.message_id);
        jw_kstr(&w, "text", s->ev.text);
    }
    thing_end(t, x, &w);
}

static void on_changed(struct host_watch *watch, struct str tenant, struct str instance,
                       const char *state)
{
    struct testbots *t = container_of(watch, struct testbots, watch);
    bool asleep = strcmp(state, "asleep") == 0;
    bool ours = str_eq(tenant, t->tenant) && str_eq(instance, t->instance);
    struct thing *x;

    if (asleep && !(ours && t->asleep)) {
        struct jw w = thing_begin(t, &x, "sleep", STR_NULL);
        write_instance(&w, tenant, instance);
        thing_end(t, x, &w);
    }
    if (ours)
        t->asleep = asleep;
}

/* ---- actions ---- */

static void write_action(struct jw *w, const struct action *a)
{
    const struct {
        const char *key;
        struct str value;
    } texts[] = {{"chat_id", a->chat_id},         {"content", a->content},
                 {"reply_to", a->reply_to},       {"thread_id", a->thread_id},
                 {"session_key", a->session_key}, {"capability", a->kind},
                 {"media_kind", a->media_kind},   {"source_url", a->source_url},
                 {"filename", a->filename},       {"prompt_kind", a->prompt_kind},
                 {"prompt_id", a->prompt_id},     {"emoji", a->emoji},
                 {"thread_name", a->thread_name}};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        jw_kstr_opt(w, texts[i].key, texts[i].value);
    if (a->op == ACTION_REACT)
        jw_kbool(w, "remove", a->remove);
    if (json_type(a->options) == JSON_ARRAY)
        jw_kvalue(w, "options", a->options);
    if (json_is_object(a->metadata))
        jw_kvalue(w, "metadata", a->metadata);
}

/* Runs after the guard, and after the sender fetched the file of a send_media. */
static void act(struct platform *p, struct action_id id, const struct action_from *from,
                const struct action *a)
{
    struct testbots *t = container_of(p, struct testbot, base)->all;
    bool makes = a->op == ACTION_SEND || a->op == ACTION_SEND_MEDIA || a->op == ACTION_PROMPT;
    struct str message = makes ? testbots_message_id(t) : a->message_id;
    struct action_result r = {.success = true, .message_id = message};
    bool speaks = a->op == ACTION_SEND || a->op == ACTION_EDIT || a->op == ACTION_PROMPT;
    const char *why = a->op == ACTION_PROMPT ? prompt_wrong(a) : NULL;
    struct thing *x;

    if (a->op == ACTION_FOLLOW_UP)
        why = VAULT_REFUSED; /* a test bot gets no interactions, so it holds no capability */
    else if (speaks && str_is_empty(a->content))
        why = "the message is empty";
    if (why != NULL) {
        host_fail(p->host, id, "%s", why);
        return;
    }
    if (a->op == ACTION_THREAD_CREATE)
        r.thread_id = testbots_message_id(t);
    struct jw w = thing_begin(t, &x, action_op_name(a->op), a->content);
    write_instance(&w, from->tenant, from->instance);
    jw_kstr(&w, "platform", str_of(p->ops->name));
    jw_kstr(&w, "bot", str_of(p->bot));
    jw_kstr_opt(&w, "message_id", message);
    jw_kstr_opt(&w, "thread_made", r.thread_id);
    write_action(&w, a);
    thing_end(t, x, &w);
    host_result(p->host, id, &r);
}

/* ---- bots ---- */

static enum bh_err bot_open(struct platform *p, char *ret_why)
{
    struct testbot *b = container_of(p, struct testbot, base);

    b->all = container_of(p->ops, struct kind, ops)->all;
    list_append(&b->all->bots, &b->link);
    b->all->n_bots++;
    return BH_OK;
}

static void bot_close(struct platform *p)
{
    struct testbot *b = container_of(p, struct testbot, base);
    struct platform_settings *own = (struct platform_settings *)p->settings;

    list_remove(&b->link);
    if (b->all->last == b)
        b->all->last = NULL;
    b->all->n_bots--;
    free(own->platform);
    free(own->bot);
    free(own);
}

/* Its sender makes no requests, and only fetches files. */
static const struct platform_ops test_ops = {.size = sizeof(struct testbot),
                                             .label = "the test bot",
                                             .open = bot_open,
                                             .close = bot_close,
                                             .act = act};

static struct kind *kind_of(struct testbots *t, struct str platform)
{
    const struct platform_ops *real = platform_find(platform);

    list_each (&t->kinds, it, nxt) {
        struct kind *k = list_entry(it, struct kind, link);
        if (str_eq(str_of(k->name), platform))
            return k;
    }
    struct kind *k = xcalloc(1, sizeof *k);
    snprintf(k->name, sizeof k->name, "%.*s", STR_FMT(platform));
    k->all = t;
    k->ops = test_ops;
    k->ops.name = k->name;
    k->descriptor = real != NULL ? *real->descriptor
                                 : (struct descriptor){.platform = k->name,
                                                       .label = k->name,
                                                       .max_message_length = 4096,
                                                       .supports_edit = true,
                                                       .markdown_dialect = "markdown",
                                                       .len_unit = "chars",
                                                       .ops = (1u << ACTION_UNKNOWN) - 1};
    k->ops.descriptor = &k->descriptor;
    k->ops.ids_per_chat = real != NULL && real->ids_per_chat;
    list_append(&t->kinds, &k->link);
    return k;
}

/* NULL: @ret_why says why. */
static struct testbot *open_bot(struct testbots *t, struct str platform, struct str bot,
                                char *ret_why)
{
    struct kind *k;

    if (platform.n >= sizeof k->name || !str_has_only(platform, "-_.") || bot.n > 128 ||
        !facts_name_ok(platform) || !facts_name_ok(bot)) {
        bh_why(ret_why, "a platform is a word of letters, digits, '-', '_' and '.', and a bot has "
                        "1 to 128 characters without blanks");
        return NULL;
    }
    if (t->n_bots >= TESTBOTS_MAX) {
        bh_why(ret_why, "there are %d bots already", TESTBOTS_MAX);
        return NULL;
    }
    struct platform_settings *own = xcalloc(1, sizeof *own); /* bot_close() frees it */
    *own = (struct platform_settings){.platform = str_dup(platform), .bot = str_dup(bot)};
    k = kind_of(t, platform);
    if (host_open_ops(t->host, &k->ops, own, ret_why) != BH_OK)
        return NULL;
    return list_entry(t->bots.prev, struct testbot, link);
}

/* A gateway's hello opens the bots of platforms that exist; others stay unknown, as they are to a
 * server with real bots. */
static bool on_missing(struct host_watch *w, struct str platform, struct str bot)
{
    struct testbots *t = container_of(w, struct testbots, watch);
    char why[256];

    if (platform_find(platform) == NULL || str_is_empty(bot))
        return false;
    struct testbot *b = open_bot(t, platform, bot, why);
    if (b != NULL)
        t->last = b;
    return b != NULL;
}

struct testbots *testbots_new(struct host *host, struct facts *facts, struct str tenant,
                              struct str instance, char *ret_why)
{
    struct testbots *t = xcalloc(1, sizeof *t);

    *t = (struct testbots){.watch = {.missing = on_missing,
                                     .acked = on_acked,
                                     .changed = on_changed},
                           .host = host,
                           .facts = facts,
                           .tenant = tenant,
                           .instance = instance};
    list_init(&t->kinds);
    list_init(&t->bots);
    list_init(&t->things);
    list_init(&t->heard);
    list_init(&t->sayings);
    if (open_bot(t, STR(DEFAULT_PLATFORM), STR(DEFAULT_BOT), ret_why) == NULL) {
        testbots_free(t);
        return NULL;
    }
    host_set_watch(host, &t->watch);
    return t;
}

void testbots_default(const struct testbots *t, struct str *platform, struct str *bot)
{
    const struct testbot *b =
        t->last != NULL ? t->last : list_first(&t->bots, const struct testbot, link);

    if (str_is_empty(*platform))
        *platform = str_of(b->base.ops->name);
    if (!str_is_empty(*bot))
        return;
    *bot = STR(DEFAULT_BOT);
    for (const struct list *it = t->bots.next; it != &t->bots; it = it->next) {
        const struct testbot *other = list_entry(it, const struct testbot, link);
        if (str_eq(str_of(other->base.ops->name), *platform))
            *bot = str_of(other->base.bot);
    }
    if (t->last != NULL && str_eq(str_of(t->last->base.ops->name), *platform))
        *bot = str_of(t->last->base.bot);
}

/* ---- a person ---- */

struct str testbots_message_id(struct testbots *t)
{
    snprintf(t->made, sizeof t->made, "m%llu", (unsigned long long)++t->number);
    return str_of(t->made);
}

static void saying_free(struct saying *s)
{
    list_remove(&s->link);
    arena_done(&s->arena);
    free(s);
}

static void on_routed(void *ctx, enum bh_err err, const char *why)
{
    struct saying *s = ctx;

    s->kind->routed = true;
    remember(s->t, &s->ev);
    host_accept(s->t->host, s->p, &s->ev, s->done, s->ctx);
    saying_free(s);
}

bool testbots_say(struct testbots *t, const struct event *ev, accepted_cb *done, void *ctx,
                  char *ret_why)
{
    struct platform *p = host_platform(t->host, ev->platform, ev->bot);
    struct testbot *b = p == NULL ? open_bot(t, ev->platform, ev->bot, ret_why) : NULL;
    struct buf id = BUF_INIT;

    if (p == NULL && b == NULL)
        return false;
    struct saying *s = xcalloc(1, sizeof *s);
    *s = (struct saying){.t = t, .p = p != NULL ? p : &b->base, .done = done, .ctx = ctx};
    s->kind = kind_of(t, ev->platform);
    list_init(&s->link);
    list_append(&t->sayings, &s->link);
    struct event named = *ev;
    named.event_id = str_is_empty(ev->message_id) ? testbots_message_id(t)
                                                  : delivery_event_id(&id, s->p->ops->ids_per_chat,
                                                                      ev->chat_id, ev->message_id);
    named.route_key = !str_is_empty(ev->scope_id)  ? ev->scope_id
                      : !str_is_empty(ev->chat_id) ? ev->chat_id
                                                   : ev->bot;
    event_copy(&named, &s->arena, &s->ev);
    buf_done(&id);
    if (s->kind->routed)
        on_routed(s, BH_OK, NULL);
    else
        facts_route_add(t->facts,
                        &(struct route_spec){.platform = str_of(s->kind->name),
                                             .key = STR("*"),
                                             .tenant = t->tenant,
                                             .instance = t->instance,
                                             .open = true},
                        on_routed, s);
    return true;
}

void testbots_free(struct testbots *t)
{
    if (t == NULL)
        return;
    list_each (&t->things, it, nxt)
        thing_free(t, list_entry(it, struct thing, link));
    list_each (&t->heard, it, nxt)
        heard_free(t, list_entry(it, struct heard, link));
    list_each (&t->sayings, it, nxt)
        saying_free(list_entry(it, struct saying, link));
    list_each (&t->kinds, it, nxt)
        free(list_entry(it, struct kind, link));
    map_done(&t->heard_by_id);
    free(t);
}
