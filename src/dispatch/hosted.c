/* hosted.c - design.  (hosted.h has the contract and the picture.)
 *
 * The id of the gateway ends with a hash of instance, platform, bot and `open`.  When one of
 * these changes, the new gateway is added before the old one is revoked, so an instance that
 * stays the same keeps its mailbox and its links.
 *
 * facts_gateway_add() cannot be cancelled.  So its callback gets an object of its own, which
 * forgets the hosted agent when that goes first. */
#include "dispatch/hosted.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/bucket.h"
#include "base/crypto.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "net/spawner.h"

#define REST_FIRST_MS 1000
#define REST_LONGEST_MS 60000
#define WELL_MS 60000      /* a child that ran for so long begins with the first backoff again */
#define GRACE "5s"         /* for its turns, when it is stopped; ... */
#define GRACE_MS 15000     /* ... then its programs end, and the chats are told */
#define PREDECESSOR_MS 100 /* between looks whether it has ended */
#define ENV_WORDS 5

enum hosted_state { IDLE, ENTERING, RUNNING, RESTING, STOPPING };

struct hosted {
    struct list link;        /* hosts->all, or hosts->leaving while STOPPING */
    struct dispatch *d;      /* borrowed */
    struct agent_settings s; /* owned */
    char *gateway;           /* owned; the id of its gateway */
    bool seen;               /* by hosted_update() */
    bool expected;           /* by the relay, until its gateway is there */
    enum hosted_state state;
    struct entering *entering; /* owned by itself; ENTERING */
    struct spawn *run;         /* RUNNING, STOPPING */
    struct timer turn;         /* IDLE, RESTING */
    unsigned failures;         /* in a row */
    int64_t started_ms;
    struct bucket_level lines;
    uint64_t lines_untold;
    char said[160]; /* its last line on stderr */
    char problem[256];
    char key[]; /* of hosts->by_key, unless STOPPING */
};

struct entering {
    struct hosted *h; /* NULL: gone */
};

struct hosts {
    struct dispatch *d; /* borrowed */
    struct list all;    /* struct hosted, owned */
    struct list leaving;
    struct map by_key; /* those of @all, by tenant and id */
    bool stopping;
};

static struct clock *clock_of(const struct hosted *h)
{
    return h->d->env.clock;
}

/* ---- the command ---- */

const char *hosted_program(void)
{
    static char path[PATH_MAX];
    ssize_t n = *path == '\0' ? readlink("/proc/self/exe", path, sizeof path - 1) : 0;

    if (n > 0)
        path[n] = '\0';
    return *path != '\0' ? path : "bellhop";
}

void hosted_folder(const char *state_dir, struct buf *out)
{
    buf_printf(out, "%s/agents", state_dir);
}

static void seconds(char *out, size_t size, int64_t ms)
{
    snprintf(out, size, "%llds", (long long)((ms + 999) / 1000));
}

size_t hosted_command(const struct agent_settings *s, const char *state_dir,
                      struct hosted_words *room, const char *argv[HOSTED_WORDS + 1])
{
    bool chat = strcmp(s->substrate, "chat") == 0, acp = strcmp(s->substrate, "acp") == 0;
    size_t n = 0;

