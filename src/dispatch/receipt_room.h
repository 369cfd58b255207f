/* receipt_room.h - how many bytes of receipts a tenant may have on disk.
 *
 * They go by the hour, a day after they were written (receipt.h, delivered.h).  What was written
 * before this start is counted for all only: a receipt does not say whose it is. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/str.h"

struct dispatch;
struct receipt_room;

struct receipt_room *receipt_room_new(struct dispatch *d);
void receipt_room_free(struct receipt_room *t);   /* NULL is fine */
void receipt_room_expire(struct receipt_room *t); /* every now and then */

/* May something begin that ends with a receipt? */
bool receipt_room_has(struct receipt_room *t, struct str tenant);
void receipt_room_wrote(struct receipt_room *t, struct str tenant, size_t bytes);
