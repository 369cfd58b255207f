/* wire_lists.h lists the names of the wire; here they are held against what is really written and
 * read.  test_contract_doc.c holds the page for people against the same lists. */
#include "core/vectors.h"
#include "core/wire_lists.h"
#include "core/descriptor.h"
#include "core/event.h"
#include "core/frame.h"

static struct json_parser *parser;

static int setup(void **state)
{
    (void)state;
    parser = json_parser_new();
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    json_parser_free(parser);
    return 0;
}

static struct json parse(struct buf *out)
{
    struct json doc;
    if (!json_parse(parser, buf_str(out), &doc))
        fail_msg("%.*s", STR_FMT(buf_str(out)));
    buf_reset(out);
    return doc;
}

static bool type_fits(struct json v, const char *type)
{
    static const struct {
        const char *name;
        enum json_type type;
        bool null;
    } names[] = {
        {"string", JSON_STRING, false},    {"string or null", JSON_STRING, true},
        {"int", JSON_NUMBER, false},       {"bool", JSON_BOOL, false},
        {"object", JSON_OBJECT, false},    {"string[]", JSON_ARRAY, false},
        {"string[][]", JSON_ARRAY, false}, {"object[]", JSON_ARRAY, false},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, type) == 0)
            return json_type(v) == names[i].type || (names[i].null && json_type(v) == JSON_NULL);
    fail_msg("no such type: %s", type);
    return false;
}

static const struct contract_field *find(const struct contract_field *fields, struct str name)
{
    for (; fields->name != NULL; fields++)
        if (str_eq(str_of(fields->name), name))
            return fields;
    return NULL;
}

/* Every key of @object is listed and of its type; every required one is there; with @all, every
 * listed one.  `type` is not listed: it is what makes a frame a frame. */
static void assert_lists(struct json object, const struct contract_field *fields, bool all)
{
    assert_true(json_is_object(object));
    for (struct json_iter it = {0}; json_next(object, &it);) {
        const struct contract_field *f = find(fields, it.key);
        if (f == NULL && str_eq(it.key, STR("type")) && fields != contract_chat_info_fields)
            continue;
        if (f == NULL)
            fail_msg("%.*s is written but not listed", STR_FMT(it.key));
        else if (!type_fits(it.value, f->type))
            fail_msg("%s is not a %s", f->name, f->type);
    }
    for (; fields->name != NULL; fields++)
        if ((all || fields->required) && json_type(json_get(object, fields->name)) == JSON_ABSENT)
            fail_msg("%s is listed but not written", fields->name);
}

static const struct event_media full_media[] = {
    {.url = STR("https://x.example/"), .size = 1, .name = STR("a.txt"), .caption = STR("look")}};

static const struct event_part full_parts[] = {
    {.event_id = STR("e"), .message_id = STR("m"), .text = STR("t"), .n_media = 1}};

static const struct event_said full_context[] = {{STR("before"), STR("l"), STR("u"), STR("v")}};

static const struct event full = {
    .platform = STR("p"),
    .bot = STR("b"),
    .text = STR("t"),
    .message_type = STR("text"),
    .message_id = STR("m"),
    .reply_to_message_id = STR("r"),
    .media = full_media,
    .n_media = 1,
    .parts = full_parts,
    .n_parts = 1,
    .reply_to = {.text = STR("q"), .author = STR("a"), .set = true},
    .press = {STR("p"), STR("o"), STR("l"), STR("m")},
    .context = full_context,
    .n_context = 1,
    .context_error = true,
    .prospective_thread_id = STR("f"),
    .auto_thread_name = STR("g"),
    .chat_id = STR("c"),
    .chat_type = STR("group"),
    .chat_name = STR("n"),
    .chat_topic = STR("o"),
    .user_id = STR("u"),
    .user_name = STR("v"),
    .user_id_alt = STR("w"),
    .chat_id_alt = STR("x"),
    .user_display_name = STR("y"),
    .user_handle = STR("z"),
    .thread_id = STR("d"),
    .parent_chat_id = STR("e"),
    .scope_id = STR("s"),
    .dispatch = STR("{\"kind\":\"augment\"}"),
    .trace = STR("w"),
    .author_is_bot = true,
};

