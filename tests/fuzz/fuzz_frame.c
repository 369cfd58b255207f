/* One line of the relay wire from a hostile gateway: must be judged without a crash, and whatever
 * is taken from it must be UTF-8 and fit into an answer. */
#include <stdlib.h>
#include "core/event.h"
#include "core/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct str s)
{
    if (!utf8_valid(s))
        abort();
}

static void check_answer(struct json_parser *p, struct str request_id)
{
    struct buf out = BUF_INIT;
    struct json doc;

    frame_write_result(&out, request_id, &(struct action_result){.error = request_id});
    if (!json_parse(p, str_make(out.p, out.n - 1), &doc) || memchr(out.p, '\n', out.n - 1) != NULL)
        abort();
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_parser *p, *answers;
    struct frame f;

    if (p == NULL) {
        p = json_parser_new();
        answers = json_parser_new();
    }
    frame_read(p, str_make(data, size), &f);
    if (f.type == FRAME_MALFORMED && f.why == NULL)
        abort();
    const struct str all[] = {f.platform,           f.bot,
                              f.request_id,         f.session_key,
                              f.buffer_id,          f.action.op_name,
                              f.action.chat_id,     f.action.content,
                              f.action.reply_to,    f.action.message_id,
                              f.action.session_key, f.action.kind,
                              f.action.thread_id,   f.action.scope_id,
                              f.action.user_id,     f.action.platform,
                              f.action.bot};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        check(all[i]);
    delivery_id_in(str_make((const char *)data, size));
    if (f.type == FRAME_OUTBOUND)
        check_answer(answers, f.request_id);
    return 0;
}
