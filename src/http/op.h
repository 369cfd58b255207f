/* op.h - the operations of /v1, /manage and /admin and the tools of /mcp: each is declared once, as
 * one struct op.
 *
 *      struct op  (the tables of ops_*.c, manage.c, admin_list.c, admin_change.c, ...)
 *         |
 *         +-- v1.c           the HTTP route: path, query, headers and body become arguments
 *         +-- dashboard.c    the call of the dashboard: its JSON becomes the same arguments
 *         +-- mcp_route.c    the MCP tool: the call's JSON becomes the same arguments
 *         +-- op_describe.c  openapi.json, the tool's JSON schema, docs/api.md
 *         +-- cli/client.c   what the commands of `bellhop` send
 *
 * A handler gets typed, checked arguments and answers once, now or later.  A handler sees neither
 * HTTP nor JSON-RPC, and does not know which of them asked.
 *
 *      static void load(struct op_call *c)
 *      {
 *          c->skills = skills_load(c->f->skills, &c->caller, op_text(c, "name"),
 *                                  op_text(c, "version"), on_answer, c);
 *      }
 *
 * A new family of operations is a file with a table and one line in op.c.
 */
#pragma once
#include "base/jw.h"
#include "base/list.h"
#include "core/caller.h"
#include "core/fault.h"
#include "http/front.h"
#include "net/http_server.h"
#include "tenancy/audit.h"
#include "tenancy/keys.h"

struct op_call;
struct spill;

/* ---- the declaration ---- */

enum op_type {
    OP_TEXT,
    OP_TEXTS,   /* one text or a list; in a query string the argument repeats */
    OP_LIST,    /* a list of texts; @max: how many */
    OP_WHOLE,   /* a whole number */
    OP_SECONDS, /* a time; JSON may have a fraction, which is rounded up */
    OP_BOOL,
    OP_OBJECT,
    OP_OTHER, /* @schema says what it is; always OP_UNCHECKED */
};
enum op_in { IN_PATH, IN_QUERY, IN_HEADER, IN_BODY, IN_TOOL };
enum {
    OP_REQUIRED = 1,
    OP_FILLED = 2,    /* a text that is not empty */
    OP_UNCHECKED = 4, /* the module checks the value, with sentences of its own */
};

struct op_arg {
    const char *name;
    enum op_in in; /* over HTTP; IN_TOOL: only tools have it */
    enum op_type type;
    unsigned flags;
    int64_t min, max;    /* of a number; bytes of a text; 0: no limit */
    const char *one_of;  /* the words a text may be: "Draft|Approved" */
    const char *schema;  /* OP_OTHER, OP_OBJECT: the type, written as op.answer; NULL: any */
    const char *what;    /* the description, for people and models */
    const char *tool;    /* its name in the tool; NULL: the same; "": the tool lacks it */
    const char *initial; /* the default value, as JSON; NULL: none */
};

enum op_may {
    MAY_ANYBODY,
    MAY_ANYBODY_WITH_KEY, /* anybody; but a request with a bad key is refused */
    MAY_KEY,              /* a key of `bellhop token agent`, or the operator */
    MAY_HOOK,             /* {capability} in the path is the credential */
    MAY_REPLY,            /* {capability} in the path is a request's reply URL */
    MAY_INSTANCE,         /* a key that acts for an instance: `--instance` */
    MAY_GATEWAY,          /* an instance, by its gateway's bearer or a token signed for it */
    MAY_ADMIN,            /* the admin socket, or `admin.token` */
    MAY_OPERATOR,         /* the admin socket, whose file mode is its access control */
};
enum op_signature {
    SIGN_NOT,
    SIGN_MUST,    /* a hook that has a secret refuses unsigned bodies */
    SIGN_OR_BARE, /* a hook that has a secret treats an unsigned body as empty */
};

typedef void op_handler(struct op_call *c);

