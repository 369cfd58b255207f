/* agents.c - bellhop agent add, list, show, set, remove: agents that are kept in the store.
 * cli/agent.c has `bellhop agent -- PROGRAM`, the command these are verbs of. */
#include <stdio.h>
#include <string.h>
#include "base/file.h"
#include "base/jw.h"
#include "cli/agents.h"

/* ---- the entry that the options describe ---- */

static const struct {
    enum { WORD, LIST, FLAG, SECRET } kind;
    const char *option, *key;
} keys[] = {
    {WORD, "--substrate", "substrate"},
    {WORD, "--name", "name"},
    {WORD, "--instance", "instance"},
    {WORD, "--url", "url"},
    {WORD, "--wake-url", "wake_url"},
    {WORD, "--status-url", "status_url"},
    {SECRET, "--authorization", "authorization"},
    {SECRET, "--secret", "secret"},
    {WORD, "--target", "target"},
    {WORD, "--socket", "socket"},
    {WORD, "--dir", "dir"},
    {WORD, "--path", "path"},
    {WORD, "--timeout", "timeout"},
    {WORD, "--platform", "platform"},
    {WORD, "--bot", "bot"},
    {WORD, "--model", "model"},
    {SECRET, "--key", "key"},
    {WORD, "--history", "history"},
    {WORD, "--permission-timeout", "permission_timeout"},
    {WORD, "--sessions", "process_sessions"},
    {WORD, "--login", "login"},
    {LIST, "--session", "sessions"},
    {LIST, "--capability", "capabilities"},
    {FLAG, "--open", "open"},
    {FLAG, "--wake-on-deliver", "wake_on_deliver"},
    {FLAG, "--progress", "progress"},
    {FLAG, "--merge", "merge"},
    {FLAG, "--shared-groups", "shared_groups"},
};

/* Writes a secret; "@FILE" is the first line of a file, which no process list shows. */
static bool write_secret(struct jw *w, const char *key, const char *value)
{
    struct buf text = BUF_INIT;
    bool ok = true;

    if (*value != '@')
        buf_add_z(&text, value);
    else if (!file_read(value + 1, 8192, &text))
        ok = cli_failed("cannot read %s", value + 1) == CLI_DONE;
    if (ok)
        jw_kstr(w, key, str_trim(buf_str(&text)));
    buf_wipe(&text);
    return ok;
}

static void write_list(const struct cli_job *j, struct jw *w, const char *option, const char *key)
{
    jw_karr(w, key);
    for (size_t i = 0; i < j->n_given; i++)
        if (strcmp(j->given[i].option->name, option) == 0 && *j->given[i].value != '\0')
            jw_str(w, str_of(j->given[i].value));
    jw_end_arr(w);
}

static bool write_entry(const struct cli_job *j, struct str id, struct buf *out)
{
    struct jw w = jw_begin(out);
    bool ok = true;

    jw_obj(&w);
    jw_kstr_opt(&w, "id", id);
    for (size_t i = 0; ok && i < sizeof keys / sizeof keys[0]; i++) {
        const char *value = cli_value(j, keys[i].option);
        if (value == NULL)
            continue;
        if (keys[i].kind == SECRET)
            ok = write_secret(&w, keys[i].key, value);
        else if (keys[i].kind == LIST)
            write_list(j, &w, keys[i].option, keys[i].key);
        else if (keys[i].kind == FLAG)
            jw_kbool(&w, keys[i].key, true);
        else
            jw_kstr(&w, keys[i].key, str_of(value));
    }
    if (j->program != NULL && j->program[0] != NULL) {
        jw_karr(&w, "command");
        for (char **word = j->program; *word != NULL; word++)
            jw_str(&w, str_of(*word));
        jw_end_arr(&w);
    }
    for (size_t i = 0; i < j->n_given; i++)
        if (strcmp(j->given[i].option->name, "--unset") == 0)
            jw_kraw(&w, j->given[i].value, STR("null"));
    jw_end_obj(&w);
    return ok;
}

/* ---- the verbs ---- */

/* Prints how people reach a hosted agent that is not open. */
static void print_link(struct cli_job *j, const char *id)
{
    const char *platform = cli_value(j, "--platform"), *instance = cli_value(j, "--instance");

    if (platform == NULL || cli_flag(j, "--open") || strcmp(platform, "web") == 0)
        return;
    if (cli_op(j, "link",
               CLI_GIVEN({"tenant", str_of(cli_value(j, "--tenant"))},
                         {"instance", str_of(instance != NULL ? instance : id)},
                         {"platform", str_of(platform)},
                         {"bots", str_of(cli_value(j, "--bot"))})) == CLI_DONE) {
        fprintf(stderr,
                "To link yourself, send the bot this message within ten minutes: /link %.*s\n",
                STR_FMT(json_str(j->doc, "code")));
        cli_link_how(str_of(platform));
    }
}

int agent_add(struct cli_job *j)
{
    const char *id = j->args[0] != NULL ? j->args[0] : cli_value(j, "--id");
    struct buf entry = BUF_INIT;
    int rc = CLI_FAILED;

    if (id == NULL)
        return cli_misused(j, "name the agent: bellhop agent add ID --tenant T --substrate S");
    if (write_entry(j, str_of(id), &entry)) {
        rc = cli_op(j, "addAgent",
                    CLI_GIVEN({"entry", buf_str(&entry)},
                              {"tenant", str_of(cli_value(j, "--tenant"))}));
        rc = cli_show(j, rc);
    }
    if (rc == CLI_DONE && !j->json) {
        fprintf(stderr, "The agent %s is there.\n", id);
        print_link(j, id);
    }
    buf_wipe(&entry);
    return rc;
}

int agent_set(struct cli_job *j)
{
    struct buf entry = BUF_INIT;
    int rc = CLI_FAILED;

    if (write_entry(j, STR_NULL, &entry)) {
        rc = cli_op(j, "setAgent",
                    CLI_GIVEN({"id", str_of(j->args[0])}, {"entry", buf_str(&entry)},
                              {"tenant", str_of(cli_value(j, "--tenant"))}));
        rc = cli_show(j, rc);
    }
    if (rc == CLI_DONE && !j->json)
        fprintf(stderr, "The agent %s is changed.\n", j->args[0]);
    buf_wipe(&entry);
    return rc;
}

void agent_print(struct cli_job *j)
{
    struct json entry = json_get(j->doc, "entry");
    struct buf text = BUF_INIT;

    if (!json_is_object(entry))
        return; /* of add and set, which say it in a sentence */
    printf("source  %.*s\n", STR_FMT(json_str(j->doc, "source")));
    for (struct json_iter it = {0}; json_next(entry, &it);) {
        struct jw w = jw_begin(&text);
        jw_value(&w, it.value);
        struct str shown =
            json_type(it.value) == JSON_STRING ? json_as_str(it.value) : buf_str(&text);
        printf("%.*s  %.*s\n", STR_FMT(it.key), STR_FMT(shown));
        buf_reset(&text);
    }
    buf_done(&text);
}

const struct cli_column agent_list_columns[] = {
    {"TENANT", "tenant"},   {"AGENT", "agent_id"}, {"SUBSTRATE", "substrate"},
    {"SOURCE", "source"},   {"TARGET", "target"},  {"STATE", "state"},
    {"WAITING", "waiting"}, {"PARKED", "parked"},  {0},
};
