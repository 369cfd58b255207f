/* knock.h - the wake listener: pokes, /healthz, and our own probe coming back through the wake URL.
 *
 * Every client gets one small answer and is closed; at most KNOCKERS clients are
 * connected at once. */
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    KNOCK_WAKE,   /* a wake poke */
    KNOCK_PROBE,  /* our own: the wake URL leads here */
    KNOCK_HEALTH, /* GET /healthz */
};
void knock_init(struct knock *k, int listener);
size_t knock_poll(const struct knock *k, struct pollfd *fds); /* fills KNOCKERS + 1 at most */
/* After poll(): accept, read, answer.  @health is the body for /healthz.  Returns the most
 * important request; call again until it is KNOCK_NOTHING. */
enum knock_kind knock_turn(struct knock *k, const char *nonce, const char *health);
/* When a knocker has been silent too long; INT64_MAX: none. */
int64_t knock_due_ms(const struct knock *k);
/* The kind of a whole request head. */
enum knock_kind knock_read(const char *head, const char *nonce);
