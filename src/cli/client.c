/* client.c - the command line as a client: of the admin socket <state_dir>/admin.sock (cli.h), and
 * of /v1 (v1.h). */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "cli/settings.h"
#include "cli/v1.h"
#include "net/http_client.h"

char *cli_state_dir(const struct cli_args *a)
{
    struct config *cfg = NULL;
    struct buf why = BUF_INIT;
    char *dir = NULL;

    if (a->state_dir != NULL)
        return xstrdup(a->state_dir);
    if (settings_load(a->config, &cfg, &why) == BH_OK)
        dir = xstrdup(settings_of(cfg)->state_dir);
    else
        cli_failed("%s", buf_z(&why));
    config_free(cfg);
    buf_done(&why);
    return dir;
}

static int no_server(const char *dir, const char *sock, const char *why)
{
    if (access(sock, F_OK) != 0 && errno == EACCES)
        return cli_failed("%s may not be entered by this user; run this as the user that runs the "
                          "server",
                          dir);
    if (access(sock, F_OK) == 0 && access(sock, R_OK | W_OK) != 0)
        return cli_failed("%s belongs to another user; run this as the user that runs the server",
                          sock);
    if (access(sock, F_OK) != 0 || strstr(why, "timed out") == NULL)
        return cli_failed(
            "no server is running on %s (nothing answers at %s).\n"
            "Start one with: bellhop serve, or name its directory with --state-dir or "
            "its configuration with -c.",
            dir, sock);
    return cli_failed("the server at %s does not answer: %s", sock, why);
}

static int tell_error(struct json doc, int status)
{
    struct str said = json_str(doc, "error");

    if (str_is_empty(said))
        return cli_failed("the server answered HTTP %d", status);
    return cli_failed("%.*s", STR_FMT(said));
}

static int understand(struct str answer, int status, struct json_parser *parser,
                      struct json *ret_doc)
{
    *ret_doc = (struct json){0};
    if (status == 204)
        return CLI_DONE;
    if (!json_parse(parser, answer, ret_doc))
        return cli_failed("the server's answer is not JSON (HTTP %d)", status);
    return status >= 300 ? tell_error(*ret_doc, status) : CLI_DONE;
}

static int call_url(const struct cli_request *rq, struct json_parser *parser, struct json *ret_doc)
{
    struct buf url = BUF_INIT, answer = BUF_INIT;
    char why[256] = "";
    int status = 0, rc;

    buf_printf(&url, "%.*s%s", STR_FMT(rq->url), rq->path);
    enum bh_err err = http_fetch_now(&(struct http_fetch){.method = rq->method,
                                                          .url = buf_z(&url),
                                                          .headers = rq->headers,
                                                          .body = rq->body,
                                                          .max_body = (size_t)256 << 20},
                                     &status, &answer, why);
    if (err != BH_OK)
        rc = cli_failed("the server at %.*s does not answer: %s", STR_FMT(rq->url), why);
    else
        rc = understand(buf_str(&answer), status, parser, ret_doc);
    buf_done(&url);
    buf_wipe(&answer);
    return rc;
}

int cli_ask(const struct cli_args *a, const struct cli_request *rq, struct json_parser *parser,
            struct json *ret_doc)
{
    char *dir;
    struct buf sock = BUF_INIT, url = BUF_INIT, answer = BUF_INIT;
    char why[256] = "";
    int status = 0, rc;

    if (rq->url.p != NULL)
        return call_url(rq, parser, ret_doc);
    if ((dir = cli_state_dir(a)) == NULL)
        return CLI_FAILED;
    buf_printf(&sock, "%s/admin.sock", dir);
    buf_printf(&url, "http://bellhop%s", rq->path);
    enum bh_err err =
        http_fetch_now(&(struct http_fetch){.method = rq->method,
                                            .url = buf_z(&url),
                                            .headers = rq->headers,
                                            .body = rq->body,
                                            .timeout_ms =
                                                rq->timeout_ms > 0 ? rq->timeout_ms : 15000,
                                            .max_body = (size_t)256 << 20,
                                            .unix_socket = buf_z(&sock)},
                       &status, &answer, why);
    if (err != BH_OK)
        rc = no_server(dir, buf_z(&sock), why);
    else
        rc = understand(buf_str(&answer), status, parser, ret_doc);
    free(dir);
    buf_done(&sock);
    buf_done(&url);
    buf_wipe(&answer);
    return rc;
}

/* ---- the admin socket ---- */

static void add_query(struct buf *path, const char *name, struct str value)
{
    buf_printf(path, "%c%s=", memchr(path->p, '?', path->n) != NULL ? '&' : '?', name);
    percent_encode(path, value);
}

static void add_queries(struct buf *path, const struct cli_field *query, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (query[i].text.p != NULL)
            add_query(path, query[i].key, query[i].text);
}

