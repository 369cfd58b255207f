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
 * A ledger and its parties belong to one thread; a second thread has a branch of it, so that limits
 * hold for the whole process.
 *
 * Modules accept a NULL ledger, which counts nothing and grants everything.
 */
#pragma once
#include <stddef.h>
#include "base/str.h"

struct buf;

enum limit_scope { PER_ADDRESS, PER_VISITOR, PER_CREDENTIAL, PER_INSTANCE, PER_TENANT, PER_N };
enum limit_unit { LIMIT_COUNT, LIMIT_BYTES };

/* X(NAME, name, scope, unit, each, all, what, then, threat): 0: no limit.  The defaults are for a
 * machine with 512 MB. */
#define LIMITS(X) \
    X(CONNECTIONS, "connections", PER_ADDRESS, LIMIT_COUNT, 1024, 65536, \
      "Open connections. A gateway's socket counts for its address only until it is " \
      "authenticated. Clients behind `trusted_proxies` count only for all together.", \
      "503, and the connection is closed", "one address takes every descriptor") \
    X(REQUEST_BYTES, "request_bytes", PER_ADDRESS, LIMIT_BYTES, 8 << 20, 48 << 20, \
      "Memory of incomplete requests.", "503, and the connection is closed", \
      "thousands of requests that never end") \
    X(ANSWER_BYTES, "answer_bytes", PER_ADDRESS, LIMIT_BYTES, 8 << 20, 48 << 20, \
      "Memory of answers and event streams that the client does not read.", \
      "the connection that does not read is closed", "thousands of answers that nobody reads") \
    X(STREAMS, "streams", PER_ADDRESS, LIMIT_COUNT, 128, 4096, \
      "Open event streams of chat pages; each takes 32 KiB of kernel memory.", \
      "429, and the page retries", "made-up visitors who open pages and read nothing") \
    X(LISTENERS, "listeners", PER_CREDENTIAL, LIMIT_COUNT, 32, 2048, \
      "Open streams of MCP clients, and MCP sessions with subscriptions, of one key.", \
      "the request fails; of sessions without a stream, the oldest ends", \
      "a client that subscribes without end") \
    X(SOCKETS, "sockets", PER_CREDENTIAL, LIMIT_COUNT, 32, 0, \
      "Open sockets of one gateway credential.", "503, and the gateway retries", \
      "a stolen or broken credential dials without end") \
    X(FRAME_BYTES, "frame_bytes", PER_CREDENTIAL, LIMIT_BYTES, 8 << 20, 48 << 20, \
      "Memory of incomplete lines from a gateway.", \
      "the socket is closed, and the gateway reconnects", "many sockets, each with half a line") \
    X(GATEWAYS, "gateways", PER_TENANT, LIMIT_COUNT, 10000, 100000, \
      "Gateways that provisioned themselves, including revoked ones; each takes 1,200 bytes of " \
      "memory.", \
      "503 for a new gateway; existing ones keep working", "a tenant provisions without end") \
    X(WORK_BYTES, "work_bytes", PER_TENANT, LIMIT_BYTES, 16 << 20, 64 << 20, \
      "Memory of unanswered requests at /v1 and /mcp: their bodies, 1 KiB each, and what agents " \
      "have said to them so far.", \
      "429, and the program retries; of an answer the rest is left out, and its `warnings` say " \
      "so", \
      "a program that writes large things faster than the disk") \
    X(SKILL_BYTES, "skill_bytes", PER_TENANT, LIMIT_BYTES, 128 << 20, 1 << 30, \
      "A tenant's skills on disk with their history, in all namespaces; a version counts as its " \
      "text and 256 bytes.", \
      "429 for writes; existing skills can be read and deleted", \
      "a program that stores versions without end") \
    X(DATA_BYTES, "data_bytes", PER_TENANT, LIMIT_BYTES, 256 << 20, UINT64_C(2) << 30, \
      "A tenant's data store on disk, in all namespaces.", \
      "429 for writes; existing entries can be read, and expire", \
      "a program that writes without end") \
    X(WAKE_BYTES, "wake_bytes", PER_TENANT, LIMIT_BYTES, 8 << 20, 64 << 20, \
      "Scheduled wakes on disk: their context, and 256 bytes each.", \
      "429 for a new wake; existing ones still ring", "a program that schedules without end") \
    X(RECEIPT_BYTES, "receipt_bytes", PER_TENANT, LIMIT_BYTES, 256 << 20, 1 << 30, \
      "Receipts of deliveries, wakes and requests on disk, kept for a day; per tenant they count " \
      "from the start of the server.", \
      "429 for deliveries; the oldest receipts expire every hour", \
      "a program that delivers without end") \
    X(REPLY_BYTES, "reply_bytes", PER_INSTANCE, LIMIT_BYTES, 16 << 20, 256 << 20, \
      "Replies of agents to programs, on disk.", \
      "the agent's oldest replies are deleted; for all together, the oldest of the agents with " \
      "the most", \
      "an agent that talks without end") \
    X(PROMPTS, "prompts", PER_TENANT, LIMIT_COUNT, 4096, 65536, \
      "Unanswered questions with buttons; each takes 500 bytes of memory.", \
      "the tenant's oldest question expires; for all together, the bot's oldest", \
      "an agent that asks without end on a bot of many") \
    X(FETCHES, "fetches", PER_TENANT, LIMIT_COUNT, 64, 512, \
      "Files of agents that are being fetched, and the messages that wait for them.", \
      "the action fails with a temporary error, and the agent retries", \
      "addresses that never answer take every descriptor") \
    X(HISTORY_BYTES, "history_bytes", PER_VISITOR, LIMIT_BYTES, 1 << 20, 256 << 20, \
      "Messages of chat pages on disk.", \
      "the visitor's oldest messages are deleted; for all together, the oldest of the pages with " \
      "the most; no message is stored until there is room", \
      "made-up visitors who fill the disk") \
    X(UNSENT_BYTES, "unsent_bytes", PER_CREDENTIAL, LIMIT_BYTES, 16 << 20, 64 << 20, \
      "Memory of messages that a gateway does not read.", \
      "the socket is closed, and the gateway reconnects", "gateways that ask and never read") \
    X(GATEWAY_SOCKETS, "gateway_sockets", PER_TENANT, LIMIT_COUNT, 49152, 0, \
      "Open sockets of all gateways of a tenant.", "503, and the gateway retries", \
      "a tenant with many gateways takes every connection")

