/* demo.h - a connector with a chat page for `bellhop agent --demo`, which goes when the agent ends.
 *
 *      demo_begin() --> `bellhop serve` runs in a child process, with its state in a directory of
 *                       its own; the agent has a credential there, and a code makes its owner
 *      demo_end()   --> the child has ended, the directory is gone
 *
 * The child also ends when this process dies. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct demo {
    pid_t server;
    char *dir, *config;      /* owned */
    char *url, *id, *secret; /* owned; the credential */
    char *link;              /* owned; the code for the owner */
};

/* False: @ret_why (256 bytes) says why; demo_end() still comes. */
bool demo_begin(struct demo *d, char *ret_why);
void demo_end(struct demo *d);
