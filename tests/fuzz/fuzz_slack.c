/* One request from a hostile Slack, and one text of a hostile agent: the first must become an event
 * that can be written, or be refused; of the second nobody may be pinged. */
#include <stdlib.h>
#include "core/event.h"
#include "edge/form.h"
#include "platform/slack/normalize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json_parser *parser, *again;
static const struct slack_in in = {.bot = STR("A1"),
                                   .bot_user = STR("UBOT"),
                                   .bot_id = STR("BBOT"),
                                   .reactions = true};

static void check_event(const struct event *ev)
{
    struct buf bytes = BUF_INIT;
    struct json doc;

    event_write(&bytes, ev);
    if (!json_parse(again, buf_str(&bytes), &doc) || ev->chat_id.n == 0 || ev->scope_id.n == 0 ||
        ev->route_key.n == 0)
        abort();
    if (ev->user_id.n == 0 &&
        !ev->edit.deletes) /* Slack need not name the author of what it deletes */
        abort();
    buf_done(&bytes);
}

static void check_request(struct str bytes)
{
    struct arena arena = ARENA_INIT;
    struct slack_out out = {0};
    struct slack_press press;
    struct form form = {0};
    struct json doc;

    if (json_parse(parser, bytes, &doc)) {
        if (slack_normalize(doc, &in, &arena, &out) == SLACK_EVENT) {
            check_event(&out.ev);
            if (out.ev.event_id.n == 0 || !slack_is_chat(out.ev.chat_id))
                abort();
        }
        if (slack_normalize_press(doc, &in, &arena, &press))
            check_event(&press.ev);
        if (slack_normalize_other(doc, &in, &arena, &out))
            check_event(&out.ev);
    }
    if (form_parse(&form, bytes) &&
        slack_normalize_command(&form, &in, &arena, &out) == SLACK_EVENT)
        check_event(&out.ev);
    form_done(&form);
    slack_out_done(&out);
    arena_done(&arena);
}

static void check_text(struct str text)
{
    struct buf safe = BUF_INIT, plain = BUF_INIT;
    struct arena arena = ARENA_INIT;
    struct str s = slack_neutralize(&safe, text);

    for (size_t i = 0; i + 1 < s.n; i++)
        if (s.p[i] == '<' && (s.p[i + 1] == '@' || s.p[i + 1] == '!'))
            abort();
    slack_escape(&plain, text, 1000);
    if (str_find(buf_str(&plain), '<') >= 0)
        abort();
    slack_text_in(&arena, text, STR("UBOT"));
    slack_is_own_url(text, STR("https://slack.com/api"));
    slack_emoji_name(text);
    arena_done(&arena);
    buf_done(&safe);
    buf_done(&plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (parser == NULL) {
        parser = json_parser_new();
        again = json_parser_new();
    }
    check_request(str_make(data, size));
    check_text(str_make(data, size));
    return 0;
}
