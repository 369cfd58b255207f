/* shared.h - what nodes on one PostgreSQL must have in common besides it.
 *
 * Files that every node serves lie in a directory that all of them see: whoever uses one first
 * writes a word into it (.bellhop-shared) and notes the word in the database; a node that does not
 * find it there has another directory, and refuses to start rather than split what is one.  The
 * data store is on one named node; its directory is known by the same word, so that no other
 * machine of that name begins an empty one. */
#pragma once
#include "base/err.h"
#include "cluster/node.h"

struct config;
struct loop;
struct rand;
struct store;

/* Settings that contradict each other.  @ret_why: 256 bytes. */
bool shared_settings_fit(const struct config *cfg, char *ret_why);

/* What this node is called; NULL: the store is its own. */
const char *shared_node(const struct config *cfg, char room[NODE_NAME_BYTES + 1]);

/* At the start, with a shared store; turns the loop.  @ret_why: 256 bytes. */
enum bh_err shared_check(struct loop *loop, struct store *store, struct rand *rand,
                         const struct config *cfg, char *ret_why) BH_MUST_USE;

/* Why this node has no data store, for people; false: it has one.  @ret_why: 256 bytes. */
bool shared_data_is_off(const struct config *cfg, char *ret_why);
