/* kill -9 in the middle of writes, and a full disk: no torn skill, no history without a body, no
 * acknowledged write lost; every backend. */
#include "skills/rig.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "base/crypto.h"
#include "base/rand.h"
#include "store/jobs.h"

enum { NAMES = 4, IN_FLIGHT = 8, ROUNDS = 12 };

static const char *backend;

static int setup(void **state)
{
    *state = rig_new(backend, NULL);
    return 0;
}

static int teardown(void **state)
{
    rig_free(*state);
    return 0;
}

/* A body that tells its number and that it is whole. */
static void body_of(uint64_t n, struct buf *out)
{
    struct rand r = rand_seeded(n + 1);
    size_t pad = rand_below(&r, 6000);

    buf_reset(out);
    buf_printf(out, "# Skill: s\n# Status: Draft\nnumber %llu\n", (unsigned long long)n);
    for (size_t i = 0; i < pad; i++)
        buf_add_c(out, (char)('a' + (i * 7 + n) % 26));
    buf_add_z(out, "\nend\n");
}

static bool number_of(struct str body, uint64_t *ret_n)
{
    struct buf want = BUF_INIT;
    const char *at = memmem(body.p, body.n, "number ", 7);

    if (at == NULL)
        return false;
    *ret_n = strtoull(at + 7, NULL, 10);
    body_of(*ret_n, &want);
    bool same = str_eq(buf_str(&want), body);
    buf_done(&want);
    return same;
}

/* ---- the child: writes as fast as it can, tells every acknowledgement ---- */

struct writer {
    struct rig *r;
    int pipe;
    uint64_t next;
    struct slot {
        struct writer *w;
        uint64_t n;
    } slots[IN_FLIGHT];
};

static void start(struct slot *s);

static void on_written(void *ctx, const struct skills_answer *a)
{
    struct slot *s = ctx;

    if (a->fault.cls != FAULT_NONE || write(s->w->pipe, &s->n, sizeof s->n) != sizeof s->n)
        _exit(3);
    start(s);
}

static void start(struct slot *s)
{
    struct buf body = BUF_INIT;
    char name[8];

    s->n = s->w->next++;
    snprintf(name, sizeof name, "s%d", (int)(s->n % NAMES));
    body_of(s->n, &body);
    struct skills_write w = {.name = str_of(name), .source = buf_str(&body)};
    if (skills_store(s->w->r->sk, &tester, &w, on_written, s) == NULL)
        _exit(4);
    buf_done(&body);
}

static void child(struct rig *r, int pipe, uint64_t first)
{
    struct writer w = {.r = r, .pipe = pipe, .next = first};
    struct loop *loop = loop_new();
    char why[256];

    r->loop = loop;
    if (skills_open(loop, &r->cfg, &r->sk, why) != BH_OK)
        _exit(2);
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        w.slots[i].w = &w;
        start(&w.slots[i]);
    }
    loop_run(loop);
}

/* ---- the parent ---- */

static uint64_t last_acked[NAMES];

static uint64_t crash_once(struct rig *r, uint64_t first, useconds_t after_us)
{
    int fds[2], status;
    uint64_t n, end = first;

    skills_close(r->sk);
    r->sk = NULL;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0)
        child(r, fds[1], first);
    close(fds[1]);
    if (read(fds[0], &n, sizeof n) != sizeof n) /* it is under way */
        fail_msg("the child wrote nothing");
    last_acked[n % NAMES] = n;
    usleep(after_us);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    while (read(fds[0], &n, sizeof n) == sizeof n) {
        last_acked[n % NAMES] = n;
        end = n > end ? n : end;
    }
    close(fds[0]);
    rig_open(r);
    return end + 2 * IN_FLIGHT;
}

static void check_history(struct rig *r, const char *name)
{
    char hash[80], last[80] = "";
    size_t n;

    strcpy(hash, r->hash); /* of the load before */
    assert_int_equal(versions(r, name), FAULT_NONE);
    n = r->got.count;
    for (struct json_iter it = {0}; json_next(rig_json(r), &it);)
        keep(last, sizeof last, json_str(it.value, "content_hash"));
    assert_string_equal(last, hash); /* the history ends with the body, and every body has one */
    assert_true(n > 0);
}

