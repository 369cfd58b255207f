/* postgres.h - the store on a PostgreSQL server, which several nodes share.
 *
 *      loop thread            write thread                              PostgreSQL
 *      submit ─> queue ────────> BEGIN, lease check, ops  ──pipeline──>
 *                                answers, each op's own   <───────────
 *                                COMMIT                   ───────────>  on disk (synchronous)
 *      done() <── handback <──── results                  <───────────
 *
 * The store may be open in several nodes, and only the lease holder writes.  Each transaction
 * checks the lease (store_guard()) and writes nothing once another node holds it.
 *
 * Every statement has a deadline, because a connection can go silent without an error.  While the
 * server is away, writes fail at once with BH_UNAVAILABLE.  If the answer to a COMMIT is lost, the
 * store looks the outcome up on a new connection.  It reports BH_UNKNOWN only if it gets no
 * connection in time. */
#pragma once
#include "store/store.h"

/* @url is a libpq connection string (postgresql://user@host/db?sslmode=verify-full, or
 * key=value words).  Creates or migrates the tables under a lock, so several nodes may
 * start at once.  Refuses tables of a newer bellhop.  @answer_ms 0:
 * STORE_POSTGRES_ANSWER_MS.  @ret_why has 256 bytes. */
enum bh_err store_postgres_open(struct loop *loop, const char *url, int64_t answer_ms,
                                struct store **ret_st, char *ret_why) BH_MUST_USE;
/* Opens a database that a server may be using, for reading: creates and changes nothing, and
 * refuses writes.  BH_NOT_FOUND: there are no tables yet. */
enum bh_err store_postgres_look(struct loop *loop, const char *url, struct store **ret_st,
                                char *ret_why) BH_MUST_USE;
#define STORE_POSTGRES_ANSWER_MS 8000 /* default timeout of a statement */

/* Renews a lease from a thread with its own connection, while the caller blocks the loop: a server
 * loads all its state at start-up.  The name and the owner in @lease outlive the renewer.  Each
 * renewal is for @lease->ttl_ms; the renewer stops after @most_ms.  NULL: no thread could be
 * started. */
struct lease_renewer *lease_renewer_start(const char *url, const struct store_lease *lease,
                                          int64_t most_ms);
/* Stops the renewer and sets *@k to NULL; a NULL inside is fine.  Returns the time (monotonic
 * ms) at which the newest successful renewal was requested; 0: none succeeded. */
int64_t lease_renewer_stop(struct lease_renewer **k);
