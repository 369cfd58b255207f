/* postgres.h - the store on a PostgreSQL server, which several nodes share.
 *
 *      loop thread            write thread                              PostgreSQL
 *      submit ─> queue ────────> BEGIN, lease check, ops  ──pipeline──>
 *                                answers, each op's own   <───────────
 *                                COMMIT                   ───────────>  on disk (synchronous)
 *      done() <── handback <──── results                  <───────────
 *
 * The store may be open in several nodes, and one of them writes.  Each of its transactions checks
 * the lease (store_guard()); once the lease is another node's, nothing is written.
 *
 * Every question has a deadline of its own: a connection can go silent without an error.  While
 * the server is away, writes fail at once with BH_UNAVAILABLE.  The store looks up a commit whose
 * answer was lost on a new connection, and reports BH_UNKNOWN only if it gets none in time. */
#pragma once
#include "store/store.h"

/* @url is what libpq understands (postgresql://user@host/db?sslmode=verify-full, or key=value
 * words).  Creates the tables it lacks under a lock, so that many nodes may start at once, and
 * refuses those of a newer bellhop.  @answer_ms: see below; 0 is that.  @ret_why has 256 bytes. */
enum bh_err store_postgres_open(struct loop *loop, const char *url, int64_t answer_ms,
                                struct store **ret_st, char *ret_why) BH_MUST_USE;
/* To look at a database that others use: makes and changes nothing, and its writes are refused.
 * BH_NOT_FOUND: there are no tables yet. */
enum bh_err store_postgres_look(struct loop *loop, const char *url, struct store **ret_st,
                                char *ret_why) BH_MUST_USE;
#define STORE_POSTGRES_ANSWER_MS 8000 /* how long an answer may take, unless told otherwise */

/* Renews a lease that was granted, from a thread and on a line of its own: for whoever has to block
 * the loop, as a server that reads everything at its start.  The name and the owner in @lease
 * outlive the keeper; it renews for @lease->ttl_ms, and for @most_ms at most.  NULL: there is no
 * thread, and nobody renews. */
struct store_keeper *store_postgres_keep(const char *url, const struct store_lease *lease,
                                         int64_t most_ms);
/* Ends it, and sets *@k to NULL; a NULL inside is fine.  Returns when the newest renewal that
 * succeeded was asked for (monotonic ms); 0: none was. */
int64_t store_postgres_kept(struct store_keeper **k);
