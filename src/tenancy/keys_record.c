/* keys_record.c - a key in memory, its form on disk, and reading all of them at start. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "store/store.h"
#include "tenancy/keys_priv.h"

static const char *const kind_words[] = {
    [KEY_PROVISION] = "provision", [KEY_AGENT] = "agent", [KEY_HOOK] = "hook"};

const char *key_kind_word(enum key_kind kind)
{
    return kind_words[kind];
}

static const char *put(char **at, struct str s)
{
    char *here = *at;

    if (s.p == NULL)
        return NULL;
    memcpy(here, s.p, s.n);
    here[s.n] = '\0';
    *at += s.n + 1;
    return here;
}

struct held *held_new(const struct key_parts *p)
{
    const struct str texts[] = {p->id,       p->tenant, p->identity, p->agent,
                                p->instance, p->ns,     p->secret};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        n += texts[i].p != NULL ? texts[i].n + 1 : 0;
    struct held *h = xcalloc(1, sizeof *h + n);
    char *at = h->text;
    h->pub = (struct key){.kind = p->kind,
                          .attest = p->attest,
                          .made_ms = p->made_ms,
                          .until_ms = p->until_ms,
                          .revoked_ms = p->revoked_ms};
    h->pub.id = put(&at, p->id);
    h->pub.tenant = put(&at, p->tenant);
    h->pub.identity = put(&at, p->identity);
    h->pub.agent = put(&at, p->agent);
    h->pub.instance = put(&at, p->instance);
    h->pub.ns = put(&at, p->ns);
    h->pub.secret = put(&at, p->secret);
    h->secret_n = p->secret.n;
    h->has_mac = p->has_mac;
    memcpy(h->mac, p->mac, sizeof h->mac);
    list_init(&h->pub.link);
    list_init(&h->dirty);
    return h;
}

void held_free(struct held *h)
{
    if (h == NULL)
        return;
    if (h->pub.secret != NULL)
        secret_wipe(h->text + (h->pub.secret - h->text), h->secret_n);
    free(h);
}

static void secret_name(struct buf *out, struct str id)
{
    buf_printf(out, "key/%.*s/secret", STR_FMT(id));
}

const struct seal_place key_sealed = {NS_KEY, "secret", secret_name};

void held_write(const struct keys *k, const struct held *h, struct buf *out)
{
    struct jw w = jw_begin(out);
    struct buf hex = BUF_INIT, name = BUF_INIT, sealed = BUF_INIT;

    jw_obj(&w);
    jw_kstr(&w, "kind", str_of(key_kind_word(h->pub.kind)));
    jw_kstr(&w, "tenant", str_of(h->pub.tenant));
    jw_kstr_opt(&w, "identity", str_of(h->pub.identity));
    jw_kstr_opt(&w, "agent", str_of(h->pub.agent));
    jw_kstr_opt(&w, "instance", str_of(h->pub.instance));
    jw_kstr_opt(&w, "namespace", str_of(h->pub.ns));
    jw_kbool(&w, "attest", h->pub.attest);
    jw_ki64(&w, "made", h->pub.made_ms);
    jw_ki64(&w, "until", h->pub.until_ms);
    jw_ki64(&w, "revoked", h->pub.revoked_ms);
    if (h->has_mac) {
        hex_add(&hex, h->mac, sizeof h->mac);
        jw_kstr(&w, "mac", buf_str(&hex));
    }
    if (h->pub.secret != NULL) {
        secret_name(&name, str_of(h->pub.id));
        seal_secret(k->env.seal, buf_str(&name), str_of(h->pub.secret), &sealed);
        jw_kstr(&w, "secret", buf_str(&sealed));
    }
    jw_end_obj(&w);
    buf_done(&hex);
    buf_done(&name);
    buf_done(&sealed);
}

static bool read_kind(struct str word, enum key_kind *ret_kind)
{
    for (size_t i = 0; i < ARRAY_LEN(kind_words); i++)
        if (str_eq(word, str_of(kind_words[i]))) {
            *ret_kind = (enum key_kind)i;
            return true;
        }
    return false;
}

static bool read_secret(const struct keys *k, struct str id, struct str sealed, struct buf *out)
{
    struct buf name = BUF_INIT;

    secret_name(&name, id);
    bool ok = unseal_secret(k->env.seal, buf_str(&name), sealed, out);
    buf_done(&name);
    return ok;
}

struct held *held_read(const struct keys *k, struct str id, struct json doc)
{
    struct key_parts p = {.id = id,
                          .tenant = json_str(doc, "tenant"),
                          .identity = json_str(doc, "identity"),
                          .agent = json_str(doc, "agent"),
                          .instance = json_str(doc, "instance"),
                          .ns = json_str(doc, "namespace"),
                          .attest = json_as_bool(json_get(doc, "attest"), false)};
    struct str mac = json_str(doc, "mac"), sealed = json_str(doc, "secret");
    struct buf secret = BUF_INIT;
    struct held *h = NULL;

    json_as_i64(json_get(doc, "made"), &p.made_ms);
    json_as_i64(json_get(doc, "until"), &p.until_ms);
    json_as_i64(json_get(doc, "revoked"), &p.revoked_ms);
    p.has_mac = mac.p != NULL;
    if (read_kind(json_str(doc, "kind"), &p.kind) && p.tenant.p != NULL &&
        p.has_mac == (p.kind != KEY_PROVISION) &&
        (!p.has_mac || hex_decode(mac, p.mac, sizeof p.mac)) &&
        (sealed.p == NULL || read_secret(k, id, sealed, &secret))) {
        if (sealed.p != NULL)
            p.secret = buf_str(&secret);
        h = held_new(&p);
    }
    buf_wipe(&secret);
    return h;
}

/* ---- start ---- */

