/* keys_route.c - tokens for programs and gateways, from the command line: made, listed, revoked.
 *
 * A token is in the answer that made it and nowhere else; it is told when the record behind it is
 * on disk. */
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/front_priv.h"
#include "net/loop.h"
#include "tenancy/enroll.h"
#include "tenancy/keys.h"

#define ENROLL_TTL_MS 3600000
#define PROVISION_TTL_MS (365ll * 24 * 3600 * 1000)

struct minting {     /* a token that is told when it is on disk */
    struct front *f; /* borrowed */
    struct http_id id;
    struct key_made made; /* .text: the token, whatever its kind */
    int64_t until_ms;     /* 0: for ever */
    const char *what;     /* for the log */
    bool hook;            /* a capability URL is made of it */
};

static void minting_free(struct minting *m)
{
    key_made_done(&m->made);
    free(m);
}

static void tell(struct minting *m)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    if (m->made.id.n > 0)
        jw_kstr(&w, "id", buf_str(&m->made.id));
    jw_kstr(&w, "token", buf_str(&m->made.text));
    if (m->made.secret.n > 0)
        jw_kstr(&w, "secret", buf_str(&m->made.secret));
    if (m->hook)
        jw_kstr_opt(&w, "url", str_of(m->f->base_url));
    if (m->until_ms != 0)
        jw_ki64(&w, "expiresAt", m->until_ms);
    jw_end_obj(&w);
    front_json(m->f, m->id, 200, &body);
    buf_wipe(&body);
}

static void on_minted(void *ctx, enum bh_err err, const char *why)
{
    struct minting *m = ctx;

    if (err == BH_OK) {
        log_info(NULL, "%s token made: id=%.*s", m->what, STR_FMT(buf_str(&m->made.id)));
        tell(m);
    } else {
        http_answer_error(m->f->server, m->id, err == BH_MALFORMED ? 400 : 503, bh_err_word(err),
                          "%s", why);
    }
    minting_free(m);
}

/* Signed tokens: an enrollment token is remembered when it is used, a provision token from
 * now on. */
static void mint_local(struct minting *m, struct json doc, bool enroll, int64_t ttl_ms)
{
    struct json_parser *parser = json_parser_new();
    struct local_token t = {.kind = enroll ? TOKEN_ENROLL : TOKEN_PROVISION,
                            .tenant = json_str(doc, "tenant"),
                            .instance = json_str(doc, "instance"),
                            .wake_url = json_str(doc, "wakeUrl")};
    const char *why;

    if (ttl_ms == 0)
        ttl_ms = enroll ? ENROLL_TTL_MS : PROVISION_TTL_MS;
    t.exp_ms = m->until_ms = clock_wall_ms(loop_clock(m->f->loop)) + ttl_ms;
    local_token_mint(m->f->facts, &t, &m->made.text);
    if (enroll) {
        log_info(NULL, "enrollment token minted: tenant=%.*s", STR_FMT(t.tenant));
        tell(m);
        minting_free(m);
    } else if (local_token_read(m->f->facts, buf_str(&m->made.text), t.kind, parser, &t, &why)) {
        buf_add(&m->made.id, t.nonce.p, KEY_ID_CHARS);
        keys_note_minted(m->f->keys, &t, on_minted, m);
    } else { /* a tenant's name that does not survive the way there and back */
        on_minted(m, BH_MALFORMED, why);
    }
    json_parser_free(parser);
}

static void mint_key(struct minting *m, struct json doc, int64_t ttl_ms)
{
    struct key_spec spec = {.kind = m->hook ? KEY_HOOK : KEY_AGENT,
                            .with_secret =
                                m->hook && json_as_bool(json_get(doc, "signature"), true),
                            .tenant = json_str(doc, "tenant"),
                            .identity = json_str(doc, "identity"),
                            .agent = json_str(doc, "agent"),
                            .instance = json_str(doc, "instance"),
                            .ns = json_str(doc, "namespace"),
                            .attest = json_as_bool(json_get(doc, "attest"), false),
                            .ttl_ms = ttl_ms};

    m->until_ms = ttl_ms > 0 ? clock_wall_ms(loop_clock(m->f->loop)) + ttl_ms : 0;
    keys_make(m->f->keys, &spec, &m->made, on_minted, m);
}

void admin_token(struct front *f, struct http_req *req)
{
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    int64_t ttl_ms = 0;

    if (!json_parse(parser, http_body(req), &doc) || !facts_name_ok(json_str(doc, "tenant"))) {
        http_answer_error(f->server, http_req_id(req), 400, "malformed",
                          "tenant must be 1 to 128 printable characters without blanks");
        json_parser_free(parser);
        return;
    }
    if (!json_as_i64(json_get(doc, "ttlMs"), &ttl_ms) || ttl_ms < 0)
        ttl_ms = 0;
    struct str kind = json_str(doc, "kind");
    struct minting *m = xcalloc(1, sizeof *m);
    *m = (struct minting){.f = f, .id = http_req_id(req), .what = "provision"};
    m->hook = str_eq(kind, STR("hook"));
    if (m->hook || str_eq(kind, STR("agent"))) {
        m->what = m->hook ? "hook" : "agent";
        mint_key(m, doc, ttl_ms);
    } else {
        mint_local(m, doc, str_eq(kind, STR("enroll")), ttl_ms);
    }
    json_parser_free(parser);
}

static void write_time(struct jw *w, const char *name, int64_t ms)
{
    jw_key(w, name);
    if (ms != 0)
        jw_i64(w, ms);
    else
        jw_null(w);
}

static void write_key(struct jw *w, const struct key *k)
{
    jw_obj(w);
    jw_kstr(w, "id", str_of(k->id));
    jw_kstr(w, "kind", str_of(key_kind_word(k->kind)));
    jw_kstr(w, "tenant", str_of(k->tenant));
    jw_kstr(w, "identity", str_of(k->identity));
    jw_kstr(w, "agent", str_of(k->agent));
    jw_kstr(w, "instance", str_of(k->instance));
    jw_kstr(w, "namespace", str_of(k->ns));
    jw_kbool(w, "attest", k->attest);
    write_time(w, "madeAt", k->made_ms);
    write_time(w, "usedAt", k->used_ms);
    write_time(w, "expiresAt", k->until_ms);
    write_time(w, "revokedAt", k->revoked_ms);
    jw_end_obj(w);
}

void admin_tokens(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    const struct list *head;

    keys_all(f->keys, &head);
    jw_arr(&w);
    for (const struct list *it = head->next; it != head; it = it->next)
        write_key(&w, list_entry(it, struct key, link));
    jw_end_arr(&w);
    front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
}

struct revoking {
    struct front *f; /* borrowed */
    struct http_id id;
};

static void on_revoked(void *ctx, enum bh_err err, const char *why)
{
    struct revoking *r = ctx;
    struct buf body = BUF_INIT;

    buf_add_z(&body, "{\"ok\":true}");
    if (err == BH_OK)
        front_json(r->f, r->id, 200, &body);
    else
        http_answer_error(r->f->server, r->id, err == BH_NOT_FOUND ? 404 : 503, bh_err_word(err),
                          "%s", why);
    buf_done(&body);
    free(r);
}

void admin_token_revoke(struct front *f, struct http_req *req)
{
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    struct revoking *r = xcalloc(1, sizeof *r);

    *r = (struct revoking){f, http_req_id(req)};
    json_parse(parser, http_body(req), &doc);
    struct str id = json_str(doc, "id");
    log_info(NULL, "revoking token: id=%.*s", STR_FMT(id));
    keys_revoke(f->keys, id, on_revoked, r);
    json_parser_free(parser);
}
