/* pipe.c - delivers into a FIFO, one line per payload.
 *
 * The FIFO stays open while it has a reader, so that a loop of `read` sees no end of file between
 * two lines.  A line counts as delivered once the pipe is empty.  Lines that a reader leaves unread
 * are lost with the pipe and are sent again.  Without a reader the agent is away. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/substrate.h"

#define AT(member) offsetof(struct agent_settings, member)
#define LOOK_FIRST_MS 1 /* interval of checks whether the line was read; it doubles */
#define LOOK_LONGEST_MS 50

struct pipe_line {
    struct errand_job job;
    struct recipient *a; /* borrowed */
    struct buf bytes;
    size_t written;
    struct timer look;
    int64_t pause_ms, deadline_ms;
    bool only_look;
};

static const struct config_key keys[] = {
    {"path", CFG_TEXT, CFG_RELOAD, AT(path), .required = true, .what = "The FIFO; it must exist."},
    {"timeout", CFG_DURATION, CFG_RELOAD, AT(timeout_ms), "60s", .min = 100, .max = 3600000,
     .what = "How long a reader may take for one line."},
    {0},
};
static const struct config_section config = {.keys = keys,
                                             .size = sizeof(struct agent_settings),
                                             .name = "pipe"};

/* ---- the FIFO ---- */

static void hang_up(struct recipient *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}

static bool has_reader(const struct recipient *a)
{
    struct pollfd p = {.fd = a->fd, .events = POLLOUT};

    return a->fd >= 0 && poll(&p, 1, 0) >= 0 && (p.revents & (POLLERR | POLLNVAL)) == 0;
}

/* Returns 0 or errno; ENXIO: no reader. */
static int open_fifo(struct recipient *a)
{
    struct stat st;

    if (has_reader(a))
        return 0;
    hang_up(a);
    a->fd = open(a->cfg->s.path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (a->fd < 0)
        return errno;
    if (fstat(a->fd, &st) == 0 && S_ISFIFO(st.st_mode))
        return 0;
    hang_up(a);
    return ESPIPE;
}

/* Never reopens an open FIFO: half a line may be in it. */
static const char *away(struct recipient *a)
{
    bool there = a->outside || (a->fd >= 0 ? has_reader(a) : open_fifo(a) != ENXIO);

    return there ? NULL : PIPE_UNREAD;
}

/* ---- one line ---- */

static void line_free(struct pipe_line *j)
{
    timer_stop(j->a->d->env.clock, &j->look);
    buf_done(&j->bytes);
    free(j);
}

static void cancel(struct errand_job *base)
{
    struct pipe_line *j = container_of(base, struct pipe_line, job);

    if (j->written > 0 && j->written < j->bytes.n)
        hang_up(j->a); /* half a line: the reader sees the end of file */
    line_free(j);
}

static void finish(struct pipe_line *j, enum errand_result result, const char *why)
{
    struct errand_end e = {.result = result, .cause = CAUSE_NETWORK, .text = str_of(why)};

    if (result != ERRAND_DONE && j->written > 0)
        hang_up(j->a);
    j->job.done(j->job.ctx, &e);
    line_free(j);
}

static void write_more(struct pipe_line *j, int fd)
{
    while (j->written < j->bytes.n) {
        ssize_t n = write(fd, j->bytes.p + j->written, j->bytes.n - j->written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return; /* the pipe is full or the reader is gone; on_look() checks */
        j->written += (size_t)n;
        j->pause_ms = LOOK_FIRST_MS;
    }
}

static void on_look(struct timer *t)
{
    struct pipe_line *j = container_of(t, struct pipe_line, look);
    struct recipient *a = j->a;
    int failed = j->written > 0 ? (has_reader(a) ? 0 : EPIPE) : open_fifo(a);
    int unread = 0;
    char why[256];

    if (failed == ENXIO || failed == EPIPE) {
        finish(j, ERRAND_AWAY, PIPE_UNREAD);
        return;
    }
    if (failed != 0) {
        snprintf(why, sizeof why, "cannot write to the pipe %.150s: %s", j->a->cfg->s.path,
                 failed == ESPIPE ? "it is no FIFO" : strerror(failed));
        finish(j, ERRAND_FAILED, why);
        return;
    }
    if (!j->only_look)
        write_more(j, a->fd);
    if (j->only_look || (j->written == j->bytes.n && ioctl(a->fd, FIONREAD, &unread) == 0 &&
                         unread == 0 && has_reader(a)))
        finish(j, ERRAND_DONE, "");
    else if (clock_now_ms(a->d->env.clock) >= j->deadline_ms)
        finish(j, ERRAND_FAILED, "the reader of the pipe does not read");
    else {
        timer_set(a->d->env.clock, &j->look, j->pause_ms);
        j->pause_ms = j->pause_ms * 2 < LOOK_LONGEST_MS ? j->pause_ms * 2 : LOOK_LONGEST_MS;
    }
}

/* ---- in a process of its own ---- */

static int drop_failed(const char *path, const char *why)
{
    fprintf(stderr, "cannot write to the pipe %.150s: %s\n", path, why);
    return 1;
}

/* Writes the line and waits until it is read, or until the helper ends the process. */
int pipe_drop(int argc, char **argv, struct str body)
{
    struct stat st;
    int fd = argc == 2 ? open(argv[0], O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW) : -1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int unread = 1;

    if (argc != 2)
        return 2;
    if (fd < 0 && errno == ENXIO) {
        fputs(PIPE_UNREAD "\n", stderr);
        return 1;
    }
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode))
        return drop_failed(argv[0], fd < 0 ? strerror(errno) : "it is no FIFO");
    signal(SIGPIPE, SIG_IGN);
    for (bool ended = strcmp(argv[1], "look") == 0; !ended;) {
        struct str rest = body.n > 0 ? body : STR("\n");
        ssize_t n = poll(&p, 1, -1) > 0 ? write(fd, rest.p, rest.n) : -1;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return drop_failed(argv[0], strerror(errno));
        ended = n > 0 && body.n == 0;
        body = n > 0 ? str_skip(body, (size_t)n < body.n ? (size_t)n : body.n) : body;
    }
    while (strcmp(argv[1], "look") != 0 && ioctl(fd, FIONREAD, &unread) == 0 && unread > 0) {
        if (poll(&p, 1, 0) > 0 && (p.revents & POLLERR) != 0)
            return drop_failed(argv[0], "its reader has gone");
        usleep(2000);
    }
    return 0;
}

static struct errand_job *run(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx)
{
    const char *const more[] = {"pipe", a->cfg->s.path, e->kind == ERRAND_LOOK ? "look" : "write",
                                NULL};
    if (a->outside)
        return drop_run(a, more, e->body, a->cfg->s.timeout_ms, done, ctx);
    struct pipe_line *j = xcalloc(1, sizeof *j);

    *j = (struct pipe_line){.job = {.done = done, .ctx = ctx, .cancel = cancel},
                            .a = a,
                            .only_look = e->kind == ERRAND_LOOK,
                            .pause_ms = LOOK_FIRST_MS,
                            .deadline_ms = clock_now_ms(a->d->env.clock) + a->cfg->s.timeout_ms};
    buf_add_str(&j->bytes, e->body);
    buf_add_c(&j->bytes, '\n');
    timer_init(&j->look, on_look);
    timer_set(a->d->env.clock, &j->look, 0);
    return &j->job;
}

const struct substrate_ops substrate_pipe = {
    .name = "pipe",
    .config = &config,
    .can = SUBSTRATE_LOCAL,
    .run = run,
    .away = away,
};
