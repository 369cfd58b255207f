/* media_record.c - what is on disk about a file, written and read. */
#include <stdlib.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "media/media_priv.h"
#include "store/store.h"

void media_file_free(struct media_file *f)
{
    for (size_t i = 0; i < f->n_holds; i++) {
        free(f->holds[i].tenant);
        free(f->holds[i].instance);
    }
    free(f->holds);
    free(f->tenant);
    free(f->type);
    free(f->name);
    free(f);
}

void media_record_write(const struct media_file *f, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "tenant", str_of(f->tenant));
    jw_kstr(&w, "type", str_of(f->type));
    jw_kstr(&w, "name", str_of(f->name));
    jw_ki64(&w, "size", (int64_t)f->size);
    jw_ki64(&w, "until", f->until_ms);
    jw_key(&w, "held");
    jw_arr(&w);
    for (size_t i = 0; i < f->n_holds; i++) {
        jw_obj(&w);
        jw_kstr(&w, "tenant", str_of(f->holds[i].tenant));
        jw_kstr(&w, "instance", str_of(f->holds[i].instance));
        jw_key(&w, "row");
        jw_u64(&w, f->holds[i].row);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
}

struct loading {
    struct media *m;
    struct json_parser *json; /* owned */
    struct media_file **all;  /* owned; what is in them goes to the media */
    size_t n, cap;
    struct buf lost; /* ids whose file is not there, 32 characters each */
};

static void read_holds(struct json held, struct media_file *f)
{
    for (struct json_iter it = {0}; json_next(held, &it) && f->n_holds < MEDIA_MAX_HOLDS;) {
        struct media_hold h = {0};
        if (!json_as_u64(json_get(it.value, "row"), &h.row))
            continue;
        h.tenant = str_dup(json_str(it.value, "tenant"));
        h.instance = str_dup(json_str(it.value, "instance"));
        f->holds = xrealloc(f->holds, (f->n_holds + 1) * sizeof f->holds[0]);
        f->holds[f->n_holds++] = h;
    }
}

static bool is_there(struct media *m, const struct media_file *f)
{
    struct stat st;

    return stat(media_path(m, f), &st) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == f->size;
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct loading *l = ctx;
    struct json doc;
    int64_t size, until;

    if (key.n != MEDIA_ID_CHARS || !json_parse(l->json, value, &doc) ||
        !json_as_i64(json_get(doc, "size"), &size) || size < 0 ||
        !json_as_i64(json_get(doc, "until"), &until)) {
        log_warn(NULL, "media: a record cannot be read: id=%.*s", STR_FMT(key));
        return;
    }
    struct media_file *f = xcalloc(1, sizeof *f);
    list_init(&f->link);
    memcpy(f->id, key.p, key.n);
    f->tenant = str_dup(json_str(doc, "tenant"));
    f->type = str_dup(json_str(doc, "type"));
    f->name = str_dup(json_str(doc, "name"));
    f->size = (uint64_t)size;
    f->until_ms = until;
    read_holds(json_get(doc, "held"), f);
    if (!is_there(l->m, f)) {
        buf_add_str(&l->lost, key);
        media_file_free(f);
        return;
    }
    if (l->n == l->cap) {
        l->cap = l->cap != 0 ? l->cap * 2 : 64;
        l->all = xrealloc(l->all, l->cap * sizeof(struct media_file *));
    }
    l->all[l->n++] = f;
}

/* The record of a file that is not there: a crash between the two, or a restored backup. */
static void forget_lost(struct loading *l)
{
    for (size_t at = 0; at < l->lost.n; at += MEDIA_ID_CHARS) {
        struct store_kv del = {.verb = KV_DELETE,
                               .ns = "media",
                               .key = str_make(l->lost.p + at, MEDIA_ID_CHARS)};
        store_put(l->m->env.store, &del, 1, false, NULL, NULL);
    }
}

void media_load(struct media *m, enum bh_err *ret_err)
{
    struct loading l = {.m = m, .json = json_parser_new()};
    int64_t now = clock_wall_ms(m->clock);

    *ret_err = m->env.store->ops->load_records(m->env.store, "media", on_record, &l);
    for (size_t i = 0; i < l.n; i++) {
        struct media_file *f = l.all[i];
        f->charged = f->size > MEDIA_LEAST_CHARGE ? f->size : MEDIA_LEAST_CHARGE;
        if (media_charge(m, str_of(f->tenant), f->charged) != BH_OK)
            f->charged = 0; /* the quota was made smaller: what is there stays its time */
        /* Whether a delivery of it was settled just before we stopped is not known. */
        if (f->n_holds > 0)
            f->until_ms = now + m->env.settings->ttl_ms;
        media_file_add(m, f);
    }
    m->n.refused_quota = 0;
    forget_lost(&l);
    buf_done(&l.lost);
    free(l.all);
    json_parser_free(l.json);
}
