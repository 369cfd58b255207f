/* skills.c - design.  (skills.h has the contract.)
 *
 * A call is one object: the lane job, copies of the arguments, and the answer.  call.c fills the
 * answer on a thread: it queries the backend, applies the rules and writes the JSON.  The loop only
 * passes the JSON to the callback.  Bad arguments are detected on the loop, before the thread, and
 * answered the same way.
 *
 *      skills_load() -> call_new -> lanes_submit ... run(call, conn) ... done -> cb, free
 *
 * The file is long because it has one short function for every call of the contract. */
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
#include "skills/call.h"
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
    void *ctx;           /* of the backend; owned */
    struct lanes *lanes; /* owned */
    struct skill_rules rules;
    struct ed25519_key *key; /* owned; NULL: not secured */
    struct ledger *ledger;   /* borrowed; NULL: no limit on bytes */
    size_t max_answer_bytes;
    uint64_t max_file_bytes;
    char *path, *dir;      /* owned */
    const char *spill_dir; /* in @dir */
};

static const struct lane_work call_work;

/* ---- opening ---- */

static bool load_key(struct skills *sk, const char *pem, char *ret_why)
{
    if (pem == NULL)
        return true;
    sk->key = ed25519_public(str_of(pem));
    sk->rules.approval_key = sk->key;
    if (sk->key == NULL)
        snprintf(ret_why, 256, "the approval key is not a PEM of an Ed25519 public key");
    return sk->key != NULL;
}

static void on_size(void *ctx, struct str tenant, uint64_t bytes)
{
    struct skills *sk = ctx;

    ledger_note(sk->ledger, LIMIT_SKILL_BYTES, tenant, bytes);
}

static bool open_backend(struct skills *sk, const struct skills_config *cfg, char *ret_why)
{
    struct str kind = cfg->backend != NULL ? str_of(cfg->backend) : STR("sqlite");
    struct skill_backend_config bc = {.path = cfg->path,
                                      .url = cfg->url,
                                      .rules = &sk->rules,
                                      .default_author = cfg->default_author,
                                      .on_size = on_size,
                                      .on_size_ctx = sk};

    if (str_eq(kind, STR("sqlite"))) {
        sk->ops = &skill_sqlite_ops;
        sk->ctx = skill_sqlite_new(&bc, ret_why);
    } else if (str_eq(kind, STR("filesystem"))) {
        sk->ops = &skill_files_ops;
        sk->ctx = skill_files_new(&bc, ret_why);
    } else if (str_eq(kind, STR("postgres"))) {
        sk->ops = &skill_postgres_ops;
        sk->ctx = skill_postgres_new(&bc, ret_why);
    } else {
        snprintf(ret_why, 256, "'%.60s' is no backend for skills: sqlite, filesystem or postgres",
                 cfg->backend);
    }
    return sk->ctx != NULL;
}

