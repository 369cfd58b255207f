/* hash.h - SipHash: the keyed hash of our maps and of the deduplication keys.
 *
 * Keyed, because peers choose what we hash; the map key is random per process, the deduplication
 * key is random per database. */
#pragma once
#include <stdint.h>
#include "base/str.h"

struct hash_key {
    uint64_t k0, k1;
};
struct hash128 {
    uint64_t lo, hi;
};

uint64_t hash64(const struct hash_key *key, struct str s); /* SipHash-2-4 */
/* SipHash-1-3, for tables in memory: nearly twice as fast, and a peer that sees no hash cannot make
 * keys collide either. */
uint64_t hash64_brief(const struct hash_key *key, struct str s);
struct hash128 hash128(const struct hash_key *key, struct str s);
const struct hash_key *hash_process_key(void); /* random, made once, for in-memory tables */

/* Replace the random key, so that a simulation walks its maps in the same order every time.  Call
 * it before the first table is filled. */
void hash_set_process_key(struct hash_key key);
