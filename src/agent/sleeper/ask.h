/* ask.h - HTTP questions to the connector, one at a time.
 *
 * `bellhop sleeper --ask` does TLS, JSON and tokens: a process that asks one question and prints
 * the answer as one line. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ASK_BYTES 3072

struct sleeper_ask {     /* one question under way */
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
void ask_init(struct sleeper_ask *a, const char *bellhop);
bool ask_start(struct sleeper_ask *a, const char *what, const char *arg1, const char *arg2);
/* After poll(): true when the answer is whole; then @ret is filled. */
bool ask_turn(struct sleeper_ask *a, struct answer *ret);
void ask_cancel(struct sleeper_ask *a);
void answer_read(const char *said, struct answer *ret);
