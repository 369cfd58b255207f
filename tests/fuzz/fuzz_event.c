/* An event that a tool made up (`bellhop say --event`): read without a crash, and what is read is
 * written as JSON that reads as the same event again. */
#include <stdlib.h>
#include "base/arena.h"
#include "core/event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_parser *p, *again;
    struct arena arena = ARENA_INIT;
    struct buf once = BUF_INIT, twice = BUF_INIT;
    struct event ev;
    struct json doc;
    char why[256];

    if (p == NULL) {
        p = json_parser_new();
        again = json_parser_new();
    }
    if (json_parse(p, str_make(data, size), &doc) && event_read(doc, &arena, &ev, why)) {
        event_write(&once, &ev);
        if (!json_parse(again, buf_str(&once), &doc) || !event_read(doc, &arena, &ev, why))
            abort();
        event_write(&twice, &ev);
        if (!str_eq(buf_str(&once), buf_str(&twice)))
            abort();
    }
    buf_done(&once);
    buf_done(&twice);
    arena_done(&arena);
    return 0;
}
