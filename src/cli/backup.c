/* backup.c - bellhop backup, bellhop restore: the state directory as one file, and back.
 * (archive.h writes and reads the file.) */
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/config.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/archive.h"
#include "cli/cli.h"
#include "cli/settings.h"
#include "net/loop.h"
#include "store/sqlite/sqlite.h"

/* True: the state is not in this directory, and the command has said what to do instead. */
static bool is_in_postgres(const struct config *cfg, const char *instead)
{
    const struct store_settings *store = config_get(cfg, &store_config);

    if (strcmp(store->kind, "postgres") != 0)
        return false;
    cli_failed("the state is in PostgreSQL (store.kind). %s\n"
               "Files are in media.dir, and the master key is in no backup: keep copies of both.",
               instead);
    return true;
}

/* ---- backup ---- */

struct backup {
    const char *state; /* borrowed */
    struct archive out;
    struct buf copy; /* the path of the copy being made */
    struct progress bar;
    unsigned files;
    char why[256];
};

static bool ends(const char *name, const char *suffix)
{
    return str_ends(str_of(name), str_of(suffix));
}

/* Files left out: those that the server recreates, the records of `bellhop why`, which name people
 * and tell what was rather than what is, and the key, which must not be in the backup. */
static bool is_left_out(const FTSENT *e)
{
    const char *name = e->fts_name;

    return (e->fts_level == 1 && strcmp(name, "why") == 0) || name[0] == '.' ||
           str_starts(str_of(name), STR("master.key")) || ends(name, "-wal") ||
           ends(name, "-shm") || ends(name, ".lock") || ends(name, ".reserve") ||
           strstr(name, ".before-restore") != NULL || strcmp(name, "port") == 0;
}

static bool on_pages(void *ctx, uint64_t done, uint64_t all)
{
    progress_show(&((struct backup *)ctx)->bar, done, all);
    return true;
}

static bool add_database(struct backup *b, const char *name, const char *path)
{
    progress_begin(&b->bar, name);
    unlink(buf_z(&b->copy));
    bool ok = store_sqlite_copy(path, buf_z(&b->copy), on_pages, b, b->why) == BH_OK &&
              archive_add(&b->out, name, buf_z(&b->copy), b->why) == BH_OK;
    progress_end(&b->bar);
    unlink(buf_z(&b->copy));
    return ok;
}

