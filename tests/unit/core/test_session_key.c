/* Session keys against what both generations of the real gateway computed. */
#include "core/vectors.h"
#include "base/rand.h"

struct fixture {
    struct json_parser *p;
    struct arena arena;
    struct buf key;
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
    arena_done(&f->arena);
    buf_done(&f->key);
    free(f);
    return 0;
}

static struct str key_of(struct fixture *f, struct event src, struct session_key_options opt)
{
    buf_reset(&f->key);
    session_key_write(&f->key, &src, &opt);
    return buf_str(&f->key);
}

static struct session_key_options options_of(struct json o, bool august)
{
    return (struct session_key_options){
        .group_sessions_per_user = json_as_bool(json_get(o, "group_sessions_per_user"), true),
        .thread_sessions_per_user = json_as_bool(json_get(o, "thread_sessions_per_user"), false),
        .profile = json_str(o, "profile"),
        .august = august,
    };
}

static void check(struct fixture *f, struct str name, struct event src,
                  struct session_key_options opt, struct str want)
{
    struct str got = key_of(f, src, opt);
    if (!str_eq(got, want))
        fail_msg("%.*s (%s): got %.*s, want %.*s", STR_FMT(name), opt.august ? "august" : "june",
                 STR_FMT(got), STR_FMT(want));
}

/* Where the older gateway raises there is no key to match: we write the one the newer gateway has,
 * except for a null chat_type, which we never send and read like an absent one. */
static void every_vector_gives_the_key_of_both_generations(void **state)
{
    struct fixture *f = *state;
    struct json cases = load_vectors(f->p, VECTORS "/session_key.json");
    int n = 0, raised = 0;

    for (struct json_iter it = {0}; json_next(cases, &it); n++) {
        struct str name = json_str(it.value, "name");
        struct json source = json_get(it.value, "source"), o = json_get(it.value, "options");
        struct event src = source_of(&f->arena, source);
        struct str june = json_str(it.value, "key"), august = json_str(it.value, "key_august");

        if (json_type(json_get(source, "chat_type")) == JSON_NULL)
            june = august = STR("agent:main:discord:dm:100");
        raised += json_type(json_get(it.value, "key")) == JSON_NULL;
        check(f, name, src, options_of(o, false), june.p != NULL ? june : august);
        check(f, name, src, options_of(o, true), august);
    }
    assert_int_equal(n, 114);
    assert_int_equal(raised, 3);
}

/* One side of an event_parse or discord_interaction case.  False: that side built no key. */
static bool side_key(struct json c, const char *side, struct str *ret)
{
    *ret = json_str(json_get(c, side), "session_key");
    return ret->p != NULL;
}

static void parsed_events_give_the_key_of_both_generations(void **state)
{
    struct fixture *f = *state;
    struct json cases = load_vectors(f->p, VECTORS "/event_parse.json");
    int n = 0;

    for (struct json_iter it = {0}; json_next(cases, &it);) {
        struct str name = json_str(it.value, "name"), want;
        struct json event = json_get(it.value, "event");
        struct event src = source_of(&f->arena, json_get(event, "source"));
        struct str id = json_str(event, "message_id");

        if (!str_is_empty(id))
            src.message_id = id; /* the client looks there first */
        for (int august = 0; august < 2; august++) {
            struct session_key_options opt = SESSION_KEY_DEFAULTS;
            opt.august = august;
            if (side_key(it.value, august ? "august" : "june", &want)) {
                check(f, name, src, opt, want);
                n++;
            }
        }
    }
    assert_true(n >= 85);
}

/* The client makes a source of its own from an interaction; both sides list it. */
static void interactions_give_the_key_a_follow_up_is_bound_under(void **state)
{
    struct fixture *f = *state;
    struct json cases = load_vectors(f->p, VECTORS "/discord_interaction.json");
    int n = 0;

    for (struct json_iter it = {0}; json_next(cases, &it);) {
        const char *const sides[] = {"june", "august"};
        for (int i = 0; i < 2; i++) {
            struct session_key_options opt = SESSION_KEY_DEFAULTS;
            struct str want;
            opt.august = i == 1;
            if (!side_key(it.value, sides[i], &want))
                continue;
            check(f, json_str(it.value, "name"),
                  source_of(&f->arena, json_get(json_get(it.value, sides[i]), "source")), opt,
                  want);
            n++;
        }
    }
    assert_true(n > 20);
}

