/* Half of an answer, whose Markdown is completed: what is added is short, the text without a cursor
 * keeps its beginning, and a fence that was closed stays closed.  What may be appended at once is a
 * beginning of it. */
#include <stdlib.h>
#include <string.h>
#include "platform/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_make(data, size), body = action_without_cursor(text);
    struct buf once = BUF_INIT;
    size_t same = 0;

    if (body.n > text.n || body.p != text.p)
        abort();
    size_t settled = stream_settled(text);
    if (settled > body.n || body.n - settled > 2001)
        abort();
    stream_mend(text, &once);
    if (once.n > text.n + 64)
        abort();
    while (same < once.n && same < body.n && once.p[same] == body.p[same])
        same++;
    /* Only the last line may lose something (a link, a table row, marks), and white space. */
    for (int line = 0; line < 2; line++) {
        while (body.n > 0 && memchr(" \t\r\n", body.p[body.n - 1], 4) != NULL)
            body.n--;
        const char *nl = body.n > 0 ? memrchr(body.p, '\n', body.n) : NULL;
        if (line == 0)
            body.n = nl != NULL ? (size_t)(nl - body.p) : 0;
    }
    if (same < body.n)
        abort();
    buf_done(&once);
    return 0;
}
