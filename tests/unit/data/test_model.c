/* Random entries and queries against a model that looks at every entry; kill -9 in the middle of
 * writes; a full disk. */
#include "data/rig.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "base/rand.h"

enum { ENTRIES = 150, WORDS = 12, TAGS = 4 };

static const char *const words[WORDS] = {"apple", "Pear", "plum",  "fig",   "kiwi", "Grape",
                                         "melon", "lime", "mango", "peach", "date", "quince"};
static const char *const folded[WORDS] = {"apple", "pear", "plum",  "fig",   "kiwi", "grape",
                                          "melon", "lime", "mango", "peach", "date", "quince"};

struct model_entry {
    char id[64];
    unsigned has;  /* words, as bits */
    unsigned tags; /* as bits */
    bool expired;
};

static struct model_entry model[ENTRIES];
static size_t n_model;

static void add_random(struct rig *r, struct rand *rand)
{
    struct model_entry *e = &model[n_model++];
    struct buf entry = BUF_INIT;
    struct jw w = jw_begin(&entry);
    struct buf content = BUF_INIT;

    *e = (struct model_entry){.tags = (unsigned)rand_below(rand, 1u << TAGS),
                              .expired = rand_below(rand, 6) == 0};
    for (size_t n = rand_below(rand, 6); n-- > 0;) {
        size_t word = rand_below(rand, WORDS);
        e->has |= 1u << word;
        buf_printf(&content, "%s%s", words[word], rand_below(rand, 3) == 0 ? "\n" : ", ");
    }
    jw_obj(&w);
    jw_kstr(&w, "content", buf_str(&content));
    jw_key(&w, "tags");
    jw_arr(&w);
    for (unsigned t = 0; t < TAGS; t++)
        if (e->tags & 1u << t)
            jw_str(&w, str_of(folded[t]));
    jw_end_arr(&w);
    if (e->expired)
        jw_ki64(&w, "expires_at", 5);
    jw_end_obj(&w);
    assert_int_equal(write_entry(r, buf_z(&entry)), FAULT_NONE);
    strcpy(e->id, r->id);
    buf_done(&entry);
    buf_done(&content);
}

static bool is_wanted(const struct model_entry *e, unsigned all, unsigned any_tag)
{
    return !e->expired && (e->has & all) == all && (any_tag == 0 || (e->tags & any_tag) != 0);
}

static bool was_found(struct json list, const char *id)
{
    for (struct json_iter it = {0}; json_next(list, &it);)
        if (str_eq(json_str(it.value, "id"), str_of(id)))
            return true;
    return false;
}

static void ask_random(struct rig *r, struct rand *rand)
{
    unsigned all = 0, any_tag = (unsigned)rand_below(rand, 1u << TAGS);
    uint64_t limit = rand_below(rand, 3) == 0 ? 1 + rand_below(rand, 5) : 1000;
    struct buf q = BUF_INIT;
    size_t expected = 0;

    buf_add_z(&q, "{\"query\":\"");
    for (size_t n = rand_below(rand, 3); n-- > 0;) {
        size_t word = rand_below(rand, WORDS);
        all |= 1u << word;
        buf_printf(&q, "%s ", folded[word]);
    }
    buf_printf(&q, "\",\"limit\":%llu", (unsigned long long)limit);
    if (any_tag != 0) {
        buf_add_z(&q, ",\"domain_tags\":[");
        for (unsigned t = 0, any = 0; t < TAGS; t++)
            if (any_tag & 1u << t)
                buf_printf(&q, "%s\"%s\"", any++ ? "," : "", folded[t]);
        buf_add_z(&q, "]");
    }
    buf_add_z(&q, "}");
    assert_int_equal(query(r, buf_z(&q)), FAULT_NONE);
    for (size_t i = 0; i < n_model; i++) {
        bool wanted = is_wanted(&model[i], all, any_tag);
        expected += wanted;
        if (limit == 1000 && wanted != was_found(rig_json(r), model[i].id))
            fail_msg("%s: entry %zu", buf_z(&q), i);
    }
    assert_int_equal(r->got.count, expected < limit ? expected : limit);
    buf_done(&q);
}

