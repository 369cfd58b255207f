#!/bin/bash
# check.sh FOLDER - the packages in FOLDER in a clean root: installed, upgraded from an older version with a database of version 1,
# removed, purged. Needs root, and the apt sources of this machine.
set -euo pipefail
folder=$(realpath "$1") tree=$(realpath "$(dirname "$0")/..")
root=$(mktemp -d /var/tmp/bellhop-root.XXXXXX)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT

step() { printf '\033[1m-- %s\033[0m\n' "$*" >&2; }
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root "$@"; }
expect() { # expect WHAT COMMAND...
    local what=$1
    shift
    "$@" >/dev/null || { printf 'check.sh: not so: %s\n' "$what" >&2; exit 1; }
    printf 'ok  %s\n' "$what" >&2
}
absent() { ! inside test -e "$1"; }

step "a clean root"
sources=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null || true)
[ -n "$sources" ] || sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null)
mmdebstrap --quiet --variant=minbase --mode=root --include=ca-certificates,sqlite3 bookworm "$root" - <<<"$sources"
cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # nothing starts services here
chmod 755 "$root/usr/sbin/policy-rc.d"
mkdir "$root/packages"
cp "$folder"/*.deb "$root/packages/"
cp "$tree/tests/e2e/kept/v1.sql" "$root/packages/"

step "an older version of the package"
new=$(dpkg-deb -f "$folder"/bellhop_*.deb Version)
dpkg-deb -R "$folder"/bellhop_*.deb "$root/packages/older"
sed -i 's/^Version: .*/Version: 0.1.0/' "$root/packages/older/DEBIAN/control"
dpkg-deb --root-owner-group -b "$root/packages/older" "$root/packages/older.deb" >/dev/null
rm -rf "$root/packages/older"

step "install"
inside apt-get update -qq
inside apt-get install -y -qq --no-install-recommends /packages/older.deb >/dev/null
expect "version 0.1.0 is installed" inside dpkg-query -W -f '${Version}' bellhop
expect "there is a user" inside getent passwd bellhop
expect "its data is nobody else's" test "$(inside stat -c '%U %a' /var/lib/bellhop)" = "bellhop 700"
expect "so are the secrets" test "$(inside stat -c '%U %a' /etc/bellhop/secrets)" = "bellhop 700"
expect "there is a configuration" inside test -f /etc/bellhop/bellhop.yaml
expect "the program runs" inside bellhop version
expect "every command has a man page" test "$(inside sh -c 'ls /usr/share/man/man1/bellhop-*.1.gz | wc -l')" = "$(inside bellhop help man | wc -l)"
for f in /usr/share/bash-completion/completions/bellhop /usr/share/zsh/vendor-completions/_bellhop /usr/share/doc/bellhop/sbom.json \
    /usr/share/fish/vendor_completions.d/bellhop.fish /lib/systemd/system/bellhop.service \
    /usr/share/bellhop/grafana/messages.json /usr/share/bellhop/grafana/system.json /usr/share/bellhop/prometheus/bellhop.rules.yml \
    /usr/share/bellhop/skillscript/index.js /usr/share/bellhop/skillscript/package.json; do
    expect "$f" inside test -s "$f"
done
expect "the unit runs as the user" inside grep -q '^User=bellhop' /lib/systemd/system/bellhop.service

step "a database of version 1, and a configuration that somebody changed"
inside sh -c 'sqlite3 /var/lib/bellhop/bellhop.db </packages/v1.sql && chown bellhop:bellhop /var/lib/bellhop/bellhop.db'
inside sh -c 'echo "listen: 127.0.0.1:0" >>/etc/bellhop/bellhop.yaml'
inside sh -c 'umask 077; echo 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef >/etc/bellhop/secrets/master; chown bellhop /etc/bellhop/secrets/master'
inside sh -c 'echo "master_key_file: ../secrets/master" >/etc/bellhop/conf.d/key.yaml'
before=$(inside sha256sum /etc/bellhop/bellhop.yaml)

step "upgrade"
inside sh -c "apt-get install -y -qq --no-install-recommends /packages/bellhop_${new}_*.deb" >/dev/null
expect "version $new is installed" test "$(inside dpkg-query -W -f '${Version}' bellhop)" = "$new"
expect "the configuration is as it was" test "$(inside sha256sum /etc/bellhop/bellhop.yaml)" = "$before"
expect "the upgrade restarts the service" grep -q '_dh_action=restart' "$root/var/lib/dpkg/info/bellhop.postinst"
inside sh -c 'mount -t proc proc /proc 2>/dev/null || true; setpriv --reuid=bellhop --regid=bellhop --clear-groups \
    bellhop serve -c /etc/bellhop/bellhop.yaml >/tmp/out 2>/tmp/err & echo $! >/tmp/pid
    for i in $(seq 100); do grep -q ready /tmp/out && break; sleep 0.1; done'
expect "the server takes the database" grep -q ready "$root/tmp/out" || { cat "$root/tmp/err" >&2; exit 1; }
expect "the kept gateway is there" inside sh -c 'test "$(bellhop gateway list --json | grep -o "\"id\":" | wc -l)" -ge 1'
expect "a message still waits for it" inside sh -c 'bellhop mailbox list | grep -q .'
inside sh -c 'kill $(cat /tmp/pid); for i in $(seq 100); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done'
umount "$root/proc" 2>/dev/null || true

step "the library, from C"
inside sh -c 'apt-get install -y -qq --no-install-recommends /packages/libbellhop-gateway*.deb gcc libc6-dev pkg-config' >/dev/null
inside sh -c 'printf "#include <bellhop/gateway.h>\n#include <stdio.h>\nint main(void){puts(BHGW_VERSION);return 0;}\n" >/tmp/a.c
    gcc -o /tmp/a /tmp/a.c $(pkg-config --cflags --libs bellhop-gateway)'
expect "a program is compiled by pkg-config and runs" test "$(inside /tmp/a)" = "$new"

step "remove, purge"
inside apt-get remove -y -qq bellhop >/dev/null
expect "the program is gone" absent /usr/bin/bellhop
expect "data and configuration stay" inside test -s /var/lib/bellhop/bellhop.db -a -s /etc/bellhop/bellhop.yaml
inside apt-get purge -y -qq bellhop >/dev/null
for f in /var/lib/bellhop /etc/bellhop /usr/share/bellhop; do
    expect "$f is gone" absent "$f"
done
expect "the user is gone" sh -c "! grep -q ^bellhop: '$root/etc/passwd'"
step "all of it is so"