int cli_get(struct cli_job *j, const char *path, const struct cli_field *query, size_t n)
{
    struct buf full = BUF_INIT;

    buf_add_z(&full, path);
    add_queries(&full, query, n);
    int rc = cli_ask(&j->a, &(struct cli_request){.method = "GET", .path = buf_z(&full)}, j->parser,
                     &j->doc);
    buf_done(&full);
    return rc;
}

int cli_post(struct cli_job *j, const char *path, const struct cli_field *body, size_t n)
{
    const char *const headers[] = {"Content-Type: application/json", NULL};
    struct buf text = BUF_INIT;
    struct jw w = jw_begin(&text);

    jw_obj(&w);
    for (size_t i = 0; i < n; i++) {
        jw_kstr_opt(&w, body[i].key, body[i].text);
        if (body[i].raw != NULL) {
            jw_key(&w, body[i].key);
            jw_raw(&w, str_of(body[i].raw));
        }
    }
    jw_end_obj(&w);
    const struct cli_request rq = {.method = "POST",
                                   .path = path,
                                   .body = buf_str(&text),
                                   .headers = headers};
    int rc = cli_ask(&j->a, &rq, j->parser, &j->doc);
    buf_done(&text);
    return rc;
}

/* ---- pages ---- */

#define FILE_MAX_BYTES ((size_t)64 << 20)
enum { PAGE_LISTS = 8 };

struct pages {
    struct buf rest;              /* the members of the first page that are no lists */
    struct buf lists[PAGE_LISTS]; /* the elements of all pages, separated by commas */
    char *names[PAGE_LISTS];      /* owned */
    size_t n;
    struct buf next;
};

