/* op_describe.c - generates openapi.json (/v1 only), the JSON schemas of tools and docs/api.md from
 * the tables of operations.
 *
 * op.h explains how types are written: "[SkillMeta]", "{status: ok|unavailable, detail?: text}". */
#include <stdio.h>
#include "base/jw.h"
#include "http/op.h"

static const struct {
    const char *name, *type;
} schemas[] = {
    {"AgentDescriptor", "{agent_id: text, agent_name?: text, capabilities?: "
                        "[deliver|wake|augment|template]}"},
    {"Meta", "{dispatch_id: text, sent_at?: number, origin?: object, event_type?: text, "
             "correlation_id?: text}"},
    {"DeliveryReceipt", "{delivered_at: whole, delivery_id?: text, session_id?: text, "
                        "delivery_skipped?: bool, warnings?: [text]}"},
    {"Delivery", "{delivery_id: text, agent_id: text, dispatch_id: text, kind: augment|template, "
                 "state: queued|delivered|acknowledged|answered|refused, queued_at: whole, "
                 "delivered_at?: whole, acknowledged_at?: whole, answered_at?: whole, "
                 "reason?: text}"},
    {"WakeReceipt", "{woken_at: whole, woken: bool, session_id?: text, warnings?: [text]}"},
    {"Response", "{correlation_id: text, content: text, sent_at: whole, agent_id: text, "
                 "warnings?: [text]}"},
    {"Reply", "{cursor: text, content: text, sent_at: whole, session_id?: text, "
              "correlation_id?: text, in_reply_to?: text, dispatch_id?: text}"},
    {"Manifest", "{capabilities_version: text, manifest: {kind: text}}"},
    {"SkillMeta", "{name: text, version: text, content_hash: text, "
                  "status: Draft|Approved|Disabled, created_at: whole, updated_at: whole, "
                  "status_changed_at?: whole, description?: text, tags?: [text], vars?: [text], "
                  "returns?: [text], requires?: [text], triggers?: [object], outputs?: [text], "
                  "type?: procedural|data, author?: text, metadata_bag?: object}"},
    {"SkillSource", "{name: text, version: text, content_hash: text, source: text, "
                    "metadata: SkillMeta}"},
    {"VersionInfo", "{name: text, version: text, content_hash: text, "
                    "status: Draft|Approved|Disabled, changed_at: whole, "
                    "previous_status?: Draft|Approved|Disabled, changed_by?: text}"},
    {"PortableData", "{id: text, summary: text, detail?: text, score?: number, "
                     "thread_status?: text, pinned?: bool, confidence?: number, "
                     "domain_tags?: [text], payload_type?: text, knowledge_type?: text, "
                     "recipients?: [text], expires_at?: number, created_at?: whole, "
                     "agent_id?: text, vault?: text, metadata?: object}"},
    {"Error", "{error: text, code: text, class?: text|null, agent_id?: text, "
              "cause_kind?: network|timeout|http_status|malformed_response|client_validation, "
              "http_status?: whole|null, skill_name?: text, version?: text, reason?: text, "
              "mode?: text, timeout_ms?: whole, unsupportedKeys?: [text], supportedKeys?: [text], "
              "substrate?: text, remediation?: text}"},
};
enum { N_SCHEMAS = sizeof schemas / sizeof schemas[0] };

/* ---- types as JSON Schema ---- */

static const struct {
    const char *word, *json;
} plain[] = {{"text", "string"},  {"whole", "integer"}, {"number", "number"},
             {"bool", "boolean"}, {"object", "object"}, {"null", "null"}};

static const char *plain_type(struct str word)
{
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (str_eq(word, str_of(plain[i].word)))
            return plain[i].json;
    return NULL;
}

static bool is_schema(struct str word)
{
    for (size_t i = 0; i < N_SCHEMAS; i++)
        if (str_eq(word, str_of(schemas[i].name)))
            return true;
    return false;
}

/* Splits *@rest at the first @sep outside brackets and returns the part before it. */
static bool split_outside(struct str *rest, char sep, struct str *ret_part)
{
    size_t depth = 0, i = 0;

    if (rest->p == NULL)
        return false;
    for (; i < rest->n; i++) {
        char c = rest->p[i];
        depth += c == '[' || c == '{';
        depth -= c == ']' || c == '}';
        if (c == sep && depth == 0)
            break;
    }
    *ret_part = str_trim(str_make(rest->p, i));
    *rest = i < rest->n ? str_skip(*rest, i + 1) : STR_NULL;
    return true;
}

