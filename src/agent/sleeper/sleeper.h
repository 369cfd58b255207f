/* sleeper.h - when to let a gateway process sleep, and when to wake it.
 *
 * The state machine of bellhop-sleeper, the small program that supervises a gateway process.  A
 * thousand of these may wait on one machine, so it is a program of its own: linked statically, no
 * library but libc, no thread, no heap to speak of.
 *
 *         .--> STARTING --the connector sees it--> AWAKE --idle for long enough--> CHECKING
 *         |        ^                                 ^                              |    |
 *         |        |                                 '------- may not sleep --------'    |
 *         |  poked, scheduled,                         our own probe came through the wake URL
 *         |    signalled                                                                 |
 *         |        |                                                                     v
 *         |      ASLEEP <--asleep there, nothing unacked-- SETTLING <--exits, or-- DRAINING
 *         '--------------------- something waits there --------'     goes dormant
 *
 *      LOOKING, the first state: an instance that sleeps without mail is not started at all
 *      --mode start: only ASLEEP --poked--> STARTING --the command has exited--> ASLEEP
 *      LEAVING, the last: SIGTERM was passed on; the sleeper exits when the process has exited
 *
 * The caller (main.c) waits for signals, pokes, answers and time, and calls the functions below.
 */
#pragma once
#include "agent/sleeper/ask.h"
#include "agent/sleeper/child.h"
#include "agent/sleeper/knock.h"

enum sleeper_state { LOOKING, STARTING, AWAKE, CHECKING, DRAINING, SETTLING, ASLEEP, LEAVING };

struct sleeper {
    /* from the command line */
    int64_t idle_ms, every_ms, drain_ms, look_ms;
    int at_minute; /* of the day; -1: none */
    bool freeze;
    bool starts_only; /* a command that starts the agent elsewhere: nothing to put to sleep */
    int drain_signal;
    const char *wake_url; /* instead of the registered one; NULL: that one */

    enum sleeper_state state;
    int64_t since_ms;    /* in this state */
    int64_t started_ms;  /* the process, or its thaw */
    int64_t ask_at_ms;   /* INT64_MAX: no question planned */
    int64_t wake_at_ms;  /* while asleep, by the schedule */
    int64_t start_at_ms; /* a crashed process is started again; INT64_MAX: not planned */
    unsigned failures;
    bool knocked; /* poked on the way to sleep: wake again */
    bool hurry;   /* SIGUSR2: sleep as soon as nothing is in flight */
    bool probing, reached;
    uint64_t sleeps, wakes;
    char nonce[PROBE_NONCE], url[2048];
    char refusal[320]; /* why the process may not sleep; "": no reason known */
    struct knock knock;
    struct child child;
    struct sleeper_ask ask;
};

/* Enters LOOKING.  The caller has set the options from the command line; the rest is zero. */
void sleeper_begin(struct sleeper *s);

/* Inputs of the state machine.  Functions that return int return -1 to continue, else the exit
 * status. */
void sleeper_heard(struct sleeper *s, const struct answer *r);    /* the connector's answer */
void sleeper_knocked(struct sleeper *s);                          /* a wake poke came */
int sleeper_ended(struct sleeper *s, bool well, const char *how); /* the process */
void sleeper_woken(struct sleeper *s);                            /* SIGUSR1: wake, if asleep */
void sleeper_hurried(struct sleeper *s); /* SIGUSR2: sleep as soon as nothing is in flight */
int sleeper_leave(struct sleeper *s);    /* SIGTERM; a second one exits at once */
void sleeper_tick(struct sleeper *s);    /* does what is due by now */

/* The timeout for poll(): ms until something is due; -1: never. */
int sleeper_wait_ms(const struct sleeper *s);
/* The body of /healthz. */
void sleeper_describe(const struct sleeper *s, char *out, size_t n);
