/* truth.h - who holds the lease, judged apart from the code that grants it.
 *
 * Told of every lease that was granted and of every write that happened; says when somebody got it
 * too early, kept it too long, or wrote without it. */
#pragma once
#include "store/store.h"

struct truth {
    uint64_t epoch;   /* of the newest grant; 0: none yet */
    int64_t until_ms; /* its end, on the clock of the database */
    char owner[STORE_OWNER_BYTES];
    char broken[160]; /* empty: all is well */
    uint64_t grants;
};

void truth_leased(struct truth *t, const struct store_lease *op, int64_t now_ms);
/* @epoch of whoever wrote, 0: nobody asked; @begun_ms: when its transaction asked who may. */
void truth_written(struct truth *t, const struct store_op *op, uint64_t epoch, int64_t begun_ms);
bool truth_holds(const struct truth *t, uint64_t epoch, int64_t now_ms);