enum bh_err skills_open(struct loop *loop, const struct skills_config *cfg, struct skills **ret_sk,
                        char *ret_why)
{
    struct skills *sk = xcalloc(1, sizeof *sk);

    *sk =
        (struct skills){.loop = loop,
                        .ledger = cfg->ledger,
                        .rules.max_body_bytes =
                            cfg->max_body_bytes > 0 ? cfg->max_body_bytes : 1u << 20,
                        .max_answer_bytes =
                            cfg->max_answer_bytes > 0 ? cfg->max_answer_bytes : 8u << 20,
                        .max_file_bytes = cfg->max_file_bytes > 0 ? cfg->max_file_bytes : 1u << 30,
                        .path = xstrdup(cfg->path),
                        .dir = xstrdup(cfg->path)};
    sk->spill_dir = dirname(sk->dir);
    if (!load_key(sk, cfg->approval_key, ret_why) || !open_backend(sk, cfg, ret_why))
        goto fail;
    struct lanes_config lc = {.name = "skills",
                              .ops = &sk->ops->lanes,
                              .ctx = sk->ctx,
                              .writers = 1,
                              .readers = 1,
                              .max_open = 1,
                              .max_group = sk->ops->max_group,
                              .max_waiting = cfg->max_waiting > 0 ? cfg->max_waiting : 10000};
    sk->lanes = lanes_new(loop, &lc);
    if (sk->lanes == NULL) {
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
    if (sk->lanes != NULL)
        lanes_close(sk->lanes);
    if (sk->ctx != NULL)
        sk->ops->free(sk->ctx);
    ed25519_free(sk->key);
    free(sk->path);
    free(sk->dir);
    free(sk);
}

/* ---- calls ---- */

static struct skills_call *call_new(struct skills *sk, const struct caller *who, call_run_f *run,
                                    skills_cb *done, void *ctx)
{
    struct skills_call *c = xcalloc(1, sizeof *c);

    assert(who->tenant.n > 0);
    *c = (struct skills_call){.job.work = &call_work,
                              .job.key = STR("skills"),
                              .job.payer = lane_payer(who->tenant),
                              .ops = sk->ops,
                              .rules = &sk->rules,
                              .ledger = sk->ledger,
                              .run = run,
                              .done = done,
                              .ctx = ctx,
                              .now = clock_wall_ms(loop_clock(sk->loop)) / 1000};
    c->who = (struct caller){.tenant = arena_str(&c->arena, who->tenant),
                             .ns = arena_str(&c->arena, who->ns.p != NULL ? who->ns : STR("")),
                             .identity = arena_str(&c->arena, who->identity),
                             .agent = arena_str(&c->arena, who->agent),
                             .attest = who->attest};
    c->at = (struct skill_where){c->who.tenant, c->who.ns};
    c->json.limit = sk->max_answer_bytes;
    c->spill = (struct spill)SPILL_INIT;
    c->spill_dir = who->takes_files ? sk->spill_dir : NULL;
    c->max_file_bytes = sk->max_file_bytes;
    if (c->at.ns.n > 0 && !caller_ns_valid(c->at.ns))
        fault_set(&c->refusal, FAULT_INVALID, "a namespace is 1 to 64 of A-Z a-z 0-9 _ . -");
    return c;
}

static struct skills_call *call_named(struct skills *sk, const struct caller *who, call_run_f *run,
                                      struct str name, skills_cb *done, void *ctx)
{
    struct skills_call *c = call_new(sk, who, run, done, ctx);

    c->name = arena_str(&c->arena, name);
    return c;
}

static struct skills_call *call_start(struct skills *sk, struct skills_call *c)
{
    lanes_submit(sk->lanes, &c->job);
    return c;
}

static void call_free(struct skills_call *c)
{
    fault_done(&c->answer.fault);
    fault_done(&c->refusal);
    buf_done(&c->json);
    spill_done(&c->spill);
    regex_free(c->pattern);
    skill_next_done(&c->next);
    arena_done(&c->arena);
    arena_done(&c->found);
    free(c);
}

static void call_reset(struct skills_call *c) /* a group that failed runs its jobs again */
{
    struct fault fault = c->answer.fault;

    fault_done(&fault);
    c->answer = (struct skills_answer){0};
    c->wrote = c->over = false;
    buf_reset(&c->json);
    spill_done(&c->spill);
    arena_reset(&c->found);
}

static enum lane_end call_on_thread(struct lane_job *job, void *conn)
{
    struct skills_call *c = container_of(job, struct skills_call, job);

    call_reset(c);
    if (c->refusal.cls != FAULT_NONE) {
        fault_copy(&c->answer.fault, &c->refusal);
        return LANE_OK;
    }
    c->ops->for_job(conn, job->write ? NULL : job); /* a write is never cut short */
    enum lane_end end = c->run(c, conn);
    c->ops->for_job(conn, NULL);
    if (end == LANE_OK && !call_grown(c)) {
        call_reset(c);
        fault_set(&c->answer.fault, FAULT_QUERY,
                  "the answer is longer than %llu bytes: ask for less with limit and offset",
                  (unsigned long long)(c->spill_dir != NULL ? c->max_file_bytes : c->json.limit));
    } else if (end == LANE_OK && c->spill.fd >= 0 && c->json.n > 0 &&
               !spill_add(&c->spill, c->spill_dir, UINT64_MAX, &c->json)) {
        return LANE_IO;
    }
    return end;
}

static void call_failed(struct lane_job *job, enum bh_err err, const char *why)
{
    struct skills_call *c = container_of(job, struct skills_call, job);

    call_reset(c);
    if (err == BH_BUSY)
        fault_set(&c->answer.fault, FAULT_BUSY, "the skill store: %s", why);
    else if (err == BH_UNKNOWN)
        fault_set(
            &c->answer.fault, FAULT_UNAVAILABLE,
            "the skill store was lost while it wrote, and this may have happened: look before "
            "you do it again (%s)",
            why);
    else
        fault_set(&c->answer.fault, FAULT_UNAVAILABLE, "the skill store cannot do this now: %s",
                  why);
}

static void call_finished(struct lane_job *job)
{
    struct skills_call *c = container_of(job, struct skills_call, job);

    if (c->wrote)
        ledger_note(c->ledger, LIMIT_SKILL_BYTES, c->at.tenant, c->tenant_bytes);
    if (c->over)
        ledger_refuse(c->ledger, LIMIT_SKILL_BYTES);
    if (c->answer.fault.cls == FAULT_NONE && c->spill.fd >= 0)
        c->answer.file = &c->spill;
    else if (c->answer.fault.cls == FAULT_NONE && c->json.n > 0)
        c->answer.json = buf_str(&c->json);
    c->done(c->ctx, &c->answer);
    call_free(c);
}

static void call_dropped(struct lane_job *job)
{
    call_free(container_of(job, struct skills_call, job));
}

static const struct lane_work call_work = {.run = call_on_thread,
                                           .fail = call_failed,
                                           .done = call_finished,
                                           .drop = call_dropped};

void skills_cancel(struct skills_call **call)
{
    if (*call != NULL)
        lane_job_cancel(&(*call)->job);
    *call = NULL;
}

/* ---- the calls of the contract ---- */

struct skills_call *skills_load(struct skills *sk, const struct caller *who, struct str name,
                                struct str version, skills_cb *done, void *ctx)
{
    struct skills_call *c = call_named(sk, who, call_load, name, done, ctx);

    c->version = arena_str(&c->arena, version);
    return call_start(sk, c);
}

struct skills_call *skills_metadata(struct skills *sk, const struct caller *who, struct str name,
                                    skills_cb *done, void *ctx)
{
    return call_start(sk, call_named(sk, who, call_metadata, name, done, ctx));
}

struct skills_call *skills_versions(struct skills *sk, const struct caller *who, struct str name,
                                    skills_cb *done, void *ctx)
{
    return call_start(sk, call_named(sk, who, call_versions, name, done, ctx));
}

static void copy_filter(struct skills_call *c, const struct skills_filter *f)
{
    struct str *tags = f->n_tags > 0 ? arena_alloc(&c->arena, f->n_tags * sizeof *tags) : NULL;

    c->filter = *f;
    c->filter.type = arena_str(&c->arena, f->type);
    c->filter.author = arena_str(&c->arena, f->author);
    c->filter.if_none_match = arena_str(&c->arena, f->if_none_match);
    for (size_t i = 0; i < f->n_tags; i++)
        tags[i] = arena_str(&c->arena, f->tags[i]);
    c->filter.tags = tags;
}

struct skills_call *skills_query(struct skills *sk, const struct caller *who,
                                 const struct skills_filter *f, skills_cb *done, void *ctx)
{
    struct skills_call *c = call_new(sk, who, call_query, done, ctx);
    char why[256];

    copy_filter(c, f);
    if (f->name_pattern.p != NULL) {
        c->pattern = regex_new(f->name_pattern, why);
        if (c->pattern == NULL) {
            fault_set(&c->refusal, FAULT_QUERY, "`name_pattern`: %s", why);
            fault_field(&c->refusal, "connector_type", STR("skill_store"));
        }
    }
    return call_start(sk, c);
}

struct skills_call *skills_version(struct skills *sk, const struct caller *who, skills_cb *done,
                                   void *ctx)
{
    return call_start(sk, call_new(sk, who, call_token, done, ctx));
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

struct skills_call *skills_dependents(struct skills *sk, const struct caller *who, struct str name,
                                      skills_cb *done, void *ctx)
{
    struct skills_call *c = call_named(sk, who, call_dependents, name, done, ctx);

    if (skill_name_valid(name))
        c->pattern = dependents_pattern(name);
    return call_start(sk, c);
}

static bool read_text(struct skills_call *c, struct json metadata, const char *key, struct str *ret)
{
    struct json v = json_get(metadata, key);

    if (json_type(v) == JSON_ABSENT || json_type(v) == JSON_NULL)
        return true;
    *ret = arena_str(&c->arena, json_as_str(v));
    if (ret->p != NULL && ret->n <= MAX_TEXT_BYTES)
        return true;
    fault_set(&c->refusal, FAULT_INVALID, "`metadata.%s` is a text of at most %u bytes", key,
              MAX_TEXT_BYTES);
    return false;
}

static bool read_bag(struct skills_call *c, struct json bag)
{
    struct buf text = {.limit = MAX_BAG_BYTES};
    struct jw w = jw_begin(&text);

    if (json_type(bag) == JSON_ABSENT || json_type(bag) == JSON_NULL)
        return true;
    if (json_is_object(bag))
        jw_value(&w, bag);
    bool ok = json_is_object(bag) && !buf_failed(&text);
    if (ok)
        c->ask.bag = json_count(bag) > 0 ? arena_str(&c->arena, buf_str(&text)) : STR("");
    else
        fault_set(&c->refusal, FAULT_INVALID,
                  "`metadata.metadata_bag` is an object of at most "
                  "64 KiB");
    buf_done(&text);
    return ok;
}

static bool read_metadata(struct skills_call *c, struct json m)
{
    struct str word = STR_NULL;

    if (json_type(m) == JSON_ABSENT || json_type(m) == JSON_NULL)
        return true;
    if (!json_is_object(m)) {
        fault_set(&c->refusal, FAULT_INVALID, "`metadata` is an object");
        return false;
    }
    if (!read_text(c, m, "author", &c->ask.author) || !read_text(c, m, "type", &c->ask.type) ||
        !read_text(c, m, "description", &c->ask.description) || !read_text(c, m, "status", &word) ||
        !read_bag(c, json_get(m, "metadata_bag")))
        return false;
    if (c->ask.type.p != NULL && !str_eq(c->ask.type, STR("data")) &&
        !str_eq(c->ask.type, STR("procedural"))) {
        fault_set(&c->refusal, FAULT_INVALID, "`metadata.type` is procedural or data");
        return false;
    }
    c->ask.has_status = word.p != NULL;
    if (!c->ask.has_status || skill_status_parse(word, &c->ask.status))
        return true;
    call_bad_status(&c->refusal, word);
    return false;
}

struct skills_call *skills_store(struct skills *sk, const struct caller *who,
                                 const struct skills_write *w, skills_cb *done, void *ctx)
{
    struct skills_call *c = call_new(sk, who, call_store, done, ctx);

    c->job.write = true;
    if (sk->ledger != NULL)
        c->max_bytes = ledger_bounds(sk->ledger, LIMIT_SKILL_BYTES).each;
    c->name = arena_str(&c->arena, w->name);
    c->ask = (struct skill_store_ask){.name = c->name,
                                      .only_new = w->only_new,
                                      .force_draft = w->force_draft,
                                      .now = c->now};
    if (w->source.n > sk->rules.max_body_bytes) { /* refused before it is copied */
        char why[80];
        snprintf(why, sizeof why, "the body is longer than %zu bytes", sk->rules.max_body_bytes);
        skill_conflict(&c->refusal, w->name, why);
    } else if (!utf8_valid(w->source)) {
        fault_set(&c->refusal, FAULT_INVALID, "the body is not UTF-8");
    } else if (!ledger_has_room(sk->ledger, LIMIT_SKILL_BYTES)) {
        fault_set(&c->refusal, FAULT_BUSY,
                  "the skills of all tenants have reached their limit (limits.skill_bytes)");
    } else if (read_metadata(c, w->metadata)) {
        c->ask.source = arena_str(&c->arena, w->source.p != NULL ? w->source : STR(""));
    }
    return call_start(sk, c);
}

struct skills_call *skills_update_status(struct skills *sk, const struct caller *who,
                                         struct str name, struct str status, skills_cb *done,
                                         void *ctx)
{
    struct skills_call *c = call_named(sk, who, call_update_status, name, done, ctx);

    c->job.write = true;
    if (sk->ledger != NULL)
        c->max_bytes = ledger_bounds(sk->ledger, LIMIT_SKILL_BYTES).each;
    if (!skill_status_parse(status, &c->ask.status))
        call_bad_status(&c->refusal, status);
    return call_start(sk, c);
}

struct skills_call *skills_delete(struct skills *sk, const struct caller *who, struct str name,
                                  struct str confirm, bool force, skills_cb *done, void *ctx)
{
    struct skills_call *c = call_named(sk, who, call_delete, name, done, ctx);

    c->job.write = true;
    c->confirmed = str_eq(confirm, name);
    if (!force && skill_name_valid(name))
        c->pattern = dependents_pattern(name);
    return call_start(sk, c);
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

void skills_stats(const struct skills *sk, struct lanes_stats *ret)
{
    lanes_stats(sk->lanes, ret);
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
    struct skills_call *c = call_new(ctx, &who, call_erase, on_tenant_erased, e);

    c->dry = s->dry;
    c->job.write = true;
    call_start(ctx, c); /* the handle is void once the store is closed */
}

const struct eraser skills_eraser = {.tenant = erase_tenant};
