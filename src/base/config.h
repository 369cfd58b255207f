/* config.h - what the operator wrote, checked.
 *
 * YAML; `${NAME}` in a value reads the environment (`${NAME:-otherwise}` when it may be unset);
 * BELLHOP_<KEY> overrides a setting (BELLHOP_LISTEN, BELLHOP_STATE_DIR, BELLHOP_LOG_LEVEL, ...).
 * An unknown key, a missing one or a wrong type is refused with file, line and what was expected.
 * Without a file every default holds: one web bot called "lobby" on 127.0.0.1:7077.
 *
 * The table in config_keys.c carries name, type, default, whether a reload takes it, and the
 * sentence that docs/configuration.md is printed from (`bellhop help config`).
 */
#pragma once
#include "base/buf.h"
#include "base/log.h"

struct config_platform { /* strings owned; NULL: not given */
    char *platform, *bot;
    int line; /* where it stands in the file, for errors; 0: a default */
    /* web */
    char *title;      /* what the page is called; default: the bot's name */
    uint32_t history; /* messages kept per chat; default 200; 0: none */
    /* everything below is read by the adapters that need it */
    char *token, *mode, *webhook_secret, *api_base, *gateway_url, *intents, *public_key;
    char *account_sid, *auth_token, *corp_id, *secret, *encoding_aes_key, *plane, *interactions;
};

struct config {
    char *path; /* the file it came from; NULL: defaults */
    char *listen, *public_url, *state_dir, *master_key;
    char *tls_cert, *tls_key;
    char *store_kind, *store_url; /* "sqlite" */
    char *bus_kind, *bus_url;     /* "local" */
    char *admin_token;            /* for /metrics and the dashboard off loopback */
    struct {
        uint32_t window; /* unacked WebSocket messages per socket */
        bool live_acks;
        uint64_t max_mailbox_bytes;
        uint32_t max_attempts;
        int64_t ack_patience_ms, dedup_ms;
    } delivery;
    struct {
        int64_t cooldown_ms, timeout_ms;
        bool allow_private;
    } wake;
    struct {
        uint32_t refused_per_source, requests_per_bot; /* per second; 0: no limit */
    } webhooks;
    bool require_expiry; /* auth.require_expiry: refuse tokens with exp 0 */
    char *identity_kind; /* "local", "jwt", "introspect" */
    char *identity_jwks_url, *identity_public_key, *identity_issuer, *identity_audience;
    char *identity_tenant_claim, *identity_url, *identity_tenant_field;
    struct {
        uint32_t instance_actions, tenant_actions; /* per second; 0: no limit */
    } limits;
    enum log_level log_level;
    bool log_json;
    struct config_platform *platforms; /* owned */
    size_t n_platforms;
};

/* @path NULL: ./bellhop.yaml when it exists, else the defaults.  On failure @ret_why tells file,
 * line and what was expected. */
enum bh_err config_load(const char *path, struct config **ret_cfg, struct buf *ret_why) BH_MUST_USE;
void config_free(struct config *c); /* secrets are wiped */
/* What differs, one key per line: what a reload takes and what needs a restart. */
void config_diff(const struct config *was, const struct config *now, struct buf *ret_reload,
                 struct buf *ret_restart);
/* Move the settings a reload takes from @now to @was (they are exchanged, so both stay whole). */
void config_take_reloadable(struct config *was, struct config *now);
void config_describe(struct buf *out); /* the reference, as Markdown */
