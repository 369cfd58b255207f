/* files_sync.c - design.  (files.h has the contract.)
 *
 * The files are the truth and the index follows them.  Body and last line of the history agree, or
 * an editor was here: then the history gets a line about it.  A directory is looked at as a whole
 * when it is first asked for, and after that only where the watch saw something. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "skills/files.h"

#define SETTLE_MS 5      /* an editor that writes in place is given time to end */
#define RACY_NS 50000000 /* a file changed that shortly before it was seen may change unseen */

bool files_enter(struct files_conn *c, const struct skill_where *at, bool make)
{
    skill_dir_close(&c->dir);
    buf_reset(&c->path);
    skill_dir_path(c->files->root, at, &c->path);
    return skill_dir_open(&c->dir, buf_z(&c->path), make);
}

static void index_broke(struct files_conn *c)
{
    if (c->index_ok)
        log_warn(NULL, "skills: the index of %s: %s; it is made anew", buf_z(&c->path),
                 skill_index_problem(c->index));
    c->index_ok = false;
    skill_watch_spoil(c->files->watch, buf_str(&c->path));
}

void files_index_put(struct files_conn *c, const struct skill_where *at, const struct skill_next *n,
                     const struct skill_stamp *stamp)
{
    if (c->index_ok && !skill_index_put(c->index, at, n, stamp))
        index_broke(c);
}

void files_index_drop(struct files_conn *c, const struct skill_where *at, struct str name)
{
    if (c->index_ok && !skill_index_drop(c->index, at, name))
        index_broke(c);
}

/* ---- one skill ---- */

struct known { /* what the history says */
    struct json_parser *parser;
    struct buf line, author, bag;
    struct skill_line last;
    bool any;
};

static void known_done(struct known *k)
{
    json_parser_free(k->parser);
    buf_done(&k->line);
    buf_done(&k->author);
    buf_done(&k->bag);
}

static enum skill_found read_history(struct files_conn *c, struct str name, struct known *k)
{
    int64_t end;
    struct jw w = jw_begin(&k->bag);

    k->parser = json_parser_new();
    enum skill_found found = skill_history_last(&c->dir, name, &k->line, &end);
    if (found != SKILL_FOUND)
        return found;
    k->any = skill_line_read(k->parser, buf_str(&k->line), &k->last);
    if (!k->any || k->last.deleted)
        return SKILL_FOUND;
    if (!k->last.is_whole) {
        found = skill_history_origin(&c->dir, name, &k->last.head.created_at, &k->author);
        k->last.head.author = k->author.n > 0 ? buf_str(&k->author) : STR_NULL;
    }
    if (json_is_object(k->last.bag)) {
        jw_value(&w, k->last.bag);
        k->last.head.bag = buf_str(&k->bag);
    }
    return found;
}

static void set(struct buf *b, struct str s)
{
    buf_reset(b);
    buf_add_str(b, s);
}

/* The version that body and last line tell of. */
static void next_of(const struct known *k, struct str name, struct str body, struct skill_next *n)
{
    const struct skill_head *h = &k->last.head;

    n->name = name;
    n->status = h->status;
    n->previous = k->last.version.previous;
    n->has_previous = k->last.version.has_previous;
    n->created_at = h->created_at;
    n->changed_at = h->updated_at;
    n->status_changed_at = h->status_changed_at;
    n->created = false;
    set(&n->source, body);
    set(&n->author, h->author);
    set(&n->changed_by, k->last.version.changed_by);
    set(&n->bag, h->bag);
    set(&n->description, h->description);
    set(&n->type, h->type);
    skill_next_finish(n);
}

static void owner_of(const struct files_conn *c, const struct stat *st, struct buf *out)
{
    struct passwd pw, *found = NULL;
    char text[1024];

    if (c->files->default_author != NULL)
        buf_add_z(out, c->files->default_author);
    else if (getpwuid_r(st->st_uid, &pw, text, sizeof text, &found) == 0 && found != NULL)
        buf_add_z(out, pw.pw_name);
    else
        buf_printf(out, "uid-%u", st->st_uid);
}

/* The same bytes twice in a row: whoever writes has come to an end. */
static enum skill_found read_settled(struct files_conn *c, struct str name, struct buf *body,
                                     struct stat *st)
{
    const struct timespec pause = {.tv_nsec = SETTLE_MS * 1000000};
    struct buf again = BUF_INIT;
    enum skill_found found;

