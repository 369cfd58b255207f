/* auth.c - is this socket who it says it is.
 *
 * The verdict separates what is the gateway's fault from what may be ours: a released gateway that
 * is told "unauthorized" after it once connected gives up for good, so that answer is kept for a
 * missing or wrong credential and for a revoked one. */
#include "base/config.h"
#include "base/log.h"
#include "tenancy/change.h"
#include "tenancy/secrets.h"

static const struct config_key keys[] = {
    {"auth.require_expiry", CFG_BOOL, CFG_RELOAD, offsetof(struct auth_settings, require_expiry),
     "false", .what = "Refuse gateway tokens that never expire."},
    {0},
};
const struct config_section auth_config = {.keys = keys, .size = sizeof(struct auth_settings)};

/* Which of its secrets signed @t; TOKEN_BAD: none that is good. */
static enum token_verdict verify(struct facts *f, const struct gateway *g, const struct token *t)
{
    int64_t now_ms = clock_wall_ms(f->env.clock);
    enum token_verdict v = TOKEN_BAD;

    for (size_t i = 0; i < g->n_secrets && v == TOKEN_BAD; i++) {
        struct str secret = str_of(g->secrets[i].text);
        if (!secret_is_live(g, i, now_ms))
            continue;
        v = token_verify(t, &secret, 1, now_ms / 1000, TOKEN_SKEW_S);
        if (v == TOKEN_OK && secret_was_used(map_get(&f->by_id, t->payload), i))
            gateway_note(f, t->payload);
    }
    return v;
}

static enum auth_verdict judge(struct facts *f, const struct token *t,
                               const struct gateway **ret_gw, const char **ret_why)
{
    const struct gateway *g = facts_gateway(f, t->payload);

    if (g == NULL) {
        *ret_why = "unknown gateway";
        return AUTH_RETRY;
    }
    if (g->revoked_ms != 0) {
        *ret_why = "revoked";
        return AUTH_UNAUTHORIZED;
    }
    switch (verify(f, g, t)) {
    case TOKEN_BAD:
        *ret_why = "wrong signature";
        return AUTH_UNAUTHORIZED;
    case TOKEN_EXPIRED:
        *ret_why = "token expired";
        return AUTH_RETRY;
    case TOKEN_OK:
        break;
    }
    if (t->exp == 0 && f->env.require_expiry) {
        *ret_why = "token never expires, and auth.require_expiry is on";
        return AUTH_RETRY;
    }
    *ret_gw = g;
    return AUTH_OK;
}

enum auth_verdict facts_authenticate(struct facts *f, struct str header,
                                     const struct gateway **ret_gw, const char **ret_why)
{
    struct buf scratch = BUF_INIT;
    struct token t;
    struct str text = token_of_header(header);
    enum auth_verdict v = AUTH_UNAUTHORIZED;

    *ret_why = "no credential";
    if (!str_is_empty(text)) {
        *ret_why = "not a token";
        if (token_read(text, &scratch, &t))
            v = judge(f, &t, ret_gw, ret_why);
    }
    buf_wipe(&scratch);
    return v;
}
