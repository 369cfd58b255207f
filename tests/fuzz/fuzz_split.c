/* A text of an agent, cut into messages: the first two bytes say how long they may be and how that
 * is counted.  No part is too long, and a text without fences loses nothing but white space. */
#include <stdlib.h>
#include "platform/split.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_visible(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] != ' ' && s.p[i] != '\n' && s.p[i] != '\r' && s.p[i] != '\t' && s.p[i] != '\v' &&
            s.p[i] != '\f')
            buf_add_c(out, s.p[i]);
}

static void check_whole(const struct split *s, struct str text)
{
    struct buf before = BUF_INIT, after = BUF_INIT;

    add_visible(&before, text);
    for (size_t i = 0; i < s->n; i++)
        add_visible(&after, split_part(s, i));
    if (!str_eq(buf_str(&before), buf_str(&after)))
        abort();
    buf_done(&before);
    buf_done(&after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct split s = SPLIT_INIT;
    struct split_limits lim = {0};
    struct str text;

    if (size < 2)
        return 0;
    text = str_make(data + 2, size - 2);
    lim.max = SPLIT_MIN_LIMIT + data[0] * 8u;
    lim.unit = data[1] & 1 ? SPLIT_UTF16 : SPLIT_CHARS;
    lim.max_bytes = data[1] & 2 ? 256 + data[0] * 16u : 0;
    split_within(&s, text, &lim);
    for (size_t i = 0; i < s.n; i++) {
        struct str part = split_part(&s, i);
        if (part.n == 0 || split_length(part, lim.unit) > lim.max ||
            (lim.max_bytes > 0 && part.n > lim.max_bytes))
            abort();
    }
    if (!str_contains(text, STR("```")) && !str_contains(text, STR("~~~")) && utf8_valid(text))
        check_whole(&s, text);
    split_done(&s);
    return 0;
}
