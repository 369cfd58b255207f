/* tree.h - a process, its group, and everything it started, whatever group that is in.
 *
 * `bellhop agent` runs its programs in groups of their own, so stopping one group would leave them
 * running.  Who was started is asked of /proc; where that does not tell, only the group is meant.
 */
#pragma once
#include <sys/types.h>

/* @root leads its group and is a child of ours.  Parents first, and again until nobody new is
 * found: one who is stopped starts nobody. */
void tree_stop(pid_t root);
void tree_continue(pid_t root); /* the youngest first, so that whoever asks them finds them awake */
