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
    enum bh_err err = http_fetch_now(&(struct http_fetch){.method = rq->method,
                                                          .url = buf_z(&url),
                                                          .headers = rq->headers,
                                                          .body = rq->body,
                                                          .timeout_ms = 15000,
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
