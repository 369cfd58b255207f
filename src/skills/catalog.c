/* catalog.c - design.  (catalog.h has the contract.)
 *
 * A query scans the index of names page by page.  Each page starts after the last name of the
 * previous page, and all pages read one snapshot.  The database applies all filters but the name
 * pattern.  With a pattern, the names are fetched first and matched here; then only the matching
 * rows are fetched. */
#include "skills/catalog.h"
#include "base/regex.h"

enum skill_found catalog_ask(struct sqldb *s, unsigned statement)
{
    if (sqldb_ask(s, statement) && sqldb_next(s))
        return SKILL_FOUND;
    return s->ok ? SKILL_MISSING : SKILL_FAILED;
}

/* Columns @c to @c + 2. */
static void read_store(const struct sqldb *s, int c, struct catalog_store *ret)
{
    struct str sum = sqldb_get_str(s, c + 1);

    *ret =
        (struct catalog_store){.id = sqldb_get_int(s, c), .n = (uint64_t)sqldb_get_int(s, c + 2)};
    if (sum.n == sizeof ret->sum.bytes)
        memcpy(ret->sum.bytes, sum.p, sum.n);
}

static enum skill_found store_get(struct sqldb *s, const struct skill_where *at,
                                  struct catalog_store *ret)
{
    *ret = (struct catalog_store){0};
    sqldb_text(s, at->tenant);
    sqldb_text(s, at->ns);
    enum skill_found found = catalog_ask(s, CAT_STORE);
    if (found == SKILL_FOUND)
        read_store(s, 0, ret);
    return found;
}

static bool store_make(struct sqldb *s, const struct skill_where *at, struct catalog_store *ret)
{
    enum skill_found found = store_get(s, at, ret);

    if (found != SKILL_MISSING)
        return found == SKILL_FOUND;
    sqldb_text(s, at->tenant);
    sqldb_text(s, at->ns);
    sqldb_blob(s, str_make(ret->sum.bytes, sizeof ret->sum.bytes));
    if (catalog_ask(s, CAT_STORE_NEW) != SKILL_FOUND)
        return false;
    ret->id = sqldb_get_int(s, 0);
    return true;
}

void catalog_store_args(struct sqldb *s, const struct catalog_store *store)
{
    sqldb_int(s, store->id);
    sqldb_blob(s, str_make(store->sum.bytes, sizeof store->sum.bytes));
    sqldb_int(s, (int64_t)store->n);
}

/* The columns of CAT_LIST, from @c on. */
static struct skill_row row_at(const struct sqldb *s, int c)
{
    return (struct skill_row){.name = sqldb_get_str(s, c),
                              .meta = sqldb_get_str(s, c + 1),
                              .content_hash = sqldb_get_str(s, c + 2),
                              .status = (enum skill_status)sqldb_get_int(s, c + 3),
                              .created_at = sqldb_get_int(s, c + 4),
                              .updated_at = sqldb_get_int(s, c + 5),
                              .status_changed_at = sqldb_get_int(s, c + 6)};
}

static struct str kept(struct arena *arena, const struct sqldb *s, int column)
{
    return arena_str(arena, sqldb_get_str(s, column));
}

enum skill_found catalog_get(struct sqldb *s, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct catalog_entry *ret_e)
{
    enum { AFTER_ROW = 9 };

    sqldb_text(s, at->tenant);
    sqldb_text(s, at->ns);
    sqldb_text(s, name);
    sqldb_int(s, with_source);
    enum skill_found found = catalog_ask(s, CAT_GET);
    if (found != SKILL_FOUND)
        return found;
    struct skill_row r = row_at(s, 2);
    r.name = arena_str(arena, r.name);
    r.meta = arena_str(arena, r.meta);
    r.content_hash = arena_str(arena, r.content_hash);
    r.source = kept(arena, s, AFTER_ROW + 4);
    *ret_e =
        (struct catalog_entry){.id = sqldb_get_int(s, 0), .body = sqldb_get_int(s, 1), .row = r};
    ret_e->as_head = (struct skill_head){.status = r.status,
                                         .content_hash = r.content_hash,
                                         .author = kept(arena, s, AFTER_ROW),
                                         .bag = kept(arena, s, AFTER_ROW + 1),
                                         .description = kept(arena, s, AFTER_ROW + 2),
                                         .type = kept(arena, s, AFTER_ROW + 3),
                                         .source = r.source,
                                         .created_at = r.created_at,
                                         .updated_at = r.updated_at,
                                         .status_changed_at = r.status_changed_at};
    ret_e->listed_type = kept(arena, s, AFTER_ROW + 5);
    read_store(s, AFTER_ROW + 6, &ret_e->store);
    return SKILL_FOUND;
}

/* ---- writing ---- */

