/* data.c - design.  (data.h has the contract.)
 *
 * A request is one object: the job, the arguments and the answer.  The loop parses and checks the
 * arguments; a thread then runs the request and writes the answer.
 *
 * The file is long because it has one short function for every request of the contract. */
#include "data/data.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/map.h"
#include "base/rand.h"
#include "data/database.h"
#include "data/remote.h"
#include "net/loop.h"
#include "store/erasure.h"
#include "store/request.h"
#include "store/engine.h"

#define PURGE_MAX 500 /* entries deleted in one transaction */

struct data {
    struct loop *loop;    /* borrowed */
    struct db_jobs *jobs; /* owned */
    char *dir;            /* owned */
    struct database_location place;
    struct db_request_bounds bounds;
    size_t max_content_bytes;
    int64_t max_query_ms;
    struct ledger *ledger; /* borrowed; NULL: no limit */
    bool purging;          /* one at a time */
};

typedef enum db_job_end data_run_f(struct data_request *c, struct database *b);

struct data_request {
    struct db_request req; /* first */
    struct data *ds;       /* borrowed; used on the loop thread only */
    data_run_f *run;
    uint64_t max_bytes; /* write: the tenant's limit; 0: none */
    data_cb *done;      /* NULL: this is a purge */
    void *ctx;

    struct data_entry *entry;
    struct data_ask *ask;
    uint8_t uuid[DATA_UUID_BYTES];
    int64_t now; /* seconds */

    struct data_answer answer; /* reset when the request runs again */
    struct jw w;
    char id[DATA_UUID_TEXT];
    uint64_t expired; /* expired entries that are not purged yet */
    uint64_t tenant_bytes;
    bool over; /* refused: the tenant is over its limit */
};

static const struct db_request_ops request_ops;

/* ---- opening ---- */

/* Reports the bytes that each tenant uses at start-up; a tenant has one directory. */
static void note_folders(struct data *ds)
{
    DIR *d = opendir(ds->dir);
    struct buf path = BUF_INIT;

    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        buf_reset(&path);
        buf_printf(&path, "%s/%s/x", ds->dir, e->d_name);
        ledger_note(ds->ledger, LIMIT_DATA_BYTES, str_of(e->d_name),
                    file_folder_bytes(buf_z(&path)));
    }
    if (d != NULL)
        closedir(d);
    buf_done(&path);
}

struct folders { /* those that PostgreSQL has entries of */
    struct data *ds;
    struct map names;
    struct arena arena;
};

static void on_folder(void *ctx, struct str folder, uint64_t bytes)
{
    struct folders *f = ctx;

    map_put(&f->names, arena_str(&f->arena, folder), f);
    ledger_note(f->ds->ledger, LIMIT_DATA_BYTES, folder, bytes);
}

static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    struct buf file = BUF_INIT;

    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        buf_reset(&file);
        buf_printf(&file, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlink(buf_z(&file));
    }
    if (d != NULL)
        closedir(d);
    rmdir(path);
    buf_done(&file);
}

/* Removes the files of tenants that were erased while another node served. */
static void remove_erased(struct folders *f)
{
    DIR *d = opendir(f->ds->dir);
    struct buf path = BUF_INIT;

    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        buf_reset(&path);
        buf_printf(&path, "%s/%s", f->ds->dir, e->d_name);
        if (e->d_name[0] != '.' && map_get(&f->names, str_of(e->d_name)) == NULL)
            remove_folder(buf_z(&path));
    }
    if (d != NULL)
        closedir(d);
    buf_done(&path);
}

static bool open_remote(struct data *ds, const struct data_config *cfg, char *ret_why)
{
    struct rand r = RAND_SYSTEM;
    struct folders f = {.ds = ds};
    bool ok = remote_prepare(cfg->url, cfg->epoch, on_folder, &f, ret_why);

    if (ok) {
        remove_erased(&f);
        rand_bytes(&r, &ds->place.session, sizeof ds->place.session);
        ds->place.session >>= 1; /* SQLite's numbers have a sign */
        ds->place.remote = remote_new(cfg->url, cfg->epoch);
    }
    map_done(&f.names);
    arena_done(&f.arena);
    return ok;
}

