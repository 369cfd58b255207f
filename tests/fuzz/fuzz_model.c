/* What a model's server may answer: any bytes, in any pieces.  The first byte chooses the interface
 * and the size of the pieces.  An answer ends at most once, nothing is said after its end, and the
 * pieces make no difference. */
#include <stdlib.h>
#include "agent/model_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct heard {
    struct buf all;
    unsigned ends;
};

static void on_said(void *ctx, enum model_said what, struct str text)
{
    struct heard *h = ctx;

    if (h->ends > 0)
        abort();
    h->ends += what == MODEL_DONE || what == MODEL_CUT || what == MODEL_FAILED;
    buf_add_c(&h->all, (char)('0' + what));
    buf_add_str(&h->all, text);
}

static void read_all(struct heard *h, enum model_api api, struct str bytes, size_t piece)
{
    struct json_parser *parser = json_parser_new();
    struct model_reader r;

    model_reader_init(&r, api, parser, on_said, h);
    while (bytes.n > 0) {
        size_t n = bytes.n < piece ? bytes.n : piece;
        if (!model_read(&r, str_make(bytes.p, n)))
            break;
        bytes = str_skip(bytes, n);
    }
    model_read_end(&r);
    model_reader_done(&r);
    model_error(parser, bytes);
    json_parser_free(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct heard whole = {0}, pieces = {0};

    if (size < 1)
        return 0;
    enum model_api api = data[0] & 1 ? MODEL_CHAT : MODEL_RESPONSES;
    read_all(&whole, api, str_make(data + 1, size - 1), size);
    read_all(&pieces, api, str_make(data + 1, size - 1), 1 + (data[0] >> 1) % 16);
    if (!str_eq(buf_str(&whole.all), buf_str(&pieces.all)))
        abort();
    buf_done(&whole.all);
    buf_done(&pieces.all);
    return 0;
}
