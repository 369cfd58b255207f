/* What people may write, and what a client may ask permission for: any JSON at all.  What the model
 * reads is one JSON object with texts in it, and holds no tag of the client's and no control
 * character. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "agent/channel_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool fact)
{
    if (!fact)
        abort();
}

/* No "<", maybe with a slash and blanks behind it, in front of the tag's name. */
static void has_no_tag(struct str text)
{
    for (; text.n > 0; text = str_skip(text, 1)) {
        struct str rest = str_skip(text, 1);
        if (text.p[0] != '<')
            continue;
        while (rest.n > 0 && (rest.p[0] == '/' || (unsigned char)rest.p[0] <= ' '))
            rest = str_skip(rest, 1);
        must(rest.n < 7 || strncasecmp(rest.p, "channel", 7) != 0);
    }
}

static void is_clean(struct str text, const char *allowed)
{
    for (size_t i = 0; i < text.n; i++)
        must((unsigned char)text.p[i] >= 0x20 || strchr(allowed, text.p[i]) != NULL);
    must(utf8_valid(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json_parser *parser = json_parser_new(), *reader = json_parser_new();
    BUF_LOCAL out = BUF_INIT, question = BUF_INIT, raw = BUF_INIT;
    struct json doc, written;

    channel_clean_text(&raw, str_make(data, n));
    has_no_tag(buf_str(&raw));
    is_clean(buf_str(&raw), "\n\t");
    if (json_parse(parser, str_make(data, n), &doc)) {
        if (channel_write_event(&out, doc, STR("1"), (n & 1) != 0, (int64_t)n * 1000)) {
            must(json_parse(reader, buf_str(&out), &written));
            has_no_tag(json_str(written, "content"));
            struct json_iter it = {0};
            while (json_next(json_get(written, "meta"), &it)) {
                must(json_type(it.value) == JSON_STRING);
                is_clean(json_as_str(it.value), "");
                must(str_find(json_as_str(it.value), '"') < 0 &&
                     str_find(json_as_str(it.value), '<') < 0);
                for (size_t i = 0; i < it.key.n; i++)
                    must(isalnum((unsigned char)it.key.p[i]) || it.key.p[i] == '_');
            }
        }
        channel_write_question(&question, doc);
        is_clean(buf_str(&question), "\n\t");
        must(question.n < 6000);
    }
    json_parser_free(reader);
    json_parser_free(parser);
    return 0;
}
