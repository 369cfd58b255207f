/* leases.h - the rule of leases, for stores that keep them in memory and write them through.
 *
 *      free --take, steal--> held by A, epoch 1 --steal by B--> held by B, epoch 2
 *        ^                      |  ^--renew--'
 *        '--release, time up----'        taken again after the end: the epoch grows too
 *
 * For stores only. */
#pragma once
#include "base/map.h"
#include "store/store.h"

struct lease_row {
    char *name;                    /* owned */
    char owner[STORE_OWNER_BYTES]; /* empty: free */
    uint64_t epoch;                /* of the newest grant */
    int64_t until_ms;              /* on the clock of the store; unused when @under is set */
    char *under;                   /* owned; NULL: it has a time of its own */
    uint64_t under_epoch;
};

struct leases {
    struct map by_name; /* to struct lease_row, owned */
};
#define LEASES_INIT ((struct leases){MAP_INIT})

void leases_done(struct leases *l);
/* One op at the time @now_ms.  @ret_row: what has to be written; NULL: nothing changed. */
enum bh_err leases_run(struct leases *l, struct store_lease *op, int64_t now_ms,
                       const struct lease_row **ret_row);
bool leases_hold(const struct leases *l, const struct store_fence *f, int64_t now_ms);
/* The fence of an owner's write; NULL: this kind of op has none. */
const struct store_fence *store_fence_of(const struct store_op *op);
/* For loading: the row of that name, made when it is not there. */
struct lease_row *leases_row(struct leases *l, struct str name);
