/* key.c - bellhop key rotate: another master key for the same database. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "cli/cli.h"
#include "cli/forms.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "cli/state_dir.h"
#include "cluster/node.h"
#include "net/loop.h"
#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"

#define NEW_KEY "BELLHOP_NEW_MASTER_KEY"

enum { HOLD_MS = 15000 };

/* ---- a store that others share ----
 *
 * Whoever changes the key holds the lease of the node that serves: none does meanwhile, and every
 * write is under its fence.  A file is held by having it open. */
struct hold {
    struct store *st;
    struct loop *loop;
    struct store_lease lease;
    char owner[STORE_OWNER_BYTES]; /* another's than that of any other call */
    int64_t renew_at_ms;
    bool done;
    enum bh_err err;
};

static void on_lease(struct store_op *op, enum bh_err err)
{
    struct store_lease *lease = container_of(op, struct store_lease, op);
    struct hold *h = container_of(lease, struct hold, lease);

    h->done = true;
    h->err = err;
}

static enum bh_err hold_ask(struct hold *h, enum store_lease_verb verb)
{
    h->lease.op = (struct store_op){.done = on_lease};
    h->lease.verb = verb;
    h->lease.name = STR(NODE_LEASE);
    h->lease.owner = str_of(h->owner);
    h->lease.ttl_ms = HOLD_MS;
    h->renew_at_ms = clock_now_ms(loop_clock(h->loop)) + HOLD_MS / 3;
    h->done = false;
    store_lease(h->st, &h->lease);
    while (!h->done)
        loop_turn(h->loop, 1000);
    return h->err;
}

static bool hold_take(struct hold *h)
{
    struct rand rand = RAND_SYSTEM;
    uint32_t number;

    rand_bytes(&rand, &number, sizeof number);
    snprintf(h->owner, sizeof h->owner, "key rotate %08x", number);
    enum bh_err err = h->st->shared ? hold_ask(h, LEASE_TAKE) : BH_OK;

    if (err == BH_CONFLICT)
        cli_failed("%s serves: stop all nodes first (one that was killed counts until its lease "
                   "has run out)",
                   h->lease.holder);
    else if (err != BH_OK)
        cli_failed("the database does not answer: %s", bh_err_word(err));
    else if (h->st->shared)
        store_guard(h->st, STR(NODE_LEASE), h->lease.epoch);
    return err == BH_OK;
}

/* Not renewed in time: the fence tells. */
static void hold_keep(struct hold *h)
{
    if (h->st->shared && clock_now_ms(loop_clock(h->loop)) >= h->renew_at_ms)
        hold_ask(h, LEASE_RENEW);
}

static void hold_end(struct hold *h)
{
    if (h->st->shared)
        hold_ask(h, LEASE_RELEASE);
}

struct rotation {
    struct hold *hold;
    struct progress bar;
};

static void on_records(void *ctx, uint64_t records)
{
    struct rotation *r = ctx;

    hold_keep(r->hold);
    progress_show(&r->bar, records % 1000, 1000); /* how many there are is not known */
}

static int rotate(struct hold *h, const struct settings *s, const char *path)
{
    const struct record_form *forms[FORMS_MAX];
    struct rotation r = {.hold = h};
    struct seal_change c = {.store = h->st,
                            .loop = h->loop,
                            .from = str_of(s->master_key),
                            .to = str_of(getenv(NEW_KEY)),
                            .path = path,
                            .forms = forms,
                            .each = on_records,
                            .ctx = &r};
    char why[256] = "";

    forms_list(forms);
    progress_begin(&r.bar, "sealing anew");
    enum bh_err err = seal_change(&c, why);
    progress_end(&r.bar);
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
    else if (h->st->shared)
        fprintf(stderr, "copy %s to every node before it is started\n", path);
    return CLI_DONE;
}

static bool open_store(struct hold *h, const struct settings *s, const struct store_settings *in)
{
    char *db = state_dir_path(s->state_dir, "bellhop.db"), why[256] = "";
    bool shared = strcmp(in->kind, "postgres") == 0;
    enum bh_err err = BH_NOT_FOUND;

    if (!shared && access(db, F_OK) != 0)
        cli_failed("there is no database in %s", s->state_dir);
    else if (shared && (err = store_postgres_open(h->loop, in->url, 0, &h->st, why)) != BH_OK)
        cli_failed("%s", why);
    else if (!shared && (err = store_sqlite_open(h->loop, db, &h->st, why)) != BH_OK)
        cli_failed("%s (a running server must be stopped first)", why);
    free(db);
    return err == BH_OK;
}

static int open_and_rotate(const struct settings *s, const struct store_settings *in)
{
    char *path = state_dir_path(s->state_dir, "master.key");
    struct hold h = {.loop = loop_new()};
    int rc = CLI_FAILED;

    if (s->master_key == NULL && access(path, F_OK) != 0) {
        cli_failed("%s is gone: it is needed to open what is sealed", path);
    } else if (s->master_key != NULL && getenv(NEW_KEY) == NULL) {
        cli_failed("the master key is given as text: put the next one into %s", NEW_KEY);
    } else if (open_store(&h, s, in) && hold_take(&h)) {
        rc = rotate(&h, s, path);
        hold_end(&h);
    }
    store_close(h.st);
    loop_free(h.loop);
    free(path);
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
        rc = open_and_rotate(settings_of(cfg), config_get(cfg, &store_config));
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
    "were given out stay good.  With PostgreSQL all nodes must be stopped.\n\n"
    "When it is interrupted, run it again: it goes on where it was.  Until then the server "
    "refuses\n"
    "to start.\n",
    run,
};
