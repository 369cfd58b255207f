/* store.c - bellhop store moves everything to another kind of database; bellhop key changes the
 * master key. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/rand.h"
#include "cli/cli.h"
#include "cli/forms.h"
#include "cli/archive.h"
#include "cli/settings.h"
#include "cluster/node.h"
#include "net/loop.h"
#include "data/migrate.h"
#include "skills/migrate.h"
#include "skills/skills.h"
#include "store/migrate.h"
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
static int migrate_skills(const char *from, const char *to, const char *db,
                          struct skills_migrated *ret)
{
    bool in = strcmp(to, "sqlite") != 0;
    const struct skills_location file = {.path = db}, server = {.url = in ? to : from};
    struct progress bar;
    char why[256] = "";

    if (in && access(db, F_OK) != 0)
        return CLI_DONE;
    progress_begin(&bar, "skills");
    enum bh_err err =
        skills_migrate(in ? &file : &server, in ? &server : &file, on_rows, &bar, ret, why);
    progress_end(&bar);
    if (err == BH_CANCELLED)
        return cli_failed("stopped. Run it again to continue.");
    return err == BH_OK ? CLI_DONE : cli_failed("%s", why);
}

static void print_migrated(const struct migrated *m, const struct skills_migrated *s,
                           const struct data_migrated *d, bool json)
{
    static const char *const keys[] = {"records", "messages", "seen", "once"};

    for (int t = 0; json && t < N_MIGRATED; t++)
        printf("%s\"%s\": %llu", t == 0 ? "{" : ", ", keys[t], (unsigned long long)m->n[t]);
    if (json) {
        printf(", \"resumed\": %llu, \"skills\": %llu, \"skill_versions\": %llu, "
               "\"data\": %llu}\n",
               (unsigned long long)m->resumed, (unsigned long long)s->skills,
               (unsigned long long)s->versions, (unsigned long long)d->entries);
        return;
    }
    fprintf(stderr, "moved, and compared row by row:\n");
    for (int t = 0; t < N_MIGRATED; t++)
        fprintf(stderr, "  %12llu %s\n", (unsigned long long)m->n[t], migrate_tables[t].name);
    fprintf(stderr, "  %12llu skills, %llu versions\n", (unsigned long long)s->skills,
            (unsigned long long)s->versions);
    fprintf(stderr, "  %12llu entries of the data store\n", (unsigned long long)d->entries);
    if (m->resumed > 0)
        fprintf(stderr, "  (%llu of these rows come from an earlier, interrupted run)\n",
                (unsigned long long)m->resumed);
}

/* The secrets moved as they are: sealed with the master key of this installation. */
static void say_key(const struct settings *s)
{
    char *key = state_dir_path(s->state_dir, "master.key");

    if (s->master_key != NULL)
        fprintf(stderr, "Every node needs the master key that this machine has now: the same "
                        "master_key (BELLHOP_MASTER_KEY).\n");
    else
        fprintf(stderr,
                "Every node needs the master key that this machine has now: copy %s into the "
                "state_dir of each, or set master_key to its 64 hex digits on all.\n",
                key);
    free(key);
}

static int migrate_store(const char *from, const char *to, const char *db,
                         const struct skills_migrated *skills, const struct data_migrated *data,
                         bool json)
{
    bool in = strcmp(to, "sqlite") != 0;
    struct progress bar;
    struct migrated moved;
    char why[256] = "";

    progress_begin(&bar, "moving");
    enum bh_err err = in ? store_migrate_in(db, to, on_rows, &bar, &moved, why)
                         : store_migrate_out(from, db, on_rows, &bar, &moved, why);
    progress_end(&bar);
    if (err == BH_CANCELLED)
        return cli_failed("stopped; the source is unchanged. Run it again to %s.",
                          in ? "continue" : "begin from the start");
    if (err != BH_OK)
        return cli_failed("%s", why);
    print_migrated(&moved, skills, data, json);
    if (in)
        fprintf(stderr,
                "Now set `store: {kind: postgres, url: ...}`. Keep %s until the new store has "
                "proved itself.\n",
                db);
    else
        fprintf(stderr, "%s is complete. Now set `store: {kind: sqlite}`.\n", db);
    return CLI_DONE;
}

