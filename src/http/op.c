/* op.c - reading arguments, and the life of a call.  (op.h has the contract.)
 *
 * Each segment of a path is decoded on its own, so that a name may hold a slash (%2F) and still be
 * one segment. */
#include "http/op.h"
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/percent.h"
#include "core/event.h"
#include "http/v1.h"
#include "mcp/mcp.h"

enum { TEXTS_MAX = 64 };

const struct op_family op_families[] = {
    {"server", ops_server},
    {"skills", ops_skills},
    {"data", ops_data},
    {"agents", ops_agents},
    {"chat", ops_chat},
    {"mailbox", ops_mailbox},
    {"manage", ops_manage},
    {"lists", ops_lists},
    {"changes", ops_changes},
    {"nodes", ops_nodes},
    {"erase", ops_erase},
    {"why", ops_why},
    {"care", ops_care},
    {"dashboard", ops_dashboard},
    {"pairing", ops_pairing},
    {"test", ops_test},
    {0},
};

const struct op *op_find(const char *name)
{
    for (const struct op_family *f = op_families; f->name != NULL; f++)
        for (const struct op *op = f->ops; op->name != NULL; op++)
            if (strcmp(op->name, name) == 0)
                return op;
    return NULL;
}

/* ---- paths ---- */

/* STR_NULL: a broken escape, a NUL, or not UTF-8. */
static struct str decode(struct str s, struct arena *arena)
{
    char *out = arena_alloc(arena, s.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            int hi = i + 2 < s.n ? hex_value(s.p[i + 1]) : -1;
            int lo = hi >= 0 ? hex_value(s.p[i + 2]) : -1;
            if (lo < 0)
                return STR_NULL;
            c = (char)(hi << 4 | lo);
            i += 2;
        }
        if (c == '\0')
            return STR_NULL;
        out[n++] = c;
    }
    out[n] = '\0';
    return utf8_valid(str_make(out, n)) ? str_make(out, n) : STR_NULL;
}

bool op_match(const char *pattern, struct str path, struct arena *arena,
              struct str ret_args[OP_PATH_MAX])
{
    struct str want_rest = str_of(pattern), rest = path, want, part;
    size_t n_args = 0;

    while (str_split(&want_rest, '/', &want)) {
        if (!str_split(&rest, '/', &part))
            return false;
        if (want.n == 0 || want.p[0] != '{') {
            if (!str_eq(want, part))
                return false;
            continue;
        }
        struct str arg = decode(part, arena);
        if (str_is_empty(arg) || n_args == OP_PATH_MAX)
            return false;
        ret_args[n_args++] = arg;
    }
    return rest.p == NULL;
}

/* ---- arguments ---- */

static bool BH_PRINTF(3, 4) misused(const struct op *op, struct fault *f, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fault_set(f, op->misuse != FAULT_NONE ? op->misuse : FAULT_INVALID, "%s", text);
    return false;
}

/* The argument's name as the caller knows it. */
static const char *name_of(const struct op_args *args, const struct op_arg *a)
{
    return args->tool && a->tool != NULL ? a->tool : a->name;
}

static bool check_text(const struct op *op, const struct op_arg *a, const char *name, struct str s,
                       struct fault *f)
{
    char words[128];
    size_t n = 0;

    if ((a->flags & OP_FILLED) && str_is_empty(s))
        return misused(op, f, "%s must be a text that is not empty", name);
    if (a->type == OP_TEXT && a->max > 0 && s.n > (size_t)a->max)
        return misused(op, f, "%s must have at most %lld bytes.", name, (long long)a->max);
    struct str rest = str_of(a->one_of), word;
    if (a->one_of == NULL)
        return true;
    while (str_split(&rest, '|', &word) && n < sizeof words) {
        if (str_eq(word, s))
            return true;
        /* "Draft|Approved|Disabled" is told as "Draft, Approved or Disabled". */
        const char *between = n == 0 ? "" : rest.p == NULL ? " or " : ", ";
        n += (size_t)snprintf(words + n, sizeof words - n, "%s%.*s", between, STR_FMT(word));
    }
    return misused(op, f, "%s must be %s, not \"%.*s\"", name, words, (int)(s.n < 200 ? s.n : 200),
                   s.p);
}

