/* errand_text.h - an errand and its end as text, for the trunk between two nodes.
 *
 *      elsewhere.c --errand_write()--> trunk --errand_read()--> hands.c
 *                  <--errand_end_read()-- trunk <--errand_end_write()--
 */
#pragma once
#include <stdbool.h>
#include "base/buf.h"
#include "base/json.h"
#include "dispatch/substrate.h"

void errand_write(struct buf *out, const struct errand *e, struct str tenant, struct str agent);
/* Everything borrows from @doc.  False: it is none. */
bool errand_read(struct json doc, struct errand *ret_e, struct str *ret_tenant,
                 struct str *ret_agent);

void errand_end_write(struct buf *out, const struct errand_end *e);
bool errand_end_read(struct json doc, struct errand_end *ret_e);
