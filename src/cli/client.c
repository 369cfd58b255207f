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

int cli_ask(struct cli_job *j, const struct cli_http *rq)
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
    enum bh_err err =
        http_fetch_now(&(struct http_fetch){.method = rq->method,
                                            .url = buf_z(&url),
                                            .headers = rq->headers,
                                            .body = rq->body,
                                            .timeout_ms = local ? timeout_ms : 0,
                                            .max_body = (size_t)256 << 20,
                                            .unix_socket = local ? buf_z(&sock) : NULL},
                       &status, &answer, why);
    if (err == BH_OK)
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
    int rc = cli_ask(j, &(struct cli_http){.method = "POST",
                                           .path = path,
                                           .body = buf_str(&text),
                                           .headers = headers});
    buf_done(&text);
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

static void add_query(struct buf *path, const char *name, struct str value)
{
    buf_printf(path, "%c%s=", memchr(path->p, '?', path->n) != NULL ? '&' : '?', name);
    percent_encode(path, value);
}

int cli_get(struct cli_job *j, const char *path, const struct cli_field *query, size_t n)
{
    struct pages p = {0};
    struct buf at = BUF_INIT, all = BUF_INIT;
    bool several = false;
    int rc;

    do {
        buf_reset(&at);
        buf_add_z(&at, path);
        for (size_t i = 0; i < n; i++)
            if (query[i].text.p != NULL || query[i].raw != NULL)
                add_query(&at, query[i].key,
                          query[i].raw != NULL ? str_of(query[i].raw) : query[i].text);
        if (p.next.n > 0)
            add_query(&at, "after", buf_str(&p.next));
        rc = cli_ask(j, &(struct cli_http){.method = "GET", .path = buf_z(&at)});
        if (rc == CLI_DONE && (several || json_str(j->doc, "next").p != NULL)) {
            add_page(&p, j->doc, !several);
            several = true;
        }
    } while (rc == CLI_DONE && p.next.n > 0);
    if (rc == CLI_DONE && several) {
        join_pages(&p, &all);
        if (!json_parse(j->parser, buf_str(&all), &j->doc))
            rc = cli_failed("the server's pages do not fit together: %s", json_error(j->parser));
    }
    pages_done(&p);
    buf_done(&at);
    buf_done(&all);
    return rc;
}

/* ---- the request of a verb ---- */

#define FIELDS_MAX (CLI_MAX_ARGS + CLI_MAX_OPTIONS + CLI_MAX_EXTRA + 1)

static bool has_key(const struct cli_field *f, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(f[i].key, key) == 0)
            return true;
    return false;
}

/* "a, b" as ["a","b"]. */
static const char *list_text(struct cli_job *j, const char *words)
{
    struct str rest = str_of(words), word;
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_arr(&w);
    while (str_split(&rest, ',', &word))
        if (word.n > 0)
            jw_str(&w, str_trim(word));
    jw_end_arr(&w);
    const char *text = arena_str(&j->arena, buf_str(&out)).p;
    buf_done(&out);
    return text;
}

static struct cli_field field_of(struct cli_job *j, const struct cli_option *o, bool body)
{
    const char *value = cli_value(j, o->name);
    struct cli_field f = {.key = o->key};
    char number[24];

    if (o->kind == CLI_FLAG && body)
        f.raw = value != NULL ? "true" : "false";
    else if (value == NULL)
        return f;
    else if (o->kind == CLI_FLAG)
        f.raw = "1";
    else if (o->kind == CLI_WORDS)
        f.raw = list_text(j, value);
    else if (o->kind == CLI_DURATION || o->kind == CLI_NUMBER) {
        snprintf(number, sizeof number, "%lld", (long long)cli_number(j, o->name, 0));
        f.raw = arena_str(&j->arena, str_of(number)).p;
    } else
        f.text = str_of(value);
    return f;
}

