/* Promises of base/config.h, with tables of our own: a shop with a counter, lamps and pets. */
#include "unit.h"
#include <stdlib.h>
#include <sys/stat.h>
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
    char *hidden, *wiring;
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
    {"counter.lamp.wiring", CFG_JSON, CFG_RELOAD, offsetof(struct lamp, wiring), .what = "Plan."},
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

static void assert_wiring(const char *yaml, const char *want)
{
    struct loaded l;
    char text[512];

    snprintf(text, sizeof text, "counter: {lamp: {wiring: %s}}\n", yaml);
    assert_int_equal(load(&l, text), BH_OK);
    const struct lamp *lamp = config_get(l.cfg, &lamp_config);
    assert_string_equal(lamp->wiring, want);
    unload(&l);
}

static void a_tree_becomes_json(void **state)
{
    setenv("COLOUR", "red \"hot\"", 1);
    assert_wiring("{a: 1, b: [x, 'y', true, null, -1.5, \"1\"], \"c d\": {e: {}}}",
                  "{\"a\":1,\"b\":[\"x\",\"y\",true,null,-1.5,\"1\"],\"c d\":{\"e\":{}}}");
    assert_wiring("{a: \"${COLOUR}\", b: '{text}', c: 007}",
                  "{\"a\":\"red \\\"hot\\\"\",\"b\":\"{text}\",\"c\":\"007\"}");
    assert_wiring("'{\"a\": [1]}'", "{\"a\": [1]}");
    assert_wiring("[]", "[]");
    unsetenv("COLOUR");
    assert_refused("counter: {lamp: {wiring: 'not JSON'}}\n",
                   ".yaml:1: counter.lamp.wiring: expected a section, or JSON");
    assert_refused("counter: {lamp: {wiring: {a: 1, a: 2}}}\n", ".yaml:1: \"a\" is there twice");
    assert_refused("counter: {lamp: {wiring: {[x]: 1}}}\n",
                   ".yaml:1: counter.lamp.wiring: expected a name before the colon");
    assert_refused("counter: {lamp: {wiring: &a [*a]}}\n",
                   ".yaml:1: counter.lamp.wiring: too deep or too large");
    assert_refused(
        "counter:\n  lamp:\n    wiring: [&a [x, x, x, x, x, x, x, x, x], &b [*a, *a, *a, "
        "*a, *a, *a, *a, *a], &c [*b, *b, *b, *b, *b, *b, *b, *b], &d [*c, *c, *c, *c, *c, "
        "*c, *c, *c], [*d, *d, *d, *d, *d, *d, *d, *d]]\n",
        ".yaml:3: counter.lamp.wiring: too deep or too large");
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
                               "drawers depth pets shelves include");
    assert_refused("counter:\n  width: 3\n", ".yaml:2: unknown key \"counter.width\"; expected one "
                                             "of: height colour lamp");
    assert_refused("counter.height: 60\n",
                   ".yaml:1: unknown key \"counter.height\"; expected one "
                   "of: name counter staff drawers depth pets shelves include");
    assert_refused("counter: {lamp: {off: 1}}\n",
                   ".yaml:1: unknown key \"counter.lamp.off\"; expected one of: on fuse wiring");
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

