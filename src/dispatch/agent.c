/* agent.c - design.  (agent.h has the contract.)
 *
 * A reload replaces the configuration, so the table copies the entries.  A recipient whose entry is
 * unchanged after a reload keeps its courier and the delivery under way. */
#include "dispatch/agent.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/courier.h"
#include "dispatch/dispatch.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/hosted.h"
#include "dispatch/stored.h"
#include "dispatch/substrate.h"
#include "net/spawner.h"
#include "relay/relay.h"

/* ---- `agents:` and `dispatch:` in the configuration ---- */

#define AT(member) offsetof(struct dispatch_settings, member)

static const struct config_key settings_keys[] = {
    {"dispatch.allow_private", CFG_BOOL, CFG_RELOAD, AT(allow_private), "false",
     .what = "Let webhooks of agents reach private, loopback and link-local addresses "
             "(`wake.allow_private` allows it too)."},
    {"dispatch.added", CFG_CHOICE, CFG_RESTART, AT(added), "all", "all|remote",
     .what = "What agents may use that `bellhop agent add` adds: `all`, or `remote`: nothing of "
             "this machine, no files and no programs. With `all`, a server that was taken over can "
             "run programs outside of its sandbox."},
    {"dispatch.caller_header", CFG_TEXT, CFG_RELOAD, AT(caller_header),
     .what = "The header that names the agent on whose behalf a program calls, such as "
             "`X-Agent-Id`; it becomes `meta.origin.caller_agent_id`. Believed only from keys made "
             "with `--attest`."},
    {"dispatch.answer_quiet", CFG_DURATION, CFG_RELOAD, AT(answer_quiet_ms), "3s", .min = 100,
     .max = 60000,
     .what = "The answer to a request is complete after this time without a message, an edit or "
             "typing, unless the agent marks its last message."},
    {"dispatch.retry", CFG_DURATION, CFG_RELOAD, AT(retry_ms), "1s", .min = 10, .max = 3600000,
     .what = "The pause after a failed delivery; it doubles with each failure."},
    {"dispatch.retry_max", CFG_DURATION, CFG_RELOAD, AT(retry_max_ms), "5m", .min = 10,
     .max = 86400000, .what = "The longest pause between two attempts."},
    {"dispatch.replies", CFG_NUMBER, CFG_RELOAD, AT(replies), "1000", .min = 1, .max = 1000000,
     .what = "Replies kept per agent; the oldest are deleted first."},
    {0},
};
const struct config_section dispatch_config = {.keys = settings_keys,
                                               .size = sizeof(struct dispatch_settings)};

#undef AT
#define AT(member) offsetof(struct agent_settings, member)

static const struct config_key entry_keys[] = {
    {"substrate", CFG_TEXT, CFG_RELOAD, AT(substrate), .required = true,
     .what = "How the agent is reached; required."},
    {"id", CFG_TEXT, CFG_RELOAD, AT(id), .required = true,
     .what = "The agent's id for programs; required, and unique in its tenant."},
    {"tenant", CFG_TEXT, CFG_RELOAD, AT(tenant),
     .what = "The agent's tenant; without it every tenant has an agent of this id, reached the "
             "same way."},
    {"name", CFG_TEXT, CFG_RELOAD, AT(name), .what = "A name for people."},
    {"node", CFG_TEXT, CFG_RELOAD, AT(node),
     .what = "With `store.kind: postgres`: the node (`cluster.node`) on whose machine the agent "
             "runs; without it, the node that serves."},
    {"capabilities", CFG_TEXTS, CFG_RELOAD, AT(capabilities),
     .what = "The capabilities that programs are told, of `deliver`, `wake`, `augment`, "
             "`template`; the default is all that the substrate supports."},
    {"sessions", CFG_TEXTS, CFG_RELOAD, AT(sessions),
     .what = "Sessions of the agent, `name` or `name=target`, for addresses like `agent@name`."},
    {"wake_on_deliver", CFG_BOOL, CFG_RELOAD, AT(wake_on_deliver), "false",
     .what = "A delivery also wakes the agent."},
    {0},
};
static const struct config_section entry = {.keys = entry_keys,
                                            .size = sizeof(struct agent_settings)};

static const struct config_section *kind(size_t i)
{
    return substrates[i] != NULL ? substrates[i]->config : NULL;
}

const struct config_list agents_config = {.name = "agents",
                                          .entry = &entry,
                                          .when = CFG_RELOAD,
                                          .example = "{id: perry, substrate: file, dir: /var/drop}",
                                          .kind_key = "substrate",
                                          .kind = kind};

