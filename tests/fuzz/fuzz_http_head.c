/* A request's head, cut in two where the first byte says, beside http-parser's reading of it. */
#include "unit/net/http_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 16384 };

static enum http_head_end read_cut(struct http_head *h, const char *p, size_t n, size_t cut)
{
    enum http_head_end end;

    memset(h, 0, offsetof(struct http_head, fields));
    end = http_head_read(h, p, cut, LIMIT);
    return end == HEAD_MORE ? http_head_read(h, p, n, LIMIT) : end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_head whole, cut;
    enum http_head_end end, later;
    const char *p = (const char *)data + 1;

    if (size < 2)
        return 0;
    size--;
    end = read_cut(&whole, p, size, 0);
    later = read_cut(&cut, p, size, data[0] * size / 256);
    if (later != end &&
        (end != HEAD_BAD || later != HEAD_MORE || memchr(p + cut.at, '\n', size - cut.at) != NULL))
        abort(); /* only a line whose end has not come may be judged later */
    if (end == HEAD_BAD && (whole.fault.status < 400 || whole.fault.text == NULL))
        abort();
    if (end == HEAD_DONE && (cut.bytes != whole.bytes || cut.n_fields != whole.n_fields ||
                             oracle_differs(&whole, p, size) != NULL))
        abort();
    return 0;
}