static void write_members(struct jw *w, struct str type);

static void write_type(struct jw *w, struct str type)
{
    jw_obj(w);
    write_members(w, type);
    jw_end_obj(w);
}

static void write_object(struct jw *w, struct str fields)
{
    struct str rest = fields, field;

    jw_kstr(w, "type", STR("object"));
    jw_kobj(w, "properties");
    while (split_outside(&rest, ',', &field)) {
        size_t colon = (size_t)str_find(field, ':');
        bool optional = field.p[colon - 1] == '?';
        jw_key_str(w, str_make(field.p, colon - optional));
        write_type(w, str_skip(field, colon + 2));
    }
    jw_end_obj(w);
    jw_karr(w, "required");
    for (rest = fields; split_outside(&rest, ',', &field);) {
        size_t colon = (size_t)str_find(field, ':');
        if (field.p[colon - 1] != '?')
            jw_str(w, str_make(field.p, colon));
    }
    jw_end_arr(w);
}

static void write_choice(struct jw *w, struct str type)
{
    struct str rest = type, part;
    bool words = true;

    while (split_outside(&rest, '|', &part))
        words = words && plain_type(part) == NULL && part.p[0] != '[' && !is_schema(part);
    jw_karr(w, words ? "enum" : "anyOf");
    for (rest = type; split_outside(&rest, '|', &part);)
        if (words)
            jw_str(w, part);
        else
            write_type(w, part);
    jw_end_arr(w);
}

/* The members of a schema, without its braces. */
static void write_members(struct jw *w, struct str type)
{
    const char *json = plain_type(type);
    struct str rest = type, first;
    char ref[64];

    if (json != NULL) {
        jw_kstr(w, "type", str_of(json));
    } else if (is_schema(type)) {
        snprintf(ref, sizeof ref, "#/components/schemas/%.*s", STR_FMT(type));
        jw_kstr(w, "$ref", str_of(ref));
    } else if (split_outside(&rest, '|', &first) && rest.p != NULL) {
        write_choice(w, type);
    } else if (type.p[0] == '[') {
        jw_kstr(w, "type", STR("array"));
        jw_key(w, "items");
        write_type(w, str_make(type.p + 1, type.n - 2));
    } else if (type.p[0] == '{') {
        write_object(w, str_make(type.p + 1, type.n - 2));
    } else {
        jw_kstr(w, "const", type);
    }
}

/* ---- arguments ---- */

/* The type of an argument as text.  A list repeats in a query string. */
static void add_type(struct buf *out, const struct op_arg *a)
{
    const char *item = a->one_of != NULL ? a->one_of : "text";

    switch (a->type) {
    case OP_TEXT:
        buf_add_z(out, item);
        return;
    case OP_TEXTS:
        buf_printf(out, a->in == IN_QUERY ? "[%s]" : "text|[%s]", item);
        return;
    case OP_LIST:
        buf_add_z(out, "[text]");
        return;
    case OP_WHOLE:
    case OP_SECONDS:
        buf_add_z(out, "whole");
        return;
    case OP_BOOL:
        buf_add_z(out, "bool");
        return;
    default:
        buf_add_z(out, a->schema != NULL ? a->schema : "object");
    }
}

static void write_arg(struct jw *w, const struct op_arg *a, bool describe)
{
    struct buf type = BUF_INIT;

    add_type(&type, a);
    jw_obj(w);
    write_members(w, buf_str(&type));
    if (a->type == OP_WHOLE)
        jw_ki64(w, "minimum", a->min);
    if (a->type == OP_WHOLE && a->max > 0)
        jw_ki64(w, "maximum", a->max);
    if (describe)
        jw_kstr_opt(w, "description", str_of(a->what));
    if (a->initial != NULL)
        jw_kraw(w, "default", str_of(a->initial));
    jw_end_obj(w);
    buf_done(&type);
}

typedef const char *arg_name(const struct op_arg *a); /* NULL: not one of these */

static const char *body_arg(const struct op_arg *a)
{
    return a->in == IN_BODY ? a->name : NULL;
}

