/* ask.h - HTTP requests to the connector, one at a time.
 *
 * The sleeper links no TLS, JSON or token code.  It starts `bellhop sleeper --ask`, a process that
 * makes one request and prints the answer as lines of "key value". */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ASK_BYTES 3072

struct sleeper_ask {     /* the request in flight */
    const char *bellhop; /* the program to start; borrowed */
    pid_t pid;           /* 0: no request */
    int fd;              /* the program's output; -1: none */
    int64_t until_ms;
    size_t n;
    char said[ASK_BYTES];
};
struct answer { /* the state of the instance at the connector */
    bool ok;
    char state[16];  /* live, away, asleep, never */
    int64_t idle_ms; /* since the last message in or out; INT64_MAX: there was none */
    uint64_t unacked, entries;
    char wake_url[2048]; /* "": none registered */
    char problem[256];   /* when not ok */
};
void ask_init(struct sleeper_ask *a, const char *bellhop);
bool ask_start(struct sleeper_ask *a, const char *what, const char *arg1, const char *arg2);
/* Call after poll().  True: the answer is complete, and @ret is filled. */
bool ask_turn(struct sleeper_ask *a, struct answer *ret);
void ask_cancel(struct sleeper_ask *a);
void answer_read(const char *said, struct answer *ret);
