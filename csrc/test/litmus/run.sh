#!/usr/bin/env bash
# Ask herd7 about each test here.  A test says in its second line what it is a model of and what the answer is to be: 'Never',
# the outcome behind `exists` cannot come about, or, for controls, 'Sometimes'.  C is asked about under RC11 and C11
# with a partial order of seq_cst (both of which come with herd7), arm64's instructions under ARM's own model.
set -euo pipefail
cd "$(dirname "$0")"
herd7=${HERD7:-herd7}
command -v "$herd7" >/dev/null || { echo "herd7 is missing (Debian unstable: herdtools7; opam: herdtools7)" >&2; exit 2; }
passed=0 failed=0
for test in *.litmus; do
  expected=$(sed -n '2s/.*expect: \([A-Z][a-z]*\)"$/\1/p' "$test")
  case $(head -n 1 "$test") in
    C\ *) models=(rc11.cat c11_partialSC.cat) ;;
    AArch64\ *) models=(aarch64.cat) ;;
  esac
  for model in "${models[@]}"; do
    said=$("$herd7" -model "$model" "$test" 2>&1) || true
    answer=$(sed -n 's/^Observation [^ ]* \([A-Z][a-z]*\) .*/\1/p' <<<"$said")
    # Undefined: two accesses that are not atomic meet.  A control may.
    if [[ -n $expected && $answer == "$expected" && ($answer != Never || $said != *"undef"*) ]]; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      printf '%s under %s: expected %s, and herd7 says:\n%s\n' "$test" "$model" "${expected:-(nothing)}" "$said"
    fi
  done
done
echo "$passed passed, $failed failed"
((failed == 0))
