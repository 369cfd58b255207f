/* data.c - design.  (data.h has the contract.)
 *
 * A call is one object: the lane job, the arguments and the answer.  The loop parses and checks the
 * arguments; a thread then runs the call and writes the answer.
 *
 * The file is long because it has one short function for every call of the contract. */
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
#include "store/engine.h"

#define PURGE_MAX 500 /* entries deleted in one transaction */

struct data {
    struct loop *loop;   /* borrowed */
    struct lanes *lanes; /* owned */
    char *dir;           /* owned */
    struct database_place place;
    size_t max_content_bytes, max_answer_bytes;
    uint64_t max_file_bytes;
    int64_t max_query_ms;
    struct ledger *ledger; /* borrowed; NULL: no limit */
    bool purging;          /* one at a time */
};

typedef enum lane_end call_run_f(struct data_call *c, struct database *b);

struct data_call {
    struct lane_job job;
    struct data *ds; /* borrowed; used on the loop thread only */
    call_run_f *run;
    uint64_t max_bytes; /* write: the tenant's limit; 0: none */
    data_cb *done;      /* NULL: this is a purge */
    void *ctx;

    struct arena arena; /* holds the arguments */
    struct data_entry *entry;
    struct data_ask *ask;
    uint8_t uuid[DATA_UUID_BYTES];
    int64_t now;          /* seconds */
    struct fault refusal; /* set: the arguments are wrong, and the database is not used */

    struct data_answer answer; /* reset when the job runs again */
    struct buf json;
    struct spill spill;
    bool takes_files;
    struct jw w;
    char id[DATA_UUID_TEXT];
    uint64_t expired; /* expired entries that are not purged yet */
    uint64_t tenant_bytes;
    bool over; /* refused: the tenant is over its limit */
};

static const struct lane_work call_work;

/* ---- opening ---- */

static bool check_dir(const char *dir, char *ret_why)
{
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return bh_why(ret_why, "cannot make %.160s: %s", dir, strerror(errno));
    if (access(dir, R_OK | W_OK | X_OK) != 0)
        return bh_why(ret_why, "cannot use %.160s: %s", dir, strerror(errno));
    return true;
}

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
    if (!check_dir(cfg->dir, ret_why))
        return BH_UNAVAILABLE;
    struct data *ds = xcalloc(1, sizeof *ds);
    *ds = (struct data){.loop = loop,
                        .dir = xstrdup(cfg->dir),
                        .max_content_bytes =
                            cfg->max_content_bytes > 0 ? cfg->max_content_bytes : 1u << 20,
                        .max_answer_bytes =
                            cfg->max_answer_bytes > 0 ? cfg->max_answer_bytes : 8u << 20,
                        .max_file_bytes = cfg->max_file_bytes > 0 ? cfg->max_file_bytes : 1u << 30,
                        .max_query_ms = cfg->max_query_ms > 0 ? cfg->max_query_ms : 10000,
                        .ledger = cfg->ledger};
    ds->place.dir = ds->dir;
    if (cfg->url != NULL && !open_remote(ds, cfg, ret_why)) {
        data_close(ds);
        return BH_UNAVAILABLE;
    }
    /* One writer with PostgreSQL: its lock lets one write at a time anyway. */
    struct lanes_config lc = {.name = "data",
                              .ops = &database_ops,
                              .ctx = &ds->place,
                              .writers = cfg->url != NULL ? 1 : 2,
                              .readers = 2,
                              .max_open = cfg->max_open > 0 ? cfg->max_open : 16,
                              .max_waiting = cfg->max_waiting > 0 ? cfg->max_waiting : 10000};
    ds->lanes = lanes_new(loop, &lc);
    if (ds->lanes == NULL) {
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
    if (ds->lanes != NULL)
        lanes_close(ds->lanes);
    remote_free(ds->place.remote);
    free(ds->dir);
    free(ds);
}

/* ---- calls ---- */

