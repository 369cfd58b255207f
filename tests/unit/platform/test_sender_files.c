/* Promises of platform/sender.h: an action gets its file before the platform sees it, or says why
 * not; and only what the same instance says in the same chat and thread waits for that. */
#include "host/media_rig.h"
#include "base/limits.h"
#include "core/journal.h"
#include "platform/outgoing.h"
#include "platform/sender.h"

struct rig {
    struct media_rig m;
    struct platform p;
    struct sender *s;
    int acted, failed, queued;
    char told[512];   /* the failure */
    char carried[64]; /* what the file of the action holds */
    char url[256], name[64], shown[64];
    char order[16]; /* f: a file; t: a text */
    uint64_t numbers;
    bool keeps; /* the platform puts it into its outbox */
};
static struct rig *rig;

/* ---- the host and the platform ---- */

const struct host_env *host_env(struct host *h)
{
    return &rig->m.env;
}
void host_result(struct host *h, struct action_id id, const struct action_result *r)
{
    assert_int_equal(id.index, 7);
    rig->queued += r->queued;
}
void host_fail(struct host *h, struct action_id id, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(rig->told, sizeof rig->told, fmt, ap);
    va_end(ap);
    assert_int_equal(id.index, 7);
    rig->failed++;
}
void host_cut_off(struct host *h, const struct action_from *from, const char *error)
{
    fail();
}
bool host_had_event(struct host *h, struct platform *p, const struct action_from *from,
                    struct str event_id)
{
    return false;
}
enum gate_sight host_may_act(struct host *h, struct platform *p, const struct action_from *from,
                             const struct action_place *place)
{
    return GATE_SEEN;
}
bool host_revive(struct host *h, struct platform *p, const struct action_from *from,
                 enum action_op op, struct str chat, struct action_id *ret_id)
{
    *ret_id = (struct action_id){7, 7};
    return true;
}
uint64_t host_number(struct host *h)
{
    return rig->m.store->boot << 40 | ++rig->numbers;
}

static void never_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                        struct sender_verdict *v)
{
    v->end = SENDER_HOLD;
}

static void out_free(struct outgoing *o)
{
    free(o);
}

static const struct sender_ops sender_ops = {.write = never_write, .free = out_free};

static void act(struct platform *p, struct action_id id, const struct action_from *from,
                const struct action *a)
{
    FILE *f = a->file != NULL ? fopen(a->file->path, "r") : NULL;

    rig->order[rig->acted] = f != NULL ? 'f' : 't';
    rig->acted++;
    if (a->op == ACTION_SEND) {
        assert_str(json_str(a->metadata, "colour"), "red");
        return;
    }
    assert_non_null(f);
    rig->carried[fread(rig->carried, 1, sizeof rig->carried - 1, f)] = '\0';
    fclose(f);
    assert_str(from->tenant, "acme");
    assert_str(a->content, "a caption");
    snprintf(rig->url, sizeof rig->url, "%.*s", STR_FMT(a->file->url));
    snprintf(rig->name, sizeof rig->name, "%.*s", STR_FMT(a->file->name));
    snprintf(rig->shown, sizeof rig->shown, "%.*s", STR_FMT(a->filename));
    if (!rig->keeps)
        return;
    struct outgoing *o = xcalloc(1, sizeof *o);
    o->n_parts = 1;
    sender_act(rig->s, o, &(struct sender_order){.id = id, .from = from, .action = a});
}

static const struct platform_ops ops = {.name = "letters",
                                        .label = "Letters",
                                        .sender = &sender_ops,
                                        .act = act};

static void open_sender(struct rig *r)
{
    r->p = (struct platform){.ops = &ops, .env = &r->m.env, .bot = "bot"};
    assert_int_equal(sender_new(&r->p, r->m.why), BH_OK);
    r->s = r->p.sender;
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);

    rig = r;
    rig_open(&r->m);
    r->m.env.media = r->m.media;
    r->m.env.journal = journal_new();
    open_sender(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    sender_free(r->s);
    journal_free(r->m.env.journal);
    rig_close(&r->m);
    free(r);
    return 0;
}

static int records(struct rig *r);