    argv[n++] = hosted_program();
    argv[n++] = "agent";
    argv[n++] = "--quiet";
    BUF_LOCAL folder = BUF_INIT;
    hosted_folder(state_dir, &folder);
    snprintf(room->state, sizeof room->state, "%s", buf_z(&folder));
    argv[n++] = "--state";
    argv[n++] = room->state;
    if (s->platform != NULL) {
        snprintf(room->identity, sizeof room->identity, "%s=%s", s->platform, s->bot);
        argv[n++] = "--platform";
        argv[n++] = room->identity;
    }
    if (s->dir != NULL) {
        argv[n++] = "--dir";
        argv[n++] = s->dir;
    }
    if (acp) {
        argv[n++] = "--acp";
        seconds(room->permission, sizeof room->permission, s->permission_ms);
        argv[n++] = "--permission-timeout";
        argv[n++] = room->permission;
        snprintf(room->sessions, sizeof room->sessions, "%u", (unsigned)s->process_sessions);
        argv[n++] = "--sessions";
        argv[n++] = room->sessions;
        if (s->progress)
            argv[n++] = "--progress";
        if (s->merge)
            argv[n++] = "--merge";
        if (s->shared_groups)
            argv[n++] = "--shared-groups";
        if (s->login != NULL) {
            argv[n++] = "--login";
            argv[n++] = s->login;
        }
    }
    if (s->url != NULL) { /* responses and chat */
        argv[n++] = chat ? "--chat" : "--responses";
        argv[n++] = s->url;
        argv[n++] = "--model";
        argv[n++] = s->model;
        seconds(room->timeout, sizeof room->timeout, s->timeout_ms);
        argv[n++] = "--timeout";
        argv[n++] = room->timeout;
    }
    if (chat) {
        snprintf(room->history, sizeof room->history, "%u", (unsigned)s->history);
        argv[n++] = "--history";
        argv[n++] = room->history;
    }
    argv[n++] = "--grace";
    argv[n++] = GRACE;
    if (s->command != NULL) {
        seconds(room->timeout, sizeof room->timeout, s->timeout_ms);
        argv[n++] = "--turn-timeout";
        argv[n++] = room->timeout;
        argv[n++] = "--";
        for (char *const *word = s->command; *word != NULL; word++) {
            if (n == HOSTED_WORDS)
                return 0;
            argv[n++] = *word;
        }
    }
    argv[n] = NULL;
    return n;
}

/* ---- its gateway ---- */

#define PREFIX "hosted:"

static void write_prefix(struct buf *out, const char *tenant, const char *id)
{
    buf_printf(out, PREFIX "%.40s:%.60s:", tenant, id);
}

bool hosted_owns(const char *gateway)
{
    return str_starts(str_of(gateway), STR(PREFIX));
}

static const char *instance_of(const struct agent_settings *s)
{
    return s->instance != NULL ? s->instance : s->id;
}

static char *gateway_id(const struct agent_settings *s)
{
    struct buf text = BUF_INIT, out = BUF_INIT;
    uint8_t hash[SHA256_BYTES];

    buf_printf(&text, "%s\x1f%s\x1f%s\x1f%s\x1f%s\x1f%d", s->tenant, s->id, instance_of(s),
               s->platform != NULL ? s->platform : "", s->bot != NULL ? s->bot : "", s->open);
    sha256(buf_str(&text), hash);
    write_prefix(&out, s->tenant, s->id);
    hex_add(&out, hash, 6);
    buf_done(&text);
    return buf_take(&out);
}

/* Names may begin alike, so another agent's gateway may have the prefix too. */
static bool is_of_another(const struct hosts *t, const char *gateway, const char *tenant,
                          const char *id)
{
    list_each (&t->all, it, nxt) {
        const struct hosted *h = list_entry(it, struct hosted, link);
        if (strcmp(h->gateway, gateway) == 0)
            return strcmp(h->s.tenant, tenant) != 0 || strcmp(h->s.id, id) != 0;
    }
    return false;
}

/* Another gateway of the instance, which is not the agent's, was added for the bot too. */
static bool has_other_gateway(const struct dispatch *d, const struct gateway *g,
                              const struct route *r, struct str prefix)
{
    struct list *all;

    facts_gateways(d->env.facts, &all);
    for (const struct list *it = all->next; it != all; it = it->next) {
        const struct gateway *other = list_entry(it, const struct gateway, link);
        if (other->revoked_ms == 0 && strcmp(other->tenant, g->tenant) == 0 &&
            strcmp(other->instance, g->instance) == 0 && !str_starts(str_of(other->id), prefix) &&
            gateway_has_bot(other, str_of(r->platform), str_of(r->key)))
            return true;
    }
    return false;
}

