/* hosted_state.c - see hosted_state.h. */
#include "dispatch/hosted_state.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/agent_state.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/hosted.h"
#include "net/work.h"
#include "store/erasure.h"
#include "tenancy/facts.h"

struct state_pass {
    struct work work;
    struct dispatch *d;
    struct erasure *e; /* borrowed; NULL: the retention */
    char **paths;      /* owned; the files of sessions */
    size_t n_paths;
    bool all;                   /* of a tenant */
    struct buf platform, user;  /* the person; empty: the retention */
    int64_t before_ms;          /* 0: no retention */
    struct json_parser *parser; /* owned */
    int failed;                 /* errno */
};

/* ---- on the thread ---- */

static void note_failure(struct state_pass *p)
{
    if (errno != ENOENT)
        p->failed = errno;
}

static void remove_file(struct state_pass *p, const char *path)
{
    if (unlink(path) != 0)
        note_failure(p);
}

static bool is_person(const struct state_pass *p, struct json entry)
{
    struct str platform = json_str(entry, "platform");

    if (p->user.n == 0)
        return false;
    return platform.p == NULL || /* nobody knows whose it is */
           (str_eq(platform, buf_str(&p->platform)) &&
            str_eq(json_str(entry, "user"), buf_str(&p->user)));
}

static bool entry_goes(const struct state_pass *p, struct json entry)
{
    return is_person(p, entry) || json_i64(entry, "at", 0) < p->before_ms;
}

/* Puts a file with @text in the place of @path; none if @text is empty. */
static void replace(struct state_pass *p, const char *folder, const char *name, struct str text)
{
    BUF_LOCAL path = BUF_INIT, fresh = BUF_INIT;

    buf_printf(&path, "%s/%s", folder, name);
    buf_printf(&fresh, "%s/.%s", folder, name);
    if (text.n == 0)
        remove_file(p, buf_z(&path));
    else if (!file_put(buf_z(&fresh), O_TRUNC, text) || rename(buf_z(&fresh), buf_z(&path)) != 0)
        note_failure(p);
}

/* An unreadable history goes whole. */
static void sift_chat(struct state_pass *p, const char *folder, const char *name)
{
    BUF_LOCAL path = BUF_INIT, text = BUF_INIT, left = BUF_INIT;
    struct jw w = jw_begin(&left);
    size_t n = 0, n_left = 0;
    struct json doc;

    buf_printf(&path, "%s/%s", folder, name);
    if (!file_read(buf_z(&path), AGENT_CHAT_MAX, &text)) {
        note_failure(p);
        return;
    }
    jw_arr(&w);
    if (json_parse(p->parser, buf_str(&text), &doc))
        for (struct json_iter it = {0}; json_next(doc, &it); n++)
            if (!entry_goes(p, it.value)) {
                jw_value(&w, it.value);
                n_left++;
            }
    jw_end_arr(&w);
    if (n_left < n || n == 0)
        replace(p, folder, name, n_left > 0 ? buf_str(&left) : STR(""));
}

static void sift_chats(struct state_pass *p, const char *folder)
{
    DIR *dir = opendir(folder);
    BUF_LOCAL path = BUF_INIT;

    if (dir == NULL)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        buf_reset(&path);
        buf_printf(&path, "%s/%s", folder, e->d_name);
        if (p->all || e->d_name[0] == '.') /* or a pass was cut off here */
            remove_file(p, buf_z(&path));
        else
            sift_chat(p, folder, e->d_name);
    }
    closedir(dir);
}

static void sift_sessions(struct state_pass *p, const char *path)
{
    BUF_LOCAL text = BUF_INIT, left = BUF_INIT, folder = BUF_INIT;
    struct str rest, line;
    struct json doc;

    if (!file_read(path, AGENT_SESSIONS_MAX, &text)) {
        note_failure(p);
        return;
    }
    for (rest = buf_str(&text); str_split(&rest, '\n', &line);)
        if (line.n > 0 && (!json_parse(p->parser, line, &doc) || !is_person(p, doc))) {
            buf_add_str(&left, line);
            buf_add_c(&left, '\n');
        }
    const char *name = strrchr(path, '/') + 1;
    buf_add(&folder, path, (size_t)(name - path) - 1);
    if (left.n < text.n)
        replace(p, buf_z(&folder), name, buf_str(&left));
}

