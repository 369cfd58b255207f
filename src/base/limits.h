/* limits.h - how much anybody may hold at once: one table, one way of counting.
 *
 * Every quantity that a stranger, a credential, an instance or a tenant can make us keep is a row
 * of LIMITS below.  A row has two bounds: what one party may hold, and what all of them together
 * may.  The settings `limits.<name>` (all) and `limits.<name>_per_<scope>` (each), their
 * documentation and the metrics are made from the same rows.
 *
 *      struct party *p = ledger_party(ledger, PER_ADDRESS, str_make(addr, 4));   // one hold on it
 *      if (ledger_take(ledger, p, LIMIT_CONNECTIONS, 1) != LIMIT_TAKEN)
 *              turn_away();
 *      ...
 *      ledger_give(ledger, p, LIMIT_CONNECTIONS, 1);
 *      party_drop(p);
 *
 * The counters are a ledger.  What it counts is held, and given back when it goes; what happens so
 * often a second is bucket.h's.  A party costs about 150 bytes, exists while somebody has a hold on
 * it, and is found by a keyed hash.  Loop thread only.
 */
#pragma once
#include <stddef.h>
#include "base/str.h"

enum limit_scope {
    PER_ADDRESS,
    PER_VISITOR,
    PER_CREDENTIAL,
    PER_INSTANCE,
    PER_TENANT,
    PER_BOT,
    PER_N
};
enum limit_unit { LIMIT_COUNT, LIMIT_BYTES };

/* X(NAME, name, scope, unit, each, all, what): 0 is no limit. */
#define LIMITS(X) \
    X(CONNECTIONS, "connections", PER_ADDRESS, LIMIT_COUNT, 1024, 65536, \
      "Connections open at once. A gateway's socket counts for its address only until it is let " \
      "in.") \
    X(REQUEST_BYTES, "request_bytes", PER_ADDRESS, LIMIT_BYTES, 8 << 20, 64 << 20, \
      "Bytes of requests that have not arrived whole.") \
    X(ANSWER_BYTES, "answer_bytes", PER_ADDRESS, LIMIT_BYTES, 16 << 20, 128 << 20, \
      "Bytes of answers and event streams that have not been fetched.") \
    X(STREAMS, "streams", PER_ADDRESS, LIMIT_COUNT, 128, 8192, "Event streams open at once.")

enum limit {
#define LIMIT_ENUM(NAME, name, scope, unit, each, all, what) LIMIT_##NAME,
    LIMITS(LIMIT_ENUM)
#undef LIMIT_ENUM
        LIMIT_N
};

struct limit_row {
    const char *name;
    enum limit_scope scope;
    enum limit_unit unit;
    const char *what;
};
extern const struct limit_row limit_rows[LIMIT_N];
const char *limit_scope_word(enum limit_scope scope); /* "address" */

struct limit_bounds { /* what is configured; 0: no limit */
    uint64_t each, all;
};
struct limit_settings {
    struct limit_bounds of[LIMIT_N];
};
extern const struct limit_settings limit_defaults;

struct ledger;
struct party;

struct ledger *ledger_new(const struct limit_settings *s); /* NULL: the defaults */
void ledger_free(struct ledger *l);                        /* every party was dropped before */
/* New bounds, from the next take on: nothing held is taken away. */
void ledger_set(struct ledger *l, const struct limit_settings *s);
struct limit_bounds ledger_bounds(const struct ledger *l, enum limit what);

/* The party called @who (copied): the bytes of an address, a tenant's name, ... */
struct party *ledger_party(struct ledger *l, enum limit_scope scope, struct str who);
struct party *party_hold(struct party *p); /* one more hold; NULL stays NULL */
void party_drop(struct party *p);          /* one hold less; NULL is fine */

/* Take @n more for @p, whose scope is that of @what.  NULL is somebody who has no name (a Unix
 * socket) and counts only for all.  Nothing is taken unless LIMIT_TAKEN. */
enum limit_answer { LIMIT_TAKEN, LIMIT_EACH_FULL, LIMIT_ALL_FULL };
enum limit_answer ledger_take(struct ledger *l, struct party *p, enum limit what, uint64_t n);
void ledger_give(struct ledger *l, struct party *p, enum limit what, uint64_t n);

/* ---- for metrics and tests ---- */
uint64_t ledger_held(const struct ledger *l, const struct party *p,
                     enum limit what);                            /* NULL: all */
uint64_t ledger_refused(const struct ledger *l, enum limit what); /* takes that were not granted */
size_t ledger_parties(const struct ledger *l);
