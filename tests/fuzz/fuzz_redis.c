/* What a Redis server says, and its address: a reply lies within the bytes that were there, is the
 * same when more follow, and is not there when a byte is missing.  Arrays in arrays are read as far
 * as they go.  An entry of a stream opens only if this cluster sealed it, which it never did. */
#include <stdlib.h>
#include "base/buf.h"
#include "net/hop_entry.h"
#include "net/redis_client.h"
#include "net/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(struct str all, struct str part)
{
    if (part.p != NULL && (part.p < all.p || part.p + part.n > all.p + all.n))
        abort();
}

static void check_reply(struct str in, const struct resp *r, size_t n)
{
    struct resp again;
    struct str whole = str_make(in.p, n);

    if (n > in.n || r->n_items > RESP_MAX_ITEMS)
        abort();
    check_inside(whole, r->text);
    for (size_t k = 0; k < r->n_items; k++)
        check_inside(whole, r->items[k]);
    if (resp_read(whole, &again) != (ptrdiff_t)n || again.kind != r->kind)
        abort();
    if (resp_read(str_make(in.p, n - 1), &again) > 0)
        abort();
}

static void check_entry(struct str bytes)
{
    static const uint8_t key[SEAL_KEY_BYTES] = {7}, salt[HOP_SALT_BYTES];
    struct hop_bound b = {.key = key, .salt = salt, .to = STR("north/1")};
    struct buf plain = BUF_INIT;
    struct hop_entry e;

    if (hop_entry_read(bytes, &e)) {
        check_inside(bytes, e.line);
        check_inside(bytes, e.sealed);
        b.line = e.line;
        if (hop_entry_open(&e, &b, &plain))
            abort();
    }
    buf_done(&plain);
}

/* As redis_hop.c walks through the answer to XREAD. */
static void check_items(const struct resp *r)
{
    struct resp in;

    for (size_t k = 0; k < r->n_items; k++) {
        check_entry(r->items[k]);
        if (r->items[k].n > 0 && *r->items[k].p == '*' && resp_read(r->items[k], &in) > 0)
            check_items(&in);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_make(data, size);
    struct buf url = BUF_INIT;
    struct resp r;
    char why[256];

    check_entry(in);
    for (ptrdiff_t n; (n = resp_read(in, &r)) > 0; in = str_skip(in, (size_t)n)) {
        check_reply(in, &r, (size_t)n);
        check_items(&r);
    }
    if (memchr(data, '\0', size) == NULL) {
        buf_add(&url, data, size);
        redis_url_ok(buf_z(&url), why);
    }
    buf_done(&url);
    return 0;
}
