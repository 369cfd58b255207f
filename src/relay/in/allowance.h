/* allowance.h - counts each person's turns with an instance, and refuses turns over the allowance.
 *
 *      bellhop allowance --instance I --turns 50/day   ->   grant_allowance() -> gate_instance
 *
 * A delivery counts once, in the transaction that writes it: a burst is one delivery, a duplicate
 * is none.  An edit counts if the agent is told of it, and so does a forwarded command.  A /stop, a
 * button press, an edit of a message that still waits and mail from bellhop itself pass and do not
 * count.  The relay tells the person once per period that the allowance is used up, after writing
 * that fact to disk.  A refused event is confirmed to its platform, and `bellhop why` has the
 * reason.
 *
 * Periods follow the calendar of `allowances.timezone`; a week begins on Monday.  An instance
 * without an allowance costs nothing here.  At ALLOWANCE_COUNTS_MAX counts the least recently used
 * count is forgotten; at ALLOWANCE_TENANT_MAX of a tenant, the tenant's own, so that a crowd at one
 * tenant's bot frees nobody elsewhere of what they used up.  Counts of past periods are deleted.
 *
 * accept.c calls this module for events of instances that have an allowance. */
#pragma once
#include "core/gate.h"
#include "store/store.h"

struct relay;

#define ALLOWANCE_COUNTS_MAX 200000
#define ALLOWANCE_TENANT_MAX 50000
#define ALLOWANCE_SWEEP 512 /* counts that one sweep deletes at most */

struct allowance_settings {
    char *timezone; /* owned by the configuration */
};
extern const struct config_section allowance_config;
extern const struct record_form turns_form;

struct allowances *allowances_new(void);
void allowances_free(struct allowances *t); /* NULL is fine */
enum bh_err allowances_load(struct relay *r);

/* Changes verdicts of recipients whose allowance is used up to GATE_NO_ALLOWANCE, and tells the
 * person. */
void allowances_judge(struct relay *r, const struct event *ev, struct gate_verdict *verdicts,
                      size_t n);
/* @ev is being delivered to the instance of @v: counts it.  Returns the record for the delivery's
 * transaction, borrowed until the next call. */
const struct store_kv *allowance_count(struct relay *r, const struct gate_verdict *v,
                                       const struct event *ev);
void allowance_uncount(struct relay *r, struct str key); /* the delivery was given up */
void allowance_keep(struct relay *r, struct str key);    /* writes the count as it is now */
void allowance_forget(struct relay *r, struct str key);  /* its record is being erased */
void allowances_sweep(struct relay *r);                  /* deletes counts of past periods */
