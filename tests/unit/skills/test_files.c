/* The filesystem backend: what lies on the disk, edits behind its back, and what a crash leaves. */
#include "ed25519_pair.h"
#include "skills/rig.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/crypto.h"

static int setup(void **state)
{
    struct rig *r = rig_new("filesystem", NULL);

    r->cfg.default_author = "operator";
    rig_reopen(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    rig_free(*state);
    return 0;
}

static const char *file(struct rig *r, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/acme/%s", r->path, name);
    return path;
}

static void write_file(struct rig *r, const char *name, const char *text)
{
    FILE *f = fopen(file(r, name), "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void append_file(struct rig *r, const char *name, const char *text)
{
    FILE *f = fopen(file(r, name), "a");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static const char *read_file(struct rig *r, const char *name)
{
    static char text[16384];
    FILE *f = fopen(file(r, name), "r");

    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static bool is_there(struct rig *r, const char *name)
{
    return access(file(r, name), F_OK) == 0;
}

static size_t n_versions(struct rig *r, const char *name)
{
    assert_int_equal(versions(r, name), FAULT_NONE);
    return r->got.count;
}

static void a_skill_is_a_readable_file_and_its_history(void **state)
{
    struct rig *r = *state;
    struct caller in_ns = tester;

    store(r, "x", "# Skill: x\nbody\n", NULL);
    assert_string_equal(read_file(r, "x.skill.md"), "# Skill: x\nbody\n");
    assert_non_null(strstr(read_file(r, "x.versions.jsonl"), "\"changed_by\":\"tester\""));
    assert_false(is_there(r, ".x.tmp"));
    in_ns.ns = STR("n1");
    store_as(r, &in_ns, "x", STR("other"), NULL);
    assert_string_equal(read_file(r, "@n1/x.skill.md"), "other");
    delete (r, "x");
    assert_false(is_there(r, "x.skill.md"));
    assert_false(is_there(r, "x.versions.jsonl"));
    assert_true(is_there(r, "@n1/x.skill.md"));
}

static void an_edit_is_noticed_by_whatever_is_asked_next(void **state)
{
    struct rig *r = *state;
    char before[32];

    store(r, "x", "# Status: Draft\none\n", NULL);
    store(r, "y", "y", NULL);
    strcpy(before, token(r));
    write_file(r, "x.skill.md", "# Status: Approved\ntwo\n"); /* in place */
    assert_string_not_equal(token(r), before);
    assert_string_equal(names(r, "{\"status\":\"Approved\"}"), "x");
    append_file(r, "x.skill.md", "three\n");
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "# Status: Approved\ntwo\nthree\n");
    assert_int_equal(n_versions(r, "x"), 3);
    write_file(r, "x.skill.md.new", "four"); /* as most editors do */
    char from[256];
    strcpy(from, file(r, "x.skill.md.new"));
    assert_int_equal(rename(from, file(r, "x.skill.md")), 0);
    assert_int_equal(n_versions(r, "x"), 4);
    assert_int_equal(metadata(r, "x"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "status"), "Draft");
    assert_str(json_str(rig_json(r), "author"), "tester"); /* it stays whose it was */
}

static void an_edit_is_in_the_history_before_it_is_overwritten(void **state)
{
    struct rig *r = *state;
    char edited[32];

    store(r, "x", "one", NULL);
    write_file(r, "x.skill.md", "edited");
    store(r, "x", "two", NULL);
    assert_int_equal(n_versions(r, "x"), 3);
    struct json_iter it = {0};
    struct json list = rig_json(r);
    assert_true(json_next(list, &it) && json_next(list, &it));
    keep(edited, sizeof edited, json_str(it.value, "version"));
    assert_null(json_str(it.value, "changed_by").p); /* nobody we know */
    assert_int_equal(load_as(r, &tester, "x", edited), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "edited");
}

static void a_status_edited_by_hand_moves_it(void **state)
{
    struct rig *r = *state;

    store(r, "x", "# Status: Draft\n", NULL);
    write_file(r, "x.skill.md", "# Status: Disabled\n");
    assert_int_equal(versions(r, "x"), FAULT_NONE);
    assert_non_null(strstr(buf_z(&r->json), "\"previous_status\":\"Draft\""));
    assert_int_equal(set_status(r, "x", "Approved"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "previous_status"), "Disabled");
}

static void a_file_put_there_becomes_a_skill(void **state)
{
    struct rig *r = *state;

    store(r, "x", "x", NULL);
    write_file(r, "dropped.skill.md", "# Status: Approved\n# Description: by hand\n");
    write_file(r, "notes.md", "no skill");
    write_file(r, "bad name.skill.md", "no skill");
    assert_string_equal(names(r, "{}"), "dropped,x");
    assert_int_equal(metadata(r, "dropped"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "author"), "operator");
    assert_str(json_str(rig_json(r), "description"), "by hand");
    assert_int_equal(n_versions(r, "dropped"), 1);
    struct caller ann = {.tenant = tester.tenant, .identity = STR("ann")};
    assert_int_equal(store_as(r, &ann, "dropped", STR("mine"), NULL), FAULT_STORAGE_CONFLICT);
}

static void a_file_removed_is_gone_and_may_come_back(void **state)
{
    struct rig *r = *state;

    store(r, "x", "one", NULL);
    store(r, "y", "y", NULL);
    assert_int_equal(unlink(file(r, "x.skill.md")), 0);
    assert_string_equal(names(r, "{}"), "y");
    assert_int_equal(load(r, "x"), FAULT_SKILL_NOT_FOUND);
    assert_int_equal(delete (r, "x"), FAULT_SKILL_NOT_FOUND);
    write_file(r, "x.skill.md", "two"); /* an editor that removes before it writes */
    assert_int_equal(n_versions(r, "x"), 2);
    assert_int_equal(unlink(file(r, "x.skill.md")), 0);
    assert_int_equal(store(r, "x", "new", NULL), FAULT_NONE);
    assert_true(r->got.created);
    assert_int_equal(n_versions(r, "x"), 1);
}

static void a_whole_directory_removed_is_empty(void **state)
{
    struct rig *r = *state;
    char dir[256];

    store(r, "x", "one", NULL);
    assert_string_equal(names(r, "{}"), "x");
    snprintf(dir, sizeof dir, "%s/acme", r->path);
    rm_all(dir);
    assert_string_equal(names(r, "{}"), "");
    assert_string_equal(token(r), "empty");
    assert_int_equal(store(r, "y", "again", NULL), FAULT_NONE);
    assert_string_equal(names(r, "{}"), "y");
}

static void edits_while_it_was_down_are_noticed(void **state)
{
    struct rig *r = *state;

    store(r, "x", "one", NULL);
    store(r, "y", "one", NULL);
    store(r, "z", "one", NULL);
    skills_close(r->sk);
    write_file(r, "x.skill.md", "two"); /* the same length */
    assert_int_equal(unlink(file(r, "y.skill.md")), 0);
    rig_open(r);
    assert_string_equal(names(r, "{}"), "x,z");
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "two");
    assert_int_equal(n_versions(r, "x"), 2);
    assert_int_equal(n_versions(r, "z"), 1);
}

static void the_index_is_made_anew_when_it_is_lost_or_broken(void **state)
{
    struct rig *r = *state;
    char index[256], before[32];

    store(r, "x", "# Type: data\n", "{\"author\":\"ann\",\"metadata_bag\":{\"tags\":[\"t\"]}}");
    set_status(r, "x", "Approved");
    strcpy(before, token(r));
    snprintf(index, sizeof index, "%s/.index.db", r->path);
    for (int broken = 0; broken < 2; broken++) {
        skills_close(r->sk);
        assert_int_equal(unlink(index), 0);
        if (broken) {
            FILE *f = fopen(index, "w");
            for (int i = 0; i < 1000; i++)
                fputs("this is not a database", f);
            fclose(f);
        }
        rig_open(r);
        assert_string_equal(token(r), before);
        assert_string_equal(names(r, "{\"tag\":\"t\",\"author\":\"ann\",\"type\":\"data\"}"), "x");
        assert_int_equal(n_versions(r, "x"), 2);
    }
}

static void what_is_no_text_is_no_skill(void **state)
{
    struct rig *r = *state;

    store(r, "x", "one", NULL);
    write_file(r, "binary.skill.md", "\xff\xfe\xfd");
    assert_int_equal(mkdir(file(r, "dir.skill.md"), 0700), 0);
    assert_string_equal(names(r, "{}"), "x");
    assert_int_equal(load(r, "binary"), FAULT_SKILL_NOT_FOUND);
    assert_int_equal(load(r, "dir"), FAULT_SKILL_NOT_FOUND);
}

static void a_history_of_the_runtime_is_read(void **state)
{
    struct rig *r = *state;
    static const char lines[] =
        "{\"name\":\"old\",\"version\":\"7692c3ad3540\",\"content_hash\":"
        "\"7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\","
        "\"status\":\"Draft\",\"changed_at\":1000,\"changed_by\":\"perry\"}\n"
        "{\"name\":\"old\",\"version\":\"3fc4ccfe7458\",\"content_hash\":"
        "\"3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\","
        "\"status\":\"Draft\",\"changed_at\":2000}\n";

    store(r, "x", "x", NULL);
    write_file(r, "old.versions.jsonl", lines); /* of the bodies "one" and "two" */
    write_file(r, "old.skill.md", "two");
    assert_int_equal(metadata(r, "old"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "author"), "perry");
    int64_t created = 0, updated = 0;
    json_as_i64(json_get(rig_json(r), "created_at"), &created);
    json_as_i64(json_get(rig_json(r), "updated_at"), &updated);
    assert_int_equal(created, 1000);
    assert_int_equal(updated, 2000);
    assert_int_equal(n_versions(r, "old"), 2);
    assert_int_equal(load_as(r, &tester, "old", "7692c3ad3540"), FAULT_VERSION_NOT_FOUND);
    assert_int_equal(load_as(r, &tester, "old", "3fc4ccfe7458"), FAULT_NONE);
    assert_int_equal(store(r, "old", "three", "{\"author\":\"other\"}"), FAULT_STORAGE_CONFLICT);
    assert_int_equal(store(r, "old", "three", NULL), FAULT_NONE);
    assert_int_equal(metadata(r, "old"), FAULT_NONE);
    assert_str(json_str(rig_json(r), "author"), "perry");
}

/* ---- what a crash leaves ---- */

static void a_body_on_its_way_arrives_when_its_line_did(void **state)
{
    struct rig *r = *state;
    char line[4096];

    store(r, "x", "one", NULL);
    store(r, "x", "two", NULL);
    strcpy(line, read_file(r, "x.versions.jsonl"));
    skills_close(r->sk);
    write_file(r, "x.skill.md", "one"); /* as if the rename had not happened */
    write_file(r, ".x.tmp", "two");
    write_file(r, "stray.skill.md", "stray");
    write_file(r, ".stray.tmp", "torn");
    rig_open(r);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "two");
    assert_int_equal(n_versions(r, "x"), 2);
    assert_int_equal(load(r, "stray"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "stray");
    assert_false(is_there(r, ".x.tmp"));
    assert_false(is_there(r, ".stray.tmp"));
}

static void a_body_without_its_line_never_was(void **state)
{
    struct rig *r = *state;

    store(r, "x", "one", NULL);
    skills_close(r->sk);
    write_file(r, ".x.tmp", "two");
    write_file(r, ".new.tmp", "never stored");
    append_file(r, "x.versions.jsonl", "{\"name\":\"x\",\"content_hash\":\"torn");
    rig_open(r);
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "one");
    assert_int_equal(n_versions(r, "x"), 1);
    assert_string_equal(names(r, "{}"), "x");
    store(r, "x", "three", NULL); /* behind the torn line */
    assert_int_equal(n_versions(r, "x"), 2);
    assert_null(strstr(read_file(r, "x.versions.jsonl"), "torn"));
}

static void a_delete_half_done_is_finished(void **state)
{
    struct rig *r = *state;

    store(r, "x", "one", NULL);
    store(r, "y", "one", NULL);
    store(r, "z", "one", NULL);
    skills_close(r->sk);
    append_file(r, "x.versions.jsonl", "{\"deleted\":true}\n");
    append_file(r, "y.versions.jsonl", "{\"deleted\":true}\n");
    assert_int_equal(unlink(file(r, "y.skill.md")), 0);
    rig_open(r);
    assert_string_equal(names(r, "{}"), "z");
    assert_false(is_there(r, "x.skill.md") || is_there(r, "x.versions.jsonl"));
    assert_false(is_there(r, "y.skill.md") || is_there(r, "y.versions.jsonl"));
    assert_int_equal(store(r, "x", "new", NULL), FAULT_NONE);
    assert_true(r->got.created);
}

/* ---- guards ---- */

static void a_second_process_is_refused(void **state)
{
    struct rig *r = *state;
    struct skills *second = NULL;
    char why[256] = "";

    assert_int_equal(skills_open(r->loop, &r->cfg, &second, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "in use"));
}

static void an_approval_written_by_hand_is_none_in_secured_mode(void **state)
{
    struct rig *r = *state;

    r->cfg.approval_key = ED25519_PAIR_PUBLIC;
    rig_reopen(r);
    store(r, "x", "# Status: Draft\nbody\n", NULL);
    write_file(r, "x.skill.md", "# Status: Approved\nbody\n");
    assert_int_equal(load(r, "x"), FAULT_NONE);
    assert_string_equal(buf_z(&r->source), "# Status: Draft\nbody\n");
    assert_string_equal(read_file(r, "x.skill.md"), "# Status: Draft\nbody\n");
    skills_close(r->sk);
    r->sk = NULL;
    r->cfg.approval_key = NULL;
    rig_open(r);
}

static void a_place_that_cannot_be_used_is_told_at_the_start(void **state)
{
    struct rig *r = *state;
    struct skills *sk = NULL;
    struct skills_config cfg = r->cfg;
    char why[256] = "", path[256];

    snprintf(path, sizeof path, "%s/no/such/place", r->dir);
    cfg.path = path;
    assert_int_equal(skills_open(r->loop, &cfg, &sk, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "no/such/place"));
    cfg.backend = "sqlite";
    assert_int_equal(skills_open(r->loop, &cfg, &sk, why), BH_UNAVAILABLE);
    cfg.backend = "redis";
    assert_int_equal(skills_open(r->loop, &cfg, &sk, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "redis"));
    cfg = r->cfg;
    cfg.approval_key = "not a key";
    assert_int_equal(skills_open(r->loop, &cfg, &sk, why), BH_UNAVAILABLE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(skills_test_files)
{
    const struct CMUnitTest tests[] = {
        T(a_skill_is_a_readable_file_and_its_history),
        T(an_edit_is_noticed_by_whatever_is_asked_next),
        T(an_edit_is_in_the_history_before_it_is_overwritten),
        T(a_status_edited_by_hand_moves_it),
        T(a_file_put_there_becomes_a_skill),
        T(a_file_removed_is_gone_and_may_come_back),
        T(a_whole_directory_removed_is_empty),
        T(edits_while_it_was_down_are_noticed),
        T(the_index_is_made_anew_when_it_is_lost_or_broken),
        T(what_is_no_text_is_no_skill),
        T(a_history_of_the_runtime_is_read),
        T(a_body_on_its_way_arrives_when_its_line_did),
        T(a_body_without_its_line_never_was),
        T(a_delete_half_done_is_finished),
        T(a_second_process_is_refused),
        T(an_approval_written_by_hand_is_none_in_secured_mode),
        T(a_place_that_cannot_be_used_is_told_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
