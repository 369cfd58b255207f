/* skills.c - design.  (skills.h has the contract.)
 *
 * A request is one object: the job, copies of the arguments, and the answer.  run.c fills the
 * answer on a thread: it queries the backend, applies the rules and writes the JSON.  The loop only
 * passes the JSON to the callback.  Bad arguments are detected on the loop, before the thread, and
 * answered the same way.
 *
 *      skills_load() -> request_new -> db_jobs_submit ... run(request, conn) ... done -> cb, free
 *
 * The file is long because it has one short function for every request of the contract. */
#include "skills/skills.h"
#include <assert.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/config.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/regex.h"
#include "net/loop.h"
#include "skills/backend.h"
#include "skills/run.h"
#include "store/erasure.h"

/* ---- `skills:` in the configuration ---- */

#define AT(member) offsetof(struct skills_settings, member)

static const struct config_key keys[] = {
    {"skills.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "auto", "auto|sqlite|postgres|filesystem",
     .what = "Where skills are stored: `auto` follows `store.kind`, `sqlite` is one file in "
             "`state_dir`, `postgres` is the shared database, `filesystem` is one readable file "
             "per skill."},
    {"skills.dir", CFG_TEXT, CFG_RESTART, AT(dir),
     .what = "The directory of these files; the default is `state_dir/skills`."},
    {"skills.approval.mode", CFG_CHOICE, CFG_RESTART, AT(approval_mode), "open", "open|secured",
     .what = "`secured`: a skill is Approved only with the operator's signature (`bellhop skill "
             "approve`)."},
    {"skills.approval.public_key", CFG_TEXT, CFG_RESTART, AT(approval_key),
     .what = "The operator's Ed25519 public key: a PEM file, or its text."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct skills_settings *s = settings;

    if (strcmp(s->approval_mode, "secured") == 0 && s->approval_key == NULL)
        return bh_why(ret_why, "skills.approval: mode secured needs public_key");
    if (s->dir != NULL && strcmp(s->kind, "filesystem") != 0)
        return bh_why(ret_why, "skills.dir goes with kind filesystem");
    return true;
}

const char *skills_kind(const struct skills_settings *s, bool shared)
{
    return strcmp(s->kind, "auto") != 0 ? s->kind : shared ? "postgres" : "sqlite";
}

const struct config_section skills_section = {.keys = keys,
                                              .size = sizeof(struct skills_settings),
                                              .check = check};

#define MAX_BAG_BYTES (64u << 10)
#define MAX_TEXT_BYTES (4u << 10) /* author, description */

struct skills {
    struct loop *loop; /* borrowed */
    const struct skill_backend_ops *ops;
    void *ctx;            /* of the backend; owned */
    struct db_jobs *jobs; /* owned */
    struct skill_rules rules;
    struct ed25519_key *key; /* owned; NULL: not secured */
    struct ledger *ledger;   /* borrowed; NULL: no limit on bytes */
    struct db_request_bounds bounds;
    char *path, *dir; /* owned; the spill files go to @dir */
};

static const struct db_request_ops request_ops;

/* ---- opening ---- */

static void on_size(void *ctx, struct str tenant, uint64_t bytes)
{
    struct skills *sk = ctx;

    ledger_note(sk->ledger, LIMIT_SKILL_BYTES, tenant, bytes);
}

static bool open_backend(struct skills *sk, const struct skills_config *cfg, char *ret_why)
{
    static const struct skill_backend_ops *const all[] = {&skill_sqlite_ops, &skill_files_ops,
                                                          &skill_postgres_ops};
    const struct skill_backend_config bc = {.path = cfg->path,
                                            .url = cfg->url,
                                            .rules = &sk->rules,
                                            .default_author = cfg->default_author,
                                            .on_size = on_size,
                                            .on_size_ctx = sk};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(cfg->backend != NULL ? cfg->backend : "sqlite", all[i]->kind) == 0) {
            sk->ops = all[i];
            sk->ctx = sk->ops->create(&bc, ret_why);
            return sk->ctx != NULL;
        }
    bh_why(ret_why, "'%.60s' is no backend for skills: sqlite, filesystem or postgres",
           cfg->backend);
    return false;
}

