/* caller.h - the caller of an operation, as its key identifies it.
 *
 * http/v1.c fills it from the key, never from a message; the modules behind it trust it.  All texts
 * are borrowed for the call they are passed to. */
#pragma once
#include <stdbool.h>
#include "base/str.h"

struct caller {
    struct str tenant;    /* never empty; records of other tenants are reported as not found */
    struct str ns;        /* namespace: a separate store in the tenant; absent: the unnamed one */
    struct str identity;  /* of the key: becomes author, changed_by, agent_id */
    struct str key_id;    /* absent: the operator */
    struct str agent;     /* the only agent the key may use; absent: any */
    struct str instance;  /* the instance the key acts for; absent: none */
    struct str for_agent; /* the agent that `dispatch.caller_header` names; absent: none */
    struct str trace;     /* the request's W3C `traceparent`, valid; absent: none */
    bool attest;          /* the key may name other authors than its own identity */
    bool takes_files;     /* a long answer may come as a file (base/spill.h) */
};

/* True for a valid `traceparent` of W3C Trace Context: version, trace id, parent id and flags in
 * lower-case hex; a later version may have more behind them, CALLER_TRACE_MAX bytes in all. */
#define CALLER_TRACE_MAX 128
bool caller_trace_valid(struct str trace);
/* A namespace is 1 to 64 of A-Z a-z 0-9 _ . - and starts with a letter or digit. */
bool caller_ns_valid(struct str ns);
