/* record.c - gateways and routes as they lie in the store.
 *
 * A gateway is a JSON object under its id; each secret in it is sealed under a name that contains
 * the id, so a sealed secret copied to another record does not open.  A route is found by all of
 * its four parts, so adding one twice writes one record. */
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "store/store.h"
#include "tenancy/facts_priv.h"
#include "tenancy/identity.h"

static void secret_name(struct buf *out, struct str id)
{
    buf_printf(out, "gateway/%.*s/secret", STR_FMT(id));
}

const struct seal_place gateway_sealed = {NS_GATEWAY, "sealed", secret_name};

static void write_secrets(const struct facts *f, const struct gateway *g, struct jw *w)
{
    struct buf name = BUF_INIT, sealed = BUF_INIT;

    secret_name(&name, str_of(g->id));
    jw_key(w, "secrets");
    jw_arr(w);
    for (size_t i = 0; i < g->n_secrets; i++) {
        buf_reset(&sealed);
        seal_secret(f->env.seal, buf_str(&name), str_of(g->secrets[i].text), &sealed);
        jw_obj(w);
        jw_kstr(w, "sealed", buf_str(&sealed));
        jw_ki64(w, "until", g->secrets[i].until_ms);
        jw_kbool(w, "used", g->secrets[i].used);
        jw_kbool(w, "waits", g->secrets[i].waits);
        jw_end_obj(w);
    }
    jw_end_arr(w);
    buf_done(&name);
    buf_done(&sealed);
}

void gateway_write(const struct facts *f, const struct gateway *g, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "tenant", str_of(g->tenant));
    jw_kstr(&w, "instance", str_of(g->instance));
    jw_kstr_opt(&w, "wakeUrl", str_of(g->wake_url));
    jw_kstr_opt(&w, "platform", str_of(g->platform));
    jw_kstr_opt(&w, "bot", str_of(g->bot));
    if (g->also != NULL) {
        jw_key(&w, "also");
        identity_write(&w, g, 1);
    }
    jw_ki64(&w, "created", g->created_ms);
    jw_ki64(&w, "rotated", g->rotated_ms);
    jw_ki64(&w, "revoked", g->revoked_ms);
    jw_kbool(&w, "ackless", g->ackless);
    jw_kstr_opt(&w, "displayName", str_of(g->display_name));
    if (g->newer)
        jw_kbool(&w, "newer", true);
    write_secrets(f, g, &w);
    jw_end_obj(&w);
}

static int64_t read_ms(struct json doc, const char *key)
{
    int64_t v = 0;

    json_as_i64(json_get(doc, key), &v);
    return v;
}

static bool read_secrets(const struct facts *f, struct gateway *g, struct json array)
{
    struct buf name = BUF_INIT, plain = BUF_INIT;
    bool ok = true;

    secret_name(&name, str_of(g->id));
    for (struct json_iter it = {0};
         ok && json_next(array, &it) && g->n_secrets < GATEWAY_SECRETS;) {
        buf_reset(&plain);
        ok = unseal_secret(f->env.seal, buf_str(&name), json_str(it.value, "sealed"), &plain);
        if (!ok)
            break;
        g->secrets[g->n_secrets++] =
            (struct gateway_secret){.text = str_dup(buf_str(&plain)),
                                    .until_ms = read_ms(it.value, "until"),
                                    .used = json_as_bool(json_get(it.value, "used"), false),
                                    .waits = json_as_bool(json_get(it.value, "waits"), false)};
    }
    buf_done(&name);
    buf_wipe(&plain);
    return ok;
}

struct gateway *gateway_read(const struct facts *f, struct str id, struct json doc)
{
    struct str tenant = json_str(doc, "tenant"), instance = json_str(doc, "instance");

    if (str_is_empty(tenant) || str_is_empty(instance) || tenant.n + instance.n + 1 > PAIR_MAX)
        return NULL;
    struct gateway *g = xcalloc(1, sizeof *g);
    list_init(&g->link);
    list_init(&g->by_inst);
    g->id = str_dup(id);
    g->tenant = str_dup(tenant);
    g->instance = str_dup(instance);
    struct str wake_url = json_str(doc, "wakeUrl");
    struct str platform = json_str(doc, "platform"), bot = json_str(doc, "bot");
    g->wake_url = wake_url.p != NULL ? str_dup(wake_url) : NULL;
    g->platform = platform.p != NULL ? str_dup(platform) : NULL;
    g->bot = bot.p != NULL ? str_dup(bot) : NULL;
    identity_read(g, json_get(doc, "also"));
    g->created_ms = read_ms(doc, "created");
    g->rotated_ms = read_ms(doc, "rotated");
    g->revoked_ms = read_ms(doc, "revoked");
    g->ackless = json_as_bool(json_get(doc, "ackless"), false);
    struct str display_name = json_str(doc, "displayName");
    g->display_name = display_name.p != NULL ? str_dup(display_name) : NULL;
    g->newer = json_as_bool(json_get(doc, "newer"), false);
    if (!read_secrets(f, g, json_get(doc, "secrets"))) {
        gateway_free(g);
        return NULL;
    }
    return g;
}

void route_write_key(struct buf *out, struct str platform, struct str key, struct str tenant,
                     struct str instance)
{
    /* Names hold no control characters, so the newline separates without escaping. */
    buf_printf(out, "%.*s\n%.*s\n%.*s\n%.*s", STR_FMT(platform), STR_FMT(key), STR_FMT(tenant),
               (int)instance.n, instance.p != NULL ? instance.p : "");
}

static const char *const origin_words[] = {
    [ROUTE_OPERATOR] = "operator",
    [ROUTE_PROVISION] = "provision",
};

void route_write(const struct route *r, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "platform", str_of(r->platform));
    jw_kstr(&w, "key", str_of(r->key));
    jw_kstr(&w, "tenant", str_of(r->tenant));
    jw_kstr_opt(&w, "instance", str_of(r->instance));
    jw_kstr(&w, "origin", str_of(origin_words[r->origin]));
    jw_kbool(&w, "open", r->open);
    jw_ki64(&w, "created", r->created_ms);
    jw_end_obj(&w);
}

static enum route_origin read_origin(struct json doc)
{
    struct str word = json_str(doc, "origin");

    if (word.p == NULL)
        return ROUTE_BEFORE;
    return str_eq(word, str_of(origin_words[ROUTE_OPERATOR])) ? ROUTE_OPERATOR : ROUTE_PROVISION;
}

struct route *route_read(struct json doc)
{
    struct str platform = json_str(doc, "platform"), key = json_str(doc, "key");
    struct str tenant = json_str(doc, "tenant"), instance = json_str(doc, "instance");

    if (str_is_empty(platform) || str_is_empty(key) || str_is_empty(tenant) ||
        platform.n + key.n + 1 > GATE_KEY_MAX || tenant.n + instance.n + 1 > PAIR_MAX)
        return NULL;
    struct route *r = route_new(platform, key, tenant, instance);
    r->created_ms = read_ms(doc, "created");
    r->origin = read_origin(doc);
    r->open = r->origin == ROUTE_OPERATOR && json_as_bool(json_get(doc, "open"), false);
    return r;
}
