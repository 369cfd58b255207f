/* spawner.c - design.  (spawner.h has the contract.)
 *
 * Two processes share this file.  They exchange packets over one socket pair.
 *
 * The helper: one thread, one socket, a table of children.  The helper trusts the server no further
 * than the limits of spawner.h, because the server may have been taken over and the helper is not
 * confined.
 *
 * The server: pipes to and from each program, and its timeout.
 *
 *      WAITING --ENDED--> the rest of its output is read --> done()
 *         |---FAILED----------------------------------------> done()
 *         '---timeout: TERM --2 s--> KILL; ENDED follows
 *
 * A cancelled run keeps its number until the helper reports its end, so that no later run gets the
 * signal that was meant for it. */
#include "net/spawner.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/launch.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"

/* ---- packets ---- */

enum spawner_word {
    SPAWNER_RUN,    /* to the helper: @value is the command; three descriptors come along */
    SPAWNER_SIGNAL, /* to the helper: @value is the signal */
    SPAWNER_LEARN,  /* to the helper: the @n_more texts are the next command */
    SPAWNER_FAILED, /* from it: @value is an errno */
    SPAWNER_ENDED,  /* from it: @value is what waitpid() said */
};

struct spawner_packet { /* behind it: @n_more arguments and @n_env variables, a NUL after each */
    uint32_t word, id;
    int32_t value;
    uint16_t n_more, n_env;
};

struct spawner_commands {
    char ***argv;      /* owned */
    unsigned n, first; /* @first: how many were there at the start */
    bool learns;
};

/* ---- the helper ---- */

enum { MAX_ARGS = 256, MAX_ENV = 1024, ENDING_MS = 2000 };

struct helped {
    pid_t pid; /* 0: free */
    uint32_t id;
};

struct helper {
    int fd, signals;
    struct spawner_commands *commands;
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
           strncmp(variable, "WATCHDOG_", 9) != 0 && strncmp(variable, "GATEWAY_RELAY_", 14) != 0;
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

/* ---- more commands ---- */

enum { MAX_OWN_ARGS = 128 };

static bool may_learn(const struct spawner_commands *c)
{
    return c->learns && c->n - c->first < SPAWN_MAX_LEARNT;
}

/* Appends a copy of the command. */
static void add_command(struct spawner_commands *c, const char *const *argv, size_t words)
{
    char **copy = xcalloc(words + 1, sizeof *copy);

    for (size_t i = 0; i < words; i++)
        copy[i] = xstrdup(argv[i]);
    c->argv = xrealloc(c->argv, (c->n + 1) * sizeof *c->argv);
    c->argv[c->n++] = copy;
}

static void learn(struct helper *h, const struct spawner_packet *head, size_t n)
{
    char *p = h->packet + sizeof *head, *end = h->packet + n;
    const char *argv[MAX_OWN_ARGS];
    size_t words = 0;

    while (words < head->n_more && words < MAX_OWN_ARGS && (argv[words] = next_text(&p, end)))
        words++;
    if (may_learn(h->commands) && words > 0 && words == head->n_more)
        add_command(h->commands, argv, words);
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

/* Signals the program with this @id, or all (NULL).  Returns how many there are. */
static size_t signal_programs(const struct helper *h, const uint32_t *id, int signo)
{
    size_t n = 0;

    for (size_t i = 0; i < SPAWN_MAX_RUNNING; i++) {
        const struct helped *child = &h->children[i];
        if (child->pid <= 0 || (id != NULL && child->id != *id))
            continue;
        kill(-child->pid, signo);
        n++;
    }
    return n;
}

/* ---- its life ---- */

static void close_all(const int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

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
            signal_programs(h, &o.head.id, o.head.value);
        else if (o.head.word == SPAWNER_LEARN)
            learn(h, &o.head, (size_t)n);
    }
    close_all(o.fds);
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

/* The helper's whole life; ends when @fd does. */
_Noreturn static void spawner_help(int fd, struct spawner_commands *c)
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
    signal_programs(&h, NULL, SIGTERM);
    watched[0].fd = -1;
    while (signal_programs(&h, NULL, 0) > 0 && poll(watched, ARRAY_LEN(watched), ENDING_MS) > 0)
        on_child(&h);
    signal_programs(&h, NULL, SIGKILL);
    _exit(0);
}

/* ---- the server ---- */

enum { KILL_MS = 2000, READ_BYTES = 16 * 1024 };

struct stream { /* one of its three pipes */
    int fd;     /* owned; -1: over */
    struct loop_fd *watch;
    struct buf kept; /* what it printed; what it is to read */
    size_t limit;    /* of what it prints */
    bool cut;
};

struct spawn {
    struct list link;        /* in s->runs */
    struct spawner *spawner; /* borrowed */
    uint32_t id;
    spawn_cb *done; /* NULL: cancelled */
    void *ctx;
    struct stream in, out, err;
    size_t in_sent;
    bool talks;
    struct timer patience;
    bool timed_out, told_to_end, stopped;
    void (*heard)(void *ctx, struct str line);
};

struct spawner {
    struct loop *loop; /* borrowed; NULL before spawner_watch() */
    struct loop_fd *watch;
    struct spawner_commands commands;
    pid_t pid;
    int fd; /* owned; -1: the helper has gone */
    struct list runs;
    size_t n_runs;
    uint32_t last_id;
};

/* ---- its beginning and end ---- */

static size_t count(const char *const *texts)
{
    size_t n = 0;

    while (texts != NULL && texts[n] != NULL)
        n++;
    return n;
}

static void copy_commands(struct spawner *s, const char *const *const *commands, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        size_t words = count(commands[i]);
        assert(words > 0 && words <= MAX_OWN_ARGS);
        add_command(&s->commands, commands[i], words);
    }
    s->commands.first = n;
}

