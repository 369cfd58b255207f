/* The wire form of events, buffer ids and deduplication keys. */
#include "core/vectors.h"
#include "base/rand.h"
#include "core/event.h"

struct fixture {
    struct json_parser *p;
    struct buf out;
    struct arena arena;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->p = json_parser_new();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    json_parser_free(f->p);
    buf_done(&f->out);
    arena_done(&f->arena);
    free(f);
    return 0;
}

static const struct event_media full_media[] = {
    {.url = STR("https://cdn.example/a.png"),
     .kind = STR("image"),
     .type = STR("image/png"),
     .name = STR("a.png"),
     .size = 9},
    {.url = STR("https://evil.example/relay/media/x")}, /* would get the gateway's bearer */
    {.id = STR("0123456789abcdef0123456789abcdef"), .kind = STR("voice")},
};

static const struct event_said full_context[] = {
    {STR("who is in?"), STR("m8"), STR("7"), STR("Bob")},
    {STR("\"me\""), STR("m9"), STR("8"), STR_NULL},
};

static const struct event full = {
    .platform = STR("discord"),
    .bot = STR("app1"),
    .route_key = STR("route-is-private"),
    .event_id = STR("event-id-is-private"),
    .text = STR("hello"),
    .message_type = STR("photo"),
    .message_id = STR("m1"),
    .reply_to_message_id = STR("m0"),
    .media = full_media,
    .n_media = 3,
    .reply_to = {.text = STR("quoted"), .author = STR("bob"), .is_own = true, .set = true},
    .press = {STR("0a1b2c3d"), STR("once"), STR("Allow once"), STR("m7")},
    .context = full_context,
    .n_context = 2,
    .context_error = true,
    .wants_context = true,
    .prospective_thread_id = STR("600"),
    .auto_thread_name = STR("a plan"),
    .only_tenant = STR("tenant-is-private"),
    .only_instance = STR("instance-is-private"),
    .chat_id = STR("500"),
    .chat_type = STR("thread"),
    .chat_name = STR("general"),
    .chat_topic = STR("all and nothing"),
    .user_id = STR("42"),
    .user_name = STR("Ann"),
    .user_id_alt = STR("42-alt"),
    .chat_id_alt = STR("500-alt"),
    .user_display_name = STR("Ann B"),
    .user_handle = STR("@ann"),
    .thread_id = STR("500"),
    .parent_chat_id = STR("100"),
    .scope_id = STR("77"),
    .author_is_bot = true,
    .mentions_bot = true,
    .replies_to_bot = true,
};

/* Written and read back. */
static struct json written(struct fixture *f, const struct event *ev)
{
    struct json doc;

    buf_reset(&f->out);
    event_write(&f->out, ev);
    assert_false(buf_failed(&f->out));
    if (!json_parse(f->p, buf_str(&f->out), &doc))
        fail_msg("%s: %.*s", json_error(f->p), STR_FMT(buf_str(&f->out)));
    return doc;
}