static struct str or_absent(const struct buf *b)
{
    return b->n > 0 ? buf_str(b) : STR_NULL;
}

struct tags {
    struct arena arena;
    struct str *all; /* in the arena */
    size_t n;
};

static void tag_add(struct tags *t, struct json tag)
{
    if (json_type(tag) == JSON_STRING)
        t->all[t->n++] = arena_str(&t->arena, json_as_str(tag));
}

/* metadata_bag.tags: a list of texts, or one text. */
static void tags_of(struct str bag, struct tags *ret)
{
    struct json_parser *p = json_parser_new();
    struct json doc;

    if (bag.n > 0 && json_parse(p, bag, &doc)) {
        struct json tags = json_get(doc, "tags");
        size_t n = json_type(tags) == JSON_ARRAY ? json_count(tags) : 1;
        ret->all = arena_alloc(&ret->arena, (n + 1) * sizeof *ret->all);
        tag_add(ret, tags);
        for (struct json_iter it = {0}; json_type(tags) == JSON_ARRAY && json_next(tags, &it);)
            tag_add(ret, it.value);
    }
    json_parser_free(p);
}

static bool write_row(struct sqldb *s, int64_t store, const struct skill_next *n,
                      const struct catalog_entry *old, int64_t *ret_id)
{
    struct tags tags = {.arena = ARENA_INIT};
    bool alike = old->row.status == n->status && str_eq(old->listed_type, n->listed_type) &&
                 str_eq(old->as_head.author, or_absent(&n->author));

    tags_of(or_absent(&n->bag), &tags);
    sqldb_int(s, store);
    sqldb_text(s, n->name);
    sqldb_int(s, n->status);
    sqldb_text(s, n->listed_type);
    sqldb_text(s, or_absent(&n->author));
    sqldb_int(s, n->changed_at);
    sqldb_int(s, n->created_at);
    sqldb_int(s, n->status_changed_at);
    sqldb_text(s, str_of(n->content_hash));
    sqldb_text(s, or_absent(&n->description));
    sqldb_text(s, or_absent(&n->type));
    sqldb_text(s, or_absent(&n->bag));
    sqldb_text(s, buf_str(&n->meta));
    sqldb_texts(s, tags.all, tags.n);
    bool ok = catalog_ask(s, old->id == 0 ? CAT_NEW
                             : alike      ? CAT_SET_REST
                                          : CAT_SET) == SKILL_FOUND;
    arena_done(&tags.arena);
    *ret_id = ok ? sqldb_get_int(s, 0) : 0;
    return ok;
}

bool catalog_put(struct sqldb *s, const struct skill_where *at, const struct skill_next *n,
                 struct catalog_store *ret_store, int64_t *ret_id, int64_t *ret_body)
{
    struct catalog_entry old = {0};
    struct arena arena = ARENA_INIT;
    bool ok = n->kept != NULL;

    if (n->kept != NULL)
        old = *(const struct catalog_entry *)n->kept;
    else
        ok = store_make(s, at, ret_store) &&
             catalog_get(s, at, n->name, false, &arena, &old) != SKILL_FAILED;
    if (old.id != 0) {
        *ret_store = old.store;
        skill_sum_remove(&ret_store->sum, old.row.meta);
    }
    skill_sum_add(&ret_store->sum, buf_str(&n->meta));
    ret_store->n += old.id == 0;
    *ret_body = old.id != 0 && str_eq(old.row.content_hash, str_of(n->content_hash)) ? old.body : 0;
    ok = ok && write_row(s, ret_store->id, n, &old, ret_id);
    arena_done(&arena);
    return ok;
}

bool catalog_drop(void *conn, const struct skill_where *at, struct str name)
{
    struct sqldb *s = conn;
    struct catalog_entry e;
    struct arena arena = ARENA_INIT;
    enum skill_found found = catalog_get(s, at, name, false, &arena, &e);
    bool ok = found == SKILL_MISSING;

    if (found == SKILL_FOUND) {
        skill_sum_remove(&e.store.sum, e.row.meta);
        e.store.n--;
        sqldb_int(s, e.id);
        catalog_store_args(s, &e.store);
        sqldb_text(s, at->tenant);
        ok = sqldb_ask(s, CAT_DROP);
    }
    arena_done(&arena);
    return ok;
}

/* ---- sizes ---- */

bool catalog_size(void *conn, struct str tenant, uint64_t *ret_bytes)
{
    struct sqldb *s = conn;

    sqldb_text(s, tenant);
    enum skill_found found = catalog_ask(s, CAT_SIZE);
    *ret_bytes = found == SKILL_FOUND ? (uint64_t)sqldb_get_int(s, 0) : 0;
    return found != SKILL_FAILED;
}

