"""Each rule of ./dev check can fail, and says what to do: a small tree with one mistake, and its sentence."""
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check  # noqa: E402
import hardened  # noqa: E402
import sbom  # noqa: E402
import wrap  # noqa: E402


class House:
    """A small tree that breaks no rule until somebody writes into it."""

    def __init__(self, root):
        self.root, self.data = str(root / "tree"), str(root / "data")
        os.makedirs(self.data)
        open(os.path.join(self.data, "recursion.txt"), "w", encoding="utf-8").close()
        open(os.path.join(self.data, "foreign.txt"), "w", encoding="utf-8").close()
        shutil.copy(os.path.join(HERE, "layers.txt"), self.data)
        self.known("")
        self.write("README.md", "| page | for |\n|---|---|\n| [docs/one.md](docs/one.md) | all |\n"
                                "| [docs/configuration.md](docs/configuration.md) | keys |\n")
        self.write("docs/one.md", "Run `bellhop serve`, watch `bellhop_pokes_total`, read `src/base/str.h`.\n")
        self.write("docs/bellhop.1", ".TH BELLHOP 1\n.B serve\n\\-\\-port\n")
        self.write("docs/configuration.md", "| key |\n|---|\n| `wake.cooldown` |\n")
        self.write("src/base/README.md", "`str.h`: bytes.\n\nMay include: nothing of ours.\n")
        self.write("src/cli/README.md", "`serve.c`: the server.\n\nMay include: `base`.\n")
        self.write("src/base/str.h", "/* str.h - bytes. */\n#pragma once\nstruct str {\n    int n;\n};\n")
        self.write("src/cli/serve.c", "/* serve.c - the server. */\n#include \"base/str.h\"\n"
                                      "const struct command cmd_serve = {\"serve\", \"Usage: bellhop serve --port N\"};\n"
                                      "static const char *const options[] = {\"--port\"};\n"
                                      "static const char *const counters[] = {\"pokes\"};\n")
        shutil.copy(os.path.join(HERE, "..", "..", ".clang-format"), os.path.join(self.root, ".clang-format"))

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def known(self, text):
        with open(os.path.join(self.data, "known.txt"), "w", encoding="utf-8") as f:
            f.write(text)

    def run(self, *rules):
        """(whether all is well, everything that was said)."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = check.main(["--root", self.root, "--data", self.data,
                                 "--junit", os.path.join(self.data, "out.xml"), *rules])
        return status == 0, said.getvalue()


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


def says(house, rule, sentence):
    """The house is well without the mistake of the caller, so it is @rule that finds it."""
    good, said = house.run(rule)
    assert not good, said
    assert sentence in said, said


def test_a_tree_without_mistakes_passes_every_rule(house):
    good, said = house.run()
    assert good, said
    assert [line.split()[0] for line in said.splitlines()] == [r.__name__ for r in check.RULES]


def test_an_include_that_points_up_is_named(house):
    house.write("src/base/str.c", '#include "cli/cli.h"\n')
    says(house, "layers", "src/base/str.c includes cli/cli.h, but cli/ stands above base/")


def test_neighbours_that_the_table_does_not_join_are_named(house):
    house.write("src/edge/vault.c", '#include "tenancy/facts.h"\n')
    says(house, "layers", "edge/ and tenancy/ are neighbours that do not know each other")


def test_neighbours_that_the_table_joins_are_fine(house):
    house.write("src/relay/in/judge.c", '#include "tenancy/facts.h"\n')
    assert house.run("layers")[0]


def test_an_adapter_that_includes_another_is_named(house):
    house.write("src/platform/wecom/wecom.c", '#include "platform/twilio/twilio.h"\n')
    says(house, "layers", "platform/twilio/ is an implementation")


def test_a_commented_include_is_none(house):
    house.write("src/base/str.c", '/*\n#include "cli/cli.h"\n*/\n')
    assert house.run("layers")[0]


@pytest.mark.parametrize("header, path", [("ev.h", "src/relay/session/session.c"), ("curl/curl.h", "src/platform/web/web.c"),
                                          ("openssl/ssl.h", "src/base/crypto.c"), ("sqlite3.h", "src/store/seal.c"),
                                          ("cmark-gfm.h", "src/platform/web/web.c")])
def test_a_library_away_from_its_home_is_named(house, header, path):
    house.write(path, f"#include <{header}>\n")
    says(house, "layers", f"{path} includes {header}, but only")


def test_a_folder_without_a_floor_is_named(house):
    house.write("src/attic/box.c", "int box;\n")
    says(house, "layers", "src/attic/ has no floor")


def test_what_may_include_only_a_few_is_held_to_them(house):
    house.write("src/agent/seat.c", '#include "store/store.h"\n')
    says(house, "layers", "agent/ includes nothing but")


def test_a_heart_that_opens_a_platform_is_named(house):
    house.write("src/relay/egress.c", "static void send_it(void)\n{\n    p->ops->act(p);\n}\n")
    says(house, "face", "src/relay/egress.c:3: the heart dereferences p->ops")


def test_a_tag_with_two_meanings_is_named(house):
    house.write("src/net/str.c", "struct str {\n    int other;\n};\n")
    says(house, "tags", "struct str is defined in src/base/str.h and in src/net/str.c")


def test_a_tag_that_two_sources_define_is_named(house):
    for path in ("src/net/a.c", "src/net/b.c"):
        house.write(path, "struct loading {\n    int n;\n};\n")
    says(house, "tags", "struct loading is defined in src/net/a.c and in src/net/b.c")


def test_a_name_that_is_a_riddle_is_named(house):
    house.write("src/base/str.c", "/* to the ground */\nstatic const char *said = \"desk\";\nint is_elsewhere;\n")
    says(house, "plain", "src/base/str.c has the name is_elsewhere: use the word")


def test_a_readme_without_what_its_folder_may_include_is_named(house):
    house.write("src/cli/README.md", "`serve.c`: the server.\n")
    says(house, "doors", "src/cli/README.md has no line")


def test_an_include_that_the_readme_does_not_allow_is_named(house):
    house.write("src/cli/serve.c", '#include "core/event.h"\n#include "base/str.h"\n')
    says(house, "doors", "src/cli/serve.c includes core/, and src/cli/README.md does not say that it may")


def test_a_readme_that_allows_what_nobody_includes_is_named(house):
    house.write("src/cli/README.md", "May include: `base`, `core`.\n")
    says(house, "doors", "src/cli/README.md says that cli/ may include core/, which no file there does")


def test_a_readme_that_allows_more_than_the_table_is_named(house):
    house.write("src/base/README.md", "May include: `cli`.\n")
    says(house, "doors", "src/base/README.md says that base/ may include cli/, but cli/ stands above base/")


def test_a_long_file_without_a_reason_is_named(house):
    house.write("src/base/str.c", "/* str.c - bytes. */\n" + "int n;\n" * 900)
    says(house, "sizes", "src/base/str.c has 901 lines: split it")


def test_a_long_file_with_a_reason_is_fine(house):
    house.write("src/base/str.c", "/* str.c - bytes.  Long because it is one table. */\n" + "int n;\n" * 900)
    assert house.run("sizes")[0]


def test_wiring_that_grows_is_named(house):
    for name in ("host.c", "queue.c"):
        house.write("src/host/" + name, f"/* {name} - wiring. */\n" + "int n;\n" * 449)
    says(house, "wiring", "src/host has 900 lines: under 900 in all")


def test_a_long_function_is_named(house):
    house.write("src/base/str.c", "int str_grow(struct str *s,\n             int n)\n{\n" + "    n++;\n" * 121 + "}\n")
    says(house, "functions", "str_grow() has 121 lines")


def test_a_wide_line_is_named(house):
    house.write("src/base/str.c", "/* " + "wide " * 20 + "*/\n")
    says(house, "columns", "src/base/str.c:1 is over 100 columns")


def test_wide_prose_is_broken_and_pictures_are_not():
    wide = " ".join(["word"] * 25)
    lines = [f"/* a.h - {wide}", " *", " *      A --> " + "-" * 100, " *", f" * {wide}  Next.", " * More. */", "int a;"]
    new = wrap.wrap(lines)
    assert all(len(line) <= 100 for line in new if "--->" not in line and "----" not in line)
    assert lines[2] in new and new[-1] == "int a;"
    assert " ".join(" ".join(new).replace(" * ", " ").split()) == " ".join(" ".join(lines).replace(" * ", " ").split())
    assert wrap.wrap(new) == new


def test_code_and_narrow_comments_are_left_alone_by_the_wrapper():
    lines = ["int a; /* " + "wide " * 30 + "*/", "/* narrow", " * but ragged */", '    call("' + "x" * 120 + '");']
    assert wrap.wrap(lines) == lines


def test_a_picture_that_was_cut_is_named(house):
    house.write("src/base/str.c", "/* str.c - bytes.\n *\n *      SHORT --grows-->\n * LONG\n */\n")
    says(house, "pictures", "src/base/str.c:4: this line was cut off the picture or table above")


def test_a_picture_with_room_around_it_is_fine(house):
    house.write("src/base/str.c", "/* str.c - bytes.\n *\n *      SHORT --grows--> LONG\n *\n * That is all. */\n")
    assert house.run("pictures")[0]


LOOPS = ("static void two(int n);\nstatic void one(int n)\n{\n    two(n);\n}\nstatic void two(int n)\n{\n    one(n - 1);\n}\n"
         "static void three(struct ops *o)\n{\n    o->three(o);\n}\n")


def test_functions_that_call_each_other_in_a_circle_are_named(house):
    house.write("src/base/str.c", LOOPS)
    says(house, "recursion", "src/base/str.c: one() can call itself (one, two): use a loop")
    assert "three()" not in house.run("recursion")[1]


def test_a_circle_with_a_bound_is_fine_until_it_is_gone(house):
    house.write("src/base/str.c", LOOPS)
    with open(os.path.join(house.data, "recursion.txt"), "a", encoding="utf-8") as f:
        f.write("src/base/str.c one two # @n\n")
    assert house.run("recursion")[0]
    house.write("src/base/str.c", "int str;\n")
    says(house, "recursion", "recursion.txt: one() of src/base/str.c does not call itself any more")


@pytest.mark.parametrize("comment, name", [
    ("Then str_cut() cuts it.", "str_cut"), ("The field n_bytes counts.", "n_bytes"), ("See cut.c for more.", "cut.c"),
    ("At most MAX_BYTES of them.", "MAX_BYTES"), ("The `cutter` cuts.", "cutter"), ("@bytes is borrowed.", "@bytes")])
def test_a_comment_that_names_what_is_gone_is_named(house, comment, name):
    house.write("src/base/str.c", f"/* str.c - bytes.  {comment} */\nint str_grow(int by);\n")
    says(house, "names", f"src/base/str.c:1: the comment names {name}, which does not exist")


def test_a_comment_that_names_what_is_there_is_fine(house):
    house.write("src/base/str.c", "/* `struct str` of str.h; str_grow() adds @by, see base/str.h, docs/one.md and <stdio.h>. */\n"
                                  "#include <stdio.h>\nint str_grow(int by);\n")
    assert house.run("names")[0]


def test_foreign_names_are_allowed_when_listed(house):
    house.write("src/base/str.c", "/* As libfoo's foo_cut() does. */\n")
    says(house, "names", "foo_cut")
    with open(os.path.join(house.data, "foreign.txt"), "a", encoding="utf-8") as f:
        f.write("foo_cut # libfoo\n")
    assert house.run("names", "foreign")[0]


def test_a_foreign_name_that_nobody_mentions_is_named(house):
    with open(os.path.join(house.data, "foreign.txt"), "a", encoding="utf-8") as f:
        f.write("foo_cut # libfoo\n")
    says(house, "foreign", "foreign.txt:1: foo_cut is not needed (any more): delete it")


@pytest.mark.parametrize("text, sentence", [
    ("Watch `bellhop_loop_stall_seconds`.", "the metric bellhop_loop_stall_seconds"),
    ("Set BELLHOP_COLOUR.", "the setting BELLHOP_COLOUR"), ("Set `wake.colour`.", "the setting wake.colour"),
    ("Call `bellhop sing`.", "the command bellhop sing"),
    ("Run ./dev sing.", "the command ./dev sing"), ("    bellhop serve --loud\n", "the option --loud"),
    ("Read `src/base/song.h`.", "the file src/base/song.h"), ("Look into `src/songs/`.", "the folder src/songs/"),
    ("Call `song_sing()`.", "the name song_sing")])
def test_a_page_that_names_what_is_gone_is_named(house, text, sentence):
    house.write("docs/one.md", text + "\n")
    says(house, "claims", f"docs/one.md names {sentence}, which does not exist")


def test_a_command_that_is_not_in_the_manual_is_named(house):
    house.write("src/cli/sing.c", 'const struct command cmd_sing = {"sing", "Usage: bellhop sing"};\n')
    says(house, "manual", "docs/bellhop.1 does not have the command sing")


def test_an_option_without_help_is_named(house):
    house.write("docs/one.md", "`bellhop serve --loud`\n")
    house.write("src/cli/sing.c", 'static const char *const options[] = {"--loud"};\n')
    says(house, "manual", "src/cli/sing.c takes --loud, but its help text does not say so")


def test_an_option_on_no_page_is_named(house):
    house.write("src/cli/sing.c", 'static const char *const options[] = {"--loud"}, help[] = "sing [--loud]";\n')
    says(house, "manual", "neither docs/bellhop.1 nor a page of docs/ has it")


def test_a_page_nobody_lists_is_named(house):
    house.write("docs/two.md", "Two.\n")
    says(house, "pages", "README.md does not list docs/two.md")


def test_a_page_listed_twice_is_named(house):
    house.write("README.md", "| [docs/one.md](docs/one.md) | all |\n| [docs/one.md](docs/one.md) | again |\n")
    says(house, "pages", "README.md lists docs/one.md 2 times")


def test_a_dead_link_is_named(house):
    house.write("docs/one.md", "See [two](two.md#part).\n")
    says(house, "pages", "docs/one.md links to docs/two.md, which is not there")


def test_a_link_that_the_site_does_not_have_is_named(house):
    house.write("docs/one.md", "See [the table](../src/base/README.md).\n")
    says(house, "pages", "docs/one.md links to src/base/README.md, which `./dev docs` leaves out")


def test_a_folder_without_a_readme_is_named(house):
    house.write("src/net/loop.c", "int loop;\n")
    says(house, "readmes", "src/net/ has no README.md")


def test_a_file_its_readme_does_not_list_is_named(house):
    house.write("src/base/buf.c", "int buf;\n")
    says(house, "readmes", "src/base/README.md does not list src/base/buf.c")


def test_a_readme_may_list_files_by_pattern(house):
    house.write("src/base/README.md", "`str.h`, and `buf_*.c` for the rest.\n")
    house.write("src/base/buf_out.c", "int buf;\n")
    assert house.run("readmes")[0]


def test_a_folder_that_the_architecture_does_not_list_is_named(house):
    house.write("docs/architecture.md", "    src/net/   sockets\n")
    says(house, "readmes", "docs/architecture.md does not list src/base/")


def test_an_unformatted_file_is_named(house):
    house.write("src/base/str.c", "int   n;\n")
    says(house, "formatting", "src/base/str.c:1 is not formatted: run ./dev fmt")


def test_what_cppcheck_finds_is_named_again_on_the_next_run(house):
    house.write("src/base/str.c", "int at(void);\nint at(void)\n{\n    int a[2] = {0, 0};\n    return a[5];\n}\n")
    for _ in range(2):  # the second run answers from the cache
        says(house, "cppcheck", "src/base/str.c:5: Array 'a[2]' accessed at index 5")


def test_what_is_known_is_excused(house):
    house.write("src/edge/vault.c", '#include "tenancy/facts.h"\n')
    house.known("2026-11-15 layers src/edge/vault.c tenancy/facts.h # until the vault asks the host\n")
    good, said = house.run("layers")
    assert good and "ok, 1 known" in said


def test_a_known_problem_that_is_mended_must_leave_the_list(house):
    house.known("2026-11-15 layers src/edge/vault.c tenancy/facts.h\n")
    says(house, "layers", '"layers src/edge/vault.c tenancy/facts.h" is mended: delete the line')


def test_a_known_problem_of_no_rule_is_named(house):
    house.known("2026-11-15 songs src/edge/vault.c\n")
    says(house, "layers", 'known.txt:1: there is no rule "songs"')


def test_the_tally_counts_a_broken_rule_as_a_failure(house):
    house.write("docs/two.md", "Two.\n")
    house.run("pages", "readmes")
    empty = os.path.join(house.data, "meson.json")
    open(empty, "w", encoding="utf-8").close()
    out = subprocess.run([sys.executable, os.path.join(HERE, "..", "tally.py"), empty,
                          os.path.join(house.data, "out.xml")], capture_output=True, text=True)
    assert out.stdout.splitlines()[-1] == "1 passed, 1 failed"
    assert out.returncode == 1


def tally(*args):
    out = subprocess.run([sys.executable, os.path.join(HERE, "..", "tally.py"), *map(str, args)], capture_output=True, text=True)
    return out.returncode, out.stdout + out.stderr


def report(path, **cases):
    bad = sum(not good for good in cases.values())
    body = "".join(f'<testcase classname="tests.e2e.{name.split("__")[0]}" name="{name.split("__")[1]}">'
                   + ("" if good else "<failure>no</failure>") + "</testcase>" for name, good in cases.items())
    path.write_text(f'<testsuites><testsuite tests="{len(cases)}" failures="{bad}" errors="0" skipped="0">{body}</testsuite></testsuites>')
    return path


def test_the_tally_counts_a_step_that_never_ran_as_a_failure(tmp_path):
    good = report(tmp_path / "good.xml", test_web__a=True, test_web__b=True)
    assert tally(good) == (0, "2 passed, 0 failed\n")
    code, said = tally(good, tmp_path / "sim.json")
    assert code == 1 and said.endswith("sim.json'\n2 passed, 1 failed\n")


def test_the_tally_names_what_failed(tmp_path):
    bad = report(tmp_path / "bad.xml", test_web__c=False, test_web__d=True)
    assert tally(bad) == (1, "failed: tests.e2e.test_web: c\n1 passed, 1 failed\n")
    unit = tmp_path / "unit.json"
    unit.write_text("".join(json.dumps(t) + "\n" for t in (
        {"name": "unit - base", "result": "FAIL", "stdout": "[  FAILED  ] a_map_grows\n[  PASSED  ] 2 test(s).\n"
         "[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] a_map_grows\n\n 1 FAILED TEST(S)\n"},
        {"name": "unit - leaks", "result": "FAIL", "stdout": "[  PASSED  ] 3 test(s).\n", "stderr": "leaked"},
        {"name": "mutants", "result": "FAIL"}, {"name": "seeds", "result": "OK"})))
    assert tally(unit) == (1, "failed: unit - base: a_map_grows\nfailed: unit - leaks\nfailed: mutants\n6 passed, 3 failed\n")


def compiled(where, *options):
    source = where / "p.c"
    source.write_text("#include <stdio.h>\n#include <string.h>\n"
                      "int main(int c, char **v) { char b[64]; strcpy(b, v[c - 1]); return puts(b); }\n")
    subprocess.run(["gcc", "-O2", "-w", *options, "-o", where / "p", source], check=True)
    return where / "p"


def test_a_hardened_program_is_told_from_one_that_is_not(tmp_path, capsys):
    good = compiled(tmp_path, "-fPIE", "-pie", "-D_FORTIFY_SOURCE=3", "-fstack-protector-strong", "-fcf-protection=full",
                    "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack")
    assert hardened.main([good]) == 0, capsys.readouterr().out
    bare = compiled(tmp_path, "-no-pie", "-fno-stack-protector", "-fcf-protection=none", "-Wl,-z,norelro", "-Wl,-z,lazy",
                    "-Wl,-z,execstack")
    capsys.readouterr()
    assert hardened.main([bare]) == 1
    said = capsys.readouterr().out
    assert said.count("MISSING") == 7 and "ok   no memory both" in said, said


def test_the_bill_of_materials_names_the_package_of_every_library(tmp_path):
    (tmp_path / "x.c").write_text("#include <sqlite3.h>\nint main(void) { return sqlite3_libversion_number() == 0; }\n")
    subprocess.run(["cc", tmp_path / "x.c", "-o", tmp_path / "x", "-lsqlite3"], check=True)
    found = sbom.libraries(tmp_path / "x")
    package, version, source = sbom.package_of(found["libsqlite3.so.0"])
    assert (package, source) == ("libsqlite3-0", "sqlite3") and version.startswith("3.")
    assert sbom.package_of(str(tmp_path / "x")) is None