enum bh_err data_open(struct loop *loop, const struct data_config *cfg, struct data **ret_ds,
                      char *ret_why)
{
    if (mkdir(cfg->dir, 0700) != 0 && errno != EEXIST)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "cannot make %.160s: %s", cfg->dir,
                          strerror(errno));
    if (access(cfg->dir, R_OK | W_OK | X_OK) != 0)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "cannot use %.160s: %s", cfg->dir,
                          strerror(errno));
    struct data *ds = xcalloc(1, sizeof *ds);
    *ds = (struct data){.loop = loop,
                        .dir = xstrdup(cfg->dir),
                        .max_content_bytes =
                            cfg->max_content_bytes > 0 ? cfg->max_content_bytes : 1u << 20,
                        .bounds = {cfg->max_answer_bytes > 0 ? cfg->max_answer_bytes : 8u << 20,
                                   cfg->max_file_bytes > 0 ? cfg->max_file_bytes : 1u << 30},
                        .max_query_ms = cfg->max_query_ms > 0 ? cfg->max_query_ms : 10000,
                        .ledger = cfg->ledger};
    ds->place.dir = ds->bounds.spill_dir = ds->dir;
    if (cfg->url != NULL && !open_remote(ds, cfg, ret_why)) {
        data_close(ds);
        return BH_UNAVAILABLE;
    }
    /* One writer with PostgreSQL: its lock lets one write at a time anyway. */
    struct db_jobs_config lc = {.name = "data",
                                .ops = &database_ops,
                                .ctx = &ds->place,
                                .writers = cfg->url != NULL ? 1 : 2,
                                .readers = 2,
                                .max_open = cfg->max_open > 0 ? cfg->max_open : 16,
                                .max_waiting = cfg->max_waiting > 0 ? cfg->max_waiting : 10000};
    ds->jobs = db_jobs_new(loop, &lc);
    if (ds->jobs == NULL) {
        snprintf(ret_why, 256, "cannot start the threads of the data store");
        data_close(ds);
        return BH_UNAVAILABLE;
    }
    if (cfg->url == NULL)
        note_folders(ds);
    *ret_ds = ds;
    return BH_OK;
}

void data_close(struct data *ds)
{
    if (ds == NULL)
        return;
    if (ds->jobs != NULL)
        db_jobs_close(ds->jobs);
    remote_free(ds->place.remote);
    free(ds->dir);
    free(ds);
}

/* ---- requests ---- */

static struct data_request *request_new(struct data *ds, const struct caller *who, data_run_f *run,
                                        data_cb *done, void *ctx)
{
    struct data_request *c = xcalloc(1, sizeof *c);
    BUF_LOCAL key = BUF_INIT;

    *c = (struct data_request){.ds = ds,
                               .run = run,
                               .done = done,
                               .ctx = ctx,
                               .now = clock_wall_ms(loop_clock(ds->loop)) / 1000};
    db_request_init(&c->req, &request_ops, who, &ds->bounds);
    database_key(who->tenant, who->ns, &key);
    c->req.job.key = arena_str(&c->req.arena, buf_str(&key));
    return c;
}

static struct data_request *request_start(struct data_request *c)
{
    db_jobs_submit(c->ds->jobs, &c->req.job);
    return c;
}

static struct data_request *request_of(struct db_request *r)
{
    return container_of(r, struct data_request, req);
}

static void request_free(struct db_request *r)
{
    db_request_done(r);
    free(request_of(r));
}

static void request_reset(struct db_request *r)
{
    request_of(r)->answer = (struct data_answer){0};
    request_of(r)->w = jw_begin(&r->json);
}

static enum db_job_end request_on_thread(struct db_request *r, void *conn)
{
    struct data_request *c = request_of(r);

