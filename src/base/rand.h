/* rand.h - random numbers from a source that the caller passes, so that a simulation can replay
 * them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct rand {
    uint64_t state; /* 0: the operating system's generator; else a seeded, repeatable one */
};
#define RAND_SYSTEM ((struct rand){0})

struct rand rand_seeded(uint64_t seed);
void rand_bytes(struct rand *r, void *p, size_t n);
uint64_t rand_u64(struct rand *r);
uint64_t rand_below(struct rand *r, uint64_t n); /* 0..n-1, with negligible bias */
