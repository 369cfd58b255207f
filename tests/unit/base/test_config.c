/* Promises of base/config.h, with tables of our own: a shop with a counter, lamps and pets. */
#include "unit.h"
#include <unistd.h>
#include "base/config.h"
#include "base/mem.h"

struct counter {
    char *name;
    uint32_t height;
    int colour, untouched;
    char **staff;
    uint64_t drawers, depth;
};
static const struct counter counter_defaults = {.untouched = 7, .drawers = 12, .depth = 65536};
#define AT(member) offsetof(struct counter, member)
static const struct config_key counter_keys[] = {
    {"name", CFG_TEXT, CFG_RESTART, AT(name), "front", .what = "Its name."},
    {"counter.height", CFG_NUMBER, CFG_RELOAD, AT(height), "90", .min = 50, .max = 120,
     .what = "In cm."},
    {"counter.colour", CFG_ENUM, CFG_RESTART, AT(colour), "oak", "ash|oak|elm",
     .what = "Which wood."},
    {0},
};
static const struct config_section counter_config = {.keys = counter_keys,
                                                     .size = sizeof(struct counter),
                                                     .defaults = &counter_defaults};

static const struct config_key staff_keys[] = {
    {"staff", CFG_TEXTS, CFG_RELOAD, AT(staff), .what = "Who stands there."},
    {"drawers", CFG_COUNT, CFG_RELOAD, AT(drawers), .min = 1, .what = "How many."},
    {"depth", CFG_BYTES, CFG_RELOAD, AT(depth), .what = "How much one takes."},
    {0},
};
static const struct config_section staff_config = {.keys = staff_keys, .into = &counter_config};

struct lamp {
    bool on;
    char *hidden;
};
static bool check_lamp(void *settings, char *ret_why)
{
    struct lamp *l = settings;

    if (!l->on || l->hidden != NULL)
        return true;
    snprintf(ret_why, 256, "counter.lamp: a lamp that is on needs its fuse");
    return false;
}
static const struct config_key lamp_keys[] = {
    {"counter.lamp.on", CFG_BOOL, CFG_RELOAD, offsetof(struct lamp, on), "no", .what = "Shines."},
    {"counter.lamp.fuse", CFG_SECRET, CFG_RESTART, offsetof(struct lamp, hidden), .what = "Fuse."},
    {0},
};
static const struct config_section lamp_config = {.keys = lamp_keys,
                                                  .size = sizeof(struct lamp),
                                                  .check = check_lamp};

struct pet {
    char *kind, *name;
};
struct cat {
    struct pet base;
    uint32_t lives;
};
struct dog {
    struct pet base;
    char *collar, **tricks;
};
static const struct config_key pet_keys[] = {
    {"kind", CFG_TEXT, CFG_RESTART, offsetof(struct pet, kind), .required = true, .what = "Kind."},
    {"name", CFG_TEXT, CFG_RESTART, offsetof(struct pet, name), .required = true, .what = "Name."},
    {0},
};
static const struct config_section pet_entry = {.keys = pet_keys, .size = sizeof(struct pet)};
static const struct config_key cat_keys[] = {
    {"lives", CFG_NUMBER, CFG_RESTART, offsetof(struct cat, lives), "9", .max = 9, .what = "Left."},
    {0},
};
static const struct config_section cat_config = {.name = "cat",
                                                 .keys = cat_keys,
                                                 .size = sizeof(struct cat)};
static bool check_dog(void *settings, char *ret_why)
{
    struct dog *d = settings;

    if (strcmp(d->collar, "none") != 0)
        return true;
    snprintf(ret_why, 256, "a dog is on a leash");
    return false;
}
static const struct config_key dog_keys[] = {
    {"collar", CFG_TEXT, CFG_RESTART, offsetof(struct dog, collar), .required = true,
     .what = "Colour."},
    {"tricks", CFG_TEXTS, CFG_RESTART, offsetof(struct dog, tricks), .what = "What it can do."},
    {0},
};
static const struct config_section dog_config = {.name = "dog",
                                                 .keys = dog_keys,
                                                 .size = sizeof(struct dog),
                                                 .check = check_dog};
static const struct config_section *pet_kind(size_t i)
{
    static const struct config_section *const kinds[] = {&cat_config, &dog_config, NULL};

    return kinds[i];
}
static const struct config_list pets = {.name = "pets",
                                        .entry = &pet_entry,
                                        .when = CFG_RELOAD,
                                        .example = "{kind: cat, name: Tom}",
                                        .unique = "name",
                                        .kind_key = "kind",
                                        .kind = pet_kind};

