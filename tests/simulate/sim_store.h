/* sim_store.h - a store whose disk, queue and crashes the simulator turns by hand.
 *
 *      submit -> QUEUED --commit--> on "disk", result kept --complete--> done()
 *                   '----crash----> gone        '---crash---> on disk, done() never runs
 *
 * The disk survives sim_store_crash(); a new struct store is opened on it. */
#pragma once
#include "store/store.h"

#define SIM_DEDUP_KEY \
    { \
        .k0 = 1, .k1 = 2 \
    }

struct sim_disk; /* what survives: rows, records, keys, leases, the boot number */

struct sim_disk *sim_disk_new(void);
struct sim_disk *sim_disk_new_shared(void); /* several stores may be open on it at once */
void sim_disk_set_time(struct sim_disk *d, int64_t now_ms); /* by which leases end; 0 at first */
void sim_disk_free(struct sim_disk *d);
bool sim_disk_has_row(const struct sim_disk *d, uint64_t id);
/* The row whose frame has this bufferId; 0: none.  @ret_n (may be NULL): how many there are. */
uint64_t sim_disk_named(const struct sim_disk *d, struct str buffer_id, size_t *ret_n);
/* Does an event that has this message id wait for this recipient, in a row of its own? */
bool sim_disk_is_staged(const struct sim_disk *d, const char *message_id, const char *tenant,
                        const char *instance, uint32_t life);
/* Is this message one of the burst in the row? */
bool sim_disk_joins(const struct sim_disk *d, uint64_t id, const char *message_id);
bool sim_disk_is_parked(const struct sim_disk *d, uint64_t id);
size_t sim_disk_rows(const struct sim_disk *d);
void sim_disk_each_frame(const struct sim_disk *d, void (*each)(void *ctx, struct str frame),
                         void *ctx);
bool sim_disk_has_key(const struct sim_disk *d, struct hash128 key);

/* What a transaction that has not ended yet will write, if it does. */
bool sim_disk_may_get_key(const struct sim_disk *d, struct hash128 key);
struct truth *sim_disk_truth(struct sim_disk *d); /* from now on every write is held against it */

struct store *sim_store_open(struct sim_disk *d);
/* Another process serves from now on; its store is guarded (store_guard()). */
void sim_store_serve(struct store *st);
void sim_store_crash(struct store *st); /* forget queue and results; frees @st */
size_t sim_store_queued(const struct store *st);
size_t sim_store_finished(const struct store *st);
/* One transaction of the first @n queued ops.  Writes of a store whose guard does not hold any more
 * are fenced; what was lost happened, and nobody can say so. */
enum sim_fate { SIM_WELL, SIM_ROLLED_BACK, SIM_ANSWER_LOST };
void sim_store_commit(struct store *st, size_t n, enum sim_fate fate);
/* The process stops between BEGIN and COMMIT: the first @n queued ops are in a transaction that
 * holds its locks; the next commit goes on with it.  What is fenced begins none. */
void sim_store_begin(struct store *st, size_t n);
bool sim_store_is_open(const struct store *st);
void sim_store_abort(struct store *st); /* the database does not wait any longer for it */
/* The line is lost behind the COMMIT of the first @n ops, and the database is not done with it: the
 * ops end as unknown, the transaction ends later.  So does what a crash finds begun. */
void sim_store_limbo(struct store *st, size_t n);
bool sim_disk_in_limbo(const struct sim_disk *d);
/* Only a transaction whose process crashed can fail by then. */
void sim_disk_end_limbo(struct sim_disk *d, bool fails);
/* The first queued op waits for a lock for too long: it fails.  Nothing waits: nothing happens. */
void sim_store_tire(struct store *st);
/* Run done() of the first @n results; how many of them were failures. */
size_t sim_store_complete(struct store *st, size_t n);
/* The done() callbacks run from inside sim_store_complete(), which the scheduler calls. */
