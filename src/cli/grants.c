/* grants.c - bellhop link, scope, principal, policy, allowance, dm-default, pairing: the management
 * plane from the terminal.
 *
 * The commands share their options, but for pairing.  */
#include <stdio.h>
#include "cli/cli.h"

static const struct cli_option options[] = {
    {"--tenant", "tenant"},
    {"--instance", "instance"},
    {"--platform", "platform"},
    {"--user", "userId"},
    {"--guild", "guildId"},
    {"--channel", "channelId"},
    {"--mode", "mode"},
    {"--allow", "allow"},
    {"--free", "freeResponseScopes"},
    {"--require-address", "requireAddress", CLI_FLAG},
    {"--allow-bots", "allowOtherBots", CLI_FLAG},
    {"--bot", "bots", CLI_REPEATED},
    {"--off", .kind = CLI_FLAG},
    {"--turns", "turns"},
    {"--per", "per"},
    {"--reply", "reply"},
    {0},
};

#define WHOSE \
    {"TENANT", "tenant"}, {"INSTANCE", "instance"}, \
    { \
        "PLATFORM", "platform" \
    }
#define LISTS(name_, member_, columns_) \
    { \
        name_, .op = "listGrants", .member = member_, .columns = columns_, .none = "None yet." \
    }

/* ---- link, dm-default ---- */

static void print_code(struct cli_job *j)
{
    struct str code = json_str(j->doc, "code");

    printf("%.*s\n", STR_FMT(code));
    fprintf(stderr,
            "The code works once, within ten minutes. The person sends the bot: /link %.*s\n",
            STR_FMT(code));
    cli_link_how(str_of(cli_value(j, "--platform")));
}

static const struct cli_column of_people[] = {WHOSE, {"USER", "userId"}, {0}},
                               of_links[] = {WHOSE, {"USER", "userId"}, {"BOTS", "bots"}, {0}};
static const struct cli_verb link_verbs[] = {
    {"", .needs = "--instance", .op = "link", .print = print_code},
    {"add", .needs = "--instance --platform --user", .op = "linkPerson"},
    {"remove", .needs = "--instance --platform --user", .op = "linkPerson",
     .fixed = {"remove", {"true", 4}}},
    LISTS("list", "bindings", of_links),
    {0},
};
const struct command cmd_link = {
    .name = "link",
    .summary = "link a person's account to an instance",
    .help = "Usage: bellhop link --instance I [--tenant T] [--platform P [--bot B]...]\n"
            "       bellhop link add|remove --instance I [--tenant T] --platform P --user U\n"
            "                               [--bot B]...\n"
            "       bellhop link list [--tenant T] [--instance I] [--json]\n\n"
            "Without a verb, prints a code that works once, within ten minutes.  The person who\n"
            "sends \"/link CODE\" to a bot is linked on that bot: the instance receives what this\n"
            "person writes there, in every chat.  A link counts on no other bot.\n\n"
            "--bot   the code works on this bot only.  With several --bot the link counts on all\n"
            "        of them; --bot '*' means every bot.\n"
            "add     links a person directly, without a code; without --bot on the platform's\n"
            "        only bot.\n"
            "remove  ends a link; with --bot on these bots only.\n",
    .verbs = link_verbs,
    .options = options,
};

static const struct cli_verb dm_verbs[] = {
    {"set", .needs = "--instance --platform --user", .op = "setDmDefault"},
    LISTS("list", "dmDefaults", of_people),
    {0},
};
const struct command cmd_dm_default = {
    .name = "dm-default",
    .summary = "choose the instance that a person with several talks to",
    .help =
        "Usage: bellhop dm-default set --instance I [--tenant T] --platform P --user U\n"
        "       bellhop dm-default list [--tenant T] [--instance I] [--json]\n\n"
        "The person must be linked to the instance.  Without a choice the oldest link counts.\n",
    .verbs = dm_verbs,
    .options = options,
};

/* ---- scope ---- */

static const struct cli_column of_scopes[] = {WHOSE,
                                              {"GUILD", "guildId"},
                                              {"CHANNEL", "channelId"},
                                              {0}};