static void check_acked(struct rig *r)
{
    for (size_t i = 0; i < NAMES; i++) {
        char name[8];
        uint64_t n = 0;
        if (last_acked[i] == 0)
            continue;
        snprintf(name, sizeof name, "s%zu", i);
        assert_int_equal(load(r, name), FAULT_NONE);
        if (!number_of(buf_str(&r->source), &n))
            fail_msg("a torn body: %.100s", buf_z(&r->source));
        if (n < last_acked[i])
            fail_msg("%s is at %llu, %llu was acknowledged", name, (unsigned long long)n,
                     (unsigned long long)last_acked[i]);
        assert_int_equal(n % NAMES, i);
        check_history(r, name);
        struct buf acked = BUF_INIT;
        uint8_t sum[SHA256_BYTES];
        char version[13];
        body_of(last_acked[i], &acked);
        sha256(buf_str(&acked), sum);
        for (size_t k = 0; k < 6; k++)
            snprintf(version + 2 * k, 3, "%02x", sum[k]);
        assert_int_equal(load_as(r, &tester, name, version), FAULT_NONE);
        assert_true(str_eq(buf_str(&r->source), buf_str(&acked)));
        buf_done(&acked);
    }
}

static void a_killed_process_loses_nothing_it_acknowledged(void **state)
{
    struct rig *r = *state;
    struct rand rand = rand_seeded(5);
    uint64_t next = NAMES;

    memset(last_acked, 0, sizeof last_acked);
    for (int i = 0; i < ROUNDS; i++) {
        next = crash_once(r, next, (useconds_t)rand_below(&rand, 30000));
        check_acked(r);
        assert_int_equal(query_as(r, &tester, "{}"), FAULT_NONE);
        assert_true(r->got.count <= NAMES && r->got.count > 0);
    }
    assert_true(next > 50);
}

/* ---- a full disk ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN); /* writing past the limit then fails like a full disk */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_is_told_and_loses_nothing(void **state)
{
    struct rig *r = *state;
    struct buf body = BUF_INIT;
    uint64_t n, refused = 0, last = 0;
    char before[32];

    limit_files(900u << 10);
    for (n = 1; n < 600 && refused == 0; n++) {
        body_of(n, &body);
        enum fault_class cls = store_as(r, &tester, "x", buf_str(&body), NULL);
        if (cls == FAULT_NONE)
            last = n;
        else
            refused = n;
        assert_true(cls == FAULT_NONE || cls == FAULT_UNAVAILABLE);
    }
    assert_true(refused > 1);
    assert_true(str_contains(json_str(rig_fault(r), "error"), STR("skill store")));
    struct db_jobs_stats stats;
    skills_stats(r->sk, &stats);
    assert_false(stats.healthy);
    assert_int_equal(load(r, "x"), FAULT_NONE); /* reading goes on */
    assert_true(number_of(buf_str(&r->source), &n));
    assert_int_equal(n, last);
    limit_files(RLIM_INFINITY);
    strcpy(before, token(r));
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_true(number_of(buf_str(&r->source), &n) && n == last);
    check_history(r, "x");
    body_of(9999, &body);
    assert_int_equal(store_as(r, &tester, "x", buf_str(&body), NULL), FAULT_NONE);
    assert_string_not_equal(token(r), before);
    skills_stats(r->sk, &stats);
    assert_true(stats.healthy);
    assert_int_equal(versions(r, "x"), FAULT_NONE);
    assert_int_equal(r->got.count, last + 1); /* what was refused left nothing */
    buf_done(&body);
}

/* ---- a server that several nodes share ---- */

