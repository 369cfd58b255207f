/* Promises of platform/matrix/normalize.h. */
#include "unit.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/matrix/normalize.h"

static struct json_parser *parser;
static struct arena arena;
static struct mx_out out;

static bool is_own(void *ctx, struct str id)
{
    return str_eq(id, STR("$ours"));
}

static const struct mx_self selves[] = {{STR("@desk:example.org"), STR("Desk")},
                                        {STR("@desk_t.sales:example.org"), STR_NULL}};
static struct mx_in in;

static int setup(void **state)
{
    parser = json_parser_new();
    in = (struct mx_in){.bot = STR("@desk:example.org"),
                        .server = STR("example.org"),
                        .self = selves,
                        .n_self = 2,
                        .room = STR("!r:example.org"),
                        .room_name = STR("Lobby"),
                        .author_name = STR("Ann Lee"),
                        .reactions = true,
                        .is_own = is_own};
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    arena_done(&arena);
    return 0;
}

/* @text with ' for ". */
static struct json parse(const char *text)
{
    BUF_LOCAL body = BUF_INIT;
    struct json doc;

    buf_add_z(&body, text);
    for (size_t i = 0; i < body.n; i++)
        body.p[i] = body.p[i] == '\'' ? '"' : body.p[i];
    if (!json_parse(parser, buf_str(&body), &doc))
        fail_msg("bad test JSON: %s", text);
    return doc;
}

/* The event of type @type with this content and more members. */
static enum mx_verdict read_of(const char *type, const char *content, const char *more)
{
    BUF_LOCAL body = BUF_INIT;

    buf_printf(&body, "{'type':'%s','event_id':'$1','sender':'@ann:example.org','content':{%s}%s}",
               type, content, more);
    arena_reset(&arena);
    return mx_normalize(parse(buf_z(&body)), &in, &arena, &out);
}

#define TEXT(body) "'msgtype':'m.text','body':'" body "'"
#define MENTIONS(who) ",'m.mentions':{'user_ids':['" who "']}"

static void says(const char *content, const char *text)
{
    if (read_of("m.room.message", content, "") != MX_EVENT)
        fail_msg("%s: no event: %s", content, out.why != NULL ? out.why : "malformed");
    if (!str_eq(out.ev.text, str_of(text)))
        fail_msg("%s: \"%.*s\"", content, STR_FMT(out.ev.text));
}

static void a_message_is_an_event_of_its_room(void **state)
{
    says(TEXT("hello"), "hello");
    const struct event *ev = &out.ev;
    assert_true(str_eq(ev->chat_id, STR("!r:example.org")) && str_eq(ev->route_key, ev->chat_id));
    assert_true(str_eq(ev->chat_type, STR("group")) && str_eq(ev->chat_name, STR("Lobby")));
    assert_true(str_eq(ev->user_id, STR("@ann:example.org")));
    assert_true(str_eq(ev->user_name, STR("Ann Lee")) && str_eq(ev->user_handle, STR("ann")));
    assert_true(str_eq(ev->event_id, STR("$1")) && str_eq(ev->message_id, STR("$1")));
    assert_true(str_eq(ev->scope_id, STR("example.org")) && !ev->mentions_bot);
    in.dm = true;
    in.author_name = STR_NULL;
    says(TEXT("hello"), "hello");
    assert_true(str_eq(ev->chat_type, STR("dm")) && str_eq(ev->user_name, ev->user_id));
}

