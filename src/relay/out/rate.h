/* rate.h - how many actions an instance, and all instances of a tenant together, may ask for.
 *
 * Token buckets: limits.instance_actions and limits.tenant_actions per second, five seconds'
 * worth at once. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct instance;
struct rates;

struct rates *rates_new(void);
void rates_free(struct rates *t); /* NULL is fine */

/* Takes @n from @i's allowance and from its tenant's: an action that becomes several messages
 * counts as so many.  False: it has to wait. */
bool rate_take(struct instance *i, uint32_t n);
