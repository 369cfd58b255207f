/* media.h - keeps the files that people and agents send each other.
 *
 *      writer --end--> ID.part is synced, renamed to ID --> record committed --> struct media_file
 *      start-up: deletes every file without a record, and every record without its file
 *
 * Uploads (http/media_route.c) and fetches (media_fetch.h) write a file piece by piece through
 * media_write.h.  The host and the senders of platforms hold it for their deliveries.
 *
 * The module owns the folder media.dir and the records of its files.  A file's id is 32 random hex
 * digits, and its name in the folder.  Two threads open, write and delete files, so the
 * loop does not wait for the disk.  No file is ever whole in memory.
 *
 * Expiry: a file is kept for media.ttl after its upload.  A file that deliveries name (media_hold)
 * is kept for media.ttl after the last of them ends: the gateway acknowledged the event, or the
 * outbox is done with the action.  So an agent that was offline for days still gets its files.
 *
 * Access: the uploading tenant may read a file, and so may the tenants of deliveries that name it.
 *
 * Quotas: a tenant has media.per_tenant, all tenants together media.total.  Strangers use at most a
 * quarter of each: visitors of a chat page, and people who are not linked to the tenant's agent.
 * Of that quarter one of them uses at most a quarter, and one address, from which visitors can be
 * made up, at most a half.
 *
 * Record: namespace "media", key id, value {"tenant", "type", "name", "size", "until", "stranger",
 * "by", "from", "held"}.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"

struct media;

#define MEDIA_MAX_BYTES ((uint64_t)25 << 20) /* of one file; docs/media.md promises it */
#define MEDIA_ID_CHARS 32
#define MEDIA_MAX_HOLDS 64
#define MEDIA_OFF \
    "files are not kept: several nodes share the database, and media.dir names no directory that " \
    "they share"

struct media_settings { /* `media:` in the configuration */
    char *dir;          /* NULL: `state_dir/media` */
    uint64_t tenant_bytes, all_bytes;
    int64_t ttl_ms;
    int64_t wait_ms;    /* longest time that a message waits for its files */
    bool allow_private; /* agents may name files at private addresses */
};
extern const struct config_section media_config;

struct media_hold { /* a delivery that names the file; the strings are owned */
    char *tenant, *instance;
    uint64_t row;
};

struct media_file { /* read-only for callers; borrowed until the loop's turn ends */
    char id[MEDIA_ID_CHARS + 1];
    char *tenant, *type, *name; /* owned; the tenant's quota is charged; the name may be empty */
    uint64_t size;
    bool stranger;             /* it is a stranger's: counts against their share */
    uint64_t by, from;         /* hashes of the stranger and of their address; 0: none */
    int64_t until_ms, look_ms; /* private, wall clock: earliest expiry; next check */
    struct media_hold *holds;  /* private; owned */
    size_t n_holds;            /* private */
    struct list link;          /* private: media->by_look, ordered by look_ms */
    uint64_t charged;          /* private: bytes charged to the tenant's quota */
};

struct media_env { /* borrowed, for the life of the media */
    struct loop *loop;
    struct store *store;
    struct rand *rand;
    const struct seal *seal;
    struct http_client *http;
    const struct media_settings *settings;
    const char *dir;      /* created if missing */
    uint64_t spare_bytes; /* free disk space that files never use */
    bool off;             /* media_begin() returns BH_REFUSED; MEDIA_OFF is the reason */
    /* True while the delivery has not ended.  NULL: every delivery has. */
    bool (*is_waiting)(void *ctx, struct str tenant, struct str instance, uint64_t row);
    void *ctx;
};

/* Blocks: reads the records and deletes files without one.  If nodes share the store, a file
 * younger than an hour stays: another node may be writing its record.  @ret_why has 256 bytes. */
enum bh_err media_open(const struct media_env *env, struct media **ret_m,
                       char *ret_why) BH_MUST_USE;
/* Call before closing the store and freeing the loop.  No callback runs afterwards; handles of
 * reads, writers and fetches become invalid.  NULL is fine. */
void media_close(struct media *m);

/* NULL: no such file, or it has expired. */
const struct media_file *media_find(const struct media *m, struct str id);
bool media_may_read(const struct media_file *f, struct str tenant);
/* Records that delivery @row of an instance names the file: its tenant may read the file, which
 * does not expire before the delivery ends.  Ignored when it has MEDIA_MAX_HOLDS. */
void media_hold(struct media *m, const struct media_file *f, struct str tenant, struct str instance,
                uint64_t row);
/* The file's path; valid until the next call.  Open it on a thread, never on the loop. */
const char *media_path(struct media *m, const struct media_file *f);

/* ---- reading ---- */

/* The callback owns @fd.  -1: the file could not be opened, and @f is NULL. */
typedef void media_opened_cb(void *ctx, const struct media_file *f, int fd);
/* Opens a file on a thread; @done runs later, once, unless cancelled. */
struct media_read *media_read(struct media *m, const struct media_file *f, media_opened_cb *done,
                              void *ctx) BH_MUST_USE;
void media_read_cancel(struct media_read **r); /* NULL inside is fine; sets it to NULL */

/* ---- URLs ---- */

/* Appends <base>/relay/media/<id>.  @sign adds a signature: the URL alone then grants read access,
 * for media.ttl. */
void media_url(const struct media *m, struct str base, struct str id, bool sign, struct buf *out);
/* True when the signature is valid for @id and has not expired. */
bool media_signature_is_good(const struct media *m, struct str id, struct str expires,
                             struct str signature);
/* The id in a URL or path that ends with /relay/media/<id>, before any query; absent: none. */
struct str media_id_in(struct str url);

int64_t media_wait_ms(const struct media *m); /* media.wait */

bool media_forget(struct media *m, struct str id); /* deletes one file; false: no such file */

struct media_stats {
    size_t files, writing;
    uint64_t bytes; /* of files; excludes those being written */
    uint64_t written, expired, refused_quota;
};
void media_stats(const struct media *m, struct media_stats *ret);

/* ---- names and types (media_name.c) ---- */

/* Appends @type in lower case without parameters; application/octet-stream if it is not a type. */
void media_type_add(struct buf *out, struct str type);
/* Appends the last path component of @name, at most 255 bytes, without control characters and
 * leading dots.  May append nothing. */
void media_name_add(struct buf *out, struct str name);
/* The type that a file's first bytes indicate; absent: not recognised. */
struct str media_sniff(struct str head);
bool media_sniffs(struct str type); /* media_sniff() recognises files of this type */
/* "image", "audio", "video" or "document". */
const char *media_kind_of_type(struct str type);
/* Appends the value of Content-Disposition, with the name as filename* (UTF-8) and filename. */
void media_disposition_add(struct buf *out, bool inline_, struct str name);

extern const struct record_form *const media_records[]; /* ends with NULL */

/* A tenant's files, as store/erasure.h runs it; ctx is the media. */
extern const struct eraser media_eraser;