/* ---- checks across keys ---- */

bool agent_settings_ok(const struct agent_settings *s, char *why)
{
    if (!facts_name_ok(str_of(s->id)) || strlen(s->id) > 120)
        return bh_why(why, "id: expected 1 to 120 printable characters without blanks");
    if (s->tenant != NULL && !facts_name_ok(str_of(s->tenant)))
        return bh_why(why, "tenant: that is no tenant's name");
    const struct substrate_ops *ops = substrate_find(str_of(s->substrate));
    if (s->node != NULL && ops != NULL && (ops->can & SUBSTRATE_HOSTED) != 0)
        return bh_why(why, "node: an agent of substrate %s runs on the node that serves",
                      ops->name);
    if (s->node != NULL && ops != NULL && ops->run == NULL)
        return bh_why(why, "node: an agent of substrate %s is on no machine of ours", ops->name);
    if (s->tenant == NULL && ops != NULL && (ops->can & SUBSTRATE_HOSTED) != 0)
        return bh_why(why, "tenant: an agent of substrate %s needs one", ops->name);
    for (size_t i = 0; s->capabilities != NULL && s->capabilities[i] != NULL; i++)
        if (strcmp(s->capabilities[i], "deliver") != 0 && strcmp(s->capabilities[i], "wake") != 0 &&
            strcmp(s->capabilities[i], "augment") != 0 &&
            strcmp(s->capabilities[i], "template") != 0)
            return bh_why(why,
                          "capabilities: \"%.60s\" is none of deliver, wake, augment, template",
                          s->capabilities[i]);
    return true;
}

bool dispatch_check(const struct config *cfg, char *ret_why)
{
    struct map seen = MAP_INIT;
    bool ok = true;
    char why[256] = "";

    for (size_t i = 0; i < config_count(cfg, &agents_config) && ok; i++) {
        const struct agent_settings *s = config_entry(cfg, &agents_config, i);
        struct str tenant = str_of(s->tenant), id = str_of(s->id);
        char *key = xcalloc(1, PAIR_BYTES(tenant, id));
        char *other = map_put(&seen, pair_write(key, tenant, id), key);
        ok = agent_settings_ok(s, why) &&
             (other == NULL ||
              bh_why(why, "two agents%s%.60s have the id %.100s", tenant.n > 0 ? " of tenant " : "",
                     tenant.n > 0 ? s->tenant : "", s->id));
        free(other);
        const char *file = config_entry_file(cfg, &agents_config, i);
        bool included = strcmp(file, config_path(cfg)) != 0;
        if (!ok)
            snprintf(ret_why, 256, "%.80s%s%d: agents: %.150s", included ? file : "line",
                     included ? ":" : " ", config_entry_line(cfg, &agents_config, i), why);
    }
    map_done_all(&seen);
    return ok;
}

/* ---- paths and programs ---- */

static bool is_on(const struct agent_settings *s, const char *node)
{
    return s->node == NULL || node == NULL || strcmp(s->node, node) == 0;
}

bool dispatch_names_node(const struct config *cfg, const char *node)
{
    for (size_t i = 0; i < config_count(cfg, &agents_config); i++) {
        const struct agent_settings *s = config_entry(cfg, &agents_config, i);
        if (s->node != NULL && is_on(s, node))
            return true;
    }
    return false;
}

void dispatch_each_path(const struct config *cfg, const char *node, dispatch_path_cb *cb, void *ctx)
{
    for (size_t i = 0; i < config_count(cfg, &agents_config); i++) {
        const struct agent_settings *s = config_entry(cfg, &agents_config, i);
        if (!is_on(s, node))
            continue;
        if (s->dir != NULL)
            cb(ctx, s->dir, true);
        if (s->path != NULL)
            cb(ctx, s->path, false);
    }
}

