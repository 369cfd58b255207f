/* move.c - design.  (move.h has the contract.)
 *
 * Except for opening a side (sqlite or postgres), move.c uses only the interface of backend.h.  For
 * each version it rebuilds the struct skill_next of the original write, and calls put(). */
#include "skills/move.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "skills/backend.h"

enum { BATCH_SKILLS = 32 };

struct move_end {
    const struct skill_backend_ops *ops;
    void *ctx, *conn; /* owned */
};

struct one_skill { /* one skill; borrowed from the arena of the move */
    struct skill_where at;
    struct str name;
};

struct skills_move {
    struct move_end from, to;
    struct arena arena, one; /* of the whole, of one skill */
    struct str *tenants;     /* owned, and the next */
    struct one_skill *items;
    size_t n_tenants, n_items, cap_items;
    struct skill_where at; /* whose names are being collected */
    skills_move_cb *each;
    void *ctx;
    uint64_t done;
    struct skills_moved *moved;
    struct skill_rules rules;
    bool stopped, writing; /* @writing: a transaction of the target is open */
    char *why;
};

static bool failed(struct skills_move *m, const char *doing, const struct move_end *s)
{
    if (m->why[0] == '\0')
        snprintf(m->why, 256, "skills, %s: %.160s", doing, s->ops->lanes.problem(s->conn));
    return false;
}

/* ---- sides ---- */

static void on_tenant(void *ctx, struct str tenant, uint64_t bytes)
{
    struct skills_move *m = ctx;

    m->tenants = xrealloc(m->tenants, (m->n_tenants + 1) * sizeof *m->tenants);
    m->tenants[m->n_tenants++] = arena_str(&m->arena, tenant);
}

static void on_nobody(void *ctx, struct str tenant, uint64_t bytes)
{
}

static bool end_open(struct skills_move *m, struct move_end *s, const struct skills_place *p,
                     bool writes)
{
    bool pg = strcmp(p->kind, "postgres") == 0;
    struct skill_backend_config cfg = {.path = p->path,
                                       .url = p->url,
                                       .rules = &m->rules,
                                       .on_size = writes ? on_nobody : on_tenant,
                                       .on_size_ctx = m};

    s->ops = pg ? &skill_postgres_ops : &skill_sqlite_ops;
    s->ctx = pg ? skill_postgres_new(&cfg, m->why) : skill_sqlite_new(&cfg, m->why);
    if (s->ctx != NULL)
        s->conn = s->ops->lanes.open(s->ctx, STR("skills"), writes, m->why);
    return s->conn != NULL;
}

static void end_close(struct move_end *s)
{
    if (s->conn != NULL)
        s->ops->lanes.close(s->conn);
    if (s->ctx != NULL)
        s->ops->free(s->ctx);
}

static bool begin(struct skills_move *m, struct move_end *s, bool write)
{
    return s->ops->lanes.begin(s->conn, write, m->why);
}

static bool end(struct skills_move *m, struct move_end *s)
{
    if (s->ops->lanes.commit(s->conn, m->why))
        return true;
    s->ops->lanes.rollback(s->conn);
    return false;
}

/* ---- what there is ---- */

static bool on_name(void *ctx, const struct skill_row *row)
{
    struct skills_move *m = ctx;

    if (m->n_items == m->cap_items) {
        m->cap_items = 2 * m->cap_items + 64;
        m->items = xrealloc(m->items, m->cap_items * sizeof *m->items);
    }
    m->items[m->n_items++] = (struct one_skill){m->at, arena_str(&m->arena, row->name)};
    return true;
}

struct spaces {
    struct skills_move *m;
    struct str *all; /* owned */
    size_t n, cap;
};

static void on_ns(void *ctx, struct str ns)
{
    struct spaces *s = ctx;

    if (s->n == s->cap) {
        s->cap = 2 * s->cap + 16;
        s->all = xrealloc(s->all, s->cap * sizeof *s->all);
    }
    s->all[s->n++] = arena_str(&s->m->arena, ns.p != NULL ? ns : STR(""));
}

static bool collect_tenant(struct skills_move *m, struct spaces *s, struct str tenant)
{
    static const struct skills_filter every;
    const struct skill_query q = {.f = &every};

    s->n = 0;
    if (!m->from.ops->namespaces(m->from.conn, tenant, on_ns, s))
        return failed(m, "looking", &m->from);
    for (size_t i = 0; i < s->n; i++) {
        m->at = (struct skill_where){tenant, s->all[i]};
        enum skill_found found = m->from.ops->list(m->from.conn, &m->at, &q, on_name, m);
        if (found != SKILL_FOUND && found != SKILL_MISSING)
            return failed(m, "listing", &m->from);
    }
    return true;
}

