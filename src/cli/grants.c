/* grants.c - bellhop link, scope, principal, policy, dm-default: the management plane from the
 * terminal.
 *
 * The five commands share their options.  A verb becomes a POST below /admin/manage; `list` reads
 * /admin/grants. */
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

struct options {
    const char *tenant, *instance, *platform, *user, *guild, *channel, *mode, *allow, *free_places;
    bool require_address, allow_bots, off;
};

static void add_list(struct jw *w, const char *key, const char *commas)
{
    struct str rest = str_of(commas), one;

    jw_key(w, key);
    jw_arr(w);
    while (str_split(&rest, ',', &one))
        if (one.n > 0)
            jw_str(w, str_trim(one));
    jw_end_arr(w);
}

/* Every option that was given; the server reads what the operation needs. */
static void write_body(struct buf *body, const struct options *o, bool remove)
{
    struct jw w = jw_begin(body);

    jw_obj(&w);
    jw_kstr_opt(&w, "tenant", str_of(o->tenant));
    jw_kstr_opt(&w, "instance", str_of(o->instance));
    jw_kstr_opt(&w, "platform", str_of(o->platform));
    jw_kstr_opt(&w, "userId", str_of(o->user));
    jw_kstr_opt(&w, "guildId", str_of(o->guild));
    jw_kstr_opt(&w, "channelId", str_of(o->channel));
    jw_kstr_opt(&w, "mode", str_of(o->mode));
    if (o->allow != NULL)
        add_list(&w, "allow", o->allow);
    if (o->free_places != NULL)
        add_list(&w, "freeResponseScopes", o->free_places);
    jw_kbool(&w, "requireAddress", o->require_address);
    jw_kbool(&w, "allowOtherBots", o->allow_bots);
    if (remove)
        jw_kbool(&w, "remove", true);
    jw_end_obj(&w);
}

static int post(struct cli_job *j, const char *path, bool remove)
{
    const char *const headers[] = {"Content-Type: application/json", NULL};
    struct buf body = BUF_INIT;

    write_body(&body, j->o, remove);
    const struct cli_request rq = {.method = "POST",
                                   .path = path,
                                   .body = buf_str(&body),
                                   .headers = headers};
    int rc = cli_show(j, cli_ask(&j->a, &rq, j->parser, &j->doc), NULL);
    struct str code = rc == CLI_DONE ? json_str(j->doc, "code") : STR_NULL;
    if (code.p != NULL && !j->a.json) {
        printf("%.*s\n", STR_FMT(code));
        fprintf(stderr, "Good for ten minutes, once. The person sends the bot: /link %.*s\n",
                STR_FMT(code));
    }
    buf_done(&body);
    return rc;
}

/* ---- list ---- */

#define MAX_COLUMNS 6
struct columns { /* the table of one @kind of /admin/grants */
    const char *kind;
    struct cli_column columns[MAX_COLUMNS];
};
#define WHOSE \
    {"TENANT", "tenant"}, {"INSTANCE", "instance"}, \
    { \
        "PLATFORM", "platform" \
    }
static const struct columns bindings = {"bindings", {WHOSE, {"USER", "userId"}}},
                            scopes = {"scopes",
                                      {WHOSE, {"GUILD", "guildId"}, {"CHANNEL", "channelId"}}},
                            principals = {"principals",
                                          {WHOSE, {"MODE", "mode"}, {"ALLOW", "allow"}}},
                            policies = {"policies",
                                        {WHOSE,
                                         {"MUST ADDRESS", "requireAddress"},
                                         {"FREE", "freeResponseScopes"},
                                         {"OTHER BOTS", "allowOtherBots"}}},
                            dm_defaults = {"dmDefaults", {WHOSE, {"USER", "userId"}}},
                            tenants = {"tenants",
                                       {{"TENANT", "tenant"}, {"MUST ADDRESS", "requireAddress"}}};

static int list(struct cli_job *j, const struct columns *k)
{
    const struct options *o = j->o;
    size_t n = 0;

    while (n < MAX_COLUMNS && k->columns[n].head != NULL)
        n++;
    return cli_show_rows(j,
                         cli_get_pages(j, "/admin/grants",
                                       CLI_FIELDS({"tenant", str_of(o->tenant)},
                                                  {"instance", str_of(o->instance)})),
                         k->kind, k->columns, n, "None yet.");
}

