/* sqlite_catalog.c - design.  (sqlite_catalog.h has the contract.)
 *
 * A query is one scan of the index in order of the names.  The index alone decides status, type,
 * author and name pattern, so only rows that pass these filters are read.  updated_at is not in the
 * index: it changes with every write, and each write would dirty another page.  The pattern is
 * matched by an SQL function that this file registers. */
#include "skills/sqlite_catalog.h"
#include <stdio.h>
#include "base/regex.h"
#include "skills/text.h"

static const char match_name[] = "name_matches", regex_type[] = "regex";

static void on_name_matches(sqlite3_context *ctx, int n, sqlite3_value **args)
{
    const struct regex *re = sqlite3_value_pointer(args[0], regex_type);
    const char *name = (const char *)sqlite3_value_text(args[1]);

    sqlite3_result_int(ctx,
                       re == NULL ||
                           (name != NULL &&
                            regex_found(re, str_make(name, (size_t)sqlite3_value_bytes(args[1])))));
}

bool catalog_prepare(struct side_db *db)
{
    return sqlite3_create_function_v2(db->db, match_name, 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC,
                                      NULL, on_name_matches, NULL, NULL, NULL) == SQLITE_OK ||
           side_failed(db, "cannot register a function");
}

static enum skill_found store_get(struct side_db *db, const struct skill_where *at,
                                  struct catalog_store *ret)
{
    sqlite3_stmt *q = side_sql(db, CAT_STORE);
    bool ok = q != NULL, found = false;

    if (!ok)
        return SKILL_FAILED;
    side_bind_str(q, 1, at->tenant);
    side_bind_str(q, 2, at->ns);
    if (side_step(db, q, &ok)) {
        struct str sum = side_str(q, 1);
        found = true;
        ret->id = sqlite3_column_int64(q, 0);
        ret->n = (uint64_t)sqlite3_column_int64(q, 2);
        if (sum.n == sizeof ret->sum.bytes)
            memcpy(ret->sum.bytes, sum.p, sum.n);
        sqlite3_reset(q);
    }
    return !ok ? SKILL_FAILED : found ? SKILL_FOUND : SKILL_MISSING;
}

static bool store_make(struct side_db *db, const struct skill_where *at, struct catalog_store *ret)
{
    enum skill_found found = store_get(db, at, ret);

    if (found != SKILL_MISSING)
        return found == SKILL_FOUND;
    sqlite3_stmt *q = side_sql(db, CAT_STORE_NEW);
    if (q == NULL)
        return false;
    side_bind_str(q, 1, at->tenant);
    side_bind_str(q, 2, at->ns);
    *ret = (struct catalog_store){0};
    if (!side_run(db, q))
        return false;
    ret->id = sqlite3_last_insert_rowid(db->db);
    return true;
}

static bool store_set(struct side_db *db, const struct catalog_store *s)
{
    sqlite3_stmt *q = side_sql(db, CAT_STORE_SET);

    if (q == NULL)
        return false;
    sqlite3_bind_int64(q, 1, s->id);
    side_bind_blob(q, 2, str_make(s->sum.bytes, sizeof s->sum.bytes));
    sqlite3_bind_int64(q, 3, (int64_t)s->n);
    return side_run(db, q);
}

static struct str keep(struct arena *arena, sqlite3_stmt *q, int column)
{
    return arena_str(arena, side_str(q, column));
}

static void read_row(sqlite3_stmt *q, struct arena *arena, struct catalog_entry *e)
{
    struct skill_row *r = &e->row;

    e->id = sqlite3_column_int64(q, 0);
    r->name = keep(arena, q, 1);
    r->meta = keep(arena, q, 2);
    r->content_hash = keep(arena, q, 3);
    r->source = STR_NULL;
    r->status = (enum skill_status)sqlite3_column_int(q, 4);
    r->created_at = sqlite3_column_int64(q, 5);
    r->updated_at = sqlite3_column_int64(q, 6);
    r->status_changed_at = sqlite3_column_int64(q, 7);
    e->as_head = (struct skill_head){.status = r->status,
                                     .content_hash = r->content_hash,
                                     .author = keep(arena, q, 8),
                                     .bag = keep(arena, q, 9),
                                     .description = keep(arena, q, 10),
                                     .type = keep(arena, q, 11),
                                     .created_at = r->created_at,
                                     .updated_at = r->updated_at,
                                     .status_changed_at = r->status_changed_at};
    e->listed_type = keep(arena, q, 12);
}