struct op {
    const char *name;          /* operationId; unique */
    const char *method, *path; /* "/v1/skills/{name}"; NULL: a tool without a route */
    enum op_may may;
    op_handler *run;
    const char *summary; /* a sentence */
    /* MAY_GATEWAY: the operator POSTs here, with tenant and instance in the body; NULL: may not. */
    const char *operator_path;
    const char *log; /* MAY_GATEWAY: what the log says of the change: "scope claimed" */
    enum op_signature signature;
    bool body_may_be_empty;
    /* A tenant's dashboard may call it: its handler shows and changes only what belongs to the
     * argument `tenant`, which the dashboard sets, and c->for_tenant hides the rest. */
    bool tenant_view;
    const struct op_arg *args; /* ends with a NULL name */
    /* The answer's type: text, whole, number, bool, object, a schema of op_describe.c, "a|b" for
     * one of several words or types, "[type]", "{name: type, optional?: type}".  NULL: no body. */
    const char *answer;
    const char *answer_what;
    unsigned faults;         /* OP_FAULT() of its own errors, besides those every op can answer */
    const char *errors;      /* those of MAY_GATEWAY and MAY_OPERATOR: "not_found (404)" */
    enum fault_class misuse; /* the class of a wrong argument; 0: FAULT_INVALID */
    const char *filters; /* what its query arguments are: unknown ones are refused, and a tool may
                            take them in an object of this name; NULL: unknown ones are ignored */
    /* As a tool: */
    const char *tool, *title, *tool_what; /* NULL: no tool */
    const char *tool_wraps;               /* the member around the answer; NULL: no wrapper */
    bool reads_only;
};
#define OP_FAULT(cls) (1u << FAULT_##cls)

struct op_family {
    const char *name;     /* "skills": a tag of openapi.json, a section of docs/api.md */
    const struct op *ops; /* ends with a NULL name */
};
extern const struct op ops_server[], ops_skills[], ops_data[], ops_agents[], ops_chat[],
    ops_mailbox[];
extern const struct op ops_manage[], ops_lists[], ops_changes[], ops_nodes[], ops_erase[],
    ops_test[], ops_why[], ops_care[], ops_pairing[], ops_dashboard[];
extern const struct op_family op_families[]; /* ends with a NULL name */
const struct op *op_find(const char *name);  /* NULL: no such operation */

/* ---- a call ---- */

struct op_value {
    bool given, flag;
    struct str text;
    int64_t number;
    const struct str *texts;
    size_t n_texts;
    struct json json;
};
#define OP_ARGS_MAX 16
struct op_args {
    struct op_value values[OP_ARGS_MAX]; /* in the order of op->args */
    struct json body;                    /* the whole body, declared or not; absent: none */
    struct arena *arena;
    bool tool; /* error messages use the tool's names of arguments */
};

struct op_call {
    struct list link; /* front->op_calls */
    struct front *f;  /* borrowed */
    const struct op *op;
    struct caller caller;          /* borrowed while the handler runs; over MCP until the answer */
    const struct op_args *args;    /* while the handler runs */
    struct skills_request *skills; /* the module's call in flight; its callback sets it to NULL */
    struct data_request *data;
    struct dispatch_call *dispatch;
    struct mcp_call *mcp; /* NULL: over HTTP */
    void *mine;           /* op_keep() */
    void (*drop)(void *mine);
    char *tenant, *instance;       /* MAY_GATEWAY: whose settings they are; owned */
    bool by_operator;              /* MAY_GATEWAY: not the instance itself */
    bool for_tenant;               /* a tenant's dashboard asks: say nothing about other tenants */
    struct buf out;                /* op_begin(); wiped */
    struct buf note;               /* op_done() logs it; empty: nothing */
    struct buf changed;            /* op_changes(); of the audit log's entry */
    struct audit_who who;          /* whose changes it makes; AUDIT_NOBODY: it makes none */
    char key_id[KEY_ID_CHARS + 1]; /* of the caller: no answer without it; "": none */
    bool may_end;                  /* @drop releases all that still refers to the call */
    struct http_id id;             /* over HTTP */
    struct v1_work work;           /* the bytes that the request counts for, until it is answered */
    bool stream, takes_json;       /* /mcp: what the client accepts */
};

/* Arguments, while the handler runs; absent: STR_NULL, false, JSON_ABSENT. */
const struct op_value *op_value(const struct op_call *c, const char *name);
struct str op_text(const struct op_call *c, const char *name);
bool op_flag(const struct op_call *c, const char *name);
int64_t op_number(const struct op_call *c, const char *name, int64_t otherwise);
static inline struct json op_body(const struct op_call *c)
{
    return c->args->body;
}
static inline bool op_is_tool(const struct op_call *c)
{
    return c->mcp != NULL;
}

/* A handler answers by exactly one of these calls, which free @c. */
void op_answer(struct op_call *c, struct str json);
void op_end(struct op_call *c); /* with what was written to op_begin() */
/* Sends @file when it is not NULL, else @json.  @etag may be absent. */
void op_answer_long(struct op_call *c, struct str json, const struct spill *file, struct str etag);
/* With @status over HTTP; tools get only the JSON. */
void op_answer_status(struct op_call *c, int status, struct str json, struct str etag);
void op_answer_missing(struct op_call *c, const char *what); /* HTTP: 404; tools: null */
void op_fail(struct op_call *c, const struct fault *fault);
void op_refuse(struct op_call *c, enum fault_class cls, const char *fmt, ...) BH_PRINTF(3, 4);
/* An error without a class, for MAY_GATEWAY and MAY_OPERATOR: {"error", "code"}. */
void op_error(struct op_call *c, int status, const char *code, const char *fmt, ...)
    BH_PRINTF(4, 5);
