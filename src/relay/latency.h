/* latency.h - measures how long deliveries take: from accepted to sent, and from accepted to acked.
 *
 * The time of acceptance of the newest LATENCY_RECENT deliveries is kept in milliseconds, by id.
 * The times of older deliveries come from their slots, in seconds.  The histograms count since the
 * start.  The slowest deliveries of this hour and the hour before are kept with their names, for
 * the operator.
 */
#pragma once
#include <stdint.h>

struct instance;
struct relay;
struct slot;

#define LATENCY_RECENT 32768u
#define LATENCY_BOUNDS 15u
#define LATENCY_SLOWEST 32u
extern const int64_t latency_bounds_ms[LATENCY_BOUNDS];

struct latency_waits {
    uint64_t n[LATENCY_BOUNDS + 1]; /* by bound; the last: above all of them */
    uint64_t total_ms;
};

struct latency *latency_new(void);
void latency_free(struct latency *l); /* NULL is fine */

void latency_accepted(struct relay *r, uint64_t id);
/* @acked: the delivery was acknowledged; else it was sent for the first time. */
void latency_note(struct instance *i, const struct slot *slot, int acked);