static void free_commands(struct spawner *s)
{
    for (unsigned i = 0; i < s->commands.n; i++) {
        for (char **p = s->commands.argv[i]; *p != NULL; p++)
            free(*p);
        free(s->commands.argv[i]);
    }
    free(s->commands.argv);
}

struct spawner *spawner_new(const char *const *const *commands, unsigned n, struct str hidden,
                            bool learns, char *ret_why)
{
    struct spawner *s = xcalloc(1, sizeof *s);
    int pair[2] = {-1, -1};

    list_init(&s->runs);
    copy_commands(s, commands, n);
    s->commands.learns = learns;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 &&
        (s->pid = fork()) == 0) {
        close(pair[0]);
        for (; hidden.n > 0; hidden = str_skip(hidden, strlen(hidden.p) + 1))
            unsetenv(hidden.p);
        spawner_help(pair[1], &s->commands);
    }
    if (pair[1] >= 0)
        close(pair[1]);
    s->fd = pair[0];
    if (pair[0] >= 0 && s->pid > 0) {
        fcntl(s->fd, F_SETFL, O_NONBLOCK);
        return s;
    }
    snprintf(ret_why, 256, "cannot start the helper that runs programs: %s", strerror(errno));
    s->pid = 0;
    spawner_free(s);
    return NULL;
}

static void free_run(struct spawn *r);

void spawner_free(struct spawner *s)
{
    if (s == NULL)
        return;
    list_each (&s->runs, it, nxt)
        free_run(list_entry(it, struct spawn, link));
    loop_fd_free(s->watch);
    if (s->fd >= 0)
        close(s->fd);
    if (s->pid > 0)
        waitpid(s->pid, NULL, 0); /* it ends within the patience it has with its children */
    free_commands(s);
    free(s);
}

int spawner_find(const struct spawner *s, const char *const *argv)
{
    for (unsigned i = 0; i < s->commands.n; i++) {
        char **own = s->commands.argv[i];
        size_t k = 0;
        while (own[k] != NULL && argv[k] != NULL && strcmp(own[k], argv[k]) == 0)
            k++;
        if (own[k] == NULL && argv[k] == NULL)
            return (int)i;
    }
    return -1;
}

/* ---- one run ---- */

static void close_stream(struct stream *t)
{
    loop_fd_free(t->watch);
    if (t->fd >= 0)
        close(t->fd);
    t->watch = NULL;
    t->fd = -1;
}

