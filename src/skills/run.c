/* run.c - the requests of the skill store, as they run on a thread.  (skills.h has the
 * contract.) */
#include "skills/run.h"
#include "base/regex.h"

void skill_bad_status(struct fault *f, struct str word)
{
    fault_set(f, FAULT_INVALID,
              "status must be one of \"Draft\", \"Approved\", \"Disabled\"; got "
              "\"%.*s\"",
              (int)(word.n < 60 ? word.n : 60), word.p != NULL ? word.p : "");
}

/* Not found, failed or for the writer.  Never called with SKILL_FOUND. */
static enum db_job_end give_up(struct skills_request *c, enum skill_found found)
{
    if (found == SKILL_LATER)
        return DB_JOB_ASK_WRITER;
    if (found == SKILL_FAILED && db_job_is_late(&c->req.job)) {
        fault_set(&c->req.fault, FAULT_TIMEOUT, "it took too long");
        return DB_JOB_OK;
    }
    if (found == SKILL_FAILED)
        return DB_JOB_IO;
    skill_not_found(&c->req.fault, c->name);
    return DB_JOB_OK;
}

static void tell_version(struct skills_request *c, struct str hash, enum skill_status status,
                         int64_t changed_at)
{
    c->answer.name = c->name;
    c->answer.content_hash = hash;
    c->answer.version = str_make(hash.p, SKILL_VERSION_HEX);
    c->answer.status = status;
    c->answer.changed_at = changed_at;
}

static void write_meta(const struct skill_row *r, struct jw *w)
{
    skill_meta_json(r->meta, r->created_at, r->updated_at, r->status_changed_at, w);
}

enum db_job_end run_load(struct skills_request *c, void *conn)
{
    struct skill_row row = {0};
    struct jw w = jw_begin(&c->req.json);
    bool old = c->version.p != NULL;
    enum skill_found found = c->ops->load(conn, &c->at, c->name, !old, &c->found, &row);

    if (found != SKILL_FOUND)
        return give_up(c, found);
    if (old) {
        found = c->ops->load_version(conn, &c->at, c->name, c->version, &c->found,
                                     &row.content_hash, &row.source);
        if (found == SKILL_MISSING) {
            skill_version_not_found(&c->req.fault, c->name, c->version);
            return DB_JOB_OK;
        }
        if (found != SKILL_FOUND)
            return give_up(c, found);
    }
    tell_version(c, row.content_hash, row.status, row.updated_at);
    c->answer.source = row.source;
    jw_obj(&w);
    jw_kstr(&w, "name", c->name);
    jw_kstr(&w, "version", c->answer.version);
    jw_kstr(&w, "content_hash", row.content_hash);
    jw_kstr(&w, "source", row.source);
    jw_key(&w, "metadata");
    write_meta(&row, &w);
    jw_end_obj(&w);
    return DB_JOB_OK;
}

enum db_job_end run_metadata(struct skills_request *c, void *conn)
{
    struct skill_row row = {0};
    struct jw w = jw_begin(&c->req.json);
    enum skill_found found = c->ops->load(conn, &c->at, c->name, false, &c->found, &row);

    if (found != SKILL_FOUND)
        return give_up(c, found);
    tell_version(c, row.content_hash, row.status, row.updated_at);
    write_meta(&row, &w);
    return DB_JOB_OK;
}

struct run_listing {
    struct skills_request *c;
    struct jw w;
};

static bool on_version(void *ctx, const struct skill_version *v)
{
    struct run_listing *l = ctx;

    skill_version_json(v, &l->w);
    l->c->answer.count++;
    return db_request_grown(&l->c->req);
}

enum db_job_end run_versions(struct skills_request *c, void *conn)
{
    struct run_listing l = {c, jw_begin(&c->req.json)};

    jw_arr(&l.w);
    enum skill_found found = c->ops->versions(conn, &c->at, c->name, on_version, &l);
    if (found != SKILL_FOUND)
        return give_up(c, found);
    jw_end_arr(&l.w);
    return DB_JOB_OK;
}

static enum skill_found tell_token(struct skills_request *c, void *conn)
{
    char token[SKILL_TOKEN_BYTES];
    enum skill_found found = c->ops->token(conn, &c->at, token);

    if (found == SKILL_FOUND)
        c->answer.token = arena_str(&c->found, str_of(token));
    return found;
}

enum db_job_end run_token(struct skills_request *c, void *conn)
{
    struct jw w = jw_begin(&c->req.json);
    enum skill_found found = tell_token(c, conn);

    if (found != SKILL_FOUND)
        return give_up(c, found);
    jw_obj(&w);
    jw_kstr(&w, "version", c->answer.token);
    jw_end_obj(&w);
    return DB_JOB_OK;
}

