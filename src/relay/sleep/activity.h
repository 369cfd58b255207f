/* activity.h - when an instance was last sent something, and last asked for something.
 *
 * Both survive a crash: what is news is on its way to the disk ACTIVITY_MS later at the latest, all
 * instances together, whatever number of messages it was (namespace "active", key as in the
 * instance's record, value {"in":...,"out":...,"box":...}, wall times). */
#pragma once
#include <stdbool.h>
#include "base/err.h"

#define ACTIVITY_MS 150

struct activity;
struct instance;
struct relay;

struct activity *activity_new(struct relay *r);
enum bh_err activity_load(struct relay *r); /* at start, after the instances */
void activity_free(struct activity *t);     /* NULL is fine */

void activity_inbound(struct instance *i);  /* it was sent something */
void activity_outbound(struct instance *i); /* it asks for something */
void activity_end(struct instance *i);      /* the name has another holder: nothing was ever */

void activity_write(struct relay *r); /* now: before the end */
bool activity_any_writing(const struct relay *r);