    if (database_is_behind(conn))
        return DB_JOB_ASK_WRITER;
    database_for_job(conn, r->job.write ? NULL : &r->job); /* a write is never cut short */
    enum db_job_end end = c->run(c, conn);
    database_for_job(conn, NULL);
    if (r->job.write)
        c->tenant_bytes = database_tenant_bytes(conn);
    return end;
}

static void request_too_long(struct db_request *r)
{
    data_query_error(&r->fault, "the answer is too long: ask for less with limit");
}

/* ---- purging expired entries ---- */

static enum db_job_end run_purge(struct data_request *c, struct database *b)
{
    bool more;

    if (!database_purge(b, c->now, PURGE_MAX, &more))
        return DB_JOB_IO;
    c->expired = more;
    return DB_JOB_OK;
}

/* A query found expired entries in this store. */
static void start_purge(struct data *ds, struct str key)
{
    if (ds->purging)
        return;
    struct data_request *c = xcalloc(1, sizeof *c);
    const struct caller house = {.tenant = STR("-")};

    *c = (struct data_request){.ds = ds,
                               .run = run_purge,
                               .now = clock_wall_ms(loop_clock(ds->loop)) / 1000};
    db_request_init(&c->req, &request_ops, &house, &ds->bounds);
    c->req.job.payer = 0;
    c->req.job.write = true;
    c->req.job.key = arena_str(&c->req.arena, key);
    ds->purging = true;
    request_start(c);
}

static void request_finished(struct db_request *r)
{
    struct data_request *c = request_of(r);
    struct str rest = r->job.key, tenant; /* by the name of its folder */

    if (c->tenant_bytes != 0 && str_split(&rest, '/', &tenant))
        ledger_note(c->ds->ledger, LIMIT_DATA_BYTES, tenant, c->tenant_bytes);
    if (c->over)
        ledger_refuse(c->ds->ledger, LIMIT_DATA_BYTES);
    if (c->done == NULL)
        c->ds->purging = false;
    if (c->expired > 0 && r->fault.cls == FAULT_NONE)
        start_purge(c->ds, r->job.key);
    c->answer.fault = r->fault; /* borrowed */
    if (r->fault.cls == FAULT_NONE && r->spill.fd >= 0)
        c->answer.file = &r->spill;
    else if (r->fault.cls == FAULT_NONE)
        c->answer.json = buf_str(&r->json);
    if (c->done != NULL)
        c->done(c->ctx, &c->answer);
}

static const struct db_request_ops request_ops = {.store = "the data store",
                                                  .reset = request_reset,
                                                  .run = request_on_thread,
                                                  .too_long = request_too_long,
                                                  .done = request_finished,
                                                  .free = request_free};

void data_cancel(struct data_request **request)
{
    if (*request != NULL)
        db_job_cancel(&(*request)->req.job);
    *request = NULL;
}

/* ---- write ---- */

static enum db_job_end run_write(struct data_request *c, struct database *b)
{
    const struct data_entry *e = c->entry;
    struct data_found f = {.uuid = e->uuid,
                           .content = e->content,
                           .extra = e->extra,
                           .created_at = e->created_at};

    c->over = c->max_bytes != 0 && database_tenant_bytes(b) >= c->max_bytes;
    if (c->over) {
        fault_set(&c->req.fault, FAULT_BUSY,
                  "the data of this tenant has reached its limit (limits.data_bytes_per_tenant)");
        return DB_JOB_OK;
    }
    if (!database_write(b, e))
        return DB_JOB_IO;
    data_found_json(&f, &c->w);
    c->answer.id = str_of(c->id);
    c->answer.created_at = e->created_at;
    return DB_JOB_OK;
}

