/* agent_config.c - `agents:` and `dispatch:` in the configuration. */
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"
#include "dispatch/agent.h"
#include "dispatch/dispatch.h"
#include "dispatch/substrate.h"
#include "net/spawner.h"

#define AT(member) offsetof(struct dispatch_settings, member)

static const struct config_key settings_keys[] = {
    {"dispatch.allow_private", CFG_BOOL, CFG_RELOAD, AT(allow_private), "false",
     .what = "Let webhooks of agents reach private, loopback and link-local addresses "
             "(`wake.allow_private` does too)."},
    {"dispatch.retry", CFG_DURATION, CFG_RELOAD, AT(retry_ms), "1s", .min = 10, .max = 3600000,
     .what = "The pause after a delivery failed; it doubles each time."},
    {"dispatch.retry_max", CFG_DURATION, CFG_RELOAD, AT(retry_max_ms), "5m", .min = 10,
     .max = 86400000, .what = "The longest pause between two attempts."},
    {"dispatch.replies", CFG_NUMBER, CFG_RELOAD, AT(replies), "1000", .min = 1, .max = 1000000,
     .what = "Replies kept for each agent; the oldest go first."},
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
     .what = "What programs call the agent; required, and unique in its tenant."},
    {"tenant", CFG_TEXT, CFG_RELOAD, AT(tenant),
     .what =
         "Whose agent it is; without it every tenant has one of its own, reached the same way."},
    {"name", CFG_TEXT, CFG_RELOAD, AT(name), .what = "A name for people."},
    {"node", CFG_TEXT, CFG_RELOAD, AT(node),
     .what =
         "With `store.kind: postgres`: the node (`cluster.node`) on whose machine the agent is; "
         "without it, wherever bellhop serves."},
    {"capabilities", CFG_TEXTS, CFG_RELOAD, AT(capabilities),
     .what =
         "What programs are told it can do, of `deliver`, `wake`, `augment`, `template`; without "
         "it, all that its substrate can."},
    {"sessions", CFG_TEXTS, CFG_RELOAD, AT(sessions),
     .what = "Sessions of the agent, `name` or `name=target`, for addresses like `agent@name`."},
    {"wake_on_deliver", CFG_BOOL, CFG_RELOAD, AT(wake_on_deliver), "false",
     .what = "A delivery rings too, as a wake would."},
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

/* ---- what one key cannot tell alone ---- */

static bool capability_ok(struct str word)
{
    return str_eq(word, STR("deliver")) || str_eq(word, STR("wake")) ||
           str_eq(word, STR("augment")) || str_eq(word, STR("template"));
}

static bool check_entry(const struct agent_settings *s, char *why)
{
    if (!facts_name_ok(str_of(s->id)) || strlen(s->id) > 120) {
        snprintf(why, 256, "id: expected 1 to 120 printable characters without blanks");
        return false;
    }
    if (s->tenant != NULL && !facts_name_ok(str_of(s->tenant))) {
        snprintf(why, 256, "tenant: that is no tenant's name");
        return false;
    }
    const struct substrate_ops *ops = substrate_find(str_of(s->substrate));
    if (s->node != NULL && ops != NULL && ops->run == NULL) {
        snprintf(why, 256, "node: an agent of substrate %s is on no machine of ours", ops->name);
        return false;
    }
    for (size_t i = 0; s->capabilities != NULL && s->capabilities[i] != NULL; i++)
        if (!capability_ok(str_of(s->capabilities[i]))) {
            snprintf(why, 256,
                     "capabilities: \"%.60s\" is none of deliver, wake, augment, template",
                     s->capabilities[i]);
            return false;
        }
    return true;
}

bool dispatch_check(const struct config *cfg, char *ret_why)
{
    struct map seen = MAP_INIT;
    struct buf *keys;
    size_t n = config_count(cfg, &agents_config), made = 0;
    bool ok = true;
    char why[256] = "";

    keys = n > 0 ? xcalloc(n, sizeof *keys) : NULL;
    for (size_t i = 0; i < n && ok; i++) {
        const struct agent_settings *s = config_entry(cfg, &agents_config, i);
        struct buf *key = &keys[made++];
        buf_printf(key, "%s\x1f%s", s->tenant != NULL ? s->tenant : "", s->id);
        ok = check_entry(s, why);
        if (ok && map_put(&seen, buf_str(key), key) != NULL) {
            snprintf(why, sizeof why, "two agents%s%.60s have the id %.100s",
                     s->tenant != NULL ? " of tenant " : "", s->tenant != NULL ? s->tenant : "",
                     s->id);
            ok = false;
        }
        if (!ok)
            snprintf(ret_why, 256, "line %d: agents: %.200s",
                     config_entry_line(cfg, &agents_config, i), why);
    }
    for (size_t i = 0; i < made; i++)
        buf_done(&keys[i]);
    free(keys);
    map_done(&seen);
    return ok;
}

/* ---- what they need of the machine ---- */

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

enum bh_err dispatch_spawner(const struct config *cfg, const char *node, struct spawner **ret_s,
                             char *ret_why)
{
    size_t n = config_count(cfg, &agents_config), used = 0;
    const char *(*tmux)[4] = xcalloc(n + 1, sizeof *tmux);
    const char *const **commands = xcalloc(n + 1, sizeof *commands);

    *ret_s = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct agent_settings *s = config_entry(cfg, &agents_config, i);
        if (!is_on(s, node))
            continue;
        if (s->command != NULL)
            commands[used++] = (const char *const *)s->command;
        if (s->target != NULL) {
            tmux_command(s, tmux[i]);
            commands[used++] = tmux[i];
        }
    }
    if (used > 0)
        *ret_s = spawner_new(commands, (unsigned)used, config_secret_variables(cfg), ret_why);
    free(tmux);
    free(commands);
    return used > 0 && *ret_s == NULL ? BH_UNAVAILABLE : BH_OK;
}
