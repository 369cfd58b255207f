/* life.h - a name and its holders, one after the other: what is kept belongs to one life of a name.
 *
 * When an instance is deprovisioned the life of its name grows (tenancy/grants.h), in the very
 * transaction that frees the name.  Everything the relay kept for the life before is over then:
 * sockets are closed, mail is purged, its chats are not known any more, results find nobody.
 *
 *      the facts' life is newer, seen at start, on the bus ("ended"), at the first event or socket
 *           |
 *           v
 *      the instance gets a mailbox of another number
 *           |  one transaction: its record with the new number and life, and "retired" for the old
 *           v
 *      rows of the old number are deleted, now, or by the start that finds them
 *
 * So whatever a crash interrupts, the next holder of a name never has the mailbox of the one
 * before, and a number is never used again.  A record in "retired" (key: the number in hex) goes
 * with the first start that finds no row of it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

#define LIFE_RETIRED "retired" /* the namespace; written with the instance's record */

struct instance;
struct lives;
struct relay;

struct lives *lives_new(void);
void lives_listen(struct relay *r); /* on the bus, until it is closed */
void lives_free(struct lives *t);   /* NULL is fine */

/* What the facts say; 0: nobody has held the name before. */
uint32_t life_now(const struct relay *r, struct str tenant, struct str name);
/* The facts say @life.  If that is newer than the one @i belongs to, the old one ends here. */
void life_follow(struct instance *i, uint32_t life);

/* ---- while starting ---- */
/* After the records of the instances: what was retired is known. */
enum bh_err life_load(struct relay *r);
/* A row of a number no instance has.  True: of a retired one, and it will be deleted. */
bool life_take_row(struct relay *r, uint32_t box, uint64_t id);
void life_loaded(struct relay *r);  /* after the rows */
void lives_follow(struct relay *r); /* everything is there: those whose life is over end */