static bool add_file(struct backup *b, const char *name, const char *path)
{
    b->files++;
    return ends(name, ".db") ? add_database(b, name, path)
                             : archive_add(&b->out, name, path, b->why) == BH_OK;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Sorted by name, so that two backups of the same state are equal. */
static bool add_all(struct backup *b)
{
    char *top = xstrdup(b->state), *const tops[] = {top, NULL};
    FTS *walk = fts_open(tops, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, by_name);
    bool ok = walk != NULL;

    for (FTSENT *e; ok && (e = fts_read(walk)) != NULL;) {
        if (e->fts_level > 0 && is_left_out(e))
            fts_set(walk, e, FTS_SKIP);
        else if (e->fts_info == FTS_F)
            ok = add_file(b, e->fts_path + strlen(top) + 1, e->fts_path);
    }
    if (walk != NULL)
        fts_close(walk);
    else
        snprintf(b->why, sizeof b->why, "%.180s: %s", top, strerror(errno));
    free(top);
    return ok;
}

static bool make(struct backup *b, const char *file, const char *part)
{
    if (archive_create(&b->out, part, b->why) != BH_OK)
        return false;
    bool ok = add_all(b) && archive_finish(&b->out, b->why) == BH_OK;
    archive_close(&b->out);
    if (ok && link(part, file) != 0) { /* link() never overwrites a file */
        snprintf(b->why, sizeof b->why, "%.180s: %s", file, strerror(errno));
        ok = false;
    }
    unlink(part);
    if (ok && !file_sync_folder_of(file))
        snprintf(b->why, sizeof b->why, "%.180s: %s", file, strerror(errno));
    return ok;
}

static int backup(struct cli_job *j)
{
    const char *file = j->args[0];
    struct config *cfg = cli_settings(j);
    struct buf part = BUF_INIT;
    struct stat st;
    int rc = CLI_FAILED;

    if (cfg == NULL || is_in_postgres(cfg, "Back it up, while the nodes run, with:\n"
                                           "  pg_dump --format=custom --schema=bellhop "
                                           "--file=FILE \"$URL\"    (URL: store.url)")) {
        config_free(cfg);
        return CLI_FAILED;
    }
    const char *state = settings_of(cfg)->state_dir;
    struct backup b = {.state = state};
    char *db = state_dir_path(state, "bellhop.db");
    buf_printf(&part, "%s.part", file);
    buf_printf(&b.copy, "%s.copy", file);
    if (access(db, F_OK) != 0 && errno == EACCES)
        cli_failed("this user may not enter %s. Run the command as the user that runs the server",
                   state);
    else if (access(db, F_OK) != 0)
        cli_failed("there is no database in %s", state);
    else if (access(file, F_OK) == 0)
        cli_failed("%s exists already. Choose another name", file);
    else if ((unlink(buf_z(&part)), !make(&b, file, buf_z(&part))))
        cli_failed("no backup was made: %s", b.why);
    else {
        rc = CLI_DONE;
        if (stat(file, &st) == 0)
            fprintf(stderr,
                    "%s: %u files, %.1f MiB, verified. It does not contain the master key: keep "
                    "that in another place.\n",
                    file, b.files, (double)st.st_size / (1 << 20));
    }
    buf_done(&part);
    buf_done(&b.copy);
    free(db);
    config_free(cfg);
    return rc;
}

const struct command cmd_backup = {
    .name = "backup",
    .summary = "copy the state to one file, while the server runs",
    .help =
        "Usage: bellhop backup FILE [-c FILE | --state-dir DIR]\n\n"
        "Copies the databases and the other files of the state directory into one new FILE (a\n"
        "tar archive).  The server may run and be busy: each database is copied as of one\n"
        "moment, and each copy is verified before it goes into the archive.  The master key is\n"
        "left out: the secrets in a backup cannot be read without it, so keep the two apart.\n"
        "The command needs room beside FILE for a second copy of the largest database.\n\n"
        "To get the state back: bellhop restore FILE\n\n"
        "With store.kind: postgres use pg_dump; the command says how.\n",
    .verbs = (const struct cli_verb[]){{"", .args = "file", .run = backup}, {0}},
};

/* ---- restore ---- */

#define STAGING ".restore"
#define KEPT ".before-restore"

struct restore {
    const char *state; /* borrowed */
    char *staging;     /* owned */
    char **names;      /* owned, unpacked */
    size_t n;
    bool has_main;
    char why[256];
};

static bool no(struct restore *r, const char *path)
{
    snprintf(r->why, sizeof r->why, "%.180s: %s", path, strerror(errno));
    return false;
}

/* ---- unpack ---- */

static bool unpack_one(struct restore *r, struct archive *in, const char *name)
{
    char *to = state_dir_path(r->staging, name);
    bool ok = state_dir_make_parents(to, strlen(r->staging) + 1, 0700) || no(r, to);

    ok = ok && archive_extract(in, to, r->why) == BH_OK;
    r->names = xrealloc(r->names, (r->n + 1) * sizeof *r->names);
    r->names[r->n++] = xstrdup(name);
    r->has_main |= strcmp(name, "bellhop.db") == 0;
    free(to);
    return ok;
}

static bool unpack(struct restore *r, struct archive *in)
{
    struct progress bar;
    struct stat st = {0};
    char name[ARCHIVE_NAME];
    uint64_t bytes, done = 0;
    enum bh_err err;

    progress_begin(&bar, "unpacking");
    if (fstat(in->fd, &st) != 0)
        st.st_size = 0;
    while ((err = archive_next(in, name, &bytes, r->why)) == BH_OK && unpack_one(r, in, name))
        progress_show(&bar, done += bytes, (uint64_t)st.st_size);
    progress_end(&bar);
    if (err == BH_NOT_FOUND && !r->has_main)
        snprintf(r->why, sizeof r->why, "there is no database in this backup");
    return err == BH_NOT_FOUND && r->has_main;
}

/* ---- check ---- */

static bool check_files(struct restore *r)
{
    bool ok = true;

    for (size_t i = 0; ok && i < r->n; i++) {
        char *path = state_dir_path(r->staging, r->names[i]);
        if (strcmp(r->names[i], "bellhop.db") == 0)
            ok = store_sqlite_adopt(path, r->why) == BH_OK;
        else if (str_ends(str_of(path), STR(".db")))
            ok = store_sqlite_whole(path, r->why) == BH_OK;
        free(path);
    }
    return ok;
}

/* The master key of this machine must open the database.  A missing key is reported at the end. */
static bool check_key(struct restore *r, const struct settings *settings)
{
    char *db = state_dir_path(r->staging, "bellhop.db");
    char *key = state_dir_path(r->state, "master.key");
    struct store *st = NULL;
    struct seal *seal = NULL;
    bool ok = true;

    if (settings->master_key != NULL || access(key, F_OK) == 0) {
        struct loop *loop = loop_new();
        ok = store_sqlite_open(loop, db, &st, r->why) == BH_OK &&
             seal_open_for(st, str_of(settings->master_key), key, &seal, r->why) == BH_OK;
        seal_free(seal);
        store_close(st);
        loop_free(loop);
    }
    free(key);
    free(db);
    return ok;
}

/* ---- replace ---- */

/* Renames the file at @path, and the files beside it if it is a database. */
static bool keep_old(struct restore *r, const char *path)
{
    static const char *const tails[] = {"-wal", "-shm"};
    struct buf from = BUF_INIT, to = BUF_INIT;
    bool ok = true;

    buf_printf(&to, "%s" KEPT, path);
    unlink(buf_z(&to));
    if (link(path, buf_z(&to)) != 0 && errno != ENOENT)
        ok = no(r, path);
    for (size_t i = 0; ok && i < ARRAY_LEN(tails); i++) {
        buf_reset(&from);
        buf_printf(&from, "%s%s", path, tails[i]);
        buf_reset(&to);
        buf_printf(&to, "%s" KEPT "%s", path, tails[i]);
        unlink(buf_z(&to));
        if (rename(buf_z(&from), buf_z(&to)) != 0 && errno != ENOENT)
            ok = no(r, buf_z(&from));
    }
    buf_done(&from);
    buf_done(&to);
    return ok;
}

static bool replace(struct restore *r)
{
    bool ok = true;

    for (size_t i = 0; ok && i < r->n; i++) {
        char *from = state_dir_path(r->staging, r->names[i]);
        char *to = state_dir_path(r->state, r->names[i]);
        ok = (state_dir_make_parents(to, strlen(r->state) + 1, 0700) || no(r, to)) &&
             keep_old(r, to) && (rename(from, to) == 0 || no(r, to)) &&
             (file_sync_folder_of(to) || no(r, to));
        free(from);
        free(to);
    }
    return ok;
}

/* ---- the command ---- */

static int restore(struct restore *r, struct archive *in, const char *file,
                   const struct settings *settings)
{
    char *key = state_dir_path(r->state, "master.key");

    state_dir_remove(r->staging);
    bool ok = (mkdir(r->staging, 0700) == 0 || no(r, r->staging)) && unpack(r, in) &&
              check_files(r) && check_key(r, settings);
    if (!ok)
        cli_failed("nothing was changed: %s", r->why);
    else if (!(ok = replace(r)))
        cli_failed("the restore stopped half-way: %s. Run it again", r->why);
    else
        fprintf(stderr, "restored %zu files from %s; the replaced files have the suffix %s\n", r->n,
                file, KEPT);
    if (ok && settings->master_key == NULL && access(key, F_OK) != 0)
        fprintf(stderr, "before starting the server, put the master key of that backup into %s\n",
                key);
    state_dir_remove(r->staging);
    free(key);
    return ok ? CLI_DONE : CLI_FAILED;
}

static int run_restore(struct cli_job *j)
{
    struct config *cfg = cli_settings(j);
    int rc = CLI_FAILED, lock = -1;

    if (cfg == NULL || is_in_postgres(cfg, "Stop all nodes, then restore a dump with:\n"
                                           "  pg_restore --clean --if-exists --dbname=\"$URL\" "
                                           "FILE    (URL: store.url)")) {
        config_free(cfg);
        return CLI_FAILED;
    }
    struct restore r = {.state = settings_of(cfg)->state_dir};
    struct archive in;
    char *db = state_dir_path(r.state, "bellhop.db");
    r.staging = state_dir_path(r.state, STAGING);
    if (state_dir_open(r.state, r.why) != BH_OK) {
        cli_failed("%s", r.why);
    } else if (access(db, F_OK) == 0 && !cli_flag(j, "--yes")) {
        cli_failed("%s exists. Add --yes to replace it with the backup", db);
    } else if (archive_open(&in, j->args[0], r.why) != BH_OK) {
        cli_failed("nothing was changed: %s", r.why);
    } else { /* only root may be able to read the backup, and only the owner the restored files */
        if (!state_dir_as_owner(r.state))
            cli_failed("nothing was changed: %s: %s", r.state, strerror(errno));
        else if ((lock = store_sqlite_lock(db, r.why)) < 0)
            cli_failed("%s. Stop the server first", r.why);
        else
            rc = restore(&r, &in, j->args[0], settings_of(cfg));
        archive_close(&in);
    }
    if (lock >= 0)
        close(lock);
    for (size_t i = 0; i < r.n; i++)
        free(r.names[i]);
    free(r.names);
    free(r.staging);
    free(db);
    config_free(cfg);
    return rc;
}

const struct command cmd_restore = {
    .name = "restore",
    .summary = "replace the state with a backup",
    .help =
        "Usage: bellhop restore FILE [--yes] [-c FILE | --state-dir DIR]\n\n"
        "Unpacks a backup beside the state, reads every page of its databases, and tries the\n"
        "master key.  Only then does the backup replace the current files, which stay with the\n"
        "suffix \".before-restore\".  Refuses while a server runs.  --yes is needed where a\n"
        "database exists.  Messages that were acknowledged since the backup are delivered\n"
        "again.  Gateways that the backup does not know get a 401, which they retry.  As root\n"
        "the command acts as the owner of the state directory.\n",
    .verbs = (const struct cli_verb[]){{"", .args = "file", .run = run_restore}, {0}},
    .options = (const struct cli_option[]){{"--yes", .kind = CLI_FLAG}, {0}},
};