static bool collect(struct skills_move *m)
{
    struct spaces s = {.m = m};
    bool ok = begin(m, &m->from, false);

    for (size_t i = 0; ok && i < m->n_tenants; i++)
        ok = collect_tenant(m, &s, m->tenants[i]);
    free(s.all);
    return ok && end(m, &m->from);
}

/* ---- one skill ---- */

struct history {
    struct skills_move *m;
    struct skill_version *all; /* owned; strings in the arena */
    size_t n, cap;
};

static bool on_version(void *ctx, const struct skill_version *v)
{
    struct history *h = ctx;

    if (h->n == h->cap) {
        h->cap = 2 * h->cap + 16;
        h->all = xrealloc(h->all, h->cap * sizeof *h->all);
    }
    struct skill_version *to = &h->all[h->n++];
    *to = *v;
    to->content_hash = arena_str(&h->m->one, v->content_hash);
    to->changed_by = arena_str(&h->m->one, v->changed_by);
    return true;
}

static struct str version_of(struct str hash)
{
    return str_make(hash.p, hash.n < SKILL_VERSION_HEX ? hash.n : SKILL_VERSION_HEX);
}

static void put_text(struct buf *out, struct str s)
{
    uint64_t n = s.p == NULL ? UINT64_MAX : s.n;

    buf_add(out, &n, sizeof n);
    buf_add_str(out, s);
}

/* Hashes everything that the backend stores of a skill; SKILL_MISSING: no such skill. */
static enum skill_found print_of(struct skills_move *m, struct move_end *s,
                                 const struct one_skill *i, struct history *h,
                                 struct skill_head *ret_head, uint8_t ret[SHA256_BYTES])
{
    struct buf text = BUF_INIT;
    struct skill_row row = {0};
    enum skill_found found;

    h->n = 0;
    if ((found = s->ops->head(s->conn, &i->at, i->name, false, &m->one, ret_head)) != SKILL_FOUND ||
        (found = s->ops->load(s->conn, &i->at, i->name, true, &m->one, &row)) != SKILL_FOUND ||
        (found = s->ops->versions(s->conn, &i->at, i->name, on_version, h)) != SKILL_FOUND)
        return found;
    const struct skill_head *head = ret_head;
    buf_printf(&text, "%d %lld %lld %lld ", (int)head->status, (long long)head->created_at,
               (long long)head->updated_at, (long long)head->status_changed_at);
    put_text(&text, row.meta);
    put_text(&text, row.source);
    put_text(&text, head->author);
    put_text(&text, head->bag);
    put_text(&text, head->description);
    put_text(&text, head->type);
    for (size_t k = 0; k < h->n; k++) {
        const struct skill_version *v = &h->all[k];
        struct str hash, source;
        found = s->ops->load_version(s->conn, &i->at, i->name, version_of(v->content_hash), &m->one,
                                     &hash, &source);
        if (found != SKILL_FOUND)
            break;
        buf_printf(&text, "%d %d %d %lld ", (int)v->status, v->has_previous,
                   v->has_previous ? (int)v->previous : 0, (long long)v->changed_at);
        put_text(&text, v->content_hash);
        put_text(&text, v->changed_by);
        put_text(&text, source);
    }
    sha256(buf_str(&text), ret);
    buf_done(&text);
    return found == SKILL_MISSING ? SKILL_FAILED : found;
}

static bool write_version(struct skills_move *m, const struct one_skill *i,
                          const struct skill_head *head, const struct skill_version *v, bool first)
{
    struct str hash, source;
    struct skill_next n = {.name = i->name,
                           .status = v->status,
                           .previous = v->previous,
                           .has_previous = v->has_previous,
                           .created = first,
                           .created_at = head->created_at,
                           .changed_at = v->changed_at,
                           .status_changed_at = head->status_changed_at};
    bool ok = m->from.ops->load_version(m->from.conn, &i->at, i->name, version_of(v->content_hash),
                                        &m->one, &hash, &source) == SKILL_FOUND ||
              failed(m, "reading", &m->from);

    if (ok) {
        buf_add_str(&n.source, source);
        buf_add_str(&n.author, head->author);
        buf_add_str(&n.changed_by, v->changed_by);
        buf_add_str(&n.bag, head->bag);
        buf_add_str(&n.description, head->description);
        buf_add_str(&n.type, head->type);
        skill_next_finish(&n);
        ok = m->to.ops->put(m->to.conn, &i->at, &n) || failed(m, "writing", &m->to);
    }
    skill_next_done(&n);
    return ok;
}