/* Every version in the history has its own whole body, and the last one is the current. */
static size_t check_whole(struct rig *r, const char *name)
{
    struct json_parser *p = json_parser_new();
    struct json list;
    size_t n = 0;

    assert_int_equal(load(r, name), FAULT_NONE);
    check_history(r, name);
    char *copy = xstrdup(buf_z(&r->json));
    assert_true(json_parse(p, str_of(copy), &list));
    for (struct json_iter it = {0}; json_next(list, &it); n++) {
        char version[16];
        uint64_t number, of = (uint64_t)(name[1] - '0');
        keep(version, sizeof version, json_str(it.value, "version"));
        assert_int_equal(load_as(r, &tester, name, version), FAULT_NONE);
        assert_true(str_eq(str_of(r->hash), json_str(it.value, "content_hash")));
        assert_true(number_of(buf_str(&r->source), &number));
        assert_int_equal(number % NAMES, of);
    }
    json_parser_free(p);
    free(copy);
    return n;
}

static void two_nodes_never_interleave_body_and_history(void **state)
{
    enum { NODES = 2 };
    struct rig *r = *state;
    int fds[NODES][2];
    pid_t pids[NODES];
    size_t acked = 0, kept = 0;
    uint64_t n;

    skills_close(r->sk);
    r->sk = NULL;
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(pipe(fds[i]), 0);
        pids[i] = fork();
        if (pids[i] == 0)
            child(r, fds[i][1], (uint64_t)i * 1000000 + NAMES);
        close(fds[i][1]);
    }
    for (int i = 0; i < NODES; i++) /* both get their turns */
        for (int k = 0; k < 40; k++, acked++)
            if (read(fds[i][0], &n, sizeof n) != sizeof n)
                fail_msg("node %d wrote nothing more", i);
    for (int i = 0; i < NODES; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
        while (read(fds[i][0], &n, sizeof n) == sizeof n)
            acked++;
        close(fds[i][0]);
    }
    rig_open(r);
    for (int i = 0; i < NAMES; i++) {
        char name[8];
        snprintf(name, sizeof name, "s%d", i);
        kept += check_whole(r, name);
    }
    /* each acknowledged write is one version; of those under way some may be there too */
    assert_in_range(kept, acked, acked + (size_t)NODES * IN_FLIGHT);
}

static void a_server_that_crashes_loses_nothing_and_is_waited_for(void **state)
{
    struct rig *r = *state;
    struct buf body = BUF_INIT;
    uint64_t n;

    body_of(4, &body);
    assert_int_equal(store_as(r, &tester, "s0", buf_str(&body), NULL), FAULT_NONE);
    pg_stop(SIGQUIT);
    body_of(8, &body);
    assert_int_equal(store_as(r, &tester, "s0", buf_str(&body), NULL), FAULT_UNAVAILABLE);
    assert_true(str_contains(json_str(rig_fault(r), "error"), STR("skill store")));
    assert_int_equal(load(r, "s0"), FAULT_UNAVAILABLE);
    pg_start();
    for (int i = 0; i < 200 && load(r, "s0") != FAULT_NONE; i++)
        usleep(50000);
    assert_true(number_of(buf_str(&r->source), &n) && n == 4);
    assert_int_equal(store_as(r, &tester, "s0", buf_str(&body), NULL), FAULT_NONE);
    assert_int_equal(check_whole(r, "s0"), 2);
    buf_done(&body);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(skills_test_crash)
{
    const struct CMUnitTest tests[] = {
        T(a_killed_process_loses_nothing_it_acknowledged),
        T(a_full_disk_is_told_and_loses_nothing),
    };
    const struct CMUnitTest shared[] = {
        T(a_killed_process_loses_nothing_it_acknowledged),
        T(two_nodes_never_interleave_body_and_history),
        T(a_server_that_crashes_loses_nothing_and_is_waited_for),
    };
    int failed = 0;

    backend = "sqlite";
    failed += cmocka_run_group_tests_name("sqlite", tests, NULL, NULL);
    backend = "filesystem";
    failed += cmocka_run_group_tests_name("filesystem", tests, NULL, NULL);
    backend = "postgres"; /* its disk is another process's */
    failed += cmocka_run_group_tests_name("postgres", shared, pg_setup, pg_teardown);
    return failed;
}