/* The arguments, the extra and fixed fields, then the options.  The first of a key counts. */
static size_t collect(struct cli_job *j, bool body, struct cli_field ret[FIELDS_MAX])
{
    struct str rest = str_of(j->verb->args), word;
    size_t n = 0;

    for (int i = 0; i < j->n_args && str_split(&rest, ' ', &word); i++) {
        word = word.p[0] == '[' ? str_make(word.p + 1, word.n - 2) : word;
        ret[n++] = (struct cli_field){arena_str(&j->arena, word).p, str_of(j->args[i]), NULL};
    }
    for (size_t i = 0; i < j->n_extra; i++)
        ret[n++] = j->extra[i];
    if (j->verb->fixed.key != NULL)
        ret[n++] = j->verb->fixed;
    for (const struct cli_option *o = j->c->options; o != NULL && o->name != NULL; o++)
        if (o->key != NULL && !has_key(ret, n, o->key))
            ret[n++] = field_of(j, o, body);
    return n;
}

static bool op_takes(const struct op *op, const char *name)
{
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        if (strcmp(a->name, name) == 0)
            return true;
    return false;
}

static int request_op(struct cli_job *j)
{
    struct cli_field fields[FIELDS_MAX];
    struct op_given given[FIELDS_MAX];
    size_t n = collect(j, false, fields), n_given = 0;

    for (size_t i = 0; i < n; i++)
        if (op_takes(op_find(j->verb->op), fields[i].key))
            given[n_given++] =
                (struct op_given){fields[i].key,
                                  fields[i].raw != NULL ? str_of(fields[i].raw) : fields[i].text};
    return v1_op(j, j->verb->op, given, n_given);
}

int cli_request(struct cli_job *j)
{
    struct cli_field fields[FIELDS_MAX];

    if (j->verb->op != NULL)
        return request_op(j);
    if (strncmp(j->verb->request, "GET ", 4) == 0)
        return cli_get(j, j->verb->request + 4, fields, collect(j, false, fields));
    return cli_post(j, j->verb->request + strlen("POST "), fields, collect(j, true, fields));
}

/* ---- /v1 ---- */

#define FILE_MAX_BYTES ((size_t)64 << 20)

const struct cli_option v1_options[] = {
    {"--tenant"}, {"--namespace"}, {"--url"}, {"--key-file"}, {0}};

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

bool v1_read_text(const char *path, struct buf *out)
{
    if (!v1_read_file(path, out))
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

static void set_headers(struct v1_door *d, struct str key, struct str tenant, struct str ns)
{
    const struct {
        const char *name;
        struct str value;
    } all[V1_HEADERS] = {{"Content-Type: ", STR("application/json")},
                         {"Authorization: Bearer ", key.n > 0 ? key : STR_NULL},
                         {"X-Bellhop-Tenant: ", tenant},
                         {"X-Bellhop-Namespace: ", ns}};
    size_t n = 0;

    *d = (struct v1_door){0};
    for (size_t i = 0; i < V1_HEADERS; i++)
        if (all[i].value.p != NULL) {
            buf_printf(&d->lines[n], "%s%.*s", all[i].name, STR_FMT(all[i].value));
            d->headers[n] = buf_z(&d->lines[n]);
            n++;
        }
}

bool v1_door_open(const struct cli_job *j, struct v1_door *ret_d, int *ret_rc)
{
    const char *file = cli_value(j, "--key-file"), *env = getenv("BELLHOP_KEY"),
               *url = cli_value(j, "--url");
    struct str tenant = str_of(cli_value(j, "--tenant")), ns = str_of(cli_value(j, "--namespace"));
    struct buf key = BUF_INIT;
    bool ok = true;

    *ret_rc = CLI_FAILED;
    if (file != NULL)
        ok = v1_read_file(file, &key);
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

void v1_door_open_tenant(struct str tenant, struct v1_door *ret_d)
{
    set_headers(ret_d, STR_NULL, tenant, STR_NULL);
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
        rc = cli_misused(j, "%s", why);
    } else {
        const char *headers[V1_HEADERS + OP_ARGS_MAX + 1] = {NULL};
        struct arena arena = ARENA_INIT;
        add_headers(op, given, n, j->door, &arena, headers);
        rc = cli_ask(j, &(struct cli_http){.method = op->method,
                                           .path = buf_z(&path),
                                           .body = body.n > 0 ? buf_str(&body) : STR_NULL,
                                           .headers = headers,
                                           .url = j->door->url});
        arena_done(&arena);
    }
    buf_done(&path);
    buf_done(&body);
    return rc;
}
