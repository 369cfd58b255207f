/* tend.h - what is done with a mailbox from outside: look inside, purge, take, redrive; and a look
 * at the chats of an instance.
 *
 * The calls are in relay.h; here is only what is under way. */
#pragma once

struct list;
struct relay;
struct shows;

struct shows *shows_new(void);
void shows_free(struct shows *t); /* NULL is fine; the store holds none of the reads any more */

/* ---- forget_mail.c ---- */
struct list *shows_forgettings(struct relay *r); /* of the work under way; owned by the shows */
void forgettings_free(struct list *all);
