/* stored.h - agents that an operator added while bellhop serves; they are kept in the store.
 *
 *      POST, PATCH, DELETE --> checked as an entry of `agents:` --> on disk --> agents_change()
 *
 * One record per agent is in the namespace "agent", key tenant \x1f id.  It has the entry as
 * JSON, as it was given; the secret keys of the entry are apart from it and sealed.  So a new key
 * of a substrate needs no new field.  `${NAME}` in an entry is text: only the configuration file
 * reads the environment.
 *
 * At most STORED_MAX agents are kept, STORED_TENANT_MAX of one tenant.  http/ops_agents.c calls
 * the functions of dispatch.h that are defined here. */
#pragma once
#include "base/err.h"
#include "base/str.h"

#define STORED_MAX 10000
#define STORED_TENANT_MAX 2000
#define STORED_ENTRY_BYTES ((size_t)16 << 10) /* of an entry as JSON */

struct agent_settings;
struct dispatch;
struct stored;

/* Reads all records, and blocks meanwhile.  An entry that is not valid any more is logged and left
 * out, but kept.  @ret_why has 256 bytes. */
enum bh_err stored_open(struct dispatch *d, struct stored **ret_s, char *ret_why) BH_MUST_USE;
void stored_free(struct stored *s); /* NULL is fine */

/* Removes the added agents of a tenant from memory; their records are gone. */
void stored_forget(struct dispatch *d, struct str tenant);

typedef void stored_cb(void *ctx, const struct agent_settings *s);
void stored_each(const struct stored *s, stored_cb *cb, void *ctx); /* NULL is fine */
