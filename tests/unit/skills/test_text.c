/* Header lines: the cases that bite, and thousands of random bodies against the naive reader. */
#include "skills/naive.h"
#include "unit.h"
#include "ed25519_pair.h"
#include "base/mem.h"
#include "base/rand.h"
#include "skills/approval.h"
#include "skills/text.h"

static const char *const pieces[] = {
    "#",
    "# Status: Approved",
    "#Status:draft",
    "# Status :\tDisabled v3:x",
    "# Status:",
    "Status",
    "# Skill: a",
    "# Skill:",
    "  # Status: Approved",
    "# Tags: a",
    ":",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    " ",
    "\t",
    "\xc2\xa0",
    "\xe2\x80\xa8",
    "\xe2\x80\xa9",
    "x",
    "\xef\xbb\xbf",
    "\xf0\x9f\x98\x80",
    "# STATUS: Approved",
    "\n  \n",
    "Skill",
    "Draft",
    "#\n\nStatus\n:\n\nApproved\n",
    "\x0b",
};

static void random_body(struct rand *r, struct buf *out)
{
    size_t n = rand_below(r, 14);

    buf_reset(out);
    for (size_t i = 0; i < n; i++)
        buf_add_z(out, pieces[rand_below(r, ARRAY_LEN(pieces))]);
}

static void compare(struct str body)
{
    enum skill_status a = SKILL_DRAFT, b = SKILL_DRAFT;
    struct buf got = BUF_INIT, want = BUF_INIT;
    bool found = skill_status_read(body, &a, NULL);

    if (found != naive_status(body, &b) || a != b)
        fail_msg("status of \"%.*s\"", STR_FMT(body));
    for (int s = 0; s < N_SKILL_STATUSES; s++) {
        buf_reset(&got);
        buf_reset(&want);
        skill_status_rewrite(body, (enum skill_status)s, &got);
        naive_rewrite(body, (enum skill_status)s, &want);
        if (!str_eq(buf_str(&got), buf_str(&want)))
            fail_msg("\"%.*s\" became \"%s\", not \"%s\"", STR_FMT(body), buf_z(&got),
                     buf_z(&want));
        assert_int_equal(skill_status_of(buf_str(&got)), s);
    }
    buf_reset(&got);
    buf_reset(&want);
    skill_force_draft(body, &got);
    naive_force_draft(body, &want);
    if (!str_eq(buf_str(&got), buf_str(&want)))
        fail_msg("\"%.*s\" was forced to \"%s\", not \"%s\"", STR_FMT(body), buf_z(&got),
                 buf_z(&want));
    buf_done(&got);
    buf_done(&want);
}

static void random_bodies_match_the_naive_reader(void **state)
{
    struct rand r = rand_seeded(20);
    struct buf body = BUF_INIT;

    for (int i = 0; i < 20000; i++) {
        random_body(&r, &body);
        compare(buf_str(&body));
    }
    buf_done(&body);
}

static void long_runs_stay_linear(void **state)
{
    /* Each of these took hours with a reader that looks at a run once per line. */
    static const char *units[] = {"\n", "#\n", " ", "#", "# Status\n", "# Skill\n\n", "\r\n#"};
    struct buf body = BUF_INIT, out = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        buf_reset(&body);
        buf_reset(&out);
        while (body.n < 1u << 20)
            buf_add_z(&body, units[i]);
        buf_add_z(&body, "x");
        skill_status_rewrite(buf_str(&body), SKILL_APPROVED, &out);
        assert_int_equal(skill_status_of(buf_str(&out)), SKILL_APPROVED);
    }
    buf_done(&body);
    buf_done(&out);
}

static void the_token_behind_the_word_is_kept(void **state)
{
    enum skill_status s;
    struct str token;

    assert_true(skill_status_read(STR("# Status:  approved   v3:abc  def \n"), &s, &token));
    assert_int_equal(s, SKILL_APPROVED);
    assert_str(token, "v3:abc  def");
    assert_true(skill_status_read(STR("# Status: Draft\n"), &s, &token));
    assert_null(token.p);
    assert_false(skill_status_read(STR("# Status: Approvedv3:abc\n"), &s, &token));
}

static struct str type_of(struct str body)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);
    struct str type = skill_project(body, &w);

    buf_done(&out);
    return type;
}

