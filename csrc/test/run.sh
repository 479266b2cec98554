#!/usr/bin/env bash
# Build csrc with its tests and run them under AddressSanitizer and UBSan, and the ring under ThreadSanitizer too.
set -euo pipefail
cd "$(dirname "$0")/.."
out=test/build
mkdir -p "$out"
cc=${CC:-cc}
flags=(-std=c11 -g -O1 -Wall -Wextra -Wconversion -Wshadow -Werror -I. -fno-omit-frame-pointer)
for test in arena cell claim ring window; do
  "$cc" "${flags[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all -o "$out/$test.asan" "test/test_$test.c" tf_*.c -lpthread
  "$out/$test.asan"
done
# gcc's TSan does not model stand-alone fences: it is told so, and the rings' own acquire/release pairs are what it checks.
"$cc" "${flags[@]}" -Wno-error=tsan -fsanitize=thread -o "$out/ring.tsan" test/test_ring.c tf_*.c -lpthread
# Older TSan runtimes on new kernels need it without address randomisation, which a container may not let us switch off.
steady=(setarch "$(uname -m)" -R)
"${steady[@]}" true 2>/dev/null || steady=()
"${steady[@]}" "$out/ring.tsan"
