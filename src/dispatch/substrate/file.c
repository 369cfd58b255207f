/* file.c - delivers into a drop directory: each payload is the file <dir>/<dispatch_id>.json.
 *
 * A thread writes a temporary file, syncs it and renames it, so a reader never sees half a file.
 * An existing file with the same bytes is the delivery of an earlier attempt.  An existing file
 * with other bytes is kept: it may be of another kind, of another tenant's agent with the same
 * directory, or of a wake.  Then the new file's name also has its kind, and next a hash of its
 * content.
 *
 * The directory must not be a symbolic link: anyone who may replace the link could redirect the
 * files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/file.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/substrate.h"
#include "net/work.h"

#define NAME_MAX_SAFE 120
#define OUTSIDE_MS 30000 /* for a file that the helper writes */

struct drop {
    struct errand_job job;
    struct work work;
    struct buf body;
    char *dir;
    char stem[128], word[16]; /* <id>, and <kind> */
    char from[9];             /* keeps the temporary files of tenants apart */
    bool look, cancelled;
    enum errand_result result;
    char why[256];
};

static const struct config_key keys[] = {
    {"dir", CFG_TEXT, CFG_RELOAD, offsetof(struct agent_settings, dir), .required = true,
     .what = "The directory that gets one file per delivery; it must exist."},
    {0},
};
static const struct config_section config = {.keys = keys,
                                             .size = sizeof(struct agent_settings),
                                             .name = "file"};

/* ---- on a thread ---- */

static void failed(struct drop *j, const char *what)
{
    j->result = ERRAND_FAILED;
    snprintf(j->why, sizeof j->why, "%s %.120s: %s", what, j->dir, strerror(errno));
}

/* True when the file has exactly these bytes. */
static bool holds(int dir, const char *name, struct str body)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char part[4096];
    ssize_t n;

    if (fd < 0)
        return false;
    while ((n = read(fd, part, sizeof part)) > 0) {
        if ((size_t)n > body.n || memcmp(part, body.p, (size_t)n) != 0)
            break;
        body = str_skip(body, (size_t)n);
    }
    close(fd);
    return n == 0 && body.n == 0;
}

enum { NAMES = 3 };
typedef char file_name[192];

/* Renames @temp unless a file with other content has the name.  False: errno is EEXIST for such a
 * file. */
static bool place(int dir, const char *temp, const char *name, struct str body)
{
    if (renameat2(dir, temp, dir, name, RENAME_NOREPLACE) == 0)
        return true;
    if (errno == EINVAL) /* the file system has no RENAME_NOREPLACE */
        errno = faccessat(dir, name, F_OK, 0) == 0 ? EEXIST : ENOENT;
    else if (errno != EEXIST)
        return false;
    if (errno == EEXIST && !holds(dir, name, body)) {
        errno = EEXIST;
        return false;
    }
    return renameat(dir, temp, dir, name) == 0;
}

static void write_file(struct drop *j, int dir)
{
    struct str body = buf_str(&j->body);
    char temp[224];
    file_name names[NAMES]; /* in the order they are tried */
    uint8_t hash[SHA256_BYTES];
    struct buf hex = BUF_INIT;
    int fd;

    sha256(body, hash);
    hex_add(&hex, hash, 16);
    snprintf(names[0], sizeof(file_name), "%s.json", j->stem);
    snprintf(names[1], sizeof(file_name), "%s.%s.json", j->stem, j->word);
    snprintf(names[2], sizeof(file_name), "%s.%s.%s.json", j->stem, j->word, buf_z(&hex));
    buf_done(&hex);
    snprintf(temp, sizeof temp, ".%s.%s.part", names[NAMES - 1], j->from);
    fd = openat(dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        failed(j, "cannot write to");
        return;
    }
    bool ok = fchmod(fd, 0640) == 0 && file_write(fd, body, 0) && fsync(fd) == 0, placed = false;
    for (int n = 0; ok && n < NAMES && !placed; n++) {
        placed = place(dir, temp, names[n], body);
        ok = placed || errno == EEXIST;
    }
    if (!ok || !placed || fsync(dir) != 0) {
        failed(j, "cannot write to");
        unlinkat(dir, temp, 0);
    }
    close(fd);
}