struct data_request *data_write(struct data *ds, const struct caller *who, struct json entry,
                                data_cb *done, void *ctx)
{
    struct data_request *c = request_new(ds, who, run_write, done, ctx);

    c->req.job.write = true;
    if (ds->ledger != NULL)
        c->max_bytes = ledger_bounds(ds->ledger, LIMIT_DATA_BYTES).each;
    c->entry = arena_alloc(&c->req.arena, sizeof *c->entry);
    if (c->req.refusal.cls == FAULT_NONE && !ledger_has_room(ds->ledger, LIMIT_DATA_BYTES)) {
        fault_set(&c->req.refusal, FAULT_BUSY,
                  "the data of all tenants has reached its limit (limits.data_bytes)");
        start_purge(ds, c->req.job.key); /* expired entries may make room */
    }
    if (c->req.refusal.cls == FAULT_NONE)
        data_entry_read(entry, who, ds->max_content_bytes, &c->req.arena, c->entry,
                        &c->req.refusal);
    c->entry->created_at = c->now;
    data_uuid_make(c->entry->uuid);
    data_uuid_text(c->entry->uuid, c->id);
    return request_start(c);
}

/* ---- query and get ---- */

static bool on_found(void *ctx, const struct data_found *f)
{
    struct data_request *c = ctx;

    data_found_json(f, &c->w);
    c->answer.count++;
    return db_request_grown(&c->req);
}

static enum db_job_end ended(struct data_request *c, struct database *b, enum data_end end)
{
    if (end == DATA_BAD_SYNTAX) {
        db_request_reset(&c->req);
        data_query_error(&c->req.fault, database_problem(b));
        return DB_JOB_OK;
    }
    if (end == DATA_FAILED && db_job_is_late(&c->req.job)) {
        db_request_reset(&c->req);
        fault_set(&c->req.fault, FAULT_TIMEOUT, "Operation timed out after %lldms",
                  (long long)c->ds->max_query_ms);
        fault_field(&c->req.fault, "connector_type", STR("data_store"));
        fault_field_i64(&c->req.fault, "timeout_ms", c->ds->max_query_ms);
        return DB_JOB_OK;
    }
    return end == DATA_OK ? DB_JOB_OK : DB_JOB_IO;
}

static enum db_job_end run_query(struct data_request *c, struct database *b)
{
    if (db_job_is_late(&c->req.job)) /* it waited too long */
        return ended(c, b, DATA_FAILED);
    jw_arr(&c->w);
    enum data_end end = database_query(b, c->ask, c->now, on_found, c, &c->expired);
    jw_end_arr(&c->w);
    return ended(c, b, end);
}

struct data_request *data_query(struct data *ds, const struct caller *who, struct json filters,
                                data_cb *done, void *ctx)
{
    struct data_request *c = request_new(ds, who, run_query, done, ctx);

    c->ask = arena_alloc(&c->req.arena, sizeof *c->ask);
    c->req.job.deadline_us = thread_now_us() + ds->max_query_ms * 1000;
    if (c->req.refusal.cls == FAULT_NONE)
        data_ask_read(filters, &c->req.arena, c->ask, &c->req.refusal);
    return request_start(c);
}

static enum db_job_end run_get(struct data_request *c, struct database *b)
{
    enum data_end end = database_get(b, c->uuid, c->now, on_found, c);

    if (end == DATA_OK && c->answer.count == 0)
        jw_null(&c->w);
    return ended(c, b, end);
}

static enum db_job_end run_miss(struct data_request *c, struct database *b)
{
    jw_null(&c->w);
    return DB_JOB_OK;
}

struct data_request *data_get(struct data *ds, const struct caller *who, struct str id,
                              data_cb *done, void *ctx)
{
    struct data_request *c = request_new(ds, who, run_get, done, ctx);

    if (!data_uuid_parse(id, c->uuid))
        c->run = run_miss; /* no entry can have such an id */
    return request_start(c);
}

/* ---- manifest, capabilities, statistics ---- */