static void send(struct rig *r, const char *source_url)
{
    static const struct action_from from = {.tenant = STR("acme"), .instance = STR("bot")};
    struct action a = {.op = ACTION_SEND_MEDIA,
                       .chat_id = STR("c"),
                       .content = STR("a caption"),
                       .filename = STR("../a\r\nb/sho\r\nwn.png"),
                       .source_url = str_of(source_url),
                       .deadline_ms = clock_now_ms(r->m.env.clock) + 30000};

    sender_submit(r->s, (struct action_id){7, 7}, &from, &a);
}

/* Says something; true: it waits for a file. */
static bool waits_of(struct rig *r, const char *tenant, const char *instance, const char *chat)
{
    struct action_from from = {.tenant = str_of(tenant), .instance = str_of(instance)};
    struct json_parser *parser = json_parser_new();
    char *content = xstrdup("said behind it");
    struct action a = {.op = ACTION_SEND, .chat_id = str_of(chat), .content = str_of(content)};
    int before = r->acted;

    assert_true(json_parse(parser, STR("{\"colour\":\"red\"}"), &a.metadata));
    sender_submit(r->s, (struct action_id){7, 7}, &from, &a);
    free(content); /* borrowed for the call */
    json_parser_free(parser);
    if (r->acted == before)
        return true;
    r->acted = before;
    r->order[before] = '\0';
    return false;
}

static bool text_waits(struct rig *r, const char *chat)
{
    return waits_of(r, "acme", "bot", chat);
}

static void count_record(void *ctx, struct str key, struct str value)
{
    ++*(int *)ctx;
}

static int records(struct rig *r)
{
    int n = 0;

    assert_int_equal(r->m.store->ops->load_records(r->m.store, "outgoing", STR(""), count_record,
                                                   &n),
                     BH_OK);
    return n;
}

/* What waits, as an operator sees it. */
static void count_fetching(void *ctx, const struct outgoing_view *v)
{
    *(int *)ctx += v->e.state == OUTGOING_FETCHING;
}

static int fetching(struct rig *r)
{
    int n = 0;

    sender_each(r->s, 0, count_fetching, &n);
    return n;
}

/* ---- a file of ours ---- */

static void on_room(void *ctx)
{
    ((struct media_rig *)ctx)->written = true;
}

static void on_written(void *ctx, enum bh_err err, const struct media_file *f)
{
    struct media_rig *r = ctx;

    assert_int_equal(err, BH_OK);
    memcpy(r->id, f->id, sizeof r->id);
}

static const char *keep(struct rig *r, const char *tenant)
{
    static const struct media_write_ops writer = {.room = on_room, .done = on_written};
    static char url[128];
    struct media_spec spec = {.tenant = str_of(tenant),
                              .type = STR("image/png"),
                              .name = STR("kept.png")};
    enum bh_err err;
    struct media_write *w = media_begin(r->m.media, &spec, &writer, &r->m, &err);

    assert_non_null(w);
    r->m.written = false;
    r->m.id[0] = '\0';
    for (int i = 0; i < 1000 && !r->m.written; i++)
        loop_turn(r->m.loop, 10);
    media_add(w, STR(PNG));
    media_end(w);
    for (int i = 0; i < 1000 && r->m.id[0] == '\0'; i++)
        loop_turn(r->m.loop, 10);
    snprintf(url, sizeof url, "https://relay.example/relay/media/%s", r->m.id);
    return url;
}

/* ---- the promises ---- */

static void a_file_that_is_here_goes_at_once(void **state)
{
    struct rig *r = *state;

    send(r, keep(r, "acme"));
    assert_int_equal(r->acted, 1);
    assert_string_equal(r->carried, PNG);
    assert_string_equal(r->name, "kept.png");
    assert_string_equal(r->shown, "shown.png"); /* without a path, and in one line */
    assert_string_equal(r->url, "");            /* nobody knows how we are reached */
    r->m.env.public_url = "https://relay.example";
    send(r, keep(r, "acme"));
    assert_non_null(strstr(r->url, "https://relay.example/relay/media/"));
    assert_non_null(strstr(r->url, "&sig=")); /* the platform fetches without a credential */
    assert_int_equal(r->m.asked, 0);
}

