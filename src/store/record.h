/* record.h - the codec of all records in the store.
 *
 * A module describes each of its namespaces by a table: the fields of a struct, in order.  The
 * codec writes the struct as a key and a value, and reads and checks both:
 *
 *      static const struct record_field fields[] = {
 *          RECORD_FIELD(struct pet, owner, "owner", RECORD_KEY | RECORD_NEEDED),
 *          RECORD_FIELD(struct pet, name, "name", RECORD_KEY | RECORD_NEEDED, .max = 128),
 *          RECORD_FIELD(struct pet, created_ms, "created", 0),
 *      };
 *      const struct record_form form = RECORD_FORM("pet", struct pet, fields);
 *
 *      key     mary 1f rex                      the fields with RECORD_KEY, 0x1f between them
 *      value   {"created":1782000000000}        the others, as JSON
 *
 * A field that is absent, zero or false is not written, unless it is RECORD_NEEDED.  A field with
 * RECORD_SEALED is encrypted with the master key and bound to namespace, key and field, so that a
 * sealed text copied to another record does not open.
 *
 * The reader refuses: what is not a JSON object, a field of the wrong type, a field the table does
 * not have or that comes twice, a text longer than .max, a number above .max, a word that is not in
 * .words, a missing RECORD_NEEDED field, a sealed text that does not open.  record_why() says which
 * record and which field.
 *
 * The type of a field follows from its member:
 *
 *      struct str       text; after reading it is borrowed until the reader's next record
 *      char *           text on the heap, owned by the struct: record_done() frees it
 *      char [n]         text, NUL-terminated, shorter than n
 *      int64_t, uint64_t, uint32_t, unsigned, bool
 *      an enum          with .words: written as the word at that index
 *      uint8_t [n]      bytes, written as hex
 *      struct record_json   any JSON value
 *
 * RECORD_LIST and RECORD_ARRAY are lists of structs with a table of their own.
 *
 * cli/forms.c lists all forms of the program.  A change of the master key seals their fields with
 * the new key, and the fuzz target reads hostile bytes through each form. */
#pragma once
#include <stdint.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "store/seal.h"

#define RECORD_SEPARATOR '\x1f' /* between the parts of a key; only the last part may contain it */

enum record_type {
    RECORD_TEXT,    /* struct str */
    RECORD_STRING,  /* char *, owned */
    RECORD_CHARS,   /* char [n] */
    RECORD_I64,     /* int64_t */
    RECORD_U64,     /* uint64_t, size_t */
    RECORD_U32,     /* uint32_t, or an enum with .words */
    RECORD_BOOL,    /* bool */
    RECORD_BYTES,   /* uint8_t [n] */
    RECORD_JSON,    /* struct record_json */
    RECORD_STRUCTS, /* struct x [n], with a count of the entries used */
    RECORD_HEAPED,  /* struct x *, owned, with a count */
};

enum record_flag {
    RECORD_KEY = 1,    /* part of the key */
    RECORD_NEEDED = 2, /* the reader refuses a record where it is missing, empty or zero; an enum, a
                        * bool or a JSON value must only be present */
    RECORD_SEALED = 4, /* a text, sealed with the master key */
};

struct record_json {
    struct str text;   /* written as it is; absent: @value is written */
    struct json value; /* set by the reader; borrowed until its next record */
};

struct record_field {
    const char *name;         /* NULL in the only field of a list's form: bare values */
    uint8_t type;             /* enum record_type */
    uint8_t flags;            /* of enum record_flag */
    uint16_t at;              /* offset of the member */
    uint16_t size;            /* of the member */
    uint16_t count_at;        /* lists: offset of the size_t that counts the entries */
    uint64_t max;             /* bytes of a text, entries of a list, or the number; 0: no limit */
    const char *const *words; /* of an enum, ends with NULL */
    const struct record_form *of; /* the form of a list's entries, without lists and keys */
};

struct record_form {
    const char *ns; /* NULL: the form of a list's entries */
    size_t size;    /* of the struct */
    const struct record_field *fields;
    size_t n_fields; /* 32 at most */
    bool lossy;      /* record_load() skips damaged records, with a warning */
};

