/* store.c - bellhop store migrate: what SQLite keeps into PostgreSQL, and back. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "cli/state_dir.h"
#include "skills/move.h"
#include "skills/skills.h"
#include "store/move.h"
#include "store/store.h"

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

/* Before everything else: until the rest has been moved no server starts there. */
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

static int run(const struct command *c, int argc, char **argv)
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
    run,
};
