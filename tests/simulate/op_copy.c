/* op_copy.c - see op_copy.h. */
#include "simulate/op_copy.h"
#include <stdlib.h>
#include "base/mem.h"

static char *copy_bytes(const void *p, size_t n)
{
    return n > 0 ? memcpy(xmalloc(n), p, n) : NULL;
}

/* Deduplication keys only: the simulated world has no other extras. */
static struct store_extra *copy_extra(const struct store_extra *x)
{
    if (x == NULL)
        return NULL;
    struct store_extra *copy = xmalloc(sizeof *copy);
    *copy = (struct store_extra){.n_keys = x->n_keys};
    copy->keys = (const struct hash128 *)(void *)copy_bytes(x->keys, x->n_keys * sizeof *x->keys);
    return copy;
}

struct store_op *op_copy(const struct store_op *op)
{
    if (op->kind == STORE_APPEND) {
        struct store_append *a = xmalloc(sizeof *a);
        *a = *container_of(op, const struct store_append, op);
        a->frame.p = copy_bytes(a->frame.p, a->frame.n);
        a->extra = copy_extra(a->extra);
        return &a->op;
    }
    if (op->kind == STORE_ACK) {
        struct store_ack *a = xmalloc(sizeof *a);
        *a = *container_of(op, const struct store_ack, op);
        a->ids = (const uint64_t *)(void *)copy_bytes(a->ids, a->n * sizeof *a->ids);
        return &a->op;
    }
    struct store_mark *m = xmalloc(sizeof *m);
    *m = *container_of(op, const struct store_mark, op);
    m->parked.p = m->parked.p != NULL ? copy_bytes(m->parked.p, m->parked.n) : NULL;
    m->frame.p = m->frame.p != NULL ? copy_bytes(m->frame.p, m->frame.n) : NULL;
    return &m->op;
}

void op_free(struct store_op *op)
{
    if (op->kind == STORE_APPEND) {
        struct store_append *a = container_of(op, struct store_append, op);
        free((char *)a->frame.p);
        if (a->extra != NULL)
            free((struct hash128 *)a->extra->keys);
        free((struct store_extra *)a->extra);
    } else if (op->kind == STORE_ACK)
        free((uint64_t *)container_of(op, struct store_ack, op)->ids);
    if (op->kind == STORE_MARK) {
        free((char *)container_of(op, struct store_mark, op)->parked.p);
        free((char *)container_of(op, struct store_mark, op)->frame.p);
    }
    free(op); /* the first member of each */
}
