/* program.c - design.  (program.h has the contract.)
 *
 * A pidfd reports the exit, so no signal handler is involved.  The exit ends the program, not the
 * end of its output, because a grandchild may keep stdout open for ever.  At the exit the pipe is
 * drained once.
 *
 * FIONREAD on the pipe tells how much the program has read.  A line written to a program that dies
 * before reading it counts as not taken. */
#include "agent/program.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"

#define END_PATIENCE_MS 5000
#define TERM_PATIENCE_MS 2000
#define READ_BYTES 65536

struct program {
    struct loop *loop;             /* borrowed */
    const struct program_ops *ops; /* borrowed */
    void *ctx;
    pid_t pid;
    int in, out, pidfd;                      /* -1: closed */
    struct loop_fd *on_in, *on_out, *on_pid; /* owned */
    struct buf unsent;
    uint64_t queued, written; /* bytes, ever */
    uint64_t read_at_close;   /* bytes read when we closed its input */
    struct buf line;          /* an incomplete line */
    bool cut;                 /* the line was too long: skipping to its end */
    bool ending, termed;
    struct timer patience;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void unwatch(struct loop_fd **w)
{
    if (*w != NULL)
        loop_fd_free(*w);
    *w = NULL;
}

uint64_t program_read(const struct program *p)
{
    int unread = 0;

    if (p->in < 0)
        return p->read_at_close;
    if (ioctl(p->in, FIONREAD, &unread) < 0)
        return 0;
    return p->written - (uint64_t)unread;
}

static void close_input(struct program *p)
{
    if (p->in < 0)
        return;
    p->read_at_close = program_read(p);
    unwatch(&p->on_in);
    close_fd(&p->in);
    buf_done(&p->unsent);
}

/* ---- out: lines ---- */

static void take_line(struct program *p, struct str piece)
{
    if (!p->cut)
        buf_add_str(&p->line, piece);
    if (p->cut)
        log_warn(NULL, "dropped a line of the program: it is longer than %zu bytes",
                 PROGRAM_MAX_LINE);
    else
        p->ops->line(p->ctx, buf_str(&p->line));
    buf_reset(&p->line);
    p->cut = false;
}

static void take_bytes(struct program *p, struct str bytes)
{
    for (ptrdiff_t at; (at = str_find(bytes, '\n')) >= 0; bytes = str_skip(bytes, (size_t)at + 1))
        take_line(p, str_make(bytes.p, (size_t)at));
    if (p->cut || p->line.n + bytes.n > PROGRAM_MAX_LINE) {
        p->cut = true;
        buf_reset(&p->line);
    } else {
        buf_add_str(&p->line, bytes);
    }
}

/* True: there may be more. */
static bool read_some(struct program *p)
{
    char bytes[READ_BYTES];
    ssize_t n = read(p->out, bytes, sizeof bytes);

    if (n > 0) {
        take_bytes(p, str_make(bytes, (size_t)n));
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    unwatch(&p->on_out);
    close_fd(&p->out);
    return false;
}

static void on_output(void *ctx, int events)
{
    read_some(ctx);
}

/* ---- in: bytes ---- */

static void write_some(struct program *p)
{
    while (p->in >= 0 && p->unsent.n > 0) {
        ssize_t n = write(p->in, p->unsent.p, p->unsent.n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) { /* the program closed its input; wait for the exit */
            close_input(p);
            return;
        }
        if (n < 0)
            break;
        p->written += (uint64_t)n;
        buf_consume(&p->unsent, (size_t)n);
    }
    if (p->on_in != NULL)
        loop_fd_set(p->on_in, p->unsent.n > 0 ? LOOP_WRITE : 0);
}

static void on_writable(void *ctx, int events)
{
    write_some(ctx);
}

uint64_t program_write(struct program *p, struct str line)
{
    p->queued += line.n;
    if (p->in >= 0) {
        buf_add_str(&p->unsent, line);
        write_some(p);
    }
    return p->queued;
}

/* ---- exit ---- */

static void on_exit_seen(void *ctx, int events)
{
    struct program *p = ctx;
    int status = 0;
    char how[64];

    if (waitpid(p->pid, &status, WNOHANG) != p->pid)
        return;
    p->pid = 0;
    unwatch(&p->on_pid);
    timer_stop(loop_clock(p->loop), &p->patience);
    while (p->out >= 0 && read_some(p))
        ;
    if (p->line.n > 0) /* a last line without its newline is a line */
        take_line(p, STR(""));
    bool exited = WIFEXITED(status);
    snprintf(how, sizeof how, "%s %d", exited ? "exit status" : "signal",
             exited ? WEXITSTATUS(status) : WTERMSIG(status));
    p->ops->ended(p->ctx, exited && WEXITSTATUS(status) == 0, how);
}

void program_signal(struct program *p, int signo)
{
    if (p->pid > 0)
        kill(-p->pid, signo);
}

static void on_patience(struct timer *t)
{
    struct program *p = container_of(t, struct program, patience);

    program_signal(p, p->termed ? SIGKILL : SIGTERM);
    p->termed = true;
    timer_set(loop_clock(p->loop), &p->patience, TERM_PATIENCE_MS);
}

void program_end(struct program *p)
{
    if (p->ending || p->pid == 0)
        return;
    p->ending = true;
    close_input(p);
    timer_set(loop_clock(p->loop), &p->patience, END_PATIENCE_MS);
}

void program_free(struct program *p)
{
    if (p == NULL)
        return;
    if (p->pid > 0) {
        program_signal(p, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    timer_stop(loop_clock(p->loop), &p->patience);
    close_input(p);
    unwatch(&p->on_out);
    unwatch(&p->on_pid);
    close_fd(&p->out);
    close_fd(&p->pidfd);
    buf_done(&p->line);
    free(p);
}

/* ---- start ---- */

bool program_exists(const char *name)
{
    struct str rest = str_of(getenv("PATH")), dir;
    struct buf path = BUF_INIT;
    bool found = strchr(name, '/') != NULL && access(name, X_OK) == 0;

    while (strchr(name, '/') == NULL && !found && str_split(&rest, ':', &dir)) {
        buf_reset(&path);
        buf_printf(&path, "%.*s/%s", STR_FMT(dir), name);
        found = access(buf_z(&path), X_OK) == 0;
    }
    buf_done(&path);
    return found;
}

static struct program *adopt(struct loop *loop, pid_t pid, int pidfd, int in, int out,
                             const struct program_ops *ops, void *ctx)
{
    struct program *p = xcalloc(1, sizeof *p);

    *p = (struct program){.loop = loop, .ops = ops, .ctx = ctx, .pid = pid, .in = in, .out = out};
    fcntl(in, F_SETFL, O_NONBLOCK);
    fcntl(out, F_SETFL, O_NONBLOCK);
    p->line.limit = PROGRAM_MAX_LINE + READ_BYTES;
    p->pidfd = pidfd;
    timer_init(&p->patience, on_patience);
    p->on_in = loop_fd_add(loop, in, 0, on_writable, p);
    p->on_out = loop_fd_add(loop, out, LOOP_READ, on_output, p);
    p->on_pid = loop_fd_add(loop, p->pidfd, LOOP_READ, on_exit_seen, p);
    return p;
}

struct program *program_start(struct loop *loop, char *const argv[], char *const envp[],
                              const struct program_ops *ops, void *ctx, char *ret_why)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, pidfd = -1;
    pid_t pid = 0;
    int rc;

    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        rc = errno;
    else
        rc = launch(argv, envp, (int[]){in[0], out[1], -1}, &pid);
    close_fd(&in[0]);
    close_fd(&out[1]);
    if (rc == 0 && (pidfd = pidfd_open(pid, 0)) < 0) {
        rc = errno; /* no descriptor left: one we cannot watch must not run */
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (rc == 0)
        return adopt(loop, pid, pidfd, in[1], out[0], ops, ctx);
    snprintf(ret_why, 256, "%s: %s", argv[0], strerror(rc));
    close_fd(&in[1]);
    close_fd(&out[0]);
    return NULL;
}