static void run_drop(struct work *w)
{
    struct drop *j = container_of(w, struct drop, work);
    int dir = open(j->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (dir < 0) {
        failed(j, errno == ELOOP || errno == ENOTDIR ? "not a real directory:" : "cannot open");
        return;
    }
    if (!j->look)
        write_file(j, dir);
    else if (faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) != 0)
        failed(j, "cannot write to");
    close(dir);
}

/* ---- in a process of its own ---- */

int file_drop(int argc, char **argv, struct str body)
{
    struct drop j = {.result = ERRAND_DONE};

    if (argc != 5)
        return 2;
    j.dir = argv[0];
    snprintf(j.stem, sizeof j.stem, "%s", argv[1]);
    snprintf(j.word, sizeof j.word, "%s", argv[2]);
    snprintf(j.from, sizeof j.from, "%s", argv[3]);
    j.look = strcmp(argv[4], "look") == 0;
    buf_add_str(&j.body, body);
    run_drop(&j.work);
    buf_done(&j.body);
    if (j.result != ERRAND_DONE)
        fprintf(stderr, "%s\n", j.why);
    return j.result == ERRAND_DONE ? 0 : 1;
}

/* ---- on the loop ---- */

static void drop_free(struct drop *j)
{
    buf_done(&j->body);
    free(j->dir);
    free(j);
}

static void on_dropped(struct work *w)
{
    struct drop *j = container_of(w, struct drop, work);

    if (!j->cancelled && w->dropped) {
        j->result = ERRAND_FAILED;
        snprintf(j->why, sizeof j->why, "going down");
    }
    if (!j->cancelled) {
        struct errand_end e = {.result = j->result, .text = str_of(j->why)};
        j->job.done(j->job.ctx, &e);
    }
    drop_free(j);
}

static void cancel(struct errand_job *base)
{
    container_of(base, struct drop, job)->cancelled = true; /* freed by on_dropped() */
}

static struct errand_job *run(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx)
{
    struct drop *j = xcalloc(1, sizeof *j);
    struct str id = e->dispatch_id;
    uint8_t hash[SHA256_BYTES];
    struct buf hex = BUF_INIT;

    j->job = (struct errand_job){.done = done, .ctx = ctx, .cancel = cancel};
    j->work = (struct work){.run = run_drop, .done = on_dropped};
    j->look = e->kind == ERRAND_LOOK;
    j->dir = xstrdup(a->cfg->s.dir);
    buf_add_str(&j->body, e->body);
    sha256(str_of(a->tenant), hash);
    hex_add(&hex, hash, 4);
    snprintf(j->from, sizeof j->from, "%s", buf_z(&hex));
    buf_reset(&hex);
    sha256(id, hash);
    hex_add(&hex, hash, sizeof hash);
    if (id.n > 0 && id.n <= NAME_MAX_SAFE && id.p[0] != '.' && id.p[0] != '-' &&
        str_has_only(id, "-_."))
        snprintf(j->stem, sizeof j->stem, "%.*s", STR_FMT(id));
    else
        snprintf(j->stem, sizeof j->stem, "sha256-%s", buf_z(&hex));
    buf_done(&hex);
    snprintf(j->word, sizeof j->word, "%.*s", STR_FMT(e->word));
    if (a->outside) {
        const char *const more[] = {"file",  j->dir,  j->stem,
                                    j->word, j->from, j->look ? "look" : "write",
                                    NULL};
        struct errand_job *job = drop_run(a, more, buf_str(&j->body), OUTSIDE_MS, done, ctx);
        drop_free(j);
        return job;
    }
    if (work_start(a->d->files, &j->work) == BH_OK)
        return &j->job;
    drop_free(j); /* the pool's queue is full */
    return errand_end_soon(a->d, ERRAND_AWAY, CAUSE_NETWORK, done, ctx,
                           "too many files are being written");
}

const struct substrate_ops substrate_file = {.name = "file",
                                             .config = &config,
                                             .can = SUBSTRATE_LOCAL,
                                             .run = run};
