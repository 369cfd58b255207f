# seal.sh ARCHIVE OUT: the objects of ARCHIVE as one, whose hidden symbols nobody can see or clash with.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ld=ld
! command -v ld.bfd >/dev/null || ld=ld.bfd # other linkers write relocatable objects that they cannot read again
$ld -r --whole-archive "$1" -o "$work/bellhop-gateway.o"
objcopy --localize-hidden "$work/bellhop-gateway.o"
rm -f "$2"
ar rcs "$2" "$work/bellhop-gateway.o"