/* The bot that @g was opened with is closed again, unless the agent as it is @now opens it. */
static void close_bot(struct dispatch *d, const struct gateway *g, struct str prefix,
                      const struct agent_settings *now)
{
    struct list *all;

    facts_routes(d->env.facts, &all);
    list_each (all, it, nxt) {
        const struct route *r = list_entry(it, struct route, link);
        bool stays = now != NULL && now->open && now->platform != NULL &&
                     strcmp(now->platform, r->platform) == 0 && strcmp(now->bot, r->key) == 0 &&
                     strcmp(instance_of(now), g->instance) == 0;
        if (!r->open || stays || r->instance == NULL || strcmp(r->instance, g->instance) != 0 ||
            strcmp(r->tenant, g->tenant) != 0 ||
            !gateway_has_bot(g, str_of(r->platform), str_of(r->key)) ||
            has_other_gateway(d, g, r, prefix))
            continue;
        facts_route_remove(d->env.facts,
                           &(struct route_spec){str_of(r->platform), str_of(r->key),
                                                str_of(r->tenant), str_of(r->instance)},
                           NULL, NULL);
    }
}

/* Revokes a gateway of an agent.  Its instance may stay without one, while mail waits there. */
static void revoke_gateway(struct dispatch *d, const struct gateway *g)
{
    struct str tenant = str_of(g->tenant), instance = str_of(g->instance);
    struct instance_view v;
    size_t n = 0;
    struct list *all;

    facts_gateways(d->env.facts, &all);
    list_each (all, it, nxt) {
        const struct gateway *other = list_entry(it, struct gateway, link);
        n += other->revoked_ms == 0 && str_eq(str_of(other->tenant), tenant) &&
             str_eq(str_of(other->instance), instance);
    }
    if (n == 1 && relay_instance(d->env.relay, tenant, instance, &v) && v.entries > 0)
        log_warn(NULL,
                 "messages wait for an instance that no agent is any more: tenant=%s instance=%s "
                 "messages=%llu; bellhop doctor says what to do",
                 g->tenant, g->instance, (unsigned long long)v.entries);
    facts_gateway_revoke(d->env.facts, str_of(g->id), NULL, NULL);
}

/* Revokes the gateways of the agent other than @but (NULL: all of them), and closes the bots that
 * they opened.  @now: the agent as it is; NULL: it is removed. */
static void revoke_gateways(struct dispatch *d, const char *tenant, const char *id, const char *but,
                            const struct agent_settings *now)
{
    struct buf prefix = BUF_INIT;
    struct list *all;

    write_prefix(&prefix, tenant, id);
    facts_gateways(d->env.facts, &all);
    list_each (all, it, nxt) {
        const struct gateway *g = list_entry(it, struct gateway, link);
        if (g->revoked_ms == 0 && str_starts(str_of(g->id), buf_str(&prefix)) &&
            strcmp(g->tenant, tenant) == 0 && (but == NULL || strcmp(g->id, but) != 0) &&
            !is_of_another(d->hosts, g->id, tenant, id)) {
            close_bot(d, g, buf_str(&prefix), now);
            revoke_gateway(d, g);
        }
    }
    buf_done(&prefix);
}

static bool is_configured(const struct dispatch *d, const struct gateway *g)
{
    bool found = false;

    list_each (&d->agents->configs, it, nxt) {
        const struct agent_config *c = list_entry(it, struct agent_config, link);
        BUF_LOCAL prefix = BUF_INIT;
        if ((c->ops->can & SUBSTRATE_HOSTED) == 0 || strcmp(c->s.tenant, g->tenant) != 0)
            continue;
        write_prefix(&prefix, c->s.tenant, c->s.id);
        found |= str_starts(str_of(g->id), buf_str(&prefix));
    }
    return found;
}

