/* self.h - this program again, as a child process: `agent --demo` and `setup` run a server. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "base/buf.h"

/* Starts this program with @args (at most 14, NULL at the end).  Its output goes to *@ret_out, its
 * hints for people to @err (-1: where this process's go).  The child ends when this process dies.
 * @ret_why has 256 bytes. */
bool self_start(const char *const *args, int err, pid_t *ret_pid, int *ret_out, char *ret_why);
/* Appends what can be read until the end, or with @line until the first newline.  False: the output
 * ended before the line did. */
bool self_read(int fd, bool line, struct buf *out);
/* Starts this program, and appends its whole output.  False: it failed. */
bool self_run(const char *const *args, struct buf *out, char *ret_why);
void self_end(pid_t pid); /* SIGTERM, and waits */
