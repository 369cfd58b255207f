#!/bin/bash
# build.sh - the fuzz targets as OSS-Fuzz wants them: programs, seed corpora and dictionaries in $OUT, built with
# $CC, $CXX, $CFLAGS, $CXXFLAGS and linked with $LIB_FUZZING_ENGINE.  Run from anywhere; needs the packages of ./dev.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${OUT:?the directory to put them in}"
work=${WORK:-build/oss-fuzz}
rm -rf "$work"
meson setup "$work" -Dbuildtype=debugoptimized -Db_lundef=false -Db_pie=false -Dfuzz=true -Dtests=false \
    -Dfuzz_engine="${LIB_FUZZING_ENGINE:--fsanitize=fuzzer}" -Db_sanitize="${SANITIZE:-none}"
ninja -C "$work"
mkdir -p "$OUT"
for program in "$work"/tests/fuzz/fuzz_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    name=$(basename "$program")
    target=${name#fuzz_}
    cp "$program" "$OUT/"
    cp "tests/fuzz/dicts/$target" "$OUT/$name.dict"
    (cd "tests/fuzz/seeds/$target" && python3 -m zipfile -c "$(cd "$OLDPWD" && realpath "$OUT")/${name}_seed_corpus.zip" ./*)
done