void data_manifest(struct jw *w)
{
    jw_obj(w);
    jw_kstr(w, "capabilities_version", STR("1"));
    jw_kobj(w, "manifest");
    jw_kstr(w, "kind", STR("sqlite-fts"));
    jw_kraw(w, "supported_modes", STR("[\"fts\"]"));
    jw_karr(w, "supported_filters");
    for (size_t i = 0; i < N_DATA_FIELDS; i++)
        jw_str(w, str_of(data_fields[i].name));
    jw_end_arr(w);
    jw_kstr(w, "score_range", STR("unbounded"));
    jw_kbool(w, "regexp_fallback_active", false);
    jw_end_obj(w);
    jw_end_obj(w);
}

void data_stats(const struct data *ds, struct db_jobs_stats *ret)
{
    db_jobs_stats(ds->jobs, ret);
}

/* ---- erasing ---- */

static enum db_job_end run_clear(struct data_request *c, struct database *b)
{
    return database_clear(b) ? DB_JOB_OK : DB_JOB_IO;
}

/* @name: of a store, as in database_key(). */
static void note_store(struct erasure *e, struct str name)
{
    struct buf ns = BUF_INIT;

    percent_decode(&ns, str_starts(name, STR("@")) ? str_skip(name, 1) : STR(""));
    erasure_put(e, buf_str(&ns));
    erasure_count(e, "data", 1);
    buf_done(&ns);
}

/* Notes the namespaces in which the tenant has a file; "" is the unnamed one. */
static void note_files(const struct data *ds, struct str tenant, struct erasure *e)
{
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s/", ds->dir);
    file_name_add(&path, tenant);
    DIR *d = opendir(buf_z(&path));
    for (struct dirent *file; d != NULL && (file = readdir(d)) != NULL;) {
        struct str name = str_of(file->d_name);
        if (str_ends(name, STR(".db")))
            note_store(e, str_make(name.p, name.n - 3));
    }
    if (d != NULL)
        closedir(d);
    buf_done(&path);
}

static void clear_next(struct erasure *e);

static void on_tenant_cleared(void *ctx, const struct data_answer *a)
{
    struct erasure *e = ctx;

    if (a->fault.cls == FAULT_NONE)
        clear_next(e);
    else
        erasure_fail(e, "The data store failed in the middle: ask again.");
}

static void clear_next(struct erasure *e)
{
    struct caller who = {.tenant = erasure_subject(e)->tenant};

    if (erasure_subject(e)->dry || !erasure_take(e, &who.ns)) {
        erasure_next(e);
        return;
    }
    /* Deletes every entry; the empty file stays. */
    struct data_request *c = request_new(erasure_ctx(e), &who, run_clear, on_tenant_cleared, e);
    c->req.job.write = true;
    request_start(c);
}

static bool on_name(void *ctx, struct str name)
{
    jw_str(&((struct data_request *)ctx)->w, name);
    return true;
}

/* The names of the tenant's stores in PostgreSQL, as a list. */
static enum db_job_end run_names(struct data_request *c, struct database *b)
{
    jw_arr(&c->w);
    bool ok = database_names(b, on_name, c);
    jw_end_arr(&c->w);
    return ok ? DB_JOB_OK : DB_JOB_IO;
}

static void on_names(void *ctx, const struct data_answer *a)
{
    struct erasure *e = ctx;
    struct json_parser *p = json_parser_new();
    struct json names = {0};

    if (a->fault.cls == FAULT_NONE && json_parse(p, a->json, &names)) {
        for (struct json_iter it = {0}; json_next(names, &it);)
            note_store(e, json_as_str(it.value));
        clear_next(e);
    } else {
        erasure_fail(e, "The data store did not answer: ask again.");
    }
    json_parser_free(p);
}

static void erase_tenant(void *ctx, struct erasure *e)
{
    struct caller who = {.tenant = erasure_subject(e)->tenant};
    struct data *ds = ctx;

    erasure_count(e, "data", 0);
    if (ds->place.remote == NULL) {
        note_files(ds, who.tenant, e);
        clear_next(e);
        return;
    }
    struct data_request *c = request_new(ds, &who, run_names, on_names, e);
    c->req.job.write = true; /* the writer has the line to PostgreSQL */
    request_start(c);
}

const struct eraser data_eraser = {.tenant = erase_tenant};