static struct data_call *call_new(struct data *ds, const struct caller *who, call_run_f *run,
                                  data_cb *done, void *ctx)
{
    struct data_call *c = xcalloc(1, sizeof *c);
    struct buf key = BUF_INIT;

    assert(who->tenant.n > 0);
    *c = (struct data_call){.job.work = &call_work,
                            .job.payer = lane_payer(who->tenant),
                            .ds = ds,
                            .run = run,
                            .done = done,
                            .ctx = ctx,
                            .now = clock_wall_ms(loop_clock(ds->loop)) / 1000};
    database_key(who->tenant, who->ns, &key);
    c->job.key = arena_str(&c->arena, buf_str(&key));
    c->json.limit = ds->max_answer_bytes;
    c->spill = (struct spill)SPILL_INIT;
    c->takes_files = who->takes_files;
    if (who->ns.n > 0 && !caller_ns_valid(who->ns))
        fault_set(&c->refusal, FAULT_INVALID, "a namespace is 1 to 64 of A-Z a-z 0-9 _ . -");
    buf_done(&key);
    return c;
}

static struct data_call *call_start(struct data_call *c)
{
    lanes_submit(c->ds->lanes, &c->job);
    return c;
}

static void call_free(struct data_call *c)
{
    fault_done(&c->answer.fault);
    fault_done(&c->refusal);
    buf_done(&c->json);
    spill_done(&c->spill);
    arena_done(&c->arena);
    free(c);
}

static void call_reset(struct data_call *c)
{
    struct fault fault = c->answer.fault;

    fault_done(&fault);
    c->answer = (struct data_answer){0};
    buf_reset(&c->json);
    spill_done(&c->spill);
    c->w = jw_begin(&c->json);
}

/* Call after appending to the answer.  Moves a long answer to the spill file.  False: too long. */
static bool call_grown(struct data_call *c)
{
    if (!c->takes_files || c->json.n < SPILL_BYTES || buf_failed(&c->json))
        return !buf_failed(&c->json);
    if (spill_add(&c->spill, c->ds->dir, c->ds->max_file_bytes, &c->json))
        return true;
    c->json.failed = true; /* as too long as one that does not fit into memory */
    return false;
}

static enum lane_end call_on_thread(struct lane_job *job, void *conn)
{
    struct data_call *c = container_of(job, struct data_call, job);

    call_reset(c);
    if (c->refusal.cls != FAULT_NONE) {
        fault_copy(&c->answer.fault, &c->refusal);
        return LANE_OK;
    }
    if (database_is_behind(conn))
        return LANE_ASK_WRITER;
    database_for_job(conn, job->write ? NULL : job); /* a write is never cut short */
    enum lane_end end = c->run(c, conn);
    database_for_job(conn, NULL);
    if (job->write)
        c->tenant_bytes = database_tenant_bytes(conn);
    if (end == LANE_OK && !call_grown(c)) {
        call_reset(c);
        data_query_error(&c->answer.fault, "the answer is too long: ask for less with limit");
    } else if (end == LANE_OK && c->spill.fd >= 0 && c->json.n > 0 &&
               !spill_add(&c->spill, c->ds->dir, UINT64_MAX, &c->json)) {
        return LANE_IO;
    }
    return end;
}

static void call_failed(struct lane_job *job, enum bh_err err, const char *why)
{
    struct data_call *c = container_of(job, struct data_call, job);

    call_reset(c);
    if (err == BH_BUSY)
        fault_set(&c->answer.fault, FAULT_BUSY, "the data store: %s", why);
    else if (err == BH_UNKNOWN)
        fault_set(&c->answer.fault, FAULT_UNAVAILABLE,
                  "the data store was lost while it wrote, and this may have happened: look before "
                  "you do it again (%s)",
                  why);
    else
        fault_set(&c->answer.fault, FAULT_UNAVAILABLE, "the data store cannot do this now: %s",
                  why);
}

static void call_dropped(struct lane_job *job)
{
    call_free(container_of(job, struct data_call, job));
}

/* ---- purging expired entries ---- */

static enum lane_end run_purge(struct data_call *c, struct database *b)
{
    bool more;

    if (!database_purge(b, c->now, PURGE_MAX, &more))
        return LANE_IO;
    c->expired = more;
    return LANE_OK;
}