#define RECORD_TYPE(T, member) \
    _Generic(&((T *)0)->member,                                                                 \
        struct str *: RECORD_TEXT,                                                              \
        char **: RECORD_STRING,                                                                 \
        int64_t *: RECORD_I64,                                                                  \
        uint64_t *: RECORD_U64,                                                                 \
        uint32_t *: RECORD_U32,                                                                 \
        bool *: RECORD_BOOL,                                                                    \
        struct record_json *: RECORD_JSON,                                                      \
        default: _Generic(((T *)0)->member, char *: RECORD_CHARS, uint8_t *: RECORD_BYTES, \
                          default: RECORD_STRUCTS))
#define RECORD_FIELD(T, member, called, ...) \
    RECORD_FIELD_(T, member, called, RECORD_TYPE(T, member), __VA_ARGS__)
#define RECORD_FIELD_(T, member, called, kind, ...) \
    { \
        .name = (called), .type = (kind), .at = offsetof(T, member), \
        .size = sizeof(((T *)0)->member), .flags = __VA_ARGS__ \
    }
/* A list in an array that the struct contains, or in one on the heap. */
#define RECORD_LIST(T, member, counter, called, form, most) \
    { \
        .name = (called), .type = RECORD_STRUCTS, .at = offsetof(T, member), \
        .count_at = offsetof(T, counter), .max = (most), .of = (form) \
    }
#define RECORD_ARRAY(T, member, counter, called, form, most) \
    { \
        .name = (called), .type = RECORD_HEAPED, .at = offsetof(T, member), \
        .count_at = offsetof(T, counter), .max = (most), .of = (form) \
    }
#define RECORD_FORM(space, T, table, ...) \
    { \
        .ns = (space), .size = sizeof(T), .fields = (table), .n_fields = ARRAY_LEN(table), \
        __VA_ARGS__ \
    }

extern const struct record_form record_texts; /* of a list whose entries are struct str */

bool record_has_sealed(const struct record_form *form);
/* Appends the name that a sealed field is bound to, for a module that opens the field by itself. */
void record_seal_name(const struct record_form *form, struct str key, const char *field,
                      struct buf *out);

/* ---- writing ---- */

/* Append key and value of @thing; either buf may be NULL.  @seal NULL: sealed fields hold sealed
 * text already and are written as they are. */
void record_write(const struct record_form *form, const struct seal *seal, const void *thing,
                  struct buf *ret_key, struct buf *ret_value);
/* Appends the first @parts of the key, each followed by a separator: a prefix for scans. */
void record_write_prefix(const struct record_form *form, const void *thing, size_t parts,
                         struct buf *ret_prefix);

/* ---- reading ---- */

/* @seal is borrowed; NULL: sealed fields stay sealed. */
struct record_reader *record_reader_new(const struct seal *seal);
void record_reader_free(struct record_reader *r); /* NULL is fine */
/* False: the record is damaged, @ret_thing owns nothing, record_why() says why.  All members that
 * the form does not name are zeroed. */
bool record_read(struct record_reader *r, const struct record_form *form, struct str key,
                 struct str value, void *ret_thing);
const char *record_why(const struct record_reader *r); /* a sentence; until the next record */

/* Frees what the struct owns and zeroes those members; secrets are wiped first. */
void record_done(const struct record_form *form, void *thing);

/* ---- the store ---- */

/* Write one record.  @seal as in record_write(); @done may be NULL. */
struct store_put *record_put(struct store *st, const struct record_form *form,
                             const struct seal *seal, const void *thing, bool urgent,
                             void (*done)(void *ctx, enum bh_err err), void *ctx);
void record_delete(struct store *st, const struct record_form *form, struct str key);

/* Called for each record.  The callee takes over the memory that @thing owns.  False: the record
 * contradicts itself, and counts as damaged. */
typedef bool record_cb(void *ctx, struct str key, void *thing);
/* Read all records of the form whose key starts with @prefix (absent: all).  Blocks: for start-up.
 * BH_REFUSED: one is damaged and the form is not lossy; the others were read.  @ret_why has 256
 * bytes.  @reader NULL: nothing is sealed, and the call makes a reader of its own. */
enum bh_err record_load(struct store *st, const struct record_form *form,
                        struct record_reader *reader, struct str prefix, record_cb *each, void *ctx,
                        char *ret_why) BH_MUST_USE;
/* As record_load(), for records whose first @parts of the key equal those of @like.  The form has
 * no sealed fields. */
enum bh_err record_load_like(struct store *st, const struct record_form *form, const void *like,
                             size_t parts, record_cb *each, void *ctx, char *ret_why) BH_MUST_USE;
/* Deletes the record that has the key of @thing. */
void record_delete_like(struct store *st, const struct record_form *form, const void *thing);
