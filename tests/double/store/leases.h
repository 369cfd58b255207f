/* leases.h - the rules of leases for the stores that run in memory.  postgres/schema.c has the same
 * rules as SQL.
 *
 *      free --take--> held by A, epoch 1 --time up, taken by B--> held by B, epoch 2
 *        ^               |  ^--renew--'
 *        '---release-----'
 *
 * Each grant has a larger epoch than the one before, also a second grant to the same owner. */
#pragma once
#include "base/map.h"
#include "store/store.h"

struct lease_row {
    char *name;                    /* owned */
    char owner[STORE_OWNER_BYTES]; /* empty: free */
    uint64_t epoch;                /* of the newest grant */
    int64_t until_ms;              /* on the clock of the store */
};

struct leases {
    struct map by_name; /* to struct lease_row, owned */
};

void leases_done(struct leases *l);
enum bh_err leases_run(struct leases *l, struct store_lease *op, int64_t now_ms);
/* True when the lease that @f names is held under its epoch, or @f is zero. */
bool leases_hold(const struct leases *l, const struct store_fence *f, int64_t now_ms);