void hosted_revoke_removed(struct dispatch *d)
{
    struct list *all;

    if (strcmp(d->env.settings->added, "all") != 0)
        return; /* added agents may be left out, and come back */
    facts_gateways(d->env.facts, &all);
    list_each (all, it, nxt) {
        const struct gateway *g = list_entry(it, struct gateway, link);
        if (g->revoked_ms != 0 || !hosted_owns(g->id) || is_configured(d, g))
            continue;
        log_info(NULL, "an agent is gone from the configuration: tenant=%s gateway=%s", g->tenant,
                 g->id);
        close_bot(d, g, str_of(g->id), NULL);
        revoke_gateway(d, g);
    }
}

/* ---- running ---- */

static void rest(struct hosted *h)
{
    int64_t ms = clock_backoff_ms(++h->failures, REST_FIRST_MS, REST_LONGEST_MS);

    h->state = RESTING;
    timer_set(clock_of(h), &h->turn,
              ms * 3 / 4 + (int64_t)rand_below(h->d->env.rand, (uint64_t)ms / 2));
}

static void trouble(struct hosted *h, const char *why)
{
    snprintf(h->problem, sizeof h->problem, "%s", why);
    log_warn(NULL, "hosted agent: tenant=%s agent=%s %s", h->s.tenant, h->s.id, why);
    rest(h);
}

/* Nobody waits for the gateway of the agent any more: it is there, or cannot be added. */
static void expected_no_more(struct hosted *h)
{
    if (h->expected)
        relay_expect(h->d->env.relay, -1);
    h->expected = false;
}

static void hosted_free(struct hosted *h)
{
    timer_stop(clock_of(h), &h->turn);
    expected_no_more(h);
    list_remove(&h->link);
    if (h->entering != NULL)
        h->entering->h = NULL;
    spawn_cancel(&h->run);
    agent_settings_done(&h->s);
    free(h->gateway);
    free(h);
}

static void on_line(void *ctx, struct str line)
{
    struct hosted *h = ctx;
    size_t n = line.n < sizeof h->said - 1 ? line.n : sizeof h->said - 1;

    for (size_t i = 0; i < n; i++)
        h->said[i] = (unsigned char)line.p[i] < ' ' || line.p[i] == 0x7f ? ' ' : line.p[i];
    h->said[n] = '\0';
    if (!bucket_take(&h->lines, clock_now_ms(clock_of(h)), HOSTED_LINES, 5 * HOSTED_LINES)) {
        h->lines_untold++;
        return;
    }
    log_info(NULL, "hosted agent says: tenant=%s agent=%s more=%llu %s", h->s.tenant, h->s.id,
             (unsigned long long)h->lines_untold, h->said);
    h->lines_untold = 0;
}

static void on_child_end(void *ctx, const struct spawn_end *end)
{
    struct hosted *h = ctx;
    char why[256];

    h->run = NULL;
    if (h->state == STOPPING) {
        hosted_free(h);
        return;
    }
    if (clock_now_ms(clock_of(h)) - h->started_ms >= WELL_MS)
        h->failures = 0;
    snprintf(why, sizeof why, "it ended: %.60s%s%.150s", end->how, *h->said != '\0' ? ": " : "",
             h->said);
    trouble(h, why);
}

