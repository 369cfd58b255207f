/* media_priv.h - struct media and the calls between the files of this folder. */
#pragma once
#include "base/clock.h"
#include "base/map.h"
#include "media/media.h"
#include "media/media_write.h"
#include "net/work.h"

/* The least a file is charged, however small: it bounds the number of files. */
#define MEDIA_LEAST_CHARGE ((uint64_t)64 << 10)

struct media_share { /* what one stranger, or one address, has */
    uint64_t who;    /* media_file.by or .from */
    uint64_t bytes;
};
struct media_charges {  /* bytes, files being written included */
    uint64_t all;       /* of everybody */
    uint64_t strangers; /* of strangers alone */
    struct map shares;  /* struct media_share, owned, by who */
};

struct media_tenant { /* exists while the tenant is charged for a file */
    char *name;       /* owned */
    struct media_charges has;
};

struct media {
    struct media_env env;
    struct clock *clock;                 /* borrowed */
    struct work_pool *threads;           /* owned */
    struct map files;                    /* struct media_file, owned, by id */
    struct list by_look;                 /* all files, next check first */
    struct map tenants;                  /* struct media_tenant, owned, by name */
    struct list writers, reads, fetches; /* in progress */
    struct timer sweep;
    struct buf path;          /* media_path() returns it */
    char *dir;                /* owned */
    struct media_charges has; /* of all tenants */
    struct media_stats n;
    bool closing;
};

/* Charges @n bytes of @f to its tenant's quota.  BH_BUSY: over the tenant's or the total quota, or
 * over the strangers' share of either. */
enum bh_err media_charge(struct media *m, struct media_file *f, uint64_t n) BH_MUST_USE;
/* Lowers the charge of @f to @n bytes. */
void media_discharge(struct media *m, struct media_file *f, uint64_t n);

void media_id_make(struct media *m, char ret_id[MEDIA_ID_CHARS + 1]);
/* Adds a file whose record is committed.  Takes ownership of @f. */
void media_file_add(struct media *m, struct media_file *f);
void media_file_free(struct media_file *f);
extern const struct record_form media_form;

void media_writers_drop(struct media *m); /* in media_close(), after the threads have ended */
void media_fetches_drop(struct media *m);
static inline void media_path_add(struct buf *out, const struct media *m, const char *id,
                                  const char *suffix)
{
    buf_printf(out, "%s/%s%s", m->env.dir, id, suffix);
}
