/* fetch.h - bodies of a backlog, read from the store ahead of the pump.
 *
 * At most two reads per instance: one being used up, one on its way.  All instances together keep
 * within FETCH_TOTAL_BYTES; whoever finds no room is hungry and is pumped again when there is. */
#pragma once
#include <stdbool.h>
#include "base/str.h"

struct fetches;
struct instance;
struct relay;
struct slot;

#define FETCH_BYTES (128u << 10)
#define FETCH_TOTAL_BYTES (64u << 20)

enum fetch_verdict {
    FETCH_HERE, /* @ret_bytes is set, borrowed until the next call */
    FETCH_WAIT, /* under way: the instance is pumped when it comes */
    FETCH_LOST, /* the store has no such row */
};

struct fetches *fetches_new(void);
void fetches_free(struct relay *r); /* the store holds none of them any more */

/* The bytes of @slot, from memory or from a read.  Ask in the order of sending. */
enum fetch_verdict fetch_body(struct instance *i, struct slot *slot, struct str *ret_bytes);
/* The pump stops or starts elsewhere: reads are of no use any more. */
void fetch_drop(struct instance *i);