static void a_full_event_is_written_byte_for_byte_like_this(void **state)
{
    struct fixture *f = *state;

    event_write_frame(&f->out, &full, &(struct hash128){.lo = 33});
    assert_same(
        buf_str(&f->out),
        STR("{\"type\":\"inbound\",\"bufferId\":\"b00000000000000000000000011\",\"event\":{"
            "\"text\":\"hello\","
            "\"message_type\":\"photo\",\"message_id\":\"m1\",\"reply_to_message_id\":\"m0\","
            "\"media_urls\":[\"https://cdn.example/a.png\","
            "\"bellhop:media/0123456789abcdef0123456789abcdef\"],"
            "\"media_types\":[\"image/png\",\"application/octet-stream\"],"
            "\"media\":[{\"kind\":\"image\",\"mime\":\"image/png\",\"size\":9,"
            "\"filename\":\"a.png\"},"
            "{\"kind\":\"voice\",\"mime\":\"application/octet-stream\"}],"
            "\"reply_to\":{\"is_own\":true,\"text\":\"quoted\",\"author\":\"bob\"},"
            "\"prompt_response\":{\"prompt_id\":\"0a1b2c3d\",\"option_id\":\"once\","
            "\"label\":\"Allow once\",\"prompt_message_id\":\"m7\"},"
            "\"context\":[{\"text\":\"who is in?\",\"message_id\":\"m8\",\"source\":{"
            "\"platform\":\"discord\",\"chat_id\":\"500\",\"chat_type\":\"thread\","
            "\"user_id\":\"7\",\"user_name\":\"Bob\"}},"
            "{\"text\":\"\\\"me\\\"\",\"message_id\":\"m9\",\"source\":{"
            "\"platform\":\"discord\",\"chat_id\":\"500\",\"chat_type\":\"thread\","
            "\"user_id\":\"8\",\"user_name\":null}}],\"context_error\":true,"
            "\"bot_id\":\"app1\",\"source\":{\"platform\":\"discord\",\"chat_id\":\"500\","
            "\"chat_type\":\"thread\",\"chat_name\":\"general\",\"user_id\":\"42\","
            "\"user_name\":\"Ann\",\"thread_id\":\"500\",\"chat_topic\":\"all and nothing\","
            "\"user_id_alt\":\"42-alt\",\"chat_id_alt\":\"500-alt\",\"guild_id\":\"77\","
            "\"scope_id\":\"77\",\"parent_chat_id\":\"100\",\"message_id\":\"m1\","
            "\"user_display_name\":\"Ann B\",\"user_handle\":\"@ann\","
            "\"prospective_thread_id\":\"600\",\"auto_thread_created\":true,"
            "\"auto_thread_initial_name\":\"a plan\"}}}\n"));
}

static void add_url(void *ctx, struct str id, struct buf *out)
{
    ++*(int *)ctx;
    buf_printf(out, "https://here/%.4s", id.p);
}

static void addresses_are_put_where_ours_stood_and_nowhere_else(void **state)
{
    struct fixture *f = *state;
    struct event ev = {.text = STR("say \"bellhop:media/x\" and \\\"bellhop:media/y\""),
                       .media = full_media,
                       .n_media = 3};
    struct buf out = BUF_INIT;
    int calls = 0;
    struct json doc;

    event_write_frame(&f->out, &ev, NULL);
    event_fill_media(&out, buf_str(&f->out), add_url, &calls);
    assert_int_equal(calls, 1);
    assert_true(json_parse(f->p, buf_str(&out), &doc));
    doc = json_get(doc, "event");
    assert_same(json_str(doc, "text"), ev.text);
    assert_true(str_contains(buf_str(&out), STR("\"https://here/0123\"]")));
    buf_done(&out);
}

/* A signed address of a file is worth having: whoever names another's file in a text, a caption or
 * an address gets none. */
static void what_people_write_is_never_a_place(void **state)
{
    struct fixture *f = *state;
    const struct event_media media[] = {
        {.url = STR("https://x/\"],\"bellhop:media/a\",\""), .caption = STR("bellhop:media/b")},
        {.url = STR("https://x/\\"), .name = STR("bellhop:media/c")},
        {.id = STR("0123")},
    };
    struct event ev = {.text = STR("bellhop:media/d"),
                       .chat_name = STR(",\"media_urls\":[\"bellhop:media/e\"]"),
                       .user_name = STR("media_urls"),
                       .media = media,
                       .n_media = 3};
    struct buf out = BUF_INIT;
    int calls = 0;
    struct json doc;

    event_write_frame(&f->out, &ev, NULL);
    event_fill_media(&out, buf_str(&f->out), add_url, &calls);
    assert_int_equal(calls, 1);
    assert_true(json_parse(f->p, buf_str(&out), &doc));
    doc = json_get(doc, "event");
    assert_same(json_str(doc, "text"), ev.text);
    struct json_iter it = {0};
    for (int i = 0; i < 3; i++)
        assert_true(json_next(json_get(doc, "media_urls"), &it));
    assert_same(json_as_str(it.value), STR("https://here/0123"));
    buf_reset(&out);
    event_fill_media(&out, STR("{\"type\":\"x\",\"media_urls\":[\"bellhop:media/0"), add_url,
                     &calls);
    assert_same(buf_str(&out), STR("{\"type\":\"x\",\"media_urls\":[\"bellhop:media/0"));
    assert_int_equal(calls, 1);
    buf_done(&out);
}

