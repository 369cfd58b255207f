/* config_keys.c - one line per setting, and the few things that depend on its type.
 *
 * Everything else is derived from these tables: parsing, defaults, environment overrides, what a
 * reload takes, and the reference that `bellhop help config` prints. */
#include "base/config_keys.h"
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"

#define AT(member) offsetof(struct config, member)
#define IN(member) offsetof(struct config_platform, member)

const struct config_key config_keys[] = {
    {"listen", CFG_TEXT, CFG_RESTART, AT(listen), "127.0.0.1:7077",
     .what =
         "Where to listen: `address:port`, `[v6]:port` or `unix:/path`. Port 0 takes a free one."},
    {"public_url", CFG_TEXT, CFG_RESTART, AT(public_url),
     .what =
         "The URL by which gateways and platforms reach this listener, when a proxy is before it."},
    {"state_dir", CFG_TEXT, CFG_RESTART, AT(state_dir), "./bellhop-data",
     .what = "Database, admin socket and master key live here; created with mode 0700."},
    {"master_key", CFG_SECRET, CFG_RESTART, AT(master_key),
     .what =
         "Encrypts secrets at rest: 64 hex digits, or a passphrase of at least 16 bytes. Without "
         "it `state_dir/master.key` is created, mode 0600."},
    {"tls.cert", CFG_TEXT, CFG_RESTART, AT(tls_cert),
     .what = "PEM file with the certificate chain; with `tls.key` the listener speaks TLS."},
    {"tls.key", CFG_TEXT, CFG_RESTART, AT(tls_key), .what = "PEM file with the private key."},
    {"store.kind", CFG_CHOICE, CFG_RESTART, AT(store_kind), "sqlite", "sqlite", "postgres",
     .what = "Where state is kept: `sqlite` is one file in `state_dir`."},
    {"store.url", CFG_SECRET, CFG_RESTART, AT(store_url), .what = "For stores that are servers."},
    {"bus.kind", CFG_CHOICE, CFG_RESTART, AT(bus_kind), "local", "local", "redis",
     .what = "How processes tell each other news: `local` is for one process."},
    {"bus.url", CFG_SECRET, CFG_RESTART, AT(bus_url), .what = "For buses that are servers."},
    {"delivery.window", CFG_NUMBER, CFG_RELOAD, AT(delivery.window), "8", .min = 1, .max = 64,
     .what = "Unacknowledged WebSocket messages per socket. Gateways stop reading at 16."},
    {"delivery.live_acks", CFG_BOOL, CFG_RELOAD, AT(delivery.live_acks), "true",
     .what = "Put a `bufferId` on every delivery, so that live ones are acknowledged too. Off, a "
             "delivery counts as taken when the gateway's socket answered a ping behind it: "
             "weaker, a gateway that crashes just then loses it."},
    {"delivery.max_mailbox_bytes", CFG_BYTES, CFG_RELOAD, AT(delivery.max_mailbox_bytes), "1GiB",
     .min = 1 << 16, .max = UINT64_MAX,
     .what = "Waiting bytes per instance; past it events are refused as busy."},
    {"delivery.max_attempts", CFG_NUMBER, CFG_RELOAD, AT(delivery.max_attempts), "10", .min = 1,
     .max = 1000000, .what = "Times a delivery is sent before it is parked with its reason."},
    {"delivery.ack_patience", CFG_DURATION, CFG_RELOAD, AT(delivery.ack_patience_ms), "90s",
     .min = 1000, .max = 3600000,
     .what = "A gateway that acknowledges nothing for this long is treated as away."},
    {"delivery.dedup", CFG_DURATION, CFG_RELOAD, AT(delivery.dedup_ms), "24h", .min = 60000,
     .max = INT64_MAX, .what = "How long a platform's event id is remembered against repeats."},
    {"wake.cooldown", CFG_DURATION, CFG_RELOAD, AT(wake.cooldown_ms), "30s", .min = 100,
     .max = 86400000, .what = "At most one poke per instance in this time."},
    {"wake.timeout", CFG_DURATION, CFG_RELOAD, AT(wake.timeout_ms), "5s", .min = 100, .max = 60000,
     .what = "How long a poke may take."},
    {"wake.allow_private", CFG_BOOL, CFG_RELOAD, AT(wake.allow_private), "false",
     .what = "Let wake URLs reach private, loopback and link-local addresses."},
    {"webhooks.refused_per_source", CFG_NUMBER, CFG_RELOAD, AT(webhooks.refused_per_source), "50",
     .max = 1000000,
     .what = "Webhooks with a wrong signature that one address may send per second (ten times that "
             "at once) before it is told to wait; 0 is no limit."},
    {"webhooks.requests_per_bot", CFG_NUMBER, CFG_RELOAD, AT(webhooks.requests_per_bot), "2000",
     .max = 1000000,
     .what = "Webhooks per second (twice that at once) whose signature is looked at, per bot; 0 is "
             "no limit."},
    {"auth.require_expiry", CFG_BOOL, CFG_RELOAD, AT(require_expiry), "false",
     .what = "Refuse gateway tokens that never expire."},
    {"identity.kind", CFG_CHOICE, CFG_RESTART, AT(identity_kind), "local", "local|jwt|introspect",
     .what = "Who vouches for callers that enroll or provision: `local` is the operator (`bellhop "
             "token provision`), `jwt` a signed token, `introspect` an account endpoint."},
    {"identity.jwks_url", CFG_TEXT, CFG_RESTART, AT(identity_jwks_url),
     .what = "Where the public keys of signed tokens are fetched; RS256 only."},
    {"identity.public_key", CFG_TEXT, CFG_RESTART, AT(identity_public_key),
     .what = "A PEM file with the one public key, instead of `identity.jwks_url`."},
    {"identity.issuer", CFG_TEXT, CFG_RESTART, AT(identity_issuer),
     .what = "What a signed token's `iss` must be."},
    {"identity.audience", CFG_TEXT, CFG_RESTART, AT(identity_audience),
     .what = "What a signed token's `aud` must contain."},
    {"identity.tenant_claim", CFG_TEXT, CFG_RESTART, AT(identity_tenant_claim), "tenant",
     .what = "The claim that names the tenant; `org.id` is one inside another."},
    {"identity.url", CFG_TEXT, CFG_RESTART, AT(identity_url),
     .what = "The account endpoint, asked with the caller's own bearer."},
    {"identity.tenant_field", CFG_TEXT, CFG_RESTART, AT(identity_tenant_field), "tenant",
     .what = "The member of its answer that names the tenant."},
    {"limits.instance_actions", CFG_NUMBER, CFG_RELOAD, AT(limits.instance_actions), "200",
     .max = 1000000,
     .what = "Actions per second of one instance, five times that at once; 0 is no limit."},
    {"limits.tenant_actions", CFG_NUMBER, CFG_RELOAD, AT(limits.tenant_actions), "1000",
     .max = 1000000, .what = "The same for all instances of a tenant together."},
    {"admin.token", CFG_SECRET, CFG_RELOAD, AT(admin_token),
     .what = "Bearer for `/metrics` from other machines; without it they are refused."},
    {"log.level", CFG_LEVEL, CFG_RELOAD, AT(log_level), "info", "error|warn|info|debug",
     .what = "The least important line that is written."},
    {"log.format", CFG_FORMAT, CFG_RELOAD, AT(log_json), "text", "text|json",
     .what = "`json` writes one object per line."},
    {0},
};

