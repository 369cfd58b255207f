/* media.h - files on their way between people and agents: pictures, voice notes, documents.
 *
 * A file lies in a folder of its own and has a record in the store; it is known by 32 random hex
 * digits.  Whoever brings one writes it piece by piece (media_write.h), nobody ever has a whole one
 * in memory, and all reading and writing is done by a few threads.
 *
 *      writer --end--> ID.part is synced, becomes ID --> record on disk --> a struct media_file
 *      start: a file without a record, or a record without its file, goes
 *
 * How long it is kept: media.ttl from when it was made or, where deliveries name it (media_hold),
 * from when the last of them was settled: a sleeper of days still gets its files.
 *
 * Who may read it: the tenant that brought it, and the tenants of the deliveries that name it.
 *
 * Namespace "media", key id, value {"tenant", "type", "name", "size", "at", "held": [...]}.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"

struct clock;
struct config_section;
struct http_client;
struct loop;
struct media;
struct rand;
struct seal;
struct store;

#define MEDIA_MAX_BYTES ((uint64_t)25 << 20) /* of one file, as the contract has it */
#define MEDIA_ID_CHARS 32
#define MEDIA_MAX_HOLDS 64
#define MEDIA_OFF \
    "files are not kept: several nodes share the database, and media.dir names no directory that " \
    "they share"

struct media_settings { /* `media:` in the configuration */
    char *dir;          /* NULL: `state_dir/media` */
    uint64_t tenant_bytes, all_bytes;
    int64_t ttl_ms;
    int64_t wait_ms;    /* a message waits no longer for its files */
    bool allow_private; /* fetch from addresses of the own network too */
};
extern const struct config_section media_config;

struct media_hold { /* a delivery that names the file; the strings are owned */
    char *tenant, *instance;
    uint64_t row;
};

struct media_file { /* read-only for everybody else; borrowed until the turn ends */
    char id[MEDIA_ID_CHARS + 1];
    char *tenant, *type, *name; /* owned; who pays for it; the name may be empty */
    uint64_t size;
    int64_t until_ms, look_ms; /* private: wall clock; kept at least until; looked at next */
    struct media_hold *holds;  /* private; owned */
    size_t n_holds;            /* private */
    struct list link;          /* private: by look_ms */
    uint64_t charged;          /* private */
};

struct media_env { /* borrowed, for the life of the media */
    struct loop *loop;
    struct store *store;
    struct rand *rand;
    const struct seal *seal;
    struct http_client *http;
    const struct media_settings *settings;
    const char *dir;      /* made when missing */
    uint64_t spare_bytes; /* of its disk, which files never get */
    bool off;             /* nothing is kept: media_begin() is BH_REFUSED, and MEDIA_OFF says why */
    /* Is this delivery still to be settled?  NULL: none is. */
    bool (*is_waiting)(void *ctx, struct str tenant, struct str instance, uint64_t row);
    void *ctx;
};

/* Blocks: reads the records, tidies the folder.  @ret_why has 256 bytes. */
enum bh_err media_open(const struct media_env *env, struct media **ret_m,
                       char *ret_why) BH_MUST_USE;
/* Nobody is told anything any more; writers and fetches are void.  Before the store is closed and
 * the loop goes.  NULL is fine. */
void media_close(struct media *m);

/* NULL: there is no such file (any more). */
const struct media_file *media_find(const struct media *m, struct str id);
bool media_may_read(const struct media_file *f, struct str tenant);
/* The delivery @row of an instance names the file: it may read it, and keeps it. */
void media_hold(struct media *m, const struct media_file *f, struct str tenant, struct str instance,
                uint64_t row);
/* Its path, for whoever opens it (not on the loop); valid until the next call. */
const char *media_path(struct media *m, const struct media_file *f);

/* ---- reading ---- */

struct media_read; /* a cancel handle */
/* @fd is the callee's, -1: it is gone.  @f is NULL then. */
typedef void media_opened_cb(void *ctx, const struct media_file *f, int fd);
/* Open a file on a thread; @done runs later, once, unless cancelled. */
struct media_read *media_read(struct media *m, const struct media_file *f, media_opened_cb *done,
                              void *ctx) BH_MUST_USE;
void media_read_cancel(struct media_read **r); /* NULL inside is fine; sets it to NULL */

/* ---- URLs ---- */

/* <base>/relay/media/<id>; @sign: with a signature, so that whoever has the URL may read the file
 * for media.ttl without any other credential. */
void media_url(const struct media *m, struct str base, struct str id, bool sign, struct buf *out);
/* Is this signature good for @id now? */
bool media_signature_is_good(const struct media *m, struct str id, struct str expires,
                             struct str signature);
/* The id in a URL or path that ends with /relay/media/<id> (a query may follow); absent: none. */
struct str media_id_in(struct str url);

int64_t media_wait_ms(const struct media *m); /* media.wait */

/* The files that a tenant brought go; returns how many there are. @only_count: they stay. */
size_t media_erase(struct media *m, struct str tenant, bool only_count);

bool media_forget(struct media *m, struct str id); /* this one goes; false: it is not there */

struct media_stats {
    size_t files, writing;
    uint64_t bytes; /* of files, and of what is being written */
    uint64_t written, expired, refused_quota;
};
void media_stats(const struct media *m, struct media_stats *ret);

/* ---- names and types (media_name.c) ---- */

/* @type as it is told to others: lower case, without parameters; application/octet-stream when it
 * is none. */
void media_type_add(struct buf *out, struct str type);
/* The last part of @name, without control characters, at most 255 bytes; may be empty. */
void media_name_add(struct buf *out, struct str name);
/* What the first bytes of a file say it is; absent: nothing known. */
struct str media_sniff(struct str head);
bool media_sniffs(struct str type); /* would it be known? */
/* image, voice, audio, video or document: what people would call a file of this type. */
const char *media_kind_of_type(struct str type);
/* The value of a Content-Disposition: attachment with the name, in both spellings. */
void media_disposition_add(struct buf *out, bool inline_, struct str name);

struct record_form;
extern const struct record_form *const media_records[]; /* ends with NULL */

/* A tenant's files, as store/erasure.h runs it; ctx is the media. */
extern const struct eraser media_eraser;
