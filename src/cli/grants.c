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

static int list(const struct cli_args *a, const struct options *o, const char *kind,
                const char *const *keys, const char *const *heads, size_t n)
{
    struct json_parser *parser = json_parser_new();
    struct buf path = BUF_INIT;
    struct cli_table t = {.columns = n};
    struct json doc;
    char sep = '?';

    buf_add_z(&path, "/admin/grants");
    if (o->tenant != NULL) {
        cli_query_add(&path, sep, "tenant", o->tenant);
        sep = '&';
    }
    if (o->instance != NULL)
        cli_query_add(&path, sep, "instance", o->instance);
    int rc = cli_call_pages(a, buf_z(&path), parser, &doc);
    if (rc == CLI_DONE && a->json) {
        cli_print_json(json_get(doc, kind));
    } else if (rc == CLI_DONE && json_count(json_get(doc, kind)) == 0) {
        fputs("None yet.\n", stderr);
    } else if (rc == CLI_DONE) {
        for (size_t i = 0; i < n; i++)
            cli_cell(&t, "%s", heads[i]);
        for (struct json_iter it = {0}; json_next(json_get(doc, kind), &it);)
            for (size_t i = 0; i < n; i++)
                cell_of(&t, it.value, keys[i]);
        cli_table_print(&t);
    }
    json_parser_free(parser);
    buf_done(&path);
    return rc;
}

#define LIST(kind, ...) \
    static int list_##kind(const struct cli_args *a, const struct options *o) \
    { \
        static const char *const words[] = {__VA_ARGS__}; \
        const size_t n = ARRAY_LEN(words) / 2; \
        return list(a, o, #kind, words, words + n, n); \
    }
LIST(bindings, "tenant", "instance", "platform", "userId", "TENANT", "INSTANCE", "PLATFORM", "USER")
LIST(scopes, "tenant", "instance", "platform", "guildId", "channelId", "TENANT", "INSTANCE",
     "PLATFORM", "GUILD", "CHANNEL")
LIST(principals, "tenant", "instance", "platform", "mode", "allow", "TENANT", "INSTANCE",
     "PLATFORM", "MODE", "ALLOW")
LIST(policies, "tenant", "instance", "platform", "requireAddress", "freeResponseScopes",
     "allowOtherBots", "TENANT", "INSTANCE", "PLATFORM", "MUST ADDRESS", "FREE", "OTHER BOTS")
LIST(dmDefaults, "tenant", "instance", "platform", "userId", "TENANT", "INSTANCE", "PLATFORM",
     "USER")
LIST(tenants, "tenant", "requireAddress", "TENANT", "MUST ADDRESS")

/* ---- the commands ---- */

static int unknown_verb(const struct command *c, const char *verbs, const char *verb)
{
    return *verb == '\0' ? cli_misused(c, "%s?", verbs)
                         : cli_misused(c, "there is no \"%s %s\"; %s?", c->name, verb, verbs);
}

static const char *verb_of(const struct cli_args *a)
{
    return a->n_rest > 0 ? a->rest[0] : "";
}

static bool is(const char *verb, const char *word)
{
    return strcmp(verb, word) == 0;
}

static int run_link(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct options o = {0};

    if (!parse(c, argc, argv, &a, &o))
        return cli_exit(&a);
    const char *verb = verb_of(&a);
    if (is(verb, "list"))
        return list_bindings(&a, &o);
    if (o.instance == NULL)
        return cli_misused(c, "which --instance?");
    if (is(verb, ""))
        return post(&a, &o, "/admin/manage/link", false);
    if (!is(verb, "add") && !is(verb, "remove"))
        return unknown_verb(c, "add, remove or list", verb);
    if (o.platform == NULL || o.user == NULL)
        return cli_misused(c, "%s needs --platform and --user", verb);
    return post(&a, &o, "/admin/manage/person", is(verb, "remove"));
}

static int run_scope(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct options o = {0};

    if (!parse(c, argc, argv, &a, &o))
        return cli_exit(&a);
    const char *verb = verb_of(&a);
    if (is(verb, "list"))
        return list_scopes(&a, &o);
    if (!is(verb, "claim") && !is(verb, "release"))
        return unknown_verb(c, "claim, release or list", verb);
    if (o.instance == NULL || o.platform == NULL || o.guild == NULL || o.channel == NULL)
        return cli_misused(c, "%s needs --instance, --platform, --guild and --channel", verb);
    return post(&a, &o, is(verb, "claim") ? "/admin/manage/scope" : "/admin/manage/scope/release",
                false);
}

static int run_principal(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct options o = {0};

    if (!parse(c, argc, argv, &a, &o))
        return cli_exit(&a);
    const char *verb = verb_of(&a);
    if (is(verb, "list"))
        return list_principals(&a, &o);
    if (!is(verb, "set"))
        return unknown_verb(c, "set or list", verb);
    if (o.instance == NULL || o.mode == NULL)
        return cli_misused(c, "set needs --instance and --mode");
    return post(&a, &o, "/admin/manage/principal", false);
}

static int run_policy(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct options o = {0};

    if (!parse(c, argc, argv, &a, &o))
        return cli_exit(&a);
    const char *verb = verb_of(&a);
    if (is(verb, "list"))
        return list_policies(&a, &o);
    if (is(verb, "defaults"))
        return list_tenants(&a, &o);
    if (is(verb, "default")) {
        if (o.tenant == NULL || o.require_address == o.off)
            return cli_misused(c, "default needs --tenant and --require-address or --off");
        return post(&a, &o, "/admin/manage/tenant", false);
    }
    if (!is(verb, "set"))
        return unknown_verb(c, "set, list, default or defaults", verb);
    if (o.instance == NULL || o.platform == NULL)
        return cli_misused(c, "set needs --instance and --platform");
    return post(&a, &o, "/admin/manage/policy", false);
}

static int run_dm_default(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct options o = {0};

    if (!parse(c, argc, argv, &a, &o))
        return cli_exit(&a);
    const char *verb = verb_of(&a);
    if (is(verb, "list"))
        return list_dmDefaults(&a, &o);
    if (!is(verb, "set"))
        return unknown_verb(c, "set or list", verb);
    if (o.instance == NULL || o.platform == NULL || o.user == NULL)
        return cli_misused(c, "set needs --instance, --platform and --user");
    return post(&a, &o, "/admin/manage/dm-default", false);
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
    run_link,
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
    run_scope,
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
    run_principal,
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
    run_policy,
};
const struct command cmd_dm_default = {
    "dm-default",
    "choose the instance a person with several talks to",
    "Usage: bellhop dm-default set --instance I [--tenant T] --platform P --user U\n"
    "       bellhop dm-default list [--tenant T] [--instance I] [--json]\n\n"
    "The person must be linked to the instance.  Without a choice the oldest link counts.\n",
    run_dm_default,
};
