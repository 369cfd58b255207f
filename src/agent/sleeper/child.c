/* child.c - the gateway process.  (child.h has the contract.)
 *
 * It runs in a process group of its own and dies politely with us: two sleepers with one process
 * each is what a restarted supervisor must not end up with. */
#include "agent/sleeper/child.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "agent/sleeper/tell.h"
#include "agent/sleeper/tree.h"

#define RECLAIM "1073741824"

static void become(char **argv)
{
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
}

bool child_start(struct child *c)
{
    volatile int failed = 0; /* vfork: the child writes our memory until it execs */
    pid_t pid = vfork();

    if (pid == 0) {
        become(c->argv);
        failed = errno;
        _exit(127);
    }
    if (pid > 0 && failed == 0) {
        c->pid = pid;
        c->stopped = false;
        return true;
    }
    warn("cannot start %s: %s", c->argv[0], strerror(pid < 0 ? errno : failed));
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return false;
}

void child_signal(struct child *c, int signo)
{
    if (c->pid > 0)
        kill(-c->pid, signo);
}

/* "0::/system.slice/x.service" of its /proc/PID/cgroup -> .../memory.reclaim */
static int open_reclaim(pid_t pid)
{
    char path[64], line[512] = "", file[600];

    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (fd >= 0)
        close(fd);
    char *at = n > 0 ? strstr(line, "0::/") : NULL;
    if (at == NULL)
        return -1;
    at[strcspn(at, "\n")] = '\0';
    snprintf(file, sizeof file, "/sys/fs/cgroup%s/memory.reclaim", at + 3);
    return open(file, O_WRONLY | O_CLOEXEC);
}

void child_freeze(struct child *c)
{
    tree_stop(c->pid);
    c->stopped = true;
    int fd = open_reclaim(c->pid);
    if (fd < 0)
        return; /* the system pages it out when it needs the memory, as always */
    if (write(fd, RECLAIM, strlen(RECLAIM)) < 0 &&
        errno != EAGAIN) /* EAGAIN: not that much there */
        warn("its memory could not be reclaimed: %s", strerror(errno));
    close(fd);
}

void child_thaw(struct child *c)
{
    c->stopped = false;
    if (c->pid > 0)
        tree_continue(c->pid);
}

bool child_reap(struct child *c, bool *ret_well, char how[48])
{
    int status;

    if (c->pid == 0 || waitpid(c->pid, &status, WNOHANG) != c->pid)
        return false;
    c->pid = 0;
    c->stopped = false;
    *ret_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (WIFEXITED(status))
        snprintf(how, 48, "exit status %d", WEXITSTATUS(status));
    else
        snprintf(how, 48, "signal %d", WTERMSIG(status));
    return true;
}