static void a_file_of_another_tenant_is_not_and_its_address_is_not_asked(void **state)
{
    struct rig *r = *state;

    send(r, keep(r, "other"));
    send(r, "https://evil.example/relay/media/0123456789abcdef0123456789abcdef");
    send(r, "http://127.0.0.1/x/relay/media/y");
    send(r, "file:///etc/passwd");
    send(r, "ftp://127.0.0.1/x");
    send(r, "");
    assert_int_equal(r->failed, 6);
    assert_int_equal(r->acted, 0);
    assert_non_null(strstr(r->told, "source_url names no file of yours here"));
    rig_rest(&r->m);
    assert_int_equal(r->m.asked, 0);
}

static void a_file_elsewhere_is_fetched_first(void **state)
{
    struct rig *r = *state;
    char url[128];

    snprintf(url, sizeof url, "%s/cat", r->m.base);
    send(r, url);
    memset(url, 'x', sizeof url - 1); /* the action was borrowed for the call */
    assert_int_equal(r->acted, 0);
    rig_until(&r->m, &r->acted, 1);
    assert_string_equal(r->carried, PNG);
    assert_string_equal(r->name, "shown.png");
    assert_int_equal(r->failed, 0);
}

static void what_is_said_behind_a_file_follows_it(void **state)
{
    struct rig *r = *state;
    char url[128];

    snprintf(url, sizeof url, "%s/cat", r->m.base);
    assert_false(text_waits(r, "c")); /* nothing is before it */
    send(r, url);
    assert_true(text_waits(r, "c"));
    send(r, keep(r, "acme")); /* is here, and waits for its turn as well */
    send(r, url);
    assert_true(text_waits(r, "c"));
    assert_false(text_waits(r, "another"));
    rig_until(&r->m, &r->acted, 5);
    assert_string_equal(r->order, "ftfft");
    assert_false(text_waits(r, "c"));
    assert_int_equal(r->failed, 0);
}

static void what_is_said_behind_a_file_that_does_not_come_goes_on(void **state)
{
    struct rig *r = *state;
    char url[128];

    snprintf(url, sizeof url, "%s/gone", r->m.base);
    send(r, url);
    assert_true(text_waits(r, "c"));
    assert_true(text_waits(r, "c"));
    rig_until(&r->m, &r->acted, 2);
    assert_string_equal(r->order, "tt");
    assert_int_equal(r->failed, 1);
    assert_false(text_waits(r, "c"));
}

static void a_slow_file_keeps_nobody_else_in_the_chat_waiting(void **state)
{
    struct rig *r = *state;
    char url[128];

    snprintf(url, sizeof url, "%s/slow", r->m.base);
    send(r, url);
    assert_true(text_waits(r, "c"));
    assert_false(waits_of(r, "other", "bot", "c"));
    assert_false(waits_of(r, "acme", "another", "c"));
}

static void what_waits_behind_files_is_counted(void **state)
{
    struct rig *r = *state;
    struct limit_settings few = limit_defaults;
    char url[128];

    few.of[LIMIT_FETCHES].each = 3;
    r->m.env.ledger = ledger_new(&few);
    snprintf(url, sizeof url, "%s/slow", r->m.base);
    send(r, url);
    assert_true(text_waits(r, "c"));
    assert_true(text_waits(r, "c"));
    assert_int_equal(r->failed, 0);
    assert_false(text_waits(r, "c")); /* words go on */
    assert_int_equal(r->failed, 0);
    send(r, url);
    assert_int_equal(r->failed, 1);
    assert_non_null(strstr(r->told, "limits.fetches"));
    sender_forget(r->s, STR("acme"), STR("bot")); /* nobody is told */
    assert_int_equal(fetching(r), 0);
    assert_int_equal(r->failed, 1);
    send(r, url); /* there is room again */
    assert_int_equal(r->failed, 1);
    sender_forget(r->s, STR("acme"), STR("bot"));
    ledger_free(r->m.env.ledger);
    r->m.env.ledger = NULL;
}

static void what_cannot_be_fetched_is_told_in_words(void **state)
{
    struct rig *r = *state;
    char url[128];

    snprintf(url, sizeof url, "%s/gone", r->m.base);
    send(r, url);
    assert_int_equal(r->failed, 0); /* never inside the call */
    rig_until(&r->m, &r->failed, 1);
    assert_string_equal(r->told, "the file cannot be sent: its address answered with status 404");
    r->m.settings.allow_private = false;
    snprintf(url, sizeof url, "%s/cat", r->m.base);
    send(r, url);
    rig_until(&r->m, &r->failed, 2);
    assert_string_equal(r->told, "the file cannot be sent: its address is not a public one");
    assert_int_equal(r->m.asked, 1);
    assert_int_equal(r->acted, 0);
}