static void free_run(struct spawn *r)
{
    struct stream *pipes[] = {&r->in, &r->out, &r->err};

    for (size_t i = 0; i < ARRAY_LEN(pipes); i++) {
        close_stream(pipes[i]);
        buf_done(&pipes[i]->kept);
    }
    timer_stop(loop_clock(r->spawner->loop), &r->patience);
    list_remove(&r->link);
    r->spawner->n_runs--;
    free(r);
}

/* False: nothing more comes, now or at all. */
static bool read_some(struct stream *t)
{
    char bytes[READ_BYTES];
    ssize_t n = read(t->fd, bytes, sizeof bytes);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        close_stream(t);
        return false;
    }
    size_t room = t->limit - t->kept.n, take = (size_t)n < room ? (size_t)n : room;
    buf_add(&t->kept, bytes, take);
    t->cut = t->cut || take < (size_t)n;
    return true;
}

static void on_output(void *ctx, int events)
{
    (void)read_some(ctx);
}

/* Tells each whole line; a longer one is told when SPAWN_ERRORS_BYTES of it have come. */
static void tell_lines(struct spawn *r, bool last)
{
    struct str rest = buf_str(&r->err.kept), line;
    size_t told = 0;

    while (r->heard != NULL && rest.n > 0) {
        ptrdiff_t end = str_find(rest, '\n');
        if (end < 0 && !last && rest.n < r->err.limit)
            break;
        line = end < 0 ? rest : str_make(rest.p, (size_t)end);
        told += line.n + (end >= 0);
        rest = str_skip(rest, line.n + (end >= 0));
        if (line.n > SPAWN_LINE_BYTES)
            line.n = SPAWN_LINE_BYTES;
        if (line.n > 0 && r->done != NULL)
            r->heard(r->ctx, line);
    }
    buf_consume(&r->err.kept, told);
}

static void on_errors(void *ctx, int events)
{
    struct spawn *r = ctx;

    (void)read_some(&r->err);
    tell_lines(r, false);
}

static void on_input(void *ctx, int events)
{
    struct spawn *r = ctx;
    ssize_t n = write(r->in.fd, r->in.kept.p + r->in_sent, r->in.kept.n - r->in_sent);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    r->in_sent += n > 0 ? (size_t)n : 0;
    if (n < 0 || (r->in_sent == r->in.kept.n && !r->talks)) {
        close_stream(&r->in); /* a program that does not read its input may still be fine */
        buf_done(&r->in.kept);
        r->in_sent = 0;
    } else if (r->in_sent == r->in.kept.n) {
        buf_done(&r->in.kept);
        r->in_sent = 0;
        loop_fd_set(r->in.watch, 0);
    }
}

bool spawn_say(struct spawn *r, struct str bytes)
{
    if (r->in.fd < 0 || !r->talks || r->in.kept.n - r->in_sent + bytes.n > SPAWN_UNREAD_BYTES)
        return false;
    if (r->in_sent > r->in.kept.n / 2) { /* so each byte is moved once on average */
        buf_consume(&r->in.kept, r->in_sent);
        r->in_sent = 0;
    }
    buf_add_str(&r->in.kept, bytes);
    loop_fd_set(r->in.watch, LOOP_WRITE);
    return true;
}

static void tell(struct spawn *r, const struct spawn_end *end)
{
    spawn_cb *done = r->done;

    r->done = NULL;
    if (done != NULL)
        done(r->ctx, end);
    free_run(r);
}

static void fail(struct spawn *r, const char *how)
{
    tell(r, &(struct spawn_end){.status = -1, .how = how});
}

static void on_patience(struct timer *t)
{
    struct spawn *r = container_of(t, struct spawn, patience);
    struct spawner_packet p = {.word = SPAWNER_SIGNAL,
                               .id = r->id,
                               .value = r->told_to_end ? SIGKILL : SIGTERM};

    (void)!send(r->spawner->fd, &p, sizeof p, MSG_NOSIGNAL);
    r->timed_out = !r->stopped;
    r->told_to_end = true;
    timer_set(loop_clock(r->spawner->loop), t, KILL_MS); /* and again, should the word be lost */
}

