/* store.c - bellhop store moves everything to another kind of database; bellhop key changes the
 * master key. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "cli/cli.h"
#include "cli/forms.h"
#include "cli/archive.h"
#include "cli/settings.h"
#include "cluster/node.h"
#include "net/loop.h"
#include "skills/move.h"
#include "skills/skills.h"
#include "store/move.h"
#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"
#include "store/store.h"

/* ---- store ---- */

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    interrupted = 1;
}

static bool on_rows(void *ctx, uint64_t done, uint64_t all)
{
    progress_show(ctx, done, all);
    return interrupted == 0;
}

/* Runs before the main store is moved: until that move is complete no server starts on the target,
 * so no server sees half of the skills. */
static int move_skills(const char *from, const char *to, const char *db, struct skills_moved *ret)
{
    bool in = strcmp(to, "sqlite") != 0;
    const struct skills_place file = {.kind = "sqlite", .path = db};
    const struct skills_place server = {.kind = "postgres", .path = db, .url = in ? to : from};
    struct progress bar;
    char why[256] = "";

    if (in && access(db, F_OK) != 0)
        return CLI_DONE;
    progress_begin(&bar, "skills");
    enum bh_err err =
        skills_move(in ? &file : &server, in ? &server : &file, on_rows, &bar, ret, why);
    progress_end(&bar);
    if (err == BH_CANCELLED)
        return cli_failed("stopped; run it again to go on.");
    return err == BH_OK ? CLI_DONE : cli_failed("%s", why);
}

static void print_moved(const struct store_moved *m, const struct skills_moved *s, bool json)
{
    static const char *const keys[] = {"records", "messages", "seen", "once"};

    for (int t = 0; json && t < N_MOVE_TABLES; t++)
        printf("%s\"%s\": %llu", t == 0 ? "{" : ", ", keys[t], (unsigned long long)m->n[t]);
    if (json) {
        printf(", \"resumed\": %llu, \"skills\": %llu, \"skill_versions\": %llu}\n",
               (unsigned long long)m->resumed, (unsigned long long)s->skills,
               (unsigned long long)s->versions);
        return;
    }
    fprintf(stderr, "moved and compared, row by row:\n");
    for (int t = 0; t < N_MOVE_TABLES; t++)
        fprintf(stderr, "  %12llu %s\n", (unsigned long long)m->n[t],
                store_table_name((enum store_table)t));
    fprintf(stderr, "  %12llu skills, %llu versions\n", (unsigned long long)s->skills,
            (unsigned long long)s->versions);
    if (m->resumed > 0)
        fprintf(stderr, "  (%llu of these were there from an earlier try)\n",
                (unsigned long long)m->resumed);
}

static int move(const char *from, const char *to, const char *db, const struct skills_moved *skills,
                bool json)
{
    bool in = strcmp(to, "sqlite") != 0;
    struct progress bar;
    struct store_moved moved;
    char why[256] = "";

    progress_begin(&bar, "moving");
    enum bh_err err = in ? store_move_in(db, to, on_rows, &bar, &moved, why)
                         : store_move_out(from, db, on_rows, &bar, &moved, why);
    progress_end(&bar);
    if (err == BH_CANCELLED)
        return cli_failed("stopped; nothing was changed where it came from.  %s",
                          in ? "Run it again to go on." : "Run it again to begin anew.");
    if (err != BH_OK)
        return cli_failed("%s", why);
    print_moved(&moved, skills, json);
    if (in)
        fprintf(stderr,
                "now set `store: {kind: postgres, url: ...}` and keep %s as it is until "
                "you trust it\n",
                db);
    else
        fprintf(stderr, "%s is complete: set `store: {kind: sqlite}`\n", db);
    return CLI_DONE;
}

