/* tree.c - design.  (tree.h has the contract.)
 *
 * /proc/PID/task/TID/children lists who a thread started, and is exact for one that is stopped.  A
 * signal takes effect a moment after kill() returned, so a stop is repeated until two looks in a
 * row find the same number. */
#include "agent/sleeper/tree.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "agent/sleeper/tell.h"

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
        return; /* it is gone */
    while ((e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.')
            add_children_of_thread(t, pid, e->d_name);
    closedir(dir);
}

/* @root and everybody below it, parents first. */
static void look(struct tree *t, pid_t root)
{
    t->n = 0;
    t->pids[t->n++] = root;
    for (size_t i = 0; i < t->n; i++)
        add_children(t, t->pids[i]);
}

void tree_stop(pid_t root)
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

void tree_continue(pid_t root)
{
    struct tree t;

    look(&t, root);
    while (t.n > 1)
        kill(t.pids[--t.n], SIGCONT);
    kill(-root, SIGCONT);
}
