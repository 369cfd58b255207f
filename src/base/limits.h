/* limits.h - resource limits: one table of limited quantities, and the ledger that counts them.
 *
 * LIMITS below has one row per quantity that a stranger, a credential, an instance or a tenant can
 * make the server hold.  A row has two bounds: for one party, and for all parties together.  The
 * same rows give the settings `limits.<name>` (all) and `limits.<name>_per_<scope>` (each), their
 * documentation, the table in docs/security.md and the metrics.
 *
 *      struct party *p = ledger_party(ledger, PER_ADDRESS, str_make(addr, 4));   // one hold on it
 *      if (ledger_take(ledger, p, LIMIT_CONNECTIONS, 1) != LIMIT_TAKEN)
 *              turn_away();
 *      ...
 *      ledger_give(ledger, p, LIMIT_CONNECTIONS, 1);
 *      party_drop(p);
 *
 * A ledger has the counters.  It counts resources that are taken and given back; bucket.h limits
 * rates.  A party takes about 110 bytes and exists while something has a hold on it.  A module that
 * keeps data on disk compares its own count with ledger_bounds() and reports it by ledger_note().
 * Loop thread only.
 *
 * Modules accept a NULL ledger, which counts nothing and grants everything.
 */
#pragma once
#include <stddef.h>
#include "base/str.h"

struct buf;
struct config_section;

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

/* X(NAME, name, scope, unit, each, all, what, then, threat): 0 is no limit.  The defaults are for a
 * machine with 512 MB. */
#define LIMITS(X) \
    X(CONNECTIONS, "connections", PER_ADDRESS, LIMIT_COUNT, 1024, 65536, \
      "Connections open at once. A gateway's socket counts for its address only until it is let " \
      "in; whoever comes through one of `trusted_proxies` counts for all only.", \
      "503, and closed", "one address takes every descriptor") \
    X(REQUEST_BYTES, "request_bytes", PER_ADDRESS, LIMIT_BYTES, 8 << 20, 48 << 20, \
      "Memory of requests that have not arrived whole.", "503, and closed", \
      "thousands of requests that never end") \
    X(ANSWER_BYTES, "answer_bytes", PER_ADDRESS, LIMIT_BYTES, 8 << 20, 48 << 20, \
      "Memory of answers and event streams that are not being fetched.", \
      "the connection that does not read is closed", "thousands of answers that nobody reads") \
    X(STREAMS, "streams", PER_ADDRESS, LIMIT_COUNT, 128, 4096, \
      "Event streams of chat pages open at once; 32 KiB of the kernel's memory each.", \
      "429, the page tries again", "made-up visitors who open pages and read nothing") \
    X(SOCKETS, "sockets", PER_CREDENTIAL, LIMIT_COUNT, 32, 0, \
      "Sockets that one gateway's secret has open.", "503, the gateway tries again", \
      "a stolen or broken credential dials without end") \
    X(FRAME_BYTES, "frame_bytes", PER_CREDENTIAL, LIMIT_BYTES, 8 << 20, 48 << 20, \
      "Memory of lines from a gateway that have not ended.", \
      "the socket is closed, the gateway comes back", "many sockets, each with half a line") \
    X(GATEWAYS, "gateways", PER_TENANT, LIMIT_COUNT, 10000, 100000, \
      "Gateways that provisioned themselves, those that were revoked included; 1,200 bytes of " \
      "memory each.", \
      "503, and no new one; those that are there go on", "a tenant provisions without end") \
    X(WORK_BYTES, "work_bytes", PER_TENANT, LIMIT_BYTES, 16 << 20, 64 << 20, \
      "Memory of what programs asked for at /v1 and /mcp and is not answered: the bodies, and 1 " \
      "KiB each.", \
      "429, the program tries again", "a program that writes large things faster than the disk") \
    X(SKILL_BYTES, "skill_bytes", PER_TENANT, LIMIT_BYTES, 128 << 20, 1 << 30, \
      "Skills of a tenant on disk with their history, all its namespaces; 256 bytes a version " \
      "beside its text.", \
      "429, nothing new is written; what is there can be read and deleted", \
      "a program that stores versions without end") \
    X(DATA_BYTES, "data_bytes", PER_TENANT, LIMIT_BYTES, 256 << 20, UINT64_C(2) << 30, \
      "The data store of a tenant on disk, all its namespaces.", \
      "429, nothing new is written; what is there can be read and expires", \
      "a program that writes without end") \
    X(WAKE_BYTES, "wake_bytes", PER_TENANT, LIMIT_BYTES, 8 << 20, 64 << 20, \
      "Wakes for later on disk: what they bring along, and 256 bytes each.", \
      "429, and no new one; those that are there ring", "a program that schedules without end") \
    X(RECEIPT_BYTES, "receipt_bytes", PER_TENANT, LIMIT_BYTES, 256 << 20, 1 << 30, \
      "Receipts of deliveries, wakes and requests on disk, kept for a day; each: since the " \
      "start.", \
      "429, and nothing is delivered that would need one; the oldest go by the hour", \
      "a program that delivers without end") \
    X(REPLY_BYTES, "reply_bytes", PER_INSTANCE, LIMIT_BYTES, 16 << 20, 256 << 20, \
      "What agents said to programs, on disk.", \
      "an agent's oldest replies go; of all, the oldest of those who have most", \
      "an agent that talks without end") \
    X(PROMPTS, "prompts", PER_TENANT, LIMIT_COUNT, 4096, 65536, \
      "Questions with buttons that nobody has answered; 500 bytes of memory each.", \
      "the tenant's oldest is over; of all, the oldest of the bot", \
      "an agent that asks without end on a bot of many") \
    X(FETCHES, "fetches", PER_TENANT, LIMIT_COUNT, 64, 512, \
      "Files at addresses that agents named, being fetched, and what waits behind them.", \
      "the action is refused as passing trouble, the agent tries again", \
      "addresses that never answer take every descriptor") \
    X(HISTORY_BYTES, "history_bytes", PER_VISITOR, LIMIT_BYTES, 1 << 20, 256 << 20, \
      "Messages of chat pages on disk.", \
      "a visitor's oldest messages go; of all, the oldest; until they are gone none is kept", \
      "made-up visitors who fill the disk") \
    X(UNSENT_BYTES, "unsent_bytes", PER_CREDENTIAL, LIMIT_BYTES, 16 << 20, 64 << 20, \
      "Memory of what a gateway does not read.", "the socket is closed, the gateway comes back", \
      "gateways that ask and never read")

