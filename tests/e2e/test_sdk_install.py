"""The gateway library as a program outside finds it: installed, by pkg-config, from C and C++."""
import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT

SDK = ROOT / "sdk"
HEADER = (SDK / "include" / "bellhop" / "gateway.h").read_text()
SYMBOLS = (SDK / "bellhop-gateway.symbols").read_text().split()
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], text=True, capture_output=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(directory, environment for pkg-config, flags the sanitizers of this build need)"""
    root = tmp_path_factory.mktemp("installed")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", root)
    found = list(root.rglob("bellhop-gateway.pc"))
    assert len(found) == 1
    options = json.loads(run("meson", "introspect", BUILD, "--buildoptions"))
    sanitize = next(o["value"] for o in options if o["name"] == "b_sanitize")
    flags = [] if sanitize == "none" else [f"-fsanitize={sanitize}"]
    env = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(root), "PKG_CONFIG_PATH": str(found[0].parent)}
    return root, env, flags


def pkg_config(env, *words):
    return run("pkg-config", *words, "bellhop-gateway", env=env).split()


def header_functions():
    code = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
    return sorted(set(re.findall(r"BHGW_API[^;]*?\b(bhgw_\w+)\(", code)))


def test_the_shared_library_exports_exactly_the_listed_symbols(installed):
    root, _, _ = installed
    library = next(root.rglob("libbellhop-gateway.so.0"))
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    names = {line.split()[2] for line in lines} - {"BELLHOP_GATEWAY_0"}
    assert {n.split("@@")[1] for n in names} == {"BELLHOP_GATEWAY_0"}
    exported = sorted(n.split("@@")[0] for n in names)
    # A symbol that went away breaks programs: raise the soname.  A new one: add it to the list.
    assert exported == SYMBOLS
    assert exported == header_functions()


def test_the_static_library_shows_nothing_else(installed):
    root, _, _ = installed
    library = next(root.rglob("libbellhop-gateway.a"))
    lines = [line.split() for line in run("nm", "-g", "--defined-only", library).splitlines()]
    strong = sorted(w[2] for w in lines if len(w) == 3 and w[1] in "TDBR")
    assert strong == SYMBOLS


def test_the_soname_is_0(installed):
    library = next(installed[0].rglob("libbellhop-gateway.so.0"))
    assert "soname: [libbellhop-gateway.so.0]" in run("readelf", "-d", library)


def test_the_header_is_clean_c99_and_c11(installed, tmp_path):
    _, env, _ = installed
    source = tmp_path / "use.c"
    source.write_text("#include <bellhop/gateway.h>\nint main(void) { return (int)bhgw_options_init().n_identities; }\n")
    for std in ("c99", "c11", "c17"):
        run("gcc", f"-std={std}", *WARNINGS, "-Wc++-compat", "-fsyntax-only", source,
            *pkg_config(env, "--cflags"))


CXX = r"""
#include <bellhop/gateway.h>
#include <string>

struct Agent {
    std::string last;
    static enum bhgw_verdict on_event(void *ctx, struct bhgw *gw, const struct bhgw_event *ev)
    {
        static_cast<Agent *>(ctx)->last = ev->text;
        bhgw_reply(gw, ev, ev->text, nullptr, nullptr);
        return BHGW_ACK;
    }
};

int main()
{
    Agent agent;
    struct bhgw_options opt = bhgw_options_init();
    opt.url = "http://127.0.0.1:1";
    opt.ctx = &agent;
    opt.on_event = Agent::on_event;
    struct bhgw *gw = bhgw_new(&opt, nullptr, 0);
    if (gw == nullptr)
        return 1;
    struct bhgw_action action = bhgw_action_init("send");
    action.chat_id = "c";
    struct bhgw_result *result = bhgw_request_wait(gw, &action);
    bool right = std::string(result->error) == BHGW_ERROR_NOT_CONNECTED;
    bhgw_result_free(result);
    bhgw_free(gw);
    return right ? 0 : 1;
}
"""


@pytest.mark.parametrize("std", ["c++11", "c++20"])
def test_a_cpp_program_compiles_links_and_runs(installed, tmp_path, std):
    root, env, flags = installed
    source, program = tmp_path / "agent.cc", tmp_path / "agent"
    source.write_text(CXX)
    run("g++", f"-std={std}", *WARNINGS, *flags, source, "-o", program,
        *pkg_config(env, "--cflags", "--libs"))
    library = next(root.rglob("libbellhop-gateway.so.0"))
    run(program, env={**os.environ, "LD_LIBRARY_PATH": str(library.parent)})


def test_a_static_program_with_a_clashing_name_links_and_runs(installed, tmp_path):
    root, env, flags = installed
    source, program = tmp_path / "own.c", tmp_path / "own"
    source.write_text("""
        #include <bellhop/gateway.h>
        int buf_add(void), ledger_add(void), log_write(void);
        int buf_add(void) { return 1; }
        int ledger_add(void) { return 1; }
        int log_write(void) { return 1; }
        int main(void)
        {
            char *url = bhgw_ws_url("https://c.example");
            int right = url != 0 && buf_add() + ledger_add() + log_write() == 3;
            bhgw_string_free(url);
            return right ? 0 : 1;
        }""")
    # The library itself statically, what it stands on as the system has it.
    below = pkg_config(env, "--print-requires-private")
    libs = run("pkg-config", "--libs", *below).split() + ["-lstdc++", "-pthread"]
    archive = next(root.rglob("libbellhop-gateway.a"))
    run("gcc", *flags, source, "-o", program, *pkg_config(env, "--cflags"), archive, *libs)
    run(program)
    assert "libbellhop" not in run("ldd", program)


def test_the_page_shows_the_example_that_is_built():
    example = (SDK / "examples" / "hello.c").read_text()
    assert example in (ROOT / "docs" / "sdk.md").read_text()


def test_the_manual_page_names_every_function(installed):
    page = (SDK / "bellhop-gateway.3").read_text()
    assert [f for f in header_functions() if not re.search(rf"\b{f}\b", page)] == []
    assert any(installed[0].rglob("bellhop-gateway.3*"))
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings", "-l", SDK / "bellhop-gateway.3"], text=True,
                              capture_output=True, env={**os.environ, "MANPAGER": "cat"})
        assert done.stderr == "", done.stderr
