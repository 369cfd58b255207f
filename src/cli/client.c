/* client.c - the command line as a client: of the admin socket <state_dir>/admin.sock, and
 * of /v1.  (cli.h has the contract.) */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "cli/settings.h"
#include "cli/cli.h"
#include "net/http_client.h"

struct config *cli_settings(const struct cli_job *j)
{
    struct config *cfg = NULL;
    struct buf why = BUF_INIT;

    if (j->state_dir != NULL)
        setenv("BELLHOP_STATE_DIR", j->state_dir, 1);
    if (settings_load(j->config, &cfg, &why) != BH_OK)
        cli_failed("%s", buf_z(&why));
    buf_done(&why);
    return cfg;
}

char *cli_state_dir(const struct cli_job *j)
{
    if (j->state_dir != NULL)
        return xstrdup(j->state_dir);
    struct config *cfg = cli_settings(j);
    char *dir = cfg != NULL ? xstrdup(settings_of(cfg)->state_dir) : NULL;
    config_free(cfg);
    return dir;
}

/* ---- one request ---- */

bool cli_server_answers(const char *dir)
{
    struct buf sock = BUF_INIT, body = BUF_INIT;
    char why[256];
    int status;

    buf_printf(&sock, "%s/admin.sock", dir);
    bool yes = access(buf_z(&sock), F_OK) == 0 &&
               http_fetch_now(&(struct http_fetch){.url = "http://bellhop/admin/status",
                                                   .timeout_ms = 5000,
                                                   .unix_socket = buf_z(&sock)},
                              &status, &body, why) == BH_OK;
    buf_done(&sock);
    buf_done(&body);
    return yes;
}

static int no_server(const char *dir, const char *sock, const char *why)
{
    if (access(sock, F_OK) != 0 && errno == EACCES)
        return cli_failed("this user may not enter %s. Run the command as the user that runs the "
                          "server",
                          dir);
    if (access(sock, F_OK) == 0 && access(sock, R_OK | W_OK) != 0)
        return cli_failed("%s belongs to another user. Run the command as the user that runs the "
                          "server",
                          sock);
    if (access(sock, F_OK) != 0 || strstr(why, "timed out") == NULL)
        return cli_failed("no server is running on %s (nothing answers at %s).\n"
                          "Start one with: bellhop serve. Or name the server's directory with "
                          "--state-dir, or its configuration with -c.",
                          dir, sock);
    return cli_failed("the server at %s does not answer: %s", sock, why);
}

static int understand(struct cli_job *j, struct str answer, int status)
{
    j->doc = (struct json){0};
    if (status == 204)
        return CLI_DONE;
    if (!json_parse(j->parser, answer, &j->doc))
        return cli_failed("the server's answer is not JSON (HTTP %d)", status);
    struct str error = json_str(j->doc, "error");
    if (status < 300)
        return CLI_DONE;
    if (str_is_empty(error))
        return cli_failed("the server answered HTTP %d", status);
    return cli_failed("%.*s", STR_FMT(error));
}

struct cli_http {
    const char *method, *path;
    struct str body;            /* absent: none */
    const char *const *headers; /* NULL-terminated */
    struct str url;             /* http(s)://host without a path; absent: the admin socket */
};

static int ask(struct cli_job *j, const struct cli_http *rq)
{
    bool local = rq->url.p == NULL;
    char *dir = local ? cli_state_dir(j) : NULL, why[256] = "";
    struct buf sock = BUF_INIT, url = BUF_INIT, answer = BUF_INIT;
    int64_t timeout_ms = j->verb->timeout_ms > 0 ? j->verb->timeout_ms : 15000;
    int status = 0, rc;

    if (local && dir == NULL)
        return CLI_FAILED;
    buf_printf(&sock, "%s/admin.sock", local ? dir : "");
    buf_printf(&url, "%.*s%s", STR_FMT(local ? STR("http://bellhop") : rq->url), rq->path);
    struct http_fetch fetch = {.method = rq->method,
                               .url = buf_z(&url),
                               .headers = rq->headers,
                               .body = rq->body,
                               .timeout_ms = local ? timeout_ms : 0,
                               .max_body = (size_t)256 << 20,
                               .unix_socket = local ? buf_z(&sock) : NULL};
    if (http_fetch_now(&fetch, &status, &answer, why) == BH_OK)
        rc = understand(j, buf_str(&answer), status);
    else if (local)
        rc = no_server(dir, buf_z(&sock), why);
    else
        rc = cli_failed("the server at %.*s does not answer: %s", STR_FMT(rq->url), why);
    free(dir);
    buf_done(&sock);
    buf_done(&url);
    buf_wipe(&answer);
    return rc;
}

