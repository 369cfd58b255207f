/* signer.c - Ed25519 signatures of webhooks, verified by edges.
 *
 *      heart: http_signer_new() --SIGNER: number, key, path--> every edge, threads and nodes alike
 *      edge:  a request to such a path --REQUEST with the number of the key that fits--> heart
 *
 * Edges verify before a request goes to the heart: 110 µs that the heart does not spend.  Numbers
 * of signers ascend, and an edge learns them in their order.  A request names the signer whose key
 * fits, and the newest signer that the edge knew.  The heart compares both, so a key that was added
 * or removed meanwhile is never mistaken for another.
 *
 * The heart believes its edges: they are threads of its process, or nodes that have proved on their
 * trunk that they know the master key.  The numbers are those of one heart, so an edge forgets them
 * with the trunk.
 *
 * Forged requests cost an edge as much as genuine ones.  Beyond FORGED_PER_S of them an
 * edge verifies no more for a moment, and the heart's own limit of such requests decides
 * (edge/door.h). */
#include <stdlib.h>

#include "base/crypto.h"
#include "base/mem.h"
#include "net/trunk_priv.h"

enum { FORGED_PER_S = 200, FORGED_AT_ONCE = 400 };

/* ---- at the heart ---- */

struct http_signer {
    struct list link;           /* http_server.signers */
    struct http_server *server; /* borrowed */
    uint8_t raw[HTTP_SIGNER_BYTES];
    uint32_t id; /* never used again */
    char path[]; /* of the requests */
};

static void tell(struct trunk *t, enum msg_what what, const struct http_signer *g)
{
    batch_add_signer(trunk_out(t), what, &(struct msg_signer){g->id, g->raw, str_of(g->path)});
}

static void tell_all(const struct http_signer *g, enum msg_what what)
{
    list_each (&g->server->trunks, it, nxt) {
        struct trunk *t = list_entry(it, struct trunk, link);
        if (t->is_heart && t->up && !t->lost)
            tell(t, what, g);
    }
}

void signers_tell(struct trunk *t)
{
    list_each (&t->server->signers, it, nxt)
        tell(t, MSG_SIGNER, list_entry(it, const struct http_signer, link));
}

struct http_signer *http_signer_new(struct http_server *s, struct str path,
                                    const uint8_t key[HTTP_SIGNER_BYTES])
{
    struct http_signer *g;

    if (path.n == 0 || path.n > MSG_PATH_BYTES)
        return NULL;
    g = xcalloc(1, sizeof *g + path.n + 1);
    g->server = s;
    memcpy(g->raw, key, sizeof g->raw);
    memcpy(g->path, path.p, path.n);
    g->id = ++s->last_signer;
    list_init(&g->link);
    list_append(&s->signers, &g->link);
    tell_all(g, MSG_SIGNER);
    return g;
}

void http_signer_free(struct http_signer *g)
{
    if (g == NULL)
        return;
    tell_all(g, MSG_UNSIGN);
    list_remove(&g->link);
    free(g);
}

enum http_seal http_seal_of(const struct http_req *r, const struct http_signer *g)
{
    if (g == NULL || r->checked < g->id)
        return HTTP_UNCHECKED;
    return r->signer == g->id ? HTTP_SIGNED : HTTP_FORGED;
}

/* ---- at an edge ---- */

struct known_signer {
    struct known_signer *next; /* owned; another one of the same path */
    struct ed25519_key *key;   /* owned */
    uint32_t id;
    uint32_t path_n;
    char path[];
};

static struct str path_of(const struct known_signer *g)
{
    return str_make(g->path, g->path_n);
}

static void known_free(struct known_signer *g)
{
    ed25519_free(g->key);
    free(g);
}

static void learn(struct trunk *t, const struct msg_signer *said)
{
    struct known_signer *g;
    struct ed25519_key *key = ed25519_public_raw(said->key);

    if (key == NULL) /* no signature fits it */
        return;
    g = xcalloc(1, sizeof *g + said->path.n);
    g->key = key;
    g->id = said->id;
    g->path_n = (uint32_t)said->path.n;
    memcpy(g->path, said->path.p, said->path.n);
    g->next = map_put(&t->signers, path_of(g), g);
}

static void forget(struct trunk *t, const struct msg_signer *said)
{
    struct known_signer *first = map_del(&t->signers, said->path), **at = &first, *g;

    while (*at != NULL && (*at)->id != said->id)
        at = &(*at)->next;
    if ((g = *at) != NULL) {
        *at = g->next;
        known_free(g);
    }
    if (first != NULL)
        map_put(&t->signers, path_of(first), first);
}

bool signer_take(struct trunk *t, const struct msg *m)
{
    struct msg_signer said;

    if (!batch_read_signer(m->payload, &said))
        return false;
    if (m->what == MSG_UNSIGN) {
        forget(t, &said);
    } else {
        if (said.id <= t->newest_signer)
            return false;
        learn(t, &said);
        t->newest_signer = said.id;
    }
    return true;
}

void signers_forget(struct trunk *t)
{
    void *g;

    for (size_t at = 0; map_next(&t->signers, &at, &g);)
        for (struct known_signer *next; g != NULL; g = next) {
            next = ((struct known_signer *)g)->next;
            known_free(g);
        }
    map_done(&t->signers);
}

void signer_check(struct conn *c, struct http_req *r)
{
    struct http_server *s = c->server;
    const struct trunk *t = s->carrier;
    const struct known_signer *g;
    struct str said;
    uint8_t signature[ED25519_BYTES];

    r->signer = r->checked = 0; /* a request that was held may have been seen by another heart */
    if (t == NULL || map_count(&t->signers) == 0)
        return;
    g = map_get(&t->signers, http_path(r));
    said = http_header(r, "X-Signature-Ed25519");
    if (g == NULL || !hex_decode(said, signature, sizeof signature) ||
        !bucket_take(&s->forged, clock_now_ms(s->clock), FORGED_PER_S, FORGED_AT_ONCE))
        return;
    BUF_LOCAL text = BUF_INIT;
    buf_add_str(&text, http_header(r, "X-Signature-Timestamp"));
    buf_add_str(&text, http_body(r));
    r->checked = t->newest_signer;
    for (; g != NULL && r->signer == 0; g = g->next)
        if (ed25519_verify(g->key, buf_str(&text),
                           str_make((const char *)signature, sizeof signature)))
            r->signer = g->id;
    if (r->signer != 0)
        bucket_give(&s->forged);
}