static void run(struct work *w)
{
    struct state_pass *p = container_of(w, struct state_pass, work);
    BUF_LOCAL chats = BUF_INIT;

    for (size_t i = 0; i < p->n_paths; i++) {
        buf_reset(&chats);
        buf_printf(&chats, "%s" AGENT_CHATS, p->paths[i]);
        sift_chats(p, buf_z(&chats));
        if (p->all)
            remove_file(p, p->paths[i]);
        else if (p->user.n > 0)
            sift_sessions(p, p->paths[i]);
    }
}

/* ---- on the loop ---- */

static void done(struct work *w)
{
    struct state_pass *p = container_of(w, struct state_pass, work);
    struct erasure *e = p->d->closing ? NULL : p->e;
    int failed = p->failed;

    if (p->e == NULL)
        p->d->aging = false;
    for (size_t i = 0; i < p->n_paths; i++)
        free(p->paths[i]);
    free(p->paths);
    buf_done(&p->platform);
    buf_done(&p->user);
    json_parser_free(p->parser);
    free(p);
    if (failed != 0)
        log_warn(NULL, "what hosted agents keep of people cannot be deleted: %s", strerror(failed));
    if (e != NULL && failed != 0)
        erasure_fail(e, "A file of a hosted agent could not be deleted: ask again.");
    else if (e != NULL)
        erasure_next(e);
}

/* A pass over the files of the hosted agents of @tenant; absent: of all tenants. */
static struct state_pass *pass_new(struct dispatch *d, struct str tenant)
{
    struct state_pass *p = xcalloc(1, sizeof *p);
    struct buf folder = BUF_INIT;
    struct list *all;
    size_t room = 0;

    *p = (struct state_pass){.d = d, .parser = json_parser_new()};
    p->work = (struct work){.run = run, .done = done};
    hosted_folder(d->env.state_dir, &folder);
    facts_gateways(d->env.facts, &all);
    for (const struct list *it = all->next; it != all; it = it->next) {
        const struct gateway *g = list_entry(it, const struct gateway, link);
        struct buf path = BUF_INIT;
        if (!hosted_owns(g->id) || (tenant.p != NULL && !str_eq(str_of(g->tenant), tenant)))
            continue;
        agent_state_path(&path, buf_z(&folder), str_of(g->id), AGENT_SESSIONS);
        p->paths = xgrow(p->paths, p->n_paths, &room, sizeof *p->paths);
        p->paths[p->n_paths++] = buf_take(&path);
    }
    buf_done(&folder);
    return p;
}

/* Without a thread it fails, on the loop. */
static void pass_start(struct state_pass *p)
{
    if (work_start(p->d->files, &p->work) == BH_OK)
        return;
    p->failed = EAGAIN;
    done(&p->work);
}

void hosted_state_erase(struct dispatch *d, struct erasure *e)
{
    const struct erase_subject *s = erasure_subject(e);

    if (s->dry || d->env.state_dir == NULL) {
        erasure_next(e);
        return;
    }
    struct state_pass *p = pass_new(d, s->tenant);
    p->e = e;
    p->all = s->tenant.p != NULL;
    buf_add_str(&p->platform, s->platform);
    buf_add_str(&p->user, s->user);
    pass_start(p);
}

void hosted_state_age(struct dispatch *d)
{
    int64_t keep_ms = d->env.retention_ms != NULL ? *d->env.retention_ms : 0;

    if (keep_ms <= 0 || d->aging || d->env.state_dir == NULL)
        return;
    struct state_pass *p = pass_new(d, STR_NULL);
    p->before_ms = clock_wall_ms(d->env.clock) - keep_ms;
    d->aging = true;
    pass_start(p);
}