/* ---- pages ---- */

enum { PAGE_LISTS = 8 };

struct pages {
    struct buf rest;              /* the members of the first page that are no lists */
    struct buf lists[PAGE_LISTS]; /* the elements of all pages, separated by commas */
    char *names[PAGE_LISTS];      /* owned */
    size_t n;
    struct buf next; /* the cursor; empty: the last page was read */
};

static void pages_done(struct pages *p)
{
    for (size_t i = 0; i < p->n; i++) {
        buf_done(&p->lists[i]);
        free(p->names[i]);
    }
    buf_done(&p->rest);
    buf_done(&p->next);
}

static struct buf *list_of(struct pages *p, struct str name)
{
    for (size_t i = 0; i < p->n; i++)
        if (str_eq(str_of(p->names[i]), name))
            return &p->lists[i];
    if (p->n == PAGE_LISTS)
        return NULL;
    p->names[p->n] = str_dup(name);
    return &p->lists[p->n++];
}

static void add_value(struct buf *out, const char *before, struct json v)
{
    struct jw w = jw_begin(out);

    buf_add_z(out, before);
    jw_value(&w, v);
}

static void add_page(struct pages *p, struct json doc, bool first)
{
    buf_reset(&p->next);
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        struct buf *list = json_type(it.value) == JSON_ARRAY ? list_of(p, it.key) : NULL;
        if (list != NULL) {
            for (struct json_iter e = {0}; json_next(it.value, &e);)
                add_value(list, list->n > 0 ? "," : "", e.value);
        } else if (str_eq(it.key, STR("next"))) {
            buf_add_str(&p->next, json_as_str(it.value));
        } else if (first) {
            buf_printf(&p->rest, "%s\"%.*s\":", p->rest.n > 0 ? "," : "", STR_FMT(it.key));
            add_value(&p->rest, "", it.value);
        }
    }
}

static void join_pages(const struct pages *p, struct buf *out)
{
    buf_add_c(out, '{');
    buf_add_str(out, buf_str(&p->rest));
    for (size_t i = 0; i < p->n; i++) {
        buf_printf(out, "%s\"%s\":[", i > 0 || p->rest.n > 0 ? "," : "", p->names[i]);
        buf_add_str(out, buf_str(&p->lists[i]));
        buf_add_c(out, ']');
    }
    buf_add_c(out, '}');
}

/* ---- operations ---- */

/* The headers of the door, and those that are arguments of the operation. */
static void add_headers(struct cli_job *j, const struct op *op, const struct op_given *given,
                        size_t n, const char **ret)
{
    size_t at = 0;

    for (; j->door != NULL && j->door->headers[at] != NULL; at++)
        ret[at] = j->door->headers[at];
    if (j->door == NULL)
        ret[at++] = "Content-Type: application/json";
    for (size_t i = 0; i < n; i++)
        for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
            if (a->in == IN_HEADER && given[i].value.p != NULL &&
                strcmp(a->name, given[i].name) == 0) {
                size_t size = strlen(a->name) + given[i].value.n + 3;
                char *line = arena_alloc(&j->arena, size);
                snprintf(line, size, "%s: %.*s", a->name, STR_FMT(given[i].value));
                ret[at++] = line;
            }
}

