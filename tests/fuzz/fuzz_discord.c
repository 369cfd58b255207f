/* What Discord's gateway sends, from a hostile one: any event must be taken without a crash by the
 * cache and the normalizer, and what becomes an event must be a frame of valid JSON. */
#include <stdlib.h>
#include "base/json.h"
#include "platform/discord/cache.h"
#include "platform/discord/normalize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_frame(const struct event *ev)
{
    static struct json_parser *p;
    struct buf out = BUF_INIT;
    struct json doc;

    if (p == NULL)
        p = json_parser_new();
    event_write_frame(&out, ev, &(struct hash128){.lo = 1});
    if (!json_parse(p, str_make(out.p, out.n - 1), &doc) ||
        memchr(out.p, '\n', out.n - 1) != NULL ||
        json_as_str(json_get(json_get(doc, "event"), "text")).p == NULL)
        abort();
    buf_done(&out);
}

static void normalize_one(struct dcache *c, struct json message, bool lenient)
{
    static struct discord_normalize_out out;
    struct discord_normalize_in in = {.message = message,
                                      .cache = c,
                                      .bot = STR("app1"),
                                      .bot_user = STR("9"),
                                      .lenient = lenient};
    enum discord_verdict v = discord_normalize(&in, &out);

    if (v == DISCORD_EVENT)
        check_frame(&out.ev);
    if (v == DISCORD_IGNORED && out.why == NULL)
        abort();
    if (lenient && (v == DISCORD_NEED_GUILD || v == DISCORD_NEED_CHANNEL))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_parser *p;
    static struct dcache *c;
    struct json doc;

    if (p == NULL)
        p = json_parser_new();
    if (c == NULL) {
        c = dcache_new(&(struct dcache_limits){4, 16, 16, 16});
        dcache_set_bot(c, 9);
    }
    if (!json_parse(p, str_make(data, size), &doc))
        return 0;
    struct json d = json_get(doc, "d");
    if (!dcache_dispatch(c, json_str(doc, "t"), d)) {
        normalize_one(c, d, false);
        normalize_one(c, d, true);
        normalize_one(c, doc, true);
    }
    dcache_can_view(c, json_snowflake(d, "channel_id"),
                    json_snowflake(json_get(d, "author"), "id"));
    return 0;
}
