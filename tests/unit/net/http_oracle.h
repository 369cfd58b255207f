/* http_oracle.h - http-parser's opinion of a head, beside that of net/http_codec.h.
 *
 * Debian builds it without its strict mode, so it takes much that we refuse; what we take, it must
 * take too, and understand the same way.  Shared by the unit test and the fuzzer. */
#pragma once
#include <http_parser.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "net/http_codec.h"

struct oracle {
    struct str url, names[HTTP_MAX_FIELDS + 1], values[HTTP_MAX_FIELDS + 1];
    size_t n;
    bool value_open, done;
};

static int oracle_url(http_parser *p, const char *at, size_t n)
{
    struct oracle *o = p->data;
    o->url = o->url.p == NULL ? str_make(at, n) : str_make(o->url.p, o->url.n + n);
    return 0;
}

static int oracle_name(http_parser *p, const char *at, size_t n)
{
    struct oracle *o = p->data;

    if (o->n == 0 || o->value_open) {
        if (o->n > HTTP_MAX_FIELDS)
            return 1;
        o->names[o->n] = str_make(at, 0);
        o->values[o->n++] = STR("");
        o->value_open = false;
    }
    o->names[o->n - 1].n += n;
    return 0;
}

static int oracle_value(http_parser *p, const char *at, size_t n)
{
    struct oracle *o = p->data;

    if (!o->value_open)
        o->values[o->n - 1] = str_make(at, 0);
    o->value_open = true;
    o->values[o->n - 1].n += n;
    return 0;
}

static int oracle_done(http_parser *p)
{
    struct oracle *o = p->data;
    o->done = true;
    http_parser_pause(p, 1);
    return 0;
}

static struct str oracle_part(struct str url, const struct http_parser_url *u, int field)
{
    return u->field_set & (1 << field)
               ? str_make(url.p + u->field_data[field].off, u->field_data[field].len)
               : STR_NULL;
}

static const char *oracle_compare_target(const struct http_head *h, const char *p, struct str url)
{
    struct http_parser_url u;
    struct str path = str_make(p + h->path, h->path_n), other;

    http_parser_url_init(&u);
    if (str_eq(url, STR("*")))
        return str_eq(path, url) ? NULL : "the path of *";
    if (http_parser_parse_url(url.p, url.n, 0, &u) != 0)
        return "the target is not a URL";
    other = oracle_part(url, &u, UF_PATH);
    if (!str_eq(path, str_is_empty(other) ? STR("/") : other))
        return "the path";
    if (!str_eq(h->query != 0 ? str_make(p + h->query, h->query_n) : STR(""),
                oracle_part(url, &u, UF_QUERY)))
        return "the query";
    return u.field_set & (1 << UF_FRAGMENT) ? "a fragment" : NULL;
}

/* It takes a longer name for Transfer-Encoding as soon as the beginning fits, and then refuses a
 * Content-Length beside it. */
static bool oracle_is_misled(const struct http_head *h, const char *p)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        struct str name = str_make(p + h->fields[i].name, h->fields[i].name_n);
        if (name.n > 17 && str_eq_ci(str_make(name.p, 17), STR("transfer-encoding")))
            return true;
    }
    return false;
}

/* It misses the word of Connection behind one that is cut short, as in "ke, Upgrade", and all
 * words behind one that begins with '_', which it takes for no letter of a word. */
static bool oracle_misses_a_word(const struct http_head *h, const char *p)
{
    static const char *const words[] = {"keep-alive", "close", "upgrade"};

    for (size_t i = 0; i < h->n_fields; i++) {
        struct str list = str_make(p + h->fields[i].value, h->fields[i].value_n), word;
        if (!str_eq_ci(str_make(p + h->fields[i].name, h->fields[i].name_n), STR("connection")))
            continue;
        while (list.n > 0 && str_split(&list, ',', &word)) {
            word = str_trim(word);
            if (list.n > 0 && str_starts(word, STR("_")))
                return true;
            for (size_t k = 0; list.n > 0 && word.n > 0 && k < sizeof words / sizeof *words; k++)
                if (word.n < strlen(words[k]) && str_eq_ci(str_make(words[k], word.n), word))
                    return true;
        }
    }
    return false;
}

/* What http-parser sees differently in a head that we accepted; NULL: nothing. */
static const char *oracle_differs(const struct http_head *h, const char *p, size_t n)
{
    static const http_parser_settings settings = {.on_url = oracle_url,
                                                  .on_header_field = oracle_name,
                                                  .on_header_value = oracle_value,
                                                  .on_headers_complete = oracle_done};
    struct oracle o = {0};
    http_parser parser;
    size_t used;

    http_parser_init(&parser, HTTP_REQUEST);
    parser.data = &o;
    used = http_parser_execute(&parser, &settings, p, n);
    if (!o.done && HTTP_PARSER_ERRNO(&parser) == HPE_UNEXPECTED_CONTENT_LENGTH &&
        oracle_is_misled(h, p))
        return NULL;
    if (!o.done)
        return http_errno_description(HTTP_PARSER_ERRNO(&parser));
    if (used + 1 != h->bytes)
        return "where the head ends";
    if (!str_eq(str_of(http_method_str((enum http_method)parser.method)),
                str_of(http_verb_word((enum http_verb)h->verb))))
        return "the method";
    if (parser.http_major != 1 || parser.http_minor != h->minor)
        return "the version";
    if (o.n != h->n_fields)
        return "the number of fields";
    for (size_t i = 0; i < o.n; i++) {
        const struct http_field *f = &h->fields[i];
        if (!str_eq(o.names[i], str_make(p + f->name, f->name_n)) ||
            !str_eq(str_trim(o.values[i]), str_make(p + f->value, f->value_n)))
            return "a field";
    }
    if (h->has_length && parser.content_length != h->length)
        return "the length of the body";
    if (((parser.flags & F_CHUNKED) != 0) != h->chunked)
        return "whether it is chunked";
    if (h->keep_alive && !http_should_keep_alive(&parser))
        return "whether it is kept alive";
    /* A tab before a word of Connection is white space; http-parser does not find the word. */
    if (h->upgrade && !parser.upgrade && memchr(p, '\t', h->bytes) == NULL &&
        !oracle_misses_a_word(h, p))
        return "whether it is an upgrade";
    return oracle_compare_target(h, p, o.url);
}