/* One request.  @after: the cursor of a page; empty: the first. */
static int request_page(struct cli_job *j, const struct op *op, const struct op_given *given,
                        size_t n, const struct buf *after)
{
    const char *headers[CLI_HEADERS + OP_ARGS_MAX + 1] = {NULL};
    struct buf path = BUF_INIT, body = BUF_INIT;
    char why[256];
    int rc;

    if (op_request(op, given, n, &path, &body, why)) {
        if (after->n > 0) {
            buf_printf(&path, "%cafter=", memchr(path.p, '?', path.n) != NULL ? '&' : '?');
            percent_encode(&path, buf_str(after));
        }
        add_headers(j, op, given, n, headers);
        rc = ask(j, &(struct cli_http){.method = op->operator_path != NULL ? "POST" : op->method,
                                       .path = buf_z(&path),
                                       .body = body.n > 0 ? buf_str(&body) : STR_NULL,
                                       .headers = headers,
                                       .url = j->door != NULL ? j->door->url : STR_NULL});
    } else {
        rc = cli_misused(j, "%s", why);
    }
    buf_done(&path);
    buf_done(&body);
    return rc;
}

int cli_op(struct cli_job *j, const char *name, const struct op_given *given, size_t n)
{
    const struct op *op = op_find(name);
    struct cli_door *door = j->door;
    struct pages p = {0};
    struct buf all = BUF_INIT;
    bool operators = op->may == MAY_OPERATOR || op->operator_path != NULL, several = false;
    int rc;

    assert(op->path != NULL);
    if (operators)
        j->door = NULL;
    do {
        rc = request_page(j, op, given, n, &p.next);
        if (rc == CLI_DONE && operators && (several || json_str(j->doc, "next").p != NULL)) {
            add_page(&p, j->doc, !several);
            several = true;
        }
    } while (rc == CLI_DONE && p.next.n > 0);
    if (rc == CLI_DONE && several) {
        join_pages(&p, &all);
        if (!json_parse(j->parser, buf_str(&all), &j->doc))
            rc = cli_failed("the server's pages do not fit together: %s", json_error(j->parser));
    }
    j->door = door;
    pages_done(&p);
    buf_done(&all);
    return rc;
}

/* ---- the operation of a verb ---- */

static const struct op_arg *arg_of(const struct op *op, const char *name)
{
    static const struct op_arg whose = {.type = OP_TEXT}; /* of an operation for an instance */

    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        if (strcmp(a->name, name) == 0)
            return a;
    return op->operator_path != NULL && (!strcmp(name, "tenant") || !strcmp(name, "instance"))
               ? &whose
               : NULL;
}

/* "a, b" as ["a","b"]. */
static struct str list_text(struct cli_job *j, const char *words)
{
    struct str rest = str_of(words), word;
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_arr(&w);
    while (str_split(&rest, ',', &word))
        jw_str(&w, str_trim(word));
    jw_end_arr(&w);
    struct str text = arena_str(&j->arena, buf_str(&out));
    buf_done(&out);
    return text;
}

/* All values of an option, separated by commas. */
static struct str all_values(struct cli_job *j, const struct cli_option *o)
{
    struct buf out = BUF_INIT;

    for (size_t i = 0; i < j->n_given; i++)
        if (j->given[i].option == o)
            buf_printf(&out, "%s%s", out.n > 0 ? "," : "", j->given[i].value);
    struct str text = arena_str(&j->arena, buf_str(&out));
    buf_done(&out);
    return text;
}

/* The value of an option as op_request() reads it; absent: not given. */
static struct str option_text(struct cli_job *j, const struct cli_option *o,
                              const struct op_arg *arg)
{
    const char *value = cli_value(j, o->name);
    char number[24];

    if (value == NULL)
        return STR_NULL;
    switch (o->kind) {
    case CLI_FLAG:
        return arg->type == OP_BOOL ? STR("true") : STR("1");
    case CLI_WORDS:
        return list_text(j, value);
    case CLI_REPEATED:
        return all_values(j, o);
    case CLI_DURATION:
        snprintf(number, sizeof number, "%lld", (long long)cli_number(j, o->name, 0));
        return arena_str(&j->arena, str_of(number));
    default:
        return str_of(value);
    }
}

