/* program.h - one child process: lines to its stdin, lines from its stdout, its end.
 *
 *      RUNNING --program_end()--> CLOSING (its input ended) --5 s--> TERM --2 s--> KILL
 *          '----------------------------- exits -------------------------------------> ended()
 *
 * The program runs in a process group of its own: Ctrl-C at a terminal reaches bellhop and not the
 * program, and a signal from bellhop also reaches what the program started.  Its stderr is ours. */
#pragma once
#include <stdbool.h>
#include "base/str.h"

struct loop;
struct program;

struct program_ops {
    void (*line)(void *ctx, struct str line); /* without its newline; may end in '\r' */
    /* It has exited and every line it printed was told.  @how: "exit status 3", "signal 9".  The
     * program may be freed in here. */
    void (*ended)(void *ctx, bool well, const char *how);
};

#define PROGRAM_MAX_LINE ((size_t)1 << 20) /* longer lines are cut, and that is logged */

/* Is @name (a path, or looked up in PATH) something that can be run? */
bool program_exists(const char *name);

/* NULL: it cannot be started, @ret_why (256 bytes) says why.  @argv[0] is looked up in PATH;
 * @argv and @envp are borrowed for the call. */
struct program *program_start(struct loop *loop, char *const argv[], char *const envp[],
                              const struct program_ops *ops, void *ctx, char *ret_why);
void program_free(struct program *p); /* kills what still runs; NULL is fine; no callback after */

/* Queue a line, newline included.  Returns the number of bytes ever queued: when program_read() has
 * reached it, the program has taken the line. */
uint64_t program_write(struct program *p, struct str line);
/* Bytes that have left the pipe: read by the program, not merely written by us. */
uint64_t program_read(const struct program *p);
void program_signal(struct program *p, int signo); /* to its whole process group */
void program_end(struct program *p);               /* see the picture; twice is fine */