static void an_event_can_be_kept_whole(void **state)
{
    struct fixture *f = *state;
    struct arena arena = ARENA_INIT;
    struct buf saved = BUF_INIT, before = BUF_INIT;
    struct event again;
    struct json doc;

    event_save(&saved, &full);
    assert_true(json_parse(f->p, buf_str(&saved), &doc));
    assert_true(event_load(doc, &arena, &again));
    event_write(&before, &full);
    event_write(&f->out, &again);
    assert_same(buf_str(&f->out), buf_str(&before));
    assert_same(again.route_key, full.route_key);
    assert_same(again.only_instance, full.only_instance);
    assert_true(again.author_is_bot && again.mentions_bot && again.replies_to_bot);
    assert_true(again.wants_context);
    assert_false(again.only_stops);
    assert_true(json_parse(f->p, STR("[]"), &doc));
    assert_false(event_load(doc, &arena, &again));
    arena_done(&arena);
    buf_done(&saved);
    buf_done(&before);
}

/* ---- bursts ---- */

static const struct event_media burst_media[] = {
    {.url = STR("https://x.example/1"), .type = STR("image/png")},
    {0}, /* of the deleted part */
    {.url = STR("https://x.example/2"), .type = STR("image/jpeg")},
};
static const struct event_part burst_parts[] = {
    {.event_id = STR("e1"), .message_id = STR("1"), .text = STR("look")},
    {.event_id = STR("e2"), .message_id = STR("2"), .n_media = 1},
    {.event_id = STR("e3"), .n_media = 1, .deleted = true},
    {.event_id = STR("e4"), .message_id = STR("4"), .text = STR("\"h\u00e9\"?"), .n_media = 1},
};
static const struct event burst = {.platform = STR("web"),
                                   .event_id = STR("e1"),
                                   .message_id = STR("1"),
                                   .text = STR("look\n\"h\u00e9\"?\n[a file is missing: x]"),
                                   .chat_id = STR("c"),
                                   .media = burst_media,
                                   .n_media = 3,
                                   .parts = burst_parts,
                                   .n_parts = 4};

static void a_burst_names_its_messages_and_what_each_has(void **state)
{
    struct fixture *f = *state;

    event_write_frame(&f->out, &burst, &(struct hash128){.lo = 1});
    assert_true(event_frame_is_burst(buf_str(&f->out)));
    assert_true(str_contains(
        buf_str(&f->out),
        STR(",\"message_ids\":[\"1\",\"2\",\"4\"],\"message_parts\":[{\"bytes\":4,\"files\":0},"
            "{\"bytes\":0,\"files\":1},{\"bytes\":6,\"files\":1}],")));
    buf_reset(&f->out);
    struct event plain = burst;
    plain.n_parts = 0;
    plain.text = STR(",\"message_ids\":[");
    event_write_frame(&f->out, &plain, &(struct hash128){.lo = 1});
    assert_false(event_frame_is_burst(buf_str(&f->out)));
}

static void a_burst_is_kept_whole(void **state)
{
    struct fixture *f = *state;
    struct arena arena = ARENA_INIT;
    struct buf saved = BUF_INIT, before = BUF_INIT;
    struct event again;
    struct json doc;

    event_save(&saved, &burst);
    assert_true(json_parse(f->p, buf_str(&saved), &doc));
    assert_true(event_load(doc, &arena, &again));
    event_write(&before, &burst);
    event_write(&f->out, &again);
    assert_same(buf_str(&f->out), buf_str(&before));
    assert_same(again.parts[2].event_id, STR("e3"));
    assert_true(again.parts[2].deleted);
    assert_true(json_parse(f->p,
                           STR("{\"platform\":\"web\",\"media\":[],\"parts\":[{\"files\":9}]}"),
                           &doc));
    assert_false(event_load(doc, &arena, &again));
    arena_done(&arena);
    buf_done(&saved);
    buf_done(&before);
}