enum bh_err skills_open(struct loop *loop, const struct skills_config *cfg, struct skills **ret_sk,
                        char *ret_why)
{
    struct skills *sk = xcalloc(1, sizeof *sk);

    *sk = (struct skills){.loop = loop,
                          .ledger = cfg->ledger,
                          .rules.max_body_bytes =
                              cfg->max_body_bytes > 0 ? cfg->max_body_bytes : 1u << 20,
                          .bounds = {cfg->max_answer_bytes > 0 ? cfg->max_answer_bytes : 8u << 20,
                                     cfg->max_file_bytes > 0 ? cfg->max_file_bytes : 1u << 30},
                          .path = xstrdup(cfg->path),
                          .dir = xstrdup(cfg->path)};
    sk->bounds.spill_dir = dirname(sk->dir);
    if (cfg->approval_key != NULL) {
        sk->rules.approval_key = sk->key = ed25519_public(str_of(cfg->approval_key));
        if (sk->key == NULL) {
            snprintf(ret_why, 256, "the approval key is not a PEM of an Ed25519 public key");
            goto fail;
        }
    }
    if (!open_backend(sk, cfg, ret_why))
        goto fail;
    struct db_jobs_config lc = {.name = "skills",
                                .ops = &sk->ops->jobs,
                                .ctx = sk->ctx,
                                .writers = 1,
                                .readers = 1,
                                .max_open = 1,
                                .max_group = sk->ops->max_group,
                                .max_waiting = cfg->max_waiting > 0 ? cfg->max_waiting : 10000};
    sk->jobs = db_jobs_new(loop, &lc);
    if (sk->jobs == NULL) {
        snprintf(ret_why, 256, "cannot start the threads of the skill store");
        goto fail;
    }
    *ret_sk = sk;
    return BH_OK;
fail:
    skills_close(sk);
    return BH_UNAVAILABLE;
}

void skills_close(struct skills *sk)
{
    if (sk == NULL)
        return;
    if (sk->jobs != NULL)
        db_jobs_close(sk->jobs);
    if (sk->ctx != NULL)
        sk->ops->free(sk->ctx);
    ed25519_free(sk->key);
    free(sk->path);
    free(sk->dir);
    free(sk);
}

/* ---- requests ---- */

static struct skills_request *request_new(struct skills *sk, const struct caller *who,
                                          skills_run_f *run, skills_cb *done, void *ctx)
{
    struct skills_request *c = xcalloc(1, sizeof *c);

    *c = (struct skills_request){.ops = sk->ops,
                                 .rules = &sk->rules,
                                 .ledger = sk->ledger,
                                 .run = run,
                                 .done = done,
                                 .ctx = ctx,
                                 .now = clock_wall_ms(loop_clock(sk->loop)) / 1000};
    db_request_init(&c->req, &request_ops, who, &sk->bounds);
    c->req.job.key = STR("skills");
    c->who = (struct caller){.tenant = arena_str(&c->req.arena, who->tenant),
                             .ns = arena_str(&c->req.arena, who->ns.p != NULL ? who->ns : STR("")),
                             .identity = arena_str(&c->req.arena, who->identity),
                             .agent = arena_str(&c->req.arena, who->agent),
                             .attest = who->attest};
    c->at = (struct skill_where){c->who.tenant, c->who.ns};
    return c;
}

static struct skills_request *request_named(struct skills *sk, const struct caller *who,
                                            skills_run_f *run, struct str name, skills_cb *done,
                                            void *ctx)
{
    struct skills_request *c = request_new(sk, who, run, done, ctx);

    c->name = arena_str(&c->req.arena, name);
    return c;
}

static struct skills_request *request_start(struct skills *sk, struct skills_request *c)
{
    db_jobs_submit(sk->jobs, &c->req.job);
    return c;
}

static struct skills_request *request_of(struct db_request *r)
{
    return container_of(r, struct skills_request, req);
}

