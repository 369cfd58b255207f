/* spawner.h - runs programs in a helper process, because the confined server must not exec.
 *
 *      start of the server --spawner_new()--> helper: knows its commands, waits
 *          |  confine_files(), threads, confine_calls(): from here on it cannot run a program
 *          '-- which command, more arguments, three pipes --> helper --fork, exec--> program
 *             <------------- cannot, or: it ended thus ----------'
 *
 * The helper runs the commands it got before the server accepted input.  Only a spawner that
 * learns takes more of them later (spawner_learn()); others need a restart.  A program gets its
 * own process group, an environment without our variables and secrets, and its input from
 * memory. Its output is collected up to a limit, or goes to a file of the caller's; a program
 * that is talked to (`talks`) gets more input while it runs.  The program is ended (TERM, 2 s
 * later KILL) at its timeout, when the run is cancelled, and when the server exits or dies.  The
 * spawner also works without confinement. */
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
    SPAWN_MAX_LEARNT = 4096,       /* commands that the helper takes later */
    SPAWN_LINE_BYTES = 500,        /* of a line that heard() gets; the rest is left out */
    SPAWN_ERRORS_BYTES = 4 * 1024, /* of stderr that are kept */
    SPAWN_UNREAD_BYTES = 64 << 20, /* of spawn_say() that the program has not read yet */
};

/* Starts the helper; call it before the first thread exists.  @commands are argument lists, each
 * ending with NULL, copied; argv[0] is looked up in PATH.  @hidden lists variables that no program
 * gets, each name followed by a NUL; may be absent.  @learns: the helper takes further commands
 * from the server, also from one that was taken over.  NULL: @ret_why (256 bytes) says why. */
struct spawner *spawner_new(const char *const *const *commands, unsigned n, struct str hidden,
                            bool learns, char *ret_why);
void spawner_watch(struct spawner *s, struct loop *loop); /* once there is a loop, before any run */
void spawner_free(struct spawner *s); /* ends the helper and its programs; NULL is fine */
/* The number of the command with this @argv; -1: the helper does not know it. */
int spawner_find(const struct spawner *s, const char *const *argv);
/* The same for a command that the helper may have to learn first.  -1: it does not learn, knows
 * SPAWN_MAX_LEARNT already, or the command is too long. */
int spawner_learn(struct spawner *s, const char *const *argv);

struct spawn_order {         /* copied */
    unsigned command;        /* its number */
    const char *const *more; /* additional arguments, NULL at the end; NULL: none */
    const char *const *env;  /* "BELLHOP_...=value" or "GATEWAY_RELAY_...=value"; NULL: none */
    struct str input;        /* its stdin */
    int64_t timeout_ms;      /* 0: none */
    size_t max_output;       /* output beyond this is read and dropped */
    int output_fd;           /* its stdout, borrowed for the call; 0: it is collected */
    bool talks;              /* its stdin stays open for spawn_say() */
    /* Gets each line of stderr, without its end, as it comes; may be NULL. */
    void (*heard)(void *ctx, struct str line);
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
/* More input for a program that talks.  False: the program has closed its input, or has
 * SPAWN_UNREAD_BYTES to read; nothing of @bytes is sent. */
bool spawn_say(struct spawn *run, struct str bytes);
/* Sends TERM now, and KILL when @grace_ms are over; done() runs as usual. */
void spawn_stop(struct spawn *run, int64_t grace_ms);
void spawn_cancel(struct spawn **run); /* ends the program; sets NULL; NULL inside is fine */