static bool add_text(const struct op *op, const struct op_arg *a, struct str s,
                     struct op_args *args, struct op_value *v, struct fault *f)
{
    struct str *texts = (struct str *)v->texts;
    size_t most = a->max > 0 ? (size_t)a->max : TEXTS_MAX;

    if (texts == NULL)
        v->texts = texts = arena_alloc(args->arena, most * sizeof *texts);
    if (s.p == NULL || v->n_texts == most)
        return misused(op, f, "%s must be a%s list of at most %zu texts", name_of(args, a),
                       a->type == OP_TEXTS ? " text or a" : "", most);
    texts[v->n_texts++] = s;
    return check_text(op, a, name_of(args, a), s, f);
}

static bool bad_number(const struct op *op, const struct op_arg *a, struct str was, struct fault *f)
{
    if (a->max > 0)
        return misused(op, f, "%s must be a number from %lld to %lld.", a->name, (long long)a->min,
                       (long long)a->max);
    if (a->min > 0)
        return misused(op, f, "%s must be a number above %lld.", a->name, (long long)a->min - 1);
    if (was.p == NULL)
        return misused(op, f, "%s must be a whole number", a->name);
    return misused(op, f, "%s must be a whole number, not \"%.*s\"", a->name,
                   (int)(was.n < 200 ? was.n : 200), was.p);
}

static bool in_range(const struct op_arg *a, int64_t n)
{
    return (n >= a->min || a->type == OP_SECONDS) && (a->max == 0 || n <= a->max);
}

bool op_read_text(const struct op *op, size_t i, struct str value, struct op_args *args,
                  struct fault *ret_fault)
{
    const struct op_arg *a = &op->args[i];
    struct op_value *v = &args->values[i];
    uint64_t n;

    v->given = true;
    switch (a->type) {
    case OP_TEXTS:
        return add_text(op, a, value, args, v, ret_fault);
    case OP_WHOLE:
    case OP_SECONDS:
        if (!str_to_u64(value, &n))
            return bad_number(op, a, value, ret_fault);
        v->number = n > INT64_MAX ? INT64_MAX : (int64_t)n;
        return in_range(a, v->number) || bad_number(op, a, value, ret_fault);
    case OP_BOOL:
        v->flag = str_eq(value, STR("true"));
        return v->flag || str_eq(value, STR("false")) ||
               misused(op, ret_fault, "%s must be true or false.", a->name);
    default:
        v->text = value;
        return (a->flags & OP_UNCHECKED) || check_text(op, a, a->name, value, ret_fault);
    }
}

static bool read_number(const struct op_arg *a, struct json value, int64_t *ret)
{
    double d;

    if (!json_as_f64(value, &d) || !(d > -9e15 && d < 9e15))
        return false;
    *ret = (int64_t)ceil(d);
    return in_range(a, *ret) && (a->type == OP_SECONDS || d == floor(d));
}

bool op_read_json(const struct op *op, size_t i, struct json value, struct op_args *args,
                  struct fault *ret_fault)
{
    const struct op_arg *a = &op->args[i];
    struct op_value *v = &args->values[i];
    enum json_type t = json_type(value);

