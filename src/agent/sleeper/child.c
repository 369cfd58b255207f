/* child.c - the gateway process.  (child.h has the contract.)
 *
 * The process runs in a process group of its own and gets SIGTERM when the sleeper dies: a
 * restarted supervisor must not end up with two sleepers and two gateways.
 *
 * `bellhop agent` runs its programs in groups of their own, so stopping one group would leave them
 * running.  /proc/PID/task/TID/children lists the children of a thread, and is exact for a stopped
 * one.  Without that file only the group is stopped.  A signal takes effect a moment after kill()
 * returns, so the stop is repeated until two scans in a row find the same number of processes. */
#include "agent/sleeper/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/sleeper/tell.h"

/* ---- a process and its descendants ---- */

#define MAX_TREE 1024
#define LOOKS 16

struct tree {
    pid_t pids[MAX_TREE];
    size_t n;
};

static void add_children_of_thread(struct tree *t, pid_t pid, const char *tid)
{
    char path[320], text[4096], *p = text;

    snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)pid, tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    for (;;) {
        char *end;
        long child = strtol(p, &end, 10);
        if (end == p || child <= 0 || t->n == MAX_TREE)
            return;
        t->pids[t->n++] = (pid_t)child;
        p = end;
    }
}

static void add_children(struct tree *t, pid_t pid)
{
    char path[64];
    const struct dirent *e;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (dir == NULL)
        return; /* the process has exited */
    while ((e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.')
            add_children_of_thread(t, pid, e->d_name);
    closedir(dir);
}

/* Lists @root and its descendants, parents first. */
static void look(struct tree *t, pid_t root)
{
    t->n = 0;
    t->pids[t->n++] = root;
    for (size_t i = 0; i < t->n; i++)
        add_children(t, t->pids[i]);
}

/* @root leads its group and is our child.  Stops parents first, and repeats until a scan finds
 * nothing new: a stopped process starts no children. */
static void tree_stop(pid_t root)
{
    struct tree t;
    size_t before = 0;

    kill(-root, SIGSTOP);
    for (int i = 0; i < LOOKS; i++) {
        look(&t, root);
        for (size_t k = 1; k < t.n; k++)
            kill(t.pids[k], SIGSTOP);
        if (t.n == before)
            return;
        before = t.n;
    }
    warn("it starts processes faster than they can be stopped, or more than %d", MAX_TREE);
}

/* Children first, so that a parent finds its children running. */
static void tree_continue(pid_t root)
{
    struct tree t;

    look(&t, root);
    while (t.n > 1)
        kill(t.pids[--t.n], SIGCONT);
    kill(-root, SIGCONT);
}

/* ---- the gateway process ---- */

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
        errno != EAGAIN) /* EAGAIN: less memory was there to reclaim */
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