struct loading {
    struct keys *k;
    struct json_parser *parser;
    struct held **found; /* owned array */
    size_t n, cap;
    char damaged[160];
};

static void on_record(void *ctx, struct str id, struct str value)
{
    struct loading *l = ctx;
    struct json doc;
    struct held *h = json_parse(l->parser, value, &doc) ? held_read(l->k, id, doc) : NULL;

    if (h == NULL) {
        snprintf(l->damaged, sizeof l->damaged, "%.*s", STR_FMT(id));
        return;
    }
    if (h->pub.kind == KEY_PROVISION && h->pub.until_ms <= clock_wall_ms(l->k->env.clock)) {
        struct store_kv item = {.verb = KV_DELETE, .ns = NS_KEY, .key = id};
        store_put(l->k->env.store, &item, 1, false, NULL, NULL);
        held_free(h);
        return;
    }
    if (l->n == l->cap) {
        l->cap = l->cap != 0 ? 2 * l->cap : 64;
        l->found = xrealloc(l->found, l->cap * sizeof(struct held *));
    }
    l->found[l->n++] = h;
}

static void on_used_record(void *ctx, struct str id, struct str value)
{
    const struct loading *l = ctx;
    struct held *h = map_get(&l->k->by_id, id);

    if (h != NULL && str_to_i64(value, &h->noted_ms))
        h->pub.used_ms = h->noted_ms;
}

static int by_age(const void *a, const void *b)
{
    const struct key *x = &(*(struct held *const *)a)->pub, *y = &(*(struct held *const *)b)->pub;

    if (x->made_ms != y->made_ms)
        return x->made_ms < y->made_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

enum bh_err keys_load(struct keys *k, char *ret_why)
{
    struct loading l = {.k = k, .parser = json_parser_new()};
    struct store *st = k->env.store;
    enum bh_err err = st->ops->load_records(st, NS_KEY, on_record, &l);

    if (l.n > 0)
        qsort(l.found, l.n, sizeof(struct held *), by_age);
    for (size_t i = 0; i < l.n; i++)
        keys_link(k, l.found[i]);
    free(l.found);
    if (err == BH_OK)
        err = st->ops->load_records(st, NS_KEY_USED, on_used_record, &l);
    json_parser_free(l.parser);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "the keys of programs cannot be read from the store");
    } else if (l.damaged[0] != '\0') {
        snprintf(ret_why, 256,
                 "the key record \"%s\" does not open: damaged, or sealed under another master key",
                 l.damaged);
        err = BH_REFUSED;
    }
    return err;
}
