/* One update from a hostile Telegram, and one answer from a hostile agent: the first must become an
 * event that can be written, the second a text with entities that lie inside of it. */
#include <stdlib.h>
#include "core/event.h"
#include "platform/markdown.h"
#include "platform/telegram/normalize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_update(struct str bytes)
{
    static struct json_parser *p, *again;
    struct tg_me me = {.id = 777, .username = "my_bot"};
    struct arena arena = ARENA_INIT;
    struct buf out = BUF_INIT;
    struct json update, doc;
    struct event ev;
    const char *why = NULL;
    int64_t from, to;

    if (p == NULL) {
        p = json_parser_new();
        again = json_parser_new();
    }
    if (!json_parse(p, bytes, &update))
        return;
    tg_migration(update, &from, &to);
    if (tg_normalize(update, &me, STR("my_bot"), &arena, &ev, &why)) {
        event_write(&out, &ev);
        if (!json_parse(again, buf_str(&out), &doc) || ev.event_id.n == 0 || ev.text.n == 0)
            abort();
    } else if (why == NULL) {
        abort();
    }
    if (tg_normalize_reaction(update, STR("my_bot"), 4, &arena, &ev)) {
        buf_reset(&out);
        event_write(&out, &ev);
        if (!json_parse(again, buf_str(&out), &doc) || ev.event_id.n == 0 || ev.text.n == 0)
            abort();
    }
    buf_done(&out);
    arena_done(&arena);
}

static void check_markdown(struct str text)
{
    struct md m = MD_INIT;

    if (!utf8_valid(text))
        return;
    md_parse(&m, text);
    for (size_t i = 0; i < m.n; i++)
        if (m.entities[i].len == 0 || m.entities[i].off + m.entities[i].len > m.units)
            abort();
    for (struct md_part part = {0}; md_next(&m, 64, &part);)
        if (part.len == 0 || part.len > 64 ||
            utf16_units(str_make(m.text.p + part.from, part.to - part.from)) != part.len)
            abort();
    md_done(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_update(str_make(data, size));
    check_markdown(str_make(data, size));
    return 0;
}
