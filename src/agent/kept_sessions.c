/* kept_sessions.c - see kept_sessions.h. */
#include "agent/kept_sessions.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

struct kept {
    struct list link;                      /* oldest first */
    char *key, *session, *platform, *user; /* the last two: who began it; may be NULL */
};

struct kept_sessions {
    char *path; /* owned; NULL: memory only */
    int fd;     /* -1: not open */
    size_t n_lines;
    struct map by_key;
    struct list all;
};

static void kept_free(struct kept_sessions *k, struct kept *one)
{
    map_del(&k->by_key, str_of(one->key));
    list_remove(&one->link);
    free(one->key);
    free(one->session);
    free(one->platform);
    free(one->user);
    free(one);
}

static void forget(struct kept_sessions *k, struct str key)
{
    struct kept *one = map_get(&k->by_key, key);

    if (one != NULL)
        kept_free(k, one);
}

static void remember(struct kept_sessions *k, struct str key, struct str session,
                     struct agent_person by)
{
    forget(k, key);
    struct kept *one = xcalloc(1, sizeof *one);
    *one = (struct kept){.key = str_dup(key),
                         .session = str_dup(session),
                         .platform = str_dup_opt(by.platform),
                         .user = str_dup_opt(by.user)};
    list_init(&one->link);
    list_append(&k->all, &one->link);
    map_put(&k->by_key, str_of(one->key), one);
    if (map_count(&k->by_key) > KEPT_SESSIONS_MAX)
        kept_free(k, list_first(&k->all, struct kept, link));
}

/* A line that is cut or not ours is skipped. */
static void read_all(struct kept_sessions *k, struct str rest)
{
    struct json_parser *p = json_parser_new();
    struct str line;
    struct json doc;

    while (str_split(&rest, '\n', &line)) {
        k->n_lines++;
        if (!json_parse(p, line, &doc) || str_is_empty(json_str(doc, "key")))
            continue;
        struct str session = json_str(doc, "session");
        if (session.n > 0 && session.n <= KEPT_SESSION_BYTES)
            remember(k, json_str(doc, "key"), session,
                     (struct agent_person){json_str(doc, "platform"), json_str(doc, "user")});
        else
            forget(k, json_str(doc, "key"));
    }
    json_parser_free(p);
}

static void add_line(struct buf *out, struct str key, struct str session, struct agent_person by)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "key", key);
    jw_kstr(&w, "session", session);
    jw_kstr_opt(&w, "platform", by.platform);
    jw_kstr_opt(&w, "user", by.user);
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

static void open_file(struct kept_sessions *k)
{
    k->fd = open(k->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (k->fd < 0)
        log_warn(NULL, "sessions are not remembered across restarts: %s: %s", k->path,
                 strerror(errno));
}

/* Writes the file anew, with one line for each session. */
static void rewrite(struct kept_sessions *k)
{
    BUF_LOCAL text = BUF_INIT, path = BUF_INIT;

    list_each (&k->all, it, next) {
        struct kept *one = list_entry(it, struct kept, link);
        add_line(&text, str_of(one->key), str_of(one->session),
                 (struct agent_person){str_of(one->platform), str_of(one->user)});
    }
    buf_printf(&path, "%s.new", k->path);
    if (!file_put(buf_z(&path), O_TRUNC, buf_str(&text)) || rename(buf_z(&path), k->path) < 0) {
        log_warn(NULL, "cannot write %s: %s", k->path, strerror(errno));
        return;
    }
    close(k->fd);
    k->n_lines = map_count(&k->by_key);
    open_file(k);
}

static void append(struct kept_sessions *k, struct str key, struct str session,
                   struct agent_person by)
{
    BUF_LOCAL line = BUF_INIT;

    if (k->fd < 0)
        return;
    add_line(&line, key, session, by);
    if (!file_write(k->fd, buf_str(&line), FILE_END))
        log_warn(NULL, "cannot write %s: %s", k->path, strerror(errno));
    if (++k->n_lines > 2 * KEPT_SESSIONS_MAX)
        rewrite(k);
}

static void load(struct kept_sessions *k)
{
    BUF_LOCAL text = BUF_INIT;

    if (file_read(k->path, AGENT_SESSIONS_MAX, &text))
        read_all(k, buf_str(&text));
    else if (errno != ENOENT)
        log_warn(NULL, "the sessions of earlier runs are lost: %s: %s", k->path, strerror(errno));
    open_file(k);
    if (k->fd >= 0 && text.n > 0 && text.p[text.n - 1] != '\n') /* its last line was cut */
        rewrite(k);
}

static void forget_all(struct kept_sessions *k)
{
    while (!list_is_empty(&k->all))
        kept_free(k, list_first(&k->all, struct kept, link));
}

/* Somebody was erased if another file, or none, is in the place of ours. */
static void look_again(struct kept_sessions *k)
{
    struct stat st;

    if (k->fd < 0 || fstat(k->fd, &st) != 0 || st.st_nlink > 0)
        return;
    close(k->fd);
    forget_all(k);
    k->n_lines = 0;
    load(k);
}

struct kept_sessions *kept_sessions_open(const char *path)
{
    struct kept_sessions *k = xcalloc(1, sizeof *k);

    *k = (struct kept_sessions){.path = xstrdup(path), .fd = -1, .by_key = MAP_INIT};
    list_init(&k->all);
    if (path != NULL)
        load(k);
    return k;
}

void kept_sessions_close(struct kept_sessions *k)
{
    if (k == NULL)
        return;
    forget_all(k);
    map_done(&k->by_key);
    if (k->fd >= 0)
        close(k->fd);
    free(k->path);
    free(k);
}

const char *kept_sessions_get(struct kept_sessions *k, struct str key)
{
    look_again(k);
    const struct kept *one = map_get(&k->by_key, key);

    return one != NULL ? one->session : NULL;
}

void kept_sessions_put(struct kept_sessions *k, struct str key, struct str session,
                       struct agent_person by)
{
    const char *now = kept_sessions_get(k, key);

    if (session.n > KEPT_SESSION_BYTES || (now != NULL && str_eq(str_of(now), session)))
        return;
    remember(k, key, session, by);
    append(k, key, session, by);
}

void kept_sessions_forget(struct kept_sessions *k, struct str key)
{
    if (kept_sessions_get(k, key) == NULL)
        return;
    forget(k, key);
    append(k, key, STR(""), (struct agent_person){0});
}