const char config_platform_names[] = "web telegram discord twilio wecom";

const struct config_key config_platform_keys[] = {
    {"platform", CFG_TEXT, CFG_RESTART, IN(platform), .what = "Which platform; required."},
    {"bot", CFG_TEXT, CFG_RESTART, IN(bot), .what = "Which of our identities there; required."},
    {"title", CFG_TEXT, CFG_RESTART, IN(title), NULL, "web",
     .what = "What the chat page is called."},
    {"history", CFG_NUMBER, CFG_RESTART, IN(history), "200", "web", .max = 100000,
     .what = "Messages kept per chat; 0 keeps none."},
    {"token", CFG_SECRET, CFG_RESTART, IN(token), NULL, "telegram discord wecom",
     .what = "The bot's token (WeCom: the callback token)."},
    {"mode", CFG_TEXT, CFG_RESTART, IN(mode), NULL, "telegram", .what = "`polling` or `webhook`."},
    {"webhook_secret", CFG_SECRET, CFG_RESTART, IN(webhook_secret), NULL, "telegram",
     .what = "What Telegram shows on every webhook."},
    {"api_base", CFG_TEXT, CFG_RESTART, IN(api_base), NULL, "telegram discord twilio wecom",
     .what = "Another API server than the platform's own."},
    {"gateway_url", CFG_TEXT, CFG_RESTART, IN(gateway_url), NULL, "discord",
     .what = "Another gateway than the one Discord names."},
    {"intents", CFG_TEXT, CFG_RESTART, IN(intents), NULL, "discord", .what = "Gateway intents."},
    {"public_key", CFG_TEXT, CFG_RESTART, IN(public_key), NULL, "discord",
     .what = "The application's public key, for interactions."},
    {"interactions", CFG_TEXT, CFG_RESTART, IN(interactions), NULL, "discord",
     .what = "`passthrough` or `inbound`."},
    {"account_sid", CFG_TEXT, CFG_RESTART, IN(account_sid), NULL, "twilio", .what = "Account SID."},
    {"auth_token", CFG_SECRET, CFG_RESTART, IN(auth_token), NULL, "twilio", .what = "Auth token."},
    {"plane", CFG_TEXT, CFG_RESTART, IN(plane), NULL, "twilio",
     .what = "`inbound` or `passthrough`."},
    {"corp_id", CFG_TEXT, CFG_RESTART, IN(corp_id), NULL, "wecom", .what = "Corp id."},
    {"secret", CFG_SECRET, CFG_RESTART, IN(secret), NULL, "wecom", .what = "The agent's secret."},
    {"encoding_aes_key", CFG_SECRET, CFG_RESTART, IN(encoding_aes_key), NULL, "wecom",
     .what = "The callback's EncodingAESKey."},
    {0},
};