static enum skill_found get_in(struct side_db *db, int64_t store, struct str name,
                               struct arena *arena, struct catalog_entry *ret_e)
{
    sqlite3_stmt *q = side_sql(db, CAT_GET);
    bool ok = q != NULL, found = false;

    if (!ok)
        return SKILL_FAILED;
    sqlite3_bind_int64(q, 1, store);
    side_bind_str(q, 2, name);
    if (side_step(db, q, &ok)) {
        found = true;
        read_row(q, arena, ret_e);
        sqlite3_reset(q);
    }
    return !ok ? SKILL_FAILED : found ? SKILL_FOUND : SKILL_MISSING;
}

enum skill_found catalog_get(struct side_db *db, const struct skill_where *at, struct str name,
                             struct arena *arena, struct catalog_entry *ret_e)
{
    struct catalog_store s = {0};
    enum skill_found found = store_get(db, at, &s);

    if (found == SKILL_FOUND)
        found = get_in(db, s.id, name, arena, ret_e);
    ret_e->store = s;
    return found;
}

static struct str or_absent(const struct buf *b)
{
    return b->n > 0 ? buf_str(b) : STR_NULL;
}

/* Is the entry of the index the same as before? */
static bool is_listed_alike(const struct catalog_entry *old, const struct skill_next *n)
{
    return old->row.status == n->status && str_eq(old->listed_type, n->listed_type) &&
           str_eq(old->as_head.author, or_absent(&n->author));
}

static bool write_row(struct side_db *db, int64_t store, const struct skill_next *n,
                      const struct catalog_entry *old, int64_t *id)
{
    int which = old->id == 0 ? CAT_NEW : is_listed_alike(old, n) ? CAT_SET_REST : CAT_SET;
    sqlite3_stmt *q = side_sql(db, which);

    *id = old->id;
    if (q == NULL)
        return false;
    if (*id > 0)
        sqlite3_bind_int64(q, 1, *id);
    else
        sqlite3_bind_int64(q, 2, store);
    if (*id == 0)
        side_bind_str(q, 3, n->name);
    sqlite3_bind_int(q, 4, n->status);
    side_bind_str(q, 5, n->listed_type);
    side_bind_str(q, 6, or_absent(&n->author));
    sqlite3_bind_int64(q, 7, n->changed_at);
    sqlite3_bind_int64(q, 8, n->created_at);
    sqlite3_bind_int64(q, 9, n->status_changed_at);
    side_bind_str(q, 10, str_of(n->content_hash));
    side_bind_str(q, 11, or_absent(&n->description));
    side_bind_str(q, 12, or_absent(&n->type));
    side_bind_str(q, 13, or_absent(&n->bag));
    side_bind_str(q, 14, buf_str(&n->meta));
    if (!side_run(db, q))
        return false;
    if (*id == 0)
        *id = sqlite3_last_insert_rowid(db->db);
    return true;
}

static bool tag_add(struct side_db *db, int64_t store, int64_t id, struct json tag)
{
    sqlite3_stmt *q = json_type(tag) == JSON_STRING ? side_sql(db, CAT_TAG_ADD) : NULL;

    if (json_type(tag) != JSON_STRING)
        return true;
    if (q == NULL)
        return false;
    sqlite3_bind_int64(q, 1, store);
    side_bind_str(q, 2, json_as_str(tag));
    sqlite3_bind_int64(q, 3, id);
    return side_run(db, q);
}

/* metadata_bag.tags: a list of texts, or one text. */
static bool tags_write(struct side_db *db, int64_t store, int64_t id, struct str bag)
{
    struct json_parser *p = json_parser_new();
    struct json doc;
    bool ok = true;

    if (json_parse(p, bag, &doc)) {
        struct json tags = json_get(doc, "tags");
        ok = tag_add(db, store, id, tags);
        for (struct json_iter it = {0};
             ok && json_type(tags) == JSON_ARRAY && json_next(tags, &it);)
            ok = tag_add(db, store, id, it.value);
    }
    json_parser_free(p);
    return ok;
}

static bool tags_drop(struct side_db *db, int64_t id)
{
    sqlite3_stmt *q = side_sql(db, CAT_TAG_DROP);

    if (q == NULL)
        return false;
    sqlite3_bind_int64(q, 1, id);
    return side_run(db, q);
}

