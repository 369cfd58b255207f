/* spawner.h - runs programs in a helper process, for a server that may no longer run any itself.
 *
 *      start of the server --spawner_new()--> helper: knows its commands, waits
 *          |  confine_files(), threads, confine_calls(): from here on it cannot run a program
 *          '-- which command, more arguments, three pipes --> helper --fork, exec--> program
 *             <------------- cannot, or: it ended thus ----------'
 *
 * The helper runs only the commands it was given before the server accepted input; a command that a
 * reload adds needs a restart.  A program gets a process group, an environment
 * without our own variables and secrets, and its input from memory; its output is collected up to a
 * limit.  The helper ends it (TERM, 2 s later KILL) at its timeout, when the run is cancelled,
 * and when the server exits or dies.  Needs no confinement to work. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

struct loop;
struct spawn; /* a program under way */
struct spawner;

enum {
    SPAWN_MAX_MORE = 64,           /* arguments, and variables, of one order */
    SPAWN_MAX_BYTES = 64 * 1024,   /* of them together */
    SPAWN_MAX_RUNNING = 256,       /* programs at once */
    SPAWN_ERRORS_BYTES = 4 * 1024, /* of what it writes to stderr is kept */
};

/* Starts the helper.  Before the first thread is made.  @commands are argument lists, each ending
 * with NULL, copied; argv[0] is looked up in PATH.  @hidden are names of variables that no program
 * gets, each with a zero behind it; may be absent.  NULL: @ret_why (256 bytes) says why. */
struct spawner *spawner_new(const char *const *const *commands, unsigned n, struct str hidden,
                            char *ret_why);
void spawner_watch(struct spawner *s, struct loop *loop); /* once there is a loop, before any run */
void spawner_free(struct spawner *s); /* the helper ends and with it what it runs; NULL is fine */
/* The number of the command that is @argv; -1: the helper was not told of it. */
int spawner_find(const struct spawner *s, const char *const *argv);

struct spawn_order {         /* copied */
    unsigned command;        /* its number */
    const char *const *more; /* arguments behind its own, NULL at the end; NULL: none */
    const char *const *env;  /* "BELLHOP_...=value", NULL at the end; NULL: none */
    struct str input;        /* its stdin */
    int64_t timeout_ms;      /* 0: it may take for ever */
    size_t max_output;       /* what it prints beyond this is read and dropped */
};

struct spawn_end {  /* borrowed for the callback */
    bool well;      /* it exited with status 0, in time */
    bool timed_out; /* it was ended */
    bool cut;       /* it printed more than is in @output */
    int status;     /* its exit status; -1: a signal ended it, or it never began */
    struct str output, errors;
    const char *how; /* "exit status 3", "signal 9", "no such file or directory", ... */
};
typedef void spawn_cb(void *ctx, const struct spawn_end *end);

/* @done runs once, later, unless cancelled first.  NULL: too much at once, or the order is larger
 * than the limits above. */
struct spawn *spawner_run(struct spawner *s, const struct spawn_order *o, spawn_cb *done,
                          void *ctx) BH_MUST_USE;
void spawn_cancel(struct spawn **run); /* the program is ended; sets NULL; NULL inside is fine */