bool catalog_namespaces(void *conn, struct str tenant, skill_ns_cb *cb, void *ctx)
{
    struct sqldb *s = conn;

    sqldb_text(s, tenant);
    sqldb_ask(s, CAT_NAMESPACES);
    while (sqldb_next(s))
        cb(ctx, sqldb_get_str(s, 0));
    return s->ok;
}

bool catalog_sizes(struct sqldb *s, skill_size_cb *cb, void *ctx)
{
    sqldb_ask(s, CAT_SIZES);
    while (sqldb_next(s))
        cb(ctx, sqldb_get_str(s, 0), (uint64_t)sqldb_get_int(s, 1));
    return s->ok;
}

/* ---- queries ---- */

enum { PAGE = 256, NAMES = 16 * PAGE }; /* rows, and names that are matched, at a time */

struct catalog_walk {
    struct sqldb *s;
    int64_t store;
    const struct skill_query *q;
    skill_row_cb *cb;
    void *ctx;
    struct buf last;     /* the next page starts after this name */
    uint64_t skip, left; /* of what matches */
    bool done;
};

static void filter_args(struct catalog_walk *w, int64_t limit)
{
    const struct skills_filter *f = w->q->f;

    sqldb_int(w->s, w->store);
    sqldb_text(w->s, w->last.n > 0 ? buf_str(&w->last) : STR(""));
    sqldb_int_if(w->s, f->by_status, f->statuses);
    sqldb_text(w->s, f->type);
    sqldb_text(w->s, f->author);
    sqldb_int_if(w->s, f->by_since, f->since);
    sqldb_texts(w->s, f->tags, f->n_tags);
    sqldb_int(w->s, limit);
}

static void go_on_behind(struct catalog_walk *w, struct str name)
{
    buf_reset(&w->last);
    buf_add_str(&w->last, name);
}

/* The rows of the question; how many there were. */
static int64_t give_rows(struct catalog_walk *w)
{
    int64_t n = 0;

    for (; !w->done && sqldb_next(w->s); n++) {
        struct skill_row row = row_at(w->s, 0);
        go_on_behind(w, row.name);
        w->left--;
        w->done = !w->cb(w->ctx, &row) || w->left == 0;
    }
    return n;
}

static void page_plain(struct catalog_walk *w)
{
    int64_t limit = w->left < PAGE ? (int64_t)w->left : PAGE;

    filter_args(w, limit);
    sqldb_int(w->s, w->skip <= INT64_MAX ? (int64_t)w->skip : INT64_MAX);
    sqldb_ask(w->s, CAT_LIST);
    w->skip = 0;
    w->done |= give_rows(w) < limit;
}

static void page_pattern(struct catalog_walk *w)
{
    int64_t ids[PAGE], rows = 0;
    size_t n = 0;

    filter_args(w, NAMES);
    sqldb_ask(w->s, CAT_NAMES);
    for (; n < PAGE && n < w->left && sqldb_next(w->s); rows++) {
        struct str name = sqldb_get_str(w->s, 0);
        go_on_behind(w, name);
        if (!regex_found(w->q->pattern, name))
            continue;
        if (w->skip > 0)
            w->skip--;
        else
            ids[n++] = sqldb_get_int(w->s, 1);
    }
    bool last = rows < NAMES && n < PAGE && n < w->left;
    if (w->s->ok && n > 0) {
        struct buf names_end = w->last;
        w->last = BUF_INIT;
        sqldb_ints(w->s, ids, n);
        sqldb_ask(w->s, CAT_PICK);
        give_rows(w);
        buf_done(&w->last);
        w->last = names_end;
    }
    w->done |= last;
}

enum skill_found catalog_list(void *conn, const struct skill_where *at, const struct skill_query *q,
                              skill_row_cb *cb, void *ctx)
{
    struct sqldb *s = conn;
    struct catalog_store store;
    enum skill_found found = store_get(s, at, &store);
    struct catalog_walk w = {.s = s,
                             .store = store.id,
                             .q = q,
                             .cb = cb,
                             .ctx = ctx,
                             .skip = q->f->offset,
                             .left = q->f->by_limit ? q->f->limit : UINT64_MAX};

    while (found == SKILL_FOUND && !w.done && w.left > 0) {
        if (q->pattern != NULL)
            page_pattern(&w);
        else
            page_plain(&w);
        if (!s->ok || (s->job != NULL && db_job_must_stop(s->job)))
            found = SKILL_FAILED;
    }
    buf_done(&w.last);
    return found;
}

enum skill_found catalog_token(void *conn, const struct skill_where *at,
                               char ret_token[SKILL_TOKEN_BYTES])
{
    struct sqldb *s = conn;
    struct catalog_store store;
    enum skill_found found = store_get(s, at, &store);

    if (found != SKILL_FAILED)
        skill_sum_token(&store.sum, store.n, ret_token);
    return found == SKILL_FAILED ? SKILL_FAILED : SKILL_FOUND;
}
