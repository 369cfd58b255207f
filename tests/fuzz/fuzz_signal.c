/* One message from a hostile signal-cli, and one text of a hostile agent: the first must become an
 * event that can be written, or be refused; the second a text with ranges that lie inside of it. */
#include <stdlib.h>
#include "core/event.h"
#include "platform/signal/compose.h"
#include "platform/signal/normalize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json_parser *parser, *again;

static void check_message(struct str bytes)
{
    static const struct signal_in in = {.bot = STR("+15550001000"),
                                        .self = STR("11111111-1111-4111-8111-111111111111"),
                                        .reactions = true};
    static struct signal_out out;
    struct arena arena = ARENA_INIT;
    struct buf text = BUF_INIT;
    struct json doc;
    struct str author;
    int64_t at;

    if (json_parse(parser, bytes, &doc)) {
        enum signal_verdict v = signal_normalize(doc, &in, &arena, &out);
        if (v == SIGNAL_EVENT || v == SIGNAL_REFUSED) {
            event_write(&text, &out.ev);
            if (!json_parse(again, buf_str(&text), &doc) || out.ev.event_id.n == 0 ||
                out.ev.text.p == NULL || !signal_is_chat(out.ev.chat_id) ||
                !signal_read_id(out.ev.message_id, &at, &author) ||
                out.ev.n_media > EVENT_MAX_MEDIA ||
                (!out.own && (str_eq(out.ev.user_id, in.self) || str_eq(out.ev.user_id, in.bot))))
                abort();
        }
        if ((v == SIGNAL_IGNORED || v == SIGNAL_REFUSED) && out.why == NULL)
            abort();
    }
    buf_done(&text);
    arena_done(&arena);
}

static void check_text(struct str text)
{
    struct md m = MD_INIT;
    struct buf out = BUF_INIT;

    if (!utf8_valid(text))
        return;
    signal_text(&m, text);
    if (utf16_units(buf_str(&m.text)) != m.units || !utf8_valid(buf_str(&m.text)))
        abort();
    for (size_t i = 0; i < m.n; i++)
        if (m.entities[i].len == 0 || m.entities[i].off + m.entities[i].len > m.units ||
            m.entities[i].kind == MD_LINK || m.entities[i].kind == MD_QUOTE)
            abort();
    for (struct md_part part = {0}; md_next(&m, 64, &part);) {
        struct jw w = jw_begin(&out);
        if (part.len == 0 || part.len > 64)
            abort();
        jw_obj(&w);
        signal_write_text(&w, &m, &part);
        jw_end_obj(&w);
    }
    buf_done(&out);
    md_done(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str bytes = str_make(data, size);

    if (parser == NULL) {
        parser = json_parser_new();
        again = json_parser_new();
    }
    check_message(bytes);
    check_text(bytes);
    return 0;
}
