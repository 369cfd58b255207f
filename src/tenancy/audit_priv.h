/* audit_priv.h - shared by audit.c and audit_read.c; nobody else includes it. */
#pragma once
#include "base/clock.h"
#include "base/crypto.h"
#include "base/list.h"
#include "base/map.h"
#include "store/record.h"
#include "tenancy/audit.h"

enum { AUDIT_BEGUN = 1024 };
enum { AUDIT_RETRY_MS = 1000, AUDIT_DAY_MS = 86400000 };

struct audit_record {
    char seq[17]; /* 16 hex digits: keys sort by number */
    struct str entry;
    uint8_t digest[SHA256_BYTES], prev[SHA256_BYTES], hash[SHA256_BYTES];
    bool failed;    /* the change did not happen; a later entry says so too */
    uint64_t bytes; /* of all entries ever, up to this one */
};

struct audit_head { /* an end of the log */
    char name[8];   /* "head": the newest entry; "cut": the newest that is gone */
    uint64_t seq, bytes;
    uint8_t hash[SHA256_BYTES];
};

enum ticket_state { UNDER_WAY, FAILED, LOST, REWRITING };
struct audit_ticket {
    struct list link; /* audit->under_way, in order */
    struct audit *a;
    enum ticket_state state;
    struct audit_record rec;  /* its text is @text */
    struct audit_head before; /* the end of the log that it stands on */
    struct buf text, key, value, head_key, head_value;
};

struct audit_day { /* what one tenant logged today */
    int64_t day;
    uint64_t bytes;
    char tenant[];
};

struct audit {
    struct clock *clock;
    struct store *store;
    const struct audit_settings *settings;
    uint64_t serial;
    uint64_t begun[AUDIT_BEGUN]; /* serials of callers whose change has an entry */
    struct audit_head last, cut; /* the ends of the log */
    uint64_t on_disk;            /* the newest entry that is, or may be, on disk */
    struct list under_way;       /* audit_ticket */
    struct list reads;           /* audit_read */
    struct map days;             /* audit_day, owned */
    struct timer retry, upkeep;
    struct audit_read *cutting; /* of @reads; NULL: none is */
    struct audit_who who;
    struct json_parser *parser;
};

/* The hash of an entry. */
void audit_chain(const uint8_t prev[SHA256_BYTES], uint64_t seq, const uint8_t digest[SHA256_BYTES],
                 uint8_t ret[SHA256_BYTES]);

/* ---- audit_read.c ---- */
timer_cb audit_upkeep; /* cuts what is too old or too much; forgets the days of tenants */
void audit_reads_free(struct audit *a);
