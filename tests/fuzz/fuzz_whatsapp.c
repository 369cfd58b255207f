/* One webhook from a hostile Meta, and one text of a hostile agent: every message of the first must
 * become an event that can be written, or be refused; the second must stay valid UTF-8. */
#include <stdlib.h>
#include "core/event.h"
#include "platform/whatsapp/compose.h"
#include "platform/whatsapp/normalize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json_parser *parser, *again;
static const struct wa_in in = {.bot = STR("106540352242922"), .reactions = true};

static void check_message(const struct wa_item *it, struct arena *arena)
{
    struct buf bytes = BUF_INIT;
    struct wa_out out;
    struct json doc;

    enum wa_verdict v = wa_normalize(it, &in, arena, &out);
    if (v == WA_EVENT || v == WA_REFUSED) {
        event_write(&bytes, &out.ev);
        if (!json_parse(again, buf_str(&bytes), &doc) || out.ev.event_id.n == 0 ||
            !str_eq(out.ev.user_id, out.ev.chat_id) || out.ev.route_key.n == 0 ||
            (!wa_is_bsuid(out.ev.chat_id) && !wa_is_number(out.ev.chat_id)) ||
            (v == WA_EVENT && out.ev.text.p == NULL))
            abort();
    }
    if (v == WA_IGNORED && out.why == NULL)
        abort();
    buf_done(&bytes);
}

static void check_webhook(struct str bytes)
{
    struct arena arena = ARENA_INIT;
    struct wa_status s;
    struct wa_new_id m;
    struct wa_item it;
    struct json doc;

    if (json_parse(parser, bytes, &doc)) {
        wa_is_webhook(doc);
        for (struct wa_walk walk = {.body = doc}; wa_next(&walk, &it);) {
            check_message(&it, &arena);
            if (wa_read_status(it.thing, &s) && !wa_is_wamid(s.id))
                abort();
            if (wa_read_new_id(it.thing, &m) && str_eq(m.from, m.to))
                abort();
        }
    }
    arena_done(&arena);
}

static void check_text(struct str text)
{
    struct buf out = BUF_INIT;

    wa_text_add(&out, text);
    if ((utf8_valid(text) && !utf8_valid(buf_str(&out))) || out.n > 2 * text.n + 16)
        abort();
    buf_reset(&out);
    wa_parameter_add(&out, text);
    if (utf8_valid(text) &&
        (!utf8_valid(buf_str(&out)) || utf16_units(buf_str(&out)) > WA_TEMPLATE))
        abort();
    wa_signature_ok(STR("secret"), text, text);
    wa_is_own_url(text, STR("https://graph.facebook.com"));
    wa_files_of(text);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (parser == NULL) {
        parser = json_parser_new();
        again = json_parser_new();
    }
    check_webhook(str_make(data, size));
    check_text(str_make(data, size));
    return 0;
}