    if (t == JSON_ABSENT || t == JSON_NULL)
        return true;
    v->given = true;
    v->json = value;
    v->text = json_as_str(value);
    if (a->flags & OP_UNCHECKED)
        return true;
    switch (a->type) {
    case OP_TEXTS:
    case OP_LIST:
        if (t != JSON_ARRAY)
            return add_text(op, a, a->type == OP_TEXTS ? v->text : STR_NULL, args, v, ret_fault);
        for (struct json_iter it = {0}; json_next(value, &it);)
            if (!add_text(op, a, json_as_str(it.value), args, v, ret_fault))
                return false;
        return true;
    case OP_WHOLE:
    case OP_SECONDS:
        return read_number(a, value, &v->number) || bad_number(op, a, STR_NULL, ret_fault);
    case OP_BOOL:
        v->flag = json_as_bool(value, false);
        return t == JSON_BOOL || misused(op, ret_fault, "%s must be true or false.", a->name);
    case OP_OBJECT:
        return t == JSON_OBJECT || misused(op, ret_fault, "%s must be an object.", a->name);
    default:
        if (t == JSON_STRING)
            return check_text(op, a, name_of(args, a), v->text, ret_fault);
        return misused(op, ret_fault, "%s must be a text%s", name_of(args, a),
                       a->flags & OP_FILLED ? " that is not empty" : ".");
    }
}

const char *op_tool_arg(const struct op_arg *a)
{
    const char *name = a->tool != NULL ? a->tool : a->name;

    return name[0] != '\0' && (a->in != IN_HEADER || a->tool != NULL) ? name : NULL;
}

bool op_knows(const struct op *op, struct str name, const struct op_args *args,
              struct fault *ret_fault)
{
    struct buf names = BUF_INIT;
    bool known = false;

    for (const struct op_arg *a = op->args; a->name != NULL; a++) {
        const char *is = args->tool ? op_tool_arg(a) : a->in == IN_QUERY ? a->name : NULL;
        known = known || (is != NULL && str_eq(name, str_of(is)));
        if (a->in == IN_QUERY)
            buf_printf(&names, "%s%s", names.n > 0 ? ", " : "", a->name);
    }
    if (!known)
        misused(op, ret_fault, "there is no %s \"%.*s\"; there are %s", op->filters,
                (int)(name.n < 60 ? name.n : 60), name.p, buf_z(&names));
    buf_done(&names);
    return known;
}

bool op_args_complete(const struct op *op, const struct op_args *args, struct fault *ret_fault)
{
    for (size_t i = 0; op->args != NULL && op->args[i].name != NULL; i++) {
        const struct op_arg *a = &op->args[i];
        const char *name = args->tool ? op_tool_arg(a) : a->in != IN_TOOL ? a->name : NULL;
        if (name != NULL && (a->flags & OP_REQUIRED) && !(a->flags & OP_UNCHECKED) &&
            !args->values[i].given)
            return misused(op, ret_fault, "%s must be a text%s", name,
                           a->flags & OP_FILLED ? " that is not empty" : ".");
    }
    return true;
}

const struct op_value *op_value(const struct op_call *c, const char *name)
{
    for (size_t i = 0; c->op->args[i].name != NULL; i++)
        if (strcmp(c->op->args[i].name, name) == 0)
            return &c->args->values[i];
    assert(!"the operation declares no such argument");
    return NULL;
}

struct str op_text(const struct op_call *c, const char *name)
{
    struct str text = op_value(c, name)->text;

    /* A client may name a platform as it read it in an event. */
    return strcmp(name, "platform") == 0 ? event_platform_meant(text) : text;
}

bool op_flag(const struct op_call *c, const char *name)
{
    return op_value(c, name)->flag;
}

int64_t op_number(const struct op_call *c, const char *name, int64_t otherwise)
{
    const struct op_value *v = op_value(c, name);

    return v->given ? v->number : otherwise;
}

/* ---- requests of a client ---- */

static struct str value_of(const struct op_given *given, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(given[i].name, name) == 0)
            return given[i].value;
    return STR_NULL;
}

static void add_query(struct buf *path, const char *name, struct str value)
{
    buf_printf(path, "%c%s=", memchr(path->p, '?', path->n) != NULL ? '&' : '?', name);
    percent_encode(path, value);
}

static bool write_value(struct jw *w, const struct op_arg *a, struct str value)
{
    struct str rest = value, word;
    int64_t number;

    switch (a->type) {
    case OP_TEXTS:
    case OP_LIST:
        jw_arr(w);
        while (str_split(&rest, ',', &word))
            jw_str(w, str_trim(word));
        jw_end_arr(w);
        return true;
    case OP_WHOLE:
    case OP_SECONDS:
        if (!str_to_i64(value, &number))
            return false;
        jw_i64(w, number);
        return true;
    case OP_BOOL:
    case OP_OBJECT:
    case OP_OTHER:
        jw_raw(w, value);
        return true;
    default:
        jw_str(w, value);
        return utf8_valid(value);
    }
}