/* The end of a change of facts or keys (a facts_done_cb): logs the note, and answers with what was
 * written, else {"ok":true}; or with the error. */
void op_done(void *ctx, enum bh_err err, const char *why);

/* Tells the audit log what the call changes, where that is no fact: tenancy/change.c does so for
 * facts.  @before and @after are JSON without secrets; absent: there is none.  The entry is written
 * by op_done(). */
void op_changes(struct op_call *c, const char *record, struct str key, struct str before);
void op_changed(struct op_call *c, struct str after);

/* Begins the answer; a handler may write it before it knows whether it is sent. */
struct jw op_begin(struct op_call *c);
/* Stores the handler's own state.  @drop(@mine) runs when the call ends, by its answer or at
 * shutdown. */
void op_keep(struct op_call *c, void *mine, void (*drop)(void *mine));

/* ---- for v1.c and mcp_route.c ---- */

struct op_call *op_call_new(struct front *f, const struct op *op);
void op_call_free(struct op_call *c);
/* At shutdown, after the modules are closed: frees the calls that have no answer yet. */
void op_calls_drop(struct front *f);
/* Reads and checks argument @i.  False: @ret_fault says what is wrong. */
bool op_read_text(const struct op *op, size_t i, struct str value, struct op_args *args,
                  struct fault *ret_fault);
bool op_read_json(const struct op *op, size_t i, struct json value, struct op_args *args,
                  struct fault *ret_fault);
/* False: op->filters has no such argument, and ignoring it would look as if everything matched. */
bool op_knows(const struct op *op, struct str name, const struct op_args *args,
              struct fault *ret_fault);
/* Called after all arguments are read.  False: a required one is missing. */
bool op_args_complete(const struct op *op, const struct op_args *args, struct fault *ret_fault);
/* The name of an argument in the tool; NULL: the tool lacks it. */
const char *op_tool_arg(const struct op_arg *a);

/* Builds a client's request: the path with its query, and the body (empty: none).  An operation
 * with an operator_path is requested there, by a POST with tenant and instance.  Each text is
 * converted to the declared type: a list is split at commas, an object is JSON.  Absent values are
 * left out.  False: @ret_why (256 bytes) says which value is wrong. */
struct op_given {
    const char *name;
    struct str value;
};
bool op_request(const struct op *op, const struct op_given *given, size_t n, struct buf *ret_path,
                struct buf *ret_body, char *ret_why);

/* True when @path matches @pattern.  Segments are decoded into @arena; a broken escape, a NUL or
 * invalid UTF-8 never matches. */
#define OP_PATH_MAX 2
bool op_match(const char *pattern, struct str path, struct arena *arena,
              struct str ret_args[OP_PATH_MAX]);

/* ---- ops_chat.c, ops_mailbox.c ---- */

/* At shutdown, after the sockets are closed: frees reads, sends and mailbox sessions. */
void chat_ops_drop(struct front *f);
void mailbox_ops_drop(struct front *f);
void mailbox_check_keys(
    struct front *f); /* a key was revoked: ends the sessions that polled by it */
/* True while no gateway of the instance is connected, so that others may read its mail. */
struct instance_view;
bool chats_readable(struct front *f, struct str tenant, struct str instance,
                    struct instance_view *ret);
/* The resources of an instance, and the operations behind them that are neither routes nor tools.
 */
#define INBOX_URI "bellhop://inbox"
#define CHATS_URI "bellhop://chats"
void chat_uri(struct buf *out, struct str platform, struct str chat_id);
bool chat_of_uri(struct str uri, struct buf *ret_platform, struct buf *ret_chat_id);
extern const struct op op_chat_show, op_chat_resources;
/* Performs @action, a JSON object of the contract, as the caller's instance: through the guard and
 * the limits of a gateway's actions.  @told gets the result, with the call that waits for it (NULL:
 * none does any more).  @ctx is the callee's to free().  Nothing is told when the server goes down.
 */
typedef void chat_acted_cb(struct op_call *c, struct json result, void *ctx);
void chat_act(struct op_call *c, struct str platform, struct str action, chat_acted_cb *told,
              void *ctx);

/* ---- op_describe.c ---- */
void op_openapi(struct buf *out);
void op_tool_schema(const struct op *op, struct buf *out);
void op_reference(struct buf *out); /* docs/api.md */