    for (int tries = 0; tries < 20; tries++) {
        nanosleep(&pause, NULL);
        found = skill_file_read(&c->dir, name, &again, st);
        bool same = found == SKILL_FOUND && str_eq(buf_str(&again), buf_str(body));
        set(body, buf_str(&again));
        if (same || found == SKILL_FAILED)
            break;
    }
    buf_done(&again);
    return found;
}

/* A body its history does not know. */
static enum skill_found take_edit(struct files_conn *c, const struct skill_where *at,
                                  struct str name, struct buf *body, const struct known *k,
                                  struct skill_next *n)
{
    struct stat st;
    struct buf author = BUF_INIT, line = BUF_INIT;
    struct skill_stamp stamp;
    enum skill_found found = read_settled(c, name, body, &st);

    if (found != SKILL_FOUND)
        return found;
    owner_of(c, &st, &author);
    skill_decide_found(c->files->rules, name, buf_str(body), buf_str(&author), st.st_mtim.tv_sec,
                       k->any ? &k->last.head : NULL, n);
    bool ok, same = str_eq(buf_str(&n->source), buf_str(body));
    if (!same || !k->any || !str_eq(k->last.version.content_hash, str_of(n->content_hash))) {
        skill_line_write(n, true, &line);
        ok = skill_file_write(&c->dir, name, same ? NULL : &n->source, buf_str(&line), !k->any,
                              &stamp);
    } else {
        ok = skill_file_stamp(&c->dir, name, &stamp);
    }
    if (ok)
        files_index_put(c, at, n, &stamp);
    buf_done(&author);
    buf_done(&line);
    return ok ? SKILL_FOUND : SKILL_FAILED;
}

/* Index what files and history agree on, unless it is there already. */
static enum skill_found index_known(struct files_conn *c, const struct skill_where *at,
                                    struct str name, const struct skill_next *n)
{
    struct arena arena = ARENA_INIT;
    struct skill_row row;
    struct skill_stamp stamp, old;
    enum skill_found found = SKILL_FOUND;

    if (!skill_file_stamp(&c->dir, name, &stamp))
        return SKILL_MISSING; /* gone this moment; the watch saw it */
    if (c->index_ok)
        found = skill_index_get(c->index, at, name, &arena, &row, &old);
    if (found == SKILL_FAILED)
        index_broke(c);
    else if (found == SKILL_FOUND && c->index_ok && str_eq(row.meta, buf_str(&n->meta)) &&
             row.updated_at == n->changed_at && row.created_at == n->created_at) {
        if (!skill_index_restamp(c->index, at, name, &stamp))
            index_broke(c);
    } else {
        files_index_put(c, at, n, &stamp);
    }
    arena_done(&arena);
    return SKILL_FOUND;
}

enum skill_found files_reconcile(struct files_conn *c, const struct skill_where *at,
                                 struct str name, struct skill_next *ret_n)
{
    struct buf body = BUF_INIT;
    struct known k = {0};
    struct stat st;
    enum skill_found found = skill_file_read(&c->dir, name, &body, &st);
    enum skill_found history = found == SKILL_FOUND ? read_history(c, name, &k) : SKILL_FOUND;

    if (found == SKILL_FOUND && k.any && k.last.deleted)
        found = skill_file_recover(&c->dir, name) ? SKILL_MISSING : SKILL_FAILED;
    if (history == SKILL_FAILED)
        found = SKILL_FAILED;
    if (found == SKILL_MISSING)
        files_index_drop(c, at, name);
    if (found == SKILL_FOUND) {
        next_of(&k, name, buf_str(&body), ret_n);
        if (k.any && str_eq(k.last.version.content_hash, str_of(ret_n->content_hash)))
            found = index_known(c, at, name, ret_n);
        else
            found = take_edit(c, at, name, &body, &k, ret_n);
    }
    known_done(&k);
    buf_done(&body);
    return found;
}

/* ---- a directory ---- */

struct sync {
    struct files_conn *c;
    const struct skill_where *at;
};

static bool sync_name(void *ctx, struct str name)
{
    struct sync *s = ctx;
    struct skill_next n = {0};
    enum skill_found found = files_reconcile(s->c, s->at, name, &n);

    skill_next_done(&n);
    return found != SKILL_FAILED;
}