static void who_is_meant_is_told_by_mentions_and_names(void **state)
{
    static const struct {
        const char *content, *text;
        size_t meant; /* 2: nobody */
    } all[] = {
        {TEXT("Desk: go") MENTIONS("@desk:example.org"), "go", 0},
        {TEXT("go Desk") MENTIONS("@desk:example.org"), "go Desk", 0},
        {TEXT("@desk:example.org, go") MENTIONS("@desk:example.org"), "go", 0},
        {TEXT("@Desk go") MENTIONS("@desk:example.org"), "go", 0},
        {TEXT("desktop go") MENTIONS("@desk:example.org"), "desktop go", 0},
        {TEXT("Desk: go") MENTIONS("@ann:example.org"), "Desk: go", 2},
        {TEXT("Desk: go") ",'m.mentions':{}", "Desk: go", 2},
        {TEXT("Desk: go") ",'m.mentions':{'room':true}", "Desk: go", 2},
        {TEXT("Desk: go") ",'m.mentions':{'user_ids':7}", "Desk: go", 2},
        {TEXT("desk: go"), "go", 0}, /* an old app */
        {TEXT("my desktop"), "my desktop", 2},
        {TEXT("x") MENTIONS("@desk_t.sales:example.org"), "x", 1},
        {TEXT("desk_t.sales: x") MENTIONS("@desk_t.sales:example.org"), "x", 1},
        {TEXT("Desk: !stop") MENTIONS("@desk:example.org"), "/stop", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        says(all[i].content, all[i].text);
        assert_int_equal(out.addressed, all[i].meant);
        assert_int_equal(out.ev.mentions_bot, all[i].meant < 2);
    }
}

static void commands_begin_with_a_slash_or_an_exclamation_mark(void **state)
{
    says(TEXT("!model gpt"), "/model gpt");
    assert_true(str_eq(out.ev.message_type, STR("command")));
    says(TEXT("/help"), "/help");
    assert_true(str_eq(out.ev.message_type, STR("command")));
    says(TEXT("! no"), "! no");
    says(TEXT("!"), "!");
    assert_int_equal(out.ev.message_type.n, 0);
}

static void threads_and_replies_name_their_events(void **state)
{
    says(TEXT("x") ",'m.relates_to':{'rel_type':'m.thread','event_id':'$root','is_falling_back':"
                   "true,'m.in_reply_to':{'event_id':'$last'}}",
         "x");
    assert_true(str_eq(out.ev.thread_id, STR("$root")) && out.ev.reply_to_message_id.n == 0);
    says(TEXT("x") ",'m.relates_to':{'rel_type':'m.thread','event_id':'$ours','m.in_reply_to':{"
                   "'event_id':'$last'}}",
         "x");
    assert_true(str_eq(out.ev.reply_to_message_id, STR("$last")) && !out.ev.replies_to_bot);
    says(TEXT("> <@desk:example.org> one\\n> two\\n\\nthree") ",'m.relates_to':{'m.in_reply_to':{"
                                                              "'event_id':'$ours'}}",
         "three");
    assert_true(out.ev.replies_to_bot && out.ev.reply_to.is_own);
    says(TEXT("> a quote\\nof mine") ",'m.relates_to':{'m.in_reply_to':{'event_id':'$x'}}",
         "> a quote\nof mine");
    says(TEXT("x") ",'m.relates_to':{'m.in_reply_to':{'event_id':'nonsense'}}", "x");
    assert_int_equal(out.ev.reply_to_message_id.n, 0);
}

static void edits_and_deletions_name_the_first_event(void **state)
{
    says(TEXT("* new") ",'m.new_content':{" TEXT("new") "},'m.relates_to':{'rel_type':'m.replace',"
                                                        "'event_id':'$old'}",
         "new");
    assert_true(out.ev.edit.set && !out.ev.edit.deletes && str_eq(out.ev.edit.text, STR("new")));
    assert_true(str_eq(out.ev.message_id, STR("$old")) && str_eq(out.ev.event_id, STR("$1")));
    assert_int_equal(read_of("m.room.redaction", "'redacts':'$old'", ""), MX_EVENT);
    assert_true(out.ev.edit.deletes && str_eq(out.ev.message_id, STR("$old")));
    assert_int_equal(read_of("m.room.redaction", "", ",'redacts':'$older'"), MX_EVENT);
    assert_true(str_eq(out.ev.message_id, STR("$older")));
    assert_int_equal(read_of("m.room.redaction", "", ""), MX_MALFORMED);
}

static void reactions_to_our_messages_are_texts(void **state)
{
#define REACTION(to) "'m.relates_to':{'rel_type':'m.annotation','event_id':'" to "','key':'👍'}"
    assert_int_equal(read_of("m.reaction", REACTION("$ours"), ""), MX_EVENT);
    assert_true(str_eq(out.ev.text, STR("reaction:added:👍")) && out.ev.replies_to_bot);
    assert_int_equal(read_of("m.reaction", REACTION("$theirs"), ""), MX_IGNORED);
    in.reactions = false;
    assert_int_equal(read_of("m.reaction", REACTION("$ours"), ""), MX_IGNORED);
}

static void files_have_an_address_a_name_and_perhaps_a_caption(void **state)
{
    says("'msgtype':'m.image','body':'a.png','url':'mxc://example.org/Abc','info':{'mimetype':"
         "'image/png','size':7}",
         "");
    const struct event_media *f = out.ev.media;
    assert_int_equal(out.ev.n_media, 1);
    assert_true(str_eq(f->ref, STR("mxc://example.org/Abc")) && str_eq(f->name, STR("a.png")));
    assert_true(str_eq(f->kind, STR("image")) && f->size == 7 && f->caption.n == 0);
    says("'msgtype':'m.file','body':'look','filename':'a.txt','url':'mxc://example.org/Abc'",
         "look");
    assert_true(str_eq(f->name, STR("a.txt")) && str_eq(f->caption, STR("look")));
    says("'msgtype':'m.audio','body':'v','url':'mxc://h:8448/a-b_c','org.matrix.msc3245.voice':{}",
         "");
    assert_true(str_eq(f->kind, STR("voice")));
    assert_int_equal(read_of("m.sticker", "'body':'s','url':'mxc://h/x','info':{}", ""), MX_EVENT);
    static const char *const bad[] = {"https://h/x",  "mxc://h",     "mxc:///x",    "mxc://h/",
                                      "mxc://h/../x", "mxc://h/a b", "mxc://h?x/y", "mxc://h/x?y",
                                      "mxc://../x",   "mxc://./x"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        BUF_LOCAL content = BUF_INIT;
        buf_printf(&content, "'msgtype':'m.file','body':'x','url':'%s'", bad[i]);
        if (read_of("m.room.message", buf_z(&content), "") != MX_IGNORED)
            fail_msg("%s", bad[i]);
    }
}

static void what_people_do_not_say_is_ignored_or_refused(void **state)
{
    static const struct {
        const char *type, *content, *more;
        enum mx_verdict v;
    } all[] = {
        {"m.room.message", "", "", MX_IGNORED},
        {"m.room.message", "'msgtype':'m.text','body':' '", "", MX_IGNORED},
        {"m.room.message", "'msgtype':'m.text','body':7", "", MX_IGNORED},
        {"m.room.message", "'msgtype':'m.key.verification.request','body':'x'", "", MX_IGNORED},
        {"m.room.message", TEXT("x"), ",'state_key':''", MX_IGNORED},
        {"m.room.encrypted", "'ciphertext':'x'", "", MX_ENCRYPTED},
        {"m.call.invite", "'x':1", "", MX_IGNORED},
        {"", TEXT("x"), "", MX_MALFORMED},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        assert_int_equal(read_of(all[i].type, all[i].content, all[i].more), all[i].v);
    assert_int_equal(read_of("m.room.message", "'msgtype':'m.notice','body':'x'", ""), MX_EVENT);
    assert_true(out.ev.author_is_bot);
    arena_reset(&arena);
    assert_int_equal(mx_normalize(parse("[]"), &in, &arena, &out), MX_MALFORMED);
    assert_int_equal(mx_normalize(parse("{'type':'m.room.message','event_id':'$1','sender':'ann'}"),
                                  &in, &arena, &out),
                     MX_MALFORMED);
}

static void state_events_tell_members_names_and_encryption(void **state)
{
    struct mx_state s;

    assert_true(mx_state_read(parse("{'type':'m.room.member','state_key':'@a:b','sender':'@c:d',"
                                    "'content':{'membership':'invite','reason':'x'},"
                                    "'unsigned':{'prev_content':{'membership':'leave'}}}"),
                              &s));
    assert_true(s.fact == MX_MEMBER && str_eq(s.reason, STR("x")) && str_eq(s.was, STR("leave")));
    assert_true(str_eq(s.user, STR("@a:b")) && str_eq(s.sender, STR("@c:d")));
    assert_true(
        mx_state_read(parse("{'type':'m.room.name','state_key':'','content':{'name':'N'}}"), &s));
    assert_true(s.fact == MX_NAME && str_eq(s.name, STR("N")));
    assert_true(
        mx_state_read(parse("{'type':'m.room.encryption','state_key':'','content':{}}"), &s));
    assert_int_equal(s.fact, MX_ENCRYPTION);
    assert_false(mx_state_read(parse("{'type':'m.room.name','content':{'name':'N'}}"), &s));
    assert_false(mx_state_read(parse("{'type':'m.room.member','state_key':'x','content':{}}"), &s));
    assert_false(mx_state_read(parse("{'type':'m.room.topic','state_key':'','content':{}}"), &s));
}

static void mentions_are_the_user_ids_in_a_text(void **state)
{
    static const struct {
        const char *text, *json, *before;
    } all[] = {
        {"no one", "{\"m.mentions\":{}}"},
        {"@room everybody", "{\"m.mentions\":{}}"},
        {"ask @ann:example.org.", "{\"m.mentions\":{\"user_ids\":[\"@ann:example.org\"]}}"},
        {"@a:b @a:b (@c.d:e:8448)", "{\"m.mentions\":{\"user_ids\":[\"@a:b\",\"@c.d:e:8448\"]}}"},
        {"mail me@example.org:x", "{\"m.mentions\":{}}"},
        {"@: @a: @:b", "{\"m.mentions\":{}}"},
        {"@a:b @c:d", "{\"m.mentions\":{\"user_ids\":[\"@c:d\"]}}", "@a:b\x1f"},
        {"@a:b", "{\"m.mentions\":{}}", "@c:d\x1f@a:b\x1f"},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        BUF_LOCAL got = BUF_INIT;
        struct jw w = jw_begin(&got);
        jw_obj(&w);
        mx_write_mentions(&w, str_of(all[i].text), str_of(all[i].before));
        jw_end_obj(&w);
        assert_string_equal(buf_z(&got), all[i].json);
    }
}

static void markup_is_noticed(void **state)
{
    static const char *const with[] = {"**x**",         "a\n\nb",        "- x", "x\n1. y",
                                       "see https://x", "www.x",         "`x`", "a & b",
                                       "x\n===",        "    code\n\tx", "#"};
    static const char *const without[] = {"hello", "a\nb", "a - b", "it is 7 o'clock", "x: y"};

    for (size_t i = 0; i < ARRAY_LEN(with); i++)
        assert_true(mx_has_markup(str_of(with[i])));
    for (size_t i = 0; i < ARRAY_LEN(without); i++)
        assert_false(mx_has_markup(str_of(without[i])));
}

static void each_instance_has_one_user(void **state)
{
    static const struct {
        const char *tenant, *instance, *user;
    } all[] = {
        {"home", "main", "@desk_home.main:example.org"},
        {"Ä b", "x_y.z", "@desk_=c3=84=20b.x=5fy=2ez:example.org"},
        {"a.b", "c", "@desk_a=2eb.c:example.org"},
    };
    struct str bot = STR("@desk:example.org");

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        BUF_LOCAL user = BUF_INIT, tenant = BUF_INIT, instance = BUF_INIT;
        mx_virtual_write(&user, bot, STR_NULL, str_of(all[i].tenant), str_of(all[i].instance));
        assert_string_equal(buf_z(&user), all[i].user);
        assert_true(mx_virtual_read(buf_str(&user), bot, STR_NULL, &tenant, &instance));
        assert_string_equal(buf_z(&tenant), all[i].tenant);
        assert_string_equal(buf_z(&instance), all[i].instance);
    }
    static const char *const bad[] = {"@desk:example.org",      "@desk_:example.org",
                                      "@desk_a:example.org",    "@desk_a.b:other",
                                      "@desk_a.=4:example.org", "@desk_a.=61:example.org",
                                      "@desk_a.B:example.org",  "@desk_a.b.c:example.org",
                                      "@desky_a.b:example.org"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        BUF_LOCAL tenant = BUF_INIT, instance = BUF_INIT;
        if (mx_virtual_read(str_of(bad[i]), bot, STR_NULL, &tenant, &instance))
            fail_msg("%s", bad[i]);
    }
    BUF_LOCAL user = BUF_INIT, tenant = BUF_INIT, instance = BUF_INIT;
    mx_virtual_write(&user, bot, STR("home"), STR("home"), STR("main"));
    assert_string_equal(buf_z(&user), "@desk_main:example.org");
    assert_true(mx_virtual_read(buf_str(&user), bot, STR("home"), &tenant, &instance));
    assert_string_equal(buf_z(&tenant), "home");
}

UNIT(platform_matrix_test_normalize)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(a_message_is_an_event_of_its_room),
        T(who_is_meant_is_told_by_mentions_and_names),
        T(commands_begin_with_a_slash_or_an_exclamation_mark),
        T(threads_and_replies_name_their_events),
        T(edits_and_deletions_name_the_first_event),
        T(reactions_to_our_messages_are_texts),
        T(files_have_an_address_a_name_and_perhaps_a_caption),
        T(what_people_do_not_say_is_ignored_or_refused),
        T(state_events_tell_members_names_and_encryption),
        T(mentions_are_the_user_ids_in_a_text),
        T(markup_is_noticed),
        T(each_instance_has_one_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