enum bh_err dispatch_spawner(const struct config *cfg, const char *node, const char *state_dir,
                             const char *const *const *more, size_t n_more, struct spawner **ret_s,
                             char *ret_why)
{
    const struct dispatch_settings *d = config_get(cfg, &dispatch_config);
    bool learns = strcmp(d->added, "all") == 0;
    size_t n = config_count(cfg, &agents_config), used = 0;
    struct spawner_words {
        const char *words[HOSTED_WORDS + 1];
        struct hosted_words room;
    } *own = xcalloc(n + 1, sizeof *own);
    const char *const **commands = xcalloc(n + n_more + 2, sizeof *commands);
    const char *const drop[] = {hosted_program(), "drop", NULL};

    *ret_s = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct agent_settings *s = config_entry(cfg, &agents_config, i);
        const struct substrate_ops *ops = substrate_find(str_of(s->substrate));
        if (!is_on(s, node))
            continue;
        if ((ops->can & SUBSTRATE_HOSTED) != 0) {
            if (hosted_command(s, state_dir, &own[i].room, own[i].words) > 0)
                commands[used++] = own[i].words;
        } else if (s->target != NULL) {
            tmux_command(s, own[i].words);
            commands[used++] = own[i].words;
        } else if (s->command != NULL) {
            commands[used++] = (const char *const *)s->command;
        }
    }
    for (size_t i = 0; i < n_more; i++)
        commands[used++] = more[i];
    if (learns)
        commands[used++] = drop;
    if (used > 0)
        *ret_s =
            spawner_new(commands, (unsigned)used, config_secret_variables(cfg), learns, ret_why);
    free(own);
    free(commands);
    return used > 0 && *ret_s == NULL ? BH_UNAVAILABLE : BH_OK;
}

/* ---- entries ---- */

void agent_settings_copy(struct agent_settings *to, const struct agent_settings *from)
{
    *to = *from;
    config_keep(to, entry_keys);
    config_keep(to, substrate_find(str_of(to->substrate))->config->keys);
}

void agent_settings_done(struct agent_settings *s)
{
    config_drop(s, substrate_find(str_of(s->substrate))->config->keys);
    config_drop(s, entry_keys);
}

static bool settings_same(const struct agent_config *a, const struct agent_config *b)
{
    return a->ops == b->ops && config_same(&a->s, &b->s, entry_keys) &&
           config_same(&a->s, &b->s, a->ops->config->keys);
}

static void entry_free(struct agents *t, struct agent_config *c)
{
    if (map_get(&t->by_key, str_of(c->key)) == c)
        map_del(&t->by_key, str_of(c->key));
    list_remove(&c->link);
    agent_settings_done(&c->s);
    free(c);
}

static struct agent_config *entry_add(struct agents *t, const struct agent_settings *s)
{
    struct str tenant = str_of(s->tenant), id = str_of(s->id);
    struct agent_config *c = xcalloc(1, sizeof *c + PAIR_BYTES(tenant, id));

    agent_settings_copy(&c->s, s);
    c->ops = substrate_find(str_of(s->substrate));
    list_append(&t->configs, &c->link);
    map_put(&t->by_key, pair_write(c->key, tenant, id), c);
    return c;
}

const struct agent_config *agents_entry(const struct agents *t, struct str tenant, struct str id)
{
    const struct agent_config *c = pair_get(&t->by_key, tenant, id);

    return c != NULL && !c->of_gateway ? c : NULL;
}

/* The tenant's own entry of this id, else the entry without a tenant; NULL: none. */
static struct agent_config *entry_for(const struct agents *t, struct str tenant, struct str id)
{
    struct agent_config *c = pair_get(&t->by_key, tenant, id);

    return c != NULL ? c : pair_get(&t->by_key, STR_NULL, id);
}

bool agent_config_is_for(const struct agents *t, const struct agent_config *c, struct str tenant)
{
    return entry_for(t, tenant, str_of(c->s.id)) == c;
}

const char *agent_session(const struct agent_config *c, struct str session)
{
    for (char *const *at = c->s.sessions; at != NULL && *at != NULL; at++) {
        struct str rest = str_of(*at), name;
        if (str_split(&rest, '=', &name) && str_eq(name, session))
            return rest.p != NULL ? rest.p : ""; /* the end of a NUL-terminated text */
    }
    return NULL;
}

const char *agent_target(const struct agent_config *c)
{
    const struct agent_settings *s = &c->s;
    const char *const all[] = {s->dir, s->path, s->url, s->target,
                               s->command != NULL ? s->command[0] : NULL};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i] != NULL)
            return all[i];
    return !agent_is_relayed(c) ? NULL : s->instance != NULL ? s->instance : s->id;
}

bool agent_is_remote(const struct recipient *a)
{
    const char *node = a->cfg->s.node, *here = a->d->env.node;

    return node != NULL && here != NULL && strcmp(node, here) != 0;
}

/* ---- agents ---- */

static void agent_free(struct agents *t, struct recipient *a)
{
    calls_agent_gone(t->d, a);
    map_del(&t->agents, str_of(a->key));
    list_remove(&a->link);
    courier_free(a->courier);
    if (a->fd >= 0)
        close(a->fd);
    free(a->instance);
    free(a);
}

