"""A software bill of materials of a build: `sbom.py BUILD_DIR FILE`, CycloneDX 1.5 as JSON.

The libraries are those the finished program is linked with and those it loads late, with the Debian package, version and
licence file each came in; nothing is asked of a network.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import uuid


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def libraries(program):
    """{soname: path} of everything that is loaded with the program, and of what it loads late."""
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", str(program)), re.M))
    late = set(re.findall(rb"lib[a-z0-9_+-]+\.so\.[0-9.]+", program.read_bytes()))
    cache = dict(re.findall(r"^\s*(\S+) \(.*\) => (/\S+)", output("/sbin/ldconfig", "-p"), re.M))
    for name in (n.decode() for n in late):
        if name not in found and name in cache:
            found[name] = cache[name]
            more = re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", cache[name]), re.M)
            found.update({k: v for k, v in more if k not in found})
    return found


def package_of(path):
    """(package, version, source) of a file, as dpkg knows it; None: no package has it."""
    real = str(pathlib.Path(path).resolve())
    for name in {path, real, real.removeprefix("/usr"), path.removeprefix("/usr")}:
        done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        if done.returncode == 0:
            package = done.stdout.split(": ")[0].split(",")[0]
            version, source = output("dpkg-query", "-W", "-f=${Version} ${source:Package}", package).split()
            return package.split(":")[0], version, source
    return None


def component(package, version, source, sonames):
    return {"type": "library", "bom-ref": f"deb:{package}", "name": package, "version": version,
            "purl": f"pkg:deb/debian/{package}@{version}", "properties": [
                {"name": "debian:source", "value": source}] + [{"name": "soname", "value": s} for s in sorted(sonames)]}


def bill(build):
    program = build / "bellhop"
    version = json.loads(output(str(program), "version", "--json"))["version"]
    packages, loose = {}, []
    for soname, path in libraries(program).items():
        package = package_of(path)
        if package:
            packages.setdefault(package, set()).add(soname)
        else:
            loose.append({"type": "library", "bom-ref": f"file:{soname}", "name": soname})
    components = [component(*p, sonames) for p, sonames in sorted(packages.items())] + loose
    epoch = os.environ.get("SOURCE_DATE_EPOCH")  # a package: the same input gives the same bytes
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([epoch, version, components])) if epoch else uuid.uuid4()
    now = datetime.datetime.fromtimestamp(int(epoch or time.time()), datetime.timezone.utc)
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1,
            "metadata": {"timestamp": now.isoformat(timespec="seconds"),
                         "component": {"type": "application", "bom-ref": "bellhop", "name": "bellhop", "version": version}},
            "components": components,
            "dependencies": [{"ref": "bellhop", "dependsOn": [c["bom-ref"] for c in components]}]}


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(json.dumps(bill(pathlib.Path(sys.argv[1])), indent=1) + "\n")
