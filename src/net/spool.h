/* spool.h - the lines that a program prints, in files until they are taken.
 *
 *      program's stdout, or spool_add() --> <dir>/<number> --> line() --taken--> the next line
 *
 * A pipe or a socket forgets what is in it when its reader is killed, and a program that has
 * printed a message often forgets the message.  A file keeps the message: the program prints into
 * the file itself, and the next process reads on where the last one stopped.
 *
 *      spool_open() --> lines of earlier programs --all taken, the programs ended--> dry()
 *      dry() --> spool_begin() --> lines of this program --spool_end(), all taken--> dry()
 *
 * The program holds a lock on its file, so that a program which outlives the process that started
 * it is noticed: its lines are awaited for SPOOL_PATIENCE_MS, and dry() comes after them.
 *
 * Taken lines are erased from the file within SPOOL_ERASE_MS.  The file is not synced: it survives
 * the end of both processes, and not that of the machine.  platform/child.h uses it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"

struct loop;
struct spool;

#define SPOOL_PATIENCE_MS 10000
#define SPOOL_ERASE_MS 1000

struct spool_ops {
    /* One line, without its newline, borrowed for the call.  @old: an earlier process started its
     * program.  True: taken.  False: spool_taken() follows; until then no other line comes, and the
     * next process gets this line again. */
    bool (*line)(void *ctx, struct str line, bool old);
    /* All lines are taken, and no program adds more.  The callback may call spool_begin(). */
    void (*dry)(void *ctx);
};

/* @dir is made if it is missing.  Lines longer than @max_line are dropped, and that is logged.
 * NULL: @ret_why (256 bytes) says why. */
struct spool *spool_open(struct loop *loop, const char *dir, size_t max_line,
                         const struct spool_ops *ops, void *ctx, char *ret_why);
void spool_free(struct spool *s); /* the files stay; no callback after; NULL is fine */

/* Starts a file, after dry().  Returns a descriptor to append to, which the caller gives to its
 * program and closes; -1: errno says why. */
int spool_begin(struct spool *s);
/* Appends to the file of spool_begin().  False: the disk did not take all of it. */
bool spool_add(struct spool *s, int fd, struct str bytes);
/* The program has exited, or the connection is closed: dry() follows. */
void spool_end(struct spool *s);
void spool_taken(struct spool *s);
uint64_t spool_unread(const struct spool *s); /* bytes */