enum limit {
#define LIMIT_ENUM(NAME, name, scope, unit, each, all, what, then, threat) LIMIT_##NAME,
    LIMITS(LIMIT_ENUM)
#undef LIMIT_ENUM
        LIMIT_N
};

struct limit_row {
    const char *name;
    enum limit_scope scope;
    enum limit_unit unit;
    const char *what, *then, *threat;
};
extern const struct limit_row limit_rows[LIMIT_N];
const char *limit_scope_word(enum limit_scope scope); /* "address" */

struct limit_bounds { /* as configured; 0: no limit */
    uint64_t each, all;
};
struct limit_settings {
    struct limit_bounds of[LIMIT_N];
};
extern const struct limit_settings limit_defaults;
extern const struct config_section limits_config; /* fills a limit_settings */
void limits_describe(struct buf *out);            /* the defaults, as a table in Markdown */

struct ledger;
struct party;

struct ledger *ledger_new(const struct limit_settings *s); /* NULL: the defaults */
void ledger_free(struct ledger *l);                        /* every party was dropped before */
/* Sets new bounds for later takes; resources already held stay held. */
void ledger_set(struct ledger *l, const struct limit_settings *s);
struct limit_bounds ledger_bounds(const struct ledger *l, enum limit what);

/* The party called @who (copied): the bytes of an address, a tenant's name, ... */
struct party *ledger_party(struct ledger *l, enum limit_scope scope, struct str who);
struct party *party_hold(struct party *p); /* one more hold; NULL stays NULL */
void party_drop(struct party *p);          /* one hold less; NULL is fine */

/* Takes @n more for @p, which must have the scope of @what.  @p NULL (a Unix socket) counts only
 * for the sum over all.  Nothing is taken unless the answer is LIMIT_TAKEN. */
enum limit_answer { LIMIT_TAKEN, LIMIT_EACH_FULL, LIMIT_ALL_FULL };
enum limit_answer ledger_take(struct ledger *l, struct party *p, enum limit what, uint64_t n);
void ledger_give(struct ledger *l, struct party *p, enum limit what, uint64_t n);
/* Changes what @p holds from *@held to @now, by a take or a give.  If granted, *@held becomes
 * @now. */
enum limit_answer ledger_change(struct ledger *l, struct party *p, enum limit what, size_t *held,
                                size_t now);
/* Fairness: adds @more to what @p (NULL: no party) used in turn number @turn, and returns the sum.
 * The count starts at 0 in every turn. */
uint64_t party_used(struct party *p, uint64_t turn, uint64_t more);

/* Sets a count of data on disk to @now; never refused. */
void ledger_correct(struct ledger *l, enum limit what, size_t *held, size_t now);
/* Sets the count of data on disk of the party called @who; never refused. */
void ledger_note(struct ledger *l, enum limit what, struct str who, uint64_t now);
/* True: the sum of all noted counts is below its bound.  False counts as a refusal. */
bool ledger_has_room(struct ledger *l, enum limit what);
void ledger_refuse(struct ledger *l, enum limit what); /* counts a refusal by the caller */

/* ---- for metrics and tests ---- */
uint64_t ledger_held(const struct ledger *l, const struct party *p,
                     enum limit what);                            /* NULL: all */
uint64_t ledger_refused(const struct ledger *l, enum limit what); /* takes that were not granted */
size_t ledger_parties(const struct ledger *l);