static void events_have_the_listed_keys_and_no_others(void **state)
{
    static const struct event sparse = {.reply_to.set = true};
    struct buf out = BUF_INIT;
    struct json doc;

    event_write(&out, &full);
    doc = parse(&out);
    assert_lists(doc, contract_event_fields, true);
    assert_lists(json_get(doc, "source"), contract_source_fields, true);
    assert_lists(json_get(doc, "reply_to"), contract_reply_to_fields, true);
    assert_lists(json_get(doc, "prompt_response"), contract_prompt_response_fields, true);
    struct json_iter said = {0};
    assert_true(json_next(json_get(doc, "context"), &said));
    assert_lists(said.value, contract_context_fields, true);
    assert_lists(json_get(said.value, "source"), contract_said_source_fields, true);
    struct json_iter file = {0};
    assert_true(json_next(json_get(doc, "media"), &file));
    assert_lists(file.value, contract_media_fields, true);
    event_write(&out, &sparse);
    doc = parse(&out);
    assert_lists(doc, contract_event_fields, false);
    assert_lists(json_get(doc, "source"), contract_source_fields, false);
    assert_lists(json_get(doc, "reply_to"), contract_reply_to_fields, false);
    buf_done(&out);
}

static size_t count_required(const struct contract_field *fields)
{
    size_t n = 0;
    for (; fields->name != NULL; fields++)
        n += fields->required;
    return n;
}

static void an_event_with_nothing_set_has_the_required_keys_only(void **state)
{
    struct buf out = BUF_INIT;

    event_write(&out, &(struct event){0});
    struct json doc = parse(&out);
    assert_int_equal(json_count(doc), count_required(contract_event_fields));
    assert_int_equal(json_count(json_get(doc, "source")), count_required(contract_source_fields));
    assert_int_equal(count_required(contract_source_fields), 8);
    buf_done(&out);
}

static void descriptors_have_the_listed_keys_and_no_others(void **state)
{
    struct descriptor d = descriptor_relay;
    struct buf out = BUF_INIT;

    descriptor_write(&out, &d);
    assert_lists(parse(&out), contract_descriptor_fields, false);
    d.emoji = "e";
    d.platform_hint = "h";
    descriptor_write(&out, &d);
    assert_lists(parse(&out), contract_descriptor_fields, true);
    assert_int_equal(count_required(contract_descriptor_fields), 9);
    buf_done(&out);
}

static void results_have_the_listed_keys_and_no_others(void **state)
{
    struct action_result r = {.queued = true,
                              .message_id = STR("m"),
                              .error = STR("e"),
                              .chat_name = STR("n"),
                              .chat_type = STR("dm"),
                              .thread_id = STR("t"),
                              .auto_thread_name = STR("a")};
    struct buf out = BUF_INIT;

    frame_write_result(&out, STR("r"), &r);
    struct json result = json_get(parse(&out), "result");
    assert_lists(result, contract_result_fields, true);
    assert_lists(json_get(result, "chat_info"), contract_chat_info_fields, true);
    frame_write_result(&out, STR("r"), &(struct action_result){.success = true});
    assert_lists(json_get(parse(&out), "result"), contract_result_fields, false);
    buf_done(&out);
}

static const struct contract_frame *frame_named(struct str type)
{
    for (const struct contract_frame *f = contract_frames; f->type != NULL; f++)
        if (f->to_gateway && str_eq(str_of(f->type), type))
            return f;
    fail_msg("%.*s is not listed", STR_FMT(type));
    return NULL;
}