static const struct cli_verb scope_verbs[] = {
    {"claim", .needs = "--instance --platform --guild --channel", .op = "claimScope"},
    {"release", .needs = "--instance --platform --guild --channel", .op = "releaseScope"},
    LISTS("list", "scopes", of_scopes),
    {0},
};
const struct command cmd_scope = {
    .name = "scope",
    .summary = "give a channel or a whole guild to an instance",
    .help =
        "Usage: bellhop scope claim|release --instance I [--tenant T] --platform P --guild G\n"
        "                                   --channel C\n"
        "       bellhop scope list [--tenant T] [--instance I] [--json]\n\n"
        "A channel belongs to one instance.  --channel \"*\" is the whole guild; the scope of a\n"
        "single channel takes precedence over it.  On platforms without guilds the group chat\n"
        "is the guild.  `bellhop principal` decides which people are heard there.  The instance\n"
        "receives nothing from a channel that none of its linked people can see.\n",
    .verbs = scope_verbs,
    .options = options,
};

/* ---- principal, policy ---- */

static const struct cli_column of_principals[] = {WHOSE, {"MODE", "mode"}, {"ALLOW", "allow"}, {0}};
static const struct cli_verb principal_verbs[] = {
    {"set", .needs = "--instance --mode", .op = "setPrincipal"},
    LISTS("list", "principals", of_principals),
    {0},
};
const struct command cmd_principal = {
    .name = "principal",
    .summary = "choose the people that an instance listens to",
    .help = "Usage: bellhop principal set --instance I [--tenant T] [--platform P] --mode M\n"
            "                             [--allow U1,U2]\n"
            "       bellhop principal list [--tenant T] [--instance I] [--json]\n\n"
            "--mode owner-only  people linked to the instance (the initial mode of a scope)\n"
            "       allow-list  people linked to the instance, and those in --allow\n"
            "       any         everybody in its channels (the initial mode of an open route)\n"
            "Without --platform the mode holds on every platform that has no mode of its own.\n",
    .verbs = principal_verbs,
    .options = options,
};

static int set_default(struct cli_job *j)
{
    if (cli_flag(j, "--require-address") == cli_flag(j, "--off"))
        return cli_misused(j, "default needs either --require-address or --off");
    return cli_do(j);
}

static const struct cli_column of_policies[] = {WHOSE,
                                                {"MUST ADDRESS", "requireAddress"},
                                                {"FREE", "freeResponseScopes"},
                                                {"OTHER BOTS", "allowOtherBots"},
                                                {0}},
                               of_tenants[] = {{"TENANT", "tenant"},
                                               {"MUST ADDRESS", "requireAddress"},
                                               {0}};
static const struct cli_verb policy_verbs[] = {
    {"set", .needs = "--instance --platform", .op = "setPolicy"},
    LISTS("list", "policies", of_policies),
    {"default", .needs = "--tenant", .op = "setTenantDefault", .run = set_default},
    LISTS("defaults", "tenants", of_tenants),
    {0},
};
const struct command cmd_policy = {
    .name = "policy",
    .summary = "choose the messages that an instance receives",
    .help =
        "Usage: bellhop policy set --instance I [--tenant T] --platform P [--require-address]\n"
        "                          [--free C1,C2] [--allow-bots]\n"
        "       bellhop policy list [--tenant T] [--instance I] [--json]\n"
        "       bellhop policy default --tenant T --require-address | --off\n"
        "       bellhop policy defaults [--json]\n\n"
        "set replaces the instance's policy on one platform.  A gateway declares its own policy\n"
        "whenever it connects.\n"
        "--require-address  in shared chats, only messages that mention the bot or reply to it\n"
        "--free             channels, threads and topics where --require-address does not\n"
        "                   apply; a topic also as GROUP:TOPIC\n"
        "--allow-bots       also messages of other bots\n"
        "default sets --require-address for instances of the tenant that declared no policy.\n"
        "An instance always hears the people linked to it.\n",
    .verbs = policy_verbs,
    .options = options,
};

/* ---- pairing ---- */

static void print_approved(struct cli_job *j)
{
    struct str tenant = json_str(j->doc, "tenant"), instance = json_str(j->doc, "instance");

    fprintf(stderr, "%.*s/%.*s hears this person from now on, on the bot they wrote to.%s\n",
            STR_FMT(tenant), STR_FMT(instance),
            cli_bool(j->doc, "owner") ? " They are its owner: the first person linked to it." : "");
}