static bool on_row(void *ctx, const struct skill_row *row)
{
    struct run_listing *l = ctx;

    write_meta(row, &l->w);
    l->c->answer.count++;
    return db_request_grown(&l->c->req);
}

enum db_job_end run_query(struct skills_request *c, void *conn)
{
    struct run_listing l = {c, jw_begin(&c->req.json)};
    struct skill_query q = {&c->filter, c->pattern};
    enum skill_found found = tell_token(c, conn);

    if (found != SKILL_FOUND)
        return give_up(c, found);
    c->answer.not_modified =
        c->filter.if_none_match.p != NULL && str_eq(c->filter.if_none_match, c->answer.token);
    if (c->answer.not_modified)
        return DB_JOB_OK;
    jw_arr(&l.w);
    found = c->ops->list(conn, &c->at, &q, on_row, &l);
    if (found == SKILL_FAILED || found == SKILL_LATER)
        return give_up(c, found);
    jw_end_arr(&l.w);
    return DB_JOB_OK;
}

static bool on_body(void *ctx, const struct skill_row *row)
{
    struct run_listing *l = ctx;

    if (!str_eq(row->name, l->c->name) && regex_found(l->c->pattern, row->source)) {
        jw_str(&l->w, row->name);
        l->c->answer.count++;
    }
    return !buf_failed(&l->c->req.json) && !db_job_must_stop(&l->c->req.job);
}

enum db_job_end run_dependents(struct skills_request *c, void *conn)
{
    struct run_listing l = {c, jw_begin(&c->req.json)};
    enum skill_found found = SKILL_FOUND;

    jw_arr(&l.w);
    if (c->pattern != NULL)
        found = c->ops->bodies(conn, &c->at, on_body, &l);
    if (found == SKILL_FAILED || found == SKILL_LATER)
        return give_up(c, found);
    jw_end_arr(&l.w);
    return DB_JOB_OK;
}

/* ---- writes ---- */

/* How much the tenant has after this. */
static bool weigh(struct skills_request *c, void *conn)
{
    c->wrote = true;
    return c->ops->size(conn, c->at.tenant, &c->tenant_bytes);
}

/* False: @c is answered.  A status can still be changed at the limit, a little past it. */
static bool has_room(struct skills_request *c, void *conn, bool *ret_ok)
{
    uint64_t bytes = 0;

    *ret_ok = c->max_bytes == 0 || c->ops->size(conn, c->at.tenant, &bytes);
    uint64_t most = c->run == run_store ? c->max_bytes : c->max_bytes + c->max_bytes / 8;
    c->over = c->max_bytes != 0 && bytes + c->ask.source.n > most;
    if (c->over)
        fault_set(&c->req.fault, FAULT_BUSY,
                  "the skills of this tenant have reached their limit "
                  "(limits.skill_bytes_per_tenant): delete some");
    return *ret_ok && !c->over;
}

static enum db_job_end write_next(struct skills_request *c, void *conn)
{
    const struct skill_next *n = &c->next;
    struct jw w = jw_begin(&c->req.json);

    if (!c->ops->put(conn, &c->at, n) || !weigh(c, conn))
        return DB_JOB_IO;
    struct skill_version v = {.name = c->name,
                              .content_hash = arena_str(&c->found, str_of(n->content_hash)),
                              .status = n->status,
                              .previous = n->previous,
                              .has_previous = n->has_previous,
                              .changed_at = n->changed_at,
                              .changed_by =
                                  n->changed_by.n > 0 ? buf_str(&n->changed_by) : STR_NULL};
    tell_version(c, v.content_hash, v.status, v.changed_at);
    c->answer.created = n->created;
    skill_version_json(&v, &w);
    return DB_JOB_OK;
}

enum db_job_end run_store(struct skills_request *c, void *conn)
{
    struct skill_head head = {0};
    enum skill_found found = skill_name_valid(c->name)
                                 ? c->ops->head(conn, &c->at, c->name, false, &c->found, &head)
                                 : SKILL_MISSING;

    bool ok;

    if (found == SKILL_FAILED)
        return DB_JOB_IO;
    if (!has_room(c, conn, &ok))
        return ok ? DB_JOB_OK : DB_JOB_IO;
    if (!skill_decide_store(c->rules, &c->who, &c->ask, found == SKILL_FOUND ? &head : NULL,
                            &c->next, &c->req.fault))
        return DB_JOB_OK;
    return write_next(c, conn);
}

enum db_job_end run_update_status(struct skills_request *c, void *conn)
{
    struct skill_head head = {0};
    enum skill_found found = c->ops->head(conn, &c->at, c->name, true, &c->found, &head);

    bool ok;

