/* What each platform says of itself, where gateways act upon it. */
#include "unit.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "core/descriptor.h"
#include "platform/discord/discord.h"
#include "platform/irc/irc.h"
#include "platform/hook/hook.h"
#include "platform/signal/signal.h"
#include "platform/line/line.h"
#include "platform/matrix/matrix.h"
#include "platform/slack/slack.h"
#include "platform/teams/teams.h"
#include "platform/telegram/telegram.h"
#include "platform/twilio/twilio.h"
#include "platform/web/web.h"
#include "platform/wecom/wecom.h"
#include "platform/whatsapp/whatsapp.h"

static const struct {
    const struct platform_ops *ops;
    bool threads, edits;
    bool react; /* only where it can be seen */
    bool no_files;
} all[] = {
    {&discord_ops, true, true, true},       {&telegram_ops, true, true, true},
    {&slack_ops, false, true, true},        {&web_ops, false, true, false},
    {&twilio_ops, false, false, false},     {&wecom_ops, false, false, false},
    {&whatsapp_ops, false, false, true},    {&matrix_ops, false, true, true},
    {&signal_ops, false, true, true},       {&irc_ops, false, false, true},
    {&hook_ops, false, false, false, true}, {&teams_ops, false, true, false},
    {&line_ops, false, false, false},
};

static bool says_op(struct json doc, const char *op)
{
    for (struct json_iter it = {0}; json_next(json_get(doc, "supported_ops"), &it);)
        if (str_eq(json_as_str(it.value), str_of(op)))
            return true;
    return false;
}

static void threads_edits_and_reactions_are_claimed_exactly_where_they_are(void **state)
{
    struct json_parser *p = json_parser_new();

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct buf out = BUF_INIT;
        struct json doc;
        descriptor_write(&out, all[i].ops->descriptor);
        assert_true(json_parse(p, buf_str(&out), &doc));
        assert_int_equal(json_as_bool(json_get(doc, "supports_threads"), false), all[i].threads);
        assert_int_equal(says_op(doc, "thread_create"), all[i].threads);
        assert_int_equal(says_op(doc, "thread_rename"), all[i].threads);
        assert_int_equal(json_as_bool(json_get(doc, "supports_edit"), false), all[i].edits);
        assert_int_equal(says_op(doc, "edit"), all[i].edits);
        assert_int_equal(says_op(doc, "react"), all[i].react);
        assert_true(says_op(doc, "send") && says_op(doc, "prompt"));
        assert_int_equal(says_op(doc, "send_media"), !all[i].no_files);
        buf_done(&out);
    }
    json_parser_free(p);
}

UNIT(platform_test_abilities)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_edits_and_reactions_are_claimed_exactly_where_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
