/* child.h - the gateway process: started, signalled, stopped, thawed, reaped. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct child {
    char **argv; /* borrowed */
    pid_t pid;   /* 0: not running */
    bool stopped;
};
bool child_start(struct child *c); /* false: the log says why */
void child_signal(struct child *c, int signo);
/* Stop the process and everything it started, and return their memory to the kernel where that is
 * allowed. */
void child_freeze(struct child *c);
void child_thaw(struct child *c); /* the process and everything it started */
/* Reap the process if it has ended: @how is "exit status 0".  False: it still runs. */
bool child_reap(struct child *c, bool *ret_well, char how[48]);
