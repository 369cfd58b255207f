/* dispatch_priv.h - struct dispatch and its parts, shared by the files of this folder. */
#pragma once
#include "base/list.h"
#include "dispatch/agent.h"
#include "dispatch/dispatch.h"
#include "relay/relay.h"

struct dispatch {
    struct dispatch_env env;
    struct dispatch_counters n;
    struct agents *agents; /* owned */
    struct list calls;     /* struct dispatch_call, owned */
    struct list ending;    /* struct dispatch_call, owned: answered when the turn ends */
    struct map claims;     /* dispatch_call.claim -> call: call_claim() */
    struct timer endings;
    struct timer tidy;               /* deletes expired receipts every ten minutes */
    struct replies *replies;         /* owned */
    struct receipts *receipts;       /* owned */
    struct stored *stored;           /* owned */
    struct agent_sessions *sessions; /* owned */
    struct hosts *hosts;             /* owned */
    struct tracks *tracks;           /* owned */
    struct schedule *schedule;       /* owned */
    struct asked *asked;             /* owned */
    struct work_pool *files;         /* owned; threads that write files */
    bool aging;                      /* hosted_state_age() is under way */
    bool closing;                    /* erasures end with the store */
    struct json_parser *json;        /* owned; one document at a time */
    struct record_reader *records;   /* owned; one record at a time */
    uint64_t next_number;            /* store's boot number << 40, plus a count: only grows */
};

/* Tables of this folder whose key is tenant \x1f name.  The key is the last member of an entry. */
#define PAIR_BYTES(tenant, name) ((tenant).n + (name).n + 2)
void *pair_get(const struct map *m, struct str tenant, struct str name); /* NULL: none */
struct str pair_write(char *key, struct str tenant, struct str name);    /* with a NUL behind it */

timer_cb calls_on_timer;
bool agent_rings(const struct agent_config *c); /* wake() is more than deliver() */

/* A number that is unique in this database: for cursors, record keys and ids. */
uint64_t dispatch_number(struct dispatch *d);

/* The instances of the tenant's gateways that no entry names, in order; free() the array.  Returns
 * how many. */
size_t dispatch_gateways(const struct dispatch *d, struct str tenant, struct str **ret_names);
/* Appends the part of every reply URL before its capability.  False: bellhop does not know its own
 * address, and nothing is appended. */
bool dispatch_reply_base(const struct dispatch *d, struct buf *out);

extern const struct record_form receipt_form, delivered_form, reply_form, wakeup_form, stored_form,
    session_form, asked_form;
