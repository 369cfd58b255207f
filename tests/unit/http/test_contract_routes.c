/* docs/contract.md says what the HTTP routes of a gateway take and answer.  This file checks the
 * tables of the limits and of the routes that the operations declare; the other tables are checked
 * by tests/e2e/test_contract_page.py. */
#include "page.h"
#include "base/mem.h"
#include "http/op.h"
#include "media/media.h"
#include "tenancy/enroll.h"
#include "tenancy/grants.h"

static void add_name(struct buf *out, struct str name, bool optional)
{
    buf_printf(out, "%s`%.*s`%s", out->n > 0 ? ", " : "", STR_FMT(name), optional ? "?" : "");
}

/* `platform`, `bot`? */
static const char *body_of(const struct op *op, struct buf *out)
{
    buf_reset(out);
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        add_name(out, str_of(a->name), (a->flags & OP_REQUIRED) == 0);
    return out->n > 0 ? buf_z(out) : "–";
}

/* The names of an answer such as "{code: text, bot?: text}", without those of objects in it. */
static const char *answer_of(const struct op *op, struct buf *out)
{
    const char *name = NULL;
    int depth = 0;

    buf_reset(out);
    for (const char *c = op->answer; *c != '\0'; c++) {
        depth += (*c == '{') - (*c == '}');
        if (depth == 1 && (*c == '{' || *c == ','))
            name = c + 1;
        if (depth != 1 || *c != ':' || name == NULL)
            continue;
        struct str s = str_trim(str_make(name, (size_t)(c - name)));
        bool optional = s.p[s.n - 1] == '?';
        add_name(out, str_make(s.p, s.n - optional), optional);
        name = NULL;
    }
    return buf_z(out);
}

static void routes(void)
{
    struct table t = table_open("### Routes of an instance");
    struct buf text = BUF_INIT;

    for (const struct op *op = ops_manage; op->name != NULL; op++) {
        if (op->may != MAY_GATEWAY || !next_row(&t, op->path))
            continue;
        buf_reset(&text);
        buf_printf(&text, "%s %s", op->method, op->path);
        check_cell(&t, buf_z(&text));
        agree(&t, raw_cell(&t), str_of(body_of(op, &text)));
        agree(&t, raw_cell(&t), str_of(answer_of(op, &text)));
        agree(&t, raw_cell(&t), op->errors != NULL ? str_of(op->errors) : STR("–"));
    }
    check_end(&t);
    buf_done(&text);
}

static void limits(void)
{
    static const struct {
        const char *name;
        uint64_t value;
    } all[] = {
        {"media_bytes", MEDIA_MAX_BYTES},
        {"provision_same_ms", PROVISION_SAME_MS},
        {"provision_keep_ms", PROVISION_KEEP_MS},
        {"provision_routes", PROVISION_ROUTES_MAX},
        {"provision_claims", PROVISION_CLAIMS_MAX},
        {"display_name_bytes", DISPLAY_NAME_MAX},
        {"id_bytes", GRANT_ID_MAX},
        {"list_ids", GRANT_LIST_MAX},
        {"link_code_ms", LINK_CODE_MS},
        {"link_codes", LINK_CODES_MAX},
        {"link_tries", LINK_TRIES},
        {"link_tries_ms", LINK_TRIES_MS},
        {"scopes", GRANT_SCOPES_MAX},
        {"tenant_scopes", GRANT_TENANT_SCOPES_MAX},
    };
    struct table t = table_open("### Limits of the routes");
    char value[24];

    for (size_t i = 0; i < ARRAY_LEN(all) && next_row(&t, all[i].name); i++) {
        snprintf(value, sizeof value, "%llu", (unsigned long long)all[i].value);
        check_cell(&t, all[i].name);
        check_cell(&t, value);
    }
    check_end(&t);
}

static void the_page_says_what_the_routes_take_and_answer(void **state)
{
    page_agrees(routes);
    page_agrees(limits);
}

static void a_changed_cell_of_these_tables_is_noticed(void **state)
{
    page_prove(routes);
    page_prove(limits);
}

UNIT(http_test_contract_routes)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_says_what_the_routes_take_and_answer),
        cmocka_unit_test(a_changed_cell_of_these_tables_is_noticed),
    };
    return cmocka_run_group_tests(tests, page_open, page_close);
}
