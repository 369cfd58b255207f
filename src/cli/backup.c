/* backup.c - bellhop backup FILE: everything in the state directory but the keys, as one file.
 *
 * Needs no server and disturbs none: each database is copied as it is at one moment, the copy is
 * read back, and only then does it go into the archive. */
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "cli/archive.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/state_dir.h"
#include "store/sqlite/sqlite.h"

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

/* What is made anew by itself, or must not lie beside what it opens. */
static bool is_left_out(const char *name)
{
    return name[0] == '.' || str_starts(str_of(name), STR("master.key")) || ends(name, "-wal") ||
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

/* In order of names, so that two backups of the same state are alike. */
static bool add_all(struct backup *b)
{
    char *top = xstrdup(b->state), *const tops[] = {top, NULL};
    FTS *walk = fts_open(tops, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, by_name);
    bool ok = walk != NULL;

    for (FTSENT *e; ok && (e = fts_read(walk)) != NULL;) {
        if (e->fts_level > 0 && is_left_out(e->fts_name))
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
    if (ok && link(part, file) != 0) { /* never over something else */
        snprintf(b->why, sizeof b->why, "%.180s: %s", file, strerror(errno));
        ok = false;
    }
    unlink(part);
    if (ok && !file_sync_folder_of(file))
        snprintf(b->why, sizeof b->why, "%.180s: %s", file, strerror(errno));
    return ok;
}

static int backup(const struct cli_args *a, const char *state)
{
    const char *file = a->rest[0];
    struct backup b = {.state = state};
    struct buf part = BUF_INIT;
    struct stat st;
    int rc = CLI_FAILED;
    char *db = state_dir_path(state, "bellhop.db");

    buf_printf(&part, "%s.part", file);
    buf_printf(&b.copy, "%s.copy", file);
    if (access(db, F_OK) != 0)
        cli_failed("there is no database in %s", state);
    else if (access(file, F_OK) == 0)
        cli_failed("%s exists already: give another name", file);
    else if ((unlink(buf_z(&part)), !make(&b, file, buf_z(&part))))
        cli_failed("no backup was made: %s", b.why);
    else {
        rc = CLI_DONE;
        if (stat(file, &st) == 0)
            fprintf(stderr,
                    "%s: %u files, %.1f MiB, read back.  The master key is not in it: keep it "
                    "elsewhere.\n",
                    file, b.files, (double)st.st_size / (1 << 20));
    }
    buf_done(&part);
    buf_done(&b.copy);
    free(db);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;

    if (!cli_parse(c, argc, argv, NULL, 0, &a))
        return cli_exit(&a);
    if (a.n_rest != 1)
        return cli_misused(c, "which FILE?");
    char *state = cli_state_dir(&a);
    if (state == NULL)
        return CLI_FAILED;
    int rc = backup(&a, state);
    free(state);
    return rc;
}

const struct command cmd_backup = {
    "backup",
    "copy everything to one file, while the server runs",
    "Usage: bellhop backup FILE [-c FILE | --state-dir DIR]\n\n"
    "Copies the databases and the other files of the state directory into one new FILE (a tar).\n"
    "The server may run and be busy: each database is copied as it is at one moment, and each "
    "copy\n"
    "is read back before it goes into the archive.  The master key is left out: without it the\n"
    "secrets in a backup are closed, so keep the two apart.  For a moment the largest database is\n"
    "there twice, beside FILE.\n\n"
    "Back again: bellhop restore FILE\n",
    run,
};