/* The data store, then the main store, whose end makes the target one that a server starts on. */
static int migrate_rest(const char *from, const char *to, const char *state_dir,
                        const struct skills_migrated *skills, bool json)
{
    bool in = strcmp(to, "sqlite") != 0;
    char *db = state_dir_path(state_dir, "bellhop.db"), *data = state_dir_path(state_dir, "data");
    struct data_migrated moved = {0};
    char why[256] = "";
    int rc;

    if (in ? data_migrate_in(data, to, &moved, why) : data_migrate_out(from, data, &moved, why))
        rc = migrate_store(from, to, db, skills, &moved, json);
    else
        rc = cli_failed("%s", why);
    free(db);
    free(data);
    return rc;
}

static int migrate(struct cli_job *j)
{
    const char *from = cli_value(j, "--from"), *to = cli_value(j, "--to");
    struct config *cfg = cli_settings(j);
    struct sigaction stop = {.sa_handler = on_signal};
    struct skills_migrated moved = {0};
    int rc;

    if (cfg == NULL)
        return CLI_FAILED;
    const struct store_settings *store = config_get(cfg, &store_config);
    const struct skills_settings *skills = config_get(cfg, &skills_section);
    char *skills_db = state_dir_path(settings_of(cfg)->state_dir, "skills.db");
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    if (from == NULL)
        from = store->url;
    if (strcmp(to, "sqlite") == 0 && from == NULL)
        rc = cli_misused(j, "--to sqlite needs --from postgresql://..., or store.url in the "
                            "configuration");
    else if (strcmp(to, "sqlite") == 0 && !state_dir_as_owner(settings_of(cfg)->state_dir))
        rc = cli_failed("%s: %s", settings_of(cfg)->state_dir, strerror(errno));
    else if (strcmp(skills->kind, "filesystem") == 0 ||
             (rc = migrate_skills(from, to, skills_db, &moved)) == CLI_DONE)
        rc = migrate_rest(from, to, settings_of(cfg)->state_dir, &moved, j->json);
    if (rc == CLI_DONE && strcmp(to, "sqlite") != 0)
        say_key(settings_of(cfg));
    free(skills_db);
    config_free(cfg);
    return rc;
}

const struct command cmd_store = {
    .name = "store",
    .summary = "move the state to PostgreSQL, and back",
    .help =
        "Usage: bellhop store migrate --to postgresql://USER@HOST/DATABASE\n"
        "                             [-c FILE | --state-dir DIR]\n"
        "       bellhop store migrate --to sqlite [--from postgresql://...]\n\n"
        "Moves gateways, routes, links, chats, waiting messages and deduplication keys from\n"
        "<state_dir>/bellhop.db into an empty PostgreSQL database, or from there into a new\n"
        "bellhop.db.  Then it reads both and compares every row.  No server may run.  The\n"
        "source is not changed.  Skills move with their history (skills.db), and so do the\n"
        "entries of the data store (data/); media stays in the state directory.  Secrets stay\n"
        "sealed with the same master key, which every node needs; the command says where it is.\n"
        "\n"
        "If a move into PostgreSQL is interrupted, run it again: it continues.  Until the move\n"
        "is complete, no server starts on that database.  Put a password into PGPASSWORD or\n"
        "~/.pgpass, not into the URL: other users of the machine can see the words of a\n"
        "command.  As root, --to sqlite acts as the owner of the state directory.\n\n"
        "  --to      postgresql://... (or \"host=... dbname=...\", as libpq reads), or sqlite\n"
        "  --from    with --to sqlite; the default is store.url of the configuration\n"
        "  --json    print what was moved as JSON\n",
    .verbs = (const struct cli_verb[]){{"migrate", .needs = "--to", .run = migrate}, {0}},
    .options = (const struct cli_option[]){{"--to"}, {"--from"}, {0}},
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
        cli_failed("the node %s serves. Stop all nodes first (the lease of a killed node ends by "
                   "itself after some seconds)",
                   h->lease.holder);
    else if (err != BH_OK)
        cli_failed("the database does not answer: %s", bh_err_word(err));
    else if (h->st->shared)
        store_guard(h->st, STR(NODE_LEASE), h->lease.epoch);
    return err == BH_OK;
}

