/* agent.h - the agents of the configuration, and those of each tenant.
 *
 *      agents: -> struct agent_config, one per entry -> struct recipient, one per (tenant, entry)
 *                                                       that was ever spoken to or has mail
 *
 * An entry that names a tenant is there for that tenant only and hides one of the same id that
 * names none.  Agents are made when they are first needed, and at start for whoever has mail.
 */
#pragma once
#include "base/config.h"
#include "base/list.h"
#include "base/map.h"
#include "tenancy/facts.h"

struct agents;
struct courier;
struct dispatch;
struct substrate_ops;

#define AGENT_INSTANCE "agent:" /* what the instance of an agent inside is called before its id */

struct agent_settings { /* an entry; each substrate takes the keys it names */
    char *substrate, *id;
    char *tenant, *name;
    char *node; /* where it is, by cluster.node; NULL: wherever bellhop serves */
    char **capabilities, **sessions;
    bool wake_on_deliver;
    char *instance;                                             /* relay */
    char *url, *wake_url, *status_url, *authorization, *secret; /* webhook */
    char *target, *socket;                                      /* tmux */
    char *dir;                                                  /* file */
    char *path;                                                 /* pipe */
    char **command;                                             /* exec */
    int64_t timeout_ms;                                         /* webhook, tmux, pipe, exec */
};

struct agent_config {        /* one entry; shared by the agents made of it */
    struct agent_settings s; /* owned texts; secrets are wiped */
    const struct substrate_ops *ops;
    bool spoken;      /* an agent was made of it */
    struct list link; /* agents->configs, as in the file */
};

struct recipient {                  /* lives until a reload takes its entry away */
    struct dispatch *d;             /* borrowed */
    const struct agent_config *cfg; /* borrowed */
    struct list link;               /* agents->made */
    struct courier *courier;        /* owned; NULL: on the relay, or "none" */
    void *state;                    /* owned by the substrate: ops->forget() */
    struct gateway gw;              /* what the relay knows an agent inside as; texts owned */
    const char *tenant, *id;        /* owned, in @key */
    const char *instance;           /* its mailbox: owned by @gw, or the configured one */
    char key[];                     /* tenant \x1f id */
};

struct agents *agents_new(struct dispatch *d);
void agents_free(struct agents *t); /* NULL is fine */
/* Take the entries of @cfg.  An agent whose entry changed or went is freed. */
void agents_set(struct agents *t, const struct config *cfg);
/* Agents inside that have mail get their couriers. */
void agents_wake_mail(struct agents *t);
struct list *agents_configs(struct agents *t);
struct list *agents_made(struct agents *t);

/* NULL: the tenant has no such agent. */
struct recipient *agents_find(struct agents *t, struct str tenant, struct str id);
/* The agent and the session an address means: the whole id first, else split at the first "@".
 * @ret_session is absent without one.  NULL: unknown. */
struct recipient *agents_resolve(struct agents *t, struct str tenant, struct str address,
                                 struct str *ret_session);
/* Whose agent an address means when nobody says: the tenant of the one entry with this id.  Absent:
 * there is none, it is there for every tenant, or several have one. */
struct str agents_tenant_of(const struct agents *t, struct str address);
/* True when the entry is there for @tenant. */
bool agent_config_is_for(const struct agents *t, const struct agent_config *c, struct str tenant);
/* The command that every use of a tmux agent begins with, NULL-terminated, borrowed from @s;
 * returns how many words it has. */
size_t tmux_command(const struct agent_settings *s, const char *argv[4]);
/* It is on another node than this one. */
bool agent_is_remote(const struct recipient *a);
/* What a session stands for: of "kitchen=main:1.0" what follows "kitchen=".  NULL: nothing. */
const char *agent_session_target(const struct agent_config *c, struct str session);