bool config_word_in(struct str word, const char *words, char sep)
{
    struct str rest = str_of(words), one;

    while (str_split(&rest, sep, &one))
        if (str_eq(one, word))
            return true;
    return false;
}

static bool is_text(const struct config_key *k)
{
    return k->type == CFG_TEXT || k->type == CFG_SECRET || k->type == CFG_CHOICE;
}

static bool set_number(void *at, const struct config_key *k, struct str text, struct buf *expected)
{
    uint64_t v;

    if (!str_to_u64(text, &v) || v < k->min || v > k->max) {
        buf_printf(expected, "a whole number from %llu to %llu", (unsigned long long)k->min,
                   (unsigned long long)k->max);
        return false;
    }
    *(uint32_t *)at = (uint32_t)v;
    return true;
}

static bool set_duration(void *at, const struct config_key *k, struct str text,
                         struct buf *expected)
{
    int64_t ms;

    if (!str_to_duration_ms(text, &ms) || ms < 0) {
        buf_add_z(expected, "a duration such as 30s, 5m or 250ms");
        return false;
    }
    if ((uint64_t)ms < k->min || (uint64_t)ms > k->max) {
        buf_printf(expected, "a duration of %s %llu ms",
                   (uint64_t)ms < k->min ? "at least" : "at most",
                   (unsigned long long)((uint64_t)ms < k->min ? k->min : k->max));
        return false;
    }
    *(int64_t *)at = ms;
    return true;
}

static bool set_bytes(void *at, const struct config_key *k, struct str text, struct buf *expected)
{
    uint64_t n;

    if (!str_to_bytes(text, &n) || n < k->min) {
        buf_printf(expected, "a size such as 1GiB or 64MiB, at least %llu bytes",
                   (unsigned long long)k->min);
        return false;
    }
    *(uint64_t *)at = n;
    return true;
}

static bool set_bool(void *at, struct str text, struct buf *expected)
{
    bool yes = config_word_in(text, "true|yes|on", '|');

    if (!yes && !config_word_in(text, "false|no|off", '|')) {
        buf_add_z(expected, "true or false");
        return false;
    }
    *(bool *)at = yes;
    return true;
}

static bool set_word(void *at, const struct config_key *k, struct str text, struct buf *expected)
{
    if (!config_word_in(text, k->choices, '|')) {
        if (k->planned != NULL && config_word_in(text, k->planned, '|'))
            buf_printf(expected, "%s (this build of bellhop does not have \"%.*s\" yet)",
                       k->choices, STR_FMT(text));
        else
            buf_printf(expected, "one of %s", k->choices);
        return false;
    }
    if (k->type == CFG_LEVEL)
        return log_level_parse(text, (enum log_level *)at);
    if (k->type == CFG_FORMAT)
        *(bool *)at = str_eq(text, STR("json"));
    return true;
}

bool config_set(void *base, const struct config_key *k, struct str text, struct buf *ret_expected)
{
    char *at = (char *)base + k->offset;

    switch (k->type) {
    case CFG_NUMBER:
        return set_number(at, k, text, ret_expected);
    case CFG_DURATION:
        return set_duration(at, k, text, ret_expected);
    case CFG_BYTES:
        return set_bytes(at, k, text, ret_expected);
    case CFG_BOOL:
        return set_bool(at, text, ret_expected);
    case CFG_CHOICE:
    case CFG_LEVEL:
    case CFG_FORMAT:
        if (!set_word(at, k, text, ret_expected))
            return false;
        break;
    case CFG_TEXT:
    case CFG_SECRET:
        break;
    }
    if (is_text(k)) {
        config_clear(base, k);
        *(char **)(void *)at = str_is_empty(text) ? NULL : str_dup(text);
    }
    return true;
}

void config_clear(void *base, const struct config_key *k)
{
    char **text = (char **)(void *)((char *)base + k->offset);

    if (!is_text(k) || *text == NULL)
        return;
    if (k->type == CFG_SECRET)
        secret_wipe(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

bool config_same(const void *a, const void *b, const struct config_key *k)
{
    const char *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;

    switch (k->type) {
    case CFG_TEXT:
    case CFG_SECRET:
    case CFG_CHOICE: {
        const char *tx = *(char *const *)(const void *)x, *ty = *(char *const *)(const void *)y;
        return (tx == NULL) == (ty == NULL) && str_eq(str_of(tx), str_of(ty));
    }
    case CFG_BOOL:
    case CFG_FORMAT:
        return *(const bool *)x == *(const bool *)y;
    case CFG_NUMBER:
        return memcmp(x, y, sizeof(uint32_t)) == 0;
    case CFG_LEVEL:
        return memcmp(x, y, sizeof(enum log_level)) == 0;
    case CFG_DURATION:
    case CFG_BYTES:
        return memcmp(x, y, sizeof(uint64_t)) == 0;
    }
    return false;
}
