/* media_priv.h - what the files of this folder share. */
#pragma once
#include "base/clock.h"
#include "base/map.h"
#include "media/media.h"
#include "media/media_write.h"
#include "net/work.h"

/* A small file counts as so much: that bounds how many there are. */
#define MEDIA_LEAST_CHARGE ((uint64_t)64 << 10)

struct media_tenant { /* what one holds; exists while it holds something */
    char *name;       /* owned */
    uint64_t charged;
};

struct media {
    struct media_env env;
    struct clock *clock;       /* borrowed */
    struct work_pool *threads; /* owned */
    struct map files;          /* struct media_file, owned, by id */
    struct list by_look;
    struct map tenants;
    struct list writers, reads, fetches; /* under way */
    struct timer sweep;
    struct buf path;
    char *dir; /* owned */
    uint64_t charged;
    struct media_stats n;
    bool closing;
};

/* BH_BUSY: over a quota.  Else @n bytes more are @tenant's. */
enum bh_err media_charge(struct media *m, struct str tenant, uint64_t n) BH_MUST_USE;
void media_discharge(struct media *m, struct str tenant, uint64_t n);

void media_id_make(struct media *m, char ret_id[MEDIA_ID_CHARS + 1]);
/* A file that is there, with its record on disk. @f is taken over. */
void media_file_add(struct media *m, struct media_file *f);
void media_file_free(struct media_file *f);
extern const struct record_form media_form;

void media_writers_drop(struct media *m); /* while closing, after the threads ended */
void media_fetches_drop(struct media *m);
static inline void media_path_add(struct buf *out, const struct media *m, const char *id,
                                  const char *suffix)
{
    buf_printf(out, "%s/%s%s", m->env.dir, id, suffix);
}