void agent_instance(const struct agent_config *c, struct buf *out)
{
    if (!agent_is_relayed(c))
        buf_printf(out, AGENT_INSTANCE "%s", c->s.id);
    else
        buf_add_z(out, c->s.instance != NULL ? c->s.instance : c->s.id);
}

/* True when the directory that the agent's files are in cannot be opened.  The sandbox knows only
 * the directories of the configuration at the start; what is really wrong, the helper finds out. */
static bool is_hidden(const struct agent_settings *s)
{
    const char *slash = s->path != NULL ? strrchr(s->path, '/') : NULL;
    char *dir = s->path == NULL    ? xstrdup(s->dir)
                : slash == NULL    ? xstrdup(".")
                : slash == s->path ? xstrdup("/")
                                   : str_dup(str_make(s->path, (size_t)(slash - s->path)));
    int fd = dir != NULL ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK) : 0;

    free(dir);
    if (fd > 0)
        close(fd);
    return fd < 0;
}

static struct recipient *agent_make(struct agents *t, struct agent_config *c, struct str tenant)
{
    struct str id = str_of(c->s.id);
    struct recipient *a = xcalloc(1, sizeof *a + tenant.n + 1 + PAIR_BYTES(tenant, id));
    struct buf name = BUF_INIT;

    a->d = t->d;
    a->cfg = c;
    a->fd = -1;
    c->spoken = true;
    struct str key = pair_write(a->key, tenant, id);
    a->id = a->key + tenant.n + 1;
    a->tenant = memcpy(a->key + key.n + 1, tenant.p, tenant.n);
    agent_instance(c, &name);
    a->instance = buf_take(&name);
    if (!agent_is_relayed(c))
        a->gw = (struct gateway){.id = (char *)(uintptr_t)a->instance,
                                 .tenant = (char *)(uintptr_t)a->tenant,
                                 .instance = (char *)(uintptr_t)a->instance};
    a->outside = c->stored && is_hidden(&c->s);
    list_append(&t->made, &a->link);
    map_put(&t->agents, key, a);
    if (c->ops->run != NULL && t->d->env.relay != NULL) /* a runner has no relay: remote.h */
        a->courier = courier_new(a);
    return a;
}

/* ---- gateways that no entry names ---- */

static bool has_gateway(const struct agents *t, struct str tenant, struct str id)
{
    const struct facts *f = t->d->env.facts; /* NULL: a runner's */

    return f != NULL && facts_newest_gateway(f, tenant, id) != NULL;
}

static struct agent_config *take_gateway(struct agents *t, struct str tenant, struct str id)
{
    char relay[] = "relay", *names[2] = {str_dup(tenant), str_dup(id)};
    struct agent_settings s = {.substrate = relay, .tenant = names[0], .id = names[1]};
    struct agent_config *c = entry_add(t, &s);

    c->of_gateway = true;
    free(names[0]);
    free(names[1]);
    return c;
}

struct recipient *agents_find(struct agents *t, struct str tenant, struct str id)
{
    struct recipient *a = pair_get(&t->agents, tenant, id);
    struct agent_config *c = entry_for(t, tenant, id);

    if (a != NULL && a->cfg->of_gateway && !has_gateway(t, tenant, id)) {
        agent_free(t, a);
        entry_free(t, c);
        return NULL;
    }
    if (a != NULL || str_is_empty(id) || str_find(id, '\x1f') >= 0)
        return a;
    if (c == NULL && has_gateway(t, tenant, id))
        c = take_gateway(t, tenant, id);
    return c != NULL ? agent_make(t, c, tenant) : NULL;
}

const struct recipient *agents_made(const struct agents *t, struct str tenant, struct str id)
{
    return pair_get(&t->agents, tenant, id);
}

struct recipient *agents_resolve(struct agents *t, struct str tenant, struct str address,
                                 struct str *ret_session)
{
    struct recipient *a = agents_find(t, tenant, address);
    ptrdiff_t at = str_find(address, '@');

    *ret_session = STR_NULL;
    if (a != NULL || at <= 0)
        return a;
    if ((size_t)at + 1 < address.n)
        *ret_session = str_skip(address, (size_t)at + 1);
    return agents_find(t, tenant, str_make(address.p, (size_t)at));
}