static void run(struct hosted *h, const char *secret)
{
    struct spawner *spawner = h->d->env.spawner;
    const char *argv[HOSTED_WORDS + 1];
    struct hosted_words room = {0};
    hosted_command(&h->s, h->d->env.state_dir, &room, argv);
    int number = spawner != NULL ? spawner_learn(spawner, argv) : -1;
    const char *url = h->d->env.local_url != NULL ? *h->d->env.local_url : NULL, *env[ENV_WORDS];
    struct buf texts[4] = {BUF_INIT, BUF_INIT, BUF_INIT, BUF_INIT};
    size_t n = 0;

    if (url == NULL) {
        trouble(h, "it cannot connect: bellhop listens on a Unix socket only, or with TLS, and has "
                   "no public_url");
        return;
    }
    if (number < 0) {
        trouble(h, "its command came after the start, and dispatch.added is remote: restart the "
                   "server");
        return;
    }
    buf_printf(&texts[0], "GATEWAY_RELAY_URL=%s", url);
    buf_printf(&texts[1], "GATEWAY_RELAY_ID=%s", h->gateway);
    buf_printf(&texts[2], "GATEWAY_RELAY_SECRET=%s", secret);
    for (; n < 3; n++)
        env[n] = buf_z(&texts[n]);
    if (h->s.key != NULL) {
        buf_printf(&texts[3], "BELLHOP_MODEL_KEY=%s", h->s.key);
        env[n++] = buf_z(&texts[3]);
    }
    env[n] = NULL;
    *h->said = '\0';
    h->run = spawner_run(spawner,
                         &(struct spawn_order){.command = (unsigned)number,
                                               .env = env,
                                               .max_output = 0,
                                               .heard = on_line},
                         on_child_end, h);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        buf_wipe(&texts[i]);
    if (h->run == NULL) {
        trouble(h, "too many programs run already");
        return;
    }
    h->state = RUNNING;
    h->started_ms = clock_now_ms(clock_of(h));
    *h->problem = '\0';
    log_info(NULL, "hosted agent started: tenant=%s agent=%s", h->s.tenant, h->s.id);
}

static void on_entered(void *ctx, enum bh_err err, const char *why)
{
    struct entering *e = ctx;
    struct hosted *h = e->h;
    const struct gateway *g;
    char text[200];

    free(e);
    if (h == NULL)
        return;
    h->entering = NULL;
    expected_no_more(h);
    g = facts_gateway(h->d->env.facts, str_of(h->gateway));
    if (err != BH_OK || g == NULL || g->n_secrets == 0) {
        snprintf(text, sizeof text, "its gateway cannot be added: %.150s",
                 why != NULL ? why : bh_err_word(err));
        trouble(h, text);
        return;
    }
    revoke_gateways(h->d, h->s.tenant, h->s.id, h->gateway, &h->s);
    run(h, g->secrets[0].text);
}

/* The program that an earlier version of the entry started still ends its turn. */
static bool has_predecessor(const struct hosted *h)
{
    list_each (&h->d->hosts->leaving, it, nxt) {
        const struct hosted *old = list_entry(it, struct hosted, link);
        if (strcmp(old->s.tenant, h->s.tenant) == 0 && strcmp(old->s.id, h->s.id) == 0)
            return true;
    }
    return false;
}

static void on_turn(struct timer *t)
{
    struct hosted *h = container_of(t, struct hosted, turn);
    struct facts *f = h->d->env.facts;
    const struct gateway *g = facts_gateway(f, str_of(h->gateway));
    struct buf id = BUF_INIT, secret = BUF_INIT;
    struct gateway_for bot = {.platform = str_of(h->s.platform),
                              .bot = str_of(h->s.bot),
                              .open = h->s.open};

    if (has_predecessor(h)) {
        timer_set(clock_of(h), t, PREDECESSOR_MS);
        return;
    }
    if (g != NULL && g->revoked_ms == 0 && g->n_secrets > 0) {
        expected_no_more(h);
        run(h, g->secrets[0].text);
        return;
    }
    h->state = ENTERING;
    h->entering = xcalloc(1, sizeof *h->entering);
    h->entering->h = h;
    facts_gateway_add(f,
                      &(struct gateway_spec){.id = str_of(h->gateway),
                                             .tenant = str_of(h->s.tenant),
                                             .instance = str_of(instance_of(&h->s)),
                                             .bots = h->s.platform != NULL ? &bot : NULL,
                                             .n_bots = h->s.platform != NULL},
                      &id, &secret, on_entered, h->entering);
    buf_done(&id);
    buf_wipe(&secret);
}

/* ---- the table ---- */