static void pages_reset(struct pages *p)
{
    for (size_t i = 0; i < p->n; i++) {
        buf_done(&p->lists[i]);
        free(p->names[i]);
    }
    buf_done(&p->rest);
    buf_done(&p->next);
    *p = (struct pages){0};
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

static void add_value(struct buf *out, struct json v)
{
    struct jw w = jw_begin(out);

    if (out->n > 0)
        buf_add_c(out, ',');
    jw_value(&w, v);
}

static void add_page(struct pages *p, struct json doc, bool first)
{
    buf_reset(&p->next);
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        struct buf *list = json_type(it.value) == JSON_ARRAY ? list_of(p, it.key) : NULL;
        if (list != NULL) {
            for (struct json_iter e = {0}; json_next(it.value, &e);)
                add_value(list, e.value);
        } else if (str_eq(it.key, STR("next"))) {
            buf_add_str(&p->next, json_as_str(it.value));
        } else if (first) {
            buf_printf(&p->rest, "%s\"%.*s\":", p->rest.n > 0 ? "," : "", STR_FMT(it.key));
            struct jw w = jw_begin(&p->rest);
            jw_value(&w, it.value);
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

int cli_get_pages(struct cli_job *j, const char *path, const struct cli_field *query, size_t n)
{
    struct pages p = {0};
    struct buf at = BUF_INIT, all = BUF_INIT;
    bool first = true;
    int rc;

    do {
        buf_reset(&at);
        buf_add_z(&at, path);
        add_queries(&at, query, n);
        if (!first)
            add_query(&at, "after", buf_str(&p.next));
        rc = cli_get(j, buf_z(&at), NULL, 0);
        if (rc == CLI_DONE)
            add_page(&p, j->doc, first);
        first = false;
    } while (rc == CLI_DONE && p.next.n > 0);
    join_pages(&p, &all);
    if (rc == CLI_DONE && !json_parse(j->parser, buf_str(&all), &j->doc))
        rc = cli_failed("the server's pages do not fit together: %s", json_error(j->parser));
    pages_reset(&p);
    buf_done(&at);
    buf_done(&all);
    return rc;
}

/* ---- /v1 ---- */

bool v1_read_file(const char *path, struct buf *out)
{
    bool is_stdin = path == NULL || strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rbe");
    char piece[65536];
    size_t n;

    if (f == NULL) {
        cli_failed("%s: %s", path, strerror(errno));
        return false;
    }
    out->limit = FILE_MAX_BYTES;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        buf_add(out, piece, n);
    bool failed = ferror(f) != 0;
    if (!is_stdin)
        fclose(f);
    if (failed)
        cli_failed("%s: %s", is_stdin ? "standard input" : path, strerror(errno));
    else if (buf_failed(out))
        cli_failed("%s is longer than 64 MiB", is_stdin ? "standard input" : path);
    return !failed && !buf_failed(out);
}

static bool read_key(const struct v1_options *o, struct buf *key)
{
    const char *env = getenv("BELLHOP_KEY");

    if (o->key_file != NULL)
        return v1_read_file(o->key_file, key);
    if (env != NULL && !o->keyless)
        buf_add_z(key, env);
    return true;
}

static bool is_header_text(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 127)
            return false;
    return true;
}

static void add_header(struct v1_door *d, size_t *n, const char *name, struct str value)
{
    if (value.p == NULL)
        return;
    buf_printf(&d->lines[*n], "%s%.*s", name, STR_FMT(value));
    d->headers[*n] = buf_z(&d->lines[*n]);
    (*n)++;
}

bool v1_door_open(const struct command *c, const struct v1_options *o, struct v1_door *ret_d,
                  int *ret_rc)
{
    struct buf key = BUF_INIT;
    size_t n = 0;
    bool ok = false;

    *ret_d = (struct v1_door){0};
    *ret_rc = CLI_FAILED;
    if (!read_key(o, &key))
        goto out;
    struct str text = str_trim(buf_str(&key));
    if (o->url != NULL && text.n == 0)
        *ret_rc = cli_misused(c, "--url needs a key: BELLHOP_KEY or --key-file");
    else if (o->tenant != NULL && text.n > 0)
        *ret_rc = cli_misused(c, "a key says its tenant itself; leave --tenant out");
    else if (!is_header_text(text) || !is_header_text(str_of(o->tenant)) ||
             !is_header_text(str_of(o->ns)))
        *ret_rc = cli_misused(c, "keys, tenants and namespaces hold no control characters");
    else
        ok = true;
    if (!ok)
        goto out;
    add_header(ret_d, &n, "Content-Type: ", STR("application/json"));
    add_header(ret_d, &n, "Authorization: Bearer ", text.n > 0 ? text : STR_NULL);
    add_header(ret_d, &n, "X-Bellhop-Tenant: ", str_of(o->tenant));
    add_header(ret_d, &n, "X-Bellhop-Namespace: ", str_of(o->ns));
    ret_d->url = str_of(o->url);
    while (ret_d->url.n > 0 && ret_d->url.p[ret_d->url.n - 1] == '/')
        ret_d->url.n--;
out:
    buf_wipe(&key);
    return ok;
}

void v1_door_done(struct v1_door *d)
{
    for (size_t i = 0; i < sizeof d->lines / sizeof d->lines[0]; i++)
        buf_wipe(&d->lines[i]);
}

/* The headers of the door, and those that are arguments of the operation. */
static void add_headers(const struct op *op, const struct op_given *given, size_t n,
                        const struct v1_door *d, struct arena *arena, const char **ret)
{
    size_t at = 0;

    for (; d->headers[at] != NULL; at++)
        ret[at] = d->headers[at];
    for (size_t i = 0; i < n; i++)
        for (const struct op_arg *a = op->args; a->name != NULL; a++)
            if (a->in == IN_HEADER && given[i].value.p != NULL &&
                strcmp(a->name, given[i].name) == 0) {
                size_t size = strlen(a->name) + given[i].value.n + 3;
                char *line = arena_alloc(arena, size);
                snprintf(line, size, "%s: %.*s", a->name, STR_FMT(given[i].value));
                ret[at++] = line;
            }
}

int v1_op(struct cli_job *j, const char *name, const struct op_given *given, size_t n)
{
    const struct op *op = op_find(name);
    struct buf path = BUF_INIT, body = BUF_INIT;
    char why[256];
    int rc;

    assert(op != NULL && op->path != NULL);
    if (!op_request(op, given, n, &path, &body, why)) {
        rc = cli_misused(j->c, "%s", why);
    } else {
        const char *headers[V1_HEADERS + OP_ARGS_MAX + 1] = {NULL};
        struct arena arena = ARENA_INIT;
        add_headers(op, given, n, j->door, &arena, headers);
        const struct cli_request rq = {.method = op->method,
                                       .path = buf_z(&path),
                                       .body = body.n > 0 ? buf_str(&body) : STR_NULL,
                                       .headers = headers,
                                       .url = j->door->url};
        rc = cli_ask(&j->a, &rq, j->parser, &j->doc);
        arena_done(&arena);
    }
    buf_done(&path);
    buf_done(&body);
    return rc;
}

int v1_run(const struct command *c, int argc, char **argv, const struct cli_option *options,
           size_t n_options, const struct cli_verb *verbs, const struct v1_options *v1, void *o)
{
    struct cli_job j = {.c = c, .o = o};
    struct v1_door door;
    int rc;

    if (!cli_parse(c, argc, argv, options, n_options, &j.a))
        return cli_exit(&j.a);
    if (!v1_door_open(c, v1, &door, &rc))
        return rc;
    j.door = &door;
    j.parser = json_parser_new();
    rc = cli_run_verb(&j, verbs);
    json_parser_free(j.parser);
    v1_door_done(&door);
    return rc;
}