static const struct {
    const char *id, *chat, *text; /* NULL: deleted */
    enum event_part_change change;
    const char *then, *ids;
    size_t files;
} part_edits[] = {
    {"1", "c", "see", EVENT_PART_CHANGED, "see\n\"h\u00e9\"?\n[a file is missing: x]",
     "[\"1\",\"2\",\"4\"]", 2},
    {"2", "c", "this", EVENT_PART_CHANGED, "look\nthis\n\"h\u00e9\"?\n[a file is missing: x]",
     "[\"1\",\"2\",\"4\"]", 2},
    {"4", "c", "", EVENT_PART_CHANGED, "look\n[a file is missing: x]", "[\"1\",\"2\",\"4\"]", 2},
    {"1", "c", NULL, EVENT_PART_CHANGED, "\"h\u00e9\"?\n[a file is missing: x]", "[\"2\",\"4\"]",
     2},
    {"2", "c", NULL, EVENT_PART_CHANGED, "look\n\"h\u00e9\"?\n[a file is missing: x]",
     "[\"1\",\"4\"]", 1},
    {"4", "c", NULL, EVENT_PART_CHANGED, "look\n[a file is missing: x]", "[\"1\",\"2\"]", 1},
    {"4", "other", NULL, EVENT_PART_UNKNOWN, NULL, NULL, 0},
    {"9", "c", NULL, EVENT_PART_UNKNOWN, NULL, NULL, 0},
};

static void one_message_of_a_burst_changes_or_goes(void **state)
{
    struct fixture *f = *state;
    struct buf frame = BUF_INIT;

    event_write_frame(&frame, &burst, &(struct hash128){.lo = 1});
    for (size_t i = 0; i < sizeof part_edits / sizeof part_edits[0]; i++) {
        struct event edit = {.chat_id = str_of(part_edits[i].chat),
                             .message_id = str_of(part_edits[i].id),
                             .edit = {.set = true, .deletes = part_edits[i].text == NULL}};
        struct json doc;
        if (part_edits[i].text != NULL)
            edit.edit.text = str_of(part_edits[i].text);
        buf_reset(&f->out);
        assert_int_equal(event_change_part(&f->out, f->p, buf_str(&frame), &edit),
                         part_edits[i].change);
        if (part_edits[i].then == NULL)
            continue;
        assert_same(delivery_id_in(buf_str(&f->out)), delivery_id_in(buf_str(&frame)));
        assert_true(str_contains(buf_str(&f->out), str_of(part_edits[i].ids)));
        assert_true(json_parse(f->p, buf_str(&f->out), &doc));
        struct json ev = json_get(doc, "event");
        assert_same(json_str(ev, "text"), str_of(part_edits[i].then));
        assert_int_equal(json_count(json_get(ev, "media_urls")), part_edits[i].files);
        assert_int_equal(json_count(json_get(ev, "media")), part_edits[i].files);
        assert_same(json_str(ev, "message_id"),
                    str_eq(edit.message_id, STR("1")) && edit.edit.deletes ? STR("2") : STR("1"));
    }
    buf_done(&frame);
}

static void the_last_message_of_a_burst_takes_the_burst_along(void **state)
{
    struct fixture *f = *state;
    struct event ev = burst, edit = {.chat_id = STR("c"), .message_id = STR("1")};
    struct buf frame = BUF_INIT;

    ev.n_parts = 1;
    ev.n_media = 0;
    edit.edit.deletes = true;
    event_write_frame(&frame, &ev, &(struct hash128){.lo = 1});
    assert_int_equal(event_change_part(&f->out, f->p, buf_str(&frame), &edit), EVENT_PART_LAST);
    assert_int_equal(event_change_part(&f->out, f->p,
                                       STR("{\"event\":{\"text\":\"a\",\"message_ids\":[\"1\"],"
                                           "\"message_parts\":[{\"bytes\":9,\"files\":0}],"
                                           "\"source\":{\"chat_id\":\"c\"}}}"),
                                       &edit),
                     EVENT_PART_UNKNOWN);
    buf_done(&frame);
}