bool op_request(const struct op *op, const struct op_given *given, size_t n, struct buf *ret_path,
                struct buf *ret_body, char *ret_why)
{
    bool by_operator = op->operator_path != NULL;
    struct str rest = str_of((by_operator ? op->operator_path : op->path) + 1), part;
    struct jw w = jw_begin(ret_body);
    bool has_body =
        by_operator || (strcmp(op->method, "GET") != 0 && strcmp(op->method, "DELETE") != 0);

    while (str_split(&rest, '/', &part)) {
        buf_add_c(ret_path, '/');
        if (part.p[0] != '{') {
            buf_add_str(ret_path, part);
            continue;
        }
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)part.n - 2, part.p + 1);
        percent_encode(ret_path, value_of(given, n, name));
    }
    if (has_body)
        jw_obj(&w);
    if (by_operator) {
        jw_kstr_opt(&w, "tenant", value_of(given, n, "tenant"));
        jw_kstr_opt(&w, "instance", value_of(given, n, "instance"));
    }
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++) {
        struct str value = value_of(given, n, a->name), values = value, word;
        bool ok = true;
        if (value.p != NULL && a->in == IN_BODY) {
            jw_key(&w, a->name);
            ok = write_value(&w, a, value);
        } else if (a->in == IN_QUERY && a->type == OP_TEXTS) {
            while (str_split(&values, ',', &word))
                add_query(ret_path, a->name, str_trim(word));
        } else if (value.p != NULL && a->in == IN_QUERY) {
            add_query(ret_path, a->name, value);
        }
        if (!ok)
            return bh_why(ret_why, a->type == OP_TEXT ? "%s is not UTF-8" : "%s is not a number",
                          a->name);
    }
    if (has_body)
        jw_end_obj(&w);
    return true;
}

/* ---- calls ---- */

struct op_call *op_call_new(struct front *f, const struct op *op)
{
    struct op_call *c = xcalloc(1, sizeof *c);

    *c = (struct op_call){.f = f, .op = op};
    if (f->op_calls.next == NULL)
        list_init(&f->op_calls); /* while this process stands by */
    list_append(&f->op_calls, &c->link);
    return c;
}

void op_call_free(struct op_call *c)
{
    list_remove(&c->link);
    if (c->drop != NULL)
        c->drop(c->mine);
    v1_give_work(c->f, &c->work);
    free(c->tenant);
    free(c->instance);
    buf_wipe(&c->out);
    buf_done(&c->note);
    buf_done(&c->changed);
    free(c);
}

void op_calls_drop(struct front *f)
{
    if (f->op_calls.next == NULL)
        return; /* the front was never filled */
    list_each (&f->op_calls, it, nxt)
        op_call_free(list_entry(it, struct op_call, link));
}

void op_keep(struct op_call *c, void *mine, void (*drop)(void *mine))
{
    c->mine = mine;
    c->drop = drop;
}

struct jw op_begin(struct op_call *c)
{
    return jw_begin(&c->out);
}

void op_answer_status(struct op_call *c, int status, struct str json, struct str etag)
{
    if (c->key_id[0] != '\0' && c->mcp == NULL && c->who.kind == AUDIT_NOBODY &&
        !keys_is_good(c->f->keys, str_of(c->key_id))) { /* who made a change is told its end */
        op_refuse(c, FAULT_REFUSED, "the key of this call was revoked");
        return;
    }
    if (c->mcp != NULL)
        tool_answer(c, json);
    else
        v1_answer(c, status, json, etag);
    op_call_free(c);
}

void op_answer(struct op_call *c, struct str json)
{
    op_answer_status(c, 200, json, STR_NULL);
}

