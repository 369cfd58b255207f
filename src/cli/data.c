/* data.c - bellhop data write | query | get. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/v1.h"

struct data_options {
    struct v1_options v1;
    const char *tags, *recipients, *expires, *limit;
};

static void add_list(struct jw *w, const char *key, const char *words)
{
    struct str rest = str_of(words), word;

    if (words == NULL)
        return;
    jw_key(w, key);
    jw_arr(w);
    while (str_split(&rest, ',', &word))
        jw_str(w, str_trim(word));
    jw_end_arr(w);
}

/* Post, print, and say whether that worked. */
static int post(const struct cli_args *a, const struct v1_door *d, const char *path,
                const struct buf *body, void (*print)(struct json doc))
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = v1_call(a, d, "POST", path, buf_str(body), parser, &doc);

    if (rc == CLI_DONE && a->json)
        cli_print_json(doc);
    else if (rc == CLI_DONE)
        print(doc);
    json_parser_free(parser);
    return rc;
}

static void print_id(struct json doc)
{
    printf("%.*s\n", STR_FMT(json_str(doc, "id")));
}

static void print_found(struct json doc)
{
    for (struct json_iter it = {0}; json_next(doc, &it);)
        printf("%.*s  %.*s\n", STR_FMT(json_str(it.value, "id")),
               STR_FMT(json_str(it.value, "summary")));
}

static int write_entry(const struct command *c, const struct cli_args *a, const struct v1_door *d,
                       const struct data_options *o)
{
    struct buf content = BUF_INIT, body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int64_t expires_at = 0;
    int rc = CLI_FAILED;

    if (o->expires != NULL && !str_to_i64(str_of(o->expires), &expires_at))
        return cli_misused(c, "--expires-at takes unix seconds, not \"%s\"", o->expires);
    if (!v1_read_file(a->n_rest > 1 ? a->rest[1] : NULL, &content))
        goto out;
    if (!utf8_valid(buf_str(&content))) {
        rc = cli_failed("the text is not UTF-8");
        goto out;
    }
    jw_obj(&w);
    jw_kstr(&w, "content", buf_str(&content));
    add_list(&w, "tags", o->tags);
    add_list(&w, "recipients", o->recipients);
    if (o->expires != NULL)
        jw_ki64(&w, "expires_at", expires_at);
    jw_end_obj(&w);
    rc = post(a, d, "/v1/data", &body, print_id);
out:
    buf_done(&content);
    buf_done(&body);
    return rc;
}

static int query(const struct command *c, const struct cli_args *a, const struct v1_door *d,
                 const struct data_options *o)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int64_t limit = 10;

    if (o->limit != NULL && (!str_to_i64(str_of(o->limit), &limit) || limit <= 0))
        return cli_misused(c, "--limit takes a number, not \"%s\"", o->limit);
    jw_obj(&w);
    jw_kstr(&w, "mode", STR("fts"));
    jw_kstr(&w, "query", a->n_rest > 1 ? str_of(a->rest[1]) : STR(""));
    jw_ki64(&w, "limit", limit);
    add_list(&w, "domain_tags", o->tags);
    jw_end_obj(&w);
    int rc = post(a, d, "/v1/data/query", &body, print_found);
    buf_done(&body);
    return rc;
}

static int get(const struct cli_args *a, const struct v1_door *d)
{
    struct json_parser *parser = json_parser_new();
    struct buf path = BUF_INIT;
    struct json doc;

    buf_add_z(&path, "/v1/data/");
    cli_path_add(&path, a->rest[1]);
    int rc = v1_call(a, d, "GET", buf_z(&path), STR_NULL, parser, &doc);
    if (rc == CLI_DONE && a->json) {
        cli_print_json(doc);
    } else if (rc == CLI_DONE) {
        struct str detail = json_str(doc, "detail");
        detail = detail.p != NULL ? detail : json_str(doc, "summary");
        fwrite(detail.p, 1, detail.n, stdout);
    }
    json_parser_free(parser);
    buf_done(&path);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct data_options o = {0};
    const struct cli_option options[] = {
        V1_OPTIONS(o.v1),
        {"--tags", &o.tags, NULL},
        {"--recipients", &o.recipients, NULL},
        {"--expires-at", &o.expires, NULL},
        {"--limit", &o.limit, NULL},
    };
    struct v1_door door;
    int rc;

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    const char *verb = a.n_rest > 0 ? a.rest[0] : "";
    bool writes = strcmp(verb, "write") == 0, gets = strcmp(verb, "get") == 0;
    if (!writes && !gets && strcmp(verb, "query") != 0)
        return cli_misused(c, "write, query or get?");
    if (a.n_rest > 2)
        return cli_misused(c, "too many arguments");
    if (gets && a.n_rest < 2)
        return cli_misused(c, "get which? Give an id");
    if (!v1_door_open(c, &o.v1, &door, &rc))
        return rc;
    rc = writes ? write_entry(c, &a, &door, &o) : gets ? get(&a, &door) : query(c, &a, &door, &o);
    v1_door_done(&door);
    return rc;
}

const struct command cmd_data = {
    "data",
    "the data store",
    "Usage: bellhop data write [FILE] [--tags A,B] [--recipients A,B] [--expires-at SECONDS]\n"
    "       bellhop data query [WORDS] [--tags A,B] [--limit N]\n"
    "       bellhop data get ID\n\n"
    "write  keeps FILE or standard input; its first line is its summary; prints its id\n"
    "query  entries with all the words, the best first; without words the newest first; --tags:\n"
    "       any of these.  Words that begin with raw: are SQLite FTS5 syntax\n"
    "get    the whole text of one\n\n" V1_OPTIONS_HELP,
    run,
};
