/* disk.c - see disk.h. */
#include "store/memory/disk.h"
#include <stdlib.h>
#include "base/mem.h"

char *mem_copy(struct str s)
{
    char *p = xmalloc(s.n + 1);
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return p;
}

void *mem_make_room(void *array, size_t *n, size_t *cap, size_t size, size_t pos)
{
    if (*n == *cap) {
        *cap = *cap == 0 ? 16 : *cap * 2;
        array = xrealloc(array, *cap * size);
    }
    char *at = (char *)array + pos * size;
    memmove(at + size, at, (*n - pos) * size);
    ++*n;
    return array;
}

void mem_take_out(void *array, size_t *n, size_t size, size_t pos)
{
    char *at = (char *)array + pos * size;
    memmove(at, at + size, (--*n - pos) * size);
}

enum bh_err mem_disk_run(struct mem_disk *d, struct store_op *op, int64_t now_ms)
{
    switch ((enum store_kind)op->kind) {
    case STORE_APPEND:
        mem_append(d, container_of(op, struct store_append, op));
        return BH_OK;
    case STORE_ACK:
        mem_ack(d, container_of(op, struct store_ack, op));
        return BH_OK;
    case STORE_MARK:
        mem_mark(d, container_of(op, struct store_mark, op));
        return BH_OK;
    case STORE_TX:
        return mem_tx(d, container_of(op, struct store_tx, op));
    case STORE_ERASE:
        mem_erase_records(d, container_of(op, struct store_erase, op));
        return BH_OK;
    case STORE_LEASE:
        return leases_run(&d->leases, container_of(op, struct store_lease, op), now_ms);
    case STORE_FETCH:
        mem_fetch(d, container_of(op, struct store_fetch, op));
        return BH_OK;
    case STORE_LIST:
        mem_list(d, container_of(op, struct store_list, op));
        return BH_OK;
    case STORE_SCAN:
        mem_scan(d, container_of(op, struct store_scan, op));
        return BH_OK;
    }
    return BH_REFUSED;
}

void mem_disk_done(struct mem_disk *d)
{
    for (size_t i = 0; i < d->n_rows; i++) {
        free((char *)d->rows[i].frame.p);
        free((char *)d->rows[i].parked.p);
    }
    for (size_t i = 0; i < d->n_records; i++) {
        free(d->records[i]->ns);
        free(d->records[i]->key);
        free(d->records[i]->value);
        free(d->records[i]);
    }
    free(d->rows);
    free(d->records);
    free(d->keys);
    leases_done(&d->leases);
}
