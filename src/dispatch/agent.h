/* agent.h - the table of agents: entries of `agents:` and the agents of each tenant.
 *
 *      agents: -> struct agent_config, one per entry -> struct recipient, one per (tenant, entry)
 *      stored.h   '                                     that was used or has mail
 *      a gateway -'
 *
 * An entry that names a tenant exists for that tenant only.  It hides an entry of the same id
 * that names no tenant.  An entry of the file hides a stored one, and both hide the instance of a
 * gateway with that name, which is an agent without an entry.  A recipient is made on first use;
 * agents_set() makes those that have mail.
 *
 * The table owns the entries and the recipients, and a recipient owns its courier. */
#pragma once
#include "base/config.h"
#include "base/list.h"
#include "base/map.h"
#include "dispatch/substrate.h"
#include "tenancy/facts.h"

#define AGENT_INSTANCE "agent:" /* prefix of the instance of an agent that is not on the relay */

struct agent_settings { /* an entry; each substrate uses the keys marked with its name */
    char *substrate, *id;
    char *tenant, *name;
    char *node; /* the node it runs on (cluster.node); NULL: the node that serves */
    char **capabilities, **sessions;
    bool wake_on_deliver;
    char *instance;                                             /* relay, and hosted ones */
    char *url, *wake_url, *status_url, *authorization, *secret; /* webhook */
    char *target, *socket;                                      /* tmux */
    char *dir;                                                  /* file, program, acp */
    char *path;                                                 /* pipe */
    char **command;                                             /* exec, program, acp */
    int64_t timeout_ms;                  /* webhook, tmux, pipe, exec, responses, chat */
    char *platform, *bot;                /* hosted ones: where people reach it */
    bool open;                           /* hosted ones: everybody may write to that bot */
    char *model, *key;                   /* responses, chat */
    uint32_t history;                    /* chat: messages of a conversation that it gets */
    bool progress, merge, shared_groups; /* acp */
    uint32_t process_sessions;           /* acp: sessions that one process holds */
    int64_t permission_ms;
    char *login;
};

struct agent_config {        /* one entry; shared by the recipients made from it */
    struct agent_settings s; /* owned texts; secrets are wiped */
    const struct substrate_ops *ops;
    bool spoken;      /* a recipient was made from it */
    bool stored;      /* of stored.h; else of the file, or of a gateway */
    bool of_gateway;  /* made for an instance that no entry names */
    struct list link; /* agents->configs, in the order of the file */
    char key[];       /* tenant \x1f id; in agents->by_key */
};

struct recipient {                  /* lives until a reload removes or changes its entry */
    struct dispatch *d;             /* borrowed */
    const struct agent_config *cfg; /* borrowed */
    struct list link;               /* agents->made */
    struct courier *courier;        /* owned; NULL: substrate relay or none, or a runner's */
    int fd;                         /* of its pipe, while that has a reader; else -1 */
    bool outside;      /* the sandbox hides its directory: the helper writes (dispatch_drop()) */
    struct gateway gw; /* its gateway for the relay, unless on the relay; texts borrowed */
    const char *tenant, *id; /* in @key */
    char *instance;          /* owned; names its mailbox */
    char key[];              /* tenant \x1f id, then the tenant again */
};

struct agents {
    struct dispatch *d;  /* borrowed */
    struct list configs; /* struct agent_config, owned */
    struct list made;    /* struct recipient, owned */
    struct map by_key;   /* tenant \x1f id -> agent_config; without a tenant: \x1f id */
    struct map agents;   /* tenant \x1f id -> recipient */
};

struct agents *agents_new(struct dispatch *d);
void agents_free(struct agents *t); /* NULL is fine */
/* Copies the entries of @cfg, and those that are stored.  Frees recipients whose entry changed or
 * was removed. */
void agents_set(struct agents *t, const struct config *cfg);
/* A stored entry was added, changed (@s) or removed (NULL).  An entry of the file stays. */
void agents_change(struct agents *t, struct str tenant, struct str id,
                   const struct agent_settings *s);
/* The entry of the file or of the store with exactly this tenant; NULL: none. */
const struct agent_config *agents_entry(const struct agents *t, struct str tenant, struct str id);
/* A copy of an entry, with texts of its own. */
void agent_settings_copy(struct agent_settings *to, const struct agent_settings *from);
void agent_settings_done(struct agent_settings *s);
/* Where the agent is, for lists: a path, a URL, a pane, a program, an instance; NULL: nowhere. */
const char *agent_target(const struct agent_config *c);
/* Checks an entry as a whole.  False: @ret_why (256 bytes) has the reason. */
bool agent_settings_ok(const struct agent_settings *s, char *ret_why);
static inline bool agent_is_relayed(const struct agent_config *c)
{
    return (c->ops->can & SUBSTRATE_RELAYED) != 0;
}

/* NULL: the tenant has no such agent. */
struct recipient *agents_find(struct agents *t, struct str tenant, struct str id);
/* The same without making it.  NULL: nobody has used the agent since the start. */
const struct recipient *agents_made(const struct agents *t, struct str tenant, struct str id);
/* The agent and the session of an address: an agent with the whole address as its id, else split
 * at the first "@".  @ret_session may be absent.  NULL: unknown. */
struct recipient *agents_resolve(struct agents *t, struct str tenant, struct str address,
                                 struct str *ret_session);
/* True when @c is the entry that @tenant sees under its id. */
bool agent_config_is_for(const struct agents *t, const struct agent_config *c, struct str tenant);
/* Appends the name of the instance whose mailbox holds the agent's mail. */
void agent_instance(const struct agent_config *c, struct buf *out);
/* Fills @argv with the first words of every tmux command, NULL-terminated, borrowed from @s.
 * Returns how many words there are. */
size_t tmux_command(const struct agent_settings *s, const char *argv[4]);
/* True when the agent runs on another node. */
bool agent_is_remote(const struct recipient *a);
/* The target of a session that `sessions:` lists: "main:1.0" for "kitchen=main:1.0", "" for
 * "kitchen".  NULL: it does not list the session. */
const char *agent_session(const struct agent_config *c, struct str session);