/* A query found expired entries in this store. */
static void start_purge(struct data *ds, struct str key)
{
    if (ds->purging)
        return;
    struct data_call *c = xcalloc(1, sizeof *c);
    *c = (struct data_call){.job = {.work = &call_work, .write = true},
                            .ds = ds,
                            .run = run_purge,
                            .spill = SPILL_INIT,
                            .now = clock_wall_ms(loop_clock(ds->loop)) / 1000};
    c->job.key = arena_str(&c->arena, key);
    ds->purging = true;
    call_start(c);
}

/* By the name of its folder. */
static void note_size(const struct data_call *c)
{
    struct str rest = c->job.key, tenant;

    if (c->tenant_bytes != 0 && str_split(&rest, '/', &tenant))
        ledger_note(c->ds->ledger, LIMIT_DATA_BYTES, tenant, c->tenant_bytes);
    if (c->over)
        ledger_refuse(c->ds->ledger, LIMIT_DATA_BYTES);
}

static void call_finished(struct lane_job *job)
{
    struct data_call *c = container_of(job, struct data_call, job);

    note_size(c);
    if (c->done == NULL)
        c->ds->purging = false;
    if (c->expired > 0 && c->answer.fault.cls == FAULT_NONE)
        start_purge(c->ds, c->job.key);
    if (c->answer.fault.cls == FAULT_NONE && c->spill.fd >= 0)
        c->answer.file = &c->spill;
    else if (c->answer.fault.cls == FAULT_NONE)
        c->answer.json = buf_str(&c->json);
    if (c->done != NULL)
        c->done(c->ctx, &c->answer);
    call_free(c);
}

static const struct lane_work call_work = {.run = call_on_thread,
                                           .fail = call_failed,
                                           .done = call_finished,
                                           .drop = call_dropped};

void data_cancel(struct data_call **call)
{
    if (*call != NULL)
        lane_job_cancel(&(*call)->job);
    *call = NULL;
}

/* ---- write ---- */

static enum lane_end run_write(struct data_call *c, struct database *b)
{
    const struct data_entry *e = c->entry;
    struct data_found f = {.uuid = e->uuid,
                           .content = e->content,
                           .extra = e->extra,
                           .created_at = e->created_at};

    c->over = c->max_bytes != 0 && database_tenant_bytes(b) >= c->max_bytes;
    if (c->over) {
        fault_set(&c->answer.fault, FAULT_BUSY,
                  "the data of this tenant has reached its limit (limits.data_bytes_per_tenant)");
        return LANE_OK;
    }
    if (!database_write(b, e))
        return LANE_IO;
    data_found_json(&f, &c->w);
    c->answer.id = str_of(c->id);
    c->answer.created_at = e->created_at;
    return LANE_OK;
}

struct data_call *data_write(struct data *ds, const struct caller *who, struct json entry,
                             data_cb *done, void *ctx)
{
    struct data_call *c = call_new(ds, who, run_write, done, ctx);

    c->job.write = true;
    if (ds->ledger != NULL)
        c->max_bytes = ledger_bounds(ds->ledger, LIMIT_DATA_BYTES).each;
    c->entry = arena_alloc(&c->arena, sizeof *c->entry);
    if (c->refusal.cls == FAULT_NONE && !ledger_has_room(ds->ledger, LIMIT_DATA_BYTES)) {
        fault_set(&c->refusal, FAULT_BUSY,
                  "the data of all tenants has reached its limit (limits.data_bytes)");
        start_purge(ds, c->job.key); /* expired entries may make room */
    }
    if (c->refusal.cls == FAULT_NONE)
        data_entry_read(entry, who, ds->max_content_bytes, &c->arena, c->entry, &c->refusal);
    c->entry->created_at = c->now;
    data_uuid_make(c->entry->uuid);
    data_uuid_text(c->entry->uuid, c->id);
    return call_start(c);
}

/* ---- query and get ---- */

static bool on_found(void *ctx, const struct data_found *f)
{
    struct data_call *c = ctx;

    data_found_json(f, &c->w);
    c->answer.count++;
    return call_grown(c);
}

