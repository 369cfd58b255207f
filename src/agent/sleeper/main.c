/* main.c - bellhop-sleeper: the loop that passes signals, pokes, answers and time to sleeper.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "agent/sleeper/sleeper.h"
#include "agent/sleeper/tell.h"

static int on_signals(struct sleeper *s, int fd)
{
    struct signalfd_siginfo info;
    char how[48];
    bool well;
    int rc = -1;

    while (rc < 0 && read(fd, &info, sizeof info) == (ssize_t)sizeof info) {
        switch (info.ssi_signo) {
        case SIGTERM:
        case SIGINT:
            rc = sleeper_leave(s);
            break;
        case SIGUSR1:
            sleeper_woken(s);
            break;
        case SIGUSR2:
            sleeper_hurried(s);
            break;
        }
    }
    if (rc < 0 && child_reap(&s->child, &well, how))
        rc = sleeper_ended(s, well, how);
    return rc;
}

static void on_knocks(struct sleeper *s)
{
    char health[256];
    enum knock_kind kind;

    sleeper_describe(s, health, sizeof health);
    while ((kind = knock_turn(&s->knock, s->nonce, health)) != KNOCK_NOTHING) {
        if (kind == KNOCK_PROBE)
            s->reached = true;
        if (kind == KNOCK_WAKE)
            sleeper_knocked(s);
    }
}

static int run(struct sleeper *s, int signals)
{
    struct pollfd fds[KNOCKERS + 3];
    struct answer answer;
    int rc = -1;

    while (rc < 0) {
        size_t n = knock_poll(&s->knock, fds);
        fds[n++] = (struct pollfd){.fd = signals, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = s->ask.fd, .events = POLLIN};
        if (poll(fds, n, sleeper_wait_ms(s)) < 0 && errno != EINTR)
            return 1;
        on_knocks(s);
        rc = on_signals(s, signals);
        if (rc < 0 && ask_turn(&s->ask, &answer))
            sleeper_heard(s, &answer);
        if (rc < 0)
            sleeper_tick(s);
    }
    return rc;
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* `bellhop sleeper` has understood what the user wrote and hands over: the listener's number,
 * idle time, schedule (every so many ms; minute of the day), time to drain, the mode (1: freeze,
 * 2: start only), the wake URL, the program that asks for us, "--", the gateway process. */
int main(int argc, char **argv)
{
    static struct sleeper s; /* zeroed, and not on the stack of a program that is measured */

    if (argc < 11 || strcmp(argv[9], "--") != 0) {
        warn("this is started by `bellhop sleeper`");
        return 2;
    }
    s.idle_ms = atoll(argv[2]);
    s.every_ms = atoll(argv[3]);
    s.at_minute = atoi(argv[4]);
    s.drain_ms = atoll(argv[5]);
    s.freeze = atoi(argv[6]) == 1;
    s.starts_only = atoi(argv[6]) == 2;
    s.wake_url = argv[7][0] != '\0' ? argv[7] : NULL;
    s.child.argv = argv + 10;
    knock_init(&s.knock, atoi(argv[1]));
    ask_init(&s.ask, argv[8]);
    fcntl(s.knock.listener, F_SETFD, FD_CLOEXEC);
    fcntl(s.knock.listener, F_SETFL, O_NONBLOCK);
    int signals = open_signals();
    if (signals < 0)
        return 1;
    sleeper_begin(&s);
    return run(&s, signals);
}
