/* entry.h - one entry of the data store: parses a written entry, formats a stored one.
 *
 * PortableData has sixteen fields: id, summary, detail, score, the eleven curated fields, and
 * metadata for everything else.  A curated field is stored at the top level only, even if it was
 * given inside metadata. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/caller.h"
#include "core/fault.h"

#define DATA_UUID_BYTES 16
#define DATA_UUID_TEXT 37 /* with its NUL */
#define DATA_FOREVER INT64_MAX
#define DATA_MAX_LIST 256  /* tags or recipients of one entry */
#define DATA_MAX_WORD 1024 /* bytes of one tag or recipient */
#define DATA_MAX_EXTRA (64u << 10)

/* The fields that a query can filter by.  A filter looks for marks: a mark is the letter of the
 * field and one of its values, such as "thome" for the tag "home".  `pinned` has one mark, "p", of
 * the entries that are pinned. */
struct data_field {
    const char *name;
    char letter;
};
enum { DATA_PINNED = 7, N_DATA_FIELDS };
extern const struct data_field data_fields[N_DATA_FIELDS];
struct str data_mark(struct arena *arena, unsigned field, struct str value);

#define DATA_MAX_MARKS (2 * DATA_MAX_LIST + N_DATA_FIELDS)

struct data_entry { /* everything in the arena */
    uint8_t uuid[DATA_UUID_BYTES];
    int64_t created_at, expires_at; /* seconds; DATA_FOREVER: never */
    struct str content;
    struct str extra; /* JSON: the members of PortableData after score, without created_at */
    struct str marks[DATA_MAX_MARKS];
    size_t n_marks;
};

/* @entry as data_write() in data.h describes it.  False: @ret_fault. */
bool data_entry_read(struct json entry, const struct caller *who, size_t max_content_bytes,
                     struct arena *arena, struct data_entry *ret_e, struct fault *ret_fault);

/* Fills the marks from @extra. */
void data_entry_marks(struct data_entry *e, struct arena *arena);

/* Appends the first line of @content, at most 200 UTF-16 units. */
void data_summary(struct str content, struct buf *out);

void data_uuid_make(uint8_t ret_uuid[DATA_UUID_BYTES]); /* version 4 */
void data_uuid_text(const uint8_t uuid[DATA_UUID_BYTES], char ret_text[DATA_UUID_TEXT]);
bool data_uuid_parse(struct str text, uint8_t ret_uuid[DATA_UUID_BYTES]);

struct data_found { /* a stored entry */
    const uint8_t *uuid;
    struct str content, extra;
    int64_t created_at;
    const double *score; /* NULL: none */
};
void data_found_json(const struct data_found *f, struct jw *w);
