/* program.h - one child process: lines to its stdin, lines from its stdout, its exit.
 *
 *      RUNNING --program_end()--> CLOSING (its input ended) --5 s--> TERM --2 s--> KILL
 *          '----------------------------- exits -------------------------------------> ended()
 *
 * The program runs in a process group of its own: Ctrl-C at a terminal reaches bellhop and not the
 * program, and a signal from bellhop also reaches the program's children.  A program that does not
 * read its input is killed once PROGRAM_MAX_UNSENT bytes wait for it. */
#pragma once
#include <stdbool.h>
#include "base/str.h"

struct loop;

struct program_ops {
    void (*line)(void *ctx, struct str line); /* without its newline; may end in '\r' */
    /* The process has exited, and line() has run for all its output.  @how: "exit status 3",
     * "signal 9".  The callback may free the program. */
    void (*ended)(void *ctx, bool well, const char *how);
    /* One line of its stderr, cut after PROGRAM_MAX_ERROR bytes.  NULL: the program inherits our
     * stderr. */
    void (*complaint)(void *ctx, struct str line);
};

#define PROGRAM_MAX_LINE ((size_t)1 << 20) /* longer lines are dropped, and that is logged */
#define PROGRAM_MAX_ERROR ((size_t)1000)
#define PROGRAM_MAX_UNSENT ((size_t)64 << 20)

struct program_order {               /* borrowed for the call */
    char *const *argv, *const *envp; /* argv[0] is looked up in PATH */
    size_t max_line;                 /* bytes of an output line; 0: PROGRAM_MAX_LINE */
};

/* True: @name, a path or looked up in PATH, is executable. */
bool program_exists(const char *name);

/* Starts the program.  @ops is borrowed while the program lives.  NULL: @ret_why (256 bytes) says
 * why it cannot start. */
struct program *program_start(struct loop *loop, const struct program_order *o,
                              const struct program_ops *ops, void *ctx, char *ret_why);
void program_free(struct program *p); /* kills a running process; no callback after; NULL is fine */

/* Enqueues a line, newline included.  Returns the number of bytes ever queued: once program_read()
 * reaches it, the program has read the line. */
uint64_t program_write(struct program *p, struct str line);
/* Bytes that the program has read from the pipe. */
uint64_t program_read(const struct program *p);
/* Stops reading its output, or goes on: a program that prints faster than its lines are used waits
 * in write().  Up to 64 KiB that were read still come as lines. */
void program_hold(struct program *p, bool held);
void program_signal(struct program *p, int signo); /* to its whole process group */
void program_end(struct program *p);               /* see the picture; twice is fine */
