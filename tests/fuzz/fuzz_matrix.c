/* The events of a hostile homeserver, as one event, as a transaction or as a sync, and one text of
 * a hostile agent: every event must become an event that can be written, or be refused; what is
 * written for a room must be valid. */
#include <stdlib.h>
#include "base/jw.h"
#include "core/event.h"
#include "platform/matrix/normalize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json_parser *parser, *again;

static bool is_own(void *ctx, struct str id)
{
    return id.n % 2 == 0;
}

static void check_event(struct json event, struct arena *arena)
{
    static const struct mx_self self[] = {{STR("@desk:example.org"), STR("Desk")},
                                          {STR("@desk_t.i:example.org"), STR_NULL}};
    const struct mx_in in = {.bot = self[0].id,
                             .server = STR("example.org"),
                             .self = self,
                             .n_self = 2,
                             .room = STR("!r:example.org"),
                             .reactions = true,
                             .is_own = is_own};
    struct buf bytes = BUF_INIT;
    struct mx_state s;
    struct mx_out out;
    struct json doc;

    enum mx_verdict v = mx_normalize(event, &in, arena, &out);
    if (v == MX_EVENT) {
        event_write(&bytes, &out.ev);
        if (!json_parse(again, buf_str(&bytes), &doc) || !mx_is_event(out.ev.event_id) ||
            !mx_is_event(out.ev.message_id) || !mx_is_user(out.ev.user_id) ||
            out.ev.text.p == NULL || out.addressed > 2 ||
            (out.ev.mentions_bot && out.addressed == 2))
            abort();
    }
    if (v == MX_IGNORED && out.why == NULL)
        abort();
    if (mx_state_read(event, &s) && s.fact == MX_MEMBER && !mx_is_user(s.user))
        abort();
    buf_done(&bytes);
}

static void check_rooms(struct json doc, struct arena *arena)
{
    check_event(doc, arena);
    for (struct json_iter it = {0}; json_next(json_get(doc, "events"), &it);)
        check_event(it.value, arena);
    for (struct json_iter it = {0}; json_next(json_get(json_get(doc, "rooms"), "join"), &it);) {
        mx_is_room(it.key);
        struct json events = json_get(json_get(it.value, "timeline"), "events");
        for (struct json_iter e = {0}; json_next(events, &e);)
            check_event(e.value, arena);
    }
}

static void check_text(struct str text)
{
    struct buf out = BUF_INIT, more = BUF_INIT;
    struct jw w = jw_begin(&out);
    struct str server, id;
    struct json doc;

    jw_obj(&w);
    mx_write_mentions(&w, text, STR("@ann:example.org\x1f"));
    jw_end_obj(&w);
    if (!json_parse(again, buf_str(&out), &doc))
        abort();
    struct json users = json_get(json_get(doc, "m.mentions"), "user_ids");
    for (struct json_iter it = {0}; json_next(users, &it);)
        if (!mx_is_user(json_as_str(it.value)))
            abort();
    buf_reset(&out);
    mx_clean(&out, text);
    if ((utf8_valid(text) && !utf8_valid(buf_str(&out))) || out.n > text.n)
        abort();
    mx_has_markup(text);
    if (mx_media_split(text, &server, &id) && (server.n == 0 || id.n == 0))
        abort();
    buf_reset(&out);
    if (mx_virtual_read(text, STR("@desk:example.org"), STR_NULL, &out, &more)) {
        struct buf back = BUF_INIT;
        mx_virtual_write(&back, STR("@desk:example.org"), STR_NULL, buf_str(&out), buf_str(&more));
        if (!str_eq(buf_str(&back), text))
            abort();
        buf_done(&back);
    }
    buf_done(&out);
    buf_done(&more);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = ARENA_INIT;
    struct json doc;

    if (parser == NULL) {
        parser = json_parser_new();
        again = json_parser_new();
    }
    if (json_parse(parser, str_make(data, size), &doc))
        check_rooms(doc, &arena);
    check_text(str_make(data, size));
    arena_done(&arena);
    return 0;
}
