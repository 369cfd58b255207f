/* instance.h - one agent of one tenant: its record in the store, its state in one word.
 *
 * The record (namespace "instance", key tenant \x1f instance) holds the mailbox's number, whether
 * it sleeps, and whether it was ever here.  It is written one version at a time:
 *
 *      record_want     the version memory has
 *      record_writing  the version under way; 0: none
 *      record_done     the version on disk; 0: none yet, so no delivery is written either
 */
#pragma once
#include "base/err.h"
#include "relay/relay.h"

struct instance;

/* Found or made.  NULL: the names are impossible. */
struct instance *instance_get(struct relay *r, struct str tenant, struct str name);
struct instance *instance_find(struct relay *r, struct str tenant,
                               struct str name); /* NULL: none */
void instance_free_all(struct relay *r);

/* Sleep or wake, remembered durably. */
void instance_flip(struct instance *i, bool flipped);
void instance_seen(struct instance *i); /* a handshake */
void instance_record_retry(struct instance *i);

const char *instance_state(const struct instance *i); /* live, away, asleep, never */
bool instance_is_live(const struct instance *i);
/* The state may have changed: the platforms are told when the turn ends. */
void instance_touch(struct instance *i);
void instance_tell_changes(struct relay *r);

/* At start: the records, then the rows. */
enum bh_err instance_load_all(struct relay *r);