static void frames_to_a_gateway_have_the_listed_keys(void **state)
{
    struct buf out = BUF_INIT;

    for (int i = 0; i < 8; i++) {
        switch (i) {
        case 0:
            descriptor_write_frame(&out, &descriptor_relay, true);
            break;
        case 1:
            event_write_frame(&out, &full, &(struct hash128){.lo = 1});
            break;
        case 2:
            event_write_frame(&out, &full, NULL);
            break;
        case 3:
            frame_write_result(&out, STR("r"), &(struct action_result){0});
            break;
        case 4:
            frame_write_interrupt(&out, STR("k"), STR_NULL, STR("because"));
            break;
        case 5:
            frame_write_going_idle_ack(&out);
            break;
        case 6:
            frame_write_passthrough(&out, STR("{}"), NULL);
            break;
        case 7:
            frame_write_passthrough(&out, STR("{}"), &(struct hash128){.lo = 1});
            break;
        }
        struct json doc = parse(&out);
        bool all = i != 2 && i != 6;
        assert_lists(doc, frame_named(json_str(doc, "type"))->fields, all);
    }
    buf_done(&out);
}

static void a_forward_has_the_listed_keys_and_no_others(void **state)
{
    struct buf out = BUF_INIT;

    frame_write_forward(&out, &(struct forward){STR("p"), STR(""), STR("POST"), STR("/x"),
                                                STR("text/plain"), STR("hi")});
    struct json doc = parse(&out);
    assert_lists(doc, contract_forward_fields, true);
    frame_write_forward(&out, &(struct forward){STR("p"), STR(""), STR("POST"), STR("/x")});
    doc = parse(&out);
    assert_lists(doc, contract_forward_fields, true);
    assert_int_equal(json_count(json_get(doc, "headers")), 0);
    buf_done(&out);
}

/* A frame of @type with its required fields, but without @missing. */
static enum frame_type read_without(const struct contract_frame *f, const char *missing)
{
    struct buf line = BUF_INIT;
    struct frame got;

    buf_printf(&line, "{\"type\":\"%s\"", f->type);
    for (const struct contract_field *k = f->fields; k->name != NULL; k++)
        if (k->required && k->name != missing)
            buf_printf(&line, ",\"%s\":%s", k->name,
                       strcmp(k->type, "string") == 0 ? "\"x\"" : "{}");
    buf_add_c(&line, '}');
    frame_read(parser, buf_str(&line), &got);
    buf_done(&line);
    return got.type;
}

static void frames_from_a_gateway_are_known_by_their_required_fields(void **state)
{
    int known = 0;

    for (const struct contract_frame *f = contract_frames; f->type != NULL; f++) {
        if (f->to_gateway) {
            assert_int_equal(read_without(f, NULL), FRAME_UNKNOWN);
            continue;
        }
        enum frame_type type = read_without(f, NULL);
        assert_true(type < FRAME_UNKNOWN);
        known |= 1 << type;
        /* An asker without a sensible action still gets its answer, so only strings decide. */
        for (const struct contract_field *k = f->fields; k->name != NULL; k++)
            if (k->required && strcmp(k->type, "string") == 0)
                assert_int_equal(read_without(f, k->name), FRAME_UNKNOWN);
    }
    assert_int_equal(known, (1 << FRAME_UNKNOWN) - 1);
}