/* Reads the current row; id 0: no such skill.  False: the read failed. */
static bool find_old(struct side_db *db, const struct skill_where *at, const struct skill_next *n,
                     struct arena *arena, struct catalog_entry *ret_old)
{
    if (n->kept != NULL) {
        *ret_old = *(const struct catalog_entry *)n->kept;
        return true;
    }
    return store_make(db, at, &ret_old->store) &&
           get_in(db, ret_old->store.id, n->name, arena, ret_old) != SKILL_FAILED;
}

bool catalog_put(struct side_db *db, const struct skill_where *at, const struct skill_next *n,
                 int64_t *ret_id, bool *ret_same)
{
    struct catalog_entry old = {0};
    struct arena arena = ARENA_INIT;
    bool ok = false;

    if (!find_old(db, at, n, &arena, &old))
        goto out;
    struct catalog_store s = old.store;
    if (old.id != 0)
        skill_sum_remove(&s.sum, old.row.meta);
    skill_sum_add(&s.sum, buf_str(&n->meta));
    s.n += old.id == 0;
    *ret_same = old.id != 0 && str_eq(old.row.content_hash, str_of(n->content_hash));
    ok = write_row(db, s.id, n, &old, ret_id) &&
         (old.as_head.bag.p == NULL || tags_drop(db, *ret_id)) &&
         (n->bag.n == 0 || tags_write(db, s.id, *ret_id, buf_str(&n->bag))) && store_set(db, &s);
out:
    arena_done(&arena);
    return ok;
}

bool catalog_drop(struct side_db *db, const struct skill_where *at, const struct catalog_entry *e)
{
    struct catalog_store s;
    sqlite3_stmt *q = side_sql(db, CAT_DROP);

    if (q == NULL || store_get(db, at, &s) != SKILL_FOUND || !tags_drop(db, e->id))
        return false;
    skill_sum_remove(&s.sum, e->row.meta);
    s.n--;
    sqlite3_bind_int64(q, 1, e->id);
    return side_run(db, q) && store_set(db, &s);
}

/* ---- sizes ---- */

bool catalog_size(struct side_db *db, struct str tenant, uint64_t *ret_bytes)
{
    sqlite3_stmt *q = side_sql(db, CAT_SIZE);
    bool ok = q != NULL;

    *ret_bytes = 0;
    if (!ok)
        return false;
    side_bind_str(q, 1, tenant);
    if (side_step(db, q, &ok)) {
        *ret_bytes = (uint64_t)sqlite3_column_int64(q, 0);
        sqlite3_reset(q);
    }
    return ok;
}

bool catalog_grow(struct side_db *db, struct str tenant, int64_t grows)
{
    sqlite3_stmt *q = side_sql(db, CAT_SIZE_GROW);

    if (q == NULL)
        return false;
    side_bind_str(q, 1, tenant);
    sqlite3_bind_int64(q, 2, grows);
    return side_run(db, q);
}

bool catalog_namespaces(struct side_db *db, struct str tenant, skill_ns_cb *cb, void *ctx)
{
    sqlite3_stmt *q = side_sql(db, CAT_NAMESPACES);
    bool ok = q != NULL;

    if (ok)
        side_bind_str(q, 1, tenant);
    while (ok && side_step(db, q, &ok))
        cb(ctx, side_str(q, 0));
    return ok;
}

bool catalog_sizes(struct side_db *db, skill_size_cb *cb, void *ctx)
{
    sqlite3_stmt *q = side_sql(db, CAT_SIZES);
    bool ok = q != NULL;

    while (ok && side_step(db, q, &ok))
        cb(ctx, side_str(q, 0), (uint64_t)sqlite3_column_int64(q, 1));
    return ok;
}

/* ---- queries ---- */