static void an_empty_event_has_no_null_the_client_dies_of(void **state)
{
    struct fixture *f = *state;

    event_write_frame(&f->out, &(struct event){0}, NULL);
    assert_same(buf_str(&f->out),
                STR("{\"type\":\"inbound\",\"event\":{\"text\":\"\",\"message_type\":\"text\","
                    "\"message_id\":null,\"reply_to_message_id\":null,\"media_urls\":[],"
                    "\"source\":{\"platform\":\"relay\",\"chat_id\":\"\",\"chat_type\":\"dm\","
                    "\"chat_name\":null,\"user_id\":null,\"user_name\":null,\"thread_id\":null,"
                    "\"chat_topic\":null}}}\n"));
}

static void what_the_gate_knows_never_reaches_the_wire(void **state)
{
    struct fixture *f = *state;
    static const char *const words[] = {"is_bot",   "author_is_bot", "mentions",
                                        "route",    "event-id",      "tenant",
                                        "instance", "replies_to",    "private"};

    event_write_frame(&f->out, &full, &(struct hash128){.lo = 1});
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (str_contains(buf_str(&f->out), str_of(words[i])))
            fail_msg("%s is on the wire", words[i]);
}

static void both_scope_names_are_there_and_equal(void **state)
{
    struct fixture *f = *state;
    struct json src = json_get(written(f, &full), "source");

    assert_same(json_str(src, "guild_id"), STR("77"));
    assert_same(json_str(src, "scope_id"), STR("77"));
}

static void empty_optional_strings_are_left_out(void **state)
{
    struct fixture *f = *state;
    struct event ev = full;
    static const char *const gone[] = {"user_id_alt", "chat_id_alt",      "guild_id",
                                       "scope_id",    "parent_chat_id",   "message_id",
                                       "user_handle", "user_display_name"};

    ev.user_id_alt = ev.chat_id_alt = ev.scope_id = ev.parent_chat_id = STR("");
    ev.message_id = ev.user_display_name = ev.user_handle = ev.bot = ev.message_type = STR("");
    struct json doc = written(f, &ev);
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        assert_int_equal(json_type(json_get(json_get(doc, "source"), gone[i])), JSON_ABSENT);
    assert_int_equal(json_type(json_get(doc, "bot_id")), JSON_ABSENT);
    assert_same(json_str(doc, "message_type"), STR("text"));
}

static void a_quote_without_words_is_still_an_object(void **state)
{
    struct fixture *f = *state;
    struct event ev = {.reply_to.set = true};
    struct json quote = json_get(written(f, &ev), "reply_to");

    assert_int_equal(json_count(quote), 1);
    assert_false(json_as_bool(json_get(quote, "is_own"), true));
}

static void any_text_survives_the_way_through_json(void **state)
{
    struct fixture *f = *state;
    static const struct str texts[] = {
        STR("line\nbreak\r\ttab"),
        STR("\"quoted\" back\\slash /slash"),
        STR("nul\0inside"),
        STR("\x01\x02\x1f\x7f"),
        STR("zo\xc3\xab \xf0\x9f\x98\x80 \xe2\x80\xa8"),
        STR("</script>"),
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct event ev = {.text = texts[i], .chat_id = texts[i], .user_name = texts[i]};
        struct json doc = written(f, &ev);
        assert_null(memchr(f->out.p, '\n', f->out.n)); /* one frame, one line */
        assert_same(json_str(doc, "text"), texts[i]);
        assert_same(json_str(json_get(doc, "source"), "chat_id"), texts[i]);
        assert_same(json_str(json_get(doc, "source"), "user_name"), texts[i]);
    }
}

static void broken_utf8_becomes_a_replacement_character(void **state)
{
    struct fixture *f = *state;
    struct event ev = {.text = STR("a\xff\xed\xa0\x80z"), .user_id = STR("\xc3")};
    struct json doc = written(f, &ev);

    assert_true(utf8_valid(buf_str(&f->out)));
    assert_true(str_starts(json_str(doc, "text"), STR("a\xef\xbf\xbd")));
    assert_true(str_ends(json_str(doc, "text"), STR("z")));
    assert_same(json_str(json_get(doc, "source"), "user_id"), STR("\xef\xbf\xbd"));
}