static const struct cli_column of_waiting[] = {{"ID", "id"},
                                               {"STATE", "state"},
                                               {"PLATFORM", "platform"},
                                               {"BOT", "bot"},
                                               {"USER", "userId"},
                                               {"NAME", "userName"},
                                               {"CHAT", "chatType"},
                                               {"MESSAGES", "messages"},
                                               {"FIRST", "firstAt", CLI_AGO_MS},
                                               {"LAST", "lastAt", CLI_AGO_MS},
                                               {0}};
static const struct cli_option pairing_options[] = {
    {"--tenant", "tenant"},
    {"--instance", "instance"},
    {"--platform", "platform"},
    {"--bot", "bot"},
    {"--state", "state", .one_of = "waiting|denied|blocked"},
    {0},
};
static const struct cli_verb pairing_verbs[] = {
    {"list", .takes = "--tenant --platform --bot --state", .op = "listPairings", .member = "people",
     .columns = of_waiting, .none = "Nobody waits."},
    {"approve", .args = "id", .needs = "--instance", .takes = "--tenant --instance",
     .op = "approvePairing", .print = print_approved},
    {"deny", .args = "id", .takes = "", .op = "denyPairing",
     .done = "Denied. Who writes again a week later is listed again."},
    {"block", .args = "id", .takes = "", .op = "blockPairing",
     .done = "Blocked on this bot. Undo: bellhop pairing restore %s"},
    {"restore", .args = "id", .takes = "", .op = "restorePairing",
     .done = "The person waits again."},
    {"forget", .args = "id", .takes = "", .op = "forgetPairing", .done = "Forgotten."},
    {0},
};
const struct command cmd_pairing = {
    .name = "pairing",
    .summary = "let in, deny or block people who wrote to a bot",
    .help =
        "Usage: bellhop pairing list [--state waiting|denied|blocked] [--platform P] [--bot B]\n"
        "                            [--tenant T] [--json]\n"
        "       bellhop pairing approve ID --instance I [--tenant T]\n"
        "       bellhop pairing deny|block|restore|forget ID\n\n"
        "The list has the people who wrote to a bot and whom no instance hears: name, id,\n"
        "times and how often, never what they wrote.\n\n"
        "approve  links the person to the instance, on the bot they wrote to, as \"/link CODE\"\n"
        "         does.  The first person of an instance is its owner.\n"
        "deny     takes the person off the list; who writes again a week later is back.\n"
        "block    the person is never listed on this bot again, and gets no answer.\n"
        "restore  undoes deny and block.\n"
        "forget   deletes the entry; the next message lists the person again.\n"
        "list --tenant shows the people on bots that belong to one tenant.\n",
    .verbs = pairing_verbs,
    .options = pairing_options,
};

/* ---- allowance ---- */

static const struct cli_column of_allowances[] = {{"TENANT", "tenant"}, {"INSTANCE", "instance"},
                                                  {"TURNS", "turns"},   {"PER", "per"},
                                                  {"REPLY", "reply"},   {0}};
static const struct cli_verb allowance_verbs[] = {
    {"", .needs = "--instance --turns", .op = "setAllowance"},
    {"remove", .needs = "--instance", .op = "setAllowance", .fixed = {"remove", {"true", 4}}},
    LISTS("list", "allowances", of_allowances),
    {0},
};
const struct command cmd_allowance = {
    .name = "allowance",
    .summary = "limit how much each person may ask of an instance",
    .help =
        "Usage: bellhop allowance --instance I [--tenant T] --turns N/PERIOD [--per person|chat]\n"
        "                         [--reply TEXT]\n"
        "       bellhop allowance list [--tenant T] [--instance I] [--json]\n"
        "       bellhop allowance remove --instance I [--tenant T]\n\n"
        "Without a verb, sets how many messages the instance receives from each person in a\n"
        "period, such as 50/day; the periods are hour, day, week and month.  Further messages\n"
        "are not delivered, and `bellhop why` says so.  A burst counts once.  /stop and button\n"
        "presses always pass.\n\n"
        "--per chat  all people of a chat share it\n"
        "--reply     what a person over it is told, once per period\n"
        "Days, weeks and months are those of allowances.timezone.\n",
    .verbs = allowance_verbs,
    .options = options,
};