static void on_ended(struct spawn *r, int status)
{
    struct spawn_end end = {.timed_out = r->timed_out, .status = -1};
    char how[64];

    while (r->out.fd >= 0 && r->out.kept.n < r->out.limit && read_some(&r->out))
        ;
    while (r->err.fd >= 0 && r->err.kept.n < r->err.limit && read_some(&r->err))
        tell_lines(r, false);
    tell_lines(r, true);
    if (WIFEXITED(status)) {
        end.status = WEXITSTATUS(status);
        snprintf(how, sizeof how, "exit status %d", end.status);
    } else {
        snprintf(how, sizeof how, "signal %d", WTERMSIG(status));
    }
    end.how = r->timed_out ? "it took too long" : how;
    end.well = end.status == 0 && !r->timed_out;
    end.cut = r->out.cut;
    end.output = buf_str(&r->out.kept);
    end.errors = buf_str(&r->err.kept);
    tell(r, &end);
}

/* ---- the helper's words ---- */

static struct spawn *find_run(struct spawner *s, uint32_t id)
{
    list_each (&s->runs, it, nxt) {
        struct spawn *r = list_entry(it, struct spawn, link);
        if (r->id == id)
            return r;
    }
    return NULL;
}

static void helper_gone(struct spawner *s)
{
    log_error(NULL, "the helper process that runs programs has ended: restart bellhop");
    loop_fd_free(s->watch);
    close(s->fd);
    s->watch = NULL;
    s->fd = -1;
    while (!list_is_empty(&s->runs))
        fail(list_first(&s->runs, struct spawn, link), "the helper that runs programs has ended");
}

static void on_word(void *ctx, int events)
{
    struct spawner *s = ctx;
    struct spawner_packet p;
    ssize_t n = recv(s->fd, &p, sizeof p, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof p) {
        helper_gone(s);
        return;
    }
    struct spawn *r = find_run(s, p.id);
    if (r == NULL)
        return;
    if (p.word == SPAWNER_FAILED)
        fail(r, strerror(p.value));
    else
        on_ended(r, p.value);
}

void spawner_watch(struct spawner *s, struct loop *loop)
{
    if (s->watch != NULL)
        return;
    s->loop = loop;
    s->watch = loop_fd_add(loop, s->fd, LOOP_READ, on_word, s);
}

/* ---- learning a command ---- */

int spawner_learn(struct spawner *s, const char *const *argv)
{
    size_t words = count(argv);
    struct spawner_packet p = {.word = SPAWNER_LEARN, .n_more = (uint16_t)words};
    struct buf packet = BUF_INIT;
    int number = spawner_find(s, argv);

    if (number >= 0 || s->fd < 0 || !may_learn(&s->commands) || words == 0 || words > MAX_OWN_ARGS)
        return number;
    buf_add(&packet, (const char *)&p, sizeof p);
    for (size_t i = 0; i < words; i++)
        buf_add(&packet, argv[i], strlen(argv[i]) + 1);
    if (packet.n <= sizeof p + SPAWN_MAX_BYTES &&
        send(s->fd, packet.p, packet.n, MSG_NOSIGNAL) == (ssize_t)packet.n) {
        number = (int)s->commands.n;
        add_command(&s->commands, argv, words);
    }
    buf_done(&packet);
    return number;
}

/* ---- starting one ---- */

/* False: larger than an order may be. */
static bool write_order(const struct spawn_order *o, uint32_t id, struct buf *out)
{
    size_t n_more = count(o->more), n_env = count(o->env);
    struct spawner_packet p = {.word = SPAWNER_RUN, .id = id, .value = (int32_t)o->command};

    if (n_more > SPAWN_MAX_MORE || n_env > SPAWN_MAX_MORE)
        return false;
    p.n_more = (uint16_t)n_more;
    p.n_env = (uint16_t)n_env;
    buf_add(out, (const char *)&p, sizeof p);
    for (size_t i = 0; i < n_more; i++)
        buf_add(out, o->more[i], strlen(o->more[i]) + 1);
    for (size_t i = 0; i < n_env; i++)
        buf_add(out, o->env[i], strlen(o->env[i]) + 1);
    return out->n <= sizeof p + SPAWN_MAX_BYTES;
}

