/* http_req.c - what a handler may ask of its request.
 *
 * Everything is answered from offsets into the request's bytes; nothing is copied but what has to
 * be decoded. */
#include "base/percent.h"
#include "net/conn.h"

struct str http_method(const struct http_req *r)
{
    return str_of(http_verb_word((enum http_verb)r->head.verb));
}

struct str http_path(const struct http_req *r)
{
    return str_make(r->base + r->head.path, r->head.path_n);
}

struct str http_body(const struct http_req *r)
{
    return str_make(r->base + r->head.bytes, r->body_n);
}

struct str http_header(const struct http_req *r, const char *name)
{
    struct str want = str_of(name);

    for (uint32_t i = 0; i < r->head.n_fields; i++) {
        const struct http_field *f = &r->head.fields[i];
        if (f->name_n == want.n && str_eq_ci(str_make(r->base + f->name, f->name_n), want))
            return str_make(r->base + f->value, f->value_n);
    }
    return STR_NULL;
}

struct str http_raw_query(const struct http_req *r)
{
    const struct http_head *h = &r->head;
    return h->query != 0 ? str_make(r->base + h->query, h->query_n) : STR_NULL;
}

bool http_query(const struct http_req *r, const char *name, struct buf *ret_value)
{
    struct str rest = http_raw_query(r);
    struct str part, want = str_of(name);
    struct buf key = BUF_INIT;
    bool found = false;

    while (!found && str_split(&rest, '&', &part)) {
        ptrdiff_t eq = str_find(part, '=');
        size_t key_n = eq < 0 ? part.n : (size_t)eq;
        buf_reset(&key);
        percent_decode_form(&key, str_make(part.p, key_n));
        found = str_eq(buf_str(&key), want);
        if (found && eq >= 0)
            percent_decode_form(ret_value, str_skip(part, key_n + 1));
    }
    buf_done(&key);
    return found;
}

bool http_cookie(const struct http_req *r, const char *name, struct str *ret_value)
{
    struct str rest = http_header(r, "cookie"), part, want = str_of(name);

    while (str_split(&rest, ';', &part)) {
        ptrdiff_t eq = str_find(part, '=');
        if (eq < 0 || !str_eq(str_trim(str_make(part.p, (size_t)eq)), want))
            continue;
        *ret_value = str_trim(str_skip(part, (size_t)eq + 1));
        if (ret_value->n >= 2 && ret_value->p[0] == '"' && ret_value->p[ret_value->n - 1] == '"')
            *ret_value = str_make(ret_value->p + 1, ret_value->n - 2);
        return true;
    }
    return false;
}

void http_set_body_limit(struct http_req *r, size_t n)
{
    r->body_limit = n;
}

bool http_is_upgrade(const struct http_req *r)
{
    return r->head.upgrade;
}

bool http_is_tls(const struct http_req *r)
{
    return r->conn->is_tls;
}

struct http_id http_req_id(const struct http_req *r)
{
    uint32_t slot = r->conn->slot;
    return (struct http_id){slot, r->conn->server->slots[slot].generation};
}

void *http_listener_tag(const struct http_req *r)
{
    return r->conn->tag;
}