static void urls_that_would_leak_the_bearer_are_left_out(void **state)
{
    struct fixture *f = *state;
    static const struct {
        struct str url;
        bool safe;
    } table[] = {
        {STR("https://cdn.example/a.png"), true},
        {STR("HTTP://cdn.example/a.png"), true},
        {STR("https://cdn.example/relay/medias/x"), true},
        {STR("https://evil.example/relay/media/x"), false},
        {STR("https://evil.example/RELAY/Media/x"), false},
        {STR("https://evil.example/?u=//relay/media/"), false},
        {STR("https://evil.example/relay/media"), true},
        {STR("/tmp/secret"), false},
        {STR("file:///etc/passwd"), false},
        {STR("ftp://x/y"), false},
        {STR("data:image/png;base64,AA"), false},
        {STR("https:/x"), false},
        {STR("http:"), false},
        {STR(" https://x/"), false},
        {STR(""), false},
        {STR_NULL, false},
    };
    struct event_media media[EVENT_MAX_MEDIA] = {{{0}}};
    struct event ev = {.media = media};
    size_t n = sizeof table / sizeof table[0];

    assert_true(n <= EVENT_MAX_MEDIA);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(event_media_is_safe(table[i].url), table[i].safe);
        media[ev.n_media++].url = table[i].url;
    }
    struct json urls = json_get(written(f, &ev), "media_urls");
    assert_int_equal(json_count(urls), 4);
    for (struct json_iter it = {0}; json_next(urls, &it);)
        assert_true(event_media_is_safe(json_as_str(it.value)));
}

/* What the client parses is what we keyed: the written source gives the same key as the event. */
static void the_written_source_has_the_key_of_the_event(void **state)
{
    struct fixture *f = *state;
    struct json_parser *p = json_parser_new();
    struct json cases = load_vectors(p, VECTORS "/event_parse.json");
    struct buf ours = BUF_INIT, theirs = BUF_INIT;

    for (struct json_iter it = {0}; json_next(cases, &it);) {
        struct json wire = json_get(it.value, "event"), src = json_get(wire, "source");
        struct event ev = {.platform = json_str(src, "platform"),
                           .text = json_str(wire, "text"),
                           .message_id = json_str(wire, "message_id"),
                           .chat_id = json_str(src, "chat_id"),
                           .chat_type = json_str(src, "chat_type"),
                           .user_id = json_str(src, "user_id"),
                           .thread_id = json_str(src, "thread_id"),
                           .scope_id = json_str(src, "scope_id")};
        struct json doc = written(f, &ev);
        struct event parsed = source_of(&f->arena, json_get(doc, "source"));

        buf_reset(&ours);
        buf_reset(&theirs);
        session_key_of_event(&ours, &ev);
        session_key_write(&theirs, &parsed, &SESSION_KEY_DEFAULTS);
        assert_same(buf_str(&ours), buf_str(&theirs));
    }
    buf_done(&ours);
    buf_done(&theirs);
    json_parser_free(p);
}

/* Every event that the gateways were asked about is read, or refused by a sentence; what was read
 * and written reads as the same event again. */
static void a_written_event_reads_as_the_same_event(void **state)
{
    struct fixture *f = *state;
    struct json_parser *p = json_parser_new();
    struct json cases = load_vectors(p, VECTORS "/event_parse.json");
    struct buf before = BUF_INIT;
    size_t n_read = 0;

    for (struct json_iter it = {0}; json_next(cases, &it);) {
        char why[256] = "";
        struct event ev, again;
        if (!event_read(json_get(it.value, "event"), &f->arena, &ev, why)) {
            assert_true(strlen(why) > 10);
            continue;
        }
        n_read++;
        buf_reset(&before);
        event_write(&before, &ev);
        assert_true(event_read(written(f, &ev), &f->arena, &again, why));
        buf_reset(&f->out);
        event_write(&f->out, &again);
        assert_same(buf_str(&f->out), buf_str(&before));
    }
    assert_true(n_read > 30);
    buf_done(&before);
    json_parser_free(p);
}

static void a_full_buffer_fails_once_and_quietly(void **state)
{
    (void)state;
    for (size_t limit = 1; limit < 700; limit += 7) {
        struct buf out = {.limit = limit};
        event_write_frame(&out, &full, &(struct hash128){.lo = 1});
        assert_true(out.n <= limit);
        buf_done(&out);
    }
}

