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
#include "store/side.h"

struct remote;

typedef void remote_size_cb(void *ctx, struct str folder, uint64_t bytes);
typedef bool remote_name_cb(void *ctx, struct str name);

/* Makes the tables, raises the fence to @epoch, and tells the bytes of each folder; blocks.
 * False: @ret_why, 256 bytes. */
bool remote_prepare(const char *url, uint64_t epoch, remote_size_cb *cb, void *ctx, char *ret_why);
/* The tables alone, for a move. */
bool remote_open(const char *url, char *ret_why);
/* Connects to nobody yet. */
struct remote *remote_new(const char *url, uint64_t epoch);
void remote_free(struct remote *r); /* NULL is fine */
const char *remote_problem(const struct remote *r);

/* Begins a transaction, unless one is under way. */
bool remote_begin(struct remote *r, bool write);
/* SIDE_DONE where none is under way. */
enum side_end remote_commit(struct remote *r);
void remote_rollback(struct remote *r);

/* *@ret_id: of the store; 0: there is none. */
bool remote_find(struct remote *r, struct str key, int64_t *ret_id);
/* *@ret: entry @n of the store is there, and is @uuid. */
bool remote_has(struct remote *r, int64_t store, int64_t n, struct str uuid, bool *ret);
/* Entries of the store after number @n, in order, some at a time.  *@ret_last: the number of the
 * last one; @n: there are no more. */
typedef bool remote_entry_cb(void *ctx, int64_t n, const struct data_entry *e);
bool remote_since(struct remote *r, int64_t store, int64_t n, remote_entry_cb *cb, void *ctx,
                  int64_t *ret_last);
bool remote_add(struct remote *r, struct str key, const struct data_entry *e, int64_t *ret_store,
                int64_t *ret_n);
bool remote_drop(struct remote *r, int64_t store, const int64_t *numbers, size_t n);
/* Deletes a store with all its entries; a later one of this key is another store. */
bool remote_clear(struct remote *r, struct str key);
bool remote_bytes(struct remote *r, struct str folder, uint64_t *ret_bytes);
bool remote_names(struct remote *r, struct str folder, remote_name_cb *cb, void *ctx);
/* Every store there is. */
typedef bool remote_store_cb(void *ctx, int64_t id, struct str key);
bool remote_stores(struct remote *r, remote_store_cb *cb, void *ctx);
