/* ephemeral.h - `bellhop serve --ephemeral`: a server for tests that leaves nothing behind.
 *
 *      ephemeral_begin() -> server_open() -> ephemeral_ready() -> the loop runs
 *                        -> server_close() -> ephemeral_end()
 *
 * The state directory lies in memory (/dev/shm) where there is room, else with the temporary files.
 * A child process, the janitor, deletes the directory when the server ends, however it ends. */
#pragma once
#include "base/err.h"

struct server;

struct ephemeral {
    char *dir, *config; /* owned: the state directory, and the configuration in it; NULL: none */
    int leash;          /* the janitor reads the other end of this pipe */
    int janitor;        /* its process id */
};

/* Makes the directory, its configuration and the janitor.  Called before any thread is started.
 * False: @ret_why (256 bytes) says why not. */
bool ephemeral_begin(struct ephemeral *e, char *ret_why);
/* Makes the gateway, the key and the bots of a test, and prints the line that names them. */
enum bh_err ephemeral_ready(const struct ephemeral *e, struct server *s, char *ret_why);
void ephemeral_end(struct ephemeral *e); /* returns when the directory is gone */
