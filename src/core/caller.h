/* caller.h - who asks, as it was made out from a key; the stores behind it believe it.
 *
 * Everything is borrowed for the call it is passed to. */
#pragma once
#include <stdbool.h>
#include "base/str.h"

struct caller {
    struct str tenant;   /* never empty: what belongs to another tenant does not exist */
    struct str ns;       /* a store of its own inside the tenant; absent: the unnamed one */
    struct str identity; /* of the key: becomes author, changed_by, agent_id */
    bool attest;         /* the key may name other authors than its own identity */
    bool takes_files;    /* a long answer may come as a file (base/spill.h) */
};

/* A namespace is 1 to 64 of A-Z a-z 0-9 _ . - and starts with a letter or digit. */
bool caller_ns_valid(struct str ns);