static void an_entry_that_is_kept_outlives_its_configuration(void **state)
{
    struct loaded a, b;

    assert_int_equal(load(&a, "staff: [Ada, Bob]\npets: [{kind: cat, name: Tom}]\n"), BH_OK);
    struct pet pet = *(const struct pet *)config_entry(a.cfg, &pets, 0);
    struct counter counter = *(const struct counter *)config_get(a.cfg, &counter_config);
    config_keep(&pet, pet_keys);
    config_keep(&counter, staff_keys);
    unload(&a);
    assert_string_equal(pet.name, "Tom");
    assert_string_equal(counter.staff[1], "Bob");
    assert_null(counter.staff[2]);
    assert_int_equal(load(&b, "staff: [Ada, Bob]\npets: [{kind: cat, name: Tim}]\n"), BH_OK);
    assert_true(config_same(&counter, config_get(b.cfg, &counter_config), staff_keys));
    assert_false(config_same(&pet, config_entry(b.cfg, &pets, 0), pet_keys));
    config_drop(&pet, pet_keys);
    config_drop(&counter, staff_keys);
    assert_null(pet.name);
    unload(&b);
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

/* ---- several files ---- */

static char folder[40];

static void put(const char *name, const char *text)
{
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s/%s", folder, name);
    FILE *f = fopen(buf_z(&path), "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    buf_done(&path);
}

static void make_folder(void)
{
    struct buf sub = BUF_INIT;

    snprintf(folder, sizeof folder, "/tmp/bellhop-test-shop-XXXXXX");
    assert_non_null(mkdtemp(folder));
    buf_printf(&sub, "%s/conf.d", folder);
    assert_int_equal(mkdir(buf_z(&sub), 0700), 0);
    buf_done(&sub);
}

static void remove_folder(void)
{
    struct buf command = BUF_INIT;

    buf_printf(&command, "rm -r %s", folder);
    assert_int_equal(system(buf_z(&command)), 0);
    buf_done(&command);
}

static enum bh_err load_folder(struct loaded *l)
{
    *l = (struct loaded){.cfg = NULL};
    snprintf(l->path, sizeof l->path, "%s/main.yaml", folder);
    return config_load(l->path, &shop, &l->cfg, &l->why);
}

/* Loads the folder, whose main file is @main; the error without the name of the folder is
 * @expected. */
static void assert_folder_refused(const char *main, const char *expected)
{
    struct loaded l;

    put("main.yaml", main);
    assert_int_equal(load_folder(&l), BH_MALFORMED);
    struct str rest = buf_str(&l.why);
    struct buf shown = BUF_INIT;
    while (rest.n > 0) {
        size_t n = str_starts(rest, str_of(folder)) ? strlen(folder) + 1 : 0;
        if (n == 0)
            buf_add_c(&shown, *rest.p);
        rest = str_skip(rest, n > 0 ? n : 1);
    }
    assert_string_equal(buf_z(&shown), expected);
    buf_done(&shown);
    unload(&l);
}

static void included_files_follow_in_the_order_of_their_names(void **state)
{
    struct loaded l;

    make_folder();
    put("conf.d/20-b.yaml", "pets: [{kind: cat, name: B}]\ncounter: {height: 77}\n");
    put("conf.d/10-a.yaml", "pets: [{kind: cat, name: A}]\n");
    put("conf.d/30-c.yaml.off", "nonsense: [\n");
    put("conf.d/.hidden.yaml", "nonsense: [\n");
    put("main.yaml", "include: [conf.d/*.yaml, conf.d/2*.yaml, none.d/*.yaml]\n"
                     "pets: [{kind: cat, name: M}]\ncounter: {colour: elm}\n");
    assert_int_equal(load_folder(&l), BH_OK);
    assert_int_equal(config_count(l.cfg, &pets), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct cat *c = config_entry(l.cfg, &pets, i);
        assert_string_equal(c->base.name, i == 0 ? "M" : i == 1 ? "A" : "B");
    }
    assert_string_equal(strrchr(config_entry_file(l.cfg, &pets, 2), '/'), "/20-b.yaml");
    assert_int_equal(config_entry_line(l.cfg, &pets, 2), 1);
    const struct counter *c = config_get(l.cfg, &counter_config);
    assert_int_equal(c->height, 77);
    assert_int_equal(c->colour, 2);
    unload(&l);
    remove_folder();
}

static void mistakes_about_included_files_name_file_and_line(void **state)
{
    make_folder();
    put("conf.d/a.yaml", "staff: [Ada]\n");
    put("conf.d/b.yaml", "\nname: x\n");
    assert_folder_refused("include: conf.d/*.yaml\nname: y\n",
                          "conf.d/b.yaml:2: \"name\" is there twice; main.yaml:2 has it too");
    put("conf.d/b.yaml", "include: c.yaml\n");
    assert_folder_refused("include: conf.d/*.yaml\n",
                          "conf.d/b.yaml:1: include: an included file cannot include others; name "
                          "them in main.yaml");
    put("conf.d/b.yaml", "nam: y\n");
    assert_folder_refused("include: conf.d/b*\n",
                          "conf.d/b.yaml:1: unknown key \"nam\"; expected one of: name counter "
                          "staff drawers depth pets shelves");
    put("conf.d/b.yaml", "pets:\n- {kind: cat, name: x}\n");
    assert_folder_refused("include: conf.d/b*\npets:\n- {kind: cat, name: x}\n",
                          "conf.d/b.yaml:2: pets: cat name \"x\" is there twice");
    assert_folder_refused("name: x\ninclude: conf.d/none.yaml\n",
                          "main.yaml:2: include: conf.d/none.yaml: there is no such file");
    assert_folder_refused("include: '*.yaml'\n", "main.yaml:1: include: \"*.yaml\" matches this "
                                                 "file itself; put the others into a folder");
    assert_folder_refused("include: conf.d\n", "main.yaml:1: include: conf.d is not a file");
    assert_folder_refused("include: [[a]]\n",
                          "main.yaml:1: include: expected a path, such as conf.d/*.yaml");
    remove_folder();
}

static void the_number_of_included_files_has_an_end(void **state)
{
    char name[32];

    make_folder();
    for (int i = 0; i < 1001; i++) {
        snprintf(name, sizeof name, "conf.d/%04d.yaml", i);
        put(name, "");
    }
    assert_folder_refused("include: conf.d/*\n", "main.yaml:1: include: more than 1000 files");
    remove_folder();
}

static void a_secret_may_stand_in_a_file_of_its_own(void **state)
{
    struct loaded l;

    make_folder();
    put("conf.d/fuse", "  16 A\n");
    put("conf.d/a.yaml", "counter: {lamp: {on: yes, fuse_file: fuse}}\n");
    put("main.yaml", "include: conf.d/*.yaml\n");
    assert_int_equal(load_folder(&l), BH_OK);
    const struct lamp *lamp = config_get(l.cfg, &lamp_config);
    assert_string_equal(lamp->hidden, "16 A");
    size_t n = 0;
    while (config_file(l.cfg, n) != NULL)
        n++;
    assert_int_equal(n, 4);
    assert_string_equal(strrchr(config_file(l.cfg, n - 1), '/'), "/fuse");
    unload(&l);
    put("main.yaml", "");
    setenv("BELLHOP_COUNTER_LAMP_FUSE_FILE", folder, 1);
    assert_int_equal(load_folder(&l), BH_MALFORMED);
    assert_non_null(strstr(buf_z(&l.why), "BELLHOP_COUNTER_LAMP_FUSE_FILE: "));
    assert_non_null(strstr(buf_z(&l.why), " is not a file"));
    unload(&l);
    unsetenv("BELLHOP_COUNTER_LAMP_FUSE_FILE");
    remove_folder();
}

static void mistakes_about_files_of_secrets_name_file_and_line(void **state)
{
    make_folder();
    put("empty", "\n");
    put("good", "x");
    assert_folder_refused("counter:\n  lamp: {fuse_file: none}\n",
                          "main.yaml:2: counter.lamp.fuse_file: none: No such file or directory");
    assert_folder_refused("counter: {lamp: {fuse_file: empty}}\n",
                          "main.yaml:1: counter.lamp.fuse_file: empty is empty");
    assert_folder_refused("counter: {lamp: {fuse_file: conf.d}}\n",
                          "main.yaml:1: counter.lamp.fuse_file: conf.d is not a file");
    assert_folder_refused("counter: {lamp: {fuse: a, fuse_file: good}}\n",
                          "main.yaml:1: \"counter.lamp.fuse\" and \"counter.lamp.fuse_file\" are "
                          "both there; keep one");
    assert_folder_refused("counter: {lamp: {fuse_file: }}\n",
                          "main.yaml:1: counter.lamp.fuse_file: expected the path of a file");
    assert_folder_refused("name_file: good\n",
                          "main.yaml:1: unknown key \"name_file\"; expected one of: name counter "
                          "staff drawers depth pets shelves include");
    remove_folder();
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
        cmocka_unit_test(a_tree_becomes_json),
        cmocka_unit_test(entries_are_of_their_kind_and_know_their_line),
        cmocka_unit_test(a_list_the_file_does_not_have_is_as_declared),
        cmocka_unit_test(mistakes_are_told_with_their_line),
        cmocka_unit_test(the_environment_has_the_last_word),
        cmocka_unit_test(a_reload_takes_values_and_whole_lists),
        cmocka_unit_test(an_entry_that_is_kept_outlives_its_configuration),
        cmocka_unit_test(the_reference_is_made_of_the_tables),
        cmocka_unit_test(an_entry_from_elsewhere_reads_no_environment),
        cmocka_unit_test(included_files_follow_in_the_order_of_their_names),
        cmocka_unit_test(mistakes_about_included_files_name_file_and_line),
        cmocka_unit_test(the_number_of_included_files_has_an_end),
        cmocka_unit_test(a_secret_may_stand_in_a_file_of_its_own),
        cmocka_unit_test(mistakes_about_files_of_secrets_name_file_and_line),
        cmocka_unit_test(ten_thousand_entries_load_in_a_blink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
