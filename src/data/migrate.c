/* migrate.c - design.  (migrate.h has the contract.)
 *
 * A migration into files builds them in DIR.new, which becomes DIR when all are complete. */
#include "data/migrate.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/mem.h"
#include "data/database.h"
#include "data/remote.h"

struct data_migration {
    struct remote *remote;
    struct database_location place;
    struct str key; /* of the store that is copied */
    struct database *file;
    struct data_migrated *moved;
    char *why;
};

static bool failed(struct data_migration *m, const char *side)
{
    snprintf(m->why, 256, "the data store %.*s, %s: %.100s", (int)(m->key.n < 60 ? m->key.n : 60),
             m->key.p != NULL ? m->key.p : "", side,
             side[0] == 'P' ? remote_problem(m->remote) : database_ops.problem(m->file));
    return false;
}

static bool open_file(struct data_migration *m, bool write)
{
    m->file = database_ops.open(&m->place, m->key, write, m->why);
    return m->file != NULL && database_ops.begin(m->file, write, m->why);
}

static void close_file(struct data_migration *m)
{
    if (m->file != NULL)
        database_ops.close(m->file);
    m->file = NULL;
}

/* ---- into PostgreSQL ---- */

static bool add_to_remote(void *ctx, int64_t id, const struct data_entry *e)
{
    struct data_migration *m = ctx;
    int64_t store, n;

    (void)id;
    m->moved->entries++;
    return remote_add(m->remote, m->key, e, &store, &n) || failed(m, "PostgreSQL");
}

static bool migrate_file_in(struct data_migration *m)
{
    m->moved->stores++;
    bool ok = open_file(m, false);
    if (ok && (!remote_begin(m->remote, true) || !remote_clear(m->remote, m->key)))
        ok = failed(m, "PostgreSQL");
    if (ok && !database_each(m->file, add_to_remote, m))
        ok = m->why[0] == '\0' ? failed(m, "its file") : false;
    if (ok && remote_commit(m->remote) != SQLDB_DONE)
        ok = failed(m, "PostgreSQL");
    if (!ok)
        remote_rollback(m->remote);
    close_file(m);
    return ok;
}

static bool migrate_folder_in(struct data_migration *m, const char *folder)
{
    struct buf path = BUF_INIT, key = BUF_INIT;
    bool ok = true;

    buf_printf(&path, "%s/%s", m->place.dir, folder);
    DIR *d = opendir(buf_z(&path));
    for (struct dirent *e; ok && d != NULL && (e = readdir(d)) != NULL;) {
        struct str name = str_of(e->d_name);
        if (!str_ends(name, STR(".db")))
            continue;
        buf_reset(&key);
        buf_printf(&key, "%s/%.*s", folder, (int)name.n - 3, name.p);
        m->key = str_of(buf_z(&key));
        ok = migrate_file_in(m);
    }
    if (d != NULL)
        closedir(d);
    buf_done(&path);
    buf_done(&key);
    return ok;
}

bool data_migrate_in(const char *dir, const char *url, struct data_migrated *ret, char *ret_why)
{
    struct data_migration m = {.place = {.dir = dir}, .moved = ret, .why = ret_why};
    DIR *d = opendir(dir);
    bool ok = true;

    ret_why[0] = '\0';
    m.remote = remote_new(url, 0);
    for (struct dirent *e; ok && d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        ok = (m.moved->stores > 0 || remote_open(url, ret_why)) && migrate_folder_in(&m, e->d_name);
    }
    if (d != NULL)
        closedir(d);
    remote_free(m.remote);
    return ok;
}

/* ---- into files ---- */

static bool add_to_file(void *ctx, int64_t n, const struct data_entry *found)
{
    struct data_migration *m = ctx;
    struct arena arena = ARENA_INIT;
    struct data_entry *e = arena_alloc(&arena, sizeof *e);

    (void)n;
    *e = *found;
    data_entry_marks(e, &arena);
    m->moved->entries++;
    bool ok = database_write(m->file, e) || failed(m, "its file");
    arena_done(&arena);
    return ok;
}

static bool migrate_store_out(struct data_migration *m, int64_t store)
{
    int64_t before = -1, last = 0;
    bool ok = open_file(m, true) && (database_clear(m->file) || failed(m, "its file"));

    m->moved->stores++;
    while (ok && last > before) {
        before = last;
        ok = remote_since(m->remote, store, before, add_to_file, m, &last) ||
             (m->why[0] == '\0' ? failed(m, "PostgreSQL") : false);
    }
    if (ok && !database_ops.commit(m->file, m->why))
        ok = false;
    close_file(m);
    return ok;
}

struct stores {         /* of PostgreSQL */
    struct arena arena; /* the keys */
    struct one_store {
        int64_t id;
        struct str key;
    } * all; /* owned */
    size_t n, cap;
};

static bool on_store(void *ctx, int64_t id, struct str key)
{
    struct stores *s = ctx;

    s->all = xgrow(s->all, s->n, &s->cap, sizeof *s->all);
    s->all[s->n++] = (struct one_store){id, arena_str(&s->arena, key)};
    return true;
}

bool data_migrate_out(const char *url, const char *dir, struct data_migrated *ret, char *ret_why)
{
    struct data_migration m = {.moved = ret, .why = ret_why, .remote = remote_new(url, 0)};
    struct stores s = {0};
    struct buf fresh = BUF_INIT;
    bool ok = remote_open(url, ret_why);

    buf_printf(&fresh, "%s.new", dir);
    m.place.dir = buf_z(&fresh);
    if (ok && (!remote_begin(m.remote, false) || !remote_stores(m.remote, on_store, &s)))
        ok = failed(&m, "PostgreSQL");
    if (ok && s.n > 0 && rmdir(dir) != 0 && errno != ENOENT)
        ok = bh_why(ret_why, "%.160s holds data already: move it away", dir);
    if (ok && s.n > 0 && mkdir(buf_z(&fresh), 0700) != 0 && errno != EEXIST)
        ok = bh_why(ret_why, "cannot make %.160s: %s", buf_z(&fresh), strerror(errno));
    for (size_t i = 0; i < s.n && ok; i++) {
        m.key = s.all[i].key;
        ok = migrate_store_out(&m, s.all[i].id);
    }
    if (ok && s.n > 0 && rename(buf_z(&fresh), dir) != 0)
        ok = bh_why(ret_why, "cannot rename %.160s: %s", buf_z(&fresh), strerror(errno));
    remote_rollback(m.remote);
    remote_free(m.remote);
    arena_done(&s.arena);
    free(s.all);
    buf_done(&fresh);
    return ok;
}
