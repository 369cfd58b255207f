/* sleeper.h - the parts of bellhop-sleeper, the small program that watches over a gateway process.
 *
 * A thousand of these may wait on one machine, so it is a program of its own: linked statically, no
 * library but libc, no thread, no heap to speak of.  Whatever needs more (TLS, JSON, tokens) it
 * asks of `bellhop sleeper --ask`, a process that lives for one question.
 *
 *      sleeper.c  the states, the signals, the loop
 *      knock.c    the wake listener: pokes, /healthz, our own probe
 *      child.c    the gateway process: start, signal, stop, thaw
 *      ask.c      one question to the connector at a time
 */
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int64_t now_ms(void);                                                 /* monotonic */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* stdout: one line of life */
void warn(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* stderr */

/* ---- knock.c ---- */
#define KNOCKERS 6
#define KNOCK_HEAD 2048
#define PROBE_NONCE 33

struct knocker {
    int fd; /* -1: free */
    int64_t until_ms;
    size_t n;
    char head[KNOCK_HEAD];
};
struct knock {
    int listener;
    struct knocker who[KNOCKERS];
};
enum knock_kind {
    KNOCK_NOTHING,
    KNOCK_WAKE,   /* somebody wants the process awake */
    KNOCK_PROBE,  /* our own: the wake URL leads here */
    KNOCK_HEALTH, /* somebody asks how we are */
};
void knock_init(struct knock *k, int listener);
size_t knock_poll(const struct knock *k, struct pollfd *fds); /* fills KNOCKERS + 1 at most */
/* After poll(): accept, read, answer.  @health is the body for /healthz.  Returns the strongest
 * thing that was asked; call again until it is KNOCK_NOTHING. */
enum knock_kind knock_turn(struct knock *k, const char *nonce, const char *health);
int64_t
knock_due_ms(const struct knock *k); /* when a knocker has been silent too long; INT64_MAX: none */
/* The kind of a whole request head. */
enum knock_kind knock_read(const char *head, const char *nonce);

/* ---- child.c ---- */
struct child {
    char **argv; /* borrowed */
    pid_t pid;   /* 0: not running */
    bool stopped;
};
bool child_start(struct child *c); /* false: told why */
void child_signal(struct child *c, int signo);
void child_freeze(struct child *c); /* SIGSTOP, and give its memory back where that is allowed */
void child_thaw(struct child *c);
/* Reap it if it is the one that ended: "exit status 0".  False: it still runs. */
bool child_reap(struct child *c, bool *ret_well, char how[48]);

/* ---- ask.c ---- */
#define ASK_BYTES 3072

struct ask {             /* one question under way */
    const char *bellhop; /* the program that asks for us; borrowed */
    pid_t pid;           /* 0: none */
    int fd;              /* its answer; -1: none */
    int64_t until_ms;
    size_t n;
    char said[ASK_BYTES];
};
struct answer { /* what the connector says of the instance */
    bool ok;
    char state[16];  /* live, away, asleep, never */
    int64_t idle_ms; /* since anything went in or out; INT64_MAX: never */
    uint64_t unacked, entries;
    char wake_url[2048]; /* "": none registered */
    char problem[256];   /* when not ok */
};
void ask_init(struct ask *a, const char *bellhop);
bool ask_start(struct ask *a, const char *what, const char *arg1, const char *arg2);
/* After poll(): true when the answer is whole; then @ret is filled. */
bool ask_turn(struct ask *a, struct answer *ret);
void ask_cancel(struct ask *a);
void answer_read(const char *said, struct answer *ret);
