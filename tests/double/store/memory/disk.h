/* disk.h - what the stores that run in memory keep: rows, records, keys and leases, and what each
 * op does to them.  A real store has a database here.  Used by memory.c and by the simulator, whose
 * disk survives the crashes of its stores. */
#pragma once
#include "base/map.h"
#include "store/leases.h"
#include "store/store.h"

struct mem_record { /* all owned; ns and key of one record never change */
    char *ns;
    char *key, *value;
    size_t key_n, value_n;
};

struct mem_key {
    struct hash128 key;
    int64_t at_ms;
};

struct mem_disk {
    struct store_row *rows; /* owned, ascending; frame and parked are owned too */
    size_t n_rows, cap_rows;
    struct mem_record **records; /* owned, in byte order */
    size_t n_records, cap_records;
    struct mem_key *keys; /* owned, in order of arrival */
    size_t n_keys, cap_keys;
    struct leases leases;
};

void mem_disk_done(struct mem_disk *d);

/* Everything @op does, and its answer, at the time @now_ms of the store's own clock. */
enum bh_err mem_disk_run(struct mem_disk *d, struct store_op *op, int64_t now_ms);
void mem_disk_forget_keys(struct mem_disk *d, int64_t before_ms);
void mem_disk_load_rows(const struct mem_disk *d, store_row_cb *cb, void *ctx);
void mem_disk_load_records(const struct mem_disk *d, const char *ns, struct str prefix,
                           store_record_cb *cb, void *ctx);
void mem_disk_load_keys(const struct mem_disk *d, int64_t since_ms, store_key_cb *cb, void *ctx);

const struct store_row *mem_disk_row(const struct mem_disk *d, uint64_t id); /* NULL: none */