struct shelf {
    char *label;
    uint32_t boards;
};
static const struct config_key shelf_keys[] = {
    {"label", CFG_TEXT, CFG_RESTART, offsetof(struct shelf, label), .required = true,
     .what = "Its label."},
    {"boards", CFG_NUMBER, CFG_RESTART, offsetof(struct shelf, boards), "3", .min = 1, .max = 9,
     .what = "How many."},
    {0},
};
static const struct config_section shelf_entry = {.keys = shelf_keys, .size = sizeof(struct shelf)};
static const struct config_list shelves = {.name = "shelves",
                                           .entry = &shelf_entry,
                                           .example = "{label: tea}",
                                           .otherwise = "[{label: tea}, {label: jam, boards: 1}]",
                                           .unique = "label"};

static const struct config_section *const sections[] = {&counter_config, &staff_config,
                                                        &lamp_config, NULL};
static const struct config_list *const lists[] = {&pets, &shelves, NULL};
static const struct config_schema shop = {.sections = sections, .lists = lists};

struct loaded {
    char path[64];
    struct config *cfg;
    struct buf why;
};

static enum bh_err load(struct loaded *l, const char *yaml)
{
    snprintf(l->path, sizeof l->path, "/tmp/bellhop-test-shop-%d.yaml", (int)getpid());
    l->cfg = NULL;
    l->why = BUF_INIT;
    FILE *f = fopen(l->path, "we");
    assert_non_null(f);
    fputs(yaml, f);
    fclose(f);
    return config_load(l->path, &shop, &l->cfg, &l->why);
}

static void unload(struct loaded *l)
{
    unlink(l->path);
    config_free(l->cfg);
    buf_done(&l->why);
}

static void assert_refused(const char *yaml, const char *expected)
{
    struct loaded l;

    assert_int_equal(load(&l, yaml), BH_MALFORMED);
    const char *tail = strstr(buf_z(&l.why), ".yaml");
    if (tail == NULL || strcmp(tail, expected) != 0)
        fail_msg("for <%s>\n  expected ...%s\n  but got %s", yaml, expected, buf_z(&l.why));
    unload(&l);
}

static void a_section_finds_its_struct_filled(void **state)
{
    struct loaded l;

    assert_int_equal(load(&l, "name: back\ncounter: {colour: elm, lamp: {on: yes, fuse: f}}\n"
                              "staff: [Ada, \"Bob, the elder\"]\n"),
                     BH_OK);
    const struct counter *c = config_get(l.cfg, &counter_config);
    const struct lamp *lamp = config_get(l.cfg, &lamp_config);
    assert_string_equal(c->name, "back");
    assert_int_equal(c->height, 90);
    assert_int_equal(c->colour, 2);
    assert_int_equal(c->untouched, 7);
    assert_int_equal(c->drawers, 12);
    assert_string_equal(c->staff[1], "Bob, the elder");
    assert_null(c->staff[2]);
    assert_ptr_equal(config_get(l.cfg, &staff_config), c);
    assert_true(lamp->on);
    assert_string_equal(lamp->hidden, "f");
    unload(&l);
}

static void entries_are_of_their_kind_and_know_their_line(void **state)
{
    struct loaded l;

    assert_int_equal(load(&l, "pets:\n- {kind: cat, name: Tom}\n"
                              "- {name: Rex, tricks: \"sit, roll\", kind: dog, collar: red}\n"
                              "- {kind: dog, name: Tom, collar: blue}\n"),
                     BH_OK);
    assert_int_equal(config_count(l.cfg, &pets), 3);
    const struct cat *tom = config_entry(l.cfg, &pets, 0);
    const struct dog *rex = config_entry(l.cfg, &pets, 1);
    assert_string_equal(tom->base.name, "Tom");
    assert_int_equal(tom->lives, 9);
    assert_string_equal(rex->base.kind, "dog");
    assert_string_equal(rex->collar, "red");
    assert_string_equal(rex->tricks[1], "roll");
    assert_int_equal(config_entry_line(l.cfg, &pets, 2), 4);
    unload(&l);
}

