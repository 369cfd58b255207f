/* What is said of a file by whoever sends or asks for it: a line each with its size, a Range, a
 * name, a type; then its first bytes.  A range lies within the file, a name and a type can stand in
 * a header, and saying them again changes nothing. */
#include <stdlib.h>
#include "base/buf.h"
#include "media/media.h"
#include "net/http_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void range(struct str asked, uint64_t size)
{
    uint64_t start = 0, n = 0;

    if (http_range_read(asked, size, &start, &n) == RANGE_PART &&
        (n == 0 || start >= size || n > size - start))
        abort();
}

static void is_harmless(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f)
            abort();
}

static void twice(void (*add)(struct buf *out, struct str s), struct str said)
{
    struct buf once = BUF_INIT, again = BUF_INIT;

    add(&once, said);
    is_harmless(buf_str(&once));
    add(&again, buf_str(&once));
    if (!str_eq(buf_str(&once), buf_str(&again)))
        abort();
    buf_done(&once);
    buf_done(&again);
}

static void disposition(struct str name)
{
    struct buf out = BUF_INIT;

    media_disposition_add(&out, name.n % 2 == 0, name);
    is_harmless(buf_str(&out));
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_make((const char *)data, size), line[4] = {0};
    uint64_t bytes = 0;

    for (int i = 0; i < 4; i++)
        if (!str_split(&rest, '\n', &line[i]))
            line[i] = STR("");
    (void)str_to_u64(line[0], &bytes);
    range(line[1], bytes);
    twice(media_name_add, line[2]);
    disposition(line[2]);
    twice(media_type_add, line[3]);
    struct str type = media_sniff(rest);
    if (type.p != NULL && !media_sniffs(type) && !str_eq(type, STR("text/html")))
        abort(); /* a page is known by its words, all others by their bytes */
    if (media_kind_of_type(line[3]) == NULL)
        abort();
    return 0;
}
