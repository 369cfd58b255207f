/* ask.c - requests to the connector, through a process that has TLS, JSON and tokens.
 *
 * The answer is lines of "key value"; a process that fails prints "problem WHY" or nothing. */
#include "agent/sleeper/ask.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "agent/sleeper/tell.h"

#define ASK_MS 15000

void ask_init(struct sleeper_ask *a, const char *bellhop)
{
    a->bellhop = bellhop;
    a->pid = 0;
    a->fd = -1;
}

static void become(const char *const argv[], int out)
{
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    dup2(out, STDOUT_FILENO);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(argv[0], (char *const *)(uintptr_t)argv);
}

bool ask_start(struct sleeper_ask *a, const char *what, const char *arg1, const char *arg2)
{
    const char *const argv[] = {a->bellhop, "sleeper", "--ask", what, arg1, arg2, NULL};
    int fds[2];

    if (a->pid > 0 || pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    pid_t pid = vfork();
    if (pid == 0) {
        become(argv, fds[1]);
        _exit(127);
    }
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return false;
    }
    a->pid = pid;
    a->fd = fds[0];
    a->n = 0;
    a->until_ms = now_ms() + ASK_MS;
    return true;
}

void ask_cancel(struct sleeper_ask *a)
{
    if (a->pid == 0)
        return;
    kill(a->pid, SIGKILL);
    waitpid(a->pid, NULL, 0);
    close(a->fd);
    a->pid = 0;
    a->fd = -1;
}

static void take(struct answer *r, const char *key, const char *value)
{
    if (strcmp(key, "state") == 0) {
        snprintf(r->state, sizeof r->state, "%s", value);
        r->ok = true;
    } else if (strcmp(key, "reached") == 0) {
        r->ok = true;
    } else if (strcmp(key, "idle_ms") == 0) {
        r->idle_ms = atoll(value);
    } else if (strcmp(key, "unacked") == 0) {
        r->unacked = strtoull(value, NULL, 10);
    } else if (strcmp(key, "entries") == 0) {
        r->entries = strtoull(value, NULL, 10);
    } else if (strcmp(key, "wake_url") == 0) {
        snprintf(r->wake_url, sizeof r->wake_url, "%s", value);
    } else if (strcmp(key, "problem") == 0) {
        snprintf(r->problem, sizeof r->problem, "%s", value);
    }
}

void answer_read(const char *said, struct answer *r)
{
    char line[2200];

    *r = (struct answer){.idle_ms = INT64_MAX};
    while (*said != '\0') {
        size_t n = strcspn(said, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, said);
        char *value = strchr(line, ' ');
        if (value != NULL) {
            *value++ = '\0';
            take(r, line, value);
        }
        said += said[n] == '\n' ? n + 1 : n;
    }
    if (!r->ok && r->problem[0] == '\0')
        snprintf(r->problem, sizeof r->problem, "no answer");
}

bool ask_turn(struct sleeper_ask *a, struct answer *ret)
{
    if (a->pid == 0)
        return false;
    ssize_t n = 1;
    while (n > 0 && a->n < ASK_BYTES - 1) {
        n = read(a->fd, a->said + a->n, ASK_BYTES - 1 - a->n);
        a->n += n > 0 ? (size_t)n : 0;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && now_ms() < a->until_ms)
        return false;
    a->said[a->n] = '\0';
    answer_read(a->said, ret);
    if (n < 0)
        ask_cancel(a);
    else
        waitpid(a->pid, NULL, 0); /* its output ended: it is exiting */
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    a->pid = 0;
    return true;
}