static void request_free(struct db_request *r)
{
    struct skills_request *c = request_of(r);

    db_request_done(r);
    regex_free(c->pattern);
    skill_next_done(&c->next);
    arena_done(&c->found);
    free(c);
}

static void request_reset(struct db_request *r)
{
    struct skills_request *c = request_of(r);

    c->answer = (struct skills_answer){0};
    c->wrote = c->over = false;
    arena_reset(&c->found);
}

static enum db_job_end request_on_thread(struct db_request *r, void *conn)
{
    struct skills_request *c = request_of(r);

    c->ops->for_job(conn, r->job.write ? NULL : &r->job); /* a write is never cut short */
    enum db_job_end end = c->run(c, conn);
    c->ops->for_job(conn, NULL);
    return end;
}

static void request_too_long(struct db_request *r)
{
    fault_set(&r->fault, FAULT_QUERY,
              "the answer is longer than %llu bytes: ask for less with limit and offset",
              (unsigned long long)(r->spill_dir != NULL ? r->max_file_bytes : r->json.limit));
}

static void request_finished(struct db_request *r)
{
    struct skills_request *c = request_of(r);

    if (c->wrote)
        ledger_note(c->ledger, LIMIT_SKILL_BYTES, c->at.tenant, c->tenant_bytes);
    if (c->over)
        ledger_refuse(c->ledger, LIMIT_SKILL_BYTES);
    c->answer.fault = r->fault; /* borrowed */
    if (r->fault.cls == FAULT_NONE && r->spill.fd >= 0)
        c->answer.file = &r->spill;
    else if (r->fault.cls == FAULT_NONE && r->json.n > 0)
        c->answer.json = buf_str(&r->json);
    c->done(c->ctx, &c->answer);
}

static const struct db_request_ops request_ops = {.store = "the skill store",
                                                  .reset = request_reset,
                                                  .run = request_on_thread,
                                                  .too_long = request_too_long,
                                                  .done = request_finished,
                                                  .free = request_free};

void skills_cancel(struct skills_request **request)
{
    if (*request != NULL)
        db_job_cancel(&(*request)->req.job);
    *request = NULL;
}

/* ---- the requests of the contract ---- */

struct skills_request *skills_load(struct skills *sk, const struct caller *who, struct str name,
                                   struct str version, skills_cb *done, void *ctx)
{
    struct skills_request *c = request_named(sk, who, run_load, name, done, ctx);

    c->version = arena_str(&c->req.arena, version);
    return request_start(sk, c);
}

struct skills_request *skills_metadata(struct skills *sk, const struct caller *who, struct str name,
                                       skills_cb *done, void *ctx)
{
    return request_start(sk, request_named(sk, who, run_metadata, name, done, ctx));
}

struct skills_request *skills_versions(struct skills *sk, const struct caller *who, struct str name,
                                       skills_cb *done, void *ctx)
{
    return request_start(sk, request_named(sk, who, run_versions, name, done, ctx));
}

static void copy_filter(struct skills_request *c, const struct skills_filter *f)
{
    struct str *tags = f->n_tags > 0 ? arena_alloc(&c->req.arena, f->n_tags * sizeof *tags) : NULL;

    c->filter = *f;
    c->filter.type = arena_str(&c->req.arena, f->type);
    c->filter.author = arena_str(&c->req.arena, f->author);
    c->filter.if_none_match = arena_str(&c->req.arena, f->if_none_match);
    for (size_t i = 0; i < f->n_tags; i++)
        tags[i] = arena_str(&c->req.arena, f->tags[i]);
    c->filter.tags = tags;
}

struct skills_request *skills_query(struct skills *sk, const struct caller *who,
                                    const struct skills_filter *f, skills_cb *done, void *ctx)
{
    struct skills_request *c = request_new(sk, who, run_query, done, ctx);
    char why[256];

    copy_filter(c, f);
    if (f->name_pattern.p != NULL) {
        c->pattern = regex_new(f->name_pattern, why);
        if (c->pattern == NULL) {
            fault_set(&c->req.refusal, FAULT_QUERY, "`name_pattern`: %s", why);
            fault_field(&c->req.refusal, "connector_type", STR("skill_store"));
        }
    }
    return request_start(sk, c);
}

