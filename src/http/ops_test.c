/* ops_test.c - `bellhop say`, `bellhop expect`: a test is the person, and sees what a gateway did.
 *
 * Only a server with test bots (`serve --ephemeral`) has these operations; testbots/testbots.h does
 * the work. */
#include <stdlib.h>
#include "base/arena.h"
#include "base/mem.h"
#include "base/regex.h"
#include "core/journal.h"
#include "testbots/testbots.h"
#include "http/op.h"
#include "relay/relay.h"

static bool has_bots(struct op_call *c)
{
    bool has = c->f->testbots != NULL;

    if (!has) /* this frees @c */
        op_error(c, 404, "not_ephemeral",
                 "The bots of this server are real, so people write to them in their apps. A test "
                 "may write to those of: bellhop serve --ephemeral");
    return has;
}

/* ---- say ---- */

struct say_answer { /* of op_keep(): names the event, until it is accepted */
    struct arena arena;
    struct str platform, bot, chat_id, user_id, message_id;
};

static void say_answer_drop(void *mine)
{
    struct say_answer *s = mine;

    arena_done(&s->arena);
    free(s);
}

static void write_verdicts(struct jw *w, const struct journal_record *rec, bool yes)
{
    jw_karr(w, yes ? "delivered" : "refused");
    for (size_t i = 0; i < rec->n_verdicts; i++) {
        const struct journal_verdict *v = &rec->verdicts[i];
        if ((v->fate != JOURNAL_NONE) != yes)
            continue;
        jw_obj(w);
        jw_kstr(w, "tenant", v->tenant);
        jw_kstr(w, "instance", v->instance);
        jw_kstr(w, "reason", v->reason);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

struct said_lookup { /* journal_each() looks for the decision about one message */
    const struct say_answer *s;
    struct jw *w;
};

static bool on_record(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    struct said_lookup *said = ctx;
    struct journal_query q = {.platform = said->s->platform, .message = said->s->message_id};

    (void)pos;
    if (rec->kind != JOURNAL_EVENT || !journal_matches(rec, &q))
        return true;
    jw_kstr_opt(said->w, "consumed", rec->note == JOURNAL_CONSUMED ? rec->words : STR_NULL);
    write_verdicts(said->w, rec, true);
    write_verdicts(said->w, rec, false);
    return false;
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct op_call *c = ctx;
    const struct say_answer *s = c->mine;
    struct jw w;

    if (err != BH_OK) {
        op_error(c, 503, bh_err_word(err), "The message was not taken: it may be said again.");
        return;
    }
    w = op_begin(c);
    jw_obj(&w);
    jw_kstr(&w, "platform", s->platform);
    jw_kstr(&w, "bot", s->bot);
    jw_kstr(&w, "chat_id", s->chat_id);
    jw_kstr(&w, "user_id", s->user_id);
    jw_kstr(&w, "message_id", s->message_id);
    journal_each(relay_journal(c->f->relay), on_record, &(struct said_lookup){s, &w});
    jw_end_obj(&w);
    op_end(c);
}

/* A message of the default person. */
static void write_default(struct op_call *c, struct event *ev)
{
    bool command = str_starts(ev->text, STR("/"));

    ev->message_type = command ? STR("command") : STR("text");
    ev->message_id = testbots_message_id(c->f->testbots);
    ev->chat_id = STR("chat1");
    ev->chat_type = STR("dm");
    ev->user_id = STR("user1");
}

static bool read_event(struct op_call *c, struct arena *arena, struct event *ret, char *ret_why)
{
    struct json given = op_value(c, "event")->json;
    const struct {
        const char *arg;
        struct str *to;
    } more[] = {{"platform", &ret->platform},
                {"bot", &ret->bot},
                {"chat", &ret->chat_id},
                {"user", &ret->user_id}};

    *ret = (struct event){.text = op_text(c, "text")};
    if (json_type(given) == JSON_ABSENT) {
        if (ret->text.p == NULL)
            return bh_why(ret_why, "a text or an event is missing");
        write_default(c, ret);
    } else if (ret->text.p != NULL) {
        return bh_why(ret_why, "a text and an event are two messages: say one of them");
    } else {
        struct json inside = json_get(given, "event"); /* a whole frame is fine too */
        if (!event_read(json_is_object(inside) ? inside : given, arena, ret, ret_why))
            return false;
    }
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (op_text(c, more[i].arg).p != NULL)
            *more[i].to = op_text(c, more[i].arg);
    if (json_type(given) == JSON_ABSENT)
        ret->user_name = ret->user_id;
    testbots_default(c->f->testbots, &ret->platform, &ret->bot);
    ret->mentions_bot = !op_flag(c, "unaddressed");
    ret->author_is_bot = op_flag(c, "fromBot");
    return true;
}

static void say(struct op_call *c)
{
    struct say_answer *s;
    struct event ev;
    char why[256];

    if (!has_bots(c))
        return;
    s = xcalloc(1, sizeof *s);
    op_keep(c, s, say_answer_drop);
    if (!read_event(c, &s->arena, &ev, why)) {
        op_error(c, 400, "malformed", "%s", why);
        return;
    }
    s->platform = arena_str(&s->arena, ev.platform);
    s->bot = arena_str(&s->arena, ev.bot);
    s->chat_id = ev.chat_id.p != NULL ? arena_str(&s->arena, ev.chat_id) : STR_NULL;
    s->user_id = ev.user_id.p != NULL ? arena_str(&s->arena, ev.user_id) : STR_NULL;
    s->message_id = ev.message_id.p != NULL ? arena_str(&s->arena, ev.message_id) : STR_NULL;
    if (!testbots_say(c->f->testbots, &ev, on_accepted, c, why))
        op_error(c, 400, "malformed", "%s", why);
}

/* ---- expect ---- */

static void take(struct op_call *c)
{
    struct str pattern = op_text(c, "match");
    struct regex *re = NULL;
    char why[256];

    if (!has_bots(c))
        return;
    if (pattern.p != NULL && (re = regex_new(pattern, why)) == NULL) {
        op_error(c, 400, "malformed", "match: %s", why);
        return;
    }
    op_begin(c);
    if (!testbots_take(c->f->testbots, op_text(c, "kind"), re, &c->out))
        buf_add_z(&c->out, "{}");
    op_end(c);
    regex_free(re);
}

const struct op ops_test[] = {
    {"say", "POST", "/admin/test/say", MAY_OPERATOR, say,
     "Write a message as a person, to a server with test bots.",
     .args =
         (const struct op_arg[]){
             {"text", IN_BODY, OP_TEXT, .what = "What the person writes."},
             {"event", IN_BODY, OP_OBJECT, .flags = OP_UNCHECKED,
              .what = "Instead of a text: an event as docs/contract.md has it."},
             {"platform", IN_BODY, OP_TEXT, .what = "Where; else the bot that a gateway named."},
             {"bot", IN_BODY, OP_TEXT, .what = "To which bot of the platform."},
             {"chat", IN_BODY, OP_TEXT, .what = "In which chat.", .initial = "\"chat1\""},
             {"user", IN_BODY, OP_TEXT, .what = "Who.", .initial = "\"user1\""},
             {"unaddressed", IN_BODY, OP_BOOL, .what = "The message does not mention the bot."},
             {"fromBot", IN_BODY, OP_BOOL, .what = "The author is a bot."},
             {0}},
     .answer = "{platform: text, bot: text, chat_id: text|null, user_id: text|null, message_id: "
               "text|null, consumed?: text, delivered?: [{tenant: text, instance: text, reason: "
               "text}], refused?: [object]}",
     .answer_what = "Who receives it, and who does not; `consumed`: a command to bellhop itself.",
     .errors = "malformed (400), not_ephemeral (404), busy (503), unavailable (503)"},
    {"takeThing", "POST", "/admin/test/take", MAY_OPERATOR, take,
     "Take the oldest thing of a kind that gateways did, from a server with test bots.",
     .args = (const struct op_arg[]){{"kind", IN_BODY, OP_TEXT, .flags = OP_REQUIRED,
                                      .one_of = testbots_kinds, .what = "An action, ack or sleep."},
                                     {"match", IN_BODY, OP_TEXT, .max = REGEX_MAX_PATTERN,
                                      .what = "A regular expression, found in its text or JSON."},
                                     {0}},
     .answer = "object",
     .answer_what = "What came; it is not given out again. Empty: nothing has come.",
     .errors = "malformed (400), not_ephemeral (404)"},
    {0},
};
