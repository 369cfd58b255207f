/* session.c - signed session ids.  (session.h has the contract.) */
#include "mcp/session.h"
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"

enum { RANDOM_BYTES = 16, MAC_BYTES = 17, ID_CHARS = 44 };

struct ended {
    struct list link; /* oldest first */
    size_t n;
    char id[];
};

void sessions_init(struct mcp_sessions *s, const uint8_t key[32])
{
    *s = (struct mcp_sessions){0};
    memcpy(s->key, key, sizeof s->key);
    list_init(&s->ended_by_age);
}

static void forget(struct mcp_sessions *s, struct ended *e)
{
    map_del(&s->ended, str_make(e->id, e->n));
    list_remove(&e->link);
    free(e);
}

void sessions_done(struct mcp_sessions *s)
{
    list_each (&s->ended_by_age, it, nxt)
        forget(s, list_entry(it, struct ended, link));
    map_done(&s->ended);
    secret_wipe(s->key, sizeof s->key);
}

static void sign(const struct mcp_sessions *s, const void *random, struct str key_id,
                 uint8_t ret_mac[SHA256_BYTES])
{
    struct buf text = BUF_INIT;

    buf_add(&text, random, RANDOM_BYTES);
    buf_add_str(&text, key_id);
    hmac_sha256(str_make(s->key, sizeof s->key), buf_str(&text), ret_mac);
    buf_done(&text);
}

void sessions_open(const struct mcp_sessions *s, struct rand *rand, struct str key_id,
                   struct buf *out)
{
    uint8_t raw[RANDOM_BYTES + SHA256_BYTES];

    rand_bytes(rand, raw, RANDOM_BYTES);
    sign(s, raw, key_id, raw + RANDOM_BYTES);
    base64url_add(out, raw, RANDOM_BYTES + MAC_BYTES);
}

bool sessions_ok(const struct mcp_sessions *s, struct str key_id, struct str id)
{
    struct buf raw = BUF_INIT;
    uint8_t mac[SHA256_BYTES];
    bool ok = false;

    if (id.n == ID_CHARS && base64url_decode(id, &raw) && raw.n == RANDOM_BYTES + MAC_BYTES) {
        sign(s, raw.p, key_id, mac);
        ok = ct_equal(mac, raw.p + RANDOM_BYTES, MAC_BYTES) && map_get(&s->ended, id) == NULL;
    }
    buf_done(&raw);
    return ok;
}

void sessions_end(struct mcp_sessions *s, struct str id)
{
    if (map_get(&s->ended, id) != NULL)
        return;
    struct ended *e = xcalloc(1, sizeof *e + id.n);
    e->n = id.n;
    memcpy(e->id, id.p, id.n);
    map_put(&s->ended, str_make(e->id, e->n), e);
    list_append(&s->ended_by_age, &e->link);
    if (map_count(&s->ended) > SESSIONS_ENDED_MAX)
        forget(s, list_first(&s->ended_by_age, struct ended, link));
}
