/* tend.h - what an operator does with a mailbox: look inside, purge, redrive.
 *
 * The calls are in relay.h; here is only what is under way. */
#pragma once

struct shows;

struct shows *shows_new(void);
void shows_free(struct shows *t); /* NULL is fine; the store holds none of the reads any more */