static const char *nested_arg(const struct op_arg *a)
{
    return a->in == IN_QUERY ? a->name : NULL;
}

static void write_properties(struct jw *w, const struct op *op, arg_name *name)
{
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        if (name(a) != NULL) {
            jw_key(w, name(a));
            write_arg(w, a, true);
        }
}

static void write_args_object(struct jw *w, const struct op *op, arg_name *name, const char *nest)
{
    jw_obj(w);
    jw_kstr(w, "type", STR("object"));
    jw_kobj(w, "properties");
    write_properties(w, op, name);
    if (nest != NULL) {
        jw_kobj(w, nest);
        jw_kstr(w, "type", STR("object"));
        jw_kstr(w, "description", STR("The same filters in one object"));
        jw_kobj(w, "properties");
        write_properties(w, op, nested_arg);
        jw_end_obj(w);
        jw_end_obj(w);
    }
    jw_end_obj(w);
    jw_karr(w, "required");
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        if (name(a) != NULL && (a->flags & OP_REQUIRED))
            jw_str(w, str_of(name(a)));
    jw_end_arr(w);
    jw_end_obj(w);
}

void op_tool_schema(const struct op *op, struct buf *out)
{
    struct jw w = jw_begin(out);

    write_args_object(&w, op, op_tool_arg, op->filters);
}

/* ---- errors ---- */

static bool needs_key(const struct op *op)
{
    return op->may == MAY_KEY || op->may == MAY_INSTANCE || op->may == MAY_ADMIN;
}

/* Lists the errors with @status: "SkillNotFoundError, refused".  False: there are none. */
static bool add_faults(struct buf *out, unsigned faults, int status)
{
    bool any = false;

    for (unsigned c = 1; c < N_FAULTS; c++) {
        const char *name = fault_class_name((enum fault_class)c);
        if (!(faults & 1u << c) || fault_http_status((enum fault_class)c) != status)
            continue;
        buf_printf(out, "%s%s", any ? ", " : "",
                   name != NULL ? name : fault_code((enum fault_class)c));
        any = true;
    }
    return any;
}

/* ---- openapi.json ---- */

/* The content of a body; the caller writes the schema and ends both objects. */
static void begin_content(struct jw *w)
{
    jw_kobj(w, "content");
    jw_kobj(w, "application/json");
    jw_key(w, "schema");
}

static void write_response(struct jw *w, int status, struct str what, struct str type)
{
    char code[16];

    snprintf(code, sizeof code, "%d", status);
    jw_key_str(w, str_of(code));
    jw_obj(w);
    jw_kstr(w, "description", what);
    if (type.p != NULL) {
        begin_content(w);
        write_type(w, type);
        jw_end_obj(w);
        jw_end_obj(w);
    }
    jw_end_obj(w);
}

static void write_responses(struct jw *w, const struct op *op)
{
    struct buf what = BUF_INIT;
    bool open = op->may == MAY_ANYBODY || op->may == MAY_ANYBODY_WITH_KEY;
    /* Every operation that is not for anybody can answer these. */
    unsigned faults = op->faults | (open ? 0 : OP_FAULT(BUSY) | OP_FAULT(UNAVAILABLE));

    jw_kobj(w, "responses");
    write_response(w, op->answer != NULL ? 200 : 204, str_of(op->answer_what), str_of(op->answer));
    if (needs_key(op) || op->may == MAY_ANYBODY_WITH_KEY)
        write_response(w, 401, STR("No key, or one that is not good."), STR("Error"));
    for (int status = 400; status < 600; status++) {
        buf_reset(&what);
        if (add_faults(&what, faults, status))
            write_response(w, status, buf_str(&what), STR("Error"));
    }
    jw_end_obj(w);
    buf_done(&what);
}

static void write_parameter(struct jw *w, const struct op_arg *a)
{
    static const char *const places[] = {
        [IN_PATH] = "path", [IN_QUERY] = "query", [IN_HEADER] = "header"};

    jw_obj(w);
    jw_kstr(w, "name", str_of(a->name));
    jw_kstr(w, "in", str_of(places[a->in]));
    jw_kbool(w, "required", a->in == IN_PATH || (a->flags & OP_REQUIRED));
    jw_kstr(w, "description", str_of(a->what));
    jw_key(w, "schema");
    write_arg(w, a, false);
    jw_end_obj(w);
}

