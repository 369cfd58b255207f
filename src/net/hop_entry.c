/* hop_entry.c - (hop_entry.h has the contract and the picture.) */
#include "net/hop_entry.h"
#include <stdio.h>
#include "net/batch.h"
#include "net/trunk.h"

bool hop_entry_read(struct str bytes, struct hop_entry *ret)
{
    if (bytes.n < HOP_HEAD_BYTES || memchr("hared", *bytes.p, 5) == NULL)
        return false;
    *ret = (struct hop_entry){.kind = (enum hop_kind) * bytes.p,
                              .line = str_make(bytes.p + 1, HOP_LINE_BYTES),
                              .number = get_u64(bytes.p + 1 + HOP_LINE_BYTES),
                              .sealed = str_skip(bytes, HOP_HEAD_BYTES)};
    return true;
}

/* Everything that the entry is bound to.  All parts but the last have a fixed length. */
static void add_bound(struct buf *out, const struct hop_bound *b, enum hop_kind kind,
                      uint64_t number)
{
    char bytes[8];

    put_u64(bytes, number);
    buf_add_c(out, (char)kind);
    buf_add_str(out, b->line);
    buf_add(out, bytes, sizeof bytes);
    buf_add(out, b->salt, HOP_SALT_BYTES);
    buf_add_str(out, b->to);
}

void hop_entry_add(struct buf *out, const struct hop_bound *b, enum hop_kind kind, uint64_t number,
                   struct str plain)
{
    BUF_LOCAL bound = BUF_INIT;

    add_bound(&bound, b, kind, number);
    buf_add(out, bound.p, HOP_HEAD_BYTES);
    seal_add(b->key, buf_str(&bound), plain, out);
}

bool hop_entry_open(const struct hop_entry *e, const struct hop_bound *b, struct buf *ret_plain)
{
    BUF_LOCAL bound = BUF_INIT;

    if (!str_eq(e->line, b->line))
        return false;
    add_bound(&bound, b, e->kind, e->number);
    return seal_open(b->key, buf_str(&bound), e->sealed, ret_plain);
}

void hop_key(const uint8_t *trunk_key, uint8_t ret_key[SEAL_KEY_BYTES])
{
    hmac_sha256(str_make(trunk_key, TRUNK_KEY_BYTES), STR("redis hop 1"), ret_key);
}

void hop_inbox(const uint8_t *key, struct str name, char ret_inbox[HOP_INBOX_BYTES])
{
    BUF_LOCAL text = BUF_INIT;
    uint8_t mac[SHA256_BYTES];

    buf_printf(&text, "inbox %.*s", STR_FMT(name));
    hmac_sha256(str_make(key, SEAL_KEY_BYTES), buf_str(&text), mac);
    buf_reset(&text);
    hex_add(&text, mac, 16);
    snprintf(ret_inbox, HOP_INBOX_BYTES, "bellhop:%s", buf_z(&text));
}