struct skills_request *skills_version(struct skills *sk, const struct caller *who, skills_cb *done,
                                      void *ctx)
{
    return request_start(sk, request_new(sk, who, run_token, done, ctx));
}

/* The search of the runtime's own tools: a skill that is run or inlined by its literal name. */
static struct regex *dependents_pattern(struct str name)
{
    struct buf text = BUF_INIT;
    char why[256];

    buf_add_z(&text, "(?:execute_skill\\([^)]*name|inline\\([^)]*skill)\\s*=\\s*\"");
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] == '.' || name.p[i] == '-')
            buf_add_c(&text, '\\');
        buf_add_c(&text, name.p[i]);
    }
    buf_add_z(&text, "\"");
    struct regex *re = regex_new(buf_str(&text), why);
    buf_done(&text);
    return re;
}

struct skills_request *skills_dependents(struct skills *sk, const struct caller *who,
                                         struct str name, skills_cb *done, void *ctx)
{
    struct skills_request *c = request_named(sk, who, run_dependents, name, done, ctx);

    if (skill_name_valid(name))
        c->pattern = dependents_pattern(name);
    return request_start(sk, c);
}

static bool read_text(struct skills_request *c, struct json metadata, const char *key,
                      struct str *ret)
{
    struct json v = json_get(metadata, key);

    if (json_type(v) == JSON_ABSENT || json_type(v) == JSON_NULL)
        return true;
    *ret = arena_str(&c->req.arena, json_as_str(v));
    if (ret->p != NULL && ret->n <= MAX_TEXT_BYTES)
        return true;
    fault_set(&c->req.refusal, FAULT_INVALID, "`metadata.%s` is a text of at most %u bytes", key,
              MAX_TEXT_BYTES);
    return false;
}

static bool read_bag(struct skills_request *c, struct json bag)
{
    struct buf text = {.limit = MAX_BAG_BYTES};
    struct jw w = jw_begin(&text);

    if (json_type(bag) == JSON_ABSENT || json_type(bag) == JSON_NULL)
        return true;
    if (json_is_object(bag))
        jw_value(&w, bag);
    bool ok = json_is_object(bag) && !buf_failed(&text);
    if (ok)
        c->ask.bag = json_count(bag) > 0 ? arena_str(&c->req.arena, buf_str(&text)) : STR("");
    else
        fault_set(&c->req.refusal, FAULT_INVALID,
                  "`metadata.metadata_bag` is an object of at most "
                  "64 KiB");
    buf_done(&text);
    return ok;
}

static bool read_metadata(struct skills_request *c, struct json m)
{
    struct str word = STR_NULL;

    if (json_type(m) == JSON_ABSENT || json_type(m) == JSON_NULL)
        return true;
    if (!json_is_object(m)) {
        fault_set(&c->req.refusal, FAULT_INVALID, "`metadata` is an object");
        return false;
    }
    if (!read_text(c, m, "author", &c->ask.author) || !read_text(c, m, "type", &c->ask.type) ||
        !read_text(c, m, "description", &c->ask.description) || !read_text(c, m, "status", &word) ||
        !read_bag(c, json_get(m, "metadata_bag")))
        return false;
    if (c->ask.type.p != NULL && !str_eq(c->ask.type, STR("data")) &&
        !str_eq(c->ask.type, STR("procedural"))) {
        fault_set(&c->req.refusal, FAULT_INVALID, "`metadata.type` is procedural or data");
        return false;
    }
    c->ask.has_status = word.p != NULL;
    if (!c->ask.has_status || skill_status_parse(word, &c->ask.status))
        return true;
    skill_bad_status(&c->req.refusal, word);
    return false;
}