/* ---- what a delivery is called ---- */

static void names_have_one_length_and_differ(void **state)
{
    struct rand r = rand_seeded(11);
    char text[DELIVERY_ID_CHARS], last[DELIVERY_ID_CHARS] = "";

    (void)state;
    for (int i = 0; i < 100000; i++) {
        struct hash128 id = {rand_u64(&r), rand_u64(&r)};
        delivery_id_format(id, text);
        assert_int_equal(text[0], 'b');
        for (size_t k = 1; k < sizeof text; k++)
            assert_true((text[k] >= '0' && text[k] <= '9') || (text[k] >= 'a' && text[k] <= 'z'));
        unsigned __int128 v = (unsigned __int128)id.hi << 64 | id.lo;
        for (size_t k = sizeof text - 1; k > 0; k--, v >>= 5)
            assert_int_equal(text[k], "0123456789abcdefghjkmnpqrstvwxyz"[(unsigned)v & 31]);
        assert_memory_not_equal(text, last, sizeof text);
        memcpy(last, text, sizeof text);
    }
    delivery_id_format((struct hash128){0}, text);
    assert_memory_equal(text, "b00000000000000000000000000", sizeof text);
    delivery_id_format((struct hash128){UINT64_MAX, UINT64_MAX}, text);
    assert_memory_equal(text, "b7zzzzzzzzzzzzzzzzzzzzzzzzz", sizeof text);
}

static void a_frame_tells_its_name_and_so_does_one_of_an_older_program(void **state)
{
    struct hash128 id = {33, 1};
    char text[DELIVERY_ID_CHARS];
    struct buf out = BUF_INIT;

    (void)state;
    delivery_id_format(id, text);
    event_write_frame(&out, &(struct event){0}, &id);
    assert_true(str_eq(delivery_id_in(buf_str(&out)), str_make(text, sizeof text)));
    buf_reset(&out);
    event_write_frame(&out, &(struct event){0}, NULL);
    assert_null(delivery_id_in(buf_str(&out)).p);
    buf_done(&out);
    assert_same(delivery_id_in(STR("{\"type\":\"inbound\",\"bufferId\":\"b7k\",\"event\":{}}\n")),
                STR("b7k"));
    assert_null(delivery_id_in(STR("{\"type\":\"inbound\",\"bufferId\":\"")).p);
    assert_null(delivery_id_in(STR_NULL).p);
}

/* ---- deduplication ---- */