/* ---- the commands ---- */

enum { INSTANCE = 1, PLATFORM = 2, USER = 4, GUILD = 8, CHANNEL = 16, MODE = 32, DEFAULT = 64 };

static const struct {
    unsigned bit;
    const char *name;
    size_t at; /* in struct options */
} options_needed[] = {
    {INSTANCE, "--instance", offsetof(struct options, instance)},
    {PLATFORM, "--platform", offsetof(struct options, platform)},
    {USER, "--user", offsetof(struct options, user)},
    {GUILD, "--guild", offsetof(struct options, guild)},
    {CHANNEL, "--channel", offsetof(struct options, channel)},
    {MODE, "--mode", offsetof(struct options, mode)},
};

/* The verbs of each command: each lists something, or posts the options that were given. */
static const struct verb {
    const char *command, *name;  /* "": no verb */
    unsigned needs;              /* bits */
    const char *path;            /* below /admin/manage/; NULL: the verb lists */
    const struct columns *lists; /* if @path is NULL */
    bool remove;
} verbs[] = {
    {"link", "", INSTANCE, "link", NULL, false},
    {"link", "add", INSTANCE | PLATFORM | USER, "person", NULL, false},
    {"link", "remove", INSTANCE | PLATFORM | USER, "person", NULL, true},
    {"link", "list", 0, NULL, &bindings, false},
    {"scope", "claim", INSTANCE | PLATFORM | GUILD | CHANNEL, "scope", NULL, false},
    {"scope", "release", INSTANCE | PLATFORM | GUILD | CHANNEL, "scope/release", NULL, false},
    {"scope", "list", 0, NULL, &scopes, false},
    {"principal", "set", INSTANCE | MODE, "principal", NULL, false},
    {"principal", "list", 0, NULL, &principals, false},
    {"policy", "set", INSTANCE | PLATFORM, "policy", NULL, false},
    {"policy", "list", 0, NULL, &policies, false},
    {"policy", "default", DEFAULT, "tenant", NULL, false},
    {"policy", "defaults", 0, NULL, &tenants, false},
    {"dm-default", "set", INSTANCE | PLATFORM | USER, "dm-default", NULL, false},
    {"dm-default", "list", 0, NULL, &dm_defaults, false},
};

static const struct verb *find_verb(const struct command *c, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (strcmp(verbs[i].command, c->name) == 0 && strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static int unknown_verb(const struct command *c, const char *name)
{
    struct buf known = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (strcmp(verbs[i].command, c->name) == 0 && *verbs[i].name != '\0')
            buf_printf(&known, "%s%s", known.n > 0 ? ", " : "", verbs[i].name);
    int rc = *name == '\0' ? cli_misused(c, "which of %s?", buf_z(&known))
                           : cli_misused(c, "there is no \"%s %s\"; which of %s?", c->name, name,
                                         buf_z(&known));
    buf_done(&known);
    return rc;
}

/* Appends the options that @v needs and @o lacks, separated by commas. */
static void find_missing(struct buf *out, const struct verb *v, const struct options *o)
{
    for (size_t i = 0; i < ARRAY_LEN(options_needed); i++) {
        const char *const *given = (const void *)((const char *)o + options_needed[i].at);
        if ((v->needs & options_needed[i].bit) != 0 && *given == NULL)
            buf_printf(out, "%s%s", out->n > 0 ? ", " : "", options_needed[i].name);
    }
    if ((v->needs & DEFAULT) != 0 && (o->tenant == NULL || o->require_address == o->off))
        buf_add_z(out, "--tenant, and --require-address or --off");
}

static int run(const struct command *c, int argc, char **argv)
{
    struct options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},     {"--instance", &o.instance, NULL},
        {"--platform", &o.platform, NULL}, {"--user", &o.user, NULL},
        {"--guild", &o.guild, NULL},       {"--channel", &o.channel, NULL},
        {"--mode", &o.mode, NULL},         {"--allow", &o.allow, NULL},
        {"--free", &o.free_places, NULL},  {"--require-address", NULL, &o.require_address},
        {"--off", NULL, &o.off},           {"--allow-bots", NULL, &o.allow_bots},
    };
    struct cli_job j = {.c = c, .o = &o};
    struct buf text = BUF_INIT;
    int rc;

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &j.a))
        return cli_exit(&j.a);
    const char *name = j.a.n_rest > 0 ? j.a.rest[0] : "";
    const struct verb *v = find_verb(c, name);
    if (v == NULL)
        return unknown_verb(c, name);
    find_missing(&text, v, &o);
    j.parser = json_parser_new();
    if (text.n > 0) {
        rc = cli_misused(c, "%s%sit needs %s", name, *name != '\0' ? ": " : "", buf_z(&text));
    } else if (v->lists != NULL) {
        rc = list(&j, v->lists);
    } else {
        buf_printf(&text, "/admin/manage/%s", v->path);
        rc = post(&j, buf_z(&text), v->remove);
    }
    json_parser_free(j.parser);
    buf_done(&text);
    return rc;
}