struct rotation {
    struct hold *hold;
    struct progress bar;
};

static void on_records(void *ctx, uint64_t records)
{
    struct rotation *r = ctx;

    struct hold *h = r->hold;

    /* If a renewal is late, the fence refuses our writes. */
    if (h->st->shared && clock_now_ms(loop_clock(h->loop)) >= h->renew_at_ms)
        hold_ask(h, LEASE_RENEW);
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
    progress_begin(&r.bar, "encrypting");
    enum bh_err err = seal_change(&c, why);
    progress_end(&r.bar);
    if (err != BH_OK) {
        buf_done(&c.old);
        return cli_failed("%s", why);
    }
    fprintf(stderr, "the master key is changed: %llu records read, %llu encrypted again\n",
            (unsigned long long)c.records, (unsigned long long)c.sealed);
    if (c.old.n > 0)
        fprintf(stderr, "the old key is in %s: keep it for backups made before now\n",
                buf_z(&c.old));
    buf_done(&c.old);
    if (c.to.p != NULL)
        fprintf(stderr,
                "start the server with the new text as its master key (BELLHOP_MASTER_KEY)\n");
    else if (h->st->shared)
        fprintf(stderr, "copy %s to every node before starting it\n", path);
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
        cli_failed("%s. If a server runs, stop it first", why);
    free(db);
    return err == BH_OK;
}

static int rotate_key(struct cli_job *j)
{
    struct config *cfg = cli_settings(j);
    int rc = CLI_FAILED;

    if (cfg == NULL)
        return CLI_FAILED;
    const struct settings *s = settings_of(cfg);
    char *path = state_dir_path(s->state_dir, "master.key");
    struct hold h = {.loop = loop_new()};
    if (!state_dir_as_owner(s->state_dir)) {
        cli_failed("%s: %s", s->state_dir, strerror(errno));
    } else if (s->master_key == NULL && access(path, F_OK) != 0) {
        cli_failed("%s is missing: without it the secrets in the database cannot be read", path);
    } else if (s->master_key != NULL && getenv(NEW_KEY) == NULL) {
        cli_failed("the configuration gives the master key as text. Put the new one into %s",
                   NEW_KEY);
    } else if (open_store(&h, s, config_get(cfg, &store_config)) && hold_take(&h)) {
        rc = rotate(&h, s, path);
        if (h.st->shared)
            hold_ask(&h, LEASE_RELEASE);
    }
    store_close(h.st);
    loop_free(h.loop);
    free(path);
    config_free(cfg);
    return rc;
}

const struct command cmd_key = {
    .name = "key",
    .summary = "change the master key",
    .help =
        "Usage: bellhop key rotate [-c FILE | --state-dir DIR]\n\n"
        "Encrypts every secret in the database with a new master key.  The server must not run;\n"
        "with PostgreSQL, no node may run.  The new key is a new <state_dir>/master.key, and\n"
        "the old key stays beside it as master.key.old (.old.2 and so on if that exists).  If\n"
        "BELLHOP_NEW_MASTER_KEY is set, its text is the new key instead (64 hex digits or a\n"
        "passphrase); start the server with that text as BELLHOP_MASTER_KEY.  Tokens that were\n"
        "given out stay valid.\n\n"
        "If the command is interrupted, run it again: it continues.  Until it is complete, the\n"
        "server refuses to start.  As root the command acts as the owner of the state\n"
        "directory.\n",
    .verbs = (const struct cli_verb[]){{"rotate", .run = rotate_key}, {0}},
};
