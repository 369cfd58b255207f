/* Random sequences of calls: all backends and a naive model agree after every step.  Of the shared
 * one there are two nodes, which take turns. */
#include "skills/rig.h"
#include "skills/model.h"
#include "base/rand.h"

static const char *const pieces[] = {
    "# Status: Approved\n",
    "# Status: draft\n\n",
    "# Status: Disabled v3:x\r\n",
    "# Skill: a\n",
    "  # Status: Approved\n",
    "# Status:\n",
    "# Description: d\n",
    "# Tags: x, y\n",
    "\n",
    "run:\n",
    "\xe2\x80\xa8",
    "text \xf0\x9f\x98\x80\n",
    "# Type: data\n",
};
static const char *const people[] = {"ann", "bob", "tester"};
static const char *const tag_sets[] = {"ops", "ops,daily", "daily"};
static const char *const patterns[] = {"", "^s", "[1-4]$", "s(1|3|5)", "x", "."};

static const char *const kinds[] = {"sqlite", "filesystem", "postgres"};
enum { N_RIGS = ARRAY_LEN(kinds), SHARED = 2 };

struct duel {
    struct rig *all[N_RIGS]; /* in the order of kinds[] */
    struct rig *a;           /* the first */
    struct skills *other;    /* the node of the shared one that is not in its rig now */
    struct model *m;
    struct rand rand;
    uint64_t seed;
    int step;
};

static uint64_t pick(struct duel *d, uint64_t n)
{
    return rand_below(&d->rand, n);
}

static void disagree(struct duel *d, const char *what)
{
    struct buf text = BUF_INIT;

    for (size_t i = 0; i < N_RIGS; i++)
        buf_printf(&text, "\n--- %s: %s %s", kinds[i], buf_z(&d->all[i]->json),
                   buf_z(&d->all[i]->fault));
    fail_msg("seed %llu, step %d: %s%s", (unsigned long long)d->seed, d->step, what, buf_z(&text));
}

static void agree(struct duel *d, const char *what)
{
    const struct rig *a = d->a;

    for (size_t i = 1; i < N_RIGS; i++) {
        const struct rig *b = d->all[i];
        if (a->got.fault.cls != b->got.fault.cls || !str_eq(buf_str(&a->json), buf_str(&b->json)) ||
            !str_eq(buf_str(&a->fault), buf_str(&b->fault)) || strcmp(a->token, b->token) != 0)
            disagree(d, what);
    }
}

/* One turn of all clocks: calls of the stores get the same time. */
static void same_time(struct duel *d)
{
    struct clock *a = loop_clock(d->a->loop);

    for (size_t i = 1; i < N_RIGS; i++)
        clock_set(loop_clock(d->all[i]->loop), clock_now_ms(a), clock_wall_ms(a));
}

