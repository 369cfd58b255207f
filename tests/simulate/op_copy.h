/* op_copy.h - appends, acks and marks that outlive whoever asked for them. */
#pragma once
#include "store/store.h"

struct store_op *op_copy(const struct store_op *op); /* nobody is told when it is done */
void op_free(struct store_op *copy);