void op_end(struct op_call *c)
{
    op_answer(c, buf_str(&c->out));
}

void op_answer_long(struct op_call *c, struct str json, const struct spill *file, struct str etag)
{
    if (c->mcp != NULL || file == NULL) {
        op_answer_status(c, 200, json, etag);
        return;
    }
    v1_answer_file(c, file, etag);
    op_call_free(c);
}

void op_answer_missing(struct op_call *c, const char *what)
{
    /* Without a class: a missing value is none of the contract's errors. */
    buf_printf(&c->out, "{\"error\":\"%s\",\"code\":\"not_found\",\"class\":null}", what);
    op_answer_status(c, 404, c->mcp != NULL ? STR("null") : buf_str(&c->out), STR_NULL);
}

void op_fail(struct op_call *c, const struct fault *fault)
{
    if (c->mcp != NULL)
        mcp_fail(c->mcp, fault);
    else
        v1_fault(c->f, c->id, c->op, fault);
    op_call_free(c);
}

void op_refuse(struct op_call *c, enum fault_class cls, const char *fmt, ...)
{
    struct fault fault = {0};
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fault_set(&fault, cls, "%s", text);
    op_fail(c, &fault);
    fault_done(&fault);
}

void op_error(struct op_call *c, int status, const char *code, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    http_answer_error(c->f->server, c->id, status, code, "%s", text);
    op_call_free(c);
}

void op_changes(struct op_call *c, const char *record, struct str key, struct str before)
{
    struct jw w = jw_begin(&c->changed);

    jw_obj(&w);
    jw_kstr(&w, "record", str_of(record));
    jw_kstr(&w, "key", key);
    jw_kraw(&w, "before", before.n > 0 ? before : STR("null"));
}

void op_changed(struct op_call *c, struct str after)
{
    buf_add_z(&c->changed, ",\"after\":");
    buf_add_str(&c->changed, after.n > 0 ? after : STR("null"));
    buf_add_c(&c->changed, '}');
}

/* A change of something other than the facts: the log gets what the server's own log has. */
static void note_call(struct op_call *c)
{
    BUF_LOCAL more = BUF_INIT;
    struct jw w = jw_begin(&more);

    jw_obj(&w);
    if (c->tenant != NULL)
        jw_kstr(&w, "tenant", str_of(c->tenant));
    if (c->instance != NULL)
        jw_kstr(&w, "instance", str_of(c->instance));
    if (c->note.n > 0)
        jw_kstr(&w, "note", buf_str(&c->note));
    if (c->changed.n > 0) {
        jw_karr(&w, "records");
        jw_raw(&w, buf_str(&c->changed));
        jw_end_arr(&w);
    }
    jw_end_obj(&w);
    struct str members = str_skip(buf_str(&more), 1);
    members.n--;
    audit_note(c->f->audit, &c->who, members);
}

void op_done(void *ctx, enum bh_err err, const char *why)
{
    static const int statuses[] = {
        [BH_REFUSED] = 403, [BH_MALFORMED] = 400, [BH_CONFLICT] = 409, [BH_NOT_FOUND] = 404};
    struct op_call *c = ctx;
    int status = (size_t)err < ARRAY_LEN(statuses) ? statuses[err] : 0;

    if (err == BH_BUSY && c->op->may == MAY_GATEWAY) {
        op_error(c, 429, "rate_limited", "%s", why);
    } else if (err == BH_CONFLICT && c->op->may == MAY_GATEWAY) {
        op_error(c, 409, "scope_taken", "%s", why);
    } else if (err != BH_OK) {
        op_error(c, status != 0 ? status : 503, bh_err_word(err), "%s", why);
    } else {
        if (c->note.n > 0)
            log_info(NULL, "%s", buf_z(&c->note));
        if (c->who.kind != AUDIT_NOBODY && c->f->audit != NULL &&
            !audit_has_begun(c->f->audit, &c->who))
            note_call(c);
        op_answer(c, c->out.n > 0 ? buf_str(&c->out) : STR("{\"ok\":true}"));
    }
}