const struct command cmd_link = {
    "link",
    "link a person's account to an instance",
    "Usage: bellhop link --instance I [--tenant T] [--platform P]\n"
    "       bellhop link add|remove --instance I [--tenant T] --platform P --user U\n"
    "       bellhop link list [--tenant T] [--instance I] [--json]\n\n"
    "Without a verb prints a code, good for ten minutes and once.  Whoever sends \"/link CODE\" to "
    "the\n"
    "bot is linked: what they write goes to their instance, wherever they write it.  add and "
    "remove do\n"
    "the same by the operator's word.\n",
    run,
};
const struct command cmd_scope = {
    "scope",
    "give a channel or a whole guild to an instance",
    "Usage: bellhop scope claim|release --instance I [--tenant T] --platform P --guild G --channel "
    "C\n"
    "       bellhop scope list [--tenant T] [--instance I] [--json]\n\n"
    "A place belongs to one instance.  --channel \"*\" is the whole guild; a channel of its own "
    "comes\n"
    "before it.  Where a platform has no guilds the group chat is the guild.  Who is heard there "
    "is for\n"
    "`bellhop principal` to say; nothing is delivered from a place that nobody linked to the "
    "instance\n"
    "can see.\n",
    run,
};
const struct command cmd_principal = {
    "principal",
    "say whom an instance listens to",
    "Usage: bellhop principal set --instance I [--tenant T] [--platform P] --mode M [--allow "
    "U1,U2]\n"
    "       bellhop principal list [--tenant T] [--instance I] [--json]\n\n"
    "--mode owner-only  people linked to the instance (what a scope starts with)\n"
    "       allow-list  them, and the people in --allow\n"
    "       any         everybody in its places (what an open route starts with)\n"
    "Without --platform it holds on every platform that has none of its own.\n",
    run,
};
const struct command cmd_policy = {
    "policy",
    "say what is relevant to an instance",
    "Usage: bellhop policy set --instance I [--tenant T] --platform P [--require-address]\n"
    "                          [--free C1,C2] [--allow-bots]\n"
    "       bellhop policy list [--tenant T] [--instance I] [--json]\n"
    "       bellhop policy default --tenant T --require-address | --off\n"
    "       bellhop policy defaults [--json]\n\n"
    "set replaces the whole policy of a platform; gateways declare theirs at every start.\n"
    "--require-address  only messages that mention the bot or answer it, except in direct chats\n"
    "--free             channels where that is not needed\n"
    "--allow-bots       other bots are heard too\n"
    "default says whether instances of a tenant that declared nothing must be addressed.\n"
    "People linked to an instance are always heard by it.\n",
    run,
};
const struct command cmd_dm_default = {
    "dm-default",
    "choose the instance a person with several talks to",
    "Usage: bellhop dm-default set --instance I [--tenant T] --platform P --user U\n"
    "       bellhop dm-default list [--tenant T] [--instance I] [--json]\n\n"
    "The person must be linked to the instance.  Without a choice the oldest link counts.\n",
    run,
};
