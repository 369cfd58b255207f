/* vouch_config.c - `identity:` in the configuration. */
#include <stdio.h>
#include "base/config.h"
#include "http/vouch.h"

#define AT(member) offsetof(struct vouch_settings, member)

static const struct config_key keys[] = {
    {"identity.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "local", "local|jwt|introspect",
     .what = "Who vouches for callers that enroll or provision: `local` is the operator (`bellhop "
             "token provision`), `jwt` a signed token, `introspect` an account endpoint."},
    {"identity.jwks_url", CFG_TEXT, CFG_RESTART, AT(jwks_url),
     .what = "Where the public keys of signed tokens are fetched; RS256 only."},
    {"identity.public_key", CFG_TEXT, CFG_RESTART, AT(public_key),
     .what = "A PEM file with the one public key, instead of `identity.jwks_url`."},
    {"identity.issuer", CFG_TEXT, CFG_RESTART, AT(issuer),
     .what = "What a signed token's `iss` must be."},
    {"identity.audience", CFG_TEXT, CFG_RESTART, AT(audience),
     .what = "What a signed token's `aud` must contain."},
    {"identity.tenant_claim", CFG_TEXT, CFG_RESTART, AT(tenant_claim), "tenant",
     .what = "The claim that names the tenant; `org.id` is one inside another."},
    {"identity.url", CFG_TEXT, CFG_RESTART, AT(url),
     .what = "The account endpoint, asked with the caller's own bearer."},
    {"identity.tenant_field", CFG_TEXT, CFG_RESTART, AT(tenant_field), "tenant",
     .what = "The member of its answer that names the tenant."},
    {0},
};

static const char *find_mistake(const struct vouch_settings *s)
{
    if (strcmp(s->kind, "introspect") == 0 && s->url == NULL)
        return "identity.kind introspect needs identity.url, the account endpoint";
    if (strcmp(s->kind, "jwt") != 0)
        return NULL;
    if (s->public_key == NULL && s->jwks_url == NULL)
        return "identity.kind jwt needs identity.jwks_url or identity.public_key";
    if (s->issuer == NULL || s->audience == NULL)
        return "identity.kind jwt needs identity.issuer and identity.audience";
    return NULL;
}

static bool check(void *settings, char *ret_why)
{
    const char *mistake = find_mistake(settings);

    if (mistake != NULL)
        snprintf(ret_why, 256, "%s", mistake);
    return mistake == NULL;
}

const struct config_section vouch_config = {.keys = keys,
                                            .size = sizeof(struct vouch_settings),
                                            .check = check};
