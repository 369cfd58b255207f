/* launch.h - starts a program as a child process: fork, descriptors, signals, exec. */
#pragma once
#include <sys/types.h>

/* Runs @argv (argv[0] is looked up in PATH) with @envp and, as descriptors 0, 1 and 2, @fds (-1: as
 * ours).  It leads a process group of its own, no signal is blocked or ignored, and it gets SIGTERM
 * should the thread that calls this die.  Waits until the program runs or could not: 0, or an
 * errno. */
int launch(char *const argv[], char *const envp[], const int fds[3], pid_t *ret_pid);
