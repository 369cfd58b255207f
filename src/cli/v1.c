/* v1.c - as whom and where to.  (v1.h has the contract.) */
#include "cli/v1.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_MAX_BYTES ((size_t)64 << 20)

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
    if (env != NULL)
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

void v1_door_add(struct v1_door *d, const char *header)
{
    size_t n = 0;

    while (d->headers[n] != NULL)
        n++;
    d->headers[n] = header; /* there is room for one besides the lines */
}

void v1_door_done(struct v1_door *d)
{
    for (size_t i = 0; i < sizeof d->lines / sizeof d->lines[0]; i++)
        buf_wipe(&d->lines[i]);
}

int v1_call(const struct cli_args *a, const struct v1_door *d, const char *method, const char *path,
            struct str body, struct json_parser *parser, struct json *ret_doc)
{
    const struct cli_request rq = {
        .method = method, .path = path, .body = body, .headers = d->headers, .url = d->url};

    return cli_ask(a, &rq, parser, ret_doc);
}