static void projections(void **state)
{
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"", "{}"},
        {"# Vars: (none)\n# Returns: (NONE)\n# Tags: (none)\n", "{}"},
        {"# Vars: A, B=\"x, C=1\", D\n", "{\"vars\":[\"A\",\"B\"]}"},
        {"# Vars: A=1, 2, B=2\n", "{\"vars\":[\"A\",\"B\"]}"},
        {"# Vars: A\n# Vars: B\n", "{\"vars\":[\"B\"]}"},
        {"# Returns: A,,B , C=1\n", "{\"returns\":[\"A\",\"B\"]}"},
        {"  # Tags: indented\n", "{}"},
        {"x = \"\"\"\n# Tags: quoted\n\"\"\"\n# Tags: real\n", "{\"tags\":[\"real\"]}"},
        {"# Tags: prose\n```skill\n# Tags: code\n```\n# Tags: after\n", "{\"tags\":[\"code\"]}"},
        {"# Tags: a\r\n# Returns: R\r\n", "{\"tags\":[\"a\"],\"returns\":[\"R\"]}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf out = BUF_INIT;
        struct jw w = jw_begin(&out);
        jw_obj(&w);
        skill_project(str_of(cases[i].body), &w);
        jw_end_obj(&w);
        assert_string_equal(buf_z(&out), cases[i].want);
        buf_done(&out);
    }
    assert_str(type_of(STR("# type: DATA\n")), "data");
    assert_str(type_of(STR("# Type: data\n# Type: nonsense\n")), "data");
    assert_str(type_of(STR("")), "procedural");
}

/* ---- signing ---- */

static void what_is_signed_is_accepted_and_nothing_else(void **state)
{
    struct buf body = BUF_INIT, out = BUF_INIT;
    struct rand r = rand_seeded(3);
    char why[256];
    int ok = 0;

    struct ed25519_key *sign = ed25519_private(STR(ED25519_PAIR_PRIVATE)),
                       *check = ed25519_public(STR(ED25519_PAIR_PUBLIC));
    for (int i = 0; i < 300; i++) {
        random_body(&r, &body);
        buf_reset(&out);
        if (!skill_sign(buf_str(&body), sign, &out, why))
            continue; /* another status line comes first */
        ok++;
        assert_true(skill_is_approved(buf_str(&out), check, NULL));
        struct buf a = BUF_INIT, b = BUF_INIT;
        skill_canonical(buf_str(&body), &a);
        skill_canonical(buf_str(&out), &b);
        assert_true(str_eq(buf_str(&a), buf_str(&b)));
        buf_done(&a);
        buf_done(&b);
        buf_add_z(&out, "\nedited");
        assert_false(skill_is_approved(buf_str(&out), check, NULL));
    }
    assert_true(ok > 100);
    ed25519_free(sign);
    ed25519_free(check);
    buf_done(&body);
    buf_done(&out);
}

static void the_canonical_text_leaves_out_status_and_tags(void **state)
{
    struct buf out = BUF_INIT;

    skill_canonical(STR("# Skill: a\r\n # STATUS : x\r# tags: y\n\n# Tagsy: z\n#Status\n"), &out);
    assert_string_equal(buf_z(&out), "# Skill: a\n\n# Tagsy: z\n#Status\n");
    buf_done(&out);
}

static void a_body_that_nobody_would_accept_is_not_signed(void **state)
{
    struct buf out = BUF_INIT;
    char why[256] = "";

    struct ed25519_key *sign = ed25519_private(STR(ED25519_PAIR_PRIVATE));
    assert_false(skill_sign(STR("\n  # Status: Draft\n\n# Skill: a\n"), sign, &out, why));
    assert_non_null(strstr(why, "Status"));
    assert_int_equal(out.n, 0);
    assert_null(ed25519_private(STR(ED25519_PAIR_PUBLIC)));
    ed25519_free(sign);
}

UNIT(skills_test_text)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bodies_match_the_naive_reader),
        cmocka_unit_test(long_runs_stay_linear),
        cmocka_unit_test(the_token_behind_the_word_is_kept),
        cmocka_unit_test(projections),
        cmocka_unit_test(what_is_signed_is_accepted_and_nothing_else),
        cmocka_unit_test(the_canonical_text_leaves_out_status_and_tags),
        cmocka_unit_test(a_body_that_nobody_would_accept_is_not_signed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