static void every_listed_field_of_an_action_is_read(void **state)
{
    struct buf line = BUF_INIT;
    struct frame f;

    buf_add_z(&line, "{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{");
    for (const struct contract_field *k = contract_action_fields; k->name != NULL; k++)
        if (strcmp(k->name, "metadata") != 0)
            buf_printf(&line, "\"%s\":\"<%s>\",", k->name, k->name);
    buf_add_z(&line, "\"metadata\":{\"\":0");
    for (const struct contract_field *k = contract_metadata_fields; k->name != NULL; k++)
        buf_printf(&line, ",\"%s\":\"<%s>\"", k->name, k->name);
    buf_add_z(&line, "}}}");
    frame_read(parser, buf_str(&line), &f);
    assert_same(f.action.op_name, STR("<op>"));
    assert_same(f.action.chat_id, STR("<chat_id>"));
    assert_same(f.action.content, STR("<content>"));
    assert_same(f.action.reply_to, STR("<reply_to>"));
    assert_same(f.action.message_id, STR("<message_id>"));
    assert_same(f.action.session_key, STR("<session_key>"));
    assert_same(f.action.kind, STR("<kind>"));
    assert_same(f.action.thread_id, STR("<thread_id>"));
    assert_same(f.action.scope_id, STR("<scope_id>"));
    assert_same(f.action.user_id, STR("<user_id>"));
    assert_same(f.action.trace, STR("<traceparent>"));
    assert_same(f.action.media_kind, STR("<media_kind>"));
    assert_same(f.action.source_url, STR("<source_url>"));
    assert_same(f.action.filename, STR("<filename>"));
    assert_same(f.action.prompt_kind, STR("<prompt_kind>"));
    assert_same(f.action.prompt_id, STR("<prompt_id>"));
    assert_same(json_as_str(f.action.options), STR("<options>"));
    assert_same(f.action.deciders, STR("<deciders>"));
    assert_same(f.action.emoji, STR("<emoji>"));
    assert_same(f.action.thread_name, STR("<thread_name>"));
    assert_same(f.action.only_if_current_name, STR("<only_if_current_name>"));
    assert_int_equal(json_count(f.action.metadata), 7);
    frame_read(parser,
               STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":\"task_card\","
                   "\"card_id\":\"c\",\"chunks\":[1],\"metadata\":{\"thread_ts\":\"1.2\"}}}"),
               &f);
    assert_same(f.action.card_id, STR("c"));
    assert_int_equal(json_count(f.action.chunks), 1);
    assert_same(f.action.thread_id, STR("1.2"));
    assert_false(f.action.final);
    frame_read(parser,
               STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":"
                   "\"task_card_stop\",\"card_id\":\"c\"}}"),
               &f);
    assert_int_equal(f.action.op, ACTION_TASK_CARD);
    assert_true(f.action.final);
    buf_done(&line);
}

static void the_listed_ops_are_the_ones_we_parse(void **state)
{
    int n = 0;

    for (; contract_ops[n] != NULL; n++)
        assert_int_equal(action_op_parse(str_of(contract_ops[n])), n);
    assert_int_equal(n, ACTION_UNKNOWN);
}

static void one_close_code_is_final_and_it_is_4401(void **state)
{
    for (const struct contract_close *c = contract_closes; c->code != 0; c++)
        assert_int_equal(c->terminal, c->code == 4401);
}

static void every_close_reason_has_its_row_and_the_rows_are_in_order_of_their_codes(void **state)
{
    for (int i = 0; i < CLOSE_REASONS; i++) {
        assert_int_not_equal(contract_closes[i].code, 0);
        assert_true(i == 0 || contract_closes[i - 1].code <= contract_closes[i].code);
    }
    assert_int_equal(contract_closes[CLOSE_REASONS].code, 0);
}

UNIT(core_test_contract)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_have_the_listed_keys_and_no_others),
        cmocka_unit_test(an_event_with_nothing_set_has_the_required_keys_only),
        cmocka_unit_test(descriptors_have_the_listed_keys_and_no_others),
        cmocka_unit_test(results_have_the_listed_keys_and_no_others),
        cmocka_unit_test(frames_to_a_gateway_have_the_listed_keys),
        cmocka_unit_test(a_forward_has_the_listed_keys_and_no_others),
        cmocka_unit_test(frames_from_a_gateway_are_known_by_their_required_fields),
        cmocka_unit_test(every_listed_field_of_an_action_is_read),
        cmocka_unit_test(the_listed_ops_are_the_ones_we_parse),
        cmocka_unit_test(one_close_code_is_final_and_it_is_4401),
        cmocka_unit_test(every_close_reason_has_its_row_and_the_rows_are_in_order_of_their_codes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