static bool send_order(int fd, const struct buf *order, const int fds[3])
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = {0};
    struct iovec iov = {order->p, order->n};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};

    control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(3 * sizeof(int)),
                                    .cmsg_level = SOL_SOCKET,
                                    .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), fds, 3 * sizeof(int));
    return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)order->n;
}

/* Three pipes, [0] of each ours; -1 and false when one cannot be made.  @output > 0: that file is
 * the program's stdout, and there is no pipe for it. */
static bool make_pipes(int ours[3], int theirs[3], int output)
{
    for (int i = 0; i < 3; i++)
        ours[i] = theirs[i] = -1;
    for (int i = 0; i < 3; i++) {
        int fds[2];
        if (i == 1 && output > 0) {
            if ((theirs[i] = fcntl(output, F_DUPFD_CLOEXEC, 3)) < 0)
                return false;
            continue;
        }
        if (pipe2(fds, O_CLOEXEC) < 0)
            return false;
        ours[i] = fds[i == 0 ? 1 : 0];
        theirs[i] = fds[i == 0 ? 0 : 1];
        fcntl(ours[i], F_SETFL, O_NONBLOCK);
    }
    return true;
}

static void open_output(struct loop *loop, struct stream *t, int fd, size_t limit)
{
    *t = (struct stream){.fd = fd, .limit = limit, .kept = {.limit = limit}};
    if (fd >= 0)
        t->watch = loop_fd_add(loop, fd, LOOP_READ, on_output, t);
}

static struct spawn *begin_run(struct spawner *s, const struct spawn_order *o, uint32_t id,
                               const int fds[3])
{
    struct spawn *r = xcalloc(1, sizeof *r);

    *r = (struct spawn){.spawner = s, .id = id, .in = {.fd = fds[0]}, .talks = o->talks};
    buf_add_str(&r->in.kept, o->input);
    r->in.watch = loop_fd_add(s->loop, r->in.fd, LOOP_WRITE, on_input, r);
    open_output(s->loop, &r->out, fds[1], o->max_output);
    open_output(s->loop, &r->err, fds[2], SPAWN_ERRORS_BYTES);
    if (o->heard != NULL) {
        r->heard = o->heard;
        loop_fd_free(r->err.watch);
        r->err.watch = loop_fd_add(s->loop, fds[2], LOOP_READ, on_errors, r);
    }
    timer_init(&r->patience, on_patience);
    if (o->timeout_ms > 0)
        timer_set(loop_clock(s->loop), &r->patience, o->timeout_ms);
    list_append(&s->runs, &r->link);
    s->n_runs++;
    return r;
}

struct spawn *spawner_run(struct spawner *s, const struct spawn_order *o, spawn_cb *done, void *ctx)
{
    struct buf order = BUF_INIT;
    struct spawn *r = NULL;
    uint32_t id = ++s->last_id;
    int ours[3], theirs[3];

    if (s->fd < 0 || s->n_runs >= SPAWN_MAX_RUNNING || !write_order(o, id, &order))
        goto out;
    if (make_pipes(ours, theirs, o->output_fd) && send_order(s->fd, &order, theirs)) {
        r = begin_run(s, o, id, ours);
        r->done = done;
        r->ctx = ctx;
    } else {
        close_all(ours);
    }
    close_all(theirs);
out:
    buf_done(&order);
    return r;
}

void spawn_stop(struct spawn *r, int64_t grace_ms)
{
    struct spawner_packet p = {.word = SPAWNER_SIGNAL, .id = r->id, .value = SIGTERM};

    (void)!send(r->spawner->fd, &p, sizeof p, MSG_NOSIGNAL);
    r->stopped = true;
    r->told_to_end = true;
    timer_set(loop_clock(r->spawner->loop), &r->patience, grace_ms);
}

void spawn_cancel(struct spawn **run)
{
    struct spawn *r = *run;

    *run = NULL;
    if (r == NULL)
        return;
    r->done = NULL;
    close_stream(&r->in);
    timer_set(loop_clock(r->spawner->loop), &r->patience, 0);
}
