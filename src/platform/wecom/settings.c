/* settings.c - what an operator writes about a WeCom bot. */
#include <stdio.h>
#include "base/config.h"
#include "base/crypto.h"
#include "platform/wecom/crypt.h"
#include "platform/wecom/wecom.h"

#define AT(member) offsetof(struct wecom_settings, member)

static const struct config_key keys[] = {
    {"corp_id", CFG_TEXT, CFG_RESTART, AT(corp_id), .what = "Corp id."},
    {"secret", CFG_SECRET, CFG_RESTART, AT(secret), .what = "The agent's secret."},
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .what = "The callback's token."},
    {"encoding_aes_key", CFG_SECRET, CFG_RESTART, AT(encoding_aes_key),
     .what = "The callback's EncodingAESKey."},
    {"api_base", CFG_TEXT, CFG_RESTART, AT(api_base),
     .what = "Another API server than the platform's own."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct wecom_settings *s = settings;
    uint8_t key[WECOM_KEY_BYTES];

    if (s->corp_id == NULL || s->secret == NULL || s->token == NULL ||
        s->encoding_aes_key == NULL) {
        snprintf(ret_why, 256,
                 "a wecom platform needs `corp_id`, `secret`, `token` and `encoding_aes_key`");
        return false;
    }
    bool ok = wecom_key_parse(str_of(s->encoding_aes_key), key);
    secret_wipe(key, sizeof key);
    if (!ok)
        snprintf(ret_why, 256,
                 "`encoding_aes_key` is no EncodingAESKey: copy the 43 characters from the "
                 "callback's settings");
    return ok;
}

const struct config_section wecom_config = {.name = "wecom",
                                            .keys = keys,
                                            .size = sizeof(struct wecom_settings),
                                            .check = check};
