/* remote.h - the entries of all stores in the PostgreSQL that several nodes share.
 *
 *      data_store   one row per store: the number of its newest entry, its bytes
 *      data_entry   one row per entry, numbered 1, 2, 3... in its store
 *      data_fence   the epoch of the node that serves
 *
 * PostgreSQL has the entries; the node that serves searches them in full-text files of its own
 * (database.h), which are brought up to date from here.  Every write checks the fence in its
 * transaction, so a node that lost its lease adds nothing that the next node has not seen.
 *
 * A store is named by its key, database_key(): FOLDER/NAME, a folder per tenant.  Used by one
 * thread at a time.  Where a call answers false, remote_problem() says why. */
#pragma once
#include "data/entry.h"
#include "store/sqldb.h"

struct remote;

typedef void remote_size_cb(void *ctx, struct str folder, uint64_t bytes);
typedef bool remote_name_cb(void *ctx, struct str name);

/* Creates or migrates the tables, raises the fence to @epoch and reports the bytes of each folder;
 * blocks.  False: @ret_why, 256 bytes. */
bool remote_prepare(const char *url, uint64_t epoch, remote_size_cb *cb, void *ctx, char *ret_why);
/* Creates or migrates the tables only, for a migration. */
bool remote_open(const char *url, char *ret_why);
/* Does not connect yet. */
struct remote *remote_new(const char *url, uint64_t epoch);
void remote_free(struct remote *r); /* NULL is fine */
const char *remote_problem(const struct remote *r);

/* Begins a transaction, unless one is under way. */
bool remote_begin(struct remote *r, bool write);
/* SQLDB_DONE when no transaction is open. */
enum sqldb_end remote_commit(struct remote *r);
void remote_rollback(struct remote *r);

/* *@ret_id: the id of the store with this key; 0: there is none. */
bool remote_find(struct remote *r, struct str key, int64_t *ret_id);
/* *@ret: the store has an entry @n, and its id is @uuid. */
bool remote_has(struct remote *r, int64_t store, int64_t n, struct str uuid, bool *ret);
/* One page of the store's entries with numbers above @n, in order.  *@ret_last: the number of the
 * last entry; it equals @n when there are no more. */
typedef bool remote_entry_cb(void *ctx, int64_t n, const struct data_entry *e);
bool remote_since(struct remote *r, int64_t store, int64_t n, remote_entry_cb *cb, void *ctx,
                  int64_t *ret_last);
bool remote_add(struct remote *r, struct str key, const struct data_entry *e, int64_t *ret_store,
                int64_t *ret_n);
bool remote_drop(struct remote *r, int64_t store, const int64_t *numbers, size_t n);
/* Deletes a store with all its entries.  A store that is created later with this key gets a new
 * id. */
bool remote_clear(struct remote *r, struct str key);
bool remote_bytes(struct remote *r, struct str folder, uint64_t *ret_bytes);
bool remote_names(struct remote *r, struct str folder, remote_name_cb *cb, void *ctx);
/* Calls @cb for every store. */
typedef bool remote_store_cb(void *ctx, int64_t id, struct str key);
bool remote_stores(struct remote *r, remote_store_cb *cb, void *ctx);
