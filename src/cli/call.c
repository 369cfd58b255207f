/* call.c - talking to the running server over <state_dir>/admin.sock. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "cli/cli.h"
#include "cli/settings.h"
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

int cli_call(const struct cli_args *a, const char *method, const char *path, struct str body,
             struct json_parser *parser, struct json *ret_doc)
{
    const char *const headers[] = {"Content-Type: application/json", NULL};
    const struct cli_request rq = {.method = method,
                                   .path = path,
                                   .body = body,
                                   .headers = body.p != NULL ? headers : NULL};

    return cli_ask(a, &rq, parser, ret_doc);
}

/* ---- pages ---- */

enum { PAGE_LISTS = 8 };

struct pages {
    struct buf rest;              /* what the first page has besides lists: members of an object */
    struct buf lists[PAGE_LISTS]; /* elements, with commas between */
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

int cli_call_pages(const struct cli_args *a, const char *path, struct json_parser *parser,
                   struct json *ret_doc)
{
    struct pages p = {0};
    struct buf at = BUF_INIT, all = BUF_INIT;
    struct json doc = {0};
    int rc;

    do {
        bool first = at.n == 0;
        buf_reset(&at);
        buf_add_z(&at, path);
        if (!first)
            cli_query_add(&at, strchr(path, '?') != NULL ? '&' : '?', "after", buf_z(&p.next));
        rc = cli_call(a, "GET", buf_z(&at), STR_NULL, parser, &doc);
        if (rc == CLI_DONE)
            add_page(&p, doc, first);
    } while (rc == CLI_DONE && p.next.n > 0);
    join_pages(&p, &all);
    if (rc == CLI_DONE && !json_parse(parser, buf_str(&all), ret_doc))
        rc = cli_failed("the server's pages do not fit together: %s", json_error(parser));
    pages_reset(&p);
    buf_done(&at);
    buf_done(&all);
    return rc;
}

void cli_print_json(struct json v)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_value(&w, v);
    fwrite(out.p, 1, out.n, stdout);
    fputc('\n', stdout);
    buf_done(&out);
}

void cli_query_add(struct buf *path, char sep, const char *name, const char *value)
{
    buf_printf(path, "%c%s=", sep, name);
    cli_path_add(path, value);
}

void cli_path_add(struct buf *path, const char *value)
{
    percent_encode(path, str_of(value));
}
