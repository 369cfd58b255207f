/* program.c - design.  (program.h has the contract.)
 *
 * A pidfd reports the exit, so no signal handler is involved.  A program counts as ended when it
 * exits, not when its output ends, because a grandchild may keep stdout open for ever.  At the exit
 * the pipe is drained once.
 *
 * FIONREAD on the pipe tells how much the program has read.  A line written to a program that dies
 * before reading it counts as not taken. */
#include "net/program.h"
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
#define DRAIN_READS 64 /* more than a pipe holds */

struct output { /* stdout or stderr of a program */
    struct program *of;
    int fd;             /* -1: closed, or not ours */
    struct loop_fd *on; /* owned */
    struct buf line;    /* an incomplete line */
    size_t max_line;
    bool cut; /* the line is too long: skipping to its end */
};

struct program {
    struct loop *loop;             /* borrowed */
    const struct program_ops *ops; /* borrowed */
    void *ctx;
    pid_t pid;
    int in, pidfd;                  /* -1: closed */
    struct loop_fd *on_in, *on_pid; /* owned */
    struct output out, err;
    struct buf unsent;
    uint64_t queued, written; /* bytes, ever */
    uint64_t read_at_close;   /* bytes read when we closed its input */
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

/* A line of stdout that is too long is dropped, because half a message is worse than none.  A line
 * of stderr is for people: its beginning is kept. */
static void take_line(struct output *o)
{
    struct program *p = o->of;

    if (o == &p->err)
        p->ops->complaint(p->ctx, buf_str(&o->line));
    else if (o->cut)
        log_warn(NULL, "dropped a line of the program: it is longer than %zu bytes", o->max_line);
    else
        p->ops->line(p->ctx, buf_str(&o->line));
    buf_reset(&o->line);
    o->cut = false;
}

static void take_piece(struct output *o, struct str piece)
{
    size_t room = o->max_line > o->line.n ? o->max_line - o->line.n : 0;

    if (piece.n > room) {
        o->cut = true;
        piece.n = room;
    }
    if (o->cut && o == &o->of->out)
        buf_reset(&o->line);
    else
        buf_add_str(&o->line, piece);
}

static void take_bytes(struct output *o, struct str bytes)
{
    for (ptrdiff_t at; (at = str_find(bytes, '\n')) >= 0; bytes = str_skip(bytes, (size_t)at + 1)) {
        take_piece(o, str_make(bytes.p, (size_t)at));
        take_line(o);
    }
    take_piece(o, bytes);
}

static void output_close(struct output *o)
{
    unwatch(&o->on);
    close_fd(&o->fd);
}

void program_hold(struct program *p, bool held)
{
    if (p->out.on != NULL)
        loop_fd_set(p->out.on, held ? 0 : LOOP_READ);
}

/* True: there may be more. */
static bool read_some(struct output *o)
{
    char bytes[READ_BYTES];
    ssize_t n = read(o->fd, bytes, sizeof bytes);

    if (n > 0) {
        take_bytes(o, str_make(bytes, (size_t)n));
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    output_close(o);
    return false;
}

static void on_output(void *ctx, int events)
{
    read_some(ctx);
}

/* At the exit: the rest of the pipe.  A last line without its newline is a line.  The reads are
 * bounded: a process that the program left behind may write for ever. */
static void output_drain(struct output *o)
{
    for (int i = 0; i < DRAIN_READS && o->fd >= 0 && read_some(o); i++)
        ;
    if (o->line.n > 0)
        take_line(o);
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
    if (p->in >= 0 && p->unsent.n + line.n > PROGRAM_MAX_UNSENT) {
        log_warn(NULL, "the program does not read its input: it is killed");
        close_input(p);
        program_signal(p, SIGKILL);
    }
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
    output_drain(&p->err);
    output_drain(&p->out);
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
    output_close(&p->out);
    output_close(&p->err);
    unwatch(&p->on_pid);
    close_fd(&p->pidfd);
    buf_done(&p->out.line);
    buf_done(&p->err.line);
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

static void output_open(struct program *p, struct output *o, int fd, size_t max_line)
{
    *o = (struct output){.of = p, .fd = fd, .max_line = max_line};
    if (fd < 0)
        return;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    o->on = loop_fd_add(p->loop, fd, LOOP_READ, on_output, o);
}

struct program *program_start(struct loop *loop, const struct program_order *o,
                              const struct program_ops *ops, void *ctx, char *ret_why)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, pidfd = -1, rc;
    pid_t pid = 0;

    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
        (ops->complaint != NULL && pipe2(err, O_CLOEXEC) < 0))
        rc = errno;
    else
        rc = launch(o->argv, o->envp, (int[]){in[0], out[1], err[1]}, &pid);
    close_fd(&in[0]);
    close_fd(&out[1]);
    close_fd(&err[1]);
    if (rc == 0 && (pidfd = pidfd_open(pid, 0)) < 0) {
        rc = errno; /* no descriptor left: one we cannot watch must not run */
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (rc != 0) {
        snprintf(ret_why, 256, "%s: %s", o->argv[0], strerror(rc));
        close_fd(&in[1]);
        close_fd(&out[0]);
        close_fd(&err[0]);
        return NULL;
    }
    struct program *p = xcalloc(1, sizeof *p);
    *p = (struct program){
        .loop = loop, .ops = ops, .ctx = ctx, .pid = pid, .in = in[1], .pidfd = pidfd};
    fcntl(p->in, F_SETFL, O_NONBLOCK);
    timer_init(&p->patience, on_patience);
    p->on_in = loop_fd_add(loop, p->in, 0, on_writable, p);
    output_open(p, &p->out, out[0], o->max_line > 0 ? o->max_line : PROGRAM_MAX_LINE);
    output_open(p, &p->err, err[0], PROGRAM_MAX_ERROR);
    p->on_pid = loop_fd_add(loop, p->pidfd, LOOP_READ, on_exit_seen, p);
    return p;
}