/* Counts the entries with this id; @ret_tenant is the tenant of the last. */
static size_t entries_called(const struct agents *t, struct str id, struct str *ret_tenant)
{
    size_t n = 0;

    for (const struct list *it = t->configs.next; it != &t->configs; it = it->next) {
        const struct agent_settings *s = &list_entry(it, const struct agent_config, link)->s;
        if (str_eq(str_of(s->id), id)) {
            *ret_tenant = str_of(s->tenant);
            n++;
        }
    }
    return n;
}

/* The same for an address: the id, or id@session. */
static size_t entries_at(const struct agents *t, struct str address, struct str *ret_tenant)
{
    struct str name;
    size_t n = entries_called(t, address, ret_tenant);

    return n == 0 && str_split(&address, '@', &name) ? entries_called(t, name, ret_tenant) : n;
}

struct str dispatch_tenant_of(const struct dispatch *d, struct str address)
{
    struct str tenant = STR_NULL;

    return entries_at(d->agents, address, &tenant) == 1 ? tenant : STR_NULL;
}

bool dispatch_has_entry(const struct dispatch *d, struct str address)
{
    struct str tenant;

    return entries_at(d->agents, address, &tenant) > 0;
}

/* ---- life ---- */

struct agents *agents_new(struct dispatch *d)
{
    struct agents *t = xcalloc(1, sizeof *t);

    t->d = d;
    list_init(&t->configs);
    list_init(&t->made);
    return t;
}

void agents_free(struct agents *t)
{
    if (t == NULL)
        return;
    list_each (&t->made, it, nxt)
        agent_free(t, list_entry(it, struct recipient, link));
    list_each (&t->configs, it, nxt)
        entry_free(t, list_entry(it, struct agent_config, link));
    map_done(&t->by_key);
    map_done(&t->agents);
    free(t);
}

/* Makes the recipients, and with them the couriers, of agents that have mail in the relay.
 * Collects the names first: making an agent calls the relay, which would invalidate the views. */
static void wake_mail(struct agents *t)
{
    struct buf names = BUF_INIT;
    struct instance_view v;

    for (uint32_t at = 0; t->d->env.relay != NULL && relay_next_instance(t->d->env.relay, &at, &v);)
        if (v.entries > 0 && str_starts(v.instance, STR(AGENT_INSTANCE)))
            buf_printf(&names, "%.*s\x1f%.*s\n", STR_FMT(v.tenant),
                       STR_FMT(str_skip(v.instance, sizeof AGENT_INSTANCE - 1)));
    struct str rest = buf_str(&names), line, tenant;
    while (str_split(&rest, '\n', &line))
        if (str_split(&line, '\x1f', &tenant) && line.p != NULL)
            agents_find(t, tenant, line);
    buf_done(&names);
}

static void take_stored(void *ctx, const struct agent_settings *s)
{
    struct agents *t = ctx;

    if (agents_entry(t, str_of(s->tenant), str_of(s->id)) == NULL)
        entry_add(t, s)->stored = true;
}

void agents_change(struct agents *t, struct str tenant, struct str id,
                   const struct agent_settings *s)
{
    struct recipient *a = pair_get(&t->agents, tenant, id);
    struct agent_config *was = pair_get(&t->by_key, tenant, id);

    if (was != NULL && !was->stored && !was->of_gateway)
        return; /* the file's entry hides it */
    if (a != NULL)
        agent_free(t, a);
    if (was != NULL)
        entry_free(t, was);
    if (s != NULL)
        entry_add(t, s)->stored = true;
    wake_mail(t);
}

void agents_set(struct agents *t, const struct config *cfg)
{
    struct list old = t->configs;

    if (list_is_empty(&t->configs))
        list_init(&old);
    else
        old.next->prev = old.prev->next = &old;
    list_init(&t->configs);
    map_done(&t->by_key);
    t->by_key = MAP_INIT;
    for (size_t i = 0; i < config_count(cfg, &agents_config); i++)
        entry_add(t, config_entry(cfg, &agents_config, i));
    stored_each(t->d->stored, take_stored, t);
    list_each (&t->made, it, nxt) { /* points each at its new entry, or ends it */
        struct recipient *a = list_entry(it, struct recipient, link);
        struct agent_config *c = entry_for(t, str_of(a->tenant), str_of(a->id));
        if (c == NULL && a->cfg->of_gateway)
            c = take_gateway(t, str_of(a->tenant), str_of(a->id));
        if (c != NULL && settings_same(c, a->cfg)) {
            a->cfg = c;
            c->spoken = true;
        } else {
            agent_free(t, a);
        }
    }
    list_each (&old, it, nxt)
        entry_free(t, list_entry(it, struct agent_config, link));
    wake_mail(t);
}
