/* teams.c - settings, open, close, check and status of one Teams bot.  (teams_priv.h is the map of
 * the other files.) */
#include "platform/teams/teams.h"
#include <stdio.h>
#include "base/config.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/teams/teams_priv.h"

/* ---- settings ---- */

#define AT(member) offsetof(struct teams_settings, member)

static const struct config_key keys[] = {
    {"entra_tenant", CFG_TEXT, CFG_RESTART, AT(entra_tenant), .ask = "",
     .what = "The id of the organisation's Entra tenant: the bot serves no other one, and logs in "
             "there. Without it the bot is one of many organisations. (`tenant` is a tenant of "
             "bellhop.)"},
    {"app_password", CFG_SECRET, CFG_RESTART, AT(app_password), .ask = "",
     .what = "A client secret of the app."},
    {"certificate", CFG_TEXT, CFG_RESTART, AT(certificate),
     .what = "A PEM file with the private key and the certificate of the app, instead of "
             "`app_password`."},
    PLATFORM_KEY_API_BASE,
    PLATFORM_KEY_REACTIONS,
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct teams_settings *s = settings;

    if (!teams_is_guid(platform_id_in(str_of(s->base.bot))))
        return bh_why(
            ret_why, "`bot` is the app's id, such as 00001111-aaaa-2222-bbbb-3333cccc4444: see the "
                     "app registration in Entra, Application (client) ID");
    if (s->entra_tenant != NULL && !teams_is_guid(str_of(s->entra_tenant)))
        return bh_why(ret_why,
                      "`entra_tenant` is the id of a tenant, such as "
                      "aaaabbbb-0000-cccc-1111-dddd2222eeee: see the app registration in Entra, "
                      "Directory (tenant) ID");
    if ((s->app_password == NULL) == (s->certificate == NULL))
        return bh_why(ret_why, "a teams platform needs `app_password` or `certificate`, not both");
    return true;
}

const struct config_section teams_config = {.name = "teams",
                                            .keys = keys,
                                            .size = sizeof(struct teams_settings),
                                            .check = check};

/* ---- life ---- */

static void teams_close(struct platform *p)
{
    struct teams *t = teams_of(p);

    teams_uploads_cancel(t);
    teams_auth_close(t);
    teams_chats_free(t);
    arena_done(&t->arena);
    teams_out_done(&t->out);
}

static enum bh_err teams_open(struct platform *p, char *ret_why)
{
    struct teams *t = teams_of(p);

    t->cfg = container_of(p->settings, const struct teams_settings, base);
    t->app = platform_id(p);
    list_init(&t->uploads);
    enum bh_err err = teams_auth_open(t, ret_why);
    return err == BH_OK ? teams_chats_load(t, ret_why) : err;
}

/* The keys and the token are fetched at once, so that the first message does not wait for them. */
static void teams_start(struct platform *p)
{
    struct teams *t = teams_of(p);

    teams_auth_start(t);
    teams_auth_line(t);
}

static const char *teams_reads(const struct platform_settings *cfg)
{
    return container_of(cfg, const struct teams_settings, base)->certificate;
}

static enum bh_err teams_check(const struct platform_settings *settings,
                               struct platform_report *ret, char *ret_why)
{
    const struct teams_settings *cfg = container_of(settings, const struct teams_settings, base);
    struct str app = platform_id_in(str_of(settings->bot));
    enum bh_err err = teams_auth_check(cfg, ret_why);

    ret->webhook = true;
    if (err != BH_OK)
        return err;
    snprintf(ret->reach, sizeof ret->reach,
             "https://teams.microsoft.com/l/chat/0/0?users=28:%.*s, once the app is installed",
             STR_FMT(app));
    if (cfg->entra_tenant == NULL)
        snprintf(ret->notes, sizeof ret->notes,
                 "people of every organisation that installs the app reach it; `entra_tenant` "
                 "restricts that");
    return BH_OK;
}

/* ---- status ---- */

static void teams_status(struct platform *p, struct jw *w)
{
    struct teams *t = teams_of(p);

    jw_ki64(w, "chats", (int64_t)map_count(&t->chats.map));
    jw_ki64(w, "tokensFetched", (int64_t)t->login.fetched);
    jw_ki64(w, "webhooksHeld", (int64_t)t->n_held);
    jw_ki64(w, "otherOrganisations", (int64_t)t->n.other_tenants);
    jw_ki64(w, "presses", (int64_t)t->n.presses);
    jw_ki64(w, "otherInvokes", (int64_t)t->n.invokes);
    jw_ki64(w, "edits", (int64_t)t->n.edits);
    jw_ki64(w, "streams", (int64_t)t->n.streams);
    jw_ki64(w, "appends", (int64_t)t->n.appends);
    jw_ki64(w, "filesOffered", (int64_t)t->n.offers);
    jw_ki64(w, "filesUploaded", (int64_t)t->n.uploads);
    jw_ki64(w, "limited", (int64_t)t->n.limited);
}

static const struct descriptor descriptor = {
    .platform = "teams",
    .label = "Microsoft Teams",
    .max_message_length = TEAMS_MAX_CHARS,
    .supports_edit = true,
    .markdown_dialect = "markdown",
    .len_unit = "utf16",
    .emoji = "\xf0\x9f\x91\xa5",
    .platform_hint = "You are talking on Microsoft Teams. Markdown is shown: bold, italic, strike, "
                     "lists, quotes, links, code with fences. Headings and tables are not: use "
                     "bold lines and lists. Mentions that you write ping nobody.",
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING |
           1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT |
           1u << ACTION_DRAFT,
};

static const struct record_form *const teams_records[] = {&teams_chat_form, &teams_card_form, NULL};

const struct platform_ops teams_ops = {
    .name = "teams",
    .config = &teams_config,
    .descriptor = &descriptor,
    .records = teams_records,
    .ids_per_chat = true,
    .plausible = teams_plausible,
    .size = sizeof(struct teams),
    .label = "Microsoft Teams",
    .api_base = "https://smba.trafficmanager.net/teams",
    .sender = &teams_sender,
    .prompt_over = teams_prompt_over,
    .open = teams_open,
    .start = teams_start,
    .close = teams_close,
    .reads = teams_reads,
    .check = teams_check,
    .steps =
        "Open https://portal.azure.com, create an Azure Bot (single tenant), and note the app id\n"
        "and the tenant id of its configuration.\n"
        "Manage Password: create a client secret, and copy its value.\n"
        "Channels: add Microsoft Teams.\n"
        "Configuration: the messaging endpoint is the webhook address that bellhop shows.",
    .bot_is = "The Microsoft App ID of the Azure Bot: 00001111-aaaa-2222-bbbb-3333cccc4444",
    .act = teams_act,
    .http = teams_http,
    .forget = teams_forget,
    .forget_chat = teams_forget_chat,
    .eraser = &teams_eraser,
    .media_where = teams_media_where,
    .status = teams_status,
};
