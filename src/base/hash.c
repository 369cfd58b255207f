/* hash.c - SipHash-2-4 with 64 and 128 bits of output, and SipHash-1-3, after the paper of Aumasson
 * and Bernstein. */
#include "base/hash.h"
#include <endian.h>
#include <pthread.h>
#include "base/rand.h"

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static inline void sip_rounds(struct sip *s, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 = rotl(s->v2, 32);
    }
}

static inline void sip_word(struct sip *s, uint64_t word, int rounds)
{
    s->v3 ^= word;
    sip_rounds(s, rounds);
    s->v0 ^= word;
}

/* Everything up to the finalisation, which is where the two output sizes part. */
static inline struct sip sip_absorb(const struct hash_key *key, struct str s, uint64_t wide,
                                    int rounds)
{
    struct sip st = {
        .v0 = key->k0 ^ 0x736f6d6570736575ULL,
        .v1 = key->k1 ^ 0x646f72616e646f6dULL ^ wide,
        .v2 = key->k0 ^ 0x6c7967656e657261ULL,
        .v3 = key->k1 ^ 0x7465646279746573ULL,
    };
    size_t at = 0;
    uint64_t word;

    for (; s.n - at >= 8; at += 8) {
        memcpy(&word, s.p + at, 8);
        sip_word(&st, le64toh(word), rounds);
    }
    word = 0;
    if (at < s.n)
        memcpy(&word, s.p + at, s.n - at);
    sip_word(&st, le64toh(word) | (uint64_t)s.n << 56, rounds);
    return st;
}

static inline uint64_t sip_squeeze(struct sip *s, int rounds)
{
    sip_rounds(s, rounds);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

uint64_t hash64(const struct hash_key *key, struct str s)
{
    struct sip st = sip_absorb(key, s, 0, 2);

    st.v2 ^= 0xff;
    return sip_squeeze(&st, 4);
}

uint64_t hash64_brief(const struct hash_key *key, struct str s)
{
    struct sip st = sip_absorb(key, s, 0, 1);

    st.v2 ^= 0xff;
    return sip_squeeze(&st, 3);
}

struct hash128 hash128(const struct hash_key *key, struct str s)
{
    struct sip st = sip_absorb(key, s, 0xee, 2);
    struct hash128 out;

    st.v2 ^= 0xee;
    out.lo = sip_squeeze(&st, 4);
    st.v1 ^= 0xdd;
    out.hi = sip_squeeze(&st, 4);
    return out;
}

static struct hash_key process_key;
static pthread_once_t process_key_once = PTHREAD_ONCE_INIT;

static void make_process_key(void)
{
    struct rand r = RAND_SYSTEM;

    process_key = (struct hash_key){rand_u64(&r), rand_u64(&r)};
}

const struct hash_key *hash_process_key(void)
{
    pthread_once(&process_key_once, make_process_key);
    return &process_key;
}

void hash_set_process_key(struct hash_key key)
{
    pthread_once(&process_key_once, make_process_key); /* so that it cannot overwrite @key later */
    process_key = key;
}