static void stop(struct hosted *h)
{
    map_del(&h->d->hosts->by_key, str_of(h->key));
    if (h->run == NULL) {
        hosted_free(h);
        return;
    }
    list_move(&h->link, &h->d->hosts->leaving);
    h->state = STOPPING;
    spawn_stop(h->run, GRACE_MS);
}

static void start(struct hosts *t, const struct agent_settings *s)
{
    struct str tenant = str_of(s->tenant), id = str_of(s->id);
    struct hosted *h = xcalloc(1, sizeof *h + PAIR_BYTES(tenant, id));

    *h = (struct hosted){.d = t->d, .gateway = gateway_id(s), .seen = true};
    agent_settings_copy(&h->s, s);
    timer_init(&h->turn, on_turn);
    timer_set(clock_of(h), &h->turn, 0); /* the server may not listen yet */
    const struct gateway *g = facts_gateway(t->d->env.facts, str_of(h->gateway));
    h->expected = s->platform != NULL && !has_predecessor(h) && (g == NULL || g->revoked_ms != 0);
    if (h->expected) /* people may write before it is on disk */
        relay_expect(t->d->env.relay, 1);
    list_append(&t->all, &h->link);
    map_put(&t->by_key, pair_write(h->key, tenant, id), h);
}

static void update_one(struct hosts *t, const struct agent_config *c)
{
    const char *argv[HOSTED_WORDS + 1];
    struct hosted_words room = {0};
    struct hosted *h = pair_get(&t->by_key, str_of(c->s.tenant), str_of(c->s.id));
    bool fits = hosted_command(&c->s, t->d->env.state_dir, &room, argv) > 0;

    if (!fits)
        log_warn(NULL, "hosted agent left out: tenant=%s agent=%s its command has over %d words",
                 c->s.tenant, c->s.id, HOSTED_WORDS);
    if (h != NULL && strcmp(h->s.substrate, c->s.substrate) == 0 &&
        config_same(&h->s, &c->s, c->ops->config->keys)) {
        h->seen = true;
        return;
    }
    if (h != NULL)
        stop(h);
    if (fits)
        start(t, &c->s);
}

void hosted_update(struct dispatch *d)
{
    struct hosts *t = d->hosts;

    if (t == NULL || t->stopping)
        return;
    list_each (&t->all, it, nxt)
        list_entry(it, struct hosted, link)->seen = false;
    list_each (&d->agents->configs, it, nxt) {
        const struct agent_config *c = list_entry(it, struct agent_config, link);
        if ((c->ops->can & SUBSTRATE_HOSTED) != 0)
            update_one(t, c);
    }
    list_each (&t->all, it, nxt) {
        struct hosted *h = list_entry(it, struct hosted, link);
        if (h->seen)
            continue;
        revoke_gateways(d, h->s.tenant, h->s.id, NULL, NULL);
        stop(h);
    }
}

const char *hosted_problem(const struct dispatch *d, struct str tenant, struct str id)
{
    const struct hosted *h = d->hosts != NULL ? pair_get(&d->hosts->by_key, tenant, id) : NULL;

    return h != NULL && *h->problem != '\0' ? h->problem : NULL;
}

/* ---- life ---- */

struct hosts *hosts_new(struct dispatch *d)
{
    struct hosts *t = xcalloc(1, sizeof *t);

    t->d = d;
    list_init(&t->all);
    list_init(&t->leaving);
    return t;
}

void dispatch_stop(struct dispatch *d)
{
    struct hosts *t = d->hosts;

    if (t == NULL || t->stopping)
        return;
    t->stopping = true;
    list_each (&t->all, it, nxt)
        stop(list_entry(it, struct hosted, link));
}

void hosts_free(struct hosts *t)
{
    if (t == NULL)
        return;
    list_each (&t->all, it, nxt)
        hosted_free(list_entry(it, struct hosted, link));
    list_each (&t->leaving, at, after)
        hosted_free(list_entry(at, struct hosted, link));
    map_done(&t->by_key);
    free(t);
}