static void a_list_the_file_does_not_have_is_as_declared(void **state)
{
    struct loaded l;

    assert_int_equal(load(&l, "name: x\n"), BH_OK);
    assert_int_equal(config_count(l.cfg, &pets), 0);
    assert_int_equal(config_count(l.cfg, &shelves), 2);
    const struct shelf *jam = config_entry(l.cfg, &shelves, 1);
    assert_string_equal(jam->label, "jam");
    assert_int_equal(jam->boards, 1);
    assert_int_equal(config_entry_line(l.cfg, &shelves, 1), 0);
    unload(&l);
    assert_int_equal(load(&l, "shelves: []\n"), BH_OK);
    assert_int_equal(config_count(l.cfg, &shelves), 0);
    unload(&l);
}

static void mistakes_are_told_with_their_line(void **state)
{
    assert_refused("nam: x\n", ".yaml:1: unknown key \"nam\"; expected one of: name counter staff "
                               "drawers depth pets shelves");
    assert_refused("counter:\n  width: 3\n", ".yaml:2: unknown key \"counter.width\"; expected one "
                                             "of: height colour lamp");
    assert_refused("counter.height: 60\n", ".yaml:1: unknown key \"counter.height\"; expected one "
                                           "of: name counter staff drawers depth pets shelves");
    assert_refused("counter: {lamp: {off: 1}}\n",
                   ".yaml:1: unknown key \"counter.lamp.off\"; expected one of: on fuse");
    assert_refused("counter: {colour: oak, colour: ash}\n", ".yaml:1: \"colour\" is there twice");
    assert_refused("counter: {colour: teak}\n",
                   ".yaml:1: counter.colour: expected one of ash|oak|elm, found \"teak\"");
    assert_refused("drawers: 0\n",
                   ".yaml:1: drawers: expected a whole number of at least 1, found \"0\"");
    assert_refused("staff: [[a]]\n", ".yaml:1: staff: expected a list of words");
    assert_refused("counter: {lamp: {on: yes}}\n",
                   ".yaml: counter.lamp: a lamp that is on needs its fuse");
    assert_refused("pets: {}\n", ".yaml:1: pets: expected a list, \"- {kind: cat, name: Tom}\"");
    assert_refused("pets: [Tom]\n",
                   ".yaml:1: pets: expected an entry such as {kind: cat, name: Tom}");
    assert_refused("pets:\n- {name: x}\n",
                   ".yaml:2: pets: \"kind\" is missing; expected one of: cat dog");
    assert_refused("pets:\n- {kind: emu}\n",
                   ".yaml:2: pets: unknown kind \"emu\"; expected one of: cat dog");
    assert_refused("pets:\n- {kind: dog, name: x}\n", ".yaml:2: pets: dog: \"collar\" is missing");
    assert_refused("pets:\n- {kind: cat, name: x, collar: red}\n",
                   ".yaml:2: pets: \"cat\" does not take \"collar\"");
    assert_refused("pets:\n- {kind: cat, name: x, age: 3}\n",
                   ".yaml:2: pets: unknown key \"age\"; expected one of: kind name lives");
    assert_refused("pets:\n- {kind: cat, name: x}\n- {kind: cat, name: x}\n",
                   ".yaml:3: pets: cat name \"x\" is there twice");
    assert_refused("pets:\n- {kind: dog, name: Rex, collar: none}\n",
                   ".yaml:2: dog Rex: a dog is on a leash");
    assert_refused("shelves:\n- {label: a}\n- {label: a}\n",
                   ".yaml:3: shelves: label \"a\" is there twice");
}

static void the_environment_has_the_last_word(void **state)
{
    struct loaded l;

    setenv("BELLHOP_STAFF", "Cyd ,Dee", 1);
    setenv("BELLHOP_COUNTER_LAMP_FUSE", "f", 1);
    assert_int_equal(load(&l, "staff: [Ada]\ncounter: {lamp: {on: yes}}\n"), BH_OK);
    const struct counter *c = config_get(l.cfg, &counter_config);
    assert_string_equal(c->staff[0], "Cyd");
    assert_string_equal(c->staff[1], "Dee");
    unload(&l);
    unsetenv("BELLHOP_STAFF");
    unsetenv("BELLHOP_COUNTER_LAMP_FUSE");
}

