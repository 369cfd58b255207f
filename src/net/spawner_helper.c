/* spawner_helper.c - the helper: one thread, one socket, a table of children.
 *
 * It believes nothing the server says beyond what the limits of spawner.h allow: the server may
 * have been taken over, and this process has not given anything up. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/launch.h"
#include "base/mem.h"
#include "net/spawner_priv.h"

enum { MAX_ARGS = 256, MAX_ENV = 1024, ENDING_MS = 2000 };

struct helped {
    pid_t pid; /* 0: free */
    uint32_t id;
};

struct helper {
    int fd, signals;
    const struct spawner_commands *commands;
    struct helped children[SPAWN_MAX_RUNNING];
    char packet[sizeof(struct spawner_packet) + SPAWN_MAX_BYTES];
};

struct read_order { /* a packet that was found to be in order */
    struct spawner_packet head;
    int fds[3];
    char *argv[MAX_ARGS + 1];
    char *env[MAX_ENV + 1];
};

static void answer(struct helper *h, enum spawner_word word, uint32_t id, int value)
{
    struct spawner_packet p = {.word = word, .id = id, .value = value};

    while (send(h->fd, &p, sizeof p, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

/* ---- reading an order ---- */

static bool is_passed_on(const char *variable)
{
    return strncmp(variable, "BELLHOP_", 8) != 0 && strncmp(variable, "NOTIFY_", 7) != 0 &&
           strncmp(variable, "WATCHDOG_", 9) != 0;
}

/* The next text of [*p, end); NULL: there is none that ends. */
static char *next_text(char **p, const char *end)
{
    char *text = *p, *nul = memchr(text, '\0', (size_t)(end - text));

    if (nul == NULL)
        return NULL;
    *p = nul + 1;
    return text;
}

static bool take_order(const struct helper *h, char *packet, size_t n, struct read_order *o)
{
    char *p = packet + sizeof o->head, *end = packet + n, *text;
    unsigned n_args = 0, n_env = 0;

    if ((uint32_t)o->head.value >= h->commands->n || o->head.n_more > SPAWN_MAX_MORE ||
        o->head.n_env > SPAWN_MAX_MORE)
        return false;
    for (char **own = h->commands->argv[o->head.value]; *own != NULL; own++)
        o->argv[n_args++] = *own;
    for (unsigned i = 0; i < o->head.n_more; i++) {
        if ((text = next_text(&p, end)) == NULL || n_args == MAX_ARGS)
            return false;
        o->argv[n_args++] = text;
    }
    for (char **old = environ; *old != NULL && n_env < MAX_ENV - SPAWN_MAX_MORE; old++)
        if (is_passed_on(*old))
            o->env[n_env++] = *old;
    for (unsigned i = 0; i < o->head.n_env; i++) {
        if ((text = next_text(&p, end)) == NULL || is_passed_on(text))
            return false;
        o->env[n_env++] = text;
    }
    o->argv[n_args] = o->env[n_env] = NULL;
    return true;
}

/* ---- running it ---- */

static void run(struct helper *h, struct read_order *o, size_t n)
{
    struct helped *free_one = NULL;
    int rc = EINVAL;

    for (size_t i = 0; i < SPAWN_MAX_RUNNING && free_one == NULL; i++)
        if (h->children[i].pid == 0)
            free_one = &h->children[i];
    if (free_one == NULL)
        rc = EAGAIN;
    else if (o->fds[2] >= 0 && take_order(h, h->packet, n, o))
        rc = launch(o->argv, o->env, o->fds, &free_one->pid);
    if (rc == 0) {
        free_one->id = o->head.id;
        return;
    }
    if (free_one != NULL)
        free_one->pid = 0;
    answer(h, SPAWNER_FAILED, o->head.id, rc);
}

static void signal_one(struct helper *h, uint32_t id, int signo)
{
    for (size_t i = 0; i < SPAWN_MAX_RUNNING; i++)
        if (h->children[i].pid > 0 && h->children[i].id == id)
            kill(-h->children[i].pid, signo);
}

/* ---- its life ---- */

/* The descriptors that came along; -1 for those that did not. */
static void take_fds(struct msghdr *m, int fds[3])
{
    fds[0] = fds[1] = fds[2] = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), (n < 3 ? n : 3) * sizeof(int));
    }
}

/* False: the server has gone. */
static bool on_packet(struct helper *h)
{
    static struct read_order o;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec iov = {h->packet, sizeof h->packet};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n = recvmsg(h->fd, &m, MSG_CMSG_CLOEXEC);

    if (n <= 0)
        return n < 0 && errno == EINTR;
    take_fds(&m, o.fds);
    if ((size_t)n >= sizeof o.head && (m.msg_flags & MSG_TRUNC) == 0) {
        memcpy(&o.head, h->packet, sizeof o.head);
        if (o.head.word == SPAWNER_RUN)
            run(h, &o, (size_t)n);
        else if (o.head.word == SPAWNER_SIGNAL)
            signal_one(h, o.head.id, o.head.value);
    }
    for (int i = 0; i < 3; i++)
        if (o.fds[i] >= 0)
            close(o.fds[i]);
    return true;
}

static void on_child(struct helper *h)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    (void)!read(h->signals, &info, sizeof info);
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t i = 0; i < SPAWN_MAX_RUNNING; i++) {
            if (h->children[i].pid != pid)
                continue;
            h->children[i].pid = 0;
            answer(h, SPAWNER_ENDED, h->children[i].id, status);
        }
    }
}

static void end_all(const struct helper *h, int signo)
{
    for (size_t i = 0; i < SPAWN_MAX_RUNNING; i++)
        if (h->children[i].pid > 0)
            kill(-h->children[i].pid, signo);
}

static bool has_children(const struct helper *h)
{
    for (size_t i = 0; i < SPAWN_MAX_RUNNING; i++)
        if (h->children[i].pid > 0)
            return true;
    return false;
}

/* The terminal's and the service manager's signals are for the server: the helper ends when its
 * socket does. */
static void set_up(struct helper *h)
{
    sigset_t chld;

    prctl(PR_SET_NAME, "bellhop-spawner", 0, 0, 0);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    h->signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
}

_Noreturn void spawner_help(int fd, const struct spawner_commands *c)
{
    static struct helper h;

    h = (struct helper){.fd = fd, .commands = c};
    set_up(&h);
    struct pollfd watched[] = {{.fd = fd, .events = POLLIN}, {.fd = h.signals, .events = POLLIN}};
    bool server = h.signals >= 0;
    while (server) {
        if (poll(watched, ARRAY_LEN(watched), -1) < 0 && errno != EINTR)
            break;
        if (watched[1].revents != 0)
            on_child(&h);
        if (watched[0].revents != 0)
            server = on_packet(&h);
    }
    end_all(&h, SIGTERM);
    watched[0].fd = -1;
    while (has_children(&h) && poll(watched, ARRAY_LEN(watched), ENDING_MS) > 0)
        on_child(&h);
    end_all(&h, SIGKILL);
    _exit(0);
}