static bool is_unchanged(struct files_conn *c, const struct skill_where *at, struct str name)
{
    struct arena arena = ARENA_INIT;
    struct skill_row row;
    struct skill_stamp now, old = {0};
    bool same = c->index_ok && skill_file_stamp(&c->dir, name, &now) &&
                skill_index_get(c->index, at, name, &arena, &row, &old) == SKILL_FOUND &&
                now.mtime_ns == old.mtime_ns && now.ino == old.ino && now.size == old.size &&
                now.history_size == old.history_size && old.mtime_ns < old.seen_ns - RACY_NS;

    arena_done(&arena);
    return same;
}

/* The name inside ".NAME.tmp", "NAME.versions.jsonl", "NAME.skill.md"; empty: it is none. */
static struct str name_in(const char *file, const char *prefix, const char *suffix)
{
    struct str s = str_of(file), pre = str_of(prefix), suf = str_of(suffix);

    if (s.n <= pre.n + suf.n || !str_starts(s, pre) || !str_ends(s, suf))
        return STR("");
    s = str_make(s.p + pre.n, s.n - pre.n - suf.n);
    return skill_name_valid(s) ? s : STR("");
}

/* What a crash left: bodies on their way, deletes half done. */
static bool recover_one(struct sync *s, const char *file)
{
    struct str name = name_in(file, ".", ".tmp");
    char body[SKILL_NAME_MAX + 16];

    if (name.n == 0) {
        name = name_in(file, "", SKILL_HISTORY_SUFFIX);
        snprintf(body, sizeof body, "%.*s" SKILL_BODY_SUFFIX, STR_FMT(name));
        if (name.n == 0 || faccessat(s->c->dir.fd, body, F_OK, 0) == 0)
            return true;
    }
    return skill_file_recover(&s->c->dir, name);
}

static bool look_at_one(struct sync *s, const char *file)
{
    struct str name = name_in(file, "", SKILL_BODY_SUFFIX);

    return name.n == 0 || is_unchanged(s->c, s->at, name) || sync_name(s, name);
}

static bool walk(struct sync *s, bool (*each)(struct sync *s, const char *file))
{
    int fd = openat(s->c->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    bool ok = dir != NULL;

    if (dir == NULL && fd >= 0)
        close(fd);
    for (struct dirent *e; ok && (e = readdir(dir)) != NULL;)
        ok = each(s, e->d_name);
    if (dir != NULL)
        closedir(dir);
    return ok;
}

struct gone {
    struct files_conn *c;
    struct buf names; /* each with its NUL */
};

static bool on_indexed(void *ctx, const struct skill_row *row)
{
    struct gone *g = ctx;
    char file[SKILL_NAME_MAX + 16];

    snprintf(file, sizeof file, "%.*s" SKILL_BODY_SUFFIX, STR_FMT(row->name));
    if (g->c->dir.fd >= 0 && faccessat(g->c->dir.fd, file, F_OK, 0) == 0)
        return true;
    buf_add_str(&g->names, row->name);
    buf_add_c(&g->names, '\0');
    return true;
}

static void drop_gone(struct files_conn *c, const struct skill_where *at)
{
    const struct skills_filter everything = {0};
    const struct skill_query q = {&everything, NULL};
    struct gone g = {.c = c};

    if (c->index_ok && skill_index_list(c->index, at, &q, on_indexed, &g) == SKILL_FAILED)
        index_broke(c);
    for (struct str rest = buf_str(&g.names); rest.n > 0;) {
        struct str name = str_of(rest.p);
        files_index_drop(c, at, name);
        rest = str_skip(rest, name.n + 1);
    }
    buf_done(&g.names);
}

bool files_sync(struct files_conn *c, const struct skill_where *at)
{
    struct sync s = {c, at};
    bool all = true, ok = true;

    if (c->dir.fd >= 0)
        ok = skill_watch_take(c->files->watch, buf_str(&c->path), &all, sync_name, &s);
    if (!ok || !all)
        return ok;
    if (c->dir.fd >= 0)
        ok = walk(&s, recover_one) && walk(&s, look_at_one);
    if (ok)
        drop_gone(c, at);
    else
        skill_watch_spoil(c->files->watch, buf_str(&c->path));
    return ok;
}

bool files_sync_once(struct files_conn *c, const struct skill_where *at)
{
    return skill_watch_is_seen(c->files->watch, buf_str(&c->path)) || files_sync(c, at);
}
