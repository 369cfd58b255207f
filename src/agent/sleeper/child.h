/* child.h - the gateway process: started, signalled, stopped, thawed, reaped. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct child {
    char **argv; /* borrowed */
    pid_t pid;   /* 0: not running */
    bool stopped;
};
bool child_start(struct child *c); /* false: told why */
void child_signal(struct child *c, int signo);
/* Stop it and everything it started, and give its memory back where that is allowed. */
void child_freeze(struct child *c);
void child_thaw(struct child *c); /* all of them */
/* Reap it if it is the one that ended: "exit status 0".  False: it still runs. */
bool child_reap(struct child *c, bool *ret_well, char how[48]);
