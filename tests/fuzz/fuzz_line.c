/* One webhook from a hostile LINE: every event must become an event that can be written, or be
 * refused. */
#include <stdlib.h>
#include "core/event.h"
#include "platform/line/inbound.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json_parser *parser, *again;
static struct line_out out;

static void check(struct json item)
{
    BUF_LOCAL bytes = BUF_INIT;
    struct json doc;

    if (line_normalize(item, STR("Ub"), &out) != WEBHOOK_EVENT)
        return;
    event_write(&bytes, &out.ev);
    if (!json_parse(again, buf_str(&bytes), &doc) || !line_is_id(out.ev.chat_id) ||
        out.ev.event_id.n == 0 ||
        (out.ev.text.n == 0 && out.ev.n_media == 0 && !out.ev.edit.deletes))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str body = str_make(data, size);
    struct json doc;

    if (parser == NULL) {
        parser = json_parser_new();
        again = json_parser_new();
    }
    line_signature_ok(STR("secret"), body, body);
    line_is_id(body);
    if (json_parse(parser, body, &doc))
        for (struct json_iter it = {0}; json_next(json_get(doc, "events"), &it);)
            check(it.value);
    return 0;
}
