/* grants.c - bellhop link, scope, principal, policy, dm-default: the management plane from the
 * terminal.
 *
 * The five commands share their options and their way of talking: a verb becomes a POST below
 * /admin/manage, `list` reads /admin/grants. */
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

struct options {
    const char *tenant, *instance, *platform, *user, *guild, *channel, *mode, *allow, *free_places;
    bool require_address, allow_bots, off;
};

static bool parse(const struct command *c, int argc, char **argv, struct cli_args *a,
                  struct options *o)
{
    const struct cli_option options[] = {
        {"--tenant", &o->tenant, NULL},     {"--instance", &o->instance, NULL},
        {"--platform", &o->platform, NULL}, {"--user", &o->user, NULL},
        {"--guild", &o->guild, NULL},       {"--channel", &o->channel, NULL},
        {"--mode", &o->mode, NULL},         {"--allow", &o->allow, NULL},
        {"--free", &o->free_places, NULL},  {"--require-address", NULL, &o->require_address},
        {"--off", NULL, &o->off},           {"--allow-bots", NULL, &o->allow_bots},
    };

    return cli_parse(c, argc, argv, options, ARRAY_LEN(options), a);
}

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

static int post(const struct cli_args *a, const struct options *o, const char *path, bool remove)
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct json doc;

    write_body(&body, o, remove);
    int rc = cli_call(a, "POST", path, buf_str(&body), parser, &doc);
    struct str code = rc == CLI_DONE ? json_str(doc, "code") : STR_NULL;
    if (rc == CLI_DONE && a->json) {
        cli_print_json(doc);
    } else if (code.p != NULL) {
        printf("%.*s\n", STR_FMT(code));
        fprintf(stderr, "Good for ten minutes, once. The person sends the bot: /link %.*s\n",
                STR_FMT(code));
    }
    json_parser_free(parser);
    buf_done(&body);
    return rc;
}

/* ---- list ---- */

static void cell_of(struct cli_table *t, struct json row, const char *key)
{
    struct json v = json_get(row, key);
    struct buf text = BUF_INIT;

    switch (json_type(v)) {
    case JSON_BOOL:
        cli_cell(t, "%s", json_as_bool(v, false) ? "yes" : "no");
        break;
    case JSON_ARRAY:
        for (struct json_iter it = {0}; json_next(v, &it);)
            buf_printf(&text, "%s%.*s", text.n > 0 ? "," : "", STR_FMT(json_as_str(it.value)));
        cli_cell_str(t, buf_str(&text));
        break;
    default:
        cli_cell_str(t, json_as_str(v));
    }
    buf_done(&text);
}

#define MAX_COLUMNS 6
struct columns { /* of what /admin/grants calls @kind */
    const char *kind, *keys[MAX_COLUMNS], *heads[MAX_COLUMNS];
};
static const struct columns bindings = {"bindings",
                                        {"tenant", "instance", "platform", "userId"},
                                        {"TENANT", "INSTANCE", "PLATFORM", "USER"}},
                            scopes = {"scopes",
                                      {"tenant", "instance", "platform", "guildId", "channelId"},
                                      {"TENANT", "INSTANCE", "PLATFORM", "GUILD", "CHANNEL"}},
                            principals = {"principals",
                                          {"tenant", "instance", "platform", "mode", "allow"},
                                          {"TENANT", "INSTANCE", "PLATFORM", "MODE", "ALLOW"}},
                            policies = {"policies",
                                        {"tenant", "instance", "platform", "requireAddress",
                                         "freeResponseScopes", "allowOtherBots"},
                                        {"TENANT", "INSTANCE", "PLATFORM", "MUST ADDRESS", "FREE",
                                         "OTHER BOTS"}},
                            dm_defaults = {"dmDefaults",
                                           {"tenant", "instance", "platform", "userId"},
                                           {"TENANT", "INSTANCE", "PLATFORM", "USER"}},
                            tenants = {"tenants",
                                       {"tenant", "requireAddress"},
                                       {"TENANT", "MUST ADDRESS"}};

static void print_rows(struct json rows, const struct columns *k)
{
    struct cli_table t = {0};

    while (t.columns < MAX_COLUMNS && k->keys[t.columns] != NULL)
        t.columns++;
    for (size_t i = 0; i < t.columns; i++)
        cli_cell(&t, "%s", k->heads[i]);
    for (struct json_iter it = {0}; json_next(rows, &it);)
        for (size_t i = 0; i < t.columns; i++)
            cell_of(&t, it.value, k->keys[i]);
    cli_table_print(&t);
}

static int list(const struct cli_args *a, const struct options *o, const struct columns *k)
{
    struct json_parser *parser = json_parser_new();
    struct buf path = BUF_INIT;
    struct json doc;

    buf_add_z(&path, "/admin/grants");
    if (o->tenant != NULL)
        cli_query_add(&path, '?', "tenant", o->tenant);
    if (o->instance != NULL)
        cli_query_add(&path, o->tenant != NULL ? '&' : '?', "instance", o->instance);
    int rc = cli_call_pages(a, buf_z(&path), parser, &doc);
    struct json rows = rc == CLI_DONE ? json_get(doc, k->kind) : (struct json){0};
    if (rc == CLI_DONE && a->json)
        cli_print_json(rows);
    else if (rc == CLI_DONE && json_count(rows) == 0)
        fputs("None yet.\n", stderr);
    else if (rc == CLI_DONE)
        print_rows(rows, k);
    json_parser_free(parser);
    buf_done(&path);
    return rc;
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

/* What each command can be told to do: list something, or post everything that was said. */
static const struct verb {
    const char *command, *name;  /* "": no verb */
    unsigned needs;              /* bits */
    const char *path;            /* below /admin/manage/; NULL: */
    const struct columns *lists; /* ... it lists these */
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

/* Appends the options that @v needs and @o lacks, with commas between. */
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
    struct cli_args a;
    struct options o = {0};
    struct buf text = BUF_INIT;

    if (!parse(c, argc, argv, &a, &o))
        return cli_exit(&a);
    const char *name = a.n_rest > 0 ? a.rest[0] : "";
    const struct verb *v = find_verb(c, name);
    if (v == NULL)
        return unknown_verb(c, name);
    find_missing(&text, v, &o);
    int rc;
    if (text.n > 0) {
        rc = cli_misused(c, "%s%sit needs %s", name, *name != '\0' ? ": " : "", buf_z(&text));
    } else if (v->lists != NULL) {
        rc = list(&a, &o, v->lists);
    } else {
        buf_printf(&text, "/admin/manage/%s", v->path);
        rc = post(&a, &o, buf_z(&text), v->remove);
    }
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