static void a_stop_and_a_crash_lose_neither_the_file_nor_what_is_behind_it(void **state)
{
    struct rig *r = *state;
    char url[128];

    snprintf(url, sizeof url, "%s/slow", r->m.base);
    send(r, url);
    assert_true(text_waits(r, "c"));
    rig_until(&r->m, &r->m.asked, 1);
    assert_int_equal(records(r), 2); /* recorded first, then fetched */
    assert_int_equal(fetching(r), 2);
    sender_free(r->s);
    assert_int_equal(r->queued, 2); /* whoever waits is told that it goes on */
    assert_int_equal(r->failed, 0);
    rig_release(&r->m, 1);
    rig_rest(&r->m);
    assert_int_equal(r->acted, 0);
    open_sender(r);
    rig_until(&r->m, &r->m.asked, 2); /* fetched anew */
    rig_release(&r->m, 1);
    rig_until(&r->m, &r->acted, 2);
    assert_string_equal(r->order, "ft");
    rig_rest(&r->m);
    assert_int_equal(records(r), 0); /* this platform has its own */
}

static void what_an_operator_drops_lets_the_next_go_on(void **state)
{
    struct rig *r = *state;
    char url[128];

    snprintf(url, sizeof url, "%s/slow", r->m.base);
    send(r, url);
    assert_true(text_waits(r, "c"));
    uint64_t number = r->m.store->boot << 40 | 1;
    assert_true(sender_holds(r->s, number));
    assert_int_equal(sender_drop(r->s, number), BH_OK);
    assert_string_equal(r->told, "an operator took it out of the outbox");
    rig_until(&r->m, &r->acted, 1);
    assert_string_equal(r->order, "t");
}

static void a_file_being_fetched_takes_no_running_slot(void **state)
{
    struct rig *r = *state;
    struct sender_stats n;
    char url[128];

    snprintf(url, sizeof url, "%s/slow", r->m.base);
    send(r, url);
    rig_until(&r->m, &r->m.asked, 1);
    sender_stats(r->s, &n);
    assert_int_equal(n.running, 0);
    assert_int_equal(n.waiting, 1);
}

static void what_is_in_the_outbox_keeps_its_file(void **state)
{
    struct rig *r = *state;
    const char *url = keep(r, "acme");

    send(r, url);
    assert_int_equal(media_find(r->m.media, str_of(r->m.id))->n_holds, 0); /* done, or refused */
    r->keeps = true;
    send(r, url);
    const struct media_file *f = media_find(r->m.media, str_of(r->m.id));
    assert_int_equal(f->n_holds, 1);
    uint64_t number = r->m.store->boot << 40 | r->numbers;
    assert_true(f->holds[0].row == (SENDER_FILE_ROW | number));
    assert_string_equal(f->holds[0].tenant, "acme");
    assert_true(sender_holds(r->s, number));
}

static void a_fetched_file_keeps_the_record_of_its_action(void **state)
{
    struct rig *r = *state;
    char url[128];

    r->keeps = true;
    snprintf(url, sizeof url, "%s/cat", r->m.base);
    send(r, url);
    rig_until(&r->m, &r->acted, 1);
    rig_rest(&r->m);
    assert_int_equal(r->numbers, 1); /* one action, one record */
    assert_int_equal(records(r), 1);
    sender_forget(r->s, STR("acme"), STR("bot"));
}

UNIT(platform_test_sender_files)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(a_file_that_is_here_goes_at_once),
        T(a_file_of_another_tenant_is_not_and_its_address_is_not_asked),
        T(a_file_elsewhere_is_fetched_first),
        T(what_is_said_behind_a_file_follows_it),
        T(what_is_said_behind_a_file_that_does_not_come_goes_on),
        T(a_slow_file_keeps_nobody_else_in_the_chat_waiting),
        T(what_waits_behind_files_is_counted),
        T(what_cannot_be_fetched_is_told_in_words),
        T(a_stop_and_a_crash_lose_neither_the_file_nor_what_is_behind_it),
        T(what_an_operator_drops_lets_the_next_go_on),
        T(a_file_being_fetched_takes_no_running_slot),
        T(what_is_in_the_outbox_keeps_its_file),
        T(a_fetched_file_keeps_the_record_of_its_action),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