struct skills_request *skills_store(struct skills *sk, const struct caller *who,
                                    const struct skills_write *w, skills_cb *done, void *ctx)
{
    struct skills_request *c = request_new(sk, who, run_store, done, ctx);

    c->req.job.write = true;
    if (sk->ledger != NULL)
        c->max_bytes = ledger_bounds(sk->ledger, LIMIT_SKILL_BYTES).each;
    c->name = arena_str(&c->req.arena, w->name);
    c->ask = (struct skill_store_ask){.name = c->name,
                                      .only_new = w->only_new,
                                      .force_draft = w->force_draft,
                                      .now = c->now};
    if (w->source.n > sk->rules.max_body_bytes) { /* refused before it is copied */
        char why[80];
        snprintf(why, sizeof why, "the body is longer than %zu bytes", sk->rules.max_body_bytes);
        skill_conflict(&c->req.refusal, w->name, why);
    } else if (!utf8_valid(w->source)) {
        fault_set(&c->req.refusal, FAULT_INVALID, "the body is not UTF-8");
    } else if (!ledger_has_room(sk->ledger, LIMIT_SKILL_BYTES)) {
        fault_set(&c->req.refusal, FAULT_BUSY,
                  "the skills of all tenants have reached their limit (limits.skill_bytes)");
    } else if (read_metadata(c, w->metadata)) {
        c->ask.source = arena_str(&c->req.arena, w->source.p != NULL ? w->source : STR(""));
    }
    return request_start(sk, c);
}

struct skills_request *skills_update_status(struct skills *sk, const struct caller *who,
                                            struct str name, struct str status, skills_cb *done,
                                            void *ctx)
{
    struct skills_request *c = request_named(sk, who, run_update_status, name, done, ctx);

    c->req.job.write = true;
    if (sk->ledger != NULL)
        c->max_bytes = ledger_bounds(sk->ledger, LIMIT_SKILL_BYTES).each;
    if (!skill_status_parse(status, &c->ask.status))
        skill_bad_status(&c->req.refusal, status);
    return request_start(sk, c);
}

struct skills_request *skills_delete(struct skills *sk, const struct caller *who, struct str name,
                                     struct str confirm, bool force, skills_cb *done, void *ctx)
{
    struct skills_request *c = request_named(sk, who, run_delete, name, done, ctx);

    c->req.job.write = true;
    c->confirmed = str_eq(confirm, name);
    if (!force && skill_name_valid(name))
        c->pattern = dependents_pattern(name);
    return request_start(sk, c);
}

/* ---- manifest, capabilities, statistics ---- */

void skills_manifest(const struct skills *sk, struct jw *w)
{
    jw_obj(w);
    jw_kstr(w, "capabilities_version", STR("1"));
    jw_kobj(w, "manifest");
    jw_kstr(w, "kind", str_of(sk->ops->kind));
    jw_kbool(w, "secured", sk->key != NULL);
    jw_kbool(w, "regexp_fallback_active", false);
    jw_ki64(w, "max_body_bytes", (int64_t)sk->rules.max_body_bytes);
    jw_end_obj(w);
    jw_end_obj(w);
}

void skills_stats(const struct skills *sk, struct db_jobs_stats *ret)
{
    db_jobs_stats(sk->jobs, ret);
}

/* ---- erasing ---- */

static void on_tenant_erased(void *ctx, const struct skills_answer *a)
{
    struct erasure *e = ctx;

    erasure_count(e, "skills", a->count);
    if (a->fault.cls != FAULT_NONE)
        erasure_fail(e, "The skill store failed in the middle: ask again.");
    else
        erasure_next(e);
}

/* Deletes, or counts, every skill of the tenant in all namespaces, with its history. */
static void erase_tenant(void *ctx, struct erasure *e)
{
    const struct erase_subject *s = erasure_subject(e);
    const struct caller who = {.tenant = s->tenant};
    struct skills_request *c = request_new(ctx, &who, run_erase, on_tenant_erased, e);

    c->dry = s->dry;
    c->req.job.write = true;
    request_start(ctx, c); /* the handle is void once the store is closed */
}

const struct eraser skills_eraser = {.tenant = erase_tenant};
