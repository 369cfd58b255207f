/* ask.h - parses and checks the arguments of a query of the data store. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/fault.h"
#include "data/entry.h"
#include "data/fts.h"

#define DATA_MAX_VALUES 64
#define DATA_MAX_QUERY (8u << 10)

struct data_filter {
    struct str marks[DATA_MAX_VALUES]; /* an entry must have one of these, see entry.h */
    size_t n;
    bool without; /* an entry must have none of them */
};

struct data_ask { /* everything in the arena */
    enum fts_kind kind;
    struct str match; /* FTS5 MATCH text; empty when blank */
    uint64_t limit;
    struct data_filter filters[N_DATA_FIELDS]; /* all of them; only the last can be @without */
    size_t n_filters;
};

/* @filters as data_query() in data.h describes them.  False: @ret_fault. */
bool data_ask_read(struct json filters, struct arena *arena, struct data_ask *ret_a,
                   struct fault *ret_fault);
void data_query_error(struct fault *f, const char *why);