static int migrate(const struct command *c, const struct cli_args *a, const char *from,
                   const char *to)
{
    struct config *cfg = NULL;
    struct buf why = BUF_INIT;
    int rc = CLI_FAILED;

    if (settings_load(a->config, &cfg, &why) != BH_OK) {
        cli_failed("%s", buf_z(&why));
    } else {
        const struct store_settings *store = config_get(cfg, &store_config);
        const struct skills_settings *skills = config_get(cfg, &skills_section);
        bool files = strcmp(skills->kind, "filesystem") == 0;
        char *db = state_dir_path(settings_of(cfg)->state_dir, "bellhop.db");
        char *skills_db = state_dir_path(settings_of(cfg)->state_dir, "skills.db");
        struct skills_moved moved = {0};
        struct sigaction stop = {.sa_handler = on_signal};
        sigaction(SIGINT, &stop, NULL);
        sigaction(SIGTERM, &stop, NULL);
        if (from == NULL)
            from = store->url;
        if (strcmp(to, "sqlite") == 0 && from == NULL)
            rc = cli_misused(c, "from where?  --from postgresql://..., or store.url in the "
                                "configuration");
        else if (files || (rc = move_skills(from, to, skills_db, &moved)) == CLI_DONE)
            rc = move(from, to, db, &moved, a->json);
        free(skills_db);
        free(db);
    }
    config_free(cfg);
    buf_done(&why);
    return rc;
}

static int run_store(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    const char *to = NULL, *from = NULL;
    const struct cli_option options[] = {{"--to", &to, NULL}, {"--from", &from, NULL}};

    if (!cli_parse(c, argc, argv, options, 2, &a))
        return cli_exit(&a);
    if (a.n_rest != 1 || strcmp(a.rest[0], "migrate") != 0)
        return cli_misused(c, "what about the store?  There is: migrate");
    if (to == NULL)
        return cli_misused(c, "where to?  --to postgresql://..., or --to sqlite");
    if (a.state_dir != NULL)
        setenv("BELLHOP_STATE_DIR", a.state_dir, 1);
    return migrate(c, &a, from, to);
}

const struct command cmd_store = {
    "store",
    "move everything to PostgreSQL, and back",
    "Usage: bellhop store migrate --to postgresql://USER@HOST/DATABASE [-c FILE | --state-dir "
    "DIR]\n"
    "       bellhop store migrate --to sqlite [--from postgresql://...]\n\n"
    "Moves gateways, routes, links, chats, waiting messages and deduplication keys from\n"
    "<state_dir>/bellhop.db into an empty PostgreSQL database, or from there into a new\n"
    "bellhop.db, then reads both and compares every row.  No server may run.  The source is not\n"
    "changed.  Skills are moved with their history (skills.db); data and media stay in the state\n"
    "directory.\n\n"
    "When a move into PostgreSQL is interrupted, run it again: it goes on where it was.  Until it\n"
    "has ended no server starts there.  Rather than into the address, put a password into\n"
    "PGPASSWORD or ~/.pgpass: other users of the machine can see a command's words.\n\n"
    "  --to      postgresql://... (or libpq's words: \"host=... dbname=...\"), or: sqlite\n"
    "  --from    with --to sqlite; without it store.url of the configuration\n"
    "  --json    what was moved, as JSON\n",
    run_store,
};

/* ---- key ---- */

#define NEW_KEY "BELLHOP_NEW_MASTER_KEY"

enum { HOLD_MS = 15000 };

/* ---- a store that others share ----
 *
 * The command takes the lease of the serving node.  So no node serves during the change, and every
 * write carries the lease's epoch.  A SQLite file is locked while it is open. */
struct hold {
    struct store *st;
    struct loop *loop;
    struct store_lease lease;
    char owner[STORE_OWNER_BYTES]; /* unique per run */
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

/* Renews the lease.  If a renewal is late, the fence refuses our writes. */
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
    progress_show(&r->bar, records % 1000, 1000); /* the total is unknown */
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

static int run_key(const struct command *c, int argc, char **argv)
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
    run_key,
};
