/* migrate.c - the tables of the skill store, copied by store/transfer.h.  (migrate.h has the
 * contract; sqlite_backend.c and postgres_backend.c have the statements.) */
#include "skills/migrate.h"
#include <stdio.h>

static const struct transfer_table tables[N_SKILLS_TABLES] = {
    [SKILLS_STORES] = {"stores of skills", "ittbi"},
    [SKILLS_SKILLS] = {"skills", "iititt"
                                 "iii"
                                 "ttttt"
                                 "in"},
    [SKILLS_TAGS] = {"tags of skills", "iti"},
    [SKILLS_VERSIONS] = {"versions of skills", "iittinitntn"},
    [SKILLS_SIZES] = {"sizes of tenants", "ti"},
};

static bool open_end(struct transfer_end *e, const struct skills_location *p, char *ret_why)
{
    e->server = p->url != NULL;
    e->s =
        e->server ? skills_migrate_server(p->url, ret_why) : skills_migrate_file(p->path, ret_why);
    return e->s != NULL;
}

static bool begin(struct transfer *t, const struct transfer_end *e, bool write)
{
    return (sqldb_begin(e->s, write) &&
            sqldb_ask(e->s, N_SKILLS_TABLES * TRANSFER_STATEMENTS + TRANSFER_PATIENCE)) ||
           transfer_failed(t, e);
}

/* The copy, unless the target has skills already; then the comparison. */
static bool migrate(struct transfer *t, const struct skills_location *to, bool *ret_resumed)
{
    unsigned first = SKILLS_SKILLS * TRANSFER_STATEMENTS + TRANSFER_COUNT;

    if (t->n[SKILLS_STORES] == 0)
        return true;
    if (!open_end(&t->to, to, t->why) || !begin(t, &t->to, true))
        return false;
    if (!sqldb_ask(t->to.s, first) || !sqldb_next(t->to.s))
        return transfer_failed(t, &t->to);
    *ret_resumed = sqldb_get_int(t->to.s, 0) > 0;
    for (size_t i = 0; i < N_SKILLS_TABLES && !*ret_resumed; i++)
        if (!transfer_copy(t, i, 0))
            return false;
    return transfer_compare(t) && ((sqldb_ask(t->to.s, SKILLS_FINISH) && sqldb_commit(t->to.s)) ||
                                   transfer_failed(t, &t->to));
}

enum bh_err skills_migrate(const struct skills_location *from, const struct skills_location *to,
                           transfer_cb *each, void *ctx, struct skills_migrated *ret, char *ret_why)
{
    struct transfer t = {
        .tables = tables, .n_tables = N_SKILLS_TABLES, .each = each, .ctx = ctx, .why = ret_why};

    ret_why[0] = '\0';
    *ret = (struct skills_migrated){0};
    bool ok = open_end(&t.from, from, ret_why) && begin(&t, &t.from, false) && transfer_count(&t) &&
              migrate(&t, to, &ret->resumed);
    ret->skills = t.n[SKILLS_SKILLS];
    ret->versions = t.n[SKILLS_VERSIONS];
    sqldb_close(t.to.s);
    sqldb_close(t.from.s);
    return ok ? BH_OK : t.stopped ? BH_CANCELLED : BH_UNAVAILABLE;
}