static void write_parameters(struct jw *w, const struct op *op)
{
    static const struct op_arg ns = {"X-Bellhop-Namespace", IN_HEADER, OP_TEXT,
                                     .what = "A store of its own inside the tenant."};

    jw_karr(w, "parameters");
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        if (a->in <= IN_HEADER)
            write_parameter(w, a);
    if (str_starts(str_of(op->path), STR("/v1/skills")) ||
        str_starts(str_of(op->path), STR("/v1/data")))
        write_parameter(w, &ns);
    jw_end_arr(w);
}

static void write_operation(struct jw *w, const struct op_family *family, const struct op *op)
{
    char method[8] = "";
    bool has_body = false;

    for (size_t i = 0; op->method[i] != '\0'; i++)
        method[i] = (char)(op->method[i] | 32);
    jw_key_str(w, str_of(method));
    jw_obj(w);
    jw_kstr(w, "operationId", str_of(op->name));
    jw_karr(w, "tags");
    jw_str(w, str_of(family->name));
    jw_end_arr(w);
    jw_kstr(w, "summary", str_of(op->summary));
    if (!needs_key(op))
        jw_kraw(w, "security", STR("[]"));
    write_parameters(w, op);
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        has_body = has_body || a->in == IN_BODY;
    if (has_body) {
        jw_kobj(w, "requestBody");
        jw_kbool(w, "required", !op->body_may_be_empty);
        begin_content(w);
        write_args_object(w, op, body_arg, NULL);
        jw_end_obj(w);
        jw_end_obj(w);
        jw_end_obj(w);
    }
    write_responses(w, op);
    jw_end_obj(w);
}

/* Writes all methods of a path, at the first operation that has the path. */
static void write_path(struct jw *w, const struct op_family *family, const struct op *op)
{
    for (const struct op *before = family->ops; before < op; before++)
        if (before->path != NULL && strcmp(before->path, op->path) == 0)
            return;
    jw_key_str(w, str_of(op->path));
    jw_obj(w);
    for (const struct op *of = op; of->name != NULL; of++)
        if (of->path != NULL && strcmp(of->path, op->path) == 0)
            write_operation(w, family, of);
    jw_end_obj(w);
}

void op_openapi(struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "openapi", STR("3.1.0"));
    jw_kraw(&w, "info",
            STR("{\"title\":\"bellhop\",\"version\":\"1.0.0\",\"description\":\"Agents and "
                "their stores, by key. Every error is an object with `error` (a sentence), "
                "`code` (a stable word), `class` (the contract's error class, or null) and the "
                "fields of that class. Times are unix seconds; those of agents are unix "
                "milliseconds.\"}"));
    jw_kraw(&w, "security", STR("[{\"key\":[]}]"));
    jw_kobj(&w, "paths");
    for (const struct op_family *f = op_families; f->name != NULL; f++)
        for (const struct op *op = f->ops; op->name != NULL; op++)
            if (op->path != NULL && str_starts(str_of(op->path), STR("/v1/")))
                write_path(&w, f, op);
    jw_end_obj(&w);
    jw_kobj(&w, "components");
    jw_kraw(&w, "securitySchemes",
            STR("{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\",\"description\":\"What "
                "`bellhop token agent` printed.\"}}"));
    jw_kobj(&w, "schemas");
    for (size_t i = 0; i < N_SCHEMAS; i++) {
        jw_key(&w, schemas[i].name);
        write_type(&w, str_of(schemas[i].type));
    }
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
}

/* ---- docs/api.md ---- */