    if (found != SKILL_FOUND)
        return give_up(c, found);
    if (!has_room(c, conn, &ok))
        return ok ? DB_JOB_OK : DB_JOB_IO;
    if (!skill_decide_status(c->rules, &c->who, c->name, c->ask.status, c->now, &head, &c->next,
                             &c->req.fault))
        return DB_JOB_OK;
    return write_next(c, conn);
}

/* False: @c is answered.  Who may not write a skill may not make its name free either. */
static bool may_delete(struct skills_request *c, const struct skill_head *head)
{
    struct fault *f = &c->req.fault;

    if (c->who.agent.p != NULL)
        fault_set(f, FAULT_REFUSED, "this key may not delete skills");
    else if (!c->who.attest && head->author.p != NULL && !str_eq(head->author, c->who.identity))
        fault_set(f, FAULT_REFUSED,
                  "the skill is another author's: only they, the operator, or a key made with "
                  "--attest may delete it");
    else if (!c->confirmed)
        fault_set(f, FAULT_CONFIRM_REQUIRED,
                  "deleting erases the skill and its history; confirm it by its name: "
                  "?confirm=%.*s",
                  STR_FMT(c->name));
    return f->cls == FAULT_NONE;
}

struct found_names { /* in the request's arena */
    struct skills_request *c;
    struct str *all;
    size_t n, cap;
};

static void add_name(struct found_names *t, struct str name)
{
    if (t->n == t->cap) {
        struct str *more = arena_alloc(&t->c->found, (t->cap * 2 + 16) * sizeof *more);
        if (t->n != 0)
            memcpy(more, t->all, t->n * sizeof *more);
        t->all = more;
        t->cap = t->cap * 2 + 16;
    }
    t->all[t->n++] = arena_str(&t->c->found, name);
}

static bool on_dependent(void *ctx, const struct skill_row *row)
{
    struct found_names *t = ctx;

    if (!str_eq(row->name, t->c->name) && regex_found(t->c->pattern, row->source))
        add_name(t, row->name);
    return true;
}

/* In the transaction that deletes, so that a skill written meanwhile counts. */
static enum skill_found look_for_dependents(struct skills_request *c, void *conn)
{
    struct found_names names = {.c = c};
    enum skill_found found = SKILL_FOUND;

    if (c->pattern != NULL)
        found = c->ops->bodies(conn, &c->at, on_dependent, &names);
    if (names.n > 0) {
        fault_set(&c->req.fault, FAULT_HAS_DEPENDENTS,
                  "%zu skills refer to '%.*s' and would break; force=true deletes it nevertheless",
                  names.n, STR_FMT(c->name));
        fault_field(&c->req.fault, "skill_name", c->name);
        fault_field_list(&c->req.fault, "dependents", names.all, names.n);
    }
    return found;
}

enum db_job_end run_delete(struct skills_request *c, void *conn)
{
    struct skill_head head = {0};
    enum skill_found found = c->ops->head(conn, &c->at, c->name, false, &c->found, &head);

    if (found != SKILL_FOUND)
        return give_up(c, found);
    if (!may_delete(c, &head))
        return DB_JOB_OK;
    if (look_for_dependents(c, conn) == SKILL_FAILED)
        return DB_JOB_IO;
    if (c->req.fault.cls != FAULT_NONE)
        return DB_JOB_OK;
    c->answer.name = c->name;
    return c->ops->drop(conn, &c->at, c->name) && weigh(c, conn) ? DB_JOB_OK : DB_JOB_IO;
}

/* ---- everything of a tenant ---- */

static void on_ns(void *ctx, struct str ns)
{
    add_name(ctx, ns.p != NULL ? ns : STR(""));
}

static bool on_name(void *ctx, const struct skill_row *row)
{
    add_name(ctx, row->name);
    return true;
}

enum db_job_end run_erase(struct skills_request *c, void *conn)
{
    const struct skills_filter every = {0};
    const struct skill_query q = {.f = &every};
    struct found_names spaces = {.c = c};

    if (!c->ops->namespaces(conn, c->at.tenant, on_ns, &spaces))
        return DB_JOB_IO;
    for (size_t i = 0; i < spaces.n; i++) {
        struct skill_where at = {c->at.tenant, spaces.all[i]};
        struct found_names skills = {.c = c};
        enum skill_found found = c->ops->list(conn, &at, &q, on_name, &skills);
        for (size_t k = 0; !c->dry && found == SKILL_FOUND && k < skills.n; k++)
            if (!c->ops->drop(conn, &at, skills.all[k]))
                return DB_JOB_IO;
        if (found != SKILL_FOUND && found != SKILL_MISSING)
            return DB_JOB_IO;
        c->answer.count += skills.n;
    }
    return weigh(c, conn) ? DB_JOB_OK : DB_JOB_IO;
}
