/* test.c - bellhop say, expect: a test of a gateway is the person, and sees what the gateway does.
 * Both talk to a server of `bellhop serve --ephemeral`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "cli/cli.h"
#include "testbots/testbots.h"

#define SOCKET "/admin.sock"
#define PATIENCE_MS 5000
#define POLL_MS 20

/* The control of a server is its admin socket; requests name the directory. */
static int find_server(struct cli_job *j)
{
    struct str control = str_of(cli_value(j, "--control"));

    if (control.p == NULL && (control = str_of(getenv("BELLHOP_CONTROL"))).n == 0)
        return cli_misused(j, "needs --control C, or BELLHOP_CONTROL in the environment: the "
                              "`control` that `bellhop serve --ephemeral` printed");
    if (str_ends(control, STR(SOCKET)))
        control.n -= sizeof SOCKET - 1;
    j->state_dir = arena_str(&j->arena, control).p;
    return CLI_DONE;
}

static int say(struct cli_job *j)
{
    const char *file = cli_value(j, "--event");
    struct buf event = BUF_INIT;
    struct json doc;
    int rc = find_server(j);

    if (rc == CLI_DONE && (file != NULL) == (j->n_args > 0))
        rc = cli_misused(j, "needs a TEXT or --event FILE, and not both");
    if (rc == CLI_DONE && file != NULL) {
        if (!cli_read_text(file, &event))
            rc = CLI_FAILED;
        else if (!json_parse(j->parser, buf_str(&event), &doc) || !json_is_object(doc))
            rc = cli_failed("%s holds no JSON object",
                            strcmp(file, "-") == 0 ? "standard input" : file);
        else
            j->extra[j->n_extra++] = (struct op_given){"event", str_trim(buf_str(&event))};
    }
    if (rc == CLI_DONE && (rc = cli_request(j)) == CLI_DONE)
        cli_print_json(j->doc);
    struct json delivered = json_get(j->doc, "delivered"); /* absent: it is judged later */
    if (rc == CLI_DONE && json_type(delivered) == JSON_ARRAY && json_count(delivered) == 0 &&
        json_str(j->doc, "consumed").p == NULL)
        fputs("Nobody receives it; \"refused\" says why.\n", stderr);
    buf_done(&event);
    return rc;
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Asks until something came.  The server hands a thing out with its answer and never waits, so a
 * caller that is interrupted loses nothing. */
static int expect(struct cli_job *j)
{
    int64_t patience_ms = cli_number(j, "--timeout", PATIENCE_MS),
            until_ms = now_ms() + patience_ms;
    int rc = find_server(j);

    if (rc != CLI_DONE)
        return rc;
    while ((rc = cli_request(j)) == CLI_DONE && json_count(j->doc) == 0) {
        if (now_ms() >= until_ms)
            return cli_failed("no %s came within %lld ms%s%s", j->args[0], (long long)patience_ms,
                              cli_value(j, "--match") != NULL ? " that matches " : "",
                              cli_value(j, "--match") != NULL ? cli_value(j, "--match") : "");
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000}, NULL);
    }
    if (rc == CLI_DONE)
        cli_print_json(j->doc);
    return rc;
}

const struct command cmd_say = {
    .name = "say",
    .summary = "write to a gateway under test, as a person",
    .help =
        "Usage: bellhop say --control C [--platform P] [--bot B] [--chat X] [--user U] TEXT\n"
        "       bellhop say --control C [...] --event FILE\n\n"
        "C is what `bellhop serve --ephemeral` printed as `control`; BELLHOP_CONTROL works too.\n"
        "The message takes the way of any message: routes, gate, mailbox.  By default the\n"
        "person user1 writes in the direct chat chat1, to the bot that the gateway named in its\n"
        "hello, else to the bot \"bot\" on discord.  Any platform may be named.\n\n"
        "--event FILE     sends an event as it is on the wire (docs/contract.md), or a whole\n"
        "                 inbound frame; \"-\" is standard input.  The other options replace\n"
        "                 its members.\n"
        "--unaddressed    the message neither mentions the bot nor replies to it\n"
        "--from-bot       the author is a bot\n\n"
        "Prints one JSON object: the ids, `delivered` (who gets the message), `refused` (who\n"
        "does not, and the reason of the gate), or `consumed` (a command to bellhop, as /link).\n",
    .verbs = (const struct cli_verb[]){{"", .args = "[text]", .op = "say", .run = say}, {0}},
    .options = (const struct cli_option[]){{"--control"},
                                           {"--platform", "platform"},
                                           {"--bot", "bot"},
                                           {"--chat", "chat"},
                                           {"--user", "user"},
                                           {"--event"},
                                           {"--unaddressed", "unaddressed", CLI_FLAG},
                                           {"--from-bot", "fromBot", CLI_FLAG},
                                           {0}},
};

const struct command cmd_expect = {
    .name = "expect",
    .summary = "wait for what a gateway under test does",
    .help =
        "Usage: bellhop expect --control C KIND [--match RE] [--timeout 5s]\n\n"
        "KIND is send, ack or sleep, or the op of any other action: edit, typing, send_media,\n"
        "prompt, react, thread_create, thread_rename, get_chat_info.\n\n"
        "Prints the oldest thing of that kind that was not printed before, as one JSON object;\n"
        "also what came before the command was started.  --match RE takes the first whose text,\n"
        "or whose JSON, matches; those it passes over stay.  Exit status 1: nothing came within\n"
        "the time.\n",
    .verbs = (const struct cli_verb[]){{"", .args = "kind", .op = "takeThing", .run = expect}, {0}},
    .options = (const struct cli_option[]){{"--control"},
                                           {"--match", "match"},
                                           {"--timeout", .kind = CLI_DURATION},
                                           {0}},
};
