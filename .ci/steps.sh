# shellcheck shell=bash
# What the gate (.ci/run) and the full run (.ci/full) share: running a step, counting tests, the summary.
#
# The script that sources this file sets `wanted` to the names of the steps to run, between blanks, or to
# blanks for all of them. Both scripts go on after a failure.
logs=$PWD/target/ci-logs
# Read by the steps of the sourcing script.
# shellcheck disable=SC2034
host=x86_64-unknown-linux-gnu
passed=0
failed=0
failures=''
mkdir -p "$logs"
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0

# Adds up what the test programs and scripts/models print about themselves.
count_tests() { # LOG
    local counts
    counts=$(awk '
        /^test result: / { passed += $4; failed += $6 }
        /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
        END { print passed + 0, failed + 0 }' "$1")
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
}

# Prints why a step failed: the lines that name a failure, with the message of a panic, and the end of the log.
explain() { # LOG
    { grep -E -A 3 '^(error|test .* FAILED|thread .* panicked|SKIPPED|FAILED)' "$1" || true; } |
        head -n 40 | cut -c 1-300
    echo '    ...'
    tail -n 40 "$1" | cut -c 1-300 | sed 's/^/    /'
}

# step NAME MINUTES COMMAND...
step() {
    local name=$1 minutes=$2 log=$logs/$1.log start=$SECONDS status=0
    shift 2
    case $wanted in *[![:space:]]*) case $wanted in *" $name "*) ;; *) return 0 ;; esac ;; esac
    timeout --kill-after=10 "${minutes}m" "$@" >"$log" 2>&1 </dev/null || status=$?
    count_tests "$log"
    if [ $status = 0 ]; then
        passed=$((passed + 1))
        printf '%-12s %5d s  ok\n' "$name" $((SECONDS - start))
    else
        failed=$((failed + 1))
        failures="$failures $name"
        printf '%-12s %5d s  FAILED (%d)\n' "$name" $((SECONDS - start)) $status
        explain "$log"
    fi
}

# Prints the last lines. If every step ran and passed on a clean tree, notes the commit in target/ci-logs/NAME.
finish() { # NAME
    rm -f "$logs/$1"
    printf '%d s in all%s\n' "$SECONDS" "${failures:+; failed:$failures}"
    if [ "$failed" = 0 ] && [ -z "${wanted// /}" ] && [ -z "$(git status --porcelain)" ]; then
        git rev-parse HEAD >"$logs/$1"
    fi
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
