/* launch.h - starts a program as a child process: fork, descriptors, signals, exec. */
#pragma once
#include <sys/types.h>

/* Runs @argv (argv[0] is looked up in PATH) with @envp, and with @fds as descriptors 0, 1 and 2
 * (-1: inherited).  The program leads its own process group, has no signal blocked or ignored, and
 * gets SIGTERM if the calling thread dies.  Waits for the exec: returns 0, or an errno. */
int launch(char *const argv[], char *const envp[], const int fds[3], pid_t *ret_pid);
