/* move_side.h - one end of a move: what move.c asks of a store's kind.  Private to src/store/.
 *
 * A side is opened, asked, closed; each call blocks, and where one answers false its @why says what
 * went wrong. */
#pragma once
#include "base/str.h"
#include "store/move.h"

struct move_item {             /* one row of one table; borrowed */
    uint64_t id;               /* rows */
    struct str ns, key, value; /* records; seen: @key */
    struct str parked, frame;  /* rows; @parked absent: not parked */
    uint32_t box, kind, flags, attempts;
    int64_t at_ms;
};

/* The columns of a table, in the order in which both kinds of store read and write them. */
enum move_type { MOVE_END, MOVE_I64, MOVE_I32, MOVE_TEXT, MOVE_BYTES };
struct move_column {
    enum move_type type; /* MOVE_TEXT, MOVE_BYTES: a struct str; only a text may be absent */
    size_t at;           /* of struct move_item */
};
extern const struct move_column move_columns[N_MOVE_TABLES][9];

struct move_identity { /* what makes a store this one, and no other or later one */
    uint8_t dedup_key[16];
    uint64_t boot; /* starts so far */
};

typedef bool move_item_cb(void *ctx, const struct move_item *item);

struct move_side;
struct move_side_ops {
    bool (*identity)(struct move_side *s, struct move_identity *ret);
    bool (*count)(struct move_side *s, enum store_table t, uint64_t *ret_n);
    /* Every row of a table, always in the same order. */
    bool (*read)(struct move_side *s, enum store_table t, move_item_cb *cb, void *ctx);

    /* As a target: nothing is in it, or what an earlier try moved of the same source. */
    bool (*begin)(struct move_side *s, const struct move_identity *from,
                  uint64_t ret_done[N_MOVE_TABLES]);
    /* In one transaction with the note that @done rows of @t are there. */
    bool (*write)(struct move_side *s, enum store_table t, const struct move_item *items, size_t n,
                  uint64_t done);
    /* It is a store from now on. */
    bool (*finish)(struct move_side *s, const struct move_identity *from);
    void (*close)(struct move_side *s);
};
struct move_side { /* first member of each kind */
    const struct move_side_ops *ops;
    char why[256];
};

/* NULL: @ret_why.  @fresh: make the file, as a target. */
struct move_side *move_side_sqlite(const char *path, bool fresh, char *ret_why);
struct move_side *move_side_postgres(const char *url, char *ret_why);