static enum lane_end ended(struct data_call *c, struct database *b, enum data_end end)
{
    if (end == DATA_BAD_SYNTAX) {
        call_reset(c);
        data_query_error(&c->answer.fault, database_problem(b));
        return LANE_OK;
    }
    if (end == DATA_FAILED && lane_job_is_late(&c->job)) {
        call_reset(c);
        fault_set(&c->answer.fault, FAULT_TIMEOUT, "Operation timed out after %lldms",
                  (long long)c->ds->max_query_ms);
        fault_field(&c->answer.fault, "connector_type", STR("data_store"));
        fault_field_i64(&c->answer.fault, "timeout_ms", c->ds->max_query_ms);
        return LANE_OK;
    }
    return end == DATA_OK ? LANE_OK : LANE_IO;
}

static enum lane_end run_query(struct data_call *c, struct database *b)
{
    if (lane_job_is_late(&c->job)) /* it waited too long */
        return ended(c, b, DATA_FAILED);
    jw_arr(&c->w);
    enum data_end end = database_query(b, c->ask, c->now, on_found, c, &c->expired);
    jw_end_arr(&c->w);
    return ended(c, b, end);
}

struct data_call *data_query(struct data *ds, const struct caller *who, struct json filters,
                             data_cb *done, void *ctx)
{
    struct data_call *c = call_new(ds, who, run_query, done, ctx);

    c->ask = arena_alloc(&c->arena, sizeof *c->ask);
    c->job.deadline_us = thread_now_us() + ds->max_query_ms * 1000;
    if (c->refusal.cls == FAULT_NONE)
        data_ask_read(filters, &c->arena, c->ask, &c->refusal);
    return call_start(c);
}

static enum lane_end run_get(struct data_call *c, struct database *b)
{
    enum data_end end = database_get(b, c->uuid, c->now, on_found, c);

    if (end == DATA_OK && c->answer.count == 0)
        jw_null(&c->w);
    return ended(c, b, end);
}

static enum lane_end run_miss(struct data_call *c, struct database *b)
{
    jw_null(&c->w);
    return LANE_OK;
}

struct data_call *data_get(struct data *ds, const struct caller *who, struct str id, data_cb *done,
                           void *ctx)
{
    struct data_call *c = call_new(ds, who, run_get, done, ctx);

    if (!data_uuid_parse(id, c->uuid))
        c->run = run_miss; /* no entry can have such an id */
    return call_start(c);
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

void data_stats(const struct data *ds, struct lanes_stats *ret)
{
    lanes_stats(ds->lanes, ret);
}

/* ---- erasing ---- */

static void note_namespace(struct erasure *e, struct str ns)
{
    erasure_put(e, ns);
    erasure_count(e, "data", 1);
}

static enum lane_end run_clear(struct data_call *c, struct database *b)
{
    return database_clear(b) ? LANE_OK : LANE_IO;
}

/* Deletes every entry of the caller's store; the empty file stays.  No JSON. */
static struct data_call *clear(struct data *ds, const struct caller *who, data_cb *done, void *ctx)
{
    struct data_call *c = call_new(ds, who, run_clear, done, ctx);

    c->job.write = true;
    return call_start(c);
}

/* @name: of a store, as in database_key(). */
static void note_store(struct erasure *e, struct str name)
{
    struct buf ns = BUF_INIT;

    percent_decode(&ns, str_starts(name, STR("@")) ? str_skip(name, 1) : STR(""));
    note_namespace(e, buf_str(&ns));
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
    struct data_call *c = clear(erasure_ctx(e), &who, on_tenant_cleared, e);
    (void)c; /* void once the store is closed */
}

static bool on_name(void *ctx, struct str name)
{
    jw_str(&((struct data_call *)ctx)->w, name);
    return true;
}

/* The names of the tenant's stores in PostgreSQL, as a list. */
static enum lane_end run_names(struct data_call *c, struct database *b)
{
    jw_arr(&c->w);
    bool ok = database_names(b, on_name, c);
    jw_end_arr(&c->w);
    return ok ? LANE_OK : LANE_IO;
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
    struct data_call *c = call_new(ds, &who, run_names, on_names, e);
    c->job.write = true; /* the writer has the line to PostgreSQL */
    call_start(c);
}

const struct eraser data_eraser = {.tenant = erase_tenant};