static void the_key_of_an_event_is_the_older_default_key(void **state)
{
    struct fixture *f = *state;
    struct event ev = {.platform = STR("slack"),
                       .chat_id = STR("C1"),
                       .chat_type = STR("channel"),
                       .user_id = STR("U1"),
                       .scope_id = STR("TEAM"),
                       .message_id = STR("1700.1")};

    session_key_of_event(&f->key, &ev);
    assert_same(buf_str(&f->key), STR("agent:main:slack:channel:C1:U1"));
    ev.chat_type = STR(""); /* goes out as "dm" */
    buf_reset(&f->key);
    session_key_of_event(&f->key, &ev);
    assert_same(buf_str(&f->key), STR("agent:main:slack:dm:C1"));
}

static void a_key_is_appended_to_what_the_buffer_holds(void **state)
{
    struct fixture *f = *state;
    struct event ev = {.platform = STR("telegram"), .chat_id = STR("9")};

    buf_add_z(&f->key, "x=");
    session_key_of_event(&f->key, &ev);
    assert_same(buf_str(&f->key), STR("x=agent:main:telegram:dm:9"));
}

static void platform_names_are_trimmed_folded_and_known(void **state)
{
    (void)state;
    assert_same(session_key_platform(STR("discord")), STR("discord"));
    assert_same(session_key_platform(STR("\t DisCord\n")), STR("discord"));
    assert_same(session_key_platform(STR("whatsapp_cloud")), STR("whatsapp_cloud"));
    assert_same(session_key_platform(STR("web")), STR("relay"));
    assert_same(session_key_platform(STR("discor")), STR("relay"));
    assert_same(session_key_platform(STR("discordx")), STR("relay"));
    assert_same(session_key_platform(STR("")), STR("relay"));
    assert_same(session_key_platform(STR_NULL), STR("relay"));
}

static void whatsapp_ids_lose_their_decoration(void **state)
{
    static const struct {
        struct str raw, want;
    } table[] = {
        {STR("  +1555:3@x "), STR("agent:main:whatsapp:dm:1555")},
        {STR("15+55"), STR("agent:main:whatsapp:dm:1555")},
        {STR("1+5+5"), STR("agent:main:whatsapp:dm:15+5")},
        {STR("1@a+b"), STR("agent:main:whatsapp:dm:1")},
        {STR("1@a:b"), STR("agent:main:whatsapp:dm:1")},
        {STR("+"), STR("agent:main:whatsapp:dm:@u")}, /* nothing left: the person, as sent */
        {STR("@g.us"), STR("agent:main:whatsapp:dm:@u")},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct event src = {.platform = STR("whatsapp"),
                            .chat_id = table[i].raw,
                            .user_id = STR("@u")};
        check(f, table[i].raw, src, SESSION_KEY_DEFAULTS, table[i].want);
    }
}

static void hostile_sources_never_crash_the_writer(void **state)
{
    struct fixture *f = *state;
    struct rand r = rand_seeded(7);

    for (int round = 0; round < 20000; round++) {
        struct str parts[9];
        char bytes[9][8];
        for (int i = 0; i < 9; i++) {
            rand_bytes(&r, bytes[i], sizeof bytes[i]);
            parts[i] = rand_below(&r, 4) == 0 ? STR_NULL : str_make(bytes[i], rand_below(&r, 8));
        }
        static const char *const names[] = {"whatsapp", "slack", "discord", "dm", "group"};
        struct event src = {.platform = str_of(names[rand_below(&r, 3)]),
                            .chat_id = parts[1],
                            .chat_type =
                                rand_below(&r, 2) ? str_of(names[3 + rand_below(&r, 2)]) : parts[2],
                            .user_id = parts[3],
                            .user_id_alt = parts[4],
                            .thread_id = parts[5],
                            .scope_id = parts[6],
                            .prospective_thread_id = parts[7],
                            .message_id = parts[8]};
        struct session_key_options opt = {rand_below(&r, 2) != 0, rand_below(&r, 2) != 0, parts[0],
                                          rand_below(&r, 2) != 0};
        struct str key = key_of(f, src, opt);
        assert_true(str_starts(key, STR("agent:")) && key.n < 200);
    }
}

UNIT(core_test_session_key)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_vector_gives_the_key_of_both_generations, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(parsed_events_give_the_key_of_both_generations, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(interactions_give_the_key_a_follow_up_is_bound_under, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_key_of_an_event_is_the_older_default_key, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_key_is_appended_to_what_the_buffer_holds, setup,
                                        teardown),
        cmocka_unit_test(platform_names_are_trimmed_folded_and_known),
        cmocka_unit_test_setup_teardown(whatsapp_ids_lose_their_decoration, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_sources_never_crash_the_writer, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