enum limit {
#define LIMIT_ENUM(NAME, name, scope, unit, each, all, what, then, threat) LIMIT_##NAME,
    LIMITS(LIMIT_ENUM)
#undef LIMIT_ENUM
        LIMIT_N
};

struct limit_row {
    const char *name;
    const char *per; /* the word of @scope: "address" */
    enum limit_scope scope;
    enum limit_unit unit;
    const char *what, *then, *threat;
};
extern const struct limit_row limit_rows[LIMIT_N];

struct limit_bounds { /* as configured; 0: no limit */
    uint64_t each, all;
};
struct limit_settings {
    struct limit_bounds of[LIMIT_N];
};
extern const struct limit_settings limit_defaults;
extern const struct config_section limits_config; /* fills a limit_settings */
void limits_describe(struct buf *out);            /* the defaults, as a table in Markdown */

struct ledger *ledger_new(const struct limit_settings *s); /* NULL: the defaults */
void ledger_free(struct ledger *l);                        /* every party was dropped before */
/* A ledger for another thread, whose takes and gives count in @of; the functions for data on disk,
 * for metrics and for bounds are those of @of only.  Both this call and ledger_free() happen while
 * no other thread uses @of.  NULL stays NULL. */
struct ledger *ledger_branch(struct ledger *of);
/* Sets new bounds for later takes; resources already held stay held. */
void ledger_set(struct ledger *l, const struct limit_settings *s);
struct limit_bounds ledger_bounds(const struct ledger *l, enum limit what);

/* The party called @who (copied): the bytes of an address, a tenant's name, ... */
struct party *ledger_party(struct ledger *l, enum limit_scope scope, struct str who);
struct party *party_hold(struct party *p);    /* one more hold; NULL stays NULL */
void party_drop(struct party *p);             /* one hold less; NULL is fine */
struct str party_name(const struct party *p); /* as given to ledger_party() */

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
uint64_t ledger_held(struct ledger *l, const struct party *p, enum limit what); /* NULL: all */
uint64_t ledger_refused(struct ledger *l, enum limit what); /* takes that were not granted */
size_t ledger_parties(struct ledger *l);
