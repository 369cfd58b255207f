/* A hostile service, and a careless operator.  The first line of the input is a pointer, a
 * condition and a template; what follows is a webhook.  A webhook must become an event that can be
 * written, or be refused; a request made of its values must be valid JSON, one URL and headers of
 * one line. */
#include <stdlib.h>
#include "base/jw.h"
#include "core/event.h"
#include "platform/hook/inbound.h"
#include "platform/hook/pointer.h"
#include "platform/hook/sign.h"
#include "platform/hook/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json_parser *parser, *inner, *again, *bodies;
static struct hook_out out;
static char *skips[] = {(char *)"/skip", (char *)"/type=edit", NULL};
static const struct hook_settings cfg = {.map = {.text = (char *)"/object/content/message",
                                                 .names = (char *)"/object/content/parameters",
                                                 .chat_id = (char *)"/chat",
                                                 .user_id = (char *)"/from/id",
                                                 .user_name = (char *)"/from/name",
                                                 .event_id = (char *)"/id",
                                                 .thread_id = (char *)"/thread",
                                                 .reply_to = (char *)"/re",
                                                 .skip_if = skips}};

static void must(bool held)
{
    if (!held)
        abort();
}

static void check_webhook(struct json doc, struct str body)
{
    BUF_LOCAL frame = BUF_INIT;
    struct json sent;

    if (hook_normalize(&cfg, STR("desk"), doc, body, inner, &out) != WEBHOOK_EVENT) {
        must(out.why != NULL);
        return;
    }
    event_write(&frame, &out.ev);
    must(json_parse(again, buf_str(&frame), &sent));
    must(str_starts(out.ev.chat_id, STR("desk/")) && str_starts(out.ev.user_id, STR("desk/")));
    must(out.ev.text.n <= body.n + 64 * HOOK_MAX_NAME);
    must(out.ev.event_id.n > 0 && out.ev.text.n > 0 && out.ev.chat_id.n <= HOOK_MAX_ID + 5);
}

static struct str header(const void *ctx, const char *name)
{
    return *(const struct str *)ctx;
}

static void check_template(struct str text, struct str value)
{
    BUF_LOCAL made = BUF_INIT, tree = BUF_INIT;
    struct template_values v = {.header = header, .ctx = &value};
    struct jw w = jw_begin(&tree);
    struct json body, sent;
    unsigned used = 0;
    char why[256];

    for (size_t i = 0; i < TEMPLATE_NAMES; i++)
        v.of[i] = value;
    if (template_check(text, ~0u, &used, why)) {
        template_plain(text, &v, &made);
        buf_reset(&made);
        if (template_header(text, &v, &made))
            must(str_until_control(buf_str(&made)) == made.n);
        buf_reset(&made);
        if (str_until_control(text) == text.n && template_url(text, &v, &made))
            must(str_until_control(buf_str(&made)) == made.n);
    }
    jw_obj(&w);
    jw_kstr(&w, "a", text);
    jw_kstr(&w, "b", STR("{text?}"));
    jw_end_obj(&w);
    must(json_parse(bodies, buf_str(&tree), &body));
    buf_reset(&made);
    if (template_check_json(body, ~0u, &used, why) && template_json(body, &v, &made))
        must(json_parse(again, buf_str(&made), &sent));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_make(data, size), line;
    struct json doc;

    if (parser == NULL) {
        parser = json_parser_new();
        inner = json_parser_new();
        again = json_parser_new();
        bodies = json_parser_new();
    }
    if (!str_split(&rest, '\n', &line))
        return 0;
    struct str body = rest.p != NULL ? rest : STR("");
    check_template(line, body);
    if (json_parse(parser, body, &doc)) {
        struct pointer_in in = {doc, inner};
        BUF_LOCAL found = BUF_INIT;
        check_webhook(doc, body);
        must(json_parse(parser, body, &doc));
        in.doc = doc;
        if (pointer_wrong(line) == NULL)
            pointer_text(&in, line, &found);
        if (condition_wrong(line) == NULL)
            condition_holds(&in, line);
    }
    struct hook_sign s = {.covers = (char *)"{header:X}{body}", .prefix = (char *)"v1,"};
    struct template_values v = {.header = header, .ctx = &line};
    hook_signature_ok(&s, STR("key"), &v, body, 0);
    s.encoding = HOOK_BASE64;
    hook_signature_ok(&s, STR("key"), &v, body, 0);
    return 0;
}
