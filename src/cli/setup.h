/* setup.h - the parts of `bellhop setup`.  Private to the files setup*.c.
 *
 *      setup_bot()    which platform, its keys, what the platform says to them
 *      setup_agent()  who answers
 *      ----------------------------------------- up to here nothing has touched the disk
 *      fileset_write()  all files at once; the configuration is loaded again before they are kept
 *      setup_try()    a server runs, the first message arrives, the agent answers
 *      doctor
 *
 * An option on the command line answers its question.  With --yes, or without a terminal, every
 * other question takes its default. */
#pragma once
#include "base/config.h"
#include "cli/cli.h"
#include "cli/fileset.h"
#include "cli/terminal.h"
#include "platform/platform.h"

#define SETUP_KEYS 64

enum setup_who { SETUP_NOBODY, SETUP_HOSTED, SETUP_HERMES };

struct setup {
    struct cli_job *j;
    struct terminal t;
    struct fileset files;
    struct config *cfg; /* owned: what is configured so far */
    char *path, *dir;   /* owned: the configuration file and its folder, absolute */
    bool fresh;         /* there is no configuration file yet */
    /* The bot; @ops NULL: none is added or changed. */
    const struct platform_ops *ops;
    char *bot; /* owned */
    struct platform_report report;
    char *public_url;         /* owned; NULL: not asked for */
    char *values[SETUP_KEYS]; /* owned, by the number of the key in ops->config; wiped */
    /* The agent. */
    enum setup_who who;
    char *instance; /* owned */
    char *env_file; /* owned: of a Hermes gateway */
    bool open;      /* everybody may write to it */
    int rc;         /* what the command returns once a step has failed */
};

/* The steps.  False: stop; s->rc is set, and the reason has been printed. */
bool setup_bot(struct setup *s);
bool setup_agent(struct setup *s);
bool setup_try(struct setup *s);

/* ---- shared by the steps ---- */

bool setup_stop(struct setup *s, const char *fmt, ...) BH_PRINTF(2, 3); /* returns false */
/* The value of `@option @key=VALUE`; NULL: not given. */
const char *setup_given(const struct setup *s, const char *option, const char *key);
/* Asks for a text, unless the command line has @option. */
bool setup_ask(struct setup *s, const char *option, const char *question, const char *otherwise,
               char **ret);
/* Asks for one of @words ("a b c"), by its number or name. */
bool setup_choose(struct setup *s, const char *option, const char *question, const char *words,
                  const char *otherwise, char **ret);
const char *setup_tenant(const struct setup *s);
/* A path below the folder of the configuration: <folder>/<more><platform>-<bot><suffix>; the caller
 * frees. */
char *setup_path(const struct setup *s, const char *folder, const char *platform, const char *bot,
                 const char *more, const char *suffix);

/* YAML.  A value that needs quotes gets them. */
void setup_scalar(struct buf *out, struct str value);
void setup_comment(struct buf *out, int indent, const char *text); /* "# ..." lines, wrapped */
