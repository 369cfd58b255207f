/* spawner.h - runs programs in a helper process, because the confined server must not exec.
 *
 *      start of the server --spawner_new()--> helper: knows its commands, waits
 *          |  confine_files(), threads, confine_calls(): from here on it cannot run a program
 *          '-- which command, more arguments, three pipes --> helper --fork, exec--> program
 *             <------------- cannot, or: it ended thus ----------'
 *
 * The helper runs only the commands it got before the server accepted input; a command that a
 * reload adds needs a restart.  A program gets its own process group, an environment without our
 * variables and secrets, and its input from memory.  Its output is collected up to a limit.  The
 * program is ended (TERM, 2 s later KILL) at its timeout, when the run is cancelled, and when the
 * server exits or dies.  The spawner also works without confinement. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

struct loop;
struct spawn; /* a running program */

enum {
    SPAWN_MAX_MORE = 64,           /* arguments, and variables, of one order */
    SPAWN_MAX_BYTES = 64 * 1024,   /* of these arguments and variables together */
    SPAWN_MAX_RUNNING = 256,       /* programs at once */
    SPAWN_ERRORS_BYTES = 4 * 1024, /* of stderr that are kept */
};

/* Starts the helper; call it before the first thread exists.  @commands are argument lists, each
 * ending with NULL, copied; argv[0] is looked up in PATH.  @hidden lists variables that no program
 * gets, each name followed by a NUL; may be absent.  NULL: @ret_why (256 bytes) says why. */
struct spawner *spawner_new(const char *const *const *commands, unsigned n, struct str hidden,
                            char *ret_why);
void spawner_watch(struct spawner *s, struct loop *loop); /* once there is a loop, before any run */
void spawner_free(struct spawner *s); /* ends the helper and its programs; NULL is fine */
/* The number of the command with this @argv; -1: the helper does not know it. */
int spawner_find(const struct spawner *s, const char *const *argv);

struct spawn_order {         /* copied */
    unsigned command;        /* its number */
    const char *const *more; /* additional arguments, NULL at the end; NULL: none */
    const char *const *env;  /* "BELLHOP_...=value", NULL at the end; NULL: none */
    struct str input;        /* its stdin */
    int64_t timeout_ms;      /* 0: none */
    size_t max_output;       /* output beyond this is read and dropped */
};

struct spawn_end {  /* borrowed for the callback */
    bool well;      /* exit status 0, within the timeout */
    bool timed_out; /* ended at its timeout */
    bool cut;       /* @output is truncated */
    int status;     /* exit status; -1: ended by a signal, or never started */
    struct str output, errors;
    const char *how; /* "exit status 3", "signal 9", "no such file or directory", ... */
};
typedef void spawn_cb(void *ctx, const struct spawn_end *end);

/* @done runs once, later, unless cancelled first.  NULL: too many programs run, or the order
 * exceeds the limits above. */
struct spawn *spawner_run(struct spawner *s, const struct spawn_order *o, spawn_cb *done,
                          void *ctx) BH_MUST_USE;
void spawn_cancel(struct spawn **run); /* ends the program; sets NULL; NULL inside is fine */