static void a_reload_takes_values_and_whole_lists(void **state)
{
    struct loaded a, b;
    struct buf reload = BUF_INIT, restart = BUF_INIT;

    assert_int_equal(load(&a, ""), BH_OK);
    assert_int_equal(load(&b, "name: x\nstaff: [Ada]\ncounter: {height: 100}\n"
                              "pets: [{kind: cat, name: Tom}]\nshelves: []\n"),
                     BH_OK);
    const struct counter *c = config_get(a.cfg, &counter_config);
    config_diff(a.cfg, b.cfg, &reload, &restart);
    assert_string_equal(buf_z(&reload), "counter.height\nstaff\npets\n");
    assert_string_equal(buf_z(&restart), "name\nshelves\n");
    config_take_reloadable(a.cfg, b.cfg);
    assert_int_equal(c->height, 100);
    assert_string_equal(c->staff[0], "Ada");
    assert_string_equal(c->name, "front");
    assert_int_equal(config_count(a.cfg, &pets), 1);
    assert_int_equal(config_count(a.cfg, &shelves), 2);
    buf_done(&reload);
    buf_done(&restart);
    unload(&b);
    unload(&a);
}

static void the_reference_is_made_of_the_tables(void **state)
{
    struct buf out = BUF_INIT;

    config_describe(&shop, &out);
    assert_non_null(strstr(buf_z(&out), "| `counter.height` | `90` | reload | In cm. |\n"));
    assert_non_null(strstr(buf_z(&out), "| `drawers` | `12` | reload | How many. |\n"));
    assert_non_null(strstr(buf_z(&out), "| `depth` | `64KiB` | reload | How much one takes. |\n"));
    assert_non_null(strstr(buf_z(&out), "Which wood. |\n"));
    assert_non_null(strstr(buf_z(&out), "Each entry of `pets:` takes:\n"));
    assert_non_null(strstr(buf_z(&out), "| `lives` | 9 | cat | Left. |\n"));
    assert_non_null(strstr(buf_z(&out), "| `boards` | 3 | How many. |\n"));
    buf_done(&out);
}

static void an_entry_from_elsewhere_reads_no_environment(void **state)
{
    static const struct config_section *const none[] = {NULL};
    static const struct config_list *const only_pets[] = {&pets, NULL};
    static const struct config_schema schema = {.sections = none, .lists = only_pets};
    struct config *cfg = NULL;
    struct buf why = BUF_INIT;

    setenv("FIDO", "a secret", 1);
    assert_int_equal(config_parse(STR("{\"pets\":[{\"kind\":\"dog\",\"name\":\"${FIDO}\","
                                      "\"collar\":\"a: b # c\",\"tricks\":[\"sit\",\"${X\"]}]}"),
                                  &schema, &cfg, &why),
                     BH_OK);
    const struct dog *d = config_entry(cfg, &pets, 0);
    assert_string_equal(d->base.name, "${FIDO}");
    assert_string_equal(d->collar, "a: b # c");
    assert_string_equal(d->tricks[1], "${X");
    assert_ptr_equal(config_entry_kind(cfg, &pets, 0), &dog_config);
    config_free(cfg);
    assert_int_equal(config_parse(STR("{\"pets\":[{\"kind\":\"dog\",\"name\":\"a\"}]}"), &schema,
                                  &cfg, &why),
                     BH_MALFORMED);
    assert_string_equal(buf_z(&why), "pets: dog: \"collar\" is missing");
    buf_done(&why);
    unsetenv("FIDO");
}

static void ten_thousand_entries_load_in_a_blink(void **state)
{
    struct buf yaml = BUF_INIT;
    struct loaded l;

    buf_add_z(&yaml, "pets:\n");
    for (int i = 0; i < 10000; i++)
        buf_printf(&yaml, "- {kind: cat, name: c%d}\n", i);
    assert_int_equal(load(&l, buf_z(&yaml)), BH_OK);
    assert_int_equal(config_count(l.cfg, &pets), 10000);
    unload(&l);
    buf_done(&yaml);
}

UNIT(base_test_config)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_section_finds_its_struct_filled),
        cmocka_unit_test(entries_are_of_their_kind_and_know_their_line),
        cmocka_unit_test(a_list_the_file_does_not_have_is_as_declared),
        cmocka_unit_test(mistakes_are_told_with_their_line),
        cmocka_unit_test(the_environment_has_the_last_word),
        cmocka_unit_test(a_reload_takes_values_and_whole_lists),
        cmocka_unit_test(the_reference_is_made_of_the_tables),
        cmocka_unit_test(an_entry_from_elsewhere_reads_no_environment),
        cmocka_unit_test(ten_thousand_entries_load_in_a_blink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
