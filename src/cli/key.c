/* key.c - bellhop key rotate: another master key for the same database. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "cli/state_dir.h"
#include "edge/vault.h"
#include "net/loop.h"
#include "platform/platform.h"
#include "store/sqlite/sqlite.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

#define NEW_KEY "BELLHOP_NEW_MASTER_KEY"

enum { MAX_PLACES = 32 };

/* Everybody who seals something: a test reads the sources for others. */
static void list_places(const struct seal_place *ret[MAX_PLACES])
{
    static const struct seal_place *const own[] = {&gateway_sealed, &delivery_key_sealed,
                                                   &key_sealed, &vault_sealed};
    size_t n = 0;

    for (; n < ARRAY_LEN(own); n++)
        ret[n] = own[n];
    for (size_t i = 0; platforms[i] != NULL && n < MAX_PLACES - 1; i++)
        if (platforms[i]->sealed != NULL)
            ret[n++] = platforms[i]->sealed;
    ret[n] = NULL;
}

static void on_records(void *ctx, uint64_t records)
{
    progress_show(ctx, records % 1000, 1000); /* how many there are is not known */
}

static int rotate(struct store *st, struct loop *loop, const struct settings *s, const char *path)
{
    const struct seal_place *places[MAX_PLACES];
    struct progress bar;
    struct seal_change c = {.store = st,
                            .loop = loop,
                            .from = str_of(s->master_key),
                            .to = str_of(getenv(NEW_KEY)),
                            .path = path,
                            .places = places,
                            .each = on_records,
                            .ctx = &bar};
    char why[256] = "";

    list_places(places);
    progress_begin(&bar, "sealing anew");
    enum bh_err err = seal_change(&c, why);
    progress_end(&bar);
    if (err != BH_OK) {
        buf_done(&c.old);
        return cli_failed("%s", why);
    }
    fprintf(stderr, "the master key is changed: %llu records looked at, %llu sealed anew\n",
            (unsigned long long)c.records, (unsigned long long)c.sealed);
    if (c.old.n > 0)
        fprintf(stderr, "the old key is in %s: it opens backups made before now\n", buf_z(&c.old));
    buf_done(&c.old);
    if (c.to.p != NULL)
        fprintf(stderr, "start the server with the new text as its master key\n");
    return CLI_DONE;
}

static int open_and_rotate(const struct settings *s)
{
    char *db = state_dir_path(s->state_dir, "bellhop.db"), why[256] = "";
    char *path = state_dir_path(s->state_dir, "master.key");
    struct store *st = NULL;
    struct loop *loop = loop_new();
    int rc = CLI_FAILED;

    if (access(db, F_OK) != 0)
        cli_failed("there is no database in %s", s->state_dir);
    else if (s->master_key == NULL && access(path, F_OK) != 0)
        cli_failed("%s is gone: it is needed to open what is sealed", path);
    else if (s->master_key != NULL && getenv(NEW_KEY) == NULL)
        cli_failed("the master key is given as text: put the next one into %s", NEW_KEY);
    else if (store_sqlite_open(loop, db, &st, why) != BH_OK)
        cli_failed("%s (a running server must be stopped first)", why);
    else
        rc = rotate(st, loop, s, path);
    store_close(st);
    loop_free(loop);
    free(path);
    free(db);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct config *cfg = NULL;
    struct buf why = BUF_INIT;
    int rc = CLI_FAILED;

    if (!cli_parse(c, argc, argv, NULL, 0, &a))
        return cli_exit(&a);
    if (a.n_rest != 1 || strcmp(a.rest[0], "rotate") != 0)
        return cli_misused(c, "what about the key?  There is: rotate");
    if (a.state_dir != NULL)
        setenv("BELLHOP_STATE_DIR", a.state_dir, 1);
    if (settings_load(a.config, &cfg, &why) != BH_OK)
        cli_failed("%s", buf_z(&why));
    else
        rc = open_and_rotate(settings_of(cfg));
    config_free(cfg);
    buf_done(&why);
    return rc;
}

const struct command cmd_key = {
    "key",
    "change the master key",
    "Usage: bellhop key rotate [-c FILE | --state-dir DIR]\n\n"
    "Seals every secret in the database with a new master key; the server must not run.  The new\n"
    "key is a new <state_dir>/master.key, and the old one stays beside it as master.key.old\n"
    "(.old.2 and so on when there is one already); or it is the text in BELLHOP_NEW_MASTER_KEY\n"
    "(64 hex digits or a passphrase), which becomes the server's BELLHOP_MASTER_KEY.  Tokens that\n"
    "were given out stay good.\n\n"
    "When it is interrupted, run it again: it goes on where it was.  Until then the server "
    "refuses\n"
    "to start.\n",
    run,
};