static void random_queries_find_what_a_look_at_everything_finds(void **state)
{
    struct rig *r = rig_new();
    struct rand rand = rand_seeded(11);

    n_model = 0;
    while (n_model < ENTRIES) {
        add_random(r, &rand);
        const struct model_entry *e = &model[rand_below(&rand, n_model)];
        assert_int_equal(get_as(r, &tester, e->id), !e->expired);
        ask_random(r, &rand);
    }
    for (int i = 0; i < 200; i++)
        ask_random(r, &rand);
    rig_free(r);
}

/* ---- kill -9 ---- */

static int ack_pipe;
static struct rig *writing;
static void start(void);

static void on_written(void *ctx, const struct data_answer *a)
{
    if (a->fault.cls != FAULT_NONE || write(ack_pipe, a->id.p, 36) != 36)
        _exit(3);
    start();
}

static void start(void)
{
    static uint64_t n;
    struct json_parser *p = json_parser_new();
    struct json doc;
    char entry[128];

    snprintf(entry, sizeof entry, "{\"content\":\"entry number%llu of many\",\"tags\":[\"t%llu\"]}",
             (unsigned long long)n, (unsigned long long)(n % 7));
    n++;
    if (!json_parse(p, str_of(entry), &doc) ||
        data_write(writing->ds, &tester, doc, on_written, NULL) == NULL)
        _exit(4);
    json_parser_free(p);
}

static void child(struct rig *r)
{
    char why[256];

    r->loop = loop_new();
    writing = r;
    if (data_open(r->loop, &r->cfg, &r->ds, why) != BH_OK)
        _exit(2);
    for (int i = 0; i < 8; i++)
        start();
    loop_run(r->loop);
}

static void a_killed_process_loses_nothing_it_acknowledged(void **state)
{
    struct rig *r = rig_new();
    struct rand rand = rand_seeded(9);
    char id[40] = "";
    size_t acked = 0;

    for (int round = 0; round < 10; round++) {
        int fds[2], status;
        data_close(r->ds);
        r->ds = NULL;
        assert_int_equal(pipe(fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
            ack_pipe = fds[1];
            child(r);
        }
        close(fds[1]);
        assert_int_equal(read(fds[0], id, 36), 36);
        usleep((useconds_t)rand_below(&rand, 20000));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        rig_open(r);
        do {
            assert_true(get_as(r, &tester, id));
            acked++;
        } while (read(fds[0], id, 36) == 36);
        close(fds[0]);
        /* What the table has, the index has: every entry is found by its words. */
        assert_int_equal(query(r, "{\"limit\":100000}"), FAULT_NONE);
        size_t there = r->got.count;
        assert_int_equal(query(r, "{\"query\":\"entry\",\"limit\":100000}"), FAULT_NONE);
        assert_int_equal(r->got.count, there);
        assert_true(there >= acked);
    }
    rig_free(r);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_is_told_and_loses_nothing(void **state)
{
    struct rig *r = rig_new();
    struct buf entry = BUF_INIT;
    size_t kept = 0;
    enum fault_class cls = FAULT_NONE;

    buf_add_z(&entry, "{\"content\":\"word ");
    for (int i = 0; i < 3000; i++)
        buf_printf(&entry, "w%d ", i);
    buf_add_z(&entry, "\"}");
    limit_files(2u << 20);
    for (int i = 0; i < 400 && cls == FAULT_NONE; i++) {
        cls = write_entry(r, buf_z(&entry));
        kept += cls == FAULT_NONE;
    }
    assert_int_equal(cls, FAULT_UNAVAILABLE);
    assert_true(str_contains(json_str(rig_fault(r), "error"), STR("data store")));
    assert_true(kept > 0);
    assert_int_equal(query(r, "{\"query\":\"word\",\"limit\":1000}"), FAULT_NONE);
    assert_int_equal(r->got.count, kept);
    limit_files(RLIM_INFINITY);
    assert_int_equal(write_entry(r, buf_z(&entry)), FAULT_NONE);
    assert_int_equal(query(r, "{\"query\":\"word\",\"limit\":1000}"), FAULT_NONE);
    assert_int_equal(r->got.count, kept + 1);
    buf_done(&entry);
    rig_free(r);
}

UNIT(data_test_model)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_queries_find_what_a_look_at_everything_finds),
        cmocka_unit_test(a_killed_process_loses_nothing_it_acknowledged),
        cmocka_unit_test(a_full_disk_is_told_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