static bool differs(struct skills_move *m, const struct one_skill *i)
{
    return bh_why(m->why,
                  "the skill %.60s of tenant %.60s is in the target already, and is another one",
                  i->name.p, i->at.tenant.p);
}

static bool move_skill(struct skills_move *m, const struct one_skill *i, struct history *h)
{
    struct skill_head head = {0}, there = {0};
    struct history other = {.m = m};
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];
    bool ok = begin(m, &m->from, false);

    if (!ok)
        return false;
    if (print_of(m, &m->from, i, h, &head, a) != SKILL_FOUND)
        return failed(m, "reading", &m->from);
    enum skill_found found = print_of(m, &m->to, i, &other, &there, b);
    if (found == SKILL_FOUND) {
        m->moved->resumed++;
        ok = memcmp(a, b, sizeof a) == 0 || differs(m, i);
    } else if (found == SKILL_MISSING) {
        for (size_t k = 0; ok && k < h->n; k++)
            ok = write_version(m, i, &head, &h->all[k], k == 0);
    } else {
        ok = failed(m, "reading", &m->to);
    }
    free(other.all);
    m->moved->versions += h->n;
    arena_reset(&m->one);
    return ok && end(m, &m->from);
}

static bool tell(struct skills_move *m)
{
    m->done++;
    m->stopped = m->each != NULL && !m->each(m->ctx, m->done, 2 * m->n_items);
    return !m->stopped;
}

static bool copy_all(struct skills_move *m, struct history *h)
{
    for (size_t i = 0; i < m->n_items; i++) {
        if (i % BATCH_SKILLS == 0 && i > 0 && !(end(m, &m->to) && begin(m, &m->to, true)))
            return false;
        if (!move_skill(m, &m->items[i], h) || !tell(m))
            return false;
        m->moved->skills++;
    }
    return end(m, &m->to);
}

/* ---- comparing ---- */

static bool same_token(struct skills_move *m, const struct skill_where *at)
{
    char a[SKILL_TOKEN_BYTES], b[SKILL_TOKEN_BYTES];

    if (m->from.ops->token(m->from.conn, at, a) != SKILL_FOUND)
        return failed(m, "comparing", &m->from);
    if (m->to.ops->token(m->to.conn, at, b) != SKILL_FOUND)
        return failed(m, "comparing", &m->to);
    if (strcmp(a, b) == 0)
        return true;
    return bh_why(m->why, "the skills of tenant %.*s in the target are not those of the source",
                  STR_FMT(at->tenant));
}

static bool compare_one(struct skills_move *m, const struct one_skill *i,
                        const struct one_skill *before, struct history *h)
{
    struct skill_head head = {0};
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];
    bool ok = begin(m, &m->from, false) && begin(m, &m->to, false);

    ok = ok &&
         (print_of(m, &m->from, i, h, &head, a) == SKILL_FOUND || failed(m, "comparing", &m->from));
    ok = ok &&
         (print_of(m, &m->to, i, h, &head, b) == SKILL_FOUND || failed(m, "comparing", &m->to));
    ok = ok && (memcmp(a, b, sizeof a) == 0 || differs(m, i));
    if (ok && (before == NULL || !str_eq(before->at.ns, i->at.ns) ||
               !str_eq(before->at.tenant, i->at.tenant)))
        ok = same_token(m, &i->at);
    arena_reset(&m->one);
    return ok && end(m, &m->from) && end(m, &m->to);
}

static bool compare_all(struct skills_move *m, struct history *h)
{
    const struct one_skill *all = m->items, *before = NULL;

    for (size_t i = 0, n = m->n_items; i < n; before = &all[i++])
        if (!compare_one(m, &all[i], before, h) || !tell(m))
            return false;
    return true;
}

enum bh_err skills_move(const struct skills_place *from, const struct skills_place *to,
                        skills_move_cb *each, void *ctx, struct skills_moved *ret, char *ret_why)
{
    struct skills_move m = {
        .each = each, .ctx = ctx, .moved = ret, .rules.max_body_bytes = SIZE_MAX, .why = ret_why};
    struct history h = {.m = &m};

    ret_why[0] = '\0';
    *ret = (struct skills_moved){0};
    bool ok = end_open(&m, &m.from, from, false) && collect(&m);
    if (ok && m.items != NULL)
        ok = end_open(&m, &m.to, to, true) && begin(&m, &m.to, true) && copy_all(&m, &h) &&
             compare_all(&m, &h);
    free(h.all);
    end_close(&m.to);
    end_close(&m.from);
    free(m.tenants);
    free(m.items);
    arena_done(&m.arena);
    arena_done(&m.one);
    return ok ? BH_OK : m.stopped ? BH_CANCELLED : BH_UNAVAILABLE;
}