int cli_request(struct cli_job *j)
{
    struct op_given given[CLI_MAX_ARGS + CLI_MAX_EXTRA + 1 + OP_ARGS_MAX + 2];
    const struct op *op = op_find(j->verb->op);
    struct str rest = str_of(j->verb->args), word;
    size_t n = 0;

    for (int i = 0; i < j->n_args && str_split(&rest, ' ', &word); i++) {
        word = word.p[0] == '[' ? str_make(word.p + 1, word.n - 2) : word;
        given[n++] = (struct op_given){arena_str(&j->arena, word).p, str_of(j->args[i])};
    }
    for (size_t i = 0; i < j->n_extra; i++)
        given[n++] = j->extra[i];
    if (j->verb->fixed.name != NULL)
        given[n++] = j->verb->fixed;
    for (const struct cli_option *o = j->c->options; o != NULL && o->name != NULL; o++) {
        const struct op_arg *arg = o->key != NULL ? arg_of(op, o->key) : NULL;
        if (arg != NULL && n < ARRAY_LEN(given))
            given[n++] = (struct op_given){o->key, option_text(j, o, arg)};
    }
    return cli_op(j, j->verb->op, given, n); /* the first of a name counts */
}

/* ---- the door to /v1 ---- */

#define FILE_MAX_BYTES ((size_t)64 << 20)

bool cli_read_file(const char *path, struct buf *out)
{
    bool is_stdin = path == NULL || strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;

    if (file_read(is_stdin ? "/dev/stdin" : path, FILE_MAX_BYTES, out))
        return true;
    if (errno == EFBIG)
        cli_failed("%s is longer than 64 MiB", name);
    else
        cli_failed("%s: %s", name, strerror(errno));
    return false;
}

bool cli_read_text(const char *path, struct buf *out)
{
    if (!cli_read_file(path, out))
        return false;
    if (!utf8_valid(buf_str(out)))
        cli_failed("the text is not UTF-8");
    return utf8_valid(buf_str(out));
}

static bool is_header_text(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 127)
            return false;
    return true;
}

static void set_headers(struct cli_door *d, struct str key, struct str tenant, struct str ns)
{
    const struct {
        const char *name;
        struct str value;
    } all[CLI_HEADERS] = {{"Content-Type: ", STR("application/json")},
                          {"Authorization: Bearer ", key.n > 0 ? key : STR_NULL},
                          {"X-Bellhop-Tenant: ", tenant},
                          {"X-Bellhop-Namespace: ", ns}};
    size_t n = 0;

    *d = (struct cli_door){0};
    for (size_t i = 0; i < CLI_HEADERS; i++)
        if (all[i].value.p != NULL) {
            buf_printf(&d->lines[n], "%s%.*s", all[i].name, STR_FMT(all[i].value));
            d->headers[n] = buf_z(&d->lines[n]);
            n++;
        }
}

bool cli_door_open(const struct cli_job *j, struct cli_door *ret_d, int *ret_rc)
{
    const char *file = cli_value(j, "--key-file"), *env = getenv("BELLHOP_KEY"),
               *url = cli_value(j, "--url");
    struct str tenant = str_of(cli_value(j, "--tenant")), ns = str_of(cli_value(j, "--namespace"));
    struct buf key = BUF_INIT;
    bool ok = true;

    *ret_rc = CLI_FAILED;
    if (file != NULL)
        ok = cli_read_file(file, &key);
    else if (env != NULL)
        buf_add_z(&key, env);
    struct str text = str_trim(buf_str(&key));
    if (ok && url != NULL && text.n == 0) {
        *ret_rc = cli_misused(j, "--url needs a key: set BELLHOP_KEY or give --key-file");
        ok = false;
    } else if (ok && tenant.p != NULL && text.n > 0) {
        *ret_rc = cli_misused(j, "the key belongs to one tenant; leave --tenant out");
        ok = false;
    } else if (ok && !(is_header_text(text) && is_header_text(tenant) && is_header_text(ns))) {
        *ret_rc = cli_misused(j, "a key, tenant or namespace may not hold control characters");
        ok = false;
    }
    if (ok) {
        set_headers(ret_d, text, tenant, ns);
        ret_d->url = str_of(url);
        while (ret_d->url.n > 0 && ret_d->url.p[ret_d->url.n - 1] == '/')
            ret_d->url.n--;
    }
    buf_wipe(&key);
    return ok;
}

void cli_door_open_tenant(struct str tenant, struct cli_door *ret_d)
{
    set_headers(ret_d, STR_NULL, tenant, STR_NULL);
}

void cli_door_done(struct cli_door *d)
{
    for (size_t i = 0; i < sizeof d->lines / sizeof d->lines[0]; i++)
        buf_wipe(&d->lines[i]);
}