static void describe_arg(struct buf *out, const struct op *op, const struct op_arg *a)
{
    static const char *const places[] = {[IN_PATH] = "path",
                                         [IN_QUERY] = "query",
                                         [IN_HEADER] = "header",
                                         [IN_BODY] = "body",
                                         [IN_TOOL] = "tool only"};
    struct buf type = BUF_INIT;
    struct str rest, part;

    add_type(&type, a);
    rest = buf_str(&type);
    buf_printf(out, "| `%s`", a->name);
    if (op->tool != NULL && op_tool_arg(a) == NULL)
        buf_add_z(out, " (not the tool)");
    else if (op->tool != NULL && strcmp(op_tool_arg(a), a->name) != 0)
        buf_printf(out, " (tool: `%s`)", op_tool_arg(a));
    buf_printf(out, " | %s | ", places[a->in]);
    for (bool first = true; str_split(&rest, '|', &part); first = false)
        buf_printf(out, "%s%.*s", first ? "" : "\\|", STR_FMT(part));
    if (a->max > 0 && (a->type == OP_TEXT || a->type == OP_LIST))
        buf_printf(out, ", at most %lld%s", (long long)a->max, a->type == OP_TEXT ? " bytes" : "");
    else if (a->max > 0)
        buf_printf(out, ", %lld to %lld", (long long)a->min, (long long)a->max);
    else if (a->min > 0)
        buf_printf(out, ", at least %lld", (long long)a->min);
    if (a->flags & OP_REQUIRED)
        buf_add_z(out, ", required");
    if (a->initial != NULL)
        buf_printf(out, ", else %s", a->initial);
    buf_printf(out, " | %s |\n", a->what);
    buf_done(&type);
}

static void describe_errors(struct buf *out, const struct op *op)
{
    struct buf line = BUF_INIT;

    for (int status = 400; status < 600; status++) {
        size_t n = line.n;
        if (n > 0)
            buf_add_z(&line, "; ");
        size_t at = line.n;
        if (add_faults(&line, op->faults, status))
            buf_printf(&line, " (%d)", status);
        if (line.n == at)
            line.n = n;
    }
    if (op->errors != NULL)
        buf_add_z(&line, op->errors);
    if (line.n > 0)
        buf_printf(out, "\nErrors: %.*s.\n", STR_FMT(buf_str(&line)));
    buf_done(&line);
}

static void describe_op(struct buf *out, const struct op *op)
{
    static const char *const may[] = {[MAY_ANYBODY] = "Anybody may.",
                                      [MAY_ANYBODY_WITH_KEY] =
                                          "Anybody may; a key that is shown must be good.",
                                      [MAY_KEY] = "By key.",
                                      [MAY_HOOK] = "The URL is the credential.",
                                      [MAY_REPLY] = "The URL is the credential.",
                                      [MAY_INSTANCE] = "By a key that acts for an instance.",
                                      [MAY_GATEWAY] = "By the gateway's bearer.",
                                      [MAY_ADMIN] = "By `admin.token`, or over the admin socket.",
                                      [MAY_OPERATOR] = "Over the admin socket."};

    buf_printf(out, "\n### %s\n\n", op->name);
    if (op->path != NULL)
        buf_printf(out, "`%s %s`%s", op->method, op->path, op->tool != NULL ? ", tool " : ". ");
    if (op->tool != NULL)
        buf_printf(out, "%s`%s`. ", op->path == NULL ? "Tool " : "", op->tool);
    buf_printf(out, "%s %s\n", may[op->may], op->summary);
    if (op->operator_path != NULL)
        buf_printf(out, "\nOver the admin socket: `POST %s`, with `tenant` and `instance`.\n",
                   op->operator_path);
    if (op->args != NULL)
        buf_add_z(out, "\n| argument | in | type | meaning |\n|---|---|---|---|\n");
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        describe_arg(out, op, a);
    if (op->answer != NULL)
        buf_printf(out, "\nAnswer: `%s`. %s", op->answer, op->answer_what);
    else if (op->answer_what != NULL)
        buf_printf(out, "\nAnswer: 204. %s", op->answer_what);
    if (op->tool_wraps != NULL)
        buf_printf(out, " The tool answers `{%s: ...}`.", op->tool_wraps);
    if (op->answer_what != NULL)
        buf_add_c(out, '\n');
    describe_errors(out, op);
}

void op_reference(struct buf *out)
{
    for (const struct op_family *f = op_families; f->name != NULL; f++) {
        buf_printf(out, "\n## %c%s\n", f->name[0] - 32, f->name + 1);
        for (const struct op *op = f->ops; op->name != NULL; op++)
            describe_op(out, op);
    }
    buf_add_z(out, "\n## Types\n\nA `?` marks what may be absent.\n\n");
    for (size_t i = 0; i < N_SCHEMAS; i++)
        buf_printf(out, "- **%s** `%s`\n", schemas[i].name, schemas[i].type);
}