static struct hash128 dedup(struct str tenant, struct str instance, const struct event *ev)
{
    static const struct hash_key key = {1, 2};
    struct hash128 h;
    assert_true(delivery_id_of(ev, &key, tenant, instance, &h));
    return h;
}
static bool same(struct hash128 a, struct hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

static void the_same_event_for_the_same_instance_is_a_duplicate(void **state)
{
    struct event ev = full, other = full;

    (void)state;
    ev.text = STR("edited since");
    assert_true(same(dedup(STR("t"), STR("i"), &ev), dedup(STR("t"), STR("i"), &full)));
    assert_false(same(dedup(STR("t"), STR("j"), &ev), dedup(STR("t"), STR("i"), &ev)));
    assert_false(same(dedup(STR("u"), STR("i"), &ev), dedup(STR("t"), STR("i"), &ev)));
    other.event_id = STR("2");
    assert_false(same(dedup(STR("t"), STR("i"), &other), dedup(STR("t"), STR("i"), &ev)));
    other = full;
    other.bot = STR("app2"); /* numbers of two bots may collide */
    assert_false(same(dedup(STR("t"), STR("i"), &other), dedup(STR("t"), STR("i"), &ev)));
    other = full;
    other.platform = STR("telegram");
    assert_false(same(dedup(STR("t"), STR("i"), &other), dedup(STR("t"), STR("i"), &ev)));
}

static void all_events_of_one_bot_begin_with_the_same_bits(void **state)
{
    const int shift = 64 - DELIVERY_BOT_BITS;
    struct event ev = full, other = full;
    uint64_t bot = dedup(STR("t"), STR("i"), &ev).hi >> shift;

    (void)state;
    ev.event_id = STR("another");
    assert_int_equal(dedup(STR("u"), STR("j"), &ev).hi >> shift, bot);
    other.bot = STR("app2");
    assert_int_not_equal(dedup(STR("t"), STR("i"), &other).hi >> shift, bot);
    other = full;
    other.platform = STR("telegram");
    assert_int_not_equal(dedup(STR("t"), STR("i"), &other).hi >> shift, bot);
}

static void shifting_letters_between_parts_is_another_event(void **state)
{
    struct event ab = {.platform = STR("a"), .bot = STR("bc"), .event_id = STR("d")};
    struct event ac = {.platform = STR("ab"), .bot = STR("c"), .event_id = STR("d")};

    (void)state;
    assert_false(same(dedup(STR("t"), STR("i"), &ab), dedup(STR("t"), STR("i"), &ac)));
    assert_false(same(dedup(STR("ti"), STR(""), &ab), dedup(STR("t"), STR("i"), &ab)));
}

static void an_event_without_an_id_is_never_a_duplicate(void **state)
{
    static const struct hash_key key = {1, 2};
    struct event ev = full;
    struct hash128 h;

    (void)state;
    ev.event_id = STR_NULL;
    assert_false(delivery_id_of(&ev, &key, STR("t"), STR("i"), &h));
    ev.event_id = STR("");
    assert_false(delivery_id_of(&ev, &key, STR("t"), STR("i"), &h));
}

static void long_ids_are_hashed_whole(void **state)
{
    static char a[2000], b[2000];
    struct event x = full, y = full;

    (void)state;
    memset(a, 'x', sizeof a);
    memcpy(b, a, sizeof b);
    b[sizeof b - 1] = 'y';
    x.event_id = str_make(a, sizeof a);
    y.event_id = str_make(b, sizeof b);
    assert_false(same(dedup(STR("t"), STR("i"), &x), dedup(STR("t"), STR("i"), &y)));
    y.event_id = str_make(a, sizeof a);
    assert_true(same(dedup(STR("t"), STR("i"), &x), dedup(STR("t"), STR("i"), &y)));
}

#define WITH_FIXTURE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
UNIT(core_test_event)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(a_full_event_is_written_byte_for_byte_like_this),
        WITH_FIXTURE(addresses_are_put_where_ours_stood_and_nowhere_else),
        WITH_FIXTURE(what_people_write_is_never_a_place),
        WITH_FIXTURE(an_event_can_be_kept_whole),
        WITH_FIXTURE(a_burst_names_its_messages_and_what_each_has),
        WITH_FIXTURE(a_burst_is_kept_whole),
        WITH_FIXTURE(one_message_of_a_burst_changes_or_goes),
        WITH_FIXTURE(the_last_message_of_a_burst_takes_the_burst_along),
        WITH_FIXTURE(an_empty_event_has_no_null_the_client_dies_of),
        WITH_FIXTURE(what_the_gate_knows_never_reaches_the_wire),
        WITH_FIXTURE(both_scope_names_are_there_and_equal),
        WITH_FIXTURE(empty_optional_strings_are_left_out),
        WITH_FIXTURE(a_quote_without_words_is_still_an_object),
        WITH_FIXTURE(any_text_survives_the_way_through_json),
        WITH_FIXTURE(broken_utf8_becomes_a_replacement_character),
        WITH_FIXTURE(urls_that_would_leak_the_bearer_are_left_out),
        WITH_FIXTURE(the_written_source_has_the_key_of_the_event),
        WITH_FIXTURE(a_written_event_reads_as_the_same_event),
        cmocka_unit_test(a_full_buffer_fails_once_and_quietly),
        cmocka_unit_test(names_have_one_length_and_differ),
        cmocka_unit_test(a_frame_tells_its_name_and_so_does_one_of_an_older_program),
        cmocka_unit_test(the_same_event_for_the_same_instance_is_a_duplicate),
        cmocka_unit_test(all_events_of_one_bot_begin_with_the_same_bits),
        cmocka_unit_test(shifting_letters_between_parts_is_another_event),
        cmocka_unit_test(an_event_without_an_id_is_never_a_duplicate),
        cmocka_unit_test(long_ids_are_hashed_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