#define ALL(d, call) \
    do { \
        struct skills_request *calls[N_RIGS]; \
        same_time(d); \
        for (size_t each = 0; each < N_RIGS; each++) { \
            struct rig *r = (d)->all[each]; \
            calls[each] = (call); \
        } \
        for (size_t each = 0; each < N_RIGS; each++) \
            rig_wait((d)->all[each], calls[each]); \
        agree(d, #call); \
    } while (0)

static void take_turns(struct duel *d)
{
    struct skills *now = d->all[SHARED]->sk;

    d->all[SHARED]->sk = d->other;
    d->other = now;
}

static void check_skill(struct duel *d, struct model_skill *s)
{
    struct str name = str_of(s->name);

    ALL(d, skills_load(r->sk, &tester, name, STR_NULL, on_answer, r));
    assert_int_equal(d->a->got.fault.cls, s->exists ? FAULT_NONE : FAULT_SKILL_NOT_FOUND);
    if (s->exists) {
        struct json meta = json_get(rig_json(d->a), "metadata");
        char hash[65];
        model_hash(s->body, hash);
        if (strcmp(buf_z(&d->a->source), s->body) != 0)
            disagree(d, "the body is not the model's");
        assert_string_equal(d->a->hash, hash);
        assert_int_equal(d->a->got.status, s->status);
        assert_str(json_str(meta, "author"), s->author);
    }
    ALL(d, skills_metadata(r->sk, &tester, name, on_answer, r));
    ALL(d, skills_versions(r->sk, &tester, name, on_answer, r));
    if (!s->exists)
        return;
    size_t i = 0;
    assert_int_equal(d->a->got.count, s->n);
    for (struct json_iter it = {0}; json_next(rig_json(d->a), &it); i++) {
        const struct model_version *v = &s->history[i];
        assert_str(json_str(it.value, "content_hash"), v->hash);
        assert_str(json_str(it.value, "status"), naive_name(v->status));
        assert_str(json_str(it.value, "changed_by"), v->by);
        assert_true(str_eq(json_str(it.value, "previous_status"),
                           v->has_previous ? str_of(naive_name(v->previous)) : STR_NULL));
    }
    const struct model_version *old = &s->history[pick(d, s->n)];
    struct str version = str_make(old->hash, 12);
    ALL(d, skills_load(r->sk, &tester, name, version, on_answer, r));
    assert_string_equal(buf_z(&d->a->source), old->body);
}

static bool has_tag(const struct model_skill *s, const char *tag)
{
    char needle[32];

    snprintf(needle, sizeof needle, ",%s,", tag);
    return s->has_tags && strstr(s->tags, needle) != NULL;
}

static void check_query(struct duel *d)
{
    struct skills_filter f = {0};
    struct str tag = str_of(pick(d, 2) ? "ops" : "daily");
    char want[256] = "";
    size_t n = 0, skipped = 0, taken = 0;
    bool by_tag = pick(d, 4) == 0, by_author = pick(d, 4) == 0;

    if (pick(d, 3) == 0) {
        f.by_status = true;
        f.statuses = (unsigned)pick(d, 8);
    }
    if (by_tag)
        f.tags = &tag, f.n_tags = 1;
    if (by_author)
        f.author = str_of(people[pick(d, 3)]);
    f.by_limit = pick(d, 3) == 0;
    f.limit = f.by_limit ? pick(d, 4) : 0;
    f.offset = pick(d, 3) == 0 ? pick(d, 4) : 0;
    ALL(d, skills_query(r->sk, &tester, &f, on_answer, r));
    for (size_t i = 0; i < MODEL_SKILLS; i++) { /* their names are in order */
        const struct model_skill *s = &d->m->skills[i];
        if (!s->exists || (f.by_status && !(f.statuses & 1u << s->status)) ||
            (by_tag && !has_tag(s, tag.p)) || (by_author && !str_eq(f.author, str_of(s->author))))
            continue;
        if (skipped++ < f.offset || (f.by_limit && taken >= f.limit))
            continue;
        taken++;
        n += (size_t)snprintf(want + n, sizeof want - n, "%s,", s->name);
    }
    char got[256] = "";
    n = 0;
    for (struct json_iter it = {0}; json_next(rig_json(d->a), &it);)
        n +=
            (size_t)snprintf(got + n, sizeof got - n, "%.*s,", STR_FMT(json_str(it.value, "name")));
    assert_string_equal(got, want);
    f = (struct skills_filter){.name_pattern = str_of(patterns[pick(d, ARRAY_LEN(patterns))])};
    ALL(d, skills_query(r->sk, &tester, &f, on_answer, r));
}

/* ---- steps ---- */

static char *random_body(struct duel *d)
{
    struct buf out = BUF_INIT;

    for (size_t n = pick(d, 7); n-- > 0;)
        buf_add_z(&out, pieces[pick(d, ARRAY_LEN(pieces))]);
    return buf_take(&out);
}

static void write_metadata(const struct model_write *w, struct buf *out)
{
    struct jw j = jw_begin(out);
    struct str rest = str_of(w->tags), tag;

    jw_obj(&j);
    jw_kstr_opt(&j, "author", str_of(w->author));
    if (w->status >= 0)
        jw_kstr(&j, "status", str_of(naive_name((enum skill_status)w->status)));
    if (w->tags != NULL) {
        jw_key(&j, "metadata_bag");
        jw_obj(&j);
        jw_key(&j, "tags");
        jw_arr(&j);
        while (str_split(&rest, ',', &tag))
            jw_str(&j, tag);
        jw_end_arr(&j);
        jw_end_obj(&j);
    }
    jw_end_obj(&j);
}

static void step_store(struct duel *d, struct model_skill *s)
{
    char *body = random_body(d);
    struct model_write w = {.body = body,
                            .author = pick(d, 4) == 0 ? people[pick(d, 3)] : NULL,
                            .tags = pick(d, 3) == 0 ? tag_sets[pick(d, 3)] : NULL,
                            .status = pick(d, 5) == 0 ? (int)pick(d, 3) : -1,
                            .identity = people[pick(d, 3)],
                            .attest = pick(d, 3) > 0};
    struct caller who = {.tenant = tester.tenant,
                         .identity = str_of(w.identity),
                         .attest = w.attest};
    struct buf m = BUF_INIT;
    struct json_parser *p = json_parser_new();
    struct skills_write ask = {.name = str_of(s->name), .source = str_of(body)};

    write_metadata(&w, &m);
    assert_true(json_parse(p, buf_str(&m), &ask.metadata));
    ALL(d, skills_store(r->sk, &who, &ask, on_answer, r));
    assert_int_equal(d->a->got.fault.cls, model_store(s, &w));
    json_parser_free(p);
    buf_done(&m);
    free(body);
}

static void step(struct duel *d)
{
    struct model_skill *s = &d->m->skills[pick(d, MODEL_SKILLS)];
    struct str name = str_of(s->name);
    char before[32];

    strcpy(before, d->a->token);
    take_turns(d);
    switch (pick(d, 8)) {
    case 0: {
        enum skill_status to = (enum skill_status)pick(d, 3);
        struct str word = str_of(naive_name(to));
        ALL(d, skills_update_status(r->sk, &tester, name, word, on_answer, r));
        assert_int_equal(d->a->got.fault.cls, model_status(s, to, "tester"));
        break;
    }
    case 1:
        ALL(d, skills_delete(r->sk, &tester, name, name, true, on_answer, r));
        assert_int_equal(d->a->got.fault.cls, s->exists ? FAULT_NONE : FAULT_SKILL_NOT_FOUND);
        if (s->exists)
            model_forget(s);
        break;
    case 2:
        if (pick(d, 6) == 0) {
            for (size_t i = 0; i < N_RIGS; i++)
                rig_reopen(d->all[i]);
        }
        break;
    default:
        step_store(d, s);
    }
    take_turns(d); /* what one node wrote the other sees at once */
    check_skill(d, s);
    check_query(d);
    ALL(d, skills_version(r->sk, &tester, on_answer, r)); /* equal content, equal token */
}

static void duel(uint64_t seed, int steps)
{
    struct duel d = {.m = xcalloc(1, sizeof *d.m), .rand = rand_seeded(seed), .seed = seed};
    char why[256] = "";

    for (size_t i = 0; i < N_RIGS; i++)
        d.all[i] = rig_new(kinds[i], NULL);
    d.a = d.all[0];
    if (skills_open(d.all[SHARED]->loop, &d.all[SHARED]->cfg, &d.other, why) != BH_OK)
        fail_msg("the second node: %s", why);
    for (size_t i = 0; i < MODEL_SKILLS; i++)
        snprintf(d.m->skills[i].name, sizeof d.m->skills[i].name, "s%zu", i);
    for (d.step = 0; d.step < steps; d.step++)
        step(&d);
    for (size_t i = 0; i < MODEL_SKILLS; i++)
        model_forget(&d.m->skills[i]);
    free(d.m);
    skills_close(d.other);
    for (size_t i = 0; i < N_RIGS; i++)
        rig_free(d.all[i]);
}

static void all_backends_agree_with_the_model(void **state)
{
    const char *seeds = getenv("SKILL_SEEDS"); /* more of them, by hand */
    uint64_t n = seeds != NULL ? strtoull(seeds, NULL, 10) : 3;

    for (uint64_t seed = 1; seed <= n; seed++)
        duel(seed, 100);
}

UNIT(skills_test_model)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends_agree_with_the_model),
    };
    return cmocka_run_group_tests(tests, pg_setup, pg_teardown);
}
