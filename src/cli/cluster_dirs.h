/* cluster_dirs.h - checks that the nodes on one PostgreSQL use the same shared directories.
 *
 * Media and skills lie in directories that all nodes mount.  The first node writes a random word to
 * the file .bellhop-shared in such a directory and to a record in the database.  A node that finds
 * no file or another word has mounted another directory, and refuses to start.  Only `media.dir`
 * and the `skills.dir` of kind filesystem are shared so; everything else is in PostgreSQL. */
#pragma once
#include "base/err.h"
#include "cluster/node.h"

struct config;
struct loop;

extern const struct record_form *const cluster_dir_records[]; /* ends with NULL */

/* False: settings contradict each other.  @ret_why: 256 bytes. */
bool cluster_settings_fit(const struct config *cfg, char *ret_why);

/* The name of this node; NULL: the store is not shared. */
const char *cluster_node_name(const struct config *cfg, char room[NODE_NAME_BYTES + 1]);

/* Called at start-up with a shared store.  Runs the loop while it waits.  @ret_why: 256 bytes. */
enum bh_err cluster_dirs_check(struct loop *loop, struct store *store, struct rand *rand,
                               const struct config *cfg, char *ret_why) BH_MUST_USE;
