/* gap.h - rows of a mailbox that a shared store has and memory lacks.
 *
 * A shared store numbers the rows of a mailbox 1, 2, 3... in the order in which they were written.
 * So whoever is told of number 7 and has seen up to 5 knows that there is a 6: it is read before 7
 * is delivered, and the order holds whatever was lost on the way here.
 *
 *      i->newest_row      the newest in the mailbox; 0: none since the start
 *      gap_is_next(row)   the one behind it
 *      gap_want(i)        read on from newest_row, and again if more came meanwhile
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct gaps;
struct instance;
struct relay;

struct gaps *gaps_new(void);
void gaps_free(struct gaps *t); /* NULL is fine; the store holds none of our reads any more */

bool gap_is_next(const struct instance *i, uint64_t row);
void gap_want(struct instance *i);
void gap_retry(struct instance *i); /* a read that failed */

/* The name has another holder: rows of its mailbox that memory never had go too. */
void gap_erase(struct instance *i);
void gap_erase_retry(struct relay *r); /* those that failed */