static void add_conditions(struct buf *sql, const struct skill_query *q)
{
    const struct skills_filter *f = q->f;

    if (f->by_status) {
        buf_add_z(sql, " AND status IN (");
        for (int s = 0, any = 0; s < N_SKILL_STATUSES; s++)
            if (f->statuses & 1u << s)
                buf_printf(sql, "%s%d", any++ ? "," : "", s);
        buf_add_z(sql, ")");
    }
    if (f->type.p != NULL)
        buf_add_z(sql, " AND type = @type");
    if (f->author.p != NULL)
        buf_add_z(sql, " AND author = @author");
    if (f->by_since)
        buf_add_z(sql, " AND updated_at >= @since");
    if (q->pattern != NULL)
        buf_printf(sql, " AND %s(@pattern, name)", match_name);
    for (size_t i = 0; i < f->n_tags; i++)
        buf_printf(sql,
                   " AND EXISTS(SELECT 1 FROM tags t WHERE t.store = skills.store AND t.tag = @t%zu"
                   " AND t.skill = skills.id)",
                   i);
}

static int at_name(sqlite3_stmt *q, const char *name)
{
    return sqlite3_bind_parameter_index(q, name);
}

static void bind_conditions(sqlite3_stmt *s, const struct skill_query *q)
{
    const struct skills_filter *f = q->f;
    char name[32];

    if (f->type.p != NULL)
        side_bind_str(s, at_name(s, "@type"), f->type);
    if (f->author.p != NULL)
        side_bind_str(s, at_name(s, "@author"), f->author);
    if (f->by_since)
        sqlite3_bind_int64(s, at_name(s, "@since"), f->since);
    if (q->pattern != NULL) /* SQLite's API takes a non-const pointer; it is only read */
        sqlite3_bind_pointer(s, at_name(s, "@pattern"), (void *)(uintptr_t)q->pattern, regex_type,
                             NULL);
    for (size_t i = 0; i < f->n_tags; i++) {
        snprintf(name, sizeof name, "@t%zu", i);
        side_bind_str(s, at_name(s, name), f->tags[i]);
    }
    sqlite3_bind_int64(s, at_name(s, "@limit"),
                       f->by_limit && f->limit <= INT64_MAX ? (int64_t)f->limit : -1);
    sqlite3_bind_int64(s, at_name(s, "@offset"),
                       f->offset <= INT64_MAX ? (int64_t)f->offset : INT64_MAX);
}

static sqlite3_stmt *prepare_list(struct side_db *db, int64_t store, const struct skill_query *q)
{
    struct buf sql = BUF_INIT;
    sqlite3_stmt *s = NULL;

    buf_add_z(&sql, "SELECT id, name, meta, content_hash, status, created_at, updated_at,"
                    " status_changed_at FROM skills"
                    " INDEXED BY skills_scan WHERE store = @store");
    add_conditions(&sql, q);
    buf_add_z(&sql, " ORDER BY name LIMIT @limit OFFSET @offset");
    if (sqlite3_prepare_v2(db->db, buf_z(&sql), -1, &s, NULL) != SQLITE_OK) {
        side_failed(db, "cannot prepare");
        buf_done(&sql);
        return NULL;
    }
    buf_done(&sql);
    sqlite3_bind_int64(s, at_name(s, "@store"), store);
    bind_conditions(s, q);
    return s;
}

enum skill_found catalog_list(struct side_db *db, const struct skill_where *at,
                              const struct skill_query *q, skill_row_cb *cb, void *ctx)
{
    struct catalog_store store;
    enum skill_found found = store_get(db, at, &store);
    bool ok = true;

    if (found != SKILL_FOUND)
        return found;
    sqlite3_stmt *s = prepare_list(db, store.id, q);
    if (s == NULL)
        return SKILL_FAILED;
    while (side_step(db, s, &ok)) {
        struct skill_row row = {.name = side_str(s, 1),
                                .meta = side_str(s, 2),
                                .content_hash = side_str(s, 3),
                                .status = (enum skill_status)sqlite3_column_int(s, 4),
                                .created_at = sqlite3_column_int64(s, 5),
                                .updated_at = sqlite3_column_int64(s, 6),
                                .status_changed_at = sqlite3_column_int64(s, 7)};
        if (!cb(ctx, &row))
            break;
    }
    sqlite3_finalize(s);
    return ok ? SKILL_FOUND : SKILL_FAILED;
}

enum skill_found catalog_token(struct side_db *db, const struct skill_where *at,
                               char ret_token[SKILL_TOKEN_BYTES])
{
    struct catalog_store s = {0};
    enum skill_found found = store_get(db, at, &s);

    if (found != SKILL_FAILED)
        skill_sum_token(&s.sum, s.n, ret_token);
    return found == SKILL_FAILED ? SKILL_FAILED : SKILL_FOUND;
}
