/* hop_entry.h - entries of the Redis streams that trunks run over, as pure functions of bytes.
 * Private to src/net/.
 *
 *      kind (1) | line (16) | number (8) | sealed: AES-256-GCM under a key that all nodes share
 *
 * A line is one connection of bytes between two nodes; its dialer names it at random.  What an
 * entry is bound to decides whether the entry opens: its kind, its line, its number, the salt
 * that the accepting node chose for the line, and the node that reads it.  So an entry that was
 * copied to another line, another number, another direction or another time does not open. */
#pragma once
#include "base/buf.h"
#include "base/crypto.h"

enum {
    HOP_LINE_BYTES = 16,
    HOP_SALT_BYTES = 16,
    HOP_HEAD_BYTES = 1 + HOP_LINE_BYTES + 8,
    HOP_INBOX_BYTES = 8 + 32 + 1, /* "bellhop:", hex and a NUL */
};

enum hop_kind {
    HOP_HELLO = 'h',  /* the dialer's protocol, a blank and its name; number 0, no salt yet */
    HOP_ACCEPT = 'a', /* the salt; number 0, no salt yet */
    HOP_REFUSE = 'r', /* why, for people; number 0, no salt yet */
    HOP_DATA = 'd',   /* bytes taken of the other direction so far (8), then bytes; from number 1 */
    HOP_END = 'e',    /* the line ends; the next number */
};

struct hop_entry { /* views into the bytes that were read */
    enum hop_kind kind;
    struct str line;
    uint64_t number;
    struct str sealed;
};

struct hop_bound {       /* borrowed */
    const uint8_t *key;  /* SEAL_KEY_BYTES */
    const uint8_t *salt; /* HOP_SALT_BYTES; zeros before HOP_ACCEPT */
    struct str line;     /* HOP_LINE_BYTES */
    struct str to;       /* the reader's name */
};

/* False: not an entry. */
bool hop_entry_read(struct str bytes, struct hop_entry *ret);
void hop_entry_add(struct buf *out, const struct hop_bound *b, enum hop_kind kind, uint64_t number,
                   struct str plain);
/* False: forged, damaged, or bound to something else. */
bool hop_entry_open(const struct hop_entry *e, const struct hop_bound *b, struct buf *ret_plain);

/* The key of entries, derived from the trunk key (TRUNK_KEY_BYTES). */
void hop_key(const uint8_t *trunk_key, uint8_t ret_key[SEAL_KEY_BYTES]);
/* The stream that the node @name reads.  Redis does not learn the name. */
void hop_inbox(const uint8_t *key, struct str name, char ret_inbox[HOP_INBOX_BYTES]);
